// SPDX-License-Identifier: Apache-2.0
// Pictures: what was written is read, in other channels and bits too; damaged ones are errors, never crashes.
#include "io/image.h"

#include <catch2/catch.hpp>
#include <random>

using namespace troupe;

namespace {

/// Pixels that change slowly, so that JPEG keeps them.
Tensor picture(int64_t height, int64_t width, int64_t channels, DType dtype = DType::kUInt8) {
  Tensor t = *Tensor::make(dtype, Shape{height, width, channels});
  for (int64_t i = 0; i < t.elements(); ++i) {
    const int64_t place = i / channels, value = 20 + 5 * (place / width) + 4 * (place % width) + 30 * (i % channels);
    if (dtype == DType::kUInt8) t.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(value);
    else t.mutable_data<uint16_t>()[i] = static_cast<uint16_t>(value * 250 + 3);
  }
  return t;
}

Pixels pixels(const Tensor& t) { return {t.raw(), t.dim(0), t.dim(1), t.dim(2), t.dtype() == DType::kUInt8 ? 8 : 16}; }

std::string png(const Tensor& t) { return encode_png(pixels(t)).value(); }
std::string jpeg(const Tensor& t, JpegOptions options = {}) { return encode_jpeg(pixels(t), options).value(); }

ImageOptions channels(int64_t n, DType dtype = DType::kUInt8) {
  ImageOptions o;
  o.channels = n;
  o.dtype = dtype;
  return o;
}

Result<Tensor> decode(std::string_view bytes, const ImageOptions& options = {}) {
  return decode_image(bytes, image_format(bytes), options);
}

/// A BMP of these pixels, blue first, from the bottom up, rows filled to words.
std::string bmp(int32_t width, int32_t height, int bits, const std::string& rows) {
  std::string out = "BM";
  const auto put = [&](int64_t v, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(v >> (8 * i));
  };
  put(54 + static_cast<int64_t>(rows.size()), 4);
  put(0, 4);
  put(54, 4);
  put(40, 4);
  put(width, 4);
  put(height, 4);
  put(1, 2);
  put(bits, 2);
  for (int i = 0; i < 6; ++i) put(0, 4);
  return out + rows;
}

/// Numbers of so many bits each, the lowest first, in blocks of up to 255 bytes as GIF has them.
std::string packed(const std::vector<std::pair<int, int>>& codes) {
  std::string all, out;
  uint32_t held = 0;
  int bits = 0;
  for (const auto& [code, width] : codes) {
    held |= static_cast<uint32_t>(code) << bits;
    for (bits += width; bits >= 8; bits -= 8, held >>= 8) all += static_cast<char>(held);
  }
  all += static_cast<char>(held);
  for (size_t at = 0; at < all.size(); at += 255) {
    const std::string block = all.substr(at, 255);
    out += static_cast<char>(block.size());
    out += block;
  }
  return out + '\0';
}

/// A frame of pixels of 4 colours, each of which the codes begin anew.
std::string frame(int left, int top, int width, int height, const std::string& pixels, bool interlaced = false) {
  std::string out = ",";
  for (int v : {left, top, width, height}) out += {static_cast<char>(v), static_cast<char>(v >> 8)};
  std::vector<std::pair<int, int>> codes;
  for (char p : pixels) codes.insert(codes.end(), {{4, 3}, {p - '0', 3}});
  return out + (interlaced ? '\x40' : '\0') + '\2' + packed(codes);
}

/// Colour i is i, 10 i, 20 i. The size in the head counts for nothing.
std::string gif(const std::string& frames) {
  std::string out("GIF89a\1\0\1\0\x81\0\0", 13);
  for (int i = 0; i < 4; ++i) out += {static_cast<char>(i), static_cast<char>(10 * i), static_cast<char>(20 * i)};
  return out + frames + ';';
}

/// From now on colour i is transparent.
std::string transparent(int i) { return std::string("!\xf9\4\1\0\0", 6) + static_cast<char>(i) + '\0'; }

/// The first channel of each pixel as a digit.
std::string digits(const Tensor& t) {
  std::string out;
  for (int64_t i = 0; i < t.elements(); i += 3) out += static_cast<char>('0' + t.data<uint8_t>()[i]);
  return out;
}

int64_t largest_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  int64_t most = 0;
  for (int64_t i = 0; i < a.elements(); ++i)
    most = std::max<int64_t>(most, std::abs(a.data<uint8_t>()[i] - b.data<uint8_t>()[i]));
  return most;
}

void check_fails(const Result<Tensor>& r, const std::string& words) {
  INFO(words);
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().code == Code::kInvalidArgument);
  CHECK_THAT(r.error().message, Catch::Contains(words));
}

}  // namespace

TEST_CASE("PNG pictures come back as they were", "[image]") {
  for (int64_t n : {1, 2, 3, 4})
    for (DType dtype : {DType::kUInt8, DType::kUInt16}) {
      const Tensor x = picture(5, 7, n, dtype);
      for (int64_t compression : {-1, 0, 9}) {
        const auto bytes = encode_png(pixels(x), compression);
        REQUIRE(bytes.ok());
        CHECK(image_format(*bytes) == ImageFormat::kPng);
        CHECK(decode(*bytes, channels(0, dtype))->identical(x));
      }
    }
}

TEST_CASE("PNG pictures are read in other channels and bits", "[image]") {
  const Tensor grey = Tensor::of<uint8_t>({0, 100, 255}, {1, 3, 1}), red = Tensor::of<uint8_t>({200, 0, 0}, {1, 1, 3});
  CHECK(decode(png(grey), channels(3))
            ->identical(Tensor::of<uint8_t>({0, 0, 0, 100, 100, 100, 255, 255, 255}, {1, 3, 3})));
  CHECK(decode(png(grey), channels(2))->identical(Tensor::of<uint8_t>({0, 255, 100, 255, 255, 255}, {1, 3, 2})));
  CHECK(decode(png(red), channels(4))->identical(Tensor::of<uint8_t>({200, 0, 0, 255}, {1, 1, 4})));
  CHECK(decode(png(red), channels(1))->data<uint8_t>()[0] == Approx(0.299 * 200).margin(1));
  CHECK(decode(png(grey), channels(1, DType::kUInt16))->identical(Tensor::of<uint16_t>({0, 25700, 65535}, {1, 3, 1})));
  const Tensor wide = Tensor::of<uint16_t>({0x1234, 0xffff}, {2, 1, 1});
  CHECK(decode(png(wide))->identical(Tensor::of<uint8_t>({0x12, 0xff}, {2, 1, 1})));
}

TEST_CASE("JPEG pictures come back nearly as they were", "[image]") {
  for (int64_t n : {1, 3})
    for (const bool variant : {false, true}) {
      const Tensor x = picture(17, 18, n);
      JpegOptions options;
      options.progressive = options.optimize_size = variant;
      options.chroma_downsampling = false;
      options.xmp_metadata = variant ? "<x/>" : "";
      const std::string bytes = jpeg(x, options);
      CHECK(image_format(bytes) == ImageFormat::kJpeg);
      CHECK((bytes.find("ns.adobe.com") != std::string::npos) == variant);
      ImageOptions exact;
      exact.exact_dct = true;
      CHECK(largest_difference(*decode(bytes, exact), x) < 6);
      CHECK(largest_difference(*decode(bytes), x) < 8);
      const auto size = jpeg_size(bytes);
      REQUIRE(size.ok());
      CHECK((size->height == 17 && size->width == 18 && size->channels == n));
      CHECK(decode(bytes, channels(4 - n))->shape() == Shape{17, 18, 4 - n});
      CHECK((*decode(bytes, channels(0, DType::kUInt16))).data<uint16_t>()[0] ==
            256 * (*decode(bytes)).data<uint8_t>()[0]);
    }
}

TEST_CASE("JPEG pictures are read in fractions of their size", "[image]") {
  const std::string bytes = jpeg(picture(17, 18, 3));
  for (int64_t ratio : {1, 2, 4, 8}) {
    ImageOptions options;
    options.ratio = ratio;
    CHECK(decode(bytes, options)->shape() == Shape{(17 + ratio - 1) / ratio, (18 + ratio - 1) / ratio, 3});
  }
}

TEST_CASE("a JPEG picture that ends early is an error or repeats its last row", "[image]") {
  const Tensor x = picture(64, 64, 1);
  const std::string bytes = jpeg(x), part = bytes.substr(0, bytes.size() * 3 / 4);
  check_fails(decode(part), "of 64 rows: the data end too early");
  ImageOptions options;
  options.recover_truncated = true;
  options.acceptable_fraction = 0.3f;
  const auto y = decode(part, options);
  REQUIRE(y.ok());
  CHECK(std::equal(y->data<uint8_t>() + 63 * 64, y->data<uint8_t>() + 64 * 64, y->data<uint8_t>() + 62 * 64));
  options.recover_truncated = false;
  const auto black = decode(part, options);
  REQUIRE(black.ok());
  CHECK(black->data<uint8_t>()[20] == y->data<uint8_t>()[20]);
  CHECK(black->data<uint8_t>()[64 * 64 - 1] == 0);
  options.acceptable_fraction = 0.99f;
  CHECK_FALSE(decode(part, options).ok());
}

TEST_CASE("BMP pictures give colours and alpha that they have not, and leave alpha out", "[image]") {
  const std::string grey = bmp(2, 1, 8, "\1\2"), colours = bmp(1, 1, 24, "\1\2\3"), alpha = bmp(1, 1, 32, "\1\2\3\4");
  CHECK(decode(grey, channels(3))->identical(Tensor::of<uint8_t>({1, 1, 1, 2, 2, 2}, {1, 2, 3})));
  CHECK(decode(grey, channels(4))->identical(Tensor::of<uint8_t>({1, 1, 1, 255, 2, 2, 2, 255}, {1, 2, 4})));
  CHECK(decode(colours, channels(4))->identical(Tensor::of<uint8_t>({3, 2, 1, 255}, {1, 1, 4})));
  CHECK(decode(alpha, channels(3))->identical(Tensor::of<uint8_t>({3, 2, 1}, {1, 1, 3})));
}

TEST_CASE("BMP pictures are read from the bottom up and from the top down", "[image]") {
  const std::string rows("\1\2\3\4\5\6\0\0\7\10\11\12\13\14\0\0", 16);
  CHECK(
      decode(bmp(2, 2, 24, rows))->identical(Tensor::of<uint8_t>({9, 8, 7, 12, 11, 10, 3, 2, 1, 6, 5, 4}, {2, 2, 3})));
  CHECK(
      decode(bmp(2, -2, 24, rows))->identical(Tensor::of<uint8_t>({3, 2, 1, 6, 5, 4, 9, 8, 7, 12, 11, 10}, {2, 2, 3})));
  CHECK(
      decode(bmp(1, 2, 32, rows.substr(8)))->identical(Tensor::of<uint8_t>({12, 11, 10, 0, 9, 8, 7, 10}, {2, 1, 4})) ==
      false);
  CHECK(decode(bmp(1, 1, 32, "\1\2\3\4"))->identical(Tensor::of<uint8_t>({3, 2, 1, 4}, {1, 1, 4})));
  CHECK(decode(bmp(3, 1, 8, "\1\2\3"))->identical(Tensor::of<uint8_t>({1, 2, 3}, {1, 3, 1})));
  check_fails(decode(bmp(3, 2, 8, "\1\2\3")), "2 rows of 4 bytes from byte 54 on do not fit");
  check_fails(decode(bmp(3, 1, 4, "\1\2\3")), "4 bits a pixel");
  check_fails(decode(bmp(-3, 1, 8, "\1\2\3")), "1 rows and -3 columns");
  check_fails(decode(bmp(1, INT32_MIN, 8, "\1")), "more than");
  check_fails(decode(bmp(3, 1, 24, std::string(12, 'x')), channels(1)), "channels is 1, but the BMP picture has 3");
  check_fails(decode(bmp(3, 1, 8, "\1\2\3"), channels(2)), "channels is 2, but the BMP picture has 1");
}

TEST_CASE("GIF pictures have frames that stand on one another", "[image]") {
  const Tensor one = *decode(gif(frame(0, 0, 3, 2, "012312")));
  CHECK(one.shape() == Shape{1, 2, 3, 3});
  CHECK(digits(one) == "012312");
  CHECK(one.data<uint8_t>()[3 * 3 + 2] == 60);
  const std::string more = gif(frame(0, 0, 3, 2, "111111") + transparent(2) + frame(1, 1, 2, 1, "32") +
                               std::string("!\xfe\3abc\0", 7) + frame(2, 0, 1, 2, "20"));
  const Tensor y = *decode(more);
  CHECK(y.shape() == Shape{3, 2, 3, 3});
  CHECK(digits(y) ==
        "111111"
        "111131"
        "112130");
  ImageOptions first;
  first.first_frame = true;
  CHECK(digits(*decode(more, first)) == "111111");
  CHECK(digits(*decode(more.substr(0, more.size() - 2))) ==
        "111111"
        "111131");  // the last one is cut
  // The first frame does not cover the picture, and a later one is beyond its edge.
  CHECK(digits(*decode(gif(frame(1, 1, 2, 1, "12") + frame(0, 0, 1, 3, "321") + frame(1, 2, 2, 1, "33")))) ==
        "000100"
        "302110"
        "302113");
  CHECK(digits(*decode(gif(transparent(1) + frame(0, 0, 3, 1, "123")))) == "023");
  CHECK(digits(*decode(gif(frame(0, 0, 1, 9, "012301230", true)))) == "013223001");
}

TEST_CASE("GIF codes stand for rows of pixels seen before", "[image]") {
  const auto coded = [](const std::vector<std::pair<int, int>>& codes, int width) {
    return gif(std::string(",\0\0\0\0", 5) + static_cast<char>(width) + std::string("\0\1\0\0\2", 5) + packed(codes));
  };
  // Each code is the one that it makes; with code 7 there are 8, and codes get longer.
  CHECK(digits(*decode(coded({{4, 3}, {1, 3}, {6, 3}, {7, 3}, {8, 4}}, 10))) == "1111111111");
  CHECK(digits(*decode(coded({{1, 3}, {2, 3}, {6, 3}, {7, 4}, {4, 4}, {3, 3}}, 7))) == "1212213");
  CHECK(digits(*decode(coded({{1, 3}, {2, 3}, {6, 3}, {0, 3}}, 3))) == "121");  // what is too much is left out
  check_fails(decode(coded({{4, 3}, {6, 3}}, 2)), "code 6 of 6 after 0 pixels");
  check_fails(decode(coded({{1, 3}, {7, 3}}, 2)), "code 7 of 6 after 1 pixels");
  check_fails(decode(coded({{1, 3}, {5, 3}}, 2)), "frame 0: after 1 of 2 pixels the data end too early");
  check_fails(decode(coded({{1, 3}}, 5)), "the data end too early");
}

TEST_CASE("every beginning of a picture is an error", "[image][bad_input]") {
  JpegOptions progressive;
  progressive.progressive = true;
  const Tensor x = picture(9, 10, 3);
  for (const std::string& whole : {png(x), jpeg(x), jpeg(x, progressive), bmp(2, 1, 32, "abcdefgh"),
                                   gif(transparent(1) + frame(0, 0, 3, 2, "012301"))}) {
    REQUIRE(decode(whole).ok());
    const size_t end = image_format(whole) == ImageFormat::kJpeg ? whole.size() - 2 : whole.size();
    for (size_t n = 0; n + 4 < end; ++n) {
      INFO(n << " bytes of " << whole.size());
      const auto r = decode(std::string(whole, 0, n));
      REQUIRE_FALSE(r.ok());
      CHECK_FALSE(r.error().message.empty());
    }
  }
}

TEST_CASE("pictures with changed bytes are errors or pictures", "[image][bad_input]") {
  std::mt19937 random(1);
  const Tensor x = picture(9, 10, 3);
  for (const std::string& whole :
       {png(x), jpeg(x), bmp(2, 1, 32, "abcdefgh"), gif(transparent(1) + frame(0, 0, 3, 2, "012301", true))})
    for (int round = 0; round < 300; ++round) {
      std::string bytes = whole;
      for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
      ImageOptions options;
      options.most_pixels = 1 << 16;
      const auto r = decode(bytes, options);
      CHECK((r.ok() || !r.error().message.empty()));
    }
}

TEST_CASE("a memory limit holds for pictures and for what is kept of their scans", "[image][bad_input]") {
  const auto limited = make_caching_allocator(int64_t{1} << 16);
  const auto fails = [&](const std::string& bytes) {
    const auto r = decode_image(bytes, image_format(bytes), {}, limited);
    return !r.ok() && r.error().code == Code::kResourceExhausted;
  };
  JpegOptions progressive;
  progressive.progressive = true;
  const Tensor small = picture(150, 150, 1), large = picture(300, 300, 1);
  CHECK_FALSE(fails(jpeg(small)));
  CHECK(fails(jpeg(small, progressive)));
  CHECK(fails(jpeg(large)));
  CHECK(fails(png(large)));
  CHECK(fails(gif(frame(0, 0, 300, 300, "1"))));
  CHECK(fails(bmp(300, 300, 8, std::string(90000, 'x'))));
}

TEST_CASE("pictures and options that are none are refused", "[image][bad_input]") {
  const Tensor x = picture(4, 5, 3);
  check_fails(decode(""), "0 bytes are not a PNG, JPEG, GIF or BMP picture");
  check_fails(decode("hello"), "5 bytes, first 68 65 6c 6c 6f, are no");
  check_fails(decode("GIF89a"), "a GIF picture of 6 bytes: the data end too early");
  check_fails(decode(gif("")), "without a frame");
  check_fails(decode(gif("x")), "a block of kind 120");
  check_fails(decode(gif(frame(0, 0, 0, 1, ""))), "1 rows and 0 columns");
  check_fails(decode(gif(frame(0, 0, 65535, 65535, "1"))), "more than");
  check_fails(decode(gif(frame(0, 0, 1, 1, "1")), channels(1)), "channels of GIF pictures are 0 or 3, not 1");
  check_fails(decode("GIF89a\1\1\1\1" + std::string(3, '\0') + frame(0, 0, 1, 1, "1") + ";"), "it has no colours");
  check_fails(decode(png(x), channels(5)), "0 to 4, not 5");
  check_fails(decode(jpeg(x), channels(4)), "0, 1 or 3, not 4");
  ImageOptions small, ratio;
  small.most_pixels = 19;
  ratio.ratio = 3;
  check_fails(decode(png(x), small), "4 rows and 5 columns: more than 19 pixels");
  check_fails(decode(jpeg(x), small), "more than 19 pixels");
  check_fails(decode(jpeg(x), ratio), "not 3");
  CHECK_FALSE(encode_png(pixels(picture(1, 1, 5))).ok());
  CHECK_FALSE(encode_png(pixels(picture(0, 1, 1))).ok());
  CHECK_FALSE(encode_png(pixels(x), 10).ok());
  CHECK_FALSE(encode_jpeg(pixels(picture(1, 1, 4)), {}).ok());
  JpegOptions options;
  options.quality = 101;
  CHECK_FALSE(encode_jpeg(pixels(x), options).ok());
  options = {};
  options.x_density = 70000;
  CHECK_FALSE(encode_jpeg(pixels(x), options).ok());
  options = {};
  options.xmp_metadata.assign(70000, 'x');
  CHECK_FALSE(encode_jpeg(pixels(x), options).ok());
}
