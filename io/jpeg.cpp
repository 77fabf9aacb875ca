// SPDX-License-Identifier: Apache-2.0
// JPEG by libjpeg. An error of libjpeg jumps (longjmp) into the member function that called it; those have nothing to
// destroy.
#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include <jpeglib.h>

#include "io/image.h"

namespace troupe {
namespace {

/// Scans of a progressive picture beyond this are an attack: each may cost as much as the whole picture.
constexpr int kMostScans = 500;

/// What readers and writers share: where errors go.
class JpegErrors {
 public:
  const std::string& message() const { return message_; }

 protected:
  JpegErrors() {
    jpeg_std_error(&errors_);
    errors_.error_exit = fail;
    errors_.emit_message = [](j_common_ptr, int) {};  // warnings: what can be shown is shown
    errors_.output_message = [](j_common_ptr) {};
  }
  [[noreturn]] static void fail(j_common_ptr codec) {
    auto* self = static_cast<JpegErrors*>(codec->client_data);
    char text[JMSG_LENGTH_MAX];
    codec->err->format_message(codec, text);
    self->message_ = text;
    longjmp(self->back_, 1);
  }

  jpeg_error_mgr errors_;
  std::jmp_buf back_;
  std::string message_ = "libjpeg failed";
};

class JpegReader : public JpegErrors {
 public:
  /// `recovers`: data that end too early are taken for a picture that ends there.
  JpegReader(std::string_view bytes, bool recovers) : recovers_(recovers) {
    codec_.err = &errors_;
    codec_.client_data = static_cast<JpegErrors*>(this);
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source_.bytes_in_buffer = bytes.size();
    source_.init_source = [](j_decompress_ptr) {};
    source_.term_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = [](j_decompress_ptr codec) -> boolean {  // there is no more
      auto* self = static_cast<JpegReader*>(static_cast<JpegErrors*>(codec->client_data));
      if (!std::exchange(self->recovers_, false)) return FALSE;
      static constexpr JOCTET kEnd[] = {0xff, JPEG_EOI};
      codec->src->next_input_byte = kEnd;
      codec->src->bytes_in_buffer = std::size(kEnd);
      return TRUE;
    };
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.skip_input_data = [](j_decompress_ptr codec, long count) {
      jpeg_source_mgr& s = *codec->src;
      const size_t most = std::min(static_cast<size_t>(std::max(count, 0L)), s.bytes_in_buffer);
      s.next_input_byte += most;
      s.bytes_in_buffer -= most;
    };
    progress_.progress_monitor = [](j_common_ptr codec) {
      auto* self = static_cast<JpegReader*>(static_cast<JpegErrors*>(codec->client_data));
      if (self->codec_.input_scan_number <= kMostScans) return;
      self->message_ = fmt::format("more than {} scans", kMostScans);
      longjmp(self->back_, 1);
    };
  }
  JpegReader(const JpegReader&) = delete;
  ~JpegReader() {
    if (created_) jpeg_destroy_decompress(&codec_);
  }

  /// Reads the head. False: see message().
  bool open() {
    if (setjmp(back_)) return false;
    jpeg_create_decompress(&codec_);
    created_ = true;
    codec_.client_data = static_cast<JpegErrors*>(this);
    codec_.src = &source_;
    codec_.progress = &progress_;
    if (jpeg_read_header(&codec_, TRUE) == JPEG_HEADER_OK) return true;
    message_ = "the data end before the picture";
    return false;
  }
  /// Settles how rows are given; then height() and width() are those of the result.
  bool settle(const ImageOptions& o) {
    if (setjmp(back_)) return false;
    const int components = o.channels ? static_cast<int>(o.channels) : std::min(codec_.num_components, 3);
    const bool inks = codec_.jpeg_color_space == JCS_CMYK || codec_.jpeg_color_space == JCS_YCCK;
    codec_.out_color_space = inks ? JCS_CMYK : components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    codec_.scale_num = 1;
    codec_.scale_denom = static_cast<unsigned>(o.ratio);
    codec_.do_fancy_upsampling = o.fancy_upscaling ? TRUE : FALSE;
    codec_.dct_method = o.exact_dct ? JDCT_ISLOW : JDCT_IFAST;
    jpeg_calc_output_dimensions(&codec_);
    return true;
  }
  bool start() {
    if (setjmp(back_)) return false;
    if (jpeg_start_decompress(&codec_)) return true;
    message_ = "the data end too early";
    return false;
  }
  /// Has rows given from column `left` on, so many columns; what libjpeg can give that holds them, once started.
  bool crop(JDIMENSION& left, JDIMENSION& columns) {
#ifdef LIBJPEG_TURBO_VERSION
    if (setjmp(back_)) return false;
    jpeg_crop_scanline(&codec_, &left, &columns);
#else
    left = 0;
    columns = codec_.output_width;
#endif
    return true;
  }
  /// Reads the next row. False where there is none: see message().
  bool read(JSAMPROW row) {
    if (setjmp(back_)) return false;
    if (jpeg_read_scanlines(&codec_, &row, 1) == 1) return true;
    message_ = "the data end too early";
    return false;
  }
  int64_t height() const { return codec_.output_height ? codec_.output_height : codec_.image_height; }
  int64_t width() const { return codec_.output_width ? codec_.output_width : codec_.image_width; }
  int64_t components() const { return codec_.num_components; }
  /// Bytes that libjpeg keeps of a picture in more than one scan.
  int64_t kept_bytes() {
    if (!jpeg_has_multiple_scans(&codec_)) return 0;
    return int64_t{codec_.image_height} * codec_.image_width * codec_.num_components * int64_t{sizeof(JCOEF)};
  }
  bool inks() const { return codec_.out_color_space == JCS_CMYK; }
  bool inverted() const { return codec_.saw_Adobe_marker; }

 private:
  jpeg_decompress_struct codec_ = {};
  jpeg_source_mgr source_ = {};
  jpeg_progress_mgr progress_ = {};
  bool created_ = false, recovers_;
};

/// A row of inks as red, green and blue.
void to_rgb(const uint8_t* inks, uint8_t* rgb, int64_t width, bool inverted) {
  for (int64_t i = 0; i < width; ++i)
    for (int k = 0; k < 3; ++k) {
      const int ink = inks[4 * i + k], black = inks[4 * i + 3];
      rgb[3 * i + k] = static_cast<uint8_t>(inverted ? ink * black / 255 : (255 - ink) * (255 - black) / 255);
    }
}

Error damaged(std::string_view bytes, const JpegErrors& codec) {
  return invalid_argument("a JPEG picture of {} bytes: {}", bytes.size(), codec.message());
}

/// The rows of a picture that has started to y, which is the part of it from row `top` and column `left` on.
Status read_rows(JpegReader& reader, std::string_view bytes, const ImageOptions& options, int64_t top, int64_t left,
                 Tensor& y) {
  const int64_t height = reader.height(), bottom = top + y.dim(0), width = y.dim(1), row = width * y.dim(2);
  JDIMENSION first = static_cast<JDIMENSION>(left), columns = static_cast<JDIMENSION>(width);
  if (width < reader.width() && !reader.crop(first, columns)) return damaged(bytes, reader);
  const int64_t pixel = reader.inks() ? 4 : y.dim(2), skipped = (left - first) * pixel;
  const bool direct = columns == width && !reader.inks();
  std::vector<uint8_t> given(static_cast<size_t>(direct ? 0 : columns * pixel)), above(static_cast<size_t>(row));
  const auto out = [&](int64_t i) { return i < top ? above.data() : y.mutable_data<uint8_t>() + (i - top) * row; };
  for (int64_t i = 0; i < bottom; ++i) {
    if (reader.read(direct ? out(i) : given.data())) {
      if (reader.inks()) to_rgb(given.data() + skipped, out(i), width, reader.inverted());
      else if (!direct) std::copy_n(given.data() + skipped, row, out(i));
      continue;
    }
    const float read = static_cast<float>(i) / static_cast<float>(height);
    if (!options.recover_truncated && (i == 0 || read < options.acceptable_fraction))
      return invalid_argument("a JPEG picture of {} bytes: after {} of {} rows: {}", bytes.size(), i, height,
                              reader.message());
    for (const bool repeats = options.recover_truncated && i > 0; i < bottom; ++i)
      if (!repeats) std::fill_n(out(i), row, uint8_t{0});
      else if (i >= top) std::copy_n(out(i - 1), row, out(i));
    return {};
  }
  return {};
}

class JpegWriter : public JpegErrors {
 public:
  JpegWriter() {
    codec_.err = &errors_;
    codec_.client_data = static_cast<JpegErrors*>(this);
  }
  JpegWriter(const JpegWriter&) = delete;
  ~JpegWriter() {
    if (created_) jpeg_destroy_compress(&codec_);
    std::free(bytes_);
  }
  /// False: see message().
  bool write(const Pixels& p, const JpegOptions& o, const std::string& segment) {
    if (setjmp(back_)) return false;
    jpeg_create_compress(&codec_);
    created_ = true;
    codec_.client_data = static_cast<JpegErrors*>(this);
    jpeg_mem_dest(&codec_, &bytes_, &size_);
    codec_.image_width = static_cast<JDIMENSION>(p.width);
    codec_.image_height = static_cast<JDIMENSION>(p.height);
    codec_.input_components = static_cast<int>(p.channels);
    codec_.in_color_space = p.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&codec_);
    codec_.optimize_coding = o.optimize_size ? TRUE : FALSE;
    codec_.density_unit = o.centimetres ? 2 : 1;
    codec_.X_density = static_cast<UINT16>(o.x_density);
    codec_.Y_density = static_cast<UINT16>(o.y_density);
    jpeg_set_quality(&codec_, static_cast<int>(o.quality), TRUE);
    if (o.progressive) jpeg_simple_progression(&codec_);
    for (int i = 0; !o.chroma_downsampling && i < codec_.num_components; ++i)
      codec_.comp_info[i].h_samp_factor = codec_.comp_info[i].v_samp_factor = 1;
    jpeg_start_compress(&codec_, TRUE);
    if (!segment.empty())
      jpeg_write_marker(&codec_, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(segment.data()),
                        static_cast<unsigned>(segment.size()));
    while (codec_.next_scanline < codec_.image_height) {
      JSAMPROW row = static_cast<JSAMPROW>(const_cast<void*>(p.data)) + codec_.next_scanline * p.width * p.channels;
      jpeg_write_scanlines(&codec_, &row, 1);
    }
    jpeg_finish_compress(&codec_);
    return true;
  }
  std::string str() const { return {reinterpret_cast<const char*>(bytes_), size_}; }

 private:
  jpeg_compress_struct codec_ = {};
  bool created_ = false;
  unsigned char* bytes_ = nullptr;
  unsigned long size_ = 0;  // as jpeg_mem_dest has it
};

}  // namespace

Result<ImageSize> jpeg_size(std::string_view bytes) {
  JpegReader reader(bytes, false);
  if (!reader.open()) return damaged(bytes, reader);
  return ImageSize{reader.height(), reader.width(), reader.components()};
}

Result<Tensor> decode_jpeg(std::string_view bytes, const ImageOptions& options,
                           const std::shared_ptr<Allocator>& allocator) {
  if (options.channels != 0 && options.channels != 1 && options.channels != 3)
    return invalid_argument("channels of JPEG pictures are 0, 1 or 3, not {}", options.channels);
  if (options.ratio != 1 && options.ratio != 2 && options.ratio != 4 && options.ratio != 8)
    return invalid_argument("ratio is 1, 2, 4 or 8, not {}", options.ratio);
  JpegReader reader(bytes, options.recover_truncated);
  if (!reader.open()) return damaged(bytes, reader);
  TROUPE_RETURN_IF_ERROR(check_image_size(reader.height(), reader.width(), options.most_pixels));
  if (!reader.settle(options)) return damaged(bytes, reader);
  const int64_t channels = options.channels ? options.channels : std::min<int64_t>(reader.components(), 3);
  if (reader.inks() && channels != 3)
    return invalid_argument("a JPEG picture of inks (CMYK) cannot have {} channels", channels);
  if (channels == 2) return invalid_argument("a JPEG picture of 2 components");
  const Shape whole{reader.height(), reader.width(), channels};
  const auto [top, left, height, width] = options.window.value_or(std::array<int64_t, 4>{0, 0, whole[0], whole[1]});
  if (options.window && (top < 0 || left < 0 || height < 1 || width < 1 || height > whole[0] || width > whole[1] ||
                         top > whole[0] - height || left > whole[1] - width))
    return invalid_argument("crop_window [{},{},{},{}] of a picture {}", top, left, height, width, whole.str());
  TROUPE_ASSIGN(Tensor y, Tensor::make(DType::kUInt8, Shape{height, width, channels}, allocator));
  // What libjpeg takes from the system is held against the allocator's limit too.
  TROUPE_ASSIGN(const Tensor kept, Tensor::make(DType::kUInt8, Shape{reader.kept_bytes()}, allocator));
  if (!reader.start()) return damaged(bytes, reader);
  TROUPE_RETURN_IF_ERROR(read_rows(reader, bytes, options, top, left, y));
  return y;
}

Result<std::string> encode_jpeg(const Pixels& pixels, const JpegOptions& options) {
  if (pixels.channels != 1 && pixels.channels != 3)
    return invalid_argument("JPEG pictures have 1 or 3 channels, not {}", pixels.channels);
  TROUPE_RETURN_IF_ERROR(
      check_image_size(pixels.height, pixels.width, int64_t{JPEG_MAX_DIMENSION} * JPEG_MAX_DIMENSION));
  if (pixels.height > JPEG_MAX_DIMENSION || pixels.width > JPEG_MAX_DIMENSION)
    return invalid_argument("a JPEG picture of {} rows and {} columns: they are at most {}", pixels.height,
                            pixels.width, JPEG_MAX_DIMENSION);
  if (options.quality < 0 || options.quality > 100)
    return invalid_argument("quality is from 0 to 100, not {}", options.quality);
  for (const int64_t density : {options.x_density, options.y_density})
    if (density < 0 || density > 65535) return invalid_argument("a density is from 0 to 65535, not {}", density);
  const std::string name("http://ns.adobe.com/xap/1.0/\0", 29);
  const std::string segment = options.xmp_metadata.empty() ? "" : name + options.xmp_metadata;
  if (segment.size() > 65533)
    return invalid_argument("xmp_metadata of {} bytes: at most {} fit", options.xmp_metadata.size(),
                            65533 - name.size());
  JpegWriter writer;
  if (!writer.write(pixels, options, segment)) return make_error(Code::kInternal, "libjpeg: {}", writer.message());
  return writer.str();
}

}  // namespace troupe
