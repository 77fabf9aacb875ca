// SPDX-License-Identifier: Apache-2.0
// Gradients by rewriting the graph. Implemented in graph/gradients.cpp.
#pragma once
#include <vector>

#include "troupe/scope.h"

namespace troupe {

/// Adds the nodes that compute sum(dys[i] * d ys[i] / d xs[j]) and returns one Output for each x (empty where no y
/// depends on x). dys default to ones. Paths stop at stop_gradients. Several paths into one tensor add up by AddN, in
/// an order that depends on the graph alone. New nodes go to the devices of those they differentiate, in a scope
/// "gradients". An op that is not differentiable ends its paths, as do edges that are not floating. An x may be the
/// handle of a variable: its gradient is that of all its reads. Errors: ys or xs that are not floating; what the
/// gradient function of an op reports, with the node.
/// Source: TensorFlow white paper, section 4.1; tf.gradients.
Result<std::vector<Output>> gradients(const Scope& scope, const std::vector<Output>& ys, const std::vector<Output>& xs,
                                      const std::vector<Output>& dys = {},
                                      const std::vector<Output>& stop_gradients = {});

}  // namespace troupe
