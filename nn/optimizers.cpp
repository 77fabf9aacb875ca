// SPDX-License-Identifier: Apache-2.0
// Optimizers: one Resource... op for each variable, applied inside the container; clipping before them. Nodes go to the
// devices of the gradients they work on.
#include "troupe/optimizers.h"

#include <algorithm>

namespace troupe::nn {
namespace {

// The device where x is made.
Scope at(const Scope& scope, Output x) {
  return x && !x.node->device().empty() ? scope.device(x.node->device()) : scope;
}

Output square_sum(const Scope& scope, Output x) { return sum_all(scope, scope.op("Square", {x})); }

// Scales x so that a norm of sqrt(squares) becomes at most `limit`.
Output limit_norm(const Scope& scope, Output x, Output squares, float limit) {
  const Output norm = scope.op("Sqrt", {squares});
  const Output most = scope.constant(limit);
  return scope.op("Mul", {x, scope.op("RealDiv", {most, scope.op("Maximum", {norm, most})})});
}

// One minus the `step + 1`-th power of beta is Adam's correction; its op wants the power.
Output power_of(const UpdateContext& c, float beta) {
  const Output number = c.scope.op("AddV2", {c.step, c.scope.constant(1.f)});
  return c.scope.op("Pow", {c.scope.constant(beta), number});
}

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

Output joined(const Scope& scope, std::vector<Output> parts) {
  if (parts.size() == 1) return parts[0];
  parts.push_back(scope.constant(0));
  return scope.op("ConcatV2", std::move(parts));
}

// The same with each row once.
IndexedSlices sum_equal_rows(const Scope& scope, const IndexedSlices& slices) {
  const Node* unique = scope.node("Unique", {slices.indices});
  if (!unique) return slices;
  const Output count = scope.op("Size", {unique->out(0)});
  return {scope.op("UnsortedSegmentSum", {slices.values, unique->out(1), count}), unique->out(0)};
}

}  // namespace

Clip clip_by_value(float limit) {
  return [=](const Scope& scope, std::vector<Output> gradients) {
    for (Output& g : gradients)
      if (g) {
        const Scope s = at(scope, g);
        g = s.op("Minimum", {s.op("Maximum", {g, s.constant(-limit)}), s.constant(limit)});
      }
    return gradients;
  };
}

Clip clip_by_norm(float norm) {
  return [=](const Scope& scope, std::vector<Output> gradients) {
    for (Output& g : gradients)
      if (g) g = limit_norm(at(scope, g), g, square_sum(at(scope, g), g), norm);
    return gradients;
  };
}

Clip clip_by_global_norm(float norm) {
  return [=](const Scope& scope, std::vector<Output> gradients) {
    std::vector<Output> squares;
    for (const Output& g : gradients)
      if (g) squares.push_back(square_sum(at(scope, g), g));
    if (squares.empty()) return gradients;
    const Output sum = scope.op("AddN", squares);
    for (Output& g : gradients)
      if (g) g = limit_norm(at(scope, g), g, sum, norm);
    return gradients;
  };
}

std::optional<IndexedSlices> indexed_slices(const Scope& scope, Output gradient) {
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

Result<std::vector<Output>> variable_gradients(const Scope& scope, const Variables& variables, Output loss,
                                               const GradientOptions& options) {
  TROUPE_RETURN_IF_ERROR(scope.status());
  const std::vector<Variable> all = variables.trainable();
  std::vector<Output> reads;
  std::vector<size_t> ends;
  for (const Variable& v : all) {
    for (const Output& read : variables.reads(v)) reads.push_back(read);
    ends.push_back(reads.size());
  }
  TROUPE_ASSIGN(const std::vector<Output> found, gradients(scope, {loss}, reads, {}, {}, options));
  std::vector<Output> result;
  size_t next = 0;
  for (size_t v = 0; v < all.size(); ++v) {
    std::vector<Output> parts;
    for (; next < ends[v]; ++next)
      if (found[next]) parts.push_back(found[next]);
    if (parts.size() < 2) {
      result.push_back(parts.empty() ? Output{} : parts[0]);
      continue;
    }
    const Scope home = all[v].init ? scope.device(all[v].init->device()) : scope;
    result.push_back(home.scope("gradients/" + all[v].name).op("AddN", parts));
  }
  TROUPE_RETURN_IF_ERROR(scope.status());
  return result;
}

Optimizer sgd(Schedule rate) {
  return {std::move(rate), [](const UpdateContext& c) {
            if (const auto rows = indexed_slices(c.scope, c.gradient))
              return c.scope.node("ResourceScatterSub",
                                  {c.handle(), rows->indices, c.scope.op("Mul", {rows->values, c.rate})});
            return c.scope.node("ResourceApplyGradientDescent", {c.handle(), c.rate, c.gradient});
          }};
}

Optimizer momentum(Schedule rate, float momentum, bool nesterov) {
  return {std::move(rate), [=](const UpdateContext& c) {
            return c.scope.node("ResourceApplyMomentum",
                                {c.handle(), c.slot("momentum"), c.rate, c.gradient, c.scope.constant(momentum)},
                                {{"use_nesterov", nesterov}});
          }};
}

Optimizer adam(Schedule rate, float beta1, float beta2, float epsilon) {
  return {std::move(rate), [=](const UpdateContext& c) {
            const auto number = [&](float x) { return c.scope.constant(x); };
            return c.scope.node("ResourceApplyAdam",
                                {c.handle(), c.slot("adam_m"), c.slot("adam_v"), power_of(c, beta1), power_of(c, beta2),
                                 c.rate, number(beta1), number(beta2), number(epsilon), c.gradient});
          }};
}

Optimizer adagrad(Schedule rate, float initial_accumulator, float epsilon) {
  return {std::move(rate), [=](const UpdateContext& c) {
            std::vector<Output> inputs = {c.handle(), c.slot("adagrad", initial_accumulator), c.rate,
                                          c.scope.constant(epsilon)};
            if (auto rows = indexed_slices(c.scope, c.gradient)) {
              *rows = sum_equal_rows(c.scope, *rows);
              inputs.insert(inputs.end(), {rows->values, rows->indices});
              return c.scope.node("ResourceSparseApplyAdagradV2", std::move(inputs));
            }
            inputs.push_back(c.gradient);
            return c.scope.node("ResourceApplyAdagradV2", std::move(inputs));
          }};
}

Optimizer rmsprop(Schedule rate, float decay, float momentum, float epsilon) {
  return {std::move(rate), [=](const UpdateContext& c) {
            const auto number = [&](float x) { return c.scope.constant(x); };
            return c.scope.node("ResourceApplyRMSProp", {c.handle(), c.slot("rms"), c.slot("rms_momentum"), c.rate,
                                                         number(decay), number(momentum), number(epsilon), c.gradient});
          }};
}

const Node* apply_gradients(const Scope& scope, Variables& variables, const Optimizer& optimizer,
                            std::vector<Output> gradients) {
  const std::vector<Variable> trainable = variables.trainable();
  if (trainable.size() != gradients.size()) {
    scope.fail(invalid_argument("apply_gradients: {} gradients for {} trainable variables", gradients.size(),
                                trainable.size()));
    return nullptr;
  }
  const Scope s = scope.scope("update");
  const Output step = s.op("Cast", {variables.global_step(scope)}, {{"DstT", DType::kFloat32}});
  const Output rate = optimizer.rate(s.scope("rate"), step);
  if (optimizer.clip) gradients = optimizer.clip(s.scope("clip"), gradients);
  std::vector<const Node*> done;
  for (size_t i = 0; i < trainable.size() && s.ok(); ++i) {
    const Variable& v = trainable[i];
    if (!gradients[i]) continue;
    const Scope own = at(s.scope(v.name), gradients[i]);
    const Scope there = scope.device(own.device_name());
    const bool decays = v.shape.rank() >= 2;
    if (decays && optimizer.l2 != 0) {
      const Output pull = own.op("Mul", {variables.read(there, v), own.constant(optimizer.l2)});
      gradients[i] = own.op("AddV2", {gradients[i], pull});
    }
    const Node* update = optimizer.update({own, variables, v, gradients[i], rate, step});
    if (decays && optimizer.weight_decay != 0 && update) {
      const Output share = own.op("Mul", {rate, own.constant(optimizer.weight_decay)});
      const Output loss = own.op("Mul", {variables.read(there, v), share});
      const Output handle = variables.handle(there, v);
      update = own.after(std::vector<const Node*>{update}).named("decay").node("AssignSubVariableOp", {handle, loss});
    }
    done.push_back(update);
  }
  if (!s.ok()) return nullptr;
  return s.after(done)
      .named("global_step")
      .node("AssignAddVariableOp", {variables.global_step_handle(scope), s.constant(int64_t{1})});
}

const Node* minimize(const Scope& scope, Variables& variables, const Optimizer& optimizer, Output loss,
                     const GradientOptions& options) {
  if (!scope.ok()) return nullptr;
  auto found = variable_gradients(scope, variables, loss, options);
  if (!found.ok()) {
    scope.fail(found.error());
    return nullptr;
  }
  const Node* update = apply_gradients(scope, variables, optimizer, std::move(*found));
  std::vector<const Node*> all = variables.take_updates();
  if (!update || all.empty()) return update;
  all.push_back(update);
  return scope.after(all).named("minimize").node("NoOp", {});
}

}  // namespace troupe::nn
