// SPDX-License-Identifier: Apache-2.0
// CPU kernels of convolutions, and the shapes that kernels of CPUs and GPUs check. Implemented in
// ops/nn/conv_kernel.cpp.
#pragma once
#include "ops/nn/epilogue.h"
#include "ops/parts/window.h"
#include "troupe/kernel.h"

namespace troupe {

/// Which of a convolution's three tensors is computed from the other two.
enum class ConvDirection { kOutput, kInput, kFilter };

/// The shapes of one call of a convolution's kernel.
struct ConvTensors {
  ConvShape shape;
  Shape in, filter, out;
  Shape made;  // of the one that is computed
  /// Whether one of the three has no elements; what is computed is 0 then.
  bool empty() const { return in.elements() == 0 || filter.elements() == 0 || out.elements() == 0; }
};
/// Of a gradient's kernel, the input that spells the shape of what is computed is in the host's memory. Errors name
/// shapes that do not fit one another.
Result<ConvTensors> conv_tensors(const KernelContext& c, const WindowAttrs& attrs, ConvDirection direction,
                                 bool depthwise);

/// A kernel for float32 (oneDNN where present), float64 or int32 (loops). A filter that stays the same from
/// call to call is brought into the layout that oneDNN likes best once. An `epilogue` may follow the forward direction.
Result<std::unique_ptr<ComputeKernel>> make_conv_kernel(const KernelInit& init, ConvDirection direction, bool depthwise,
                                                        Epilogue epilogue = {});

/// The kernel of _BlockedConv2D, on images in blocks of channels. Errors: those of attributes.
Result<std::unique_ptr<ComputeKernel>> make_blocked_conv_kernel(const KernelInit& init, const EpilogueKernels& kernels);

/// The shape that an int32 vector of 4 sizes spells. Errors: another length, negative sizes.
Result<Shape> shape_from_sizes(const Tensor& sizes);

}  // namespace troupe
