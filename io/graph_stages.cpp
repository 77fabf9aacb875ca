// SPDX-License-Identifier: Apache-2.0
// Sources, and stages that make another element of each.
#include "io/graph_stages.h"

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
  ElementTypes dtypes() const override {
    ElementTypes out;
    for (const Tensor& t : element_) out.push_back(t.dtype());
    return out;
  }
  ElementShapes shapes() const override {
    ElementShapes out;
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
  ElementTypes dtypes() const override { return {dtype_}; }
  ElementShapes shapes() const override { return {PartialShape::scalar()}; }
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
  PassMapFlow(FlowPtr<Element> from, const PassFn& fn, const ElementTypes& dtypes, const ElementShapes& shapes,
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
  const ElementTypes dtypes_;
  const ElementShapes shapes_;
  const Pass pass_;
};

class PassMapStage final : public FlowStage {
 public:
  PassMapStage(StagePtr input, PassFn fn, ElementTypes dtypes, ElementShapes shapes)
      : input_(std::move(input)), fn_(std::move(fn)), dtypes_(std::move(dtypes)), shapes_(std::move(shapes)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new PassMapFlow(std::move(from), fn_, dtypes_, shapes_, pass));
  }
  ElementTypes dtypes() const override { return dtypes_; }
  ElementShapes shapes() const override { return shapes_; }
  int64_t size() const override { return input_->size(); }
  bool repeatable() const override { return false; }

 private:
  const StagePtr input_;
  const PassFn fn_;
  const ElementTypes dtypes_;
  const ElementShapes shapes_;
};

class LateStage final : public FlowStage {
 public:
  LateStage(MakeStageFn make, ElementTypes dtypes, ElementShapes shapes)
      : make_(std::move(make)), dtypes_(std::move(dtypes)), shapes_(std::move(shapes)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(const StagePtr stage, make_(pass));
    return flow_within(stage, pass);
  }
  ElementTypes dtypes() const override { return dtypes_; }
  ElementShapes shapes() const override { return shapes_; }
  bool repeatable() const override { return false; }

 private:
  const MakeStageFn make_;
  const ElementTypes dtypes_;
  const ElementShapes shapes_;
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

StagePtr make_pass_map_stage(StagePtr input, PassFn fn, ElementTypes dtypes, ElementShapes shapes) {
  return std::make_shared<PassMapStage>(std::move(input), std::move(fn), std::move(dtypes), std::move(shapes));
}

StagePtr make_late_stage(MakeStageFn make, ElementTypes dtypes, ElementShapes shapes) {
  return std::make_shared<LateStage>(std::move(make), std::move(dtypes), std::move(shapes));
}

}  // namespace troupe
