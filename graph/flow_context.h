// SPDX-License-Identifier: Apache-2.0
// FlowContext: the branch or loop that a Scope's nodes are in; it brings in what they use from outside.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "troupe/graph.h"

namespace troupe {

class FlowContext {
 public:
  /// Makes the node that brings an output in from outside, where it may have to be brought in to the outer one first
  /// (adding a node there does that).
  using BringIn = std::function<Output(Output)>;

  /// `outer` is the context around this one, if any; `pivot` is a node that runs whenever this branch or iteration
  /// does; `loop`: this is the body of a loop.
  FlowContext(std::shared_ptr<FlowContext> outer, const Node* pivot, BringIn bring_in, bool loop = false)
      : outer_(std::move(outer)), pivot_(pivot), bring_in_(std::move(bring_in)), loop_(loop) {}

  /// Changes the inputs of a node that is about to be added: outputs from outside are brought in, control inputs from
  /// outside fall away (bringing something in waits for them), and a node without inputs, or with none but what a loop
  /// has in every iteration, waits for the pivot.
  void adopt(std::vector<Output>& inputs, std::vector<const Node*>& control_inputs);
  /// `outside` as the nodes in here see it.
  Output inside(Output outside);
  /// Counts `node`, which a Scope in here did not add, as in here.
  void add(const Node* node);
  void set_pivot(const Node* pivot) { pivot_ = pivot; }
  /// Nothing more can be brought in: what that needs is going away.
  void end() { bring_in_ = nullptr; }
  bool ended() const { return !bring_in_; }
  /// Whether this is `other` or in it; nullptr is around all.
  bool is_in(const FlowContext* other) const {
    const FlowContext* at = this;
    while (at && at != other) at = at->outer_.get();
    return at == other;
  }
  /// Whether this is the body of a loop or in one.
  bool in_loop() const { return loop_ || (outer_ && outer_->in_loop()); }
  /// Whether `node` is in here.
  bool holds(const Node* node) const;
  /// What nodes in here wait for in place of a node outside; nullptr: nothing has been made for it.
  const Node*& stand_in(const Node* outside) { return stand_ins_[outside]; }

 private:
  std::shared_ptr<FlowContext> outer_;
  const Node* pivot_;
  BringIn bring_in_;
  bool loop_;
  std::set<const Node*> nodes_;  // beside those that scopes in here added
  std::map<std::pair<const Node*, int>, Output> brought_;
  std::map<const Node*, const Node*> stand_ins_;
};

}  // namespace troupe
