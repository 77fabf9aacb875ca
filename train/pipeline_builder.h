// SPDX-License-Identifier: Apache-2.0
// PipelineBuilder: makes the graph of a Pipeline (pipeline_graph.cpp; sums and updates: pipeline_updates.cpp). For each
// stage k, on its device:
//
//   credit, updates, order --> begin --> forward of stage k --> forward of stage k + 1
//                                            |                         |
//      boundary gradient <-- backward of stage k <-- boundary gradient of stage k + 1
//                                            |
//   turn --> sum of gradients, in the container, in the order of micro-batches --> (the last one) update
//                                            |
//                                            +--> passes done, sums made, updates made: what others wait for
#pragma once
#include <algorithm>
#include <set>

#include "train/copier.h"
#include "train/pipeline_graph.h"

namespace troupe::nn {

/// The part of a stage's devices that a device of a model names (part_device); -1: it names none.
int part_of(const std::string& device);

/// Used once, by build_pipeline().
class PipelineBuilder {
 public:
  PipelineBuilder(Graph& graph, Variables& variables, const PipelineOptions& options, std::source_location where)
      : graph_(graph), where_(where), root_(ScopeAt(Scope(graph), where)), variables_(variables), options_(options),
        devices_(static_cast<int>(options.devices.size()) / options.replicas / options.parts),
        stages_(devices_ * options.chunks), draft_(graph.ops(), options),
        zero_bubble_(options.schedule == PipelineSchedule::kZeroBubble) {}

  Result<PipelineGraph> build(const ModelFn& model, const std::vector<DType>& dtypes,
                              const std::vector<PartialShape>& shapes);

 private:
  /// A micro-batch's place in its batch, where that makes a difference.
  enum class Place { kFirst, kMiddle, kLast, kOnly };

  /// The training steps of one replica.
  struct Replica {
    int number = 0;
    Copier copier;
    std::vector<Scope> scopes = {};                    // by stage, on its device
    std::vector<std::vector<const Node*>> sinks = {};  // by stage: what nobody else of the stage waits for
    std::vector<const Node*> signals = {};             // of passes, whatever the place
    std::map<Place, std::vector<const Node*>> targets = {};
  };

  const std::string& device(int replica, int stage, int part = 0) const {
    return options_.devices[size_t((replica * devices_ + stage % devices_) * options_.parts + part)];
  }
  const std::string& device(int replica, int stage, const Node& node) const {
    return device(replica, stage, part_of(node.device()));
  }
  size_t chunk(int stage) const { return size_t(stage / devices_); }
  int stage(const Node& node) const { return draft_.stage[size_t(node.id())]; }
  bool is_free(const Node& node) const { return free_[size_t(node.id())]; }
  bool is_backward(const Node& node) const { return draft_.backward[size_t(node.id())]; }
  /// Whether waiting for `node` is waiting for the pass of its stage that it is part of.
  bool counts(const Node& node) const {
    return draft_.needed[size_t(node.id())] && !is_free(node) && node.op().name() != "Placeholder";
  }
  bool same_pass(const Node& a, const Node& b) const {
    return stage(a) == stage(b) && is_backward(a) == is_backward(b);
  }
  Output component(size_t i) const { return feeds_[feeds_.size() - draft_.batch.size() + i]; }
  const Scope& at(const Replica& r, int stage) const { return r.scopes[size_t(stage)]; }
  /// An event count of the pipeline (ops/state/event_count.cpp), in the task of `home`.
  struct Events {
    std::string name, kind, home;
  };
  Events of_device(const char* what, const Replica& r, int stage) const {
    return {fmt::format("{}_{}_{}", what, r.number, stage % devices_), what, device(r.number, stage)};
  }
  Events of_stage(const char* what, int stage) const {
    return {fmt::format("{}_{}", what, stage), what, device(0, stage)};
  }
  /// Moving averages follow the first replica alone.
  bool skipped(const Replica& r, const Node& node) const {
    return r.number > 0 && std::ranges::find(draft_.updates, &node) != draft_.updates.end();
  }

  // -- pipeline_graph.cpp: passes and what they wait for --------------------------------------------------------------

  Status check_parts() const;
  // Of each stage: the nodes whose gradients go to an earlier stage, and in zero-bubble what those need.
  void find_boundaries();
  // Of each stage: those that update the variables that it uses.
  void find_owners();
  /// The variables of a draft, each at its stage's device of the first replica, with copies of their initial values.
  Status add_variables(const Draft& draft, const std::string& prefix);
  /// Where `node` of a draft goes that would be on device `own`: into the task of what it has a handle of.
  std::string at_home(const Copier& copier, const Node& node, const std::string& own) const;
  void add_feeds(const std::vector<DType>& dtypes, const std::vector<PartialShape>& shapes);
  Status add_replica(Replica& r);
  Status copy(Replica& r, const Node& node, const std::vector<const Node*>& gates);
  /// The nodes that `node` waits for on top of its own inputs: the first ones of a pass wait for `gates`. What runs in
  /// a loop waits for what comes into that.
  std::vector<const Node*> gates_of(const Node& node, const std::vector<const Node*>& gates) const;
  /// A backward pass is one piece: its gradient leaves when those of the stage's weights are there.
  void hold_boundary(Replica& r, int k);
  void find_sinks(Replica& r);
  void signal_passes(Replica& r, int k);
  /// What the forward pass of a stage waits for.
  const Node* begin(const Replica& r, int k);
  /// The handle of an event count, on a scope of its task.
  Output handle(const Scope& s, const Events& events);
  /// Done when the event count has come to `count`, or lacks less than `credit`; and what counts it on after `after`.
  const Node* await(const Scope& s, const Events& events, Output count, int64_t credit = 1);
  const Node* advance(const Scope& s, const Events& events, const std::vector<const Node*>& after);
  /// Passes that the device of a stage may have begun and not ended.
  int credit(int stage) const;
  Status add_test(const ModelFn& model, const std::vector<DType>& dtypes, std::vector<PartialShape> shapes);
  void describe_stages(const std::vector<double>& costs);

  // -- pipeline_updates.cpp -------------------------------------------------------------------------------------------

  Status finish(Replica& r, Place place);
  /// Adds what updates the variables of each stage to `done` of that stage.
  Status update(Replica& r, const std::vector<Variable>& trainable, std::vector<Output> gradients,
                const std::vector<const Node*>& turns, std::vector<std::vector<const Node*>>& done,
                std::vector<const Node*>& targets);
  /// Clipping is written once for all gradients, then each of its nodes goes where its first input is.
  Result<std::vector<Output>> clip(Replica& r, std::vector<Output> gradients);

  Graph& graph_;
  const std::source_location where_;  // what the caller asked for a pipeline by
  const Scope root_;
  Variables& variables_;
  const PipelineOptions& options_;
  const int devices_, stages_;  // of one replica
  Draft draft_;
  const bool zero_bubble_;
  LoopNodes loops_;
  bool branches_ = false;
  bool ordered_ = false;                       // forward passes of a device wait for one another
  std::vector<bool> free_, before_boundary_;   // by node id
  std::vector<std::vector<Output>> boundary_;  // by stage
  std::vector<std::set<int>> owners_;          // by stage
  std::vector<Output> feeds_;
  std::map<std::pair<std::string, std::string>, Output> events_;
  std::vector<Variables> sums_;  // by stage: a container each
  PipelineGraph out_;
};

}  // namespace troupe::nn
