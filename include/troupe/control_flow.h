// SPDX-License-Identifier: Apache-2.0
// Branches and loops in a graph: cond, while_loop, scan. Implemented in graph/control_flow.cpp, by the white paper's
// Switch, Merge, Enter, Exit and NextIteration.
//
// A branch or a body is a function that adds nodes to the Scope it is given. It may use any Output from outside: what
// it uses is brought in by itself, into a loop once for all iterations. It runs once, while the graph is built, not in
// each step. Functions nest. Faults stick to the scope, as with all builders, and then the result is empty.
#pragma once
#include <functional>

#include "troupe/export.h"
#include "troupe/scope.h"

namespace TROUPE_API troupe {

/// Adds a branch's nodes and returns what it computes.
using BranchFn = std::function<std::vector<Output>(const Scope&)>;

/// then() where the scalar bool `predicate` is true in a step, otherwise() where it is false; only the nodes of that
/// branch run. Both give as many outputs, with the same dtypes in order, or it is a fault, as an empty function is; a
/// size in which the two differ is unknown. Gradients flow through. Source: tf.cond.
std::vector<Output> cond(const ScopeAt& scope, Output predicate, const BranchFn& then, const BranchFn& otherwise);

struct WhileOptions {
  /// Iterations that may overlap, where they do not wait for one another's values; at least 1.
  int parallel_iterations = 10;
  /// What the shape of each value stays within, in the order of `init`; empty: the shapes of `init` themselves.
  std::vector<PartialShape> shapes = {};
  /// Of the loop's scope; empty: "while".
  std::string name = "while";
};
using LoopPredicate = std::function<Output(const Scope&, const std::vector<Output>&)>;
using LoopBody = std::function<std::vector<Output>(const Scope&, const std::vector<Output>&)>;

/// Begins with the values `init` and, while predicate(values), a scalar bool, holds, replaces them by body(values);
/// returns the last. At least one value. Gradients flow through: values that they need are kept, from iteration to
/// iteration. Nodes of the body run on the devices that their scopes name, others where the loop is at home, on the
/// device of its first node; values are carried where they are computed. Faults: an empty function; body gives other
/// dtypes or another count than `init`, or a shape that leaves its bounds. Source: tf.while_loop.
std::vector<Output> while_loop(const ScopeAt& scope, const std::vector<Output>& init, const LoopPredicate& predicate,
                               const LoopBody& body, WhileOptions options = {});

/// One step of a scan: the new state from the state and one row of each tensor that is scanned.
using ScanBody =
    std::function<std::vector<Output>(const Scope&, const std::vector<Output>& state, const std::vector<Output>& rows)>;

/// Goes through the rows of `tensors`, which have equally many, and gives each value of the state after every row, as
/// the rows of one tensor: shape [n, ...] for a value of shape [...], which stays the same from row to row. At least
/// one tensor and one value. Gradients flow through. Faults: those of while_loop; a tensor that is a scalar; at run
/// time, a tensor with fewer rows than the first (of one with more the rest is not read). Source: tf.scan.
std::vector<Output> scan(const ScopeAt& scope, const std::vector<Output>& tensors, const std::vector<Output>& init,
                         const ScanBody& body, WhileOptions options = {.name = "scan"});

/// Whether nodes of `scope` are in a loop, be it in a branch within it: they then run once an iteration, and
/// can be neither fetched nor a step's targets.
bool in_loop(const Scope& scope);

}  // namespace troupe
