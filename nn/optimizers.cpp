// SPDX-License-Identifier: Apache-2.0
// Optimizers: one Resource... op for each variable, applied inside the container; clipping before them. Nodes go to the
// devices of the gradients they work on.
#include "troupe/optimizers.h"

#include <cmath>

#include "nn/updates.h"

namespace troupe::nn {
namespace {

Output square_sum(const Scope& scope, Output x) { return sum_all(scope, scope.op("Square", {x})); }

// Scales x so that a norm of sqrt(squares) becomes at most `limit`.
Output limit_norm(const Scope& scope, Output x, Output squares, float limit) {
  const Output norm = scope.op("Sqrt", {squares});
  const Output most = scope.constant(limit);
  return scope.op("Mul", {x, scope.op("RealDiv", {most, scope.op("Maximum", {norm, most})})});
}

// Whether gradients can be limited to that norm; else fails the scope.
bool is_norm(const Scope& scope, const char* function, float norm) {
  if (norm > 0 && std::isfinite(norm)) return true;
  scope.fail(invalid_argument("{}: the norm must be above 0 and finite, got {}", function, norm));
  return false;
}

// One minus the `step + 1`-th power of beta is Adam's correction; its op wants the power.
Output power_of(const UpdateContext& c, float beta) {
  const Output number = c.scope.op("AddV2", {c.step, c.scope.constant(1.f)});
  return c.scope.op("Pow", {c.scope.constant(beta), number});
}

}  // namespace

Clip clip_by_value(float limit) {
  return [=](const Scope& scope, std::vector<Output> gradients) {
    if (!(limit >= 0)) {
      scope.fail(invalid_argument("clip_by_value: the limit must be at least 0, got {}", limit));
      return gradients;
    }
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
    if (!is_norm(scope, "clip_by_norm", norm)) return gradients;
    for (Output& g : gradients)
      if (g) g = limit_norm(at(scope, g), g, square_sum(at(scope, g), g), norm);
    return gradients;
  };
}

Clip clip_by_global_norm(float norm) {
  return [=](const Scope& scope, std::vector<Output> gradients) {
    if (!is_norm(scope, "clip_by_global_norm", norm)) return gradients;
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

Result<std::vector<Output>> variable_gradients(const ScopeAt& scope, const Variables& variables, Output loss,
                                               const GradientOptions& options) {
  TROUPE_RETURN_IF_ERROR(scope.status());
  const std::vector<Variable> all = variables.trainable();
  std::vector<Output> handles;  // whatever reads a variable, whole or by rows, counts
  std::vector<size_t> ends;
  for (const Variable& v : all) {
    for (const Output& handle : variables.handles(v)) handles.push_back(handle);
    ends.push_back(handles.size());
  }
  TROUPE_ASSIGN(const std::vector<Output> found, gradients(scope, {loss}, handles, {}, {}, options));
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
    const Scope home = all[v].init ? scope.device(all[v].init->device()) : Scope(scope);
    result.push_back(home.scope("gradients/" + all[v].name).op("AddN", parts));
  }
  TROUPE_RETURN_IF_ERROR(scope.status());
  return result;
}

Optimizer sgd(Schedule rate) {
  Optimizer o{std::move(rate), [](const UpdateContext& c) {
                return c.scope.node("ResourceApplyGradientDescent", {c.handle(), c.rate, c.gradient});
              }};
  o.update_rows = [](const UpdateContext& c, Output indices) {
    return c.scope.node("ResourceScatterSub", {c.handle(), indices, c.scope.op("Mul", {c.rate, c.gradient})});
  };
  return o;
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
  Optimizer o{std::move(rate), [=](const UpdateContext& c) {
                return c.scope.node("ResourceApplyAdagradV2", {c.handle(), c.slot("adagrad", initial_accumulator),
                                                               c.rate, c.scope.constant(epsilon), c.gradient});
              }};
  o.update_rows = [=](const UpdateContext& c, Output indices) {
    return c.scope.node("ResourceSparseApplyAdagradV2", {c.handle(), c.slot("adagrad", initial_accumulator), c.rate,
                                                         c.scope.constant(epsilon), c.gradient, indices});
  };
  return o;
}

Optimizer rmsprop(Schedule rate, float decay, float momentum, float epsilon) {
  return {std::move(rate), [=](const UpdateContext& c) {
            const auto number = [&](float x) { return c.scope.constant(x); };
            return c.scope.node("ResourceApplyRMSProp", {c.handle(), c.slot("rms"), c.slot("rms_momentum"), c.rate,
                                                         number(decay), number(momentum), number(epsilon), c.gradient});
          }};
}

const Node* apply_gradients(const ScopeAt& scope, Variables& variables, const Optimizer& optimizer,
                            std::vector<Output> gradients) {
  std::vector<Gradient> all;
  for (const Output& g : gradients) all.push_back({g, {}});
  return apply_updates(scope, variables, optimizer, std::move(all));
}

const Node* minimize(const ScopeAt& scope, Variables& variables, const Optimizer& optimizer, Output loss,
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
