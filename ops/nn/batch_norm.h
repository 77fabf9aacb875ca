// SPDX-License-Identifier: Apache-2.0
// What the kernels of CPUs and GPUs for batch normalisation check, and how they look at images. Implemented in
// ops/nn/batch_norm.cpp.
#pragma once
#include <string>

#include "troupe/kernel.h"

namespace troupe {

/// What data_format says of images [batch, height, width, channels] (NHWC, or NCHW with channels first) or volumes
/// [batch, depth, height, width, channels] (NDHWC, NCDHW).
struct BatchNormLayout {
  bool channels_first = false;
  int rank = 4;
  explicit BatchNormLayout(const Attrs& attrs) {
    const auto* format = attrs.get<std::string>("data_format");
    if (!format) return;
    channels_first = format->starts_with("NC");
    rank = static_cast<int>(format->size());
  }
  int channel() const { return channels_first ? 1 : rank - 1; }
};

/// Images or volumes as [outer, channels, inner]; inner is 1 with channels last.
struct ImagesView {
  int64_t outer = 1, channels, inner = 1;
  ImagesView(const Shape& s, const BatchNormLayout& l) : channels(s[l.channel()]) {
    for (int i = 0; i < l.channel(); ++i) outer *= s[i];
    for (int i = l.channel() + 1; i < l.rank; ++i) inner *= s[i];
  }
  int64_t count() const { return outer * inner; }
  bool empty() const { return outer * channels * inner == 0; }
};

/// The attributes of FusedBatchNormV3 and of FusedBatchNormGradV3.
struct BatchNormAttrs {
  BatchNormLayout layout;
  bool training;
  float epsilon;
  float factor;  // exponential_avg_factor; 1 of the gradient
  explicit BatchNormAttrs(const KernelInit& init);
  /// Whether training blends the statistics of the batch with those that are given.
  bool blends() const { return training && factor != 1.0f; }
};

/// What _FusedBatchNormRelu does behind the norm and _FusedBatchNormReluGrad before it; of the plain ops nothing.
struct BatchNormRelu {
  bool on = false, side = false;
  int64_t group = 0;  // relu_group() of T
  BatchNormRelu() = default;
  /// Of nodes of the two. Error: num_side_inputs above 1.
  static Result<BatchNormRelu> parse(const KernelInit& init);
};

/// Training leaves where Relu is on in reserve_space_3, a bit for each element: in a byte those of the neighbours that
/// fill 16 bytes, the first in the lowest bit.
inline constexpr int64_t relu_group(size_t element_bytes) { return 16 / static_cast<int64_t>(element_bytes); }
/// How many numbers of `vector_bytes` hold the bits of so many elements.
inline int64_t relu_reserve(int64_t elements, int64_t group, size_t vector_bytes) {
  const auto each = static_cast<int64_t>(vector_bytes);
  return ((elements + group - 1) / group + each - 1) / each;
}
/// Error: `reserve`, reserve_space_3 of a gradient, does not hold so many.
Status check_relu_reserve(const Tensor& reserve, int64_t wanted);
/// Error: the side input is not of the shape of x.
Status check_side_input(const KernelContext& c);

/// Input 0 of FusedBatchNormV3. Errors: it is not of the layout's rank; a vector that is read is not one number for
/// each channel.
Result<ImagesView> batch_norm_view(const KernelContext& c, const BatchNormAttrs& attrs);
/// Input 1 of FusedBatchNormGradV3. Errors: the same; y_backprop is not of its shape.
Result<ImagesView> batch_norm_grad_view(const KernelContext& c, const BatchNormAttrs& attrs);

}  // namespace troupe
