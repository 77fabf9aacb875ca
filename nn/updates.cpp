// SPDX-License-Identifier: Apache-2.0
// The update of a model's variables from gradients that are dense or of rows.
#include "nn/updates.h"

#include <algorithm>

namespace troupe::nn {
namespace {

bool is_vector(Output x) { return x.shape().has_rank() && x.shape().rank() == 1; }

// Appends the sums of rows by index that a gradient is made of; false if it has a part that is none.
bool find_row_sums(Output gradient, std::vector<Output>& sums) {
  const Node& node = *gradient.node;
  if (node.op().name() == "AddN")
    return std::ranges::all_of(node.inputs(), [&](Output part) { return find_row_sums(part, sums); });
  if (node.op().name() != "UnsortedSegmentSum") return false;
  sums.push_back(gradient);
  const Output ids = node.inputs()[1];
  return ids.dtype() != DType::kInt16 && ids.dtype() == sums[0].node->inputs()[1].dtype() &&
         (is_vector(ids) || gradient.shape().fully_known());
}

}  // namespace

Output joined(const Scope& scope, std::vector<Output> parts) {
  if (parts.size() == 1) return parts[0];
  parts.push_back(scope.constant(0));
  return scope.op("ConcatV2", std::move(parts));
}

Scope at(const Scope& scope, Output x) {
  return x && !x.node->device().empty() ? scope.device(x.node->device()) : scope;
}

Output table_at_home(const Scope& scope, Variables& variables, const std::string& name, const Shape& shape,
                     const Initializer& initial) {
  variables.handle(scope, name, shape, initial, true);
  return variables.read(variables.home(scope, name), name, shape, initial);
}

std::optional<IndexedSlices> indexed_slices(const ScopeAt& scope, Output gradient) {
  if (!scope.ok() || !gradient) return std::nullopt;
  std::vector<Output> sums, values, indices;
  if (!find_row_sums(gradient, sums)) return std::nullopt;
  for (const Output& sum : sums) {
    Output of_sum = sum.node->inputs()[0], ids = sum.node->inputs()[1];
    if (!is_vector(ids)) {
      const Scope there = at(scope, sum);
      std::vector<int32_t> row(sum.shape().dims().begin(), sum.shape().dims().end());
      row[0] = -1;
      of_sum = there.op("Reshape", {of_sum, there.constant(Tensor::of<int32_t>(row))});
      ids = there.op("Reshape", {ids, there.constant(Tensor::of<int32_t>({-1}))});
    }
    values.push_back(of_sum);
    indices.push_back(ids);
  }
  const Scope there = at(scope, gradient);
  return IndexedSlices{joined(there, std::move(values)), joined(there, std::move(indices))};
}

bool is_of_rows(Output gradient) {
  std::vector<Output> sums;
  return gradient && find_row_sums(gradient, sums);
}

Gradient rows_of(const Scope& scope, Output gradient) {
  const auto rows = indexed_slices(scope, gradient);
  return rows ? Gradient{rows->values, rows->indices} : Gradient{gradient, {}};
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

const Node* update_variable(const UpdateContext& of, const Optimizer& optimizer, Gradient gradient, bool decays) {
  const Scope s = of.variables.home(of.scope, of.variable.name);
  UpdateContext c{s, of.variables, of.variable, {}, of.rate, of.step};
  const bool pulls = decays && optimizer.l2 != 0;
  const Node* update;
  if (optimizer.update_rows && !pulls && !gradient.indices) gradient = rows_of(s, gradient.value);
  if (gradient.indices && optimizer.update_rows && !pulls) {
    const Gradient rows = distinct(of.scope, gradient);
    c.gradient = rows.value;
    update = s.ok() ? optimizer.update_rows(c, rows.indices) : nullptr;
  } else {
    c.gradient = dense(s, c.variable, gradient);
    if (pulls) {
      const Output pull = s.op("Mul", {c.variables.read(s, c.variable), s.constant(optimizer.l2)});
      c.gradient = s.op("AddV2", {c.gradient, pull});
    }
    update = s.ok() ? optimizer.update(c) : nullptr;
  }
  if (!update)
    s.fail(invalid_argument("the optimizer's update of variable '{}' gives no node, so nothing would train it",
                            of.variable.name));
  if (!decays || optimizer.weight_decay == 0 || !update) return update;
  const Output share = s.op("Mul", {c.rate, s.constant(optimizer.weight_decay)});
  const Output loss = s.op("Mul", {c.variables.read(s, c.variable), share});
  return s.after(std::vector<const Node*>{update}).named("decay").node("AssignSubVariableOp", {c.handle(), loss});
}

Status check_clipped(const std::vector<Output>& gradients, const std::vector<Output>& clipped) {
  if (clipped.size() != gradients.size())
    return invalid_argument("clipping makes {} gradients of {}", clipped.size(), gradients.size());
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i] && !clipped[i])
      return invalid_argument("clipping makes no gradient of {}, so its variable would not be trained",
                              gradients[i].name());
  return {};
}

std::vector<Output> clipped(const Scope& scope, const Optimizer& optimizer, std::vector<Output> gradients) {
  if (!optimizer.clip || !scope.ok()) return gradients;
  std::vector<Output> out = optimizer.clip(scope.scope("clip"), gradients);
  if (Status status = check_clipped(gradients, out); !status.ok()) return scope.fail(status.error()), gradients;
  return out;
}

UpdateRate update_rate(const Scope& scope, Variables& variables, const Optimizer& optimizer) {
  const Output step = scope.op("Cast", {variables.global_step(scope)}, {{"DstT", DType::kFloat32}});
  return {optimizer.rate(scope.scope("rate"), step), step};
}

const Node* finish_update(const Scope& scope, Variables& variables, const std::vector<const Node*>& updates) {
  if (!scope.ok()) return nullptr;
  const Output step = variables.global_step_handle(scope);
  const Scope home = variables.home(scope, "global_step");
  return home.after(updates).named("global_step").node("AssignAddVariableOp", {step, home.constant(int64_t{1})});
}

const Node* apply_updates(const Scope& scope, Variables& variables, const Optimizer& optimizer,
                          std::vector<Gradient> gradients) {
  const std::vector<Variable> trainable = variables.trainable();
  if (trainable.size() != gradients.size()) {
    scope.fail(invalid_argument("apply_gradients: {} gradients for {} trainable variables", gradients.size(),
                                trainable.size()));
    return nullptr;
  }
  if (!optimizer.update || !optimizer.rate) {
    scope.fail(invalid_argument("apply_gradients: the optimizer has no {}", optimizer.rate ? "update" : "rate"));
    return nullptr;
  }
  const Scope s = scope.scope("update");
  const UpdateRate rate = update_rate(s, variables, optimizer);
  if (optimizer.clip) {
    std::vector<Output> whole;
    for (size_t i = 0; i < trainable.size(); ++i) whole.push_back(dense(s, trainable[i], gradients[i]));
    whole = clipped(s, optimizer, std::move(whole));
    for (size_t i = 0; i < trainable.size(); ++i) gradients[i] = {whole[i], {}};
  }
  std::vector<const Node*> done;
  for (size_t i = 0; i < trainable.size() && s.ok(); ++i) {
    if (!gradients[i]) continue;
    const Variable& v = trainable[i];
    const Scope own = at(s.scope(v.name), gradients[i].value);
    done.push_back(
        update_variable({own, variables, v, {}, rate.rate, rate.step}, optimizer, gradients[i], decays(v.shape)));
  }
  return finish_update(s, variables, done);
}

}  // namespace troupe::nn
