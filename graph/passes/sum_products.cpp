// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/sum_products.h"

#include <algorithm>

#include "graph/passes/same_place.h"

namespace troupe {

std::optional<ProductSums::Sizes> ProductSums::part(Output product, const Node& node) const {
  const Node& n = *product.node;
  if (n.op().name() != "MatMul" || !readers_.one(n) || step_.is_fed(n) || !n.control_inputs().empty()) return {};
  if (!same_place(n, node) || (n.dtype(0) != DType::kFloat32 && n.dtype(0) != DType::kFloat64)) return {};
  const PartialShape a = step_.shape(n.inputs()[0]), b = step_.shape(n.inputs()[1]);
  if (!a.has_rank() || !b.has_rank() || a.rank() != 2 || b.rank() != 2) return {};
  Sizes sizes{*n.attrs().get<bool>("transpose_a"), *n.attrs().get<bool>("transpose_b"), 0, 0};
  sizes.rows = a.dim(sizes.transpose_a ? 1 : 0);
  sizes.columns = b.dim(sizes.transpose_b ? 0 : 1);
  if (sizes.rows <= 0 || sizes.columns <= 0) return {};
  const int64_t known = a.dim(sizes.transpose_a ? 0 : 1), inner = known < 0 ? kUsualSize : known;
  const double read = static_cast<double>(inner) * static_cast<double>(sizes.rows + sizes.columns);
  if (read > static_cast<double>(sizes.rows) * static_cast<double>(sizes.columns)) return {};
  return sizes;
}

bool ProductSums::visit(const Node& node) {
  if (node.op().name() != "AddN" || step_.is_fed(node)) return false;
  std::optional<Sizes> sizes;
  std::vector<const Node*> products;
  std::vector<Output> rest;
  for (const Output& input : node.inputs()) {
    const Output now = step_.now(input);
    const std::optional<Sizes> found = part(now, node);
    if (found && (!sizes || *sizes == *found)) {
      sizes = found;
      products.push_back(now.node);
    } else {
      rest.push_back(now);
    }
  }
  if (products.size() < 2) return false;
  const Output a = concatenated(node, products, 0, sizes->transpose_a ? 0 : 1);
  const Output b = concatenated(node, products, 1, sizes->transpose_b ? 1 : 0);
  if (!a || !b) return false;
  Output sum = step_.add_like(node, "MatMul", {a, b},
                              {{"transpose_a", sizes->transpose_a}, {"transpose_b", sizes->transpose_b}});
  if (sum && !rest.empty()) {
    rest.insert(rest.begin(), sum);
    sum = step_.add_like(node, "AddN", std::move(rest));
  }
  if (!sum) return false;
  step_.replace(node, {&sum, 1});
  return true;
}

Output ProductSums::concatenated(const Node& node, const std::vector<const Node*>& products, int factor, int axis) {
  std::vector<Output> inputs;
  for (const Node* product : products) inputs.push_back(step_.now(product->inputs()[static_cast<size_t>(factor)]));
  const auto along = step_.add_constant(Tensor::scalar(axis), node, inputs[0]);
  if (!along.ok()) return {};
  inputs.push_back(*along);
  return step_.add_like(node, "ConcatV2", std::move(inputs));
}

}  // namespace troupe
