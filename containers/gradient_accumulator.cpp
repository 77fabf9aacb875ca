// SPDX-License-Identifier: Apache-2.0
// Sums and means of gradients, and who waits for them.
#include "containers/gradient_accumulator.h"

#include <vector>

namespace troupe {
namespace {

template <class T> void add(Tensor& to, const Tensor& from) {
  T* a = to.mutable_data<T>();
  const T* b = from.data<T>();
  for (int64_t i = 0, n = to.elements(); i < n; ++i) {
    if constexpr (std::is_floating_point_v<T>) a[i] += b[i];
    else a[i] = T(static_cast<float>(a[i]) + static_cast<float>(b[i]));
  }
}

template <class T> void divide(Tensor& t, int64_t by) {
  T* a = t.mutable_data<T>();
  for (int64_t i = 0, n = t.elements(); i < n; ++i) {
    if constexpr (std::is_floating_point_v<T>) a[i] /= static_cast<T>(by);
    else a[i] = T(static_cast<float>(a[i]) / static_cast<float>(by));
  }
}

/// Calls f with a value of the floating type that `dtype` names.
template <class F> void with_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32: return f(float());
    case DType::kFloat64: return f(double());
    case DType::kFloat16: return f(float16());
    default: return f(bfloat16());
  }
}

void add(DType dtype, Tensor& to, const Tensor& from) {
  with_float(dtype, [&]<class T>(T) { add<T>(to, from); });
}

}  // namespace

Result<std::unique_ptr<Resource>> GradientAccumulator::make(std::string name, DType dtype, PartialShape shape,
                                                            Reduction reduction) {
  if (!is_floating(dtype))
    return invalid_argument("accumulator '{}' is for {}; gradients are floating", name, to_string(dtype));
  return std::unique_ptr<Resource>(new GradientAccumulator(std::move(name), dtype, std::move(shape), reduction));
}

Status GradientAccumulator::open_sum() {
  if (sum_.unique()) return {};
  TROUPE_ASSIGN(sum_, sum_.clone(allocator_));
  return {};
}

Status GradientAccumulator::apply_gradient(int64_t local_step, Tensor gradient, int64_t replica,
                                           std::shared_ptr<Allocator> allocator) {
  const Tensor& present = sum_.defined() || by_replica_.empty() ? sum_ : by_replica_.begin()->second;
  if (gradient.dtype() != dtype_ || !shape_.compatible(gradient.shape()) ||
      (present.defined() && !(present.shape() == gradient.shape())))
    return invalid_argument("accumulator '{}' is for {}{}, got a gradient {}{}", name_, to_string(dtype_),
                            present.defined() ? present.shape().str() : shape_.str(), to_string(gradient.dtype()),
                            gradient.shape().str());
  if (local_step < global_step_) return {};
  allocator_ = std::move(allocator);
  if (replica >= 0) {
    by_replica_.emplace(replica, std::move(gradient));
  } else if (!sum_.defined()) {
    sum_ = std::move(gradient);
  } else {
    TROUPE_RETURN_IF_ERROR(open_sum());
    add(dtype_, sum_, gradient);
  }
  ++count_;
  serve();
  return {};
}

Result<Tensor> GradientAccumulator::reduce() {
  auto next = by_replica_.begin();
  if (!sum_.defined()) {
    sum_ = std::move(next->second);
    next = by_replica_.erase(next);
  }
  TROUPE_RETURN_IF_ERROR(open_sum());
  for (; next != by_replica_.end(); ++next) add(dtype_, sum_, next->second);
  if (reduction_ == Reduction::kMean) with_float(dtype_, [&]<class T>(T) { divide<T>(sum_, count_); });
  by_replica_.clear();
  count_ = 0;
  ++global_step_;
  return std::move(sum_);
}

void GradientAccumulator::take_gradient(int64_t num_required, Reply reply) {
  if (num_required < 1)
    return reply(invalid_argument("accumulator '{}' was asked for {} gradients", name_, num_required));
  takes_.push_back({num_required, std::move(reply)});
  serve();
}

void GradientAccumulator::serve() {
  while (!takes_.empty() && count_ >= takes_.front().required) {
    Take take = std::move(takes_.front());
    takes_.pop_front();
    auto gradient = reduce();
    if (gradient.ok()) take.reply(std::vector<Tensor>{std::move(*gradient)});
    else take.reply(std::move(gradient.error()));
  }
}

void GradientAccumulator::cancel(uint64_t requester, int64_t step) {
  std::vector<Reply> cancelled;
  std::erase_if(takes_, [&](Take& t) {
    if (t.reply.tag().requester != requester || t.reply.tag().step != step) return false;
    cancelled.push_back(std::move(t.reply));
    return true;
  });
  for (Reply& reply : cancelled)
    reply(make_error(Code::kCancelled, "taking a gradient from accumulator '{}' was cancelled", name_));
  serve();
}

}  // namespace troupe
