// SPDX-License-Identifier: Apache-2.0
// Fusing of products with the bias and the activation after them.
#pragma once
#include <optional>
#include <unordered_map>

#include "graph/passes/pass_devices.h"
#include "graph/passes/readers.h"

namespace troupe {

/// Puts _FusedMatMul, _FusedConv2D and _FusedDepthwiseConv2dNative in place of MatMul, Conv2D and
/// DepthwiseConv2dNative with what follows them: BiasAdd, one of Relu, Relu6, Elu, Tanh, Sigmoid and on CPUs x *
/// Sigmoid(x), or both, on the same device, where that has a kernel for it. After a MatMul, an Add of a vector along
/// the last axis counts as BiasAdd, the nodes of a GELU (graph/passes/gelu.h) as an activation, and a Reshape that
/// keeps the last axis may come before either: it is then the last. On CPUs what is of the same known shape may be
/// added before the activation. Left alone: nodes of which what is in between has another reader, is fetched or fed,
/// and nodes with control inputs.
class EpilogueFusion {
 public:
  /// Finds what is to be fused in `step`, which must outlive it and change by visit() alone from now on; with
  /// `cpus_only` not on GPUs.
  explicit EpilogueFusion(StepGraph& step, const PassDevices& devices = {}, bool cpus_only = false);
  /// True if a fused node now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  /// The parts of a fused node; it comes in place of the last.
  struct Parts {
    const Node* product = nullptr;
    const Node* reshape = nullptr;  // behind the product, or behind its bias
    std::optional<Output> bias;     // what is added
    std::optional<Output> image;    // the same, of the result's shape
    std::string activation;         // as fused_ops have it; "": none
  };
  /// Whether one that `last` may become part of can be made without `node`, which is read `times` by its other parts.
  bool may_go(const Node& node, const Node& last, uint32_t times) const;
  bool is_free(const Node& node) const { return node.control_inputs().empty() && !step_.is_fed(node); }
  /// The node of input i of `node` if it may go.
  const Node* before(const Node& node, size_t i, const Node& last) const;
  /// What a GELU whose last node is `last` is of, if it is there and its nodes may go; sets `activation`.
  const Node* before_gelu(const Node& last, std::string& activation) const;
  /// What `last` multiplies by its own Sigmoid, if that and this may go; or where `last` is an IdentityN, as Keras has
  /// it for a gradient of its own, what the product before it is of.
  const Node* before_swish(const Node& last) const;
  /// The node to which `sum` adds a bias, nullptr if it does not; sets `bias`.
  const Node* before_bias(const Node& sum, const Node& last, std::optional<Output>& bias) const;
  /// The product, its Reshape or its BiasAdd, to which `sum` adds something of the same shape, nullptr if it does not;
  /// sets `image`.
  const Node* before_image(const Node& sum, const Node& last, std::optional<Output>& image) const;
  /// The MatMul of which `reshape` is and keeps the last axis, or nullptr.
  const Node* before_reshape(const Node& reshape, const Node& last) const;
  /// The matrix of which `reshape` is and keeps the last axis, or nullptr.
  const Node* before_wider(const Node& reshape, const Node& last) const;

  StepGraph& step_;
  const Readers readers_;
  std::unordered_map<int, Parts> found_;  // by id of the last part
};

}  // namespace troupe
