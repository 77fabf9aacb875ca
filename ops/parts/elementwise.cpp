// SPDX-License-Identifier: Apache-2.0
// Broadcasting, threads and buffer reuse around element-wise loops.
#include "ops/parts/elementwise.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace troupe {
namespace {

/// Elements of a row for which a call each is dear, rows worth it to be taken together, and elements of these.
constexpr int64_t kDearRow = 64, kManyShortRows = 128, kRowsElements = 1024;

/// The operand, 0 or 1, that is one short row for each of many of the other, as a number for each channel is; or -1.
/// Several of it side by side make rows worth a loop.
int short_row_of_all(const Broadcast& plan) {
  if (plan.rank != 2 || plan.run() >= kDearRow || plan.runs() <= kManyShortRows) return -1;
  for (const int i : {0, 1})
    if (plan.stride[i][0] == 0 && plan.stride[i][1] == 1 && plan.stride[1 - i][0] == plan.run() &&
        plan.stride[1 - i][1] == 1)
      return i;
  return -1;
}

}  // namespace

Status same_shapes(const Shape& a, const Shape& b) {
  if (a != b) return invalid_argument("shapes {} and {} differ", a.str(), b.str());
  return {};
}

Status BinaryKernel::compute(KernelContext& c) {
  const Tensor &a = c.input(0), &b = c.input(1);
  const bool same = a.shape() == b.shape();
  if (!same && !broadcasts_) return same_shapes(a.shape(), b.shape());
  if (same || b.elements() == 1 || a.elements() == 1) {
    // One loop over all. A one-element operand counts as a scalar unless its rank makes the result's larger.
    const bool left = !same && a.elements() == 1 && a.rank() <= b.rank();
    const bool right = !same && !left && b.elements() == 1 && b.rank() <= a.rank();
    if (same || left || right) {
      const Tensor& big = left ? b : a;
      const int64_t n = big.elements();
      const int reuse = left || (same && !a.unique()) ? 1 : 0;
      TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(reuse, out_, big.shape()));
      bool ok = true;
      if (n < 2 * grain_ || c.threads() == 1) {
        ok = n == 0 || loop_(y.mutable_raw(), a.raw(), b.raw(), n,
                             left    ? Operands::kLeftScalar
                             : right ? Operands::kRightScalar
                                     : Operands::kBoth);
      } else {
        std::atomic<bool> all{true};
        const auto size = static_cast<int64_t>(size_of(a.dtype())), out_size = static_cast<int64_t>(size_of(out_));
        const int64_t size_a = left ? 0 : size, size_b = right ? 0 : size;
        parallel_for(c.threads(), n, grain_, [&](int64_t begin, int64_t end) {
          if (!loop_(static_cast<char*>(y.mutable_raw()) + begin * out_size,
                     static_cast<const char*>(a.raw()) + begin * size_a,
                     static_cast<const char*>(b.raw()) + begin * size_b, end - begin,
                     left    ? Operands::kLeftScalar
                     : right ? Operands::kRightScalar
                             : Operands::kBoth))
            all = false;
        });
        ok = all;
      }
      if (!ok) return invalid_argument("{}", fault_);
      c.set_output(0, std::move(y));
      return {};
    }
  }
  TROUPE_ASSIGN(const Broadcast plan, plan_broadcast(a.shape(), b.shape()));
  TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(a.shape() == plan.shape ? 0 : 1, out_, plan.shape));
  const auto size = static_cast<int64_t>(size_of(a.dtype())), out_size = static_cast<int64_t>(size_of(out_));
  const bool left = plan.stride[0][plan.rank - 1] == 0, right = plan.stride[1][plan.rank - 1] == 0;
  const Operands operands = left ? Operands::kLeftScalar : right ? Operands::kRightScalar : Operands::kBoth;
  std::atomic<bool> ok{true};
  char* out = static_cast<char*>(y.mutable_raw());
  if (const int operand = short_row_of_all(plan); operand >= 0) {
    const int64_t run = plan.run(), times = kRowsElements / run;
    const char* data[2] = {static_cast<const char*>(a.raw()), static_cast<const char*>(b.raw())};
    std::vector<char> rows(static_cast<size_t>(times * run * size));
    for (int64_t i = 0; i < times; ++i) std::copy_n(data[operand], run * size, rows.data() + i * run * size);
    parallel_for(c.threads(), plan.runs(), std::max<int64_t>(grain_ / run, 1), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row += times) {
        const char* of[2] = {rows.data(), rows.data()};
        of[1 - operand] = data[1 - operand] + row * run * size;
        if (!loop_(out + row * run * out_size, of[0], of[1], std::min(times, end - row) * run, Operands::kBoth))
          ok = false;
      }
    });
  } else {
    for_each_run(plan, c.threads(), grain_, [&](int64_t at, const std::array<int64_t, 3>& in, int64_t n) {
      if (!loop_(out + at * out_size, static_cast<const char*>(a.raw()) + in[0] * size,
                 static_cast<const char*>(b.raw()) + in[1] * size, n, operands))
        ok = false;
    });
  }
  if (!ok) return invalid_argument("{}", fault_);
  c.set_output(0, std::move(y));
  return {};
}

Status UnaryKernel::compute(KernelContext& c) {
  const Tensor& x = c.input(0);
  TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, out_, x.shape()));
  const auto in_size = static_cast<int64_t>(size_of(x.dtype())), out_size = static_cast<int64_t>(size_of(out_));
  const char* in = static_cast<const char*>(x.raw());
  char* out = static_cast<char*>(y.mutable_raw());
  parallel_for(c.threads(), x.elements(), grain_, [&](int64_t begin, int64_t end) {
    loop_(out + begin * out_size, in + begin * in_size, end - begin, parameters_);
  });
  c.set_output(0, std::move(y));
  return {};
}

void add_binary_loops(KernelRegistry& kernels, std::string_view op, std::span<const TypedLoop<BinaryLoop>> loops,
                      int64_t grain, const char* fault, bool broadcasts) {
  for (const auto& [in, out, loop] : loops)
    kernels.add(op, DeviceKind::kCpu, "T", in,
                [=, loop = loop, out = out](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
                  return std::unique_ptr<ComputeKernel>(new BinaryKernel(loop, out, grain, fault, broadcasts));
                });
}

void add_unary_loops(KernelRegistry& kernels, std::string_view op, std::span<const TypedLoop<UnaryLoop>> loops,
                     int64_t grain, std::string_view parameter) {
  for (const auto& [in, out, loop] : loops)
    kernels.add(op, DeviceKind::kCpu, "T", in,
                [loop = loop, out = out, grain,
                 parameter = std::string(parameter)](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                  const double p = parameter.empty() ? 0.0 : init.attr<float>(parameter);
                  return std::unique_ptr<ComputeKernel>(new UnaryKernel(loop, out, grain, p));
                });
}

}  // namespace troupe
