// SPDX-License-Identifier: Apache-2.0
// Looks from the last node to the first, so that an activation takes the bias before it.
#include "graph/passes/fuse_epilogues.h"

#include <algorithm>

#include "graph/passes/gelu.h"
#include "graph/passes/same_place.h"

namespace troupe {
namespace {

bool is_convolution(const std::string& op) { return op == "Conv2D" || op == "DepthwiseConv2dNative"; }
bool is_product(const std::string& op) { return op == "MatMul" || is_convolution(op); }
bool is_activation(const std::string& op) {
  return op == "Relu" || op == "Relu6" || op == "Elu" || op == "Tanh" || op == "Sigmoid";
}

}  // namespace

bool EpilogueFusion::may_go(const Node& node, const Node& last, uint32_t times) const {
  return readers_.reads(node) == times && is_free(node) && same_place(node, last);
}

const Node* EpilogueFusion::before(const Node& node, size_t i, const Node& last) const {
  const Node* from = step_.now(node.inputs()[i]).node;
  return may_go(*from, last, 1) ? from : nullptr;
}

const Node* EpilogueFusion::before_gelu(const Node& last, std::string& activation) const {
  const auto gelu = find_gelu(step_, last);
  if (!gelu) return nullptr;
  const auto reads = [&](const Node& node) {
    uint32_t times = 0;
    for (const Node* part : gelu->parts)
      for (const Output& input : part->inputs()) times += step_.now(input).node == &node;
    return times;
  };
  const auto goes = [&](const Node* part) { return part == &last || may_go(*part, last, reads(*part)); };
  const Node* x = gelu->x.node;
  if (!std::ranges::all_of(gelu->parts, goes) || !goes(x)) return nullptr;
  activation = gelu->exact ? "GeluExact" : "GeluApproximate";
  return x;
}

const Node* EpilogueFusion::before_swish(const Node& last) const {
  const bool group = last.op().name() == "IdentityN";
  if (group && !readers_.first_output_only(last)) return nullptr;
  const Node* product = group ? before(last, 0, last) : &last;
  if (!product || product->op().name() != "Mul") return nullptr;
  for (const size_t i : {0, 1}) {
    const Node* sigmoid = before(*product, i, last);
    if (!sigmoid || sigmoid->op().name() != "Sigmoid") continue;
    const Output x = step_.now(product->inputs()[1 - i]);
    uint32_t reads = 2;
    bool known = true;  // nothing else is waited for
    for (size_t j = 1; group && j < last.inputs().size(); ++j) {
      const bool is_x = step_.now(last.inputs()[j]) == x;
      reads += is_x;
      known = known && (is_x || step_.constant(last.inputs()[j]));
    }
    if (known && step_.now(sigmoid->inputs()[0]) == x && may_go(*x.node, last, reads)) return x.node;
  }
  return nullptr;
}

const Node* EpilogueFusion::before_bias(const Node& sum, const Node& last, std::optional<Output>& bias) const {
  const std::string& op = sum.op().name();
  if (op == "BiasAdd") {
    const Node* product = before(sum, 0, last);
    if (!product) return nullptr;
    if (product->op().name() != "MatMul" && data_format(sum) != data_format(*product)) return nullptr;
    bias = sum.inputs()[1];
    return product;
  }
  if (op != "Add" && op != "AddV2") return nullptr;
  for (const size_t i : {0, 1}) {
    const Node* product = before(sum, i, last);
    if (!product || (product->op().name() != "MatMul" && !before_reshape(*product, last))) continue;
    const Output other = sum.inputs()[1 - i];
    const PartialShape to = step_.shape(product->out()), of = step_.shape(other);
    if (!to.has_rank() || to.rank() < 2 || !of.fully_known() || of.rank() < 1 || of.rank() > to.rank()) continue;
    const int64_t columns = to[to.rank() - 1];
    if (columns <= 0 || columns != of[of.rank() - 1] || columns != of.shape().elements()) continue;
    bias = other;
    return product;
  }
  return nullptr;
}

const Node* EpilogueFusion::before_image(const Node& sum, const Node& last, std::optional<Output>& image) const {
  if (sum.op().name() != "Add" && sum.op().name() != "AddV2") return nullptr;
  for (const size_t i : {0, 1}) {
    const Node* to = before(sum, i, last);
    if (!to) continue;
    const Node* product = to->op().name() == "BiasAdd" ? step_.now(to->inputs()[0]).node : to;
    const bool matrix = product->op().name() == "MatMul" || before_reshape(*product, last);
    if (!matrix && !is_convolution(product->op().name())) continue;
    const Output other = sum.inputs()[1 - i];
    // Where sizes are not known the kernel of a convolution looks again.
    const PartialShape a = step_.shape(to->out()), b = step_.shape(other);
    if (!a.has_rank() || !b.has_rank() || !std::ranges::equal(a.dims(), b.dims())) continue;
    if (matrix ? a.rank() < 2 || !a.fully_known() || a[a.rank() - 1] == 0 : a.rank() != 4) continue;
    image = other;
    return to;
  }
  return nullptr;
}

const Node* EpilogueFusion::before_reshape(const Node& reshape, const Node& last) const {
  const Node* product = before_wider(reshape, last);
  return product && product->op().name() == "MatMul" ? product : nullptr;
}

const Node* EpilogueFusion::before_wider(const Node& reshape, const Node& last) const {
  if (reshape.op().name() != "Reshape") return nullptr;
  const Node* matrix = before(reshape, 0, last);
  if (!matrix) return nullptr;
  const PartialShape from = step_.shape(matrix->out()), to = step_.shape(reshape.out());
  if (!from.has_rank() || from.rank() != 2 || from[1] < 0 || !to.has_rank() || to.rank() < 2) return nullptr;
  return to[to.rank() - 1] == from[1] ? matrix : nullptr;
}

EpilogueFusion::EpilogueFusion(StepGraph& step, const PassDevices& devices, bool cpus_only)
    : step_(step), readers_(step) {
  if (!step.ops().find("_FusedMatMul")) return;
  const auto& nodes = step.nodes();
  const bool has_gelu = std::ranges::any_of(nodes, [](const Node* n) {
    const std::string& op = n->op().name();
    return op == "Tanh" || op == "Erf" || op == "Erfc";
  });
  std::vector<bool> taken(static_cast<size_t>(step.ids()));
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& last = *nodes[i];
    if (taken[static_cast<size_t>(last.id())] || last.inputs().empty() || !is_free(last)) continue;
    const bool on_gpu = devices.on_gpu && devices.on_gpu(last);
    Parts parts;
    const Node* at = &last;
    if (is_activation(at->op().name())) {
      parts.activation = at->op().name();
      at = before(*at, 0, last);
    } else if (const Node* x = on_gpu ? nullptr : before_swish(last)) {
      parts.activation = "Swish";
      at = x;
    } else if (has_gelu) {
      if (const Node* of = before_gelu(last, parts.activation)) at = of;
    }
    if (!at) continue;
    if (on_gpu && cpus_only) continue;
    const Node *sum = nullptr, *image_sum = nullptr;
    if (at != &last)
      if (const Node* biased = before_wider(*at, last))
        if (std::optional<Output> bias; before_bias(*biased, last, bias)) {
          parts.reshape = at;
          at = biased;
        }
    if (!on_gpu && !parts.reshape) {
      if (const Node* to = before_image(*at, last, parts.image)) {
        image_sum = at;
        at = to;
      }
    }
    if (const Node* product = before_bias(*at, last, parts.bias)) {
      sum = at;
      at = product;
    }
    if (at != &last && !parts.reshape)
      if (const Node* product = before_reshape(*at, last)) {
        parts.reshape = at;
        at = product;
      }
    const std::string& product = at->op().name();
    if (at == &last || !is_product(product) || !devices.serves(last, "_Fused" + product)) continue;
    if (parts.activation.starts_with("Gelu") && product != "MatMul") continue;
    parts.product = at;
    for (const Node* part : {sum, image_sum})
      if (part) taken[static_cast<size_t>(part->id())] = true;
    found_.emplace(last.id(), std::move(parts));
  }
}

bool EpilogueFusion::visit(const Node& node) {
  const auto at = found_.find(node.id());
  if (at == found_.end()) return false;
  const auto& [product, reshape, bias, image, activation] = at->second;
  std::vector<Output> inputs = product->inputs();
  std::vector<std::string> ops;
  if (bias) {
    const PartialShape shape = step_.shape(*bias);
    Output vector = *bias;
    if (shape.has_rank() && shape.rank() > 1) {
      const auto sizes = step_.add_constant(Tensor::of<int64_t>({-1}), node, vector);
      if (sizes.ok()) vector = step_.add_like(node, "Reshape", {vector, *sizes}, {});
      if (!sizes.ok() || !vector) return false;
    }
    inputs.push_back(vector);
    ops.push_back("BiasAdd");
  }
  if (image) {
    Output added = *image;
    if (reshape) {
      const int64_t columns = step_.shape(product->out())[1];
      const auto sizes = step_.add_constant(Tensor::of<int64_t>({-1, columns}), node, added);
      if (!sizes.ok()) return false;
      added = step_.add_like(node, "Reshape", {added, *sizes}, {});
      if (!added) return false;
    }
    inputs.push_back(added);
    ops.push_back("Add");
  }
  if (!activation.empty()) ops.push_back(activation);
  Attrs attrs = product->attrs();
  attrs.set("num_args", static_cast<int64_t>(inputs.size() - 2));
  attrs.set("fused_ops", std::move(ops));
  Output fused = step_.add_like(node, "_Fused" + product->op().name(), std::move(inputs), std::move(attrs));
  if (fused && reshape) fused = step_.add_like(node, "Reshape", {fused, reshape->inputs()[1]}, reshape->attrs());
  if (!fused) return false;
  std::vector<Output> by = {fused};
  for (int port = 1; port < node.num_outputs(); ++port)  // of an IdentityN, which nobody reads
    by.push_back(step_.now(node.inputs()[static_cast<size_t>(port)]));
  step_.replace(node, by);
  return true;
}

}  // namespace troupe
