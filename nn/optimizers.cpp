// SPDX-License-Identifier: Apache-2.0
// Optimizers: one Resource... op for each variable, applied inside the container; clipping before them.
#include "troupe/optimizers.h"

namespace troupe::nn {
namespace {

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

}  // namespace

Clip clip_by_value(float limit) {
  return [=](const Scope& scope, std::vector<Output> gradients) {
    for (Output& g : gradients)
      if (g) g = scope.op("Minimum", {scope.op("Maximum", {g, scope.constant(-limit)}), scope.constant(limit)});
    return gradients;
  };
}

Clip clip_by_norm(float norm) {
  return [=](const Scope& scope, std::vector<Output> gradients) {
    for (Output& g : gradients)
      if (g) g = limit_norm(scope, g, square_sum(scope, g), norm);
    return gradients;
  };
}

Clip clip_by_global_norm(float norm) {
  return [=](const Scope& scope, std::vector<Output> gradients) {
    std::vector<Output> squares;
    for (const Output& g : gradients)
      if (g) squares.push_back(square_sum(scope, g));
    if (squares.empty()) return gradients;
    const Output sum = scope.op("AddN", squares);
    for (Output& g : gradients)
      if (g) g = limit_norm(scope, g, sum, norm);
    return gradients;
  };
}

Optimizer sgd(Schedule rate) {
  return {std::move(rate), [](const UpdateContext& c) {
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
            return c.scope.node("ResourceApplyAdagradV2", {c.handle(), c.slot("adagrad", initial_accumulator), c.rate,
                                                           c.scope.constant(epsilon), c.gradient});
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
  for (size_t i = 0; i < trainable.size() && s.ok(); ++i)
    if (gradients[i]) done.push_back(update_variable(s, variables, optimizer, trainable[i], gradients[i], rate, step));
  if (!s.ok()) return nullptr;
  return s.after(done)
      .named("global_step")
      .node("AssignAddVariableOp", {variables.global_step_handle(scope), s.constant(int64_t{1})});
}

const Node* update_variable(const Scope& scope, Variables& variables, const Optimizer& optimizer, const Variable& v,
                            Output gradient, Output rate, Output step) {
  const Scope own = scope.scope(v.name);
  const bool decays = v.shape.rank() >= 2;
  if (decays && optimizer.l2 != 0) {
    const Output pull = own.op("Mul", {variables.read(scope, v), own.constant(optimizer.l2)});
    gradient = own.op("AddV2", {gradient, pull});
  }
  const Node* update = optimizer.update({own, variables, v, gradient, rate, step});
  if (!decays || optimizer.weight_decay == 0 || !update) return update;
  const Output share = own.op("Mul", {rate, own.constant(optimizer.weight_decay)});
  const Output loss = own.op("Mul", {variables.read(scope, v), share});
  const Output handle = variables.handle(scope, v);
  return own.after(std::vector<const Node*>{update}).named("decay").node("AssignSubVariableOp", {handle, loss});
}

const Node* minimize(const Scope& scope, Variables& variables, const Optimizer& optimizer, Output loss,
                     const GradientOptions& options) {
  if (!scope.ok()) return nullptr;
  auto found = gradients(scope, {loss}, variables.trainable_reads(scope), {}, {}, options);
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
