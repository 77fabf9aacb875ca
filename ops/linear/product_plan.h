// SPDX-License-Identifier: Apache-2.0
// What the kernels of CPUs and GPUs for MatMul and BatchMatMul check. Implemented in ops/linear/product_plan.cpp.
#pragma once
#include "troupe/kernel.h"

namespace troupe {

/// What an op and its attributes say of its products.
struct ProductForm {
  bool batches, broadcasts;  // any number of matrices, whose dimensions before the last two broadcast
  bool ta, tb;
};
ProductForm product_form(const KernelInit& init);

/// Products [m,n] of matrices of m, n, k, for each of `batch`.
struct ProductPlan {
  int64_t m, n, k;
  Shape a_batch, b_batch, batch;
  Shape out;
};
/// Errors: operands that are not matrices, inner sizes that differ, batches that do not fit.
Result<ProductPlan> plan_product(const Shape& a, const Shape& b, const ProductForm& form);

}  // namespace troupe
