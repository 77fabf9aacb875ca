// SPDX-License-Identifier: Apache-2.0
// Gradients of rows, and the update of one variable. Implemented in nn/updates.cpp.
#pragma once
#include <vector>

#include "troupe/optimizers.h"

namespace troupe::nn {

/// The gradient of a variable, or of some of its rows: TensorFlow's IndexedSlices.
struct Gradient {
  Output value;    // of the variable's shape; of rows: [n, ...]
  Output indices;  // [n] int32 or int64: which rows, some perhaps more than once; empty: all
  explicit operator bool() const { return static_cast<bool>(value); }
};

/// `scope` on the device where x is made.
Scope at(const Scope& scope, Output x);
/// The value of a variable at its home, defined as by Variables::read: what takes rows of it is best there too, so that
/// nothing but rows goes to another task.
Output table_at_home(const Scope& scope, Variables& variables, const std::string& name, const Shape& shape,
                     const Initializer& initial);
/// Whether a gradient came about by summing rows: by gathers from the variable.
bool is_of_rows(Output gradient);
/// `gradient` before rows were summed, if it is one of rows; see indexed_slices.
Gradient rows_of(const Scope& scope, Output gradient);
/// Tensors one after the other along their first axis.
Output joined(const Scope& scope, std::vector<Output> parts);
/// The same as one tensor of the variable's shape.
Output dense(const Scope& scope, const Variable& variable, const Gradient& gradient);
/// Rows that came more than once summed, in their order.
Gradient distinct(const Scope& scope, const Gradient& rows);

/// Adds what an optimizer does to one variable: L2, its update, decay. `decays`: whether the first and the last are for
/// this one. `of` has no gradient: it is `gradient`, dense or not, and what was summed from rows is taken as rows where
/// the optimizer can do that. All is on the scope of `of`, or where that is of another task at the variable's home.
const Node* update_variable(const UpdateContext& of, const Optimizer& optimizer, Gradient gradient, bool decays);
/// Whether L2 and decay are for a variable of this shape.
inline bool decays(const Shape& shape) { return shape.rank() >= 2; }

/// Whether clipping gave a gradient for each that there was. Errors name the numbers, or the one that has none.
Status check_clipped(const std::vector<Output>& gradients, const std::vector<Output>& clipped);
/// What the optimizer's clipping makes of gradients, or these, where the scope fails: see check_clipped.
std::vector<Output> clipped(const Scope& scope, const Optimizer& optimizer, std::vector<Output> gradients);

/// What the updates of one step share.
struct UpdateRate {
  Output rate, step;
};
UpdateRate update_rate(const Scope& scope, Variables& variables, const Optimizer& optimizer);
/// Adds 1 to the global step after the updates; returns the node to run.
const Node* finish_update(const Scope& scope, Variables& variables, const std::vector<const Node*>& updates);

/// apply_gradients, for gradients of rows too.
const Node* apply_updates(const Scope& scope, Variables& variables, const Optimizer& optimizer,
                          std::vector<Gradient> gradients);

}  // namespace troupe::nn
