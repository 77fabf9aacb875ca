// SPDX-License-Identifier: Apache-2.0
// The update of a model's variables from gradients that are dense or of rows.
#include "nn/updates.h"

#include <algorithm>

namespace troupe::nn {
namespace {

Output minus_one(const Scope& scope) { return scope.constant(Tensor::of<int32_t>({-1})); }

/// [-1, sizes of a row].
Output rows_shape(const Scope& scope, const Shape& shape) {
  std::vector<int32_t> dims(shape.begin(), shape.end());
  dims[0] = -1;
  return scope.constant(Tensor::of<int32_t>(dims));
}

/// The sums of rows that a gradient is the sum of: one for each gather.
std::vector<Output> sums_of(Output gradient) {
  if (gradient.node->op().name() == "AddN") return gradient.node->inputs();
  return {gradient};
}

}  // namespace

bool is_of_rows(const Variable& variable, Output gradient) {
  if (!gradient || variable.shape.rank() == 0) return false;
  const std::vector<Output> sums = sums_of(gradient);
  return std::ranges::all_of(sums, [&](const Output& sum) {
    return sum.node->op().name() == "UnsortedSegmentSum" &&
           sum.node->inputs()[1].dtype() == sums[0].node->inputs()[1].dtype();
  });
}

Gradient rows_of(const Scope& scope, const Variable& variable, Output gradient) {
  if (!is_of_rows(variable, gradient)) return {gradient, {}};
  std::vector<Output> values, indices;
  const std::vector<Output> sums = sums_of(gradient);
  for (const Output& sum : sums) {
    values.push_back(scope.op("Reshape", {sum.node->inputs()[0], rows_shape(scope, variable.shape)}));
    indices.push_back(scope.op("Reshape", {sum.node->inputs()[1], minus_one(scope)}));
  }
  if (sums.size() == 1) return {values[0], indices[0]};
  values.push_back(scope.constant(int32_t{0}));
  indices.push_back(scope.constant(int32_t{0}));
  return {scope.op("ConcatV2", values), scope.op("ConcatV2", indices)};
}

Output dense(const Scope& scope, const Variable& variable, const Gradient& gradient) {
  if (!gradient || !gradient.indices) return gradient.value;
  return scope.op("UnsortedSegmentSum", {gradient.value, gradient.indices, scope.constant(variable.shape[0])});
}

Gradient distinct(const Scope& scope, const Gradient& rows) {
  const Node* unique = scope.node("Unique", {rows.indices});
  if (!unique) return {};
  const Output count = scope.op("Size", {unique->out(0)});
  return {scope.op("UnsortedSegmentSum", {rows.value, unique->out(1), count}), unique->out(0)};
}

const Node* update_variable(UpdateContext c, const Optimizer& optimizer, const Gradient& gradient, bool decays) {
  const Scope& s = c.scope;
  const bool pulls = decays && optimizer.l2 != 0;
  const Node* update;
  if (gradient.indices && optimizer.update_rows && !pulls) {
    const Gradient rows = distinct(s, gradient);
    c.gradient = rows.value;
    update = s.ok() ? optimizer.update_rows(c, rows.indices) : nullptr;
  } else {
    c.gradient = dense(s, c.variable, gradient);
    if (pulls) {
      const Output pull = s.op("Mul", {c.variables.read(s, c.variable), s.constant(optimizer.l2)});
      c.gradient = s.op("AddV2", {c.gradient, pull});
    }
    update = optimizer.update(c);
  }
  if (!decays || optimizer.weight_decay == 0 || !update) return update;
  const Output share = s.op("Mul", {c.rate, s.constant(optimizer.weight_decay)});
  const Output loss = s.op("Mul", {c.variables.read(s, c.variable), share});
  return s.after(std::vector<const Node*>{update}).named("decay").node("AssignSubVariableOp", {c.handle(), loss});
}

UpdateRate update_rate(const Scope& scope, Variables& variables, const Optimizer& optimizer) {
  const Output step = scope.op("Cast", {variables.global_step(scope)}, {{"DstT", DType::kFloat32}});
  return {optimizer.rate(scope.scope("rate"), step), step};
}

const Node* finish_update(const Scope& scope, Variables& variables, const std::vector<const Node*>& updates) {
  if (!scope.ok()) return nullptr;
  return scope.after(updates)
      .named("global_step")
      .node("AssignAddVariableOp", {variables.global_step_handle(scope), scope.constant(int64_t{1})});
}

const Node* apply_updates(const Scope& scope, Variables& variables, const Optimizer& optimizer,
                          std::vector<Gradient> gradients) {
  const std::vector<Variable> trainable = variables.trainable();
  if (trainable.size() != gradients.size()) {
    scope.fail(invalid_argument("apply_gradients: {} gradients for {} trainable variables", gradients.size(),
                                trainable.size()));
    return nullptr;
  }
  const Scope s = scope.scope("update");
  const UpdateRate rate = update_rate(s, variables, optimizer);
  if (optimizer.clip) {
    std::vector<Output> whole;
    for (size_t i = 0; i < trainable.size(); ++i) whole.push_back(dense(s, trainable[i], gradients[i]));
    whole = optimizer.clip(s.scope("clip"), whole);
    for (size_t i = 0; i < trainable.size(); ++i) gradients[i] = {whole[i], {}};
  }
  std::vector<const Node*> done;
  for (size_t i = 0; i < trainable.size() && s.ok(); ++i) {
    if (!gradients[i]) continue;
    const Variable& v = trainable[i];
    done.push_back(update_variable({s.scope(v.name), variables, v, {}, rate.rate, rate.step}, optimizer, gradients[i],
                                   decays(v.shape)));
  }
  return finish_update(s, variables, done);
}

}  // namespace troupe::nn
