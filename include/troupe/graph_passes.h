// SPDX-License-Identifier: Apache-2.0
// GraphPasses: which rewritings a session may apply to the nodes of a step. Implemented in graph/passes/passes.cpp.
#pragma once
#include <array>
#include <bit>
#include <string_view>

#include "troupe/error.h"
#include "troupe/export.h"

namespace TROUPE_API troupe {

/// The passes between a graph and the plan of a step. A pass never changes the graph, only what a step makes of it,
/// and no result beyond rounding: what is fed, fetched or has an effect stays as it was, and errors name the nodes of
/// the graph (docs/graph_passes.md). Runs that check numerics do without passes, so that the first node that made a NaN
/// is found. Nodes that no fetch or target needs never run, whatever is set here.
struct GraphPasses {
  /// What follows from constants alone is computed once for a plan. Where that fails, the step has the error.
  bool fold_constants = true;
  /// Nodes that change nothing or undo one another are left out: x * 1, two transpositions, casts there and back.
  bool simplify_arithmetic = true;
  /// Nodes of the same op, attributes, device and inputs run once.
  bool merge_common = true;
  /// Parts of the graph that work on NCHW images work on NHWC ones, where their kernels gain more than the
  /// transpositions at the borders cost. In steps without gradients, convolutions of CPUs with AVX-512 hand images on
  /// to one another in blocks of channels. Sums may be taken in another order.
  bool choose_layout = true;
  /// On CPUs a convolution takes zeros put around its images, and the batches that a dilation is written with, as
  /// attributes, and the Squeeze behind one of a single dimension comes behind bias, norm and activation too.
  bool plain_convolutions = true;
  /// A sum of matrix products becomes one product of their concatenated factors, where that is less memory to go
  /// through: the gradient of a weight that every step of an unrolled recurrent network uses.
  bool sum_products = true;
  /// The batch norm of an inference goes into the convolution before it, where filter and statistics are constants, as
  /// in a frozen graph.
  bool fold_batch_norm = true;
  /// On GPUs a batch norm takes the Relu behind it along, and the sum between the two in a residual block; in training
  /// so do their gradients.
  bool fuse_batch_norm = true;
  /// On CPUs, in steps without gradients, bias, residual sum and activation run with the matrix product or convolution
  /// before them, and attention and layer norms as one node each. Of a NaN, Relu and Relu6 after a convolution or a
  /// product by a constant may then make 0.
  bool fuse_inference = true;
  /// On CPUs, in steps that compute gradients, element-wise nodes that only feed one another run as one, in one pass
  /// over memory; what the forward pass has for the gradients is computed again there where both are made of the same,
  /// so that it need not be kept.
  bool fuse_training = true;
  /// The same in all steps and on GPUs, there with the gradients of Relu and of biases with a product beside them, and
  /// GELU and its gradient as one node each. Of a NaN, Relu and GELU by tanh after a product on a GPU may make 0 too,
  /// and an infinite gradient may become 0 there where Relu is off. Off unless asked for, as is the one below.
  bool fuse_epilogues = false;
  /// Element-wise nodes that only feed one another run as one in all steps and on GPUs.
  bool fuse_elementwise = false;

  /// Each switch that `kGraphPasses` lists.
  static constexpr GraphPasses all();
  /// The graph as it was written.
  static constexpr GraphPasses none();
  /// "all", "none", "default", or the names of those that are to be on, separated by commas. Error: kInvalidArgument
  /// for any other name, with those there are.
  static Result<GraphPasses> parse(std::string_view text);
};

/// A switch and its name.
struct GraphPass {
  std::string_view name;
  bool GraphPasses::*on;
};

/// Every switch of GraphPasses, in their order. docs/graph_passes.md has the order in which the passes run.
inline constexpr GraphPass kGraphPasses[] = {
    {"fold_constants", &GraphPasses::fold_constants},
    {"simplify_arithmetic", &GraphPasses::simplify_arithmetic},
    {"merge_common", &GraphPasses::merge_common},
    {"choose_layout", &GraphPasses::choose_layout},
    {"plain_convolutions", &GraphPasses::plain_convolutions},
    {"sum_products", &GraphPasses::sum_products},
    {"fold_batch_norm", &GraphPasses::fold_batch_norm},
    {"fuse_batch_norm", &GraphPasses::fuse_batch_norm},
    {"fuse_inference", &GraphPasses::fuse_inference},
    {"fuse_training", &GraphPasses::fuse_training},
    {"fuse_epilogues", &GraphPasses::fuse_epilogues},
    {"fuse_elementwise", &GraphPasses::fuse_elementwise},
};

constexpr GraphPasses GraphPasses::all() {
  GraphPasses passes;
  for (const GraphPass& pass : kGraphPasses) passes.*pass.on = true;
  return passes;
}

constexpr GraphPasses GraphPasses::none() {
  GraphPasses passes;
  for (const GraphPass& pass : kGraphPasses) passes.*pass.on = false;
  return passes;
}

static_assert(
    [] {
      const auto every = [](GraphPasses passes, bool value) {
        for (const bool on : std::bit_cast<std::array<bool, sizeof(GraphPasses)>>(passes))
          if (on != value) return false;
        return true;
      };
      return every(GraphPasses::all(), true) && every(GraphPasses::none(), false);
    }(),
    "kGraphPasses lacks a switch of GraphPasses");

}  // namespace troupe
