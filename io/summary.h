// SPDX-License-Identifier: Apache-2.0
// Values of TensorBoard's Summary message, made from tensors.
#pragma once
#include <string>
#include <string_view>

#include "io/event.pb.h"
#include "troupe/tensor.h"

namespace troupe {

/// Adds the distribution of all elements in TensorFlow's buckets. Errors (nothing is added): no numbers; NaN, infinity.
Status add_histogram(std::string_view tag, const Tensor& values, proto::Summary& out);

/// Adds a picture of 1, 3 or 4 channels as PNG. Errors: those of encode_png.
Status add_image(std::string tag, const uint8_t* pixels, int64_t height, int64_t width, int64_t channels,
                 proto::Summary& out);

/// Adds sound of `frames` samples in [-1, 1] for each channel, frame by frame, as WAV of 16 bits. Error: more than a
/// WAV file holds.
Status add_audio(std::string tag, const float* samples, int64_t frames, int64_t channels, float rate,
                 proto::Summary& out);

}  // namespace troupe
