// SPDX-License-Identifier: Apache-2.0
// Losses and metrics.
#include "nn/precision.h"
#include "troupe/nn.h"

namespace troupe::nn {
namespace {

// Sum or Mean over every axis.
Output reduce_all(const Scope& scope, const char* op, Output x) {
  if (!scope.ok()) return {};
  if (!x) return scope.fail(invalid_argument("{} of all elements: the input is empty", op)), x;
  std::vector<int32_t> axes;
  if (x.shape().has_rank()) {
    for (int i = 0; i < x.shape().rank(); ++i) axes.push_back(i);
  } else {
    x = scope.op("Reshape", {x, scope.constant(Tensor::of<int32_t>({-1}))});
    axes = {0};
  }
  return scope.op(op, {x, scope.constant(Tensor::of<int32_t>(axes))});
}

}  // namespace

Output sum_all(const ScopeAt& scope, Output x) { return reduce_all(scope, "Sum", x); }
Output mean_all(const ScopeAt& scope, Output x) { return reduce_all(scope, "Mean", x); }

Output sparse_softmax_cross_entropy(const ScopeAt& scope, Output logits, Output labels) {
  const Scope inside = scope.scope("cross_entropy");
  return mean_all(inside, inside.op("SparseSoftmaxCrossEntropyWithLogits", {widened(inside, logits), labels}));
}

Output softmax_cross_entropy(const ScopeAt& scope, Output logits, Output labels) {
  const Scope inside = scope.scope("cross_entropy");
  return mean_all(inside,
                  inside.op("SoftmaxCrossEntropyWithLogits", {widened(inside, logits), widened(inside, labels)}));
}

// max(x, 0) - x z + log(1 + exp(-|x|)), which neither overflows nor loses small values. Relu and Abs would have
// gradients of 0 at x = 0, whose sum is not that of the loss.
Output sigmoid_cross_entropy(const ScopeAt& scope, Output logits, Output labels) {
  const Scope s = scope.scope("sigmoid_cross_entropy");
  logits = widened(s, logits);
  labels = widened(s, labels);
  const Output zero = s.op("ZerosLike", {logits}), positive = s.op("GreaterEqual", {logits, zero});
  const auto where_positive = [&](Output x, Output y) { return s.op("SelectV2", {positive, x, y}); };
  const Output linear = s.op("Sub", {where_positive(logits, zero), s.op("Mul", {logits, labels})});
  const Output rest = s.op("Log1p", {s.op("Exp", {where_positive(s.op("Neg", {logits}), logits)})});
  return mean_all(s, s.op("AddV2", {linear, rest}));
}

Output mean_squared_error(const ScopeAt& scope, Output predictions, Output targets) {
  const Scope inside = scope.scope("squared_error");
  const Output difference = inside.op("Sub", {widened(inside, predictions), widened(inside, targets)});
  return mean_all(inside, inside.op("Square", {difference}));
}

Output l2_penalty(const ScopeAt& scope, Variables& variables, float rate) {
  const Scope inside = scope.scope("l2_penalty");
  std::vector<Output> sums;
  for (const Variable& v : variables.trainable())
    if (v.shape.rank() >= 2) {
      const Scope home = variables.home(inside, v.name);
      sums.push_back(sum_all(home, home.op("Square", {variables.read(variables.home(scope, v.name), v)})));
    }
  if (sums.empty()) return inside.constant(0.f);
  return inside.op("Mul", {inside.op("AddN", sums), inside.constant(rate / 2)});
}

Output accuracy(const ScopeAt& scope, Output logits, Output labels) {
  if (!scope.ok()) return {};
  if (!labels) return scope.fail(invalid_argument("accuracy: the labels are empty")), labels;
  const Scope inside = scope.scope("accuracy");
  const Output best = inside.op("ArgMax", {logits, inside.constant<int32_t>(1)}, {{"output_type", labels.dtype()}});
  const Output right = inside.op("Equal", {best, labels});
  return mean_all(inside, inside.op("Cast", {right}, {{"DstT", DType::kFloat32}}));
}

}  // namespace troupe::nn
