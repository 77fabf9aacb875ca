// SPDX-License-Identifier: Apache-2.0
// Ops on images: types, threads, ties and bad input.
#include <set>

#include "tests/ops/check_op.h"
#include "tests/ops/op_case.h"

namespace troupe::testing {
namespace {

void check_image_fails(const std::string& op, const std::vector<Tensor>& inputs, const std::string& words,
                       Attrs attrs = {}) {
  const auto r = apply_unshaped(op, inputs, attrs);
  INFO(op << " " << words);
  REQUIRE_FALSE(r.ok());
  CHECK_THAT(r.error().message, Catch::Contains(words));
  CHECK_FALSE(apply(op, inputs, attrs).ok());
}

}  // namespace

TEST_CASE("images of integers are resized as floats, or exactly by the nearest pixel", "[images]") {
  const Tensor bytes = Tensor::of<uint8_t>({0, 100, 200, 255}, {1, 1, 4, 1}),
               big = L({INT64_MAX, 1, 2, 3}, {1, 1, 4, 1});
  CHECK(apply("ResizeBilinear", {bytes, I({1, 2})})->identical(F({0, 200}, {1, 1, 2, 1})));
  CHECK(apply("ResizeArea", {bytes, I({1, 2})})->identical(F({50, 227.5}, {1, 1, 2, 1})));
  CHECK(apply("ResizeNearestNeighbor", {big, I({1, 2})})->identical(L({INT64_MAX, 2}, {1, 1, 2, 1})));
}

TEST_CASE("images are the same on two threads", "[images]") {
  const Tensor x = random_tensor<float>({3, 65, 40, 3}, 1), size = I({90, 131});
  const Tensor boxes = random_tensor<float>({50, 4}, 2), at = *Tensor::zeros(DType::kInt32, {50});
  const auto same = [](const std::string& op, const std::vector<Tensor>& inputs) {
    INFO(op);
    CHECK(apply(op, inputs, {}, 0, 1)->identical(*apply(op, inputs, {}, 0, 2)));
  };
  for (const char* op : {"ResizeBilinear", "ResizeBicubic", "ResizeArea", "ResizeNearestNeighbor"}) same(op, {x, size});
  for (const char* op : {"ResizeBilinearGrad", "ResizeBicubicGrad"})
    same(op, {x, random_tensor<float>({3, 80, 31, 3}, 3)});
  same("CropAndResize", {x, boxes, at, I({7, 9})});
  same("AdjustContrastv2", {x, F({0.5}, {})});
  same("AdjustHue", {x, F({0.3f}, {})});
}

TEST_CASE("random parts of images are of the size and ratio wished for and hold enough of an object",
          "[images][random]") {
  const Tensor size = I({40, 50, 3}), object = F({0.2f, 0.3f, 0.6f, 0.9f}, {1, 1, 4}), share = F({0.5}, {});
  const Attrs wishes = {{"area_range", std::vector<float>{0.2f, 0.5f}}};
  std::set<std::vector<double>> places;
  for (int32_t seed = 0; seed < 200; ++seed) {
    const std::vector<Tensor> inputs = {size, object, share, I({seed, 2})};
    const auto part = [&](int port) {
      return doubles(*apply("StatelessSampleDistortedBoundingBox", inputs, wishes, port));
    };
    const auto begin = part(0), sizes = part(1);
    places.insert(begin);
    const double ratio = sizes[1] / sizes[0], area = sizes[0] * sizes[1] / 2000;
    CHECK((ratio > 0.7 && ratio < 1.4 && area >= 0.2 && area <= 0.5));
    CHECK((begin[0] >= 0 && begin[1] >= 0 && begin[0] + sizes[0] <= 40 && begin[1] + sizes[1] <= 50));
    const double high = std::min(begin[0] + sizes[0], 24.0) - std::max(begin[0], 8.0);
    const double wide = std::min(begin[1] + sizes[1], 45.0) - std::max(begin[1], 15.0);
    CHECK(high * wide >= 0.5 * 16 * 30 - 1e-3);
    CHECK((begin[2] == 0 && sizes[2] == -1));
  }
  CHECK(places.size() > 100);
  // What cannot be covered leaves the whole image, as padding among boxes does.
  for (const Tensor& empty : {F({0, 0, 0, 0}, {1, 1, 4}), F({0.5f, 0.5f, 0.4f, 0.9f}, {1, 1, 4})})
    CHECK(apply("StatelessSampleDistortedBoundingBox", {size, empty, share, I({1, 2})}, wishes, 1)
              ->identical(I({40, 50, -1})));
  check_image_fails("SampleDistortedBoundingBoxV2", {size, F({}, {1, 0, 4}), share}, "no bounding_boxes");
  check_image_fails("SampleDistortedBoundingBoxV2", {size, F({0, 0, 2, 1}, {1, 1, 4}), share}, "not inside");
  check_image_fails("SampleDistortedBoundingBoxV2", {I({0, 5, 3}), object, share}, "image_size");
  check_image_fails("SampleDistortedBoundingBoxV2", {size, object, share}, "must be a range",
                    {{"area_range", std::vector<float>{0.5f}}});
}

TEST_CASE("boxes of equal scores are taken in their order, empty ones hide nothing", "[images]") {
  const Tensor boxes = F({0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1}, {4, 4}), scores = F({1, 1, 1, 1}, {4});
  CHECK(apply("NonMaxSuppression", {boxes, scores, I(9)})->identical(I({0, 2, 3})));
  CHECK(apply("NonMaxSuppression", {boxes, scores, I(0)})->identical(I({})));
}

TEST_CASE("glimpses beyond the image have noise of its range", "[images]") {
  const Tensor x = F({-2, 5, 3, 0.5}, {1, 2, 2, 1});
  for (const bool uniform : {false, true}) {
    const Attrs attrs = {{"noise", std::string()}, {"uniform_noise", uniform}};
    const auto y = apply("ExtractGlimpse", {x, I({6, 6}), F({0, 0}, {1, 2})}, attrs);
    REQUIRE(y.ok());
    const auto v = doubles(*y);
    CHECK((v[14] == -2 && v[15] == 5 && v[20] == 3 && v[21] == 0.5));
    std::set<double> values(v.begin(), v.end());
    CHECK((*values.begin() >= -2 && *values.rbegin() <= 5));
    CHECK(values.size() > 12);
  }
}

TEST_CASE("ops on images refuse what does not fit", "[images][bad_input]") {
  const Tensor x = F({1, 2, 3, 4}, {1, 2, 2, 1}), box = F({0, 0, 1, 1}, {1, 4}), size = I({1, 1});
  check_image_fails("ResizeBilinear", {x, I({0, 1})}, "two numbers above 0, not [0,1]");
  check_image_fails("ResizeBilinear", {x, size}, "both true", {{"align_corners", true}, {"half_pixel_centers", true}});
  check_image_fails("ResizeNearestNeighbor", {x, I({INT32_MAX, INT32_MAX})}, "");
  CHECK_FALSE(apply("ResizeArea", {F({}, {1, 0, 2, 1}), size}).ok());
  CHECK_FALSE(apply("ResizeBicubic", {F({1}, {1}), size}).ok());
  CHECK_FALSE(apply("ResizeBilinearGrad", {x, F({1, 2}, {2, 1, 1, 1})}).ok());
  check_image_fails("DrawBoundingBoxes", {x, F({1}, {1, 1, 1})}, "[batch,n,4]");
  check_image_fails("DrawBoundingBoxesV2", {F({}, {1, 1, 0, 3}), F({0, 0, 1, 1}, {1, 1, 4}), F({1}, {1, 1})},
                    "3 channels");
  const Tensor far = F({NAN, 0, NAN, 1, -INFINITY, -1e30f, INFINITY, 1e30f}, {1, 2, 4});
  CHECK(apply("DrawBoundingBoxes", {x, far})->identical(x));
  const Tensor scale = F({1, 1}, {2});
  check_image_fails("ScaleAndTranslate", {x, size, scale, scale}, "'x' is none of", {{"kernel_type", "x"}});
  CHECK_FALSE(apply("ScaleAndTranslate", {x, size, F({0, 1}, {2}), scale}).ok());
  CHECK_FALSE(apply("ScaleAndTranslate", {x, size, scale, F({NAN, 1}, {2})}).ok());
  check_image_fails("ScaleAndTranslate", {x, size, scale, F({1}, {1})}, "two numbers");
  const auto crop_fails = [&](const Tensor& boxes, const Tensor& at, const Tensor& crop, const char* words) {
    const auto r = apply_unshaped("CropAndResize", {x, boxes, at, crop});
    REQUIRE_FALSE(r.ok());
    CHECK_THAT(r.error().message, Catch::Contains(words));
  };
  crop_fails(box, I({1}), size, "index 1 at position 0 is not in [0, 1)");
  crop_fails(box, I({0, 0}), size, "boxes [1,4] and box_ind [2]");
  crop_fails(box, I({0}), I({1, -1}), "crops of 1 by -1");
  CHECK(apply("CropAndResize", {x, F({NAN, 0, 1, 1}, {1, 4}), I({0}), size})->identical(F({0}, {1, 1, 1, 1})));
  check_image_fails("RGBToHSV", {D({1, 2})}, "3 channels");
  check_image_fails("AdjustHue", {F({1, 2, 3}, {3}), F({1}, {1})}, "scalar");
  CHECK_FALSE(apply("AdjustContrastv2", {F({1}, {1}), F({1}, {})}).ok());
  CHECK_FALSE(apply("NonMaxSuppressionV2", {box, F({1}, {1}), I(1), F({2}, {})}).ok());
  check_image_fails("NonMaxSuppression", {box, F({1, 2}, {2}), I(1)}, "boxes [1,4] and scores [2]");
  const Tensor at = F({0, 0}, {1, 2});
  check_image_fails("ExtractGlimpse", {x, size, F({0, 0}, {2, 1})}, "[2,1]");
  check_image_fails("ExtractGlimpse", {x, I({1}), at}, "[height, width]");
  check_image_fails("ExtractGlimpse", {x, I({1, -1}), at}, "-1");
  check_image_fails("ExtractGlimpse", {x, size, at}, "contradict", {{"noise", std::string("zero")}});
  check_image_fails("ExtractGlimpseV2", {x, size, at}, "not 'pink'",
                    {{"noise", std::string("pink")}, {"uniform_noise", false}});
  CHECK_FALSE(apply("ExtractGlimpse", {x, size, F({NAN, 0}, {1, 2})}).ok());
}

}  // namespace troupe::testing
