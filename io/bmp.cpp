// SPDX-License-Identifier: Apache-2.0
// BMP pictures without compression, of 8 (grey), 24 or 32 bits a pixel.
#include <cstring>

#include "io/image.h"

namespace troupe {
namespace {

/// The little-endian number at `at`, which is within the bytes.
template <class T> T number(std::string_view bytes, size_t at) {
  std::make_unsigned_t<T> v = 0;
  for (size_t i = sizeof(T); i-- > 0;)
    v = static_cast<std::make_unsigned_t<T>>(v << 8 | static_cast<uint8_t>(bytes[at + i]));
  return static_cast<T>(v);
}

}  // namespace

Result<Tensor> decode_bmp(std::string_view bytes, const ImageOptions& options,
                          const std::shared_ptr<Allocator>& allocator) {
  constexpr size_t kHead = 54;  // of the file and of the picture, in the oldest form that is still written
  if (bytes.size() < kHead) return invalid_argument("a BMP picture of {} bytes: its head has {}", bytes.size(), kHead);
  const int64_t begin = number<uint32_t>(bytes, 10), width = number<int32_t>(bytes, 18);
  const int64_t stored = number<int32_t>(bytes, 22), height = std::abs(stored);  // negative: from the top down
  const int bits = number<uint16_t>(bytes, 28), stored_channels = bits / 8;
  const auto compression = number<uint32_t>(bytes, 30);
  if (bits != 8 && bits != 24 && bits != 32)
    return invalid_argument("a BMP picture of {} bits a pixel: 8, 24 and 32 are supported", bits);
  if (compression != 0 && compression != 3)  // 3: the places of the channels are told, the usual ones
    return invalid_argument("a BMP picture with compression {}: it is not supported", compression);
  const int64_t channels = options.channels != 0 ? options.channels : stored_channels;
  if (channels != stored_channels && channels != 3 && channels != 4)
    return invalid_argument("channels is {}, but the BMP picture has {}", channels, stored_channels);
  TROUPE_RETURN_IF_ERROR(check_image_size(height, width, options.most_pixels));
  const int64_t row = (width * stored_channels + 3) / 4 * 4;  // rows fill words
  if (begin + row * (height - 1) + width * stored_channels > static_cast<int64_t>(bytes.size()))
    return invalid_argument("a BMP picture of {} bytes: {} rows of {} bytes from byte {} on do not fit", bytes.size(),
                            height, row, begin);
  TROUPE_ASSIGN(Tensor y, Tensor::make(DType::kUInt8, Shape{height, width, channels}, allocator));
  uint8_t* out = y.mutable_data<uint8_t>();
  for (int64_t i = 0; i < height; ++i) {
    const char* from = bytes.data() + begin + row * (stored < 0 ? i : height - 1 - i);
    for (int64_t k = 0; k < width * channels; ++k, ++out) {
      const int64_t at = k / channels * stored_channels, channel = k % channels;
      // Blue comes first, grey stands for all three, and what has no alpha is opaque.
      if (channel == 3 && stored_channels < 4) *out = 255;
      else if (stored_channels == 1) *out = static_cast<uint8_t>(from[at]);
      else *out = static_cast<uint8_t>(from[at + (channel < 3 ? 2 - channel : 3)]);
    }
  }
  return y;
}

}  // namespace troupe
