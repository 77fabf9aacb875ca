// SPDX-License-Identifier: Apache-2.0
// Pictures in memory to tensors and back: PNG (io/png.cpp), JPEG (io/jpeg.cpp), BMP (io/bmp.cpp), GIF (io/gif.cpp).
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "troupe/tensor.h"

namespace troupe {

/// What a file is, by its first bytes.
enum class ImageFormat { kUnknown, kPng, kJpeg, kBmp, kGif };
ImageFormat image_format(std::string_view bytes);
/// "PNG"; "unknown".
const char* to_string(ImageFormat format);

/// How to decode.
struct ImageOptions {
  int64_t channels = 0;         // 1: grey, 2: grey and alpha, 3: RGB, 4: RGBA; 0: as many as the file has
  DType dtype = DType::kUInt8;  // or kUInt16, over which the 8 bits of PNG are spread, others times 256
  /// Larger pictures are refused.
  int64_t most_pixels = int64_t{1} << 29;
  // Of JPEG:
  int64_t ratio = 1;               // 2, 4 or 8: of a half, a fourth or an eighth of the size
  bool fancy_upscaling = true;     // of colours that are stored in a lower resolution
  bool exact_dct = false;          // or the faster one that TensorFlow prefers
  bool recover_truncated = false;  // where the data end too early, what is missing is made up
  float acceptable_fraction = 1;   // or black, if this share of rows is there
  /// Of the picture only this part: top, left, height and width. Colours in a lower resolution are spread as if the
  /// picture ended at the part's right edge, as TensorFlow does. kInvalidArgument where it is not within the picture.
  std::optional<std::array<int64_t, 4>> window = {};
  // Of GIF:
  bool first_frame = false;  // and no other
};

/// The picture [height, width, channels] in `format`, of GIF [frames, height, width, channels]. Errors:
/// kInvalidArgument for channels that the format has not, for bytes that are no such picture or a damaged one, and for
/// one that is too large, with what is wrong; kResourceExhausted where the allocator has no memory for it.
Result<Tensor> decode_image(std::string_view bytes, ImageFormat format, const ImageOptions& options,
                            const std::shared_ptr<Allocator>& allocator = system_allocator());
Result<Tensor> decode_png(std::string_view bytes, const ImageOptions& options,
                          const std::shared_ptr<Allocator>& allocator = system_allocator());

// These give 8 bits whatever options.dtype is.
Result<Tensor> decode_jpeg(std::string_view bytes, const ImageOptions& options,
                           const std::shared_ptr<Allocator>& allocator = system_allocator());
Result<Tensor> decode_bmp(std::string_view bytes, const ImageOptions& options,
                          const std::shared_ptr<Allocator>& allocator = system_allocator());
/// Where a frame does not cover the picture or is transparent, it shows what was there before it; black before the
/// first.
Result<Tensor> decode_gif(std::string_view bytes, const ImageOptions& options,
                          const std::shared_ptr<Allocator>& allocator = system_allocator());

/// Height, width and channels as the head of a JPEG picture tells them.
struct ImageSize {
  int64_t height = 0, width = 0, channels = 0;
};
Result<ImageSize> jpeg_size(std::string_view bytes);

/// Rows of pixels of 8 bits, or 16 (in the order of this processor's bytes).
struct Pixels {
  const void* data = nullptr;
  int64_t height = 0, width = 0, channels = 0;
  int bits = 8;
};

/// A PNG of 1 to 4 channels. `compression` is from 0 to 9, or -1 for what zlib takes. Errors: no pixels, other
/// channels, too many rows or columns.
Result<std::string> encode_png(const Pixels& pixels, int64_t compression = -1);

/// What a JPEG is written with.
struct JpegOptions {
  int64_t quality = 95;  // 0 to 100
  bool progressive = false, optimize_size = false;
  bool chroma_downsampling = true;  // colours in half the resolution
  bool centimetres = false;         // densities are by centimetre, not inch
  int64_t x_density = 300, y_density = 300;
  std::string xmp_metadata;
};

/// A JPEG of 1 or 3 channels of 8 bits. Errors: as above, a quality or densities out of range, metadata longer than a
/// segment.
Result<std::string> encode_jpeg(const Pixels& pixels, const JpegOptions& options);

/// Errors: a size that is empty or has more pixels than allowed.
Status check_image_size(int64_t height, int64_t width, int64_t most_pixels);

}  // namespace troupe
