// SPDX-License-Identifier: Apache-2.0
// Stages of several datasets: side by side, one after the other, in turns.
#include <algorithm>

#include "io/ahead_flow.h"
#include "io/graph_stages.h"

namespace troupe {
namespace {

/// What of several inputs is so.
template <class Is> bool any_of_stages(const std::vector<StagePtr>& inputs, Is is) {
  return std::ranges::any_of(inputs, [&](const StagePtr& stage) { return is(*stage); });
}
template <class Is> bool all_of_stages(const std::vector<StagePtr>& inputs, Is is) {
  return std::ranges::all_of(inputs, [&](const StagePtr& stage) { return is(*stage); });
}

/// The flows of all inputs.
Result<std::vector<FlowPtr<Element>>> begin_all(const std::vector<StagePtr>& inputs, const Pass& pass) {
  std::vector<FlowPtr<Element>> out;
  for (const StagePtr& stage : inputs) {
    TROUPE_ASSIGN(FlowPtr<Element> flow, elements_of(stage)(pass));
    out.push_back(std::move(flow));
  }
  return out;
}

// -- side by side -----------------------------------------------------------------------------------------------------

class ZipFlow final : public Flow<Element> {
 public:
  explicit ZipFlow(std::vector<FlowPtr<Element>> inputs) : inputs_(std::move(inputs)) {}
  Result<std::optional<Element>> next() override {
    if (ended_) return std::optional<Element>();
    Element out;
    std::optional<Error> failed;  // the others go on too, so that elements that belong together stay together
    for (const FlowPtr<Element>& input : inputs_) {
      Result<std::optional<Element>> part = input->next();
      if (!part.ok()) {
        if (!failed) failed = std::move(part.error());
        continue;
      }
      ended_ = !*part;
      if (ended_) return std::optional<Element>();
      std::ranges::move(**part, std::back_inserter(out));
    }
    if (failed) return std::move(*failed);
    return std::optional<Element>(std::move(out));
  }

 private:
  const std::vector<FlowPtr<Element>> inputs_;
  bool ended_ = false;
};

class ZipStage final : public FlowStage {
 public:
  explicit ZipStage(std::vector<StagePtr> inputs) : inputs_(std::move(inputs)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(auto flows, begin_all(inputs_, pass));
    return FlowPtr<Element>(new ZipFlow(std::move(flows)));
  }
  ComponentTypes dtypes() const override {
    ComponentTypes out;
    for (const StagePtr& stage : inputs_) std::ranges::copy(stage->dtypes(), std::back_inserter(out));
    return out;
  }
  ComponentShapes shapes() const override {
    ComponentShapes out;
    for (const StagePtr& stage : inputs_) std::ranges::copy(stage->shapes(), std::back_inserter(out));
    return out;
  }
  /// The least; not known where one is not, but for 0.
  int64_t size() const override {
    int64_t least = -2;
    bool known = true;
    for (const StagePtr& stage : inputs_) {
      const int64_t n = stage->size();
      known &= n != -1;
      if (n >= 0) least = least < 0 ? n : std::min(least, n);
    }
    return known || least == 0 ? least : -1;
  }
  bool may_wait() const override {
    return any_of_stages(inputs_, [](const auto& s) { return s.may_wait(); });
  }
  bool repeatable() const override {
    return all_of_stages(inputs_, [](const auto& s) { return s.repeatable(); });
  }

 private:
  const std::vector<StagePtr> inputs_;
};

// -- one after the other ----------------------------------------------------------------------------------------------

class ConcatenateFlow final : public Flow<Element> {
 public:
  ConcatenateFlow(FlowPtr<Element> first, Source<Element> second, Pass pass)
      : flow_(std::move(first)), second_(std::move(second)), pass_(std::move(pass)) {}
  Result<std::optional<Element>> next() override {
    TROUPE_ASSIGN(std::optional<Element> element, flow_->next());
    if (element || !second_) return element;
    TROUPE_ASSIGN(flow_, second_(pass_));
    second_ = nullptr;
    return flow_->next();
  }

 private:
  FlowPtr<Element> flow_;
  Source<Element> second_;
  const Pass pass_;
};

class ConcatenateStage final : public FlowStage {
 public:
  ConcatenateStage(StagePtr first, StagePtr second) : first_(std::move(first)), second_(std::move(second)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> first, elements_of(first_)(pass));
    return FlowPtr<Element>(new ConcatenateFlow(std::move(first), elements_of(second_), pass));
  }
  ComponentTypes dtypes() const override { return first_->dtypes(); }
  ComponentShapes shapes() const override {
    ComponentShapes out = first_->shapes();
    const ComponentShapes other = second_->shapes();
    for (size_t i = 0; i < out.size(); ++i)
      if (i >= other.size() || !(out[i] == other[i])) out[i] = PartialShape::unknown();
    return out;
  }
  int64_t size() const override {
    const int64_t a = first_->size(), b = second_->size();
    int64_t sum;
    if (a == -2 || b == -2) return -2;
    return a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum) ? -1 : sum;
  }
  bool may_wait() const override { return first_->may_wait() || second_->may_wait(); }
  bool repeatable() const override { return first_->repeatable() && second_->repeatable(); }

 private:
  const StagePtr first_, second_;
};

// -- in turns ---------------------------------------------------------------------------------------------------------

/// Elements that are made ahead of each dataset.
constexpr int64_t kLeastAhead = 16;

class InterleaveFlow final : public Flow<Element> {
 public:
  InterleaveFlow(FlowPtr<Element> from, StageOfElementFn fn, int64_t cycle, int64_t block, int64_t parallel, Pass pass)
      : from_(std::move(from)), fn_(std::move(fn)), cycle_(cycle), block_(block), parallel_(parallel),
        pass_(std::move(pass)) {}
  Result<std::optional<Element>> next() override {
    while (from_ || open_ > 0) {
      if (at_ < slots_.size() && slots_[at_]) {
        TROUPE_ASSIGN(std::optional<Element> element, slots_[at_]->next());
        if (element) {
          if (++taken_ == block_) advance();
          return element;
        }
        slots_[at_].reset();
        --open_;
        advance();
      } else if (from_) {
        TROUPE_ASSIGN(std::optional<Element> element, from_->next());
        if (!element) {
          from_.reset();
          continue;
        }
        TROUPE_ASSIGN(const StagePtr stage, fn_(pass_, std::move(*element)));
        TROUPE_ASSIGN(FlowPtr<Element> flow, begin(stage));
        if (at_ >= slots_.size()) slots_.resize(at_ + 1);  // the cycle may be far longer than the input
        slots_[at_] = std::move(flow);
        ++open_;
      } else {
        advance();
      }
    }
    return std::optional<Element>();
  }

 private:
  Result<FlowPtr<Element>> begin(const StagePtr& stage) const {
    if (static_cast<int64_t>(at_) >= parallel_ || !stage->may_wait()) return flow_within(stage, pass_);
    const auto source = [&](const Pass& pass) { return flow_within(stage, pass); };
    return AheadFlow<Element>::make(source, std::max(block_, kLeastAhead), pass_);
  }
  void advance() {
    taken_ = 0;
    ++at_;
    if (static_cast<int64_t>(at_) >= cycle_ || (!from_ && at_ >= slots_.size())) at_ = 0;
  }

  FlowPtr<Element> from_;  // none: it has ended
  const StageOfElementFn fn_;
  const int64_t cycle_, block_, parallel_;
  const Pass pass_;
  std::vector<FlowPtr<Element>> slots_;
  size_t at_ = 0;
  int64_t open_ = 0, taken_ = 0;
};

class InterleaveStage final : public TypedStage {
 public:
  InterleaveStage(StagePtr input, StageOfElementFn fn, int64_t cycle, int64_t block, int64_t parallel,
                  ComponentTypes dtypes, ComponentShapes shapes)
      : TypedStage(std::move(dtypes), std::move(shapes)), input_(std::move(input)), fn_(std::move(fn)), cycle_(cycle),
        block_(block), parallel_(parallel) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new InterleaveFlow(std::move(from), fn_, cycle_, block_, parallel_, pass));
  }
  int64_t size() const override { return input_->size() == 0 ? 0 : -1; }
  bool repeatable() const override { return false; }

 private:
  const StagePtr input_;
  const StageOfElementFn fn_;
  const int64_t cycle_, block_, parallel_;
};

class DirectedFlow final : public Flow<Element> {
 public:
  DirectedFlow(FlowPtr<Element> selector, std::vector<FlowPtr<Element>> inputs, bool stop_on_empty)
      : selector_(std::move(selector)), inputs_(std::move(inputs)), stop_(stop_on_empty) {}
  Result<std::optional<Element>> next() override {
    while (std::ranges::any_of(inputs_, [](const FlowPtr<Element>& flow) { return flow != nullptr; })) {
      TROUPE_ASSIGN(const std::optional<Element> selected, selector_->next());
      if (!selected) break;
      if (selected->size() != 1 || (*selected)[0].dtype() != DType::kInt64 || (*selected)[0].elements() != 1)
        return invalid_argument("the selector must give one int64 scalar for each element");
      const int64_t i = (*selected)[0].data<int64_t>()[0];
      if (i < 0 || i >= std::ssize(inputs_))
        return invalid_argument("the selector gave {}, of {} datasets", i, inputs_.size());
      FlowPtr<Element>& input = inputs_[static_cast<size_t>(i)];
      if (!input) continue;
      TROUPE_ASSIGN(std::optional<Element> element, input->next());
      if (element) return element;
      input.reset();
      if (stop_) break;
    }
    inputs_.clear();
    return std::optional<Element>();
  }

 private:
  const FlowPtr<Element> selector_;
  std::vector<FlowPtr<Element>> inputs_;  // none where one has ended
  const bool stop_;
};

class DirectedStage final : public TypedStage {
 public:
  DirectedStage(StagePtr selector, std::vector<StagePtr> inputs, bool stop_on_empty, ComponentTypes dtypes,
                ComponentShapes shapes)
      : TypedStage(std::move(dtypes), std::move(shapes)), selector_(std::move(selector)), inputs_(std::move(inputs)),
        stop_(stop_on_empty) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> selector, elements_of(selector_)(pass));
    TROUPE_ASSIGN(auto flows, begin_all(inputs_, pass));
    return FlowPtr<Element>(new DirectedFlow(std::move(selector), std::move(flows), stop_));
  }
  bool repeatable() const override { return false; }

 private:
  const StagePtr selector_;
  const std::vector<StagePtr> inputs_;
  const bool stop_;
};

}  // namespace

StagePtr make_zip_stage(std::vector<StagePtr> inputs) { return std::make_shared<ZipStage>(std::move(inputs)); }

Result<StagePtr> make_concatenate_stage(StagePtr first, StagePtr second) {
  const ComponentTypes a = first->dtypes(), b = second->dtypes();
  if (a.size() != b.size())
    return invalid_argument("elements of {} components cannot follow those of {}", b.size(), a.size());
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i])
      return invalid_argument("component {} is {} in one dataset and {} in the other", i, to_string(a[i]),
                              to_string(b[i]));
  return StagePtr(std::make_shared<ConcatenateStage>(std::move(first), std::move(second)));
}

StagePtr make_interleave_stage(StagePtr input, StageOfElementFn fn, int64_t cycle, int64_t block, int64_t parallel,
                               ComponentTypes dtypes, ComponentShapes shapes) {
  return std::make_shared<InterleaveStage>(std::move(input), std::move(fn), cycle, block, parallel, std::move(dtypes),
                                           std::move(shapes));
}

StagePtr make_directed_stage(StagePtr selector, std::vector<StagePtr> inputs, bool stop_on_empty, ComponentTypes dtypes,
                             ComponentShapes shapes) {
  return std::make_shared<DirectedStage>(std::move(selector), std::move(inputs), stop_on_empty, std::move(dtypes),
                                         std::move(shapes));
}

}  // namespace troupe
