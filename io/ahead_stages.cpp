// SPDX-License-Identifier: Apache-2.0
// Stages that work ahead of those who ask: prefetch, maps with several elements in flight.
#include "io/ahead_flow.h"
#include "io/graph_stages.h"

namespace troupe {
namespace {

class PrefetchStage final : public PassingStage {
 public:
  PrefetchStage(StagePtr input, int64_t ahead) : PassingStage(std::move(input)), ahead_(ahead) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    return AheadFlow<Element>::make(elements_of(input_), ahead_, pass);
  }

 private:
  const int64_t ahead_;
};

/// The calls that were begun.
class BeginFlow final : public Flow<BegunCall> {
 public:
  BeginFlow(FlowPtr<Element> from, BeginFn begin, Pass pass)
      : from_(std::move(from)), begin_(std::move(begin)), pass_(std::move(pass)) {}
  Result<std::optional<BegunCall>> next() override {
    TROUPE_ASSIGN(std::optional<Element> in, from_->next());
    if (!in) return std::optional<BegunCall>();
    return std::optional<BegunCall>(begin_(pass_, std::move(*in)));
  }

 private:
  const FlowPtr<Element> from_;
  const BeginFn begin_;
  const Pass pass_;
};

/// What came of them.
class AwaitFlow final : public Flow<Element> {
 public:
  AwaitFlow(FlowPtr<BegunCall> calls, ComponentTypes dtypes, ComponentShapes shapes)
      : calls_(std::move(calls)), dtypes_(std::move(dtypes)), shapes_(std::move(shapes)) {}
  Result<std::optional<Element>> next() override {
    TROUPE_ASSIGN(const std::optional<BegunCall> call, calls_->next());
    if (!call) return std::optional<Element>();
    TROUPE_ASSIGN(Element out, (*call)());
    TROUPE_RETURN_IF_ERROR(check_components(out, dtypes_, shapes_, "the function"));
    return std::optional<Element>(std::move(out));
  }

 private:
  const FlowPtr<BegunCall> calls_;
  const ComponentTypes dtypes_;
  const ComponentShapes shapes_;
};

class ParallelMapStage final : public TypedStage {
 public:
  ParallelMapStage(StagePtr input, BeginFn begin, int64_t calls, ComponentTypes dtypes, ComponentShapes shapes)
      : TypedStage(std::move(dtypes), std::move(shapes)), input_(std::move(input)), begin_(std::move(begin)),
        calls_(calls) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    const auto begin = [this](const Pass& within) -> Result<FlowPtr<BegunCall>> {
      TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(within));
      return FlowPtr<BegunCall>(new BeginFlow(std::move(from), begin_, within));
    };
    TROUPE_ASSIGN(FlowPtr<BegunCall> calls, AheadFlow<BegunCall>::make(begin, calls_ - 1, pass));
    return FlowPtr<Element>(new AwaitFlow(std::move(calls), dtypes_, shapes_));
  }
  int64_t size() const override { return input_->size(); }
  bool repeatable() const override { return false; }

 private:
  const StagePtr input_;
  const BeginFn begin_;
  const int64_t calls_;
};

}  // namespace

StagePtr make_prefetch_stage(StagePtr input, int64_t ahead) {
  if (ahead <= 0 || !input->may_wait()) return input;
  return std::make_shared<PrefetchStage>(std::move(input), ahead);
}

StagePtr make_parallel_map_stage(StagePtr input, BeginFn begin, int64_t calls, ComponentTypes dtypes,
                                 ComponentShapes shapes) {
  return std::make_shared<ParallelMapStage>(std::move(input), std::move(begin), calls, std::move(dtypes),
                                            std::move(shapes));
}

}  // namespace troupe
