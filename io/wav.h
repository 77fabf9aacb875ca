// SPDX-License-Identifier: Apache-2.0
// Sound in memory: WAV files of 16-bit samples. Source: IBM and Microsoft, "Multimedia programming interface and data
// specifications", 1991. Implemented in io/wav.cpp.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/error.h"

namespace troupe {

struct Sound {
  int64_t channels = 0, rate = 0;  // samples of a channel in a second
  std::vector<float> samples;      // in [-1, 1), the channels of each time side by side
};

/// Errors (kInvalidArgument): anything but PCM of 16 bits, or a file that is cut off, with what is wrong.
Result<Sound> decode_wav(std::string_view bytes);

/// `samples` beyond [-1, 1) are cut off, NaN is -1. Errors: more than a file holds.
Result<std::string> encode_wav(std::span<const float> samples, int64_t channels, int64_t rate);

}  // namespace troupe
