// SPDX-License-Identifier: Apache-2.0
// Ops that decode and encode pictures. The formats themselves are tested in tests/io/image_test.cpp.
#include "io/image.h"
#include "tests/ops/check_op.h"
#include "tests/ops/op_case.h"

namespace troupe::testing {
namespace {

Tensor bytes(std::initializer_list<uint8_t> v, const Shape& s) { return Tensor::of<uint8_t>(v, s); }

const Tensor kImage = Tensor::of<uint8_t>({0, 50, 100, 150, 200, 250, 25, 75, 125, 175, 225, 255}, {2, 2, 3});

/// A GIF [1,1] of a red pixel, then a blue one.
const std::string kTwoFrames(
    "GIF89a\1\0\1\0\x80\0\0\xff\0\0\0\0\xff"
    ",\0\0\0\0\1\0\1\0\0\2\1\4\0"
    ",\0\0\0\0\1\0\1\0\0\2\1\x0c\0;",
    48);

}  // namespace

TEST_CASE("images are encoded and decoded", "[image_files]") {
  const Tensor png = *apply("EncodePng", {kImage}), jpeg = *apply("EncodeJpeg", {kImage}, {{"quality", int64_t{100}}});
  CHECK(apply("DecodePng", {png})->identical(kImage));
  CHECK(apply("DecodeImage", {png})->identical(kImage));
  CHECK(apply("DecodeJpeg", {png}, {{"channels", int64_t{1}}})->shape() == Shape{2, 2, 1});
  CHECK(apply("DecodeJpeg", {jpeg})->shape() == kImage.shape());
  CHECK(apply("DecodePng", {jpeg})->identical(*apply("DecodeJpeg", {jpeg})));
  CHECK(apply("ExtractJpegShape", {jpeg})->identical(I({2, 2, 3})));
  CHECK(apply("ExtractJpegShape", {jpeg}, {{"output_type", DType::kInt64}})->identical(L({2, 2, 3})));
  const Tensor poor = *apply("EncodeJpegVariableQuality", {kImage, I(1)});
  CHECK(poor.data<std::string>()->size() < jpeg.data<std::string>()->size());
}

TEST_CASE("decoded images have the type asked for", "[image_files]") {
  const Tensor png = *apply("EncodePng", {bytes({0, 51, 255}, {1, 3, 1})});
  CHECK(apply("DecodePng", {png}, {{"dtype", DType::kUInt16}})
            ->identical(Tensor::of<uint16_t>({0, 13107, 65535}, {1, 3, 1})));
  check_close(doubles(*apply("DecodeImage", {png}, {{"dtype", DType::kFloat32}})), {0, 0.2, 1}, 1e-6);
  const Tensor jpeg = *apply("EncodeJpeg", {bytes({255, 255, 255, 255}, {2, 2, 1})});
  check_close(doubles(*apply("DecodeImage", {jpeg}, {{"dtype", DType::kFloat32}})), {1, 1, 1, 1}, 0.02);
}

TEST_CASE("frames of GIF pictures are decoded", "[image_files]") {
  const Tensor gif = text(kTwoFrames);
  const Tensor both = bytes({255, 0, 0, 0, 0, 255}, {2, 1, 1, 3}), first = bytes({255, 0, 0}, {1, 1, 3});
  CHECK(apply("DecodeGif", {gif})->identical(both));
  CHECK(apply("DecodeImage", {gif})->identical(both));
  CHECK(apply("DecodeImage", {gif}, {{"expand_animations", false}})->identical(first));
  check_close(doubles(*apply("DecodeImage", {gif}, {{"dtype", DType::kFloat32}})), {1, 0, 0, 0, 0, 1}, 1e-6);
  const Tensor png = *apply("EncodePng", {kImage});
  CHECK(apply("DecodeGif", {png})->identical(*kImage.reshape(Shape{1, 2, 2, 3})));
}

TEST_CASE("a batch of images is encoded to a batch of strings", "[image_files]") {
  const Tensor batch = *kImage.reshape(Shape{2, 1, 2, 3}), png = *apply("EncodePng", {batch});
  REQUIRE(png.shape() == Shape{2});
  const Tensor second = *apply("DecodePng", {text(png.data<std::string>()[1])});
  CHECK(second.identical(bytes({25, 75, 125, 175, 225, 255}, {1, 2, 3})));
}

TEST_CASE("a JPEG is cut to a window", "[image_files]") {
  const Tensor jpeg = *apply("EncodeJpeg", {kImage}), whole = *apply("DecodeJpeg", {jpeg});
  const Tensor part = *apply("DecodeAndCropJpeg", {jpeg, I({1, 0, 1, 2})});
  CHECK(part.identical(*whole.slice(1, 2)));
  check_kernel_fails("DecodeAndCropJpeg", {jpeg, I({1, 0, 2, 2})}, "crop_window [1,0,2,2] of a picture [2,2,3]");
  check_kernel_fails("DecodeAndCropJpeg", {jpeg, I({0, 0, 0, 1})}, "crop_window [0,0,0,1]");
  check_kernel_fails("DecodeAndCropJpeg", {jpeg, I({0, 0, 1})}, "3 numbers");
}

TEST_CASE("what is no picture is refused, with what it is", "[image_files][bad_input]") {
  const std::string png = *apply("EncodePng", {kImage})->data<std::string>();
  check_kernel_fails("DecodePng", {text("no picture")}, "10 bytes, first 6e 6f 20");
  check_kernel_fails("DecodeImage", {text(png.substr(0, png.size() / 2))}, "a PNG picture of");
  check_kernel_fails("DecodeBmp", {text(png)}, "contents are a PNG picture");
  check_kernel_fails("DecodeAndCropJpeg", {text(png), I({0, 0, 1, 1})}, "contents are a PNG picture");
  check_kernel_fails("DecodePng", {text(kTwoFrames)}, "a GIF picture of 2 frames");
  check_kernel_fails("DecodeImage", {text(kTwoFrames)}, "0 or 3, not 1", {{"channels", int64_t{1}}});
  check_kernel_fails("DecodePng", {Tensor::of<std::string>({png, png})}, "one string, not [2]");
  check_kernel_fails("DecodeImage", {text("GIF89a")}, "GIF");
  check_kernel_fails("EncodePng", {bytes({1, 2}, {1, 2})}, "rank 3");
  check_kernel_fails("EncodePng", {kImage}, "not 10", {{"compression", int64_t{10}}});
  check_kernel_fails("EncodeJpeg", {kImage}, "format of 1 channels for image [2,2,3]", {{"format", "grayscale"}});
  check_kernel_fails("EncodeJpegVariableQuality", {kImage, I(101)}, "not 101");
  CHECK_FALSE(apply("DecodePng", {text(png)}, {{"channels", int64_t{5}}}).ok());
}

}  // namespace troupe::testing
