// SPDX-License-Identifier: Apache-2.0
// What pools over images and over volumes have in common while the graph is built. Implemented in
// ops/nn/pool_shapes.cpp.
#pragma once
#include "ops/parts/gradient_math.h"
#include "troupe/op.h"

namespace troupe {

/// The shape of a pool with these attributes over an input, of which sizes may be unknown.
using PoolOf = Result<PartialShape> (*)(const Attrs& attrs, const PartialShape& input);

/// Output 0 is the pool of input 0.
Status set_pool_shape(ShapeContext& c, PoolOf pool);
/// Output 0 is as `input`; inputs [first, last] are as its pool. Error: they are not.
Status set_pool_grad_shape(ShapeContext& c, PoolOf pool, const PartialShape& input, int first, int last);
/// Output 0 is the pool of inputs 0 and 2, as is input 1. Error: they do not fit one another.
Status set_pool_grad_grad_shape(ShapeContext& c, PoolOf pool);

/// Attributes ksize, strides, padding and data_format of the node whose gradient is made.
Attrs pool_attrs(GradientContext& c);

}  // namespace troupe
