// SPDX-License-Identifier: Apache-2.0
// Computes with polynomials of x, its mean, the reciprocal root and two vectors: what the nodes between make must be
// x r gamma - mean r gamma + beta. So it does not matter in which order a graph multiplies.
#include "graph/passes/fuse_layer_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "graph/passes/same_place.h"

namespace troupe {
namespace {

constexpr size_t kMostNormParts = 20;  // of 13 or fewer that are written usually
constexpr size_t kMostMonomials = 6;

/// Exponents of x, mean, r, the first vector and the second.
using Monomial = std::array<uint8_t, 5>;
using NormTerm = std::map<Monomial, double>;
enum NormSymbol { kX, kMean, kRoot, kFirst, kSecond };

NormTerm symbol(size_t which) {
  Monomial m = {};
  m[which] = 1;
  return {{m, 1}};
}

std::optional<NormTerm> product(const NormTerm& a, const NormTerm& b) {
  NormTerm out;
  for (const auto& [ma, ca] : a)
    for (const auto& [mb, cb] : b) {
      Monomial m;
      for (size_t i = 0; i < m.size(); ++i) m[i] = static_cast<uint8_t>(std::min(ma[i] + mb[i], 3));  // 3: too many
      out[m] += ca * cb;
    }
  if (out.size() > kMostMonomials) return {};
  return out;
}

std::optional<NormTerm> sum(NormTerm a, const NormTerm& b, double factor) {
  for (const auto& [m, c] : b) a[m] += factor * c;
  std::erase_if(a, [](const auto& entry) { return entry.second == 0; });
  if (a.size() > kMostMonomials) return {};
  return a;
}

bool is_sum(const std::string& op) { return op == "Add" || op == "AddV2"; }
bool is_quotient(const std::string& op) { return op == "RealDiv" || op == "Div"; }

std::optional<double> number_of(const StepGraph& step, Output o) {
  const Tensor* value = step.constant(o);
  if (!value || value->elements() != 1 || value->rank() > 1) return {};
  if (value->dtype() == DType::kFloat32) return static_cast<double>(value->data<float>()[0]);
  if (value->dtype() == DType::kFloat64) return value->data<double>()[0];
  return {};
}

}  // namespace

class LayerNormFusion::Search {
 public:
  explicit Search(const StepGraph& step) : step_(step) {}

  /// The norm whose last node is `last`; parts() are then its nodes.
  std::optional<Norm> from(const Node& last) {
    const Node* root = find_root(last);
    if (!root || !match_root(*root)) return {};
    const auto all = term(last.out());
    if (!all) return {};
    const auto without_beta = [&](int gamma) {  // whether `all` is x r [gamma] - mean r [gamma] and this
      Monomial x = {1, 0, 1}, mean = {0, 1, 1};
      if (gamma >= 0) x[static_cast<size_t>(gamma)] = mean[static_cast<size_t>(gamma)] = 1;
      const auto at_x = all->find(x), at_mean = all->find(mean);
      return at_x != all->end() && at_mean != all->end() && at_x->second == 1 && at_mean->second == -1;
    };
    Norm norm{x_, {}, {}, epsilon_};
    for (const int gamma : {-1, int{kFirst}, int{kSecond}}) {
      if (!without_beta(gamma)) continue;
      if (gamma >= 0) norm.gamma = vectors_[static_cast<size_t>(gamma - kFirst)];
      if (all->size() == 2) return norm;
      for (const int beta : {int{kFirst}, int{kSecond}}) {
        Monomial shift = {};
        shift[static_cast<size_t>(beta)] = 1;
        const auto at = all->find(shift);
        if (beta == gamma || all->size() != 3 || at == all->end() || at->second != 1) continue;
        norm.beta = vectors_[static_cast<size_t>(beta - kFirst)];
        return norm;
      }
    }
    return {};
  }
  const std::vector<const Node*>& parts() const { return parts_; }

 private:
  /// The Rsqrt or Sqrt that is nearest above `last`, by sums, differences, products and quotients alone.
  const Node* find_root(const Node& last) const {
    std::vector<const Node*> level = {&last};
    for (size_t looked_at = 0; looked_at < level.size() && looked_at < kMostNormParts; ++looked_at) {
      const std::string& op = level[looked_at]->op().name();
      if (op == "Rsqrt" || op == "Sqrt") return level[looked_at];
      if (!is_sum(op) && op != "Sub" && op != "Mul" && op != "Neg" && !is_quotient(op)) continue;
      for (const Output& input : level[looked_at]->inputs()) level.push_back(step_.now(input).node);
    }
    return nullptr;
  }

  const Node* input_of(const Node& node, size_t i) const { return step_.now(node.inputs()[i]).node; }

  /// The node behind Identity and StopGradient, which become parts.
  const Node* behind(const Node* node) {
    while (node->op().name() == "StopGradient" || node->op().name() == "Identity") {
      add_part(*node);
      node = input_of(*node, 0);
    }
    return node;
  }

  /// What `node` is the mean of over the last dimension, which it keeps; else empty.
  Output mean_of(const Node& node) const {
    if (node.op().name() != "Mean" || !node.attrs().get_or("keep_dims", false)) return {};
    const Output x = step_.now(node.inputs()[0]);
    const Tensor* axes = step_.constant(node.inputs()[1]);
    const PartialShape shape = step_.shape(x);
    if (!axes || axes->elements() != 1 || !shape.has_rank() || shape.rank() < 1) return {};
    const int64_t axis = axes->dtype() == DType::kInt32   ? axes->data<int32_t>()[0]
                         : axes->dtype() == DType::kInt64 ? axes->data<int64_t>()[0]
                                                          : 0;
    return axis == -1 || (axis > 0 && axis == shape.rank() - 1) ? x : Output{};
  }

  /// Finds x, its mean and epsilon above the root.
  bool match_root(const Node& root) {
    root_ = &root;
    const Node& below = *input_of(root, 0);
    if (!is_sum(below.op().name())) return false;
    for (const size_t i : {0, 1}) {
      const auto epsilon = number_of(step_, below.inputs()[i]);
      const Node& variance = *input_of(below, 1 - i);
      const Output squares = mean_of(variance);
      if (!epsilon || !squares || !match_squares(*squares.node)) continue;
      epsilon_ = static_cast<float>(*epsilon);
      if (static_cast<double>(epsilon_) != *epsilon) return false;  // of float64, which the attribute would round
      width_ = step_.shape(x_)[step_.shape(x_).rank() - 1];
      for (const Node* part : {&root, &below, &variance, squares.node}) add_part(*part);
      return width_ > 0;
    }
    return false;
  }

  /// Whether `node` is (x - mean)^2; sets both.
  bool match_squares(const Node& node) {
    const std::string& op = node.op().name();
    const Node* difference = &node;
    if (op == "Square" || (op == "Mul" && step_.now(node.inputs()[0]) == step_.now(node.inputs()[1])))
      difference = input_of(node, 0);
    else if (op != "SquaredDifference") return false;
    if (difference != &node) {
      if (difference->op().name() != "Sub") return false;
      add_part(*difference);
    }
    const Node* mean = behind(input_of(*difference, 1));
    const Output x = mean_of(*mean);
    if (!x || step_.now(difference->inputs()[0]) != x) return false;
    add_part(*mean);
    x_ = x;
    mean_ = mean;
    return true;
  }

  void add_part(const Node& node) {
    if (std::ranges::find(parts_, &node) == parts_.end()) parts_.push_back(&node);
  }

  std::optional<NormTerm> term(Output o) {
    o = step_.now(o);
    if (o == x_) return symbol(kX);
    if (o.node == mean_) return symbol(kMean);
    if (o.node == root_ && root_->op().name() == "Rsqrt") return symbol(kRoot);
    if (o.node == root_) return {};
    if (is_vector(o)) {
      size_t i = 0;
      while (i < 2 && vectors_[i] && vectors_[i] != o) ++i;
      if (i == 2) return {};
      vectors_[i] = o;
      return symbol(kFirst + i);
    }
    const Node& node = *o.node;
    if (const auto known = terms_.find(&node); known != terms_.end()) return known->second;
    if (++looked_at_ > kMostNormParts || node.num_outputs() != 1) return {};
    const auto value = of_inputs(node);
    if (!value) return {};
    add_part(node);
    terms_[&node] = *value;
    return value;
  }

  /// A vector along the last dimension that none of this makes.
  bool is_vector(const Output& o) const {
    const PartialShape shape = step_.shape(o);
    if (!shape.fully_known() || shape.rank() < 1 || shape[shape.rank() - 1] != width_) return false;
    if (shape.rank() > step_.shape(x_).rank()) return false;
    return std::ranges::all_of(shape.dims().first(static_cast<size_t>(shape.rank()) - 1),
                               [](int64_t size) { return size == 1; }) &&
           terms_.find(o.node) == terms_.end() && std::ranges::find(parts_, o.node) == parts_.end() &&
           !depends_on_parts(o);
  }
  /// Of x of one row its own values look like vectors: their nodes are followed a little.
  bool depends_on_parts(const Output& o) const {
    const PartialShape of_x = step_.shape(x_);
    for (int i = 0; i + 1 < of_x.rank(); ++i)
      if (of_x[i] != 1) return false;
    return !step_.constant(o) && o.node->op().name() != "ReadVariableOp";
  }

  std::optional<NormTerm> of_inputs(const Node& node) {
    const std::string& op = node.op().name();
    const auto& in = node.inputs();
    if (op == "Neg") {
      const auto a = term(in[0]);
      return a ? sum({}, *a, -1) : std::nullopt;
    }
    if (is_quotient(op)) {
      if (step_.now(in[1]).node != root_ || root_->op().name() != "Sqrt") return {};
      const auto a = term(in[0]);
      return a ? product(*a, symbol(kRoot)) : std::nullopt;
    }
    if (!is_sum(op) && op != "Sub" && op != "Mul") return {};
    const auto a = term(in[0]);
    if (!a) return {};
    const auto b = term(in[1]);
    if (!b) return {};
    return op == "Mul" ? product(*a, *b) : sum(*a, *b, op == "Sub" ? -1 : 1);
  }

  const StepGraph& step_;
  Output x_;
  const Node *mean_ = nullptr, *root_ = nullptr;
  float epsilon_ = 0;
  int64_t width_ = 0;
  std::array<Output, 2> vectors_ = {};
  std::map<const Node*, NormTerm> terms_;
  std::vector<const Node*> parts_;
  size_t looked_at_ = 0;
};

bool LayerNormFusion::may_apply(const StepGraph& step) {
  const OpDef *mean = step.ops().find("Mean"), *fused = step.ops().find("_FusedLayerNorm");
  return fused && std::ranges::any_of(step.nodes(), [&](const Node* n) { return &n->op() == mean; });
}

LayerNormFusion::LayerNormFusion(StepGraph& step, const PassDevices& devices) : step_(step), readers_(step) {
  const auto& nodes = step.nodes();
  std::vector<bool> taken(static_cast<size_t>(step.ids()));
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& last = *nodes[i];
    const std::string& op = last.op().name();
    if (taken[static_cast<size_t>(last.id())] || (!is_sum(op) && op != "Sub" && op != "Mul" && !is_quotient(op)))
      continue;
    const auto is_free = [&](const Node& n) { return n.control_inputs().empty() && !step.is_fed(n); };
    if (!is_free(last) || (devices.on_gpu && devices.on_gpu(last)) || !devices.serves(last, "_FusedLayerNorm"))
      continue;
    Search search(step);
    const auto norm = search.from(last);
    if (!norm || norm->x.dtype() != last.dtype(0)) continue;
    const auto& parts = search.parts();
    const auto goes = [&](const Node* part) {
      if (part == &last) return true;
      uint32_t reads = 0;
      for (const Node* reader : parts)
        for (const Output& input : reader->inputs()) reads += step.now(input).node == part;
      return readers_.reads(*part) == reads && is_free(*part) && same_place(*part, last);
    };
    if (!std::ranges::all_of(parts, goes)) continue;
    for (const Node* part : parts) taken[static_cast<size_t>(part->id())] = true;
    found_.emplace(last.id(), *norm);
  }
}

bool LayerNormFusion::visit(const Node& node) {
  const auto at = found_.find(node.id());
  if (at == found_.end()) return false;
  const Norm& norm = at->second;
  std::vector<Output> inputs = {norm.x};
  for (const Output& vector : {norm.gamma, norm.beta})
    if (vector) inputs.push_back(vector);
  Attrs attrs;
  attrs.set("num_args", static_cast<int64_t>(inputs.size()) - 1);
  attrs.set("epsilon", norm.epsilon);
  attrs.set("scale", static_cast<bool>(norm.gamma));
  attrs.set("center", static_cast<bool>(norm.beta));
  const Output fused = step_.add_like(node, "_FusedLayerNorm", std::move(inputs), std::move(attrs));
  if (!fused) return false;
  step_.replace(node, {&fused, 1});
  return true;
}

}  // namespace troupe
