// SPDX-License-Identifier: Apache-2.0
// Sums of matrix products as one product.
#pragma once
#include "graph/passes/readers.h"

namespace troupe {

/// A B + C D = [A C] [B; D]: MatMuls that only one AddN reads become one MatMul of their concatenated factors. So a
/// weight that is used in every step of an unrolled recurrent network gets its gradient from one product, and not from
/// a matrix of its size for each step and the sum of them all.
///
/// Float32 and float64, all on the device of the sum, transposed alike; the size of the result is known and larger than
/// what is concatenated (a size that is summed over and not known counts as kUsualSize). Left alone: products that are
/// fed, fetched, read by others or have control inputs.
class ProductSums {
 public:
  static constexpr int64_t kUsualSize = 64;

  /// `step` must outlive it, and changes by visit() alone from now on.
  explicit ProductSums(StepGraph& step) : step_(step), readers_(step) {}
  /// True if something else stands for `node` now. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  /// Sizes of a product's factors and result.
  struct Sizes {
    bool transpose_a, transpose_b;
    int64_t rows, columns;
    bool operator==(const Sizes&) const = default;
  };
  /// What `product` is, if it may become part of the sum `node`.
  std::optional<Sizes> part(Output product, const Node& node) const;
  Output concatenated(const Node& node, const std::vector<const Node*>& products, int factor, int axis);

  StepGraph& step_;
  const Readers readers_;
};

}  // namespace troupe
