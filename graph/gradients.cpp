// SPDX-License-Identifier: Apache-2.0
// Gradients by rewriting: one backward walk over the nodes between xs and ys.
//
// Invariants of the walk:
// 1. Nodes are visited by falling id, so each after all its consumers: its gradients are complete when it is visited.
// 2. A gradient is kept only for an output that depends on some x by differentiable ops and is not stopped.
// 3. Contributions add up in the order of the visits, which depends on the graph alone.
#include "troupe/gradients.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace troupe {
namespace {

struct OutputHash {
  size_t operator()(const Output& o) const { return std::hash<const void*>()(o.node) * 31 + o.port; }
};

bool differentiable(DType t) { return is_floating(t) || t == DType::kComplex64; }

/// Whether a gradient may pass along an edge of this type; along a handle it does from a read to its variable.
bool carries(DType t) { return differentiable(t) || t == DType::kResource; }

Tensor one(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return Tensor::scalar(1.0);
    case DType::kFloat16: return Tensor::scalar(float16(1.0F));
    case DType::kBFloat16: return Tensor::scalar(bfloat16(1.0F));
    case DType::kComplex64: return Tensor::scalar(complex64(1.0F));
    default: return Tensor::scalar(1.0F);
  }
}

/// Adds an explanation of what was being differentiated.
Error about(const Node& node, Error error) {
  std::string detail = std::move(error.message);
  if (!error.op.empty() || !error.node.empty()) detail = fmt::format("{} '{}': {}", error.op, error.node, detail);
  return {error.code, "gradient: " + detail, node.op().name(), node.name()};
}

class NodeGradient : public GradientContext {
 public:
  NodeGradient(const Node& node, Scope scope, std::vector<Output> dys)
      : node_(node), scope_(std::move(scope)), dys_(std::move(dys)), dxs_(node.inputs().size()) {}
  const Node& node() const override { return node_; }
  int num_inputs() const override { return static_cast<int>(node_.inputs().size()); }
  Output input(int i) const override { return node_.inputs().at(i); }
  Output output(int i) const override { return node_.out(i); }
  Output dy(int i) const override { return dys_.at(i); }
  void set_dx(int i, Output gradient) override { dxs_.at(i) = gradient; }
  Scope& scope() override { return scope_; }
  const std::vector<Output>& dxs() const { return dxs_; }

 private:
  const Node& node_;
  Scope scope_;
  std::vector<Output> dys_, dxs_;
};

class Walk {
 public:
  Walk(const Scope& scope, const std::vector<Output>& xs, const std::vector<Output>& stops)
      : scope_(scope.scope("gradients")), depends_(scope.graph().size()) {
    xs_.insert(xs.begin(), xs.end());
    stops_.insert(stops.begin(), stops.end());
  }

  /// Finds the nodes between ys and xs (invariant 2).
  void mark(const std::vector<Output>& ys) {
    std::vector<bool> seen(depends_.size());
    const auto want = [&](const Output& o) {
      if (seen[o.node->id()] || !carries(o.dtype())) return;
      seen[o.node->id()] = true;
      path_.push_back(o.node);
    };
    for (const Output& y : ys) want(y);
    for (size_t i = 0; i < path_.size(); ++i)
      for (const Output& input : path_[i]->inputs()) want(input);
    std::ranges::sort(path_, {}, &Node::id);
    for (const Node* n : path_)
      depends_[n->id()] =
          n->op().gradient().function && std::ranges::any_of(n->inputs(), [&](const Output& o) { return wanted(o); });
  }

  const Scope& scope() const { return scope_; }
  void add(const Output& output, const Output& gradient) { parts_[output].push_back(gradient); }

  /// Visits the nodes backwards.
  Status run() {
    for (auto at = path_.rbegin(); at != path_.rend(); ++at)
      if (depends_[(*at)->id()]) TROUPE_RETURN_IF_ERROR(visit(**at));
    return scope_.status();
  }

  /// The gradient by `output`: its contributions added up; empty when there are none.
  Output total(const Output& output) {
    const auto at = parts_.find(output);
    if (at == parts_.end()) return {};
    std::vector<Output>& parts = at->second;
    if (parts.size() > 1) {
      const Output sum = scope_of(*output.node).op("AddN", parts);
      parts = {sum};
    }
    return parts[0];
  }

 private:
  /// Whether the gradient by this output leads on to some x.
  bool wanted(const Output& o) const {
    return carries(o.dtype()) && (xs_.contains(o) || (depends_[o.node->id()] && !stops_.contains(o)));
  }

  Scope scope_of(const Node& node) const { return scope_.scope(node.name() + "_grad").device(node.device()); }

  Status visit(const Node& node) {
    std::vector<Output> dys;
    bool any = false;
    for (int i = 0; i < node.num_outputs(); ++i) {
      dys.push_back(stops_.contains(node.out(i)) ? Output{} : total(node.out(i)));
      any |= static_cast<bool>(dys.back());
    }
    if (!any) return {};
    NodeGradient context(node, scope_of(node), std::move(dys));
    if (Status status = node.op().gradient().function(context); !status) return about(node, status.error());
    if (Status status = scope_.status(); !status) return about(node, status.error());
    for (int i = 0; i < context.num_inputs(); ++i) {
      const Output dx = context.dxs()[i];
      const Output x = node.inputs()[i];
      if (!dx || !wanted(x)) continue;
      if (x.dtype() != DType::kResource && (dx.dtype() != x.dtype() || !dx.shape().compatible(x.shape())))
        return about(node, make_error(Code::kInternal, "by input {} ({} {}) it is {} {}", i, to_string(x.dtype()),
                                      x.shape().str(), to_string(dx.dtype()), dx.shape().str()));
      add(x, dx);
    }
    return {};
  }

  Scope scope_;
  std::unordered_set<Output, OutputHash> xs_, stops_;
  std::vector<bool> depends_;      // by node id: leads to some x through this node
  std::vector<const Node*> path_;  // what ys are made from, by rising id
  std::unordered_map<Output, std::vector<Output>, OutputHash> parts_;
};

Status check(const std::vector<Output>& outputs, std::string_view what, const Graph& graph, bool floating) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Output& o = outputs[i];
    if (!o) return invalid_argument("gradients: {}[{}] is empty", what, i);
    if (o.node->id() >= graph.size() || &graph.node(o.node->id()) != o.node)
      return invalid_argument("gradients: {}[{}] {} is of another graph", what, i, o.name());
    if (o.port < 0 || o.port >= o.node->num_outputs())
      return invalid_argument("gradients: {}[{}] {}: the node has {} outputs", what, i, o.name(),
                              o.node->num_outputs());
    if (floating && !differentiable(o.dtype()) && !(what == "xs" && o.dtype() == DType::kResource))
      return invalid_argument("gradients: {}[{}] {} is {}, not floating", what, i, o.name(), to_string(o.dtype()));
  }
  return {};
}

}  // namespace

Output GradientContext::op(std::string_view op_name, std::vector<Output> inputs, Attrs attrs) {
  return scope().op(op_name, std::move(inputs), std::move(attrs));
}

std::vector<Output> GradientContext::ops(std::string_view op_name, std::vector<Output> inputs, Attrs attrs) {
  const Node* added = scope().node(op_name, std::move(inputs), std::move(attrs));
  std::vector<Output> out;
  for (int i = 0; added && i < added->num_outputs(); ++i) out.push_back(added->out(i));
  return out;
}

Output GradientContext::constant(Tensor value) { return scope().constant(std::move(value)); }

Result<std::vector<Output>> gradients(const Scope& scope, const std::vector<Output>& ys, const std::vector<Output>& xs,
                                      const std::vector<Output>& dys, const std::vector<Output>& stop_gradients) {
  TROUPE_RETURN_IF_ERROR(scope.status());
  const Graph& graph = scope.graph();
  TROUPE_RETURN_IF_ERROR(check(ys, "ys", graph, true));
  TROUPE_RETURN_IF_ERROR(check(xs, "xs", graph, true));
  TROUPE_RETURN_IF_ERROR(check(stop_gradients, "stop_gradients", graph, false));
  if (!dys.empty() && dys.size() != ys.size())
    return invalid_argument("gradients: {} dys for {} ys", dys.size(), ys.size());

  for (const Output& dy : dys)
    if (dy) TROUPE_RETURN_IF_ERROR(check({dy}, "dys", graph, true));

  Walk walk(scope, xs, stop_gradients);
  walk.mark(ys);
  for (size_t i = 0; i < ys.size(); ++i) {
    const Output& y = ys[i];
    Output dy = dys.empty() ? Output{} : dys[i];
    if (!dy) {
      const Scope ones = walk.scope().device(y.node->device());
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
