// SPDX-License-Identifier: Apache-2.0
// What kind of picture bytes are.
#include "io/image.h"

#include <algorithm>

namespace troupe {
namespace {

/// 8 bits as 16, where options ask for them.
Result<Tensor> widened(Result<Tensor> x, const ImageOptions& options, const std::shared_ptr<Allocator>& allocator) {
  if (!x.ok() || options.dtype == DType::kUInt8) return x;
  TROUPE_ASSIGN(Tensor y, Tensor::make(DType::kUInt16, x->shape(), allocator));
  std::ranges::transform(x->values<uint8_t>(), y.mutable_data<uint16_t>(),
                         [](uint8_t v) { return static_cast<uint16_t>(v << 8); });
  return y;
}

}  // namespace

ImageFormat image_format(std::string_view bytes) {
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return ImageFormat::kPng;
  if (bytes.starts_with("\xff\xd8\xff")) return ImageFormat::kJpeg;
  if (bytes.starts_with("GIF8")) return ImageFormat::kGif;
  if (bytes.starts_with("BM")) return ImageFormat::kBmp;
  return ImageFormat::kUnknown;
}

const char* to_string(ImageFormat format) {
  switch (format) {
    case ImageFormat::kPng: return "PNG";
    case ImageFormat::kJpeg: return "JPEG";
    case ImageFormat::kBmp: return "BMP";
    case ImageFormat::kGif: return "GIF";
    default: return "unknown";
  }
}

Status check_image_size(int64_t height, int64_t width, int64_t most_pixels) {
  if (height < 1 || width < 1) return invalid_argument("a picture of {} rows and {} columns", height, width);
  if (height > most_pixels / width)
    return invalid_argument("a picture of {} rows and {} columns: more than {} pixels", height, width, most_pixels);
  return {};
}

Result<Tensor> decode_image(std::string_view bytes, ImageFormat format, const ImageOptions& options,
                            const std::shared_ptr<Allocator>& allocator) {
  switch (format) {
    case ImageFormat::kPng: return decode_png(bytes, options, allocator);
    case ImageFormat::kJpeg: return widened(decode_jpeg(bytes, options, allocator), options, allocator);
    case ImageFormat::kBmp: return widened(decode_bmp(bytes, options, allocator), options, allocator);
    case ImageFormat::kGif: return widened(decode_gif(bytes, options, allocator), options, allocator);
    default: break;
  }
  std::string first;
  for (const char c : bytes.substr(0, 8)) first += fmt::format(" {:02x}", static_cast<uint8_t>(c));
  if (!first.empty()) first = ", first" + first + ",";
  return invalid_argument("{} bytes{} are not a PNG, JPEG, GIF or BMP picture", bytes.size(), first);
}

}  // namespace troupe
