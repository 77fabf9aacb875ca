// SPDX-License-Identifier: Apache-2.0
// Gradients by rewriting: checks, and one backward walk.
#include "troupe/gradients.h"

#include <algorithm>

#include <optional>

#include "graph/recompute.h"

namespace troupe {
namespace {

Tensor one(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return Tensor::scalar(1.0);
    case DType::kFloat16: return Tensor::scalar(float16(1.0F));
    case DType::kBFloat16: return Tensor::scalar(bfloat16(1.0F));
    case DType::kComplex64: return Tensor::scalar(complex64(1.0F));
    case DType::kComplex128: return Tensor::scalar(complex128(1.0));
    default: return Tensor::scalar(1.0F);
  }
}

Status check(const std::vector<Output>& outputs, std::string_view what, const Graph& graph, bool floating) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Output& o = outputs[i];
    if (!o) return invalid_argument("gradients: {}[{}] is empty", what, i);
    if (!graph.owns(o.node)) return invalid_argument("gradients: {}[{}] {} is of another graph", what, i, o.name());
    if (o.port < 0 || o.port >= o.node->num_outputs())
      return invalid_argument("gradients: {}[{}] {}: the node has {} outputs", what, i, o.name(),
                              o.node->num_outputs());
    if (floating && !differentiable(o.dtype()) && !(what == "xs" && o.dtype() == DType::kResource))
      return invalid_argument("gradients: {}[{}] {} is {}, not floating", what, i, o.name(), to_string(o.dtype()));
  }
  return {};
}

/// Nothing need be kept, or computed again, for its sizes alone: an op that asks them asks originals.
void ask_originals(const Graph& graph, std::string_view op, std::vector<Output>& inputs) {
  if (op != "Shape" && op != "ShapeN" && op != "Size" && op != "Rank") return;
  for (Output& in : inputs)
    if (in) in = original(graph, in);
}

}  // namespace

Output GradientContext::op(std::string_view op_name, std::vector<Output> inputs, Attrs attrs) {
  ask_originals(scope().graph(), op_name, inputs);
  return scope().op(op_name, std::move(inputs), std::move(attrs));
}

std::vector<Output> GradientContext::ops(std::string_view op_name, std::vector<Output> inputs, Attrs attrs) {
  ask_originals(scope().graph(), op_name, inputs);
  const Node* added = scope().node(op_name, std::move(inputs), std::move(attrs));
  std::vector<Output> out;
  for (int i = 0; added && i < added->num_outputs(); ++i) out.push_back(added->out(i));
  return out;
}

Output GradientContext::constant(Tensor value) { return scope().constant(std::move(value)); }

Result<std::vector<Output>> gradients(const ScopeAt& scope, const std::vector<Output>& ys,
                                      const std::vector<Output>& xs, const std::vector<Output>& dys,
                                      const std::vector<Output>& stop_gradients, const GradientOptions& options) {
  TROUPE_RETURN_IF_ERROR(scope.status());
  const Graph& graph = scope.graph();
  TROUPE_RETURN_IF_ERROR(check(ys, "ys", graph, true));
  TROUPE_RETURN_IF_ERROR(check(xs, "xs", graph, true));
  TROUPE_RETURN_IF_ERROR(check(stop_gradients, "stop_gradients", graph, false));
  if (!dys.empty() && dys.size() != ys.size())
    return invalid_argument("gradients: {} dys for {} ys", dys.size(), ys.size());

  for (const Output& dy : dys)
    if (dy) TROUPE_RETURN_IF_ERROR(check({dy}, "dys", graph, true));

  TROUPE_ASSIGN(Loops loops, Loops::find(graph, ys));
  const int frame = ys.empty() ? 0 : loops.frame_of(ys[0]);
  const auto elsewhere = [&](const Output& o) { return loops.frame_of(o) != frame; };
  if (const auto at = std::ranges::find_if(ys, elsewhere); at != ys.end())
    return invalid_argument("gradients: {} and {} are of different loops", ys[0].name(), at->name());
  const OutputSet stops(stop_gradients.begin(), stop_gradients.end());
  const Scope inner = scope.scope("gradients");
  std::optional<Recompute> recompute;
  if (!options.recompute.empty() && frame == 0 && !scope.flow()) {
    recompute.emplace(inner, loops, options.recompute);
    for (const Output& y : ys) recompute->keep(y);
  }
  GradientWalk walk(inner, loops, frame, xs, stops, frame > 0, recompute ? &*recompute : nullptr);
  TROUPE_RETURN_IF_ERROR(walk.mark(ys));
  for (size_t i = 0; i < ys.size(); ++i) {
    const Output& y = ys[i];
    Output dy = dys.empty() ? Output{} : dys[i];
    if (!dy) {
      const Scope ones = inner.device(y.node->device());
      dy = y.shape().rank() == 0 ? ones.named("one").constant(one(y.dtype())) : ones.op("OnesLike", {y});
      TROUPE_RETURN_IF_ERROR(scope.status());
    } else if (dy.dtype() != y.dtype() || !dy.shape().compatible(y.shape())) {
      return invalid_argument("gradients: dys[{}] {} is {} {}, but {} is {} {}", i, dy.name(), to_string(dy.dtype()),
                              dy.shape().str(), y.name(), to_string(y.dtype()), y.shape().str());
    }
    walk.add(y, dy);
  }
  TROUPE_RETURN_IF_ERROR(walk.run());
  std::vector<Output> out;
  for (const Output& x : xs) out.push_back(walk.total(x));
  TROUPE_RETURN_IF_ERROR(scope.status());
  return out;
}

}  // namespace troupe
