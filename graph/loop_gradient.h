// SPDX-License-Identifier: Apache-2.0
// The gradient of a loop is a loop: it runs the gradient of the body as often as the loop ran, last iteration first.
// What that needs of the forward values is kept in lists, which become values of both loops.
// Source: TensorFlow white paper, section 4.1; Yu et al., Dynamic Control Flow in Large-Scale Machine Learning, 2018.
#pragma once
#include <utility>
#include <vector>

#include "graph/gradient_walk.h"

namespace troupe {

/// Adds that loop to `scope`, and to `loop` what keeps values. `dys[i]` is the gradient by the exit of carried[i],
/// empty for none. Returns pairs (what enters the loop, the gradient by it). Errors: those of the body's gradients; a
/// handle that is carried.
Result<std::vector<std::pair<Output, Output>>> loop_gradient(const Scope& scope, Loops& loops, const Loop& loop,
                                                             std::vector<Output> dys, const OutputSet& stops);

}  // namespace troupe
