// SPDX-License-Identifier: Apache-2.0
// GIF pictures. Source: CompuServe, "Graphics Interchange Format, version 89a", 1990; how frames make pictures is as in
// TensorFlow: the size is that of the largest frame, and a frame stands on what the frames before it left.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "io/image.h"

namespace troupe {
namespace {

/// A frame as the file has it; the views point into the file.
struct GifFrame {
  int64_t left = 0, top = 0, width = 0, height = 0;
  bool interlaced = false;
  int transparent = -1;      // this colour leaves what was there before
  std::string_view colours;  // three bytes each
  int code_bits = 0;
  std::vector<std::string_view> blocks;  // of codes
};

/// Takes the file apart, from its beginning to its end.
class GifReader {
 public:
  explicit GifReader(std::string_view bytes) : rest_(bytes) {}

  /// The frames in order; all that are whole if there is one. Errors: the data end too early, blocks that GIF has not.
  Result<std::vector<GifFrame>> frames() {
    std::vector<GifFrame> out;
    if (Status s = read(out); !s.ok() && out.empty()) return s.error();
    return out;
  }

 private:
  Status read(std::vector<GifFrame>& out) {
    TROUPE_ASSIGN(const std::string_view head, take(13));
    TROUPE_ASSIGN(const std::string_view all, colours(head[10]));
    for (int transparent = -1;;) {
      TROUPE_ASSIGN(const std::string_view kind, take(1));
      if (kind[0] == ';') return {};
      if (kind[0] == '!') {
        TROUPE_ASSIGN(const std::string_view label, take(1));
        TROUPE_ASSIGN(const auto data, blocks());
        if (label[0] == '\xf9' && !data.empty() && data[0].size() == 4)
          transparent = data[0][0] & 1 ? static_cast<uint8_t>(data[0][3]) : -1;
      } else if (kind[0] == ',') {
        TROUPE_ASSIGN(GifFrame frame, image());
        if (frame.colours.empty()) frame.colours = all;
        frame.transparent = std::exchange(transparent, -1);
        out.push_back(std::move(frame));
      } else {
        return invalid_argument("a block of kind {}", static_cast<int>(static_cast<uint8_t>(kind[0])));
      }
    }
  }

  Result<std::string_view> take(size_t count) {
    if (count > rest_.size()) return invalid_argument("the data end too early");
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return out;
  }
  /// The colours that these flags tell of; none where they say so.
  Result<std::string_view> colours(char flags) {
    if (!(flags & 0x80)) return std::string_view();
    return take(size_t{3} << ((flags & 7) + 1));
  }
  /// Data in pieces of at most 255 bytes, up to an empty one.
  Result<std::vector<std::string_view>> blocks() {
    std::vector<std::string_view> out;
    for (;;) {
      TROUPE_ASSIGN(const std::string_view size, take(1));
      if (size[0] == 0) return out;
      TROUPE_ASSIGN(const std::string_view block, take(static_cast<uint8_t>(size[0])));
      out.push_back(block);
    }
  }
  Result<GifFrame> image() {
    TROUPE_ASSIGN(const std::string_view head, take(9));
    const auto number = [&](int at) {
      return static_cast<uint8_t>(head[at]) | int64_t{static_cast<uint8_t>(head[at + 1])} << 8;
    };
    GifFrame out;
    out.left = number(0);
    out.top = number(2);
    out.width = number(4);
    out.height = number(6);
    out.interlaced = (head[8] & 0x40) != 0;
    TROUPE_ASSIGN(out.colours, colours(head[8]));
    TROUPE_ASSIGN(const std::string_view bits, take(1));
    out.code_bits = static_cast<uint8_t>(bits[0]);
    if (out.code_bits < 1 || out.code_bits > 8) return invalid_argument("codes of {} bits", out.code_bits);
    TROUPE_ASSIGN(out.blocks, blocks());
    return out;
  }

  std::string_view rest_;
};

/// The pixels of a frame by Lempel, Ziv and Welch's codes.
class Unpacker {
 public:
  explicit Unpacker(const GifFrame& frame) : frame_(frame), clear_(1 << frame.code_bits) {}

  /// Sets all of `pixels`. Errors: the codes end too early or are none.
  Status unpack(std::span<uint8_t> pixels) {
    size_t done = 0;
    start();
    int last = -1;  // the code before
    while (done < pixels.size()) {
      const int code = next();
      if (code < 0 || code == clear_ + 1)
        return invalid_argument("after {} of {} pixels the data end too early", done, pixels.size());
      if (code == clear_) {
        start();
        last = -1;
        continue;
      }
      if (code > count_ || (last < 0 && code > clear_) || (code == count_ && count_ == kMost))
        return invalid_argument("code {} of {} after {} pixels", code, count_, done);
      // The code that is about to be made is the last one and its own first pixel.
      const uint8_t first = first_of(code == count_ ? last : code);
      if (last >= 0 && count_ < kMost) {
        before_[count_] = static_cast<uint16_t>(last);
        pixel_[count_] = first;
        length_[count_] = length_of(last) + 1;
        ++count_;
        if (count_ == 1 << bits_ && bits_ < 12) ++bits_;
      }
      done = write(code, pixels, done);
      last = code;
    }
    return {};
  }

 private:
  static constexpr int kMost = 4096;

  void start() {
    bits_ = frame_.code_bits + 1;
    count_ = clear_ + 2;
  }
  /// The next code; -1 at the end of the data.
  int next() {
    while (held_ < bits_) {
      if (block_ == frame_.blocks.size()) return -1;
      const std::string_view block = frame_.blocks[block_];
      bits_held_ |= uint32_t{static_cast<uint8_t>(block[byte_])} << held_;
      held_ += 8;
      if (++byte_ < block.size()) continue;
      byte_ = 0;
      ++block_;
    }
    const auto code = static_cast<int>(bits_held_ & ((1u << bits_) - 1));
    bits_held_ >>= bits_;
    held_ -= bits_;
    return code;
  }
  int length_of(int code) const { return code < clear_ ? 1 : length_[code]; }
  uint8_t first_of(int code) const {
    while (code >= clear_) code = before_[code];
    return static_cast<uint8_t>(code);
  }
  /// Writes the pixels of a code, the last first, as far as there is room; how many there are then.
  size_t write(int code, std::span<uint8_t> pixels, size_t at) const {
    const size_t end = at + static_cast<size_t>(length_of(code));
    for (size_t to = end; to-- > at; code = before_[code]) {
      const uint8_t pixel = code < clear_ ? static_cast<uint8_t>(code) : pixel_[code];
      if (to < pixels.size()) pixels[to] = pixel;
      if (code < clear_) break;
    }
    return std::min(end, pixels.size());
  }

  const GifFrame& frame_;
  const int clear_;
  int bits_ = 0, count_ = 0;
  // By code: the code of all its pixels but the last, the last one, how many there are.
  std::array<uint16_t, kMost> before_ = {};
  std::array<uint8_t, kMost> pixel_ = {};
  std::array<int, kMost> length_ = {};
  // What was read of the codes.
  size_t block_ = 0, byte_ = 0;
  uint32_t bits_held_ = 0;
  int held_ = 0;
};

/// The row of the picture that stored row i is: interlaced ones are every eighth, the fourth between them, and so on.
std::vector<int64_t> row_order(const GifFrame& frame) {
  std::vector<int64_t> rows;
  for (const auto& [first, step] : {std::pair{0, 8}, {4, 8}, {2, 4}, {1, 2}})
    for (int64_t i = first; frame.interlaced && i < frame.height; i += step) rows.push_back(i);
  for (int64_t i = 0; !frame.interlaced && i < frame.height; ++i) rows.push_back(i);
  return rows;
}

/// Puts a frame on the picture [height, width, 3] at `out`.
Status draw(const GifFrame& frame, int64_t height, int64_t width, uint8_t* out,
            const std::shared_ptr<Allocator>& allocator) {
  if (frame.width == 0 || frame.height == 0) return {};
  if (frame.colours.empty()) return invalid_argument("it has no colours");
  TROUPE_ASSIGN(Tensor pixels, Tensor::make(DType::kUInt8, Shape{frame.width * frame.height}, allocator));
  TROUPE_RETURN_IF_ERROR(Unpacker(frame).unpack({pixels.mutable_data<uint8_t>(), pixels.bytes()}));
  const uint8_t* from = pixels.data<uint8_t>();
  for (const int64_t row : row_order(frame))
    for (int64_t column = 0; column < frame.width; ++column) {
      const int colour = *from++;
      const int64_t y = frame.top + row, x = frame.left + column;
      if (colour == frame.transparent || y >= height || x >= width) continue;
      if (static_cast<size_t>(colour) >= frame.colours.size() / 3)
        return invalid_argument("colour {} of {}", colour, frame.colours.size() / 3);
      std::memcpy(out + (y * width + x) * 3, frame.colours.data() + colour * 3, 3);
    }
  return {};
}

}  // namespace

Result<Tensor> decode_gif(std::string_view bytes, const ImageOptions& options,
                          const std::shared_ptr<Allocator>& allocator) {
  if (options.channels != 0 && options.channels != 3)
    return invalid_argument("channels of GIF pictures are 0 or 3, not {}", options.channels);
  const auto damaged = [&](const Error& error) {
    return invalid_argument("a GIF picture of {} bytes: {}", bytes.size(), error.message);
  };
  auto frames = GifReader(bytes).frames();
  if (!frames.ok()) return damaged(frames.error());
  if (frames->empty()) return invalid_argument("a GIF picture of {} bytes without a frame", bytes.size());
  int64_t height = 0, width = 0;
  for (const GifFrame& f : *frames) {
    height = std::max(height, f.height);
    width = std::max(width, f.width);
  }
  const auto count = options.first_frame ? int64_t{1} : static_cast<int64_t>(frames->size());
  TROUPE_RETURN_IF_ERROR(check_image_size(height, width, options.most_pixels / count));
  TROUPE_ASSIGN(Tensor y, Tensor::zeros(DType::kUInt8, Shape{count, height, width, 3}, allocator));
  const int64_t size = height * width * 3;
  for (int64_t i = 0; i < count; ++i) {
    uint8_t* out = y.mutable_data<uint8_t>() + i * size;
    if (i > 0) std::copy_n(out - size, size, out);
    if (const Status s = draw((*frames)[static_cast<size_t>(i)], height, width, out, allocator); !s.ok())
      return invalid_argument("a GIF picture of {} bytes: frame {}: {}", bytes.size(), i, s.error().message);
  }
  return y;
}

}  // namespace troupe
