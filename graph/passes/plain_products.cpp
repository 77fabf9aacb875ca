// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/plain_products.h"

#include <algorithm>

namespace troupe {

bool PlainProducts::visit(const Node& node) {
  if (node.op().name() != "BatchMatMulV2" || step_.is_fed(node) || !node.control_inputs().empty()) return false;
  if ((devices_.on_gpu && devices_.on_gpu(node)) || !devices_.serves(node, "MatMul")) return false;
  if (node.attrs().get_or("adj_x", false)) return false;
  const Output x = node.inputs()[0], w = node.inputs()[1];
  const PartialShape from = step_.shape(x), by = step_.shape(w), to = step_.shape(node.out());
  if (!from.has_rank() || from.rank() < 3 || !by.has_rank() || by.rank() != 2 || !to.has_rank()) return false;
  const bool transposed = node.attrs().get_or("adj_y", false);
  // What does not fit is an error of this node, so it is known to fit.
  const int64_t inner = from[from.rank() - 1];
  if (inner < 1 || inner != by[transposed ? 1 : 0] || std::ranges::count(to.dims(), 0) > 0 ||
      std::ranges::count(to.dims(), -1) > 1)
    return false;
  const auto sizes = step_.add_constant(Tensor::of<int64_t>({-1, inner}), node, x);
  const auto result = step_.add_constant(Tensor::of<int64_t>(std::span<const int64_t>(to.dims())), node, x);
  if (!sizes.ok() || !result.ok()) return false;
  Output y = step_.add_like(node, "Reshape", {x, *sizes}, {});
  if (y) y = step_.add_like(node, "MatMul", {y, w}, {{"transpose_b", transposed}});
  if (y) y = step_.add_like(node, "Reshape", {y, *result}, {});
  if (!y) return false;
  step_.replace(node, {&y, 1});
  return true;
}

}  // namespace troupe
