// SPDX-License-Identifier: Apache-2.0
// Convolutions whose padding, dilation or single dimension is written with nodes around them.
#pragma once
#include <unordered_set>
#include <vector>

#include "graph/passes/pass_devices.h"
#include "graph/passes/readers.h"

namespace troupe {

/// Rewrites, on CPUs, where nobody else reads what is between:
///  - Conv2D or DepthwiseConv2dNative, VALID or EXPLICIT, of a Pad with constant zeros: padding EXPLICIT.
///  - BatchToSpaceND of such a convolution without strides of SpaceToBatchND, as tf.nn.convolution writes dilations:
///    the convolution with dilations, and the paddings less the crops as its own. Sizes must be known and whole.
///  - An activation, BiasAdd or constant for each channel behind the Squeeze of a convolution, as of a
///    one-dimensional one: the Squeeze comes behind it, so that other passes find what belongs together.
/// In the first two an ExpandDims and a Squeeze of the height may stand around the convolution.
class PlainConvolutions {
 public:
  /// `step` must outlive it and change by visit() alone from now on.
  explicit PlainConvolutions(StepGraph& step, const PassDevices& devices = {});
  /// True if something else now stands for the node's outputs. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  /// Of height and width.
  struct Spaces {
    int64_t lo[2] = {0, 0}, hi[2] = {0, 0};
  };
  bool is_free(const Node& node) const { return node.control_inputs().empty() && !step_.is_fed(node); }
  /// The node of input 0 of `node` if that alone reads it.
  const Node* before(const Node& node, const Node& last) const;
  /// Whether nobody but one input or fetch reads it.
  bool once(const Node& node) const { return readers_.one(node) || read_once_.contains(&node); }
  /// Whether the node is a Squeeze or an ExpandDims of the height alone.
  bool squeezes_height(const Node& squeeze) const;
  bool expands_height(const Node& node) const;
  bool take_padding(const Node& conv);
  bool take_dilation(const Node& back);
  bool sink_squeeze(const Node& node);
  /// The convolution `conv` of `x` with these paddings, in place of `node`; empty on an error.
  Output convolve(const Node& conv, Output x, const Spaces& spaces, const int64_t* dilations, const Node& node);
  /// `x` as `expand` (nullptr: as it is) makes it.
  Output expanded(const Node* expand, Output x, const Node& node);
  /// Lets `by` stand for `node`.
  bool put(Output by, const Node& node);

  StepGraph& step_;
  const PassDevices devices_;
  const Readers readers_;
  std::unordered_set<const Node*> read_once_;  // of those made here
};

}  // namespace troupe
