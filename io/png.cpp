// SPDX-License-Identifier: Apache-2.0
// PNG by libpng. An error of libpng jumps (longjmp) into the member function that called it; those have nothing to
// destroy.
#include <png.h>

#include <bit>
#include <csetjmp>
#include <cstring>
#include <vector>

#include "io/image.h"

namespace troupe {
namespace {

/// What readers and writers share: where errors go.
class PngErrors {
 public:
  const std::string& message() const { return message_; }

 protected:
  static void fail(png_structp png, png_const_charp message) {
    static_cast<PngErrors*>(png_get_error_ptr(png))->message_ = message;
    png_longjmp(png, 1);
  }
  static void ignore(png_structp, png_const_charp) {}

 private:
  std::string message_ = "out of memory";
};

class PngReader : public PngErrors {
 public:
  explicit PngReader(std::string_view bytes)
      : rest_(bytes), png_(png_create_read_struct(PNG_LIBPNG_VER_STRING, static_cast<PngErrors*>(this), fail, ignore)) {
    if (png_) info_ = png_create_info_struct(png_);
  }
  PngReader(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  /// Reads the head and asks for rows of so many channels (0: those of the file) and bits: 8, or 16 where the file has
  /// as many. False: see message().
  bool open(int channels, int bits) {
    if (!info_) return false;
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_read_fn(png_, this, take);
    png_read_info(png_, info_);
    const int color = png_get_color_type(png_, info_), depth = png_get_bit_depth(png_, info_);
    const bool palette = color == PNG_COLOR_TYPE_PALETTE, grey = !(color & PNG_COLOR_MASK_COLOR);
    const bool alpha = color & PNG_COLOR_MASK_ALPHA, transparent = png_get_valid(png_, info_, PNG_INFO_tRNS) != 0;
    channels_ = channels ? channels : palette ? (transparent ? 4 : 3) : png_get_channels(png_, info_);
    if (channels_ % 2 == 1) {
      if (alpha || transparent) png_set_strip_alpha(png_);
    } else if (transparent) {
      png_set_tRNS_to_alpha(png_);
    } else if (!alpha) {
      png_set_add_alpha(png_, (1u << depth) - 1, PNG_FILLER_AFTER);
    }
    if (depth == 16 && bits == 8) png_set_strip_16(png_);
    bits_ = depth == 16 && bits == 16 ? 16 : 8;
    png_set_packing(png_);
    png_set_interlace_handling(png_);
    if (bits_ == 16 && std::endian::native == std::endian::little) png_set_swap(png_);
    if (palette) png_set_palette_to_rgb(png_);
    if (grey && depth < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if (channels_ >= 3 && grey) png_set_gray_to_rgb(png_);
    if (channels_ < 3 && !grey) png_set_rgb_to_gray(png_, 1, 0.299, 0.587);  // of red and green; the rest is blue's
    return true;
  }
  /// Settles the layout of rows; not before the size was found to be reasonable.
  bool start() {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_update_info(png_, info_);
    return true;
  }
  bool read(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }
  int64_t height() const { return png_get_image_height(png_, info_); }
  int64_t width() const { return png_get_image_width(png_, info_); }
  size_t row_bytes() const { return png_get_rowbytes(png_, info_); }
  int channels() const { return channels_; }
  int bits() const { return bits_; }

 private:
  static void take(png_structp png, png_bytep to, size_t count) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > self->rest_.size()) png_error(png, "the data end too early");
    std::memcpy(to, self->rest_.data(), count);
    self->rest_.remove_prefix(count);
  }

  std::string_view rest_;
  png_structp png_;
  png_infop info_ = nullptr;
  int channels_ = 0, bits_ = 8;
};

class PngWriter : public PngErrors {
 public:
  PngWriter() : png_(png_create_write_struct(PNG_LIBPNG_VER_STRING, static_cast<PngErrors*>(this), fail, ignore)) {
    if (png_) info_ = png_create_info_struct(png_);
  }
  PngWriter(const PngWriter&) = delete;
  ~PngWriter() { png_destroy_write_struct(&png_, &info_); }

  /// False: see message().
  bool write(const Pixels& p, int compression, png_bytepp rows) {
    if (!info_) return false;
    if (setjmp(png_jmpbuf(png_))) return false;
    static constexpr int kColors[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                      PNG_COLOR_TYPE_RGB_ALPHA};
    png_set_write_fn(png_, this, put, nullptr);
    png_set_compression_level(png_, compression);
    png_set_IHDR(png_, info_, static_cast<png_uint_32>(p.width), static_cast<png_uint_32>(p.height), p.bits,
                 kColors[p.channels - 1], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png_, info_);
    if (p.bits == 16 && std::endian::native == std::endian::little) png_set_swap(png_);
    png_write_image(png_, rows);
    png_write_end(png_, nullptr);
    return true;
  }
  std::string take() { return std::move(bytes_); }

 private:
  static void put(png_structp png, png_bytep from, size_t count) {
    static_cast<PngWriter*>(png_get_io_ptr(png))->bytes_.append(reinterpret_cast<const char*>(from), count);
  }

  png_structp png_;
  png_infop info_ = nullptr;
  std::string bytes_;
};

std::vector<png_bytep> rows_of(void* data, int64_t count, size_t bytes) {
  std::vector<png_bytep> rows(static_cast<size_t>(count));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<png_bytep>(data) + i * bytes;
  return rows;
}

}  // namespace

Result<Tensor> decode_png(std::string_view bytes, const ImageOptions& options,
                          const std::shared_ptr<Allocator>& allocator) {
  if (options.channels < 0 || options.channels > 4)
    return invalid_argument("channels of PNG pictures are 0 to 4, not {}", options.channels);
  const bool wide = options.dtype == DType::kUInt16;
  const auto damaged = [&](const PngReader& r) {
    return invalid_argument("a PNG picture of {} bytes: {}", bytes.size(), r.message());
  };
  PngReader reader(bytes);
  if (!reader.open(static_cast<int>(options.channels), wide ? 16 : 8)) return damaged(reader);
  TROUPE_RETURN_IF_ERROR(check_image_size(reader.height(), reader.width(), options.most_pixels));
  if (!reader.start()) return damaged(reader);
  const Shape shape{reader.height(), reader.width(), reader.channels()};
  const bool spread = wide && reader.bits() == 8;
  TROUPE_ASSIGN(Tensor y, Tensor::make(spread ? DType::kUInt8 : options.dtype, shape, allocator));
  const size_t row = y.bytes() / static_cast<size_t>(reader.height());
  if (reader.row_bytes() != row)
    return make_error(Code::kInternal, "libpng gives rows of {} bytes for pictures {}", reader.row_bytes(),
                      shape.str());
  if (!reader.read(rows_of(y.mutable_raw(), reader.height(), row).data())) return damaged(reader);
  if (!spread) return y;
  TROUPE_ASSIGN(Tensor out, Tensor::make(DType::kUInt16, shape, allocator));
  for (int64_t i = 0; i < y.elements(); ++i)
    out.mutable_data<uint16_t>()[i] = static_cast<uint16_t>(y.data<uint8_t>()[i] * 257);
  return out;
}

Result<std::string> encode_png(const Pixels& pixels, int64_t compression) {
  constexpr int64_t kMostSide = 1000000;  // libpng's own limit
  if (pixels.channels < 1 || pixels.channels > 4)
    return invalid_argument("PNG pictures have 1 to 4 channels, not {}", pixels.channels);
  TROUPE_RETURN_IF_ERROR(check_image_size(pixels.height, pixels.width, kMostSide * kMostSide));
  if (pixels.height > kMostSide || pixels.width > kMostSide)
    return invalid_argument("a PNG picture of {} rows and {} columns: they are at most {}", pixels.height, pixels.width,
                            kMostSide);
  if (compression < -1 || compression > 9) return invalid_argument("compression is from -1 to 9, not {}", compression);
  PngWriter writer;
  const size_t row = static_cast<size_t>(pixels.width * pixels.channels * pixels.bits / 8);
  if (!writer.write(pixels, static_cast<int>(compression),
                    rows_of(const_cast<void*>(pixels.data), pixels.height, row).data()))
    return make_error(Code::kInternal, "libpng: {}", writer.message());
  return writer.take();
}

}  // namespace troupe
