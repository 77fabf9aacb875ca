// SPDX-License-Identifier: Apache-2.0
// Gradients by rewriting the graph. Implemented in graph/gradients.cpp.
#pragma once
#include <string>
#include <vector>

#include "troupe/export.h"
#include "troupe/scope.h"

namespace TROUPE_API troupe {

struct GradientOptions {
  /// Name scopes, "block_1" or "encoder/layer_2", wherever they are: "replica_0/block_1" is one too. Of what is
  /// computed in one, only what nodes outside of it read is kept for the backward pass, which computes the rest again
  /// from there: less memory for more time, at most a second forward pass. Of nested scopes the outermost counts.
  /// Gradients stay the same, since what has state (random numbers, reads of variables and queues) or is in a branch or
  /// loop is kept all the same; so is what is small. What is fed in place of a node there does not reach the backward
  /// pass (docs/gradients.md). Source: tf.recompute_grad.
  std::vector<std::string> recompute = {};
};

/// Adds the nodes that compute sum(dys[i] * d ys[i] / d xs[j]) and returns one Output for each x (empty where no y
/// depends on x). dys default to ones. Paths stop at stop_gradients. Several paths into one tensor add up by AddN, in
/// an order that depends on the graph alone. New nodes go to the devices of those they differentiate, in a scope
/// "gradients". An op that is not differentiable ends its paths, as do edges that are not floating;
/// one whose gradient is not defined is an error (kUnimplemented), not a constant. An x may be the handle of a
/// variable: its gradient is that of all its reads. In the body of a loop an x may be outside of it; paths end at what
/// the loop carries from iteration to iteration. Errors: ys or xs that are not floating; a scope to be recomputed
/// without a node between ys and xs; what the gradient function of an op reports, with the node. Source: TensorFlow
/// white paper, section 4.1; tf.gradients.
Result<std::vector<Output>> gradients(const ScopeAt& scope, const std::vector<Output>& ys,
                                      const std::vector<Output>& xs, const std::vector<Output>& dys = {},
                                      const std::vector<Output>& stop_gradients = {},
                                      const GradientOptions& options = {});

}  // namespace troupe
