// SPDX-License-Identifier: Apache-2.0
// Recognises GELU (Hendrycks and Gimpel, 2016) and its gradient where a graph has them as element-wise nodes.
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

/// What find_gelu_gradient() found: dy times the derivative of GELU at x.
struct GeluGradient {
  bool exact;                      // as of Gelu
  Output dy, x;                    // as they are now
  std::vector<const Node*> parts;  // the nodes between dy and the result, that of the result too
  std::vector<const Node*> kept;   // those that they read of which dy is no part: of the forward pass, of x alone
};

/// The gradient of a GELU, if `last` is the sum that ends one: as gradients() and TensorFlow make it of what
/// find_gelu() knows, or by other sums, products and powers of dy, x, constants, the forward pass's Tanh, Erf or Erfc,
/// and exp(-x^2 / 2). What they make to undo broadcasts, where sizes are not known, may be among the nodes; dy has the
/// shape of x then, as far as it is known. Time: bounded. It does not ask who else reads the parts.
std::optional<GeluGradient> find_gelu_gradient(const StepGraph& step, const Node& last);

}  // namespace troupe
