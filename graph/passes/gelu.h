// SPDX-License-Identifier: Apache-2.0
// Recognises GELU (Hendrycks and Gimpel, 2016) where a graph has it as element-wise nodes.
#pragma once
#include <optional>
#include <vector>

#include "graph/step_graph.h"

namespace troupe {

/// What find_gelu() found.
struct Gelu {
  bool exact;                      // by erf: x / 2 * (1 + erf(x / sqrt(2))); else by tanh, as gpu/blas.h has it
  Output x;                        // as it is now
  std::vector<const Node*> parts;  // the nodes between x and the result, that of the result too; constants are left out
};

/// GELU, if `last` is the last node of one: x, constants of one element, one Tanh, Erf or Erfc, and sums, differences,
/// products, quotients and powers in any order that amounts to one of its two formulas. Constants may be rounded to the
/// nodes' type. Time: bounded. It does not ask who else reads the parts.
std::optional<Gelu> find_gelu(const StepGraph& step, const Node& last);

}  // namespace troupe
