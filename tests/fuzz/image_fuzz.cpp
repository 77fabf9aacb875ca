// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: a byte of options and any bytes as a picture. A PNG of what is read must be read again as the same.
#include "io/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  troupe::ImageOptions options;
  options.channels = data[0] & 7;
  if (data[0] & 8) options.dtype = troupe::DType::kUInt16;
  options.first_frame = data[0] & 16;
  options.ratio = 1 << (data[0] >> 4 & 3);
  options.recover_truncated = data[0] & 64;
  options.acceptable_fraction = data[0] & 128 ? 0.5f : 0;
  options.most_pixels = 1 << 16;
  const auto image = troupe::decode_image(bytes, troupe::image_format(bytes), options);
  if (!image.ok()) return 0;
  if (image->rank() == 4) return 0;  // of GIF
  const int bits = image->dtype() == troupe::DType::kUInt16 ? 16 : 8;
  const auto png = troupe::encode_png({image->raw(), image->dim(0), image->dim(1), image->dim(2), bits});
  if (!png.ok()) std::abort();
  options.channels = 0;
  const auto again = troupe::decode_png(*png, options);
  if (!again.ok() || !again->identical(*image)) std::abort();
  return 0;
}
