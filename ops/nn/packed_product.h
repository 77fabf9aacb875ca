// SPDX-License-Identifier: Apache-2.0
// Many products with one matrix, say of every step of a recurrent network: it is laid out once as the products want it.
#pragma once
#include <functional>

#include "ops/parts/gemm.h"

namespace troupe {

/// c = a op(b), or with `add` c += a op(b), as gemm() has it, of a [m,k] and c [m,n]; `times` tells how many products
/// will follow. Memory for the layout comes from the context's device. The function is false when the library below
/// fails; b must stay as it is while it is called.
using PackedProduct = std::function<bool(const float* a, float* c)>;
Result<PackedProduct> packed_product(const KernelContext& context, const float* b, bool tb, bool add, int64_t m,
                                     int64_t n, int64_t k, int64_t times);

}  // namespace troupe
