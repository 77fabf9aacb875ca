// SPDX-License-Identifier: Apache-2.0
// GradientWalk: the backward walk over the nodes of one frame between xs and ys. A loop inside the frame counts as one
// node, from what enters it to its exits (graph/loop_gradient.h).
//
// Invariants:
// 1. Nodes are visited each after all its consumers, so its gradients are complete then; among those that may be next,
//    the one added last.
// 2. A gradient is kept only for an output that depends on some x by differentiable ops and is not stopped.
// 3. Contributions add up in the order of the visits, which depends on the graph alone.
// 4. What is computed again for an earlier gradient counts as its original, so an x may be either.
#pragma once
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/loops.h"
#include "troupe/scope.h"

namespace troupe {

/// Whether gradients are numbers of this type.
inline bool differentiable(DType t) { return is_floating(t) || is_complex(t); }
/// Whether a gradient may pass along an edge of this type: along a handle it does from a read to its variable, along a
/// list from a read to what was put in.
inline bool carries_gradient(DType t) { return differentiable(t) || t == DType::kResource || t == DType::kVariant; }

struct OutputHash {
  size_t operator()(const Output& o) const { return std::hash<const void*>()(o.node) * 31 + o.port; }
};
using OutputSet = std::unordered_set<Output, OutputHash>;

class Recompute;

class GradientWalk {
 public:
  /// New nodes go to `scope`. `loops`, of the whole graph, outlives the walk and is told of what it adds to loops.
  /// `recompute`, if any, says what gradients take in place of the values they would keep.
  /// With `outward` it goes on where the frame's invariants come from, through the frames around it.
  GradientWalk(const Scope& scope, Loops& loops, int frame, const std::vector<Output>& xs, const OutputSet& stops,
               bool outward = false, Recompute* recompute = nullptr)
      : scope_(scope), loops_(loops), frame_(frame), xs_(xs.begin(), xs.end()), stops_(stops), outward_(outward),
        recompute_(recompute) {}

  /// Finds the nodes between ys and xs. Error: Recompute::check.
  Status mark(const std::vector<Output>& ys);
  /// A contribution to the gradient by `output`.
  void add(const Output& output, const Output& gradient) { parts_[output].push_back(gradient); }
  /// Visits the nodes backwards.
  Status run();
  /// The gradient by `output`: its contributions added up; empty when there are none.
  Output total(const Output& output);

 private:
  /// A node, or the first that was met of a loop.
  struct Unit {
    const Node* node = nullptr;
    const Loop* loop = nullptr;
    int id = 0;
    int consumers = 0;     // not yet visited
    bool depends = false;  // leads to some x
  };
  Unit& unit_of(const Node& node, const Loop* loop);
  /// Calls f(output) for what a unit reads.
  template <class F> void for_each_input(const Unit& unit, F&& f) const;
  /// The unit that makes an output; nullptr where it comes from another frame.
  Unit* maker(const Output& output);
  /// Whether the gradient by this output leads on to some x.
  bool wanted(const Output& o);
  Scope scope_of(const Node& node) const;
  Status visit(const Node& node);
  Status visit(const Loop& loop);
  Output unstopped(const Output& output) { return stops_.contains(output) ? Output{} : total(output); }

  Scope scope_;
  Loops& loops_;
  const int frame_;
  OutputSet xs_;
  const OutputSet& stops_;
  const bool outward_;
  Recompute* const recompute_;
  std::unordered_map<const void*, Unit> units_;  // by Node or Loop
  std::vector<Unit*> path_;                      // each before what it reads
  std::unordered_map<Output, std::vector<Output>, OutputHash> parts_;
};

}  // namespace troupe
