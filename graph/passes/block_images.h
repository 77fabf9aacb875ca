// SPDX-License-Identifier: Apache-2.0
// Images in blocks of channels: convolutions of an inference hand them on to one another without changing them back.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "graph/passes/pass_devices.h"
#include "graph/step_graph.h"

namespace troupe {

/// Puts _BlockedConv2D in place of convolutions of float32 on CPUs, plain or fused, whose filters are constants, and
/// runs the sums, Relus, MaxPools, means of whole images and scales of channels (squeeze and excitation) between them
/// on images in blocks of 16 channels (ops/parts/image_blocks.h), as processors with AVX-512 like them. _BlockImages
/// and _UnblockImages stand where images come in and go out; a convolution of up to 3 channels makes blocks itself.
/// Done for connected nodes as a whole, where what the kernels gain outweighs the changes at the borders, by inferred
/// shapes alone.
///
/// Left alone: sizes that are not known but for the batch, NCHW, groups, few channels, what is fed, nodes with control
/// inputs, what runs on GPUs.
class ImageBlocks {
 public:
  /// Chooses the nodes in `step`, which must outlive it and change by visit() alone from now on.
  explicit ImageBlocks(StepGraph& step, const PassDevices& devices = {});
  /// True if something else now stands for the node's outputs. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  /// How a node takes part.
  enum class Role : uint8_t {
    kNone,
    kFirst,  // a convolution whose input is not in blocks
    kConvolution,
    kElements,  // element by element
    kPool,
    kScale,  // each channel by a number: Mul with [batch or 1, 1, 1, channels]
    kMean,   // over all places; its output is not in blocks
  };
  Role role(const Node& node, const PassDevices& devices) const;
  bool is_convolution(const Node& node, Role& role) const;
  Role role_of(const Node& node) const {
    const auto id = static_cast<size_t>(node.id());
    return id < roles_.size() ? roles_[id] : Role::kNone;
  }
  bool gives_blocks(const Node& node) const {
    const Role role = role_of(node);
    return role != Role::kNone && role != Role::kMean;
  }
  /// Whether a Mul scales the channels of its input `image`.
  bool scales(const Node& node, size_t image) const;
  bool is_mean_of_places(const Node& node) const;
  /// The inputs that are images, in blocks where the node takes part.
  std::vector<size_t> images(const Node& node, Role role) const;
  /// Nanoseconds that the kernel of an image of the batch gains.
  double gain(const Node& node, Role role) const;
  void drop_losses();
  /// `image` in blocks, for `node`; empty on an error.
  Output in_blocks(const Node& node, Output image);
  Output make(const Node& node, Role role);

  StepGraph& step_;
  std::vector<Role> roles_;                                                // by id
  std::map<std::pair<std::pair<int, int>, std::string>, Output> blocked_;  // of what comes in: by id, port and device
};

}  // namespace troupe
