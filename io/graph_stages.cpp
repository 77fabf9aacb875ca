// SPDX-License-Identifier: Apache-2.0
// Sources, and stages that make another element of each.
#include "io/graph_stages.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "troupe/guarded.h"

namespace troupe {
namespace {

/// Datasets that functions give within datasets that functions gave.
constexpr int kMostNestedDatasets = 64;

class SingleFlow final : public Flow<Element> {
 public:
  explicit SingleFlow(Element element) : element_(std::move(element)) {}
  Result<std::optional<Element>> next() override { return std::exchange(element_, std::nullopt); }

 private:
  std::optional<Element> element_;
};

class SingleStage final : public FlowStage {
 public:
  explicit SingleStage(Element element) : element_(std::move(element)) {
    for (const Tensor& t : element_) t.freeze();
  }
  Result<FlowPtr<Element>> flow(const Pass&) const override { return FlowPtr<Element>(new SingleFlow(element_)); }
  bool may_wait() const override { return false; }
  ComponentTypes dtypes() const override {
    ComponentTypes out;
    for (const Tensor& t : element_) out.push_back(t.dtype());
    return out;
  }
  ComponentShapes shapes() const override {
    ComponentShapes out;
    for (const Tensor& t : element_) out.emplace_back(t.shape());
    return out;
  }
  int64_t size() const override { return 1; }

 private:
  const Element element_;
};

/// A number as a scalar of a type; undefined where that is none for numbers.
Tensor number_of(int64_t value, DType dtype) {
  switch (dtype) {
    case DType::kInt64: return Tensor::scalar(value);
    case DType::kInt32: return Tensor::scalar(static_cast<int32_t>(value));
    case DType::kInt16: return Tensor::scalar(static_cast<int16_t>(value));
    case DType::kInt8: return Tensor::scalar(static_cast<int8_t>(value));
    case DType::kUInt64: return Tensor::scalar(static_cast<uint64_t>(value));
    case DType::kUInt32: return Tensor::scalar(static_cast<uint32_t>(value));
    case DType::kUInt16: return Tensor::scalar(static_cast<uint16_t>(value));
    case DType::kUInt8: return Tensor::scalar(static_cast<uint8_t>(value));
    case DType::kFloat32: return Tensor::scalar(static_cast<float>(value));
    case DType::kFloat64: return Tensor::scalar(static_cast<double>(value));
    case DType::kFloat16: return Tensor::scalar(float16(static_cast<float>(value)));
    case DType::kBFloat16: return Tensor::scalar(bfloat16(static_cast<float>(value)));
    default: return {};
  }
}

class NumbersFlow final : public Flow<Element> {
 public:
  NumbersFlow(int64_t start, int64_t stop, int64_t step, DType dtype)
      : at_(start), stop_(stop), step_(step), dtype_(dtype) {}
  Result<std::optional<Element>> next() override {
    if (ended_ || (step_ > 0 ? at_ >= stop_ : at_ <= stop_)) return std::optional<Element>();
    Element out{number_of(at_, dtype_)};
    ended_ = __builtin_add_overflow(at_, step_, &at_);
    return std::optional<Element>(std::move(out));
  }

 private:
  int64_t at_;
  const int64_t stop_, step_;
  const DType dtype_;
  bool ended_ = false;
};

class NumbersStage final : public FlowStage {
 public:
  NumbersStage(int64_t start, int64_t stop, int64_t step, DType dtype)
      : start_(start), stop_(stop), step_(step), dtype_(dtype) {}
  Result<FlowPtr<Element>> flow(const Pass&) const override {
    return FlowPtr<Element>(new NumbersFlow(start_, stop_, step_, dtype_));
  }
  bool may_wait() const override { return false; }
  ComponentTypes dtypes() const override { return {dtype_}; }
  ComponentShapes shapes() const override { return {PartialShape::scalar()}; }
  int64_t size() const override {
    const __int128 way = step_ > 0 ? static_cast<__int128>(stop_) - start_ : static_cast<__int128>(start_) - stop_;
    const __int128 step = step_ > 0 ? step_ : -static_cast<__int128>(step_);
    const __int128 n = way <= 0 ? 0 : (way + step - 1) / step;
    return n > INT64_MAX ? -1 : static_cast<int64_t>(n);
  }

 private:
  const int64_t start_, stop_, step_;
  const DType dtype_;
};

class PassMapFlow final : public Flow<Element> {
 public:
  PassMapFlow(FlowPtr<Element> from, const PassFn& fn, const ComponentTypes& dtypes, const ComponentShapes& shapes,
              Pass pass)
      : from_(std::move(from)), fn_(fn), dtypes_(dtypes), shapes_(shapes), pass_(std::move(pass)) {}
  Result<std::optional<Element>> next() override {
    TROUPE_ASSIGN(std::optional<Element> in, from_->next());
    if (!in) return in;
    TROUPE_ASSIGN(Element out, fn_(pass_, std::move(*in)));
    TROUPE_RETURN_IF_ERROR(check_components(out, dtypes_, shapes_, "the function"));
    return std::optional<Element>(std::move(out));
  }

 private:
  const FlowPtr<Element> from_;
  const PassFn fn_;
  const ComponentTypes dtypes_;
  const ComponentShapes shapes_;
  const Pass pass_;
};

class PassMapStage final : public TypedStage {
 public:
  PassMapStage(StagePtr input, PassFn fn, ComponentTypes dtypes, ComponentShapes shapes)
      : TypedStage(std::move(dtypes), std::move(shapes)), input_(std::move(input)), fn_(std::move(fn)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new PassMapFlow(std::move(from), fn_, dtypes_, shapes_, pass));
  }
  int64_t size() const override { return input_->size(); }
  bool repeatable() const override { return false; }

 private:
  const StagePtr input_;
  const PassFn fn_;
};

/// Whether a predicate says so.
Result<bool> says(const PassFn& fn, const Pass& pass, const Element& element) {
  TROUPE_ASSIGN(const Element out, fn(pass, element));
  if (out.size() != 1 || out[0].dtype() != DType::kBool || out[0].elements() != 1)
    return invalid_argument("the predicate must give one scalar bool, not {} values{}", out.size(),
                            out.empty() ? "" : ", the first of them " + out[0].str());
  return out[0].data<bool>()[0];
}

class FilterFlow final : public Flow<Element> {
 public:
  FilterFlow(FlowPtr<Element> from, PassFn keep, bool to_first, Pass pass)
      : from_(std::move(from)), keep_(std::move(keep)), to_first_(to_first), pass_(std::move(pass)) {}
  Result<std::optional<Element>> next() override {
    while (!ended_) {
      TROUPE_ASSIGN(std::optional<Element> element, from_->next());
      if (!element) break;
      TROUPE_ASSIGN(const bool keep, says(keep_, pass_, *element));
      if (keep) return element;
      ended_ = to_first_;
    }
    return std::optional<Element>();
  }

 private:
  const FlowPtr<Element> from_;
  const PassFn keep_;
  const bool to_first_;
  const Pass pass_;
  bool ended_ = false;
};

/// A stage that gives elements of its input as they are, but perhaps not all; `size` where it is known.
class SomeOfStage final : public FlowStage {
 public:
  using Begin = std::function<FlowPtr<Element>(FlowPtr<Element> from, const Pass& pass)>;
  SomeOfStage(StagePtr input, Begin begin, bool repeatable, std::optional<int64_t> size = {})
      : input_(std::move(input)), begin_(std::move(begin)), repeatable_(repeatable), size_(size) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return begin_(std::move(from), pass);
  }
  ComponentTypes dtypes() const override { return input_->dtypes(); }
  ComponentShapes shapes() const override { return input_->shapes(); }
  int64_t size() const override { return size_ ? *size_ : input_->size() == 0 ? 0 : -1; }
  bool repeatable() const override { return repeatable_ && input_->repeatable(); }

 private:
  const StagePtr input_;
  const Begin begin_;
  const bool repeatable_;
  const std::optional<int64_t> size_;
};

class ErrorFreeFlow final : public Flow<Element> {
 public:
  ErrorFreeFlow(FlowPtr<Element> from, Pass pass) : from_(std::move(from)), pass_(std::move(pass)) {}
  Result<std::optional<Element>> next() override {
    for (;;) {
      Result<std::optional<Element>> element = from_->next();
      if (element.ok() || element.error().code == Code::kCancelled || pass_.stop.stop_requested()) return element;
    }
  }

 private:
  const FlowPtr<Element> from_;
  const Pass pass_;
};

class UniqueFlow final : public Flow<Element> {
 public:
  explicit UniqueFlow(FlowPtr<Element> from) : from_(std::move(from)) {}
  Result<std::optional<Element>> next() override {
    for (;;) {
      TROUPE_ASSIGN(std::optional<Element> element, from_->next());
      if (!element || seen_.insert(key(*element)).second) return element;
    }
  }

 private:
  static std::string key(const Element& element) {
    std::string out;
    for (const Tensor& t : element) {
      out += t.shape().str();
      if (t.dtype() == DType::kString) {
        for (const std::string& s : t.values<std::string>()) out += std::to_string(s.size()) + ':' + s;
      } else if (t.elements() > 0) {
        out.append(static_cast<const char*>(t.raw()), t.bytes());
      }
    }
    return out;
  }
  const FlowPtr<Element> from_;
  std::unordered_set<std::string> seen_;
};

class CountedFlow final : public Flow<Element> {
 public:
  CountedFlow(FlowPtr<Element> from, int64_t count) : from_(std::move(from)), count_(count) {}
  Result<std::optional<Element>> next() override {
    TROUPE_ASSIGN(std::optional<Element> element, from_->next());
    if (element) ++at_;
    if (count_ >= 0 && (element ? at_ > count_ : at_ != count_) && !std::exchange(told_, true))
      return make_error(Code::kFailedPrecondition, "{} elements were said to be there, and there are {}", count_,
                        element ? "more" : std::to_string(at_));
    return element;
  }

 private:
  const FlowPtr<Element> from_;
  const int64_t count_;
  int64_t at_ = 0;
  bool told_ = false;
};

class ScanFlow final : public Flow<Element> {
 public:
  ScanFlow(FlowPtr<Element> from, Element state, PassFn fn, ComponentTypes dtypes, ComponentShapes shapes, Pass pass)
      : from_(std::move(from)), state_(std::move(state)), fn_(std::move(fn)), dtypes_(std::move(dtypes)),
        shapes_(std::move(shapes)), pass_(std::move(pass)) {}
  Result<std::optional<Element>> next() override {
    TROUPE_ASSIGN(std::optional<Element> element, from_->next());
    if (!element) return element;
    Element arguments = state_;
    std::ranges::move(*element, std::back_inserter(arguments));
    TROUPE_ASSIGN(Element out, fn_(pass_, std::move(arguments)));
    if (out.size() < state_.size())
      return invalid_argument("the function gave {} values, fewer than the {} of its state", out.size(), state_.size());
    const auto end = out.begin() + std::ssize(state_);
    Element result(end, out.end());
    out.erase(end, out.end());
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i].dtype() != state_[i].dtype())
        return invalid_argument("the function gave {} as part {} of its state, which is {}", to_string(out[i].dtype()),
                                i, to_string(state_[i].dtype()));
    TROUPE_RETURN_IF_ERROR(check_components(result, dtypes_, shapes_, "the function"));
    state_ = std::move(out);
    return std::optional<Element>(std::move(result));
  }

 private:
  const FlowPtr<Element> from_;
  Element state_;
  const PassFn fn_;
  const ComponentTypes dtypes_;
  const ComponentShapes shapes_;
  const Pass pass_;
};

class ScanStage final : public TypedStage {
 public:
  ScanStage(StagePtr input, Element state, PassFn fn, ComponentTypes dtypes, ComponentShapes shapes)
      : TypedStage(std::move(dtypes), std::move(shapes)), input_(std::move(input)), state_(std::move(state)),
        fn_(std::move(fn)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new ScanFlow(std::move(from), state_, fn_, dtypes_, shapes_, pass));
  }
  int64_t size() const override { return input_->size(); }
  bool repeatable() const override { return false; }

 private:
  const StagePtr input_;
  const Element state_;
  const PassFn fn_;
};

class LateStage final : public TypedStage {
 public:
  LateStage(MakeStageFn make, ComponentTypes dtypes, ComponentShapes shapes, int64_t size)
      : TypedStage(std::move(dtypes), std::move(shapes)), make_(std::move(make)), size_(size) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(const StagePtr stage, make_(pass));
    return flow_within(stage, pass);
  }
  int64_t size() const override { return size_; }
  bool repeatable() const override { return false; }

 private:
  const MakeStageFn make_;
  const int64_t size_;
};

}  // namespace

Result<FlowPtr<Element>> flow_within(const StagePtr& stage, const Pass& pass) {
  Pass inner = pass;
  inner.ahead = nullptr;
  if (++inner.depth > kMostNestedDatasets)
    return invalid_argument("functions that give datasets must nest at most {} deep", kMostNestedDatasets);
  return elements_of(stage)(inner);
}

StagePtr make_single_stage(Element element) { return std::make_shared<SingleStage>(std::move(element)); }

Result<StagePtr> make_range_stage(int64_t start, int64_t stop, int64_t step, DType dtype) {
  if (step == 0) return invalid_argument("step must not be 0");
  if (!number_of(0, dtype).defined()) return invalid_argument("a range of {} has no numbers", to_string(dtype));
  return StagePtr(std::make_shared<NumbersStage>(start, stop, step, dtype));
}

StagePtr make_pass_map_stage(StagePtr input, PassFn fn, ComponentTypes dtypes, ComponentShapes shapes) {
  return std::make_shared<PassMapStage>(std::move(input), std::move(fn), std::move(dtypes), std::move(shapes));
}

StagePtr make_filter_stage(StagePtr input, PassFn keep) {
  return std::make_shared<SomeOfStage>(
      std::move(input),
      [keep = std::move(keep)](FlowPtr<Element> from, const Pass& pass) {
        return FlowPtr<Element>(new FilterFlow(std::move(from), keep, false, pass));
      },
      false);
}

StagePtr make_take_while_stage(StagePtr input, PassFn keep) {
  return std::make_shared<SomeOfStage>(
      std::move(input),
      [keep = std::move(keep)](FlowPtr<Element> from, const Pass& pass) {
        return FlowPtr<Element>(new FilterFlow(std::move(from), keep, true, pass));
      },
      false);
}

StagePtr make_error_free_stage(StagePtr input) {
  return std::make_shared<SomeOfStage>(
      std::move(input),
      [](FlowPtr<Element> from, const Pass& pass) {
        return FlowPtr<Element>(new ErrorFreeFlow(std::move(from), pass));
      },
      true);
}

Result<StagePtr> make_unique_stage(StagePtr input) {
  for (const DType dtype : input->dtypes())
    if (is_object(dtype) && dtype != DType::kString)
      return invalid_argument("elements of {}s cannot be compared", to_string(dtype));
  return StagePtr(std::make_shared<SomeOfStage>(
      std::move(input),
      [](FlowPtr<Element> from, const Pass&) { return FlowPtr<Element>(new UniqueFlow(std::move(from))); }, true));
}

StagePtr make_counted_stage(StagePtr input, int64_t count) {
  return std::make_shared<SomeOfStage>(
      std::move(input),
      [count](FlowPtr<Element> from, const Pass&) { return FlowPtr<Element>(new CountedFlow(std::move(from), count)); },
      true, count);
}

StagePtr make_scan_stage(StagePtr input, Element state, PassFn fn, ComponentTypes dtypes, ComponentShapes shapes) {
  for (const Tensor& t : state) t.freeze();
  return std::make_shared<ScanStage>(std::move(input), std::move(state), std::move(fn), std::move(dtypes),
                                     std::move(shapes));
}

StagePtr make_late_stage(MakeStageFn make, ComponentTypes dtypes, ComponentShapes shapes, int64_t size) {
  return std::make_shared<LateStage>(std::move(make), std::move(dtypes), std::move(shapes), size);
}

}  // namespace troupe
