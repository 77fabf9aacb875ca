// SPDX-License-Identifier: Apache-2.0
// The choice of a layout: parts of a step that work on NCHW images work on NHWC ones.
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/passes/pass_devices.h"
#include "graph/step_graph.h"

namespace troupe {

/// How an input or output of a node changes when its images do. What is not told here stays as it is.
enum class LayoutRole : uint8_t {
  kSame,
  kImage,      // of rank 4: transposed
  kBroadcast,  // the same; of a lower rank, lifted to rank 4 before
  kSizes,      // four integers, one for each dimension: in another order
  kPaddings,   // constant rows of two integers, one for each dimension: in another order
  kAxes,       // constant dimensions: renamed
};

/// What a node on NHWC images is that does what another does on NCHW ones.
struct LayoutRecipe {
  std::vector<LayoutRole> inputs, outputs;
  Attrs attrs;
  bool has_format;  // the op has a data_format; else it works on any layout
  double gain;      // nanoseconds for an image of its first input or output, over the kernel for NCHW; may be negative
};

/// Runs connected nodes on NHWC images in place of NCHW ones: convolutions, pools, batch norms, biases and their
/// gradients, and between them what works on any layout (element by element, along one dimension, over all places,
/// paddings, slices, sides of branches), with its axes, sizes and paddings changed. Transpositions stand where images
/// come in and go out, once for each image; a dimension of one element needs none. Done where the kernels' gains
/// outweigh the transpositions (measured by bench_kernels --layouts on AVX-512), by shapes as far as known: the choice
/// depends on the graph alone.
///
/// Left alone: images of unknown rank, what is fed, constants above 16 MiB, what is in a loop (whose constants would
/// have to wait for each iteration), Switches that are waited for, what runs on GPUs. Control inputs stay with the
/// node.
class LayoutChoice {
 public:
  /// Chooses the nodes in `step`, which must outlive it and change by visit() alone from now on.
  explicit LayoutChoice(StepGraph& step, PassDevices devices = {});
  /// True if something else now stands for the node's outputs. To be called for each node, inputs first.
  bool visit(const Node& node);
  /// Whether there is a node with NCHW images at all.
  static bool may_apply(const StepGraph& step);

 private:
  using Key = std::pair<const Node*, int>;
  std::optional<LayoutRecipe> recipe(const Node& node) const;
  bool fits(const Node& node, LayoutRecipe& recipe) const;
  bool fits_input(Output input, LayoutRole role) const;
  /// Whether there will be an NHWC image behind what stands for `output`, without a transposition of it.
  bool changed(Output output) const;
  void choose();
  void drop_losses(const std::vector<const Node*>& chosen);
  /// What the node is to read in place of `input`; empty on an error.
  Output read(const Node& node, Output input, LayoutRole role);
  /// `image` with ones before its dimensions, four in all.
  Output lifted(const Node& node, Output image);
  /// A transposition, or a reshape that does the same.
  Output reordered(const Node& node, Output image, std::span<const int> order);

  StepGraph& step_;
  const PassDevices devices_;
  std::unordered_map<const OpDef*, int> rows_;  // of the table of ops
  std::vector<int> frames_;                     // by id, where there are loops
  std::vector<bool> chosen_;                    // by id
  std::vector<const Node*> after_;              // who is waited for by a control edge or as a target, sorted
  std::map<Key, Output> changed_;               // NHWC images, and sizes in their order, by what stands for NCHW ones
  std::map<std::pair<Key, std::string>, Output> transposed_;  // the same at borders, by device
};

}  // namespace troupe
