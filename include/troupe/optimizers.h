// SPDX-License-Identifier: Apache-2.0
// Optimizers, clipping of gradients, learning-rate schedules: functions that add nodes to a graph.
// Implemented in nn/optimizers.cpp and nn/schedules.cpp.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/export.h"
#include "troupe/gradients.h"
#include "troupe/nn.h"

namespace TROUPE_API troupe {
namespace nn {

// -- learning rates ---------------------------------------------------------------------------------------------------

/// Adds nodes that compute the rate, a float32 scalar, from the update's number `step`, a float32 scalar from 0 on.
using Schedule = std::function<Output(const Scope& scope, Output step)>;

Schedule constant_rate(float rate);
/// rate * factor ^ (step / every), the power only growing at every `every` steps when `staircase`. Error: `every` below
/// 1.
Schedule exponential_decay(float rate, float factor, int64_t every, bool staircase = false);
/// exponential_decay in steps.
inline Schedule step_decay(float rate, float factor, int64_t every) {
  return exponential_decay(rate, factor, every, true);
}
/// `first` until the first boundary, from each boundary on its rate. Error: boundaries that do not ascend.
Schedule piecewise_rate(float first, std::vector<std::pair<int64_t, float>> from);
/// Rises in a line over `warmup` steps, of which the first has rate / warmup and the last `rate`, then falls as a half
/// cosine to `floor` at step `total`, and stays. Loshchilov and Hutter, 2017. Error: `total` not above `warmup` and 0.
Schedule cosine_decay(float rate, int64_t total, int64_t warmup = 0, float floor = 0);

// -- clipping ---------------------------------------------------------------------------------------------------------

/// Adds nodes that limit gradients, one for each; empty Outputs stay empty, of another an empty one is a fault.
using Clip = std::function<std::vector<Output>(const Scope& scope, const std::vector<Output>& gradients)>;

/// Each element to [-limit, limit]. Error: a limit below 0.
Clip clip_by_value(float limit);
/// Each gradient scaled down to an L2 norm of at most `norm`. Error: a norm that is not above 0 and finite.
Clip clip_by_norm(float norm);
/// All scaled by one factor, so that their common L2 norm is at most `norm`. Error: as of clip_by_norm.
Clip clip_by_global_norm(float norm);

// -- gradients by variables -------------------------------------------------------------------------------------------

/// The gradient of `loss` by each trainable variable, in order: added up over all devices that use it, where the
/// variable's initial value is made. Empty for one that the loss does not depend on. Errors: those of gradients().
Result<std::vector<Output>> variable_gradients(const ScopeAt& scope, const Variables& variables, Output loss,
                                               const GradientOptions& options = {});

/// A gradient by a table of which few rows were taken: row indices[i] gets values[i], the others nothing. A row may
/// come more than once; then its values add up.
struct IndexedSlices {
  Output values;   // [n, ...], rows of the table
  Output indices;  // [n], int32 or int64
};
/// The rows of which a gradient is made, if it is a sum of rows by index and nothing has changed it since: that of a
/// variable that only GatherV2 along the first axis (so embedding()) reads. Clipping, say, makes another. Adds nodes on
/// the gradient's device.
std::optional<IndexedSlices> indexed_slices(const ScopeAt& scope, Output gradient);

// -- optimizers -------------------------------------------------------------------------------------------------------

/// What one update of one variable is made from.
struct UpdateContext {
  const Scope& scope;  // in the variable's home task
  Variables& variables;
  const Variable& variable;
  Output gradient;
  Output rate;  // float32 scalar
  Output step;  // float32 scalar, 0 at the first update

  Output handle() const { return variables.handle(scope, variable); }
  /// A further variable of the same shape, "<variable>/<name>", all elements `value` at first.
  Output slot(const std::string& name, float value = 0) const {
    return variables.handle(scope, variable.name + "/" + name, variable.shape, constant_init(value));
  }
};

/// How variables follow their gradients. A value: change the fields after making one. Each update is made on the device
/// of its gradient or, where that is of another task than the variable, at the variable's home.
struct Optimizer {
  Schedule rate;
  /// Adds the node that updates one variable, at the container that holds it. nullptr is a fault.
  std::function<const Node*(const UpdateContext&)> update;
  Clip clip = {};
  /// Both act on trainable variables of rank 2 and more, so not on biases and scales. L2 adds l2 * variable to the
  /// gradient (after clipping); decoupled decay takes rate * weight_decay * variable off the variable (AdamW).
  float l2 = 0;
  float weight_decay = 0;
  /// The same update where the gradient is zero but for some rows: `gradient` has these, `indices` (a vector of as many
  /// int32 or int64) names them, each once. For rules by which a gradient of zero changes nothing; those of sgd and
  /// adagrad do. Empty: the gradient is made dense first.
  std::function<const Node*(const UpdateContext&, Output indices)> update_rows = {};
};

/// sgd and adagrad change only the rows of IndexedSlices, with the numbers of the whole gradient; the others change
/// each row in every update, since what they remember of it does.
Optimizer sgd(Schedule rate);
Optimizer momentum(Schedule rate, float momentum = 0.9f, bool nesterov = false);
Optimizer adam(Schedule rate, float beta1 = 0.9f, float beta2 = 0.999f, float epsilon = 1e-8f);
Optimizer adagrad(Schedule rate, float initial_accumulator = 0.1f, float epsilon = 1e-7f);
Optimizer rmsprop(Schedule rate, float decay = 0.9f, float momentum = 0, float epsilon = 1e-7f);

/// Adds one update of all trainable variables, in order, from their gradients (empty ones are left alone), then of the
/// global step. Returns the node to run. Errors: as many gradients as trainable variables are needed, from clipping
/// too; an optimizer without rate or update.
const Node* apply_gradients(const ScopeAt& scope, Variables& variables, const Optimizer& optimizer,
                            std::vector<Output> gradients);

/// Adds gradients of `loss` by the trainable variables, on whatever devices the layers are, and their update; returns
/// the node to run. What layers left (Variables::take_updates) runs with it.
const Node* minimize(const ScopeAt& scope, Variables& variables, const Optimizer& optimizer, Output loss,
                     const GradientOptions& options = {});

}  // namespace nn
}  // namespace troupe
