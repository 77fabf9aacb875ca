// SPDX-License-Identifier: Apache-2.0
// CPU kernels of convolutions. Implemented in ops/nn/conv_kernel.cpp.
#pragma once
#include "ops/nn/epilogue.h"
#include "ops/parts/window.h"
#include "troupe/kernel.h"

namespace troupe {

/// Which of a convolution's three tensors is computed from the other two.
enum class ConvDirection { kOutput, kInput, kFilter };

/// A kernel for float32 (oneDNN where present), float64 or int32 (loops). A filter that stays the same from
/// call to call is brought into the layout that oneDNN likes best once. An `epilogue` may follow the forward direction.
Result<std::unique_ptr<ComputeKernel>> make_conv_kernel(const KernelInit& init, ConvDirection direction, bool depthwise,
                                                        Epilogue epilogue = {});

/// The shape that an int32 vector of 4 sizes spells. Errors: another length, negative sizes.
Result<Shape> shape_from_sizes(const Tensor& sizes);

}  // namespace troupe
