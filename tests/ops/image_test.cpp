// SPDX-License-Identifier: Apache-2.0
// Ops on images: types, threads, ties and bad input.
#include "tests/ops/check_op.h"
#include "tests/ops/op_case.h"

namespace troupe::testing {
namespace {

void check_fails(const std::string& op, const std::vector<Tensor>& inputs, const std::string& words, Attrs attrs = {}) {
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

TEST_CASE("boxes of equal scores are taken in their order, empty ones hide nothing", "[images]") {
  const Tensor boxes = F({0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1}, {4, 4}), scores = F({1, 1, 1, 1}, {4});
  CHECK(apply("NonMaxSuppression", {boxes, scores, I(9)})->identical(I({0, 2, 3})));
  CHECK(apply("NonMaxSuppression", {boxes, scores, I(0)})->identical(I({})));
}

TEST_CASE("ops on images refuse what does not fit", "[images][bad_input]") {
  const Tensor x = F({1, 2, 3, 4}, {1, 2, 2, 1}), box = F({0, 0, 1, 1}, {1, 4}), size = I({1, 1});
  check_fails("ResizeBilinear", {x, I({0, 1})}, "two numbers above 0, not [0,1]");
  check_fails("ResizeBilinear", {x, size}, "both true", {{"align_corners", true}, {"half_pixel_centers", true}});
  check_fails("ResizeNearestNeighbor", {x, I({INT32_MAX, INT32_MAX})}, "");
  CHECK_FALSE(apply("ResizeArea", {F({}, {1, 0, 2, 1}), size}).ok());
  CHECK_FALSE(apply("ResizeBicubic", {F({1}, {1}), size}).ok());
  CHECK_FALSE(apply("ResizeBilinearGrad", {x, F({1, 2}, {2, 1, 1, 1})}).ok());
  const auto crop_fails = [&](const Tensor& boxes, const Tensor& at, const Tensor& crop, const char* words) {
    const auto r = apply_unshaped("CropAndResize", {x, boxes, at, crop});
    REQUIRE_FALSE(r.ok());
    CHECK_THAT(r.error().message, Catch::Contains(words));
  };
  crop_fails(box, I({1}), size, "index 1 at position 0 is not in [0, 1)");
  crop_fails(box, I({0, 0}), size, "boxes [1,4] and box_ind [2]");
  crop_fails(box, I({0}), I({1, -1}), "crops of 1 by -1");
  CHECK(apply("CropAndResize", {x, F({NAN, 0, 1, 1}, {1, 4}), I({0}), size})->identical(F({0}, {1, 1, 1, 1})));
  check_fails("RGBToHSV", {D({1, 2})}, "3 channels");
  check_fails("AdjustHue", {F({1, 2, 3}, {3}), F({1}, {1})}, "scalar");
  CHECK_FALSE(apply("AdjustContrastv2", {F({1}, {1}), F({1}, {})}).ok());
  CHECK_FALSE(apply("NonMaxSuppressionV2", {box, F({1}, {1}), I(1), F({2}, {})}).ok());
  check_fails("NonMaxSuppression", {box, F({1, 2}, {2}), I(1)}, "boxes [1,4] and scores [2]");
}

}  // namespace troupe::testing
