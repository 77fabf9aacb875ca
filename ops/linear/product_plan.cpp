// SPDX-License-Identifier: Apache-2.0
// Sizes of matrix products.
#include "ops/linear/product_plan.h"

#include <vector>

namespace troupe {

ProductForm product_form(const KernelInit& init) {
  const bool batches = init.op != "MatMul";
  return {.batches = batches,
          .broadcasts = init.op != "BatchMatMul",
          .ta = init.attr<bool>(batches ? "adj_x" : "transpose_a"),
          .tb = init.attr<bool>(batches ? "adj_y" : "transpose_b")};
}

Result<ProductPlan> plan_product(const Shape& a, const Shape& b, const ProductForm& form) {
  if (a.rank() < 2 || b.rank() < 2 || (!form.batches && (a.rank() != 2 || b.rank() != 2)))
    return invalid_argument("operands must be matrices: {} x {}", a.str(), b.str());
  ProductPlan p{.m = a.dim(form.ta ? -1 : -2),
                .n = b.dim(form.tb ? -2 : -1),
                .k = a.dim(form.ta ? -2 : -1),
                .a_batch = Shape(a.dims().first(a.rank() - 2)),
                .b_batch = Shape(b.dims().first(b.rank() - 2)),
                .batch = {},
                .out = {}};
  if (p.k != b.dim(form.tb ? -1 : -2))
    return invalid_argument("inner sizes differ: {}{} x {}{}", a.str(), form.ta ? " transposed" : "", b.str(),
                            form.tb ? " transposed" : "");
  if (!form.broadcasts && p.a_batch != p.b_batch)
    return invalid_argument("batches {} and {} differ: {} x {}", p.a_batch.str(), p.b_batch.str(), a.str(), b.str());
  TROUPE_ASSIGN(p.batch, broadcast(p.a_batch, p.b_batch));
  std::vector<int64_t> dims(p.batch.begin(), p.batch.end());
  dims.insert(dims.end(), {p.m, p.n});
  TROUPE_ASSIGN(p.out, Shape::make(dims));
  return p;
}

}  // namespace troupe
