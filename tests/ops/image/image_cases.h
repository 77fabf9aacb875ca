// SPDX-License-Identifier: Apache-2.0
// Cases of ops on images: sizes, crops, colours, boxes.
#pragma once
#include <array>

#include <cmath>

#include "tests/ops/op_case.h"

namespace troupe::testing {

inline std::vector<OpCase> resize_cases() {
  const Tensor four = F({1, 2, 3, 4}, {1, 2, 2, 1}), row = F({1, 2, 3, 4}, {1, 1, 4, 1}), image = ramp32({2, 3, 4, 2});
  const Attrs align = {{"align_corners", true}}, half = {{"half_pixel_centers", true}};
  std::vector<OpCase> out = {
      {"ResizeBilinear", {four, I({1, 4})}, {}, {F({1, 1.5, 2, 2}, {1, 1, 4, 1})}},
      {"ResizeBilinear", {four, I({2, 4})}, half, {F({1, 1.25, 1.75, 2, 3, 3.25, 3.75, 4}, {1, 2, 4, 1})}},
      {"ResizeBilinear", {four, I({3, 1})}, align, {F({1, 2, 3}, {1, 3, 1, 1})}},
      {"ResizeBilinear", {F({}, {0, 2, 2, 1}), I({1, 1})}, {}, {F({}, {0, 1, 1, 1})}},
      {"ResizeBilinearGrad", {row, four}, {}, {F({2, 8, 0, 0}, {1, 2, 2, 1})}},
      {"ResizeNearestNeighbor", {four, I({1, 4})}, {}, {F({1, 1, 2, 2}, {1, 1, 4, 1})}},
      {"ResizeNearestNeighbor", {four, I({1, 3})}, align, {F({1, 2, 2}, {1, 1, 3, 1})}},
      {"ResizeNearestNeighbor", {I({1, 2, 3, 4}, {1, 1, 4, 1}), I({1, 2})}, half, {I({2, 4}, {1, 1, 2, 1})}},
      {"ResizeNearestNeighbor", {ramp({2, 3, 2, 2}), I({5, 7})}},
      {"ResizeNearestNeighborGrad", {D({1, 2, 3, 4}, {1, 1, 4, 1}), I({1, 2})}, {}, {D({3, 7}, {1, 1, 2, 1})}},
      {"ResizeArea", {row, I({1, 2})}, {}, {F({1.5, 3.5}, {1, 1, 2, 1})}},
      {"ResizeArea", {row, I({2, 2})}, {{"align_corners", true}}, {F({2, 4, 2, 4}, {1, 2, 2, 1})}},
      {"ResizeArea", {row, I({2, 3})}, {}, {F({1.25, 2.5, 3.75, 1.25, 2.5, 3.75}, {1, 2, 3, 1})}},
      {"ResizeBicubic", {F({5, 5, 5, 5}, {1, 2, 2, 1}), I({3, 1})}, half, {F({5, 5, 5}, {1, 3, 1, 1})}},
      {"ResizeBicubicGrad", {row, four}},
      {"ScaleAndTranslate",
       {four, I({1, 4}), F({1, 2}, {2}), F({0, 0}, {2})},
       {{"kernel_type", "triangle"}},
       {F({1, 1.25, 1.75, 2}, {1, 1, 4, 1})},
       false},
      {"ScaleAndTranslate",  // half as large, and a pixel further
       {row, I({1, 3}), F({1, 0.5}, {2}), F({0, 1}, {2})},
       {{"kernel_type", "box"}},
       {F({0, 1.5, 3.5}, {1, 1, 3, 1})},
       false},
      {"ScaleAndTranslateGrad",
       {row, four, F({1, 2}, {2}), F({0, 0}, {2})},
       {{"kernel_type", "triangle"}},
       {F({3.25, 6.75, 0, 0}, {1, 2, 2, 1})},
       false},
  };
  for (const char* kernel : {"lanczos1", "lanczos3", "lanczos5", "gaussian", "keyscubic", "mitchellcubic"})
    out.push_back({"ScaleAndTranslate",
                   {image, I({5, 3}), F({1.6f, 0.7f}, {2}), F({0.2f, -0.3f}, {2})},
                   {{"kernel_type", kernel}},
                   {},
                   false});
  for (const Attrs& attrs : {Attrs(), align, half})
    for (const Tensor& size : {I({5, 7}), I({2, 3})})
      for (const char* op : {"ResizeBilinear", "ResizeBicubic"}) out.push_back({op, {image, size}, attrs});
  return out;
}

/// Expected: TensorFlow 2.21.
inline std::vector<OpCase> projective_cases() {
  std::vector<OpCase> out;
  const Tensor image = F({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {1, 3, 4, 1}), fill = Tensor::scalar(-1.0f);
  const auto add = [&](const Tensor& x, const Tensor& transform, std::array<int32_t, 2> size, const Tensor& missing,
                       const char* interpolation, const char* mode, const Tensor& expected) {
    out.push_back({"ImageProjectiveTransformV3",
                   {x, transform, I({size[0], size[1]}), missing},
                   {{"interpolation", interpolation}, {"fill_mode", mode}},
                   {expected},
                   false});
  };
  const Tensor shift = F({1, 0, -2.5f, 0, 1, 1.25f, 0, 0}, {1, 8}), far = F({1, 0, -30.25f, 0, 1, 50.5f, 0, 0}, {1, 8}),
               perspective = F({1, 0.5f, 0, 0.25f, 1, 0, 0.125f, 0}, {1, 8}),
               singular = F({1, 0, 0, 0, 1, 0, -1, 0}, {1, 8});
  const Shape s = {1, 3, 4, 1};
  const char *nearest = "NEAREST", *bilinear = "BILINEAR";
  add(image, shift, {3, 4}, fill, nearest, "CONSTANT", F({-1, -1, -1, 6, -1, -1, -1, 10, -1, -1, -1, -1}, s));
  add(image, shift, {3, 4}, fill, bilinear, "CONSTANT",
      F({-1, -1, 2.5f, 6.5f, -1, -1, 2.75f, 6.875f, -1, -1, -1, -1}, s));
  add(image, shift, {3, 4}, fill, nearest, "REFLECT", F({7, 6, 5, 6, 11, 10, 9, 10, 11, 10, 9, 10}, s));
  add(image, shift, {3, 4}, fill, bilinear, "REFLECT",
      F({7.5f, 6.5f, 6, 6.5f, 10.5f, 9.5f, 9, 9.5f, 9.5f, 8.5f, 8, 8.5f}, s));
  add(image, shift, {3, 4}, fill, nearest, "WRAP", F({7, 8, 8, 6, 3, 4, 4, 2, 3, 4, 4, 2}, s));
  add(image, shift, {3, 4}, fill, bilinear, "WRAP",
      F({7.5f, 8.5f, 9, 6.5f, 2.5f, 3.5f, 4, 1.5f, 3.5f, 4.5f, 5, 2.5f}, s));
  add(image, shift, {3, 4}, fill, nearest, "NEAREST", F({5, 5, 5, 6, 9, 9, 9, 10, 9, 9, 9, 10}, s));
  add(image, shift, {3, 4}, fill, bilinear, "NEAREST", F({6, 6, 6, 6.5f, 9, 9, 9, 9.5f, 9, 9, 9, 9.5f}, s));
  add(image, perspective, {2, 3}, fill, bilinear, "CONSTANT",
      F({1, 25.f / 9, 4.2f, 5.5f, 61.f / 9, 7.8f}, {1, 2, 3, 1}));
  add(Tensor::of<uint8_t>({20, 40, 60, 80, 100, 120, 140, 160, 180, 200, 220, 240}, s), perspective, {2, 3},
      Tensor::scalar(7.0f), bilinear, "CONSTANT", Tensor::of<uint8_t>({20, 55, 84, 110, 135, 156}, {1, 2, 3, 1}));
  add(image, far, {1, 3}, fill, bilinear, "REFLECT", F({10.75f, 11.75f, 12}, {1, 1, 3, 1}));
  add(image, far, {1, 3}, fill, bilinear, "WRAP", F({4, 4, 4}, {1, 1, 3, 1}));
  add(image, singular, {1, 2}, fill, nearest, "CONSTANT", F({1, -1}, {1, 1, 2, 1}));
  out.push_back(
      {"ImageProjectiveTransformV2",
       {F({1, 2, 3, 4}, {2, 1, 2, 1}), F({1, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}, {2, 8}), I({1, 2})},
       {{"interpolation", nearest}},
       {F({2, 0, 3, 4}, {2, 1, 2, 1})},
       false});
  return out;
}

inline std::vector<OpCase> image_cases() {
  const Tensor four = F({1, 2, 3, 4}, {1, 2, 2, 1}), image = ramp32({2, 4, 4, 2}), size = I({2, 2});
  const Tensor whole = F({0, 0, 1, 1}, {1, 4}), boxes = F({0.1f, 0.15f, 0.75f, 0.8f, 0.9f, 0.1f, 0.4f, 0.75f}, {2, 4});
  const Attrs nearest = {{"method", std::string("nearest")}}, outside = {{"extrapolation_value", 9.f}};
  const Tensor pixels = D({1, 0.5, 0.25, 0.2, 0.7, 0.4, 0.3, 0.1, 0.9, 0.6, 0.2, 0.5}, {2, 2, 3}),
               red = F({1, 0, 0}, {1, 3});
  const Tensor found = F({0, 0, 1, 1, 1, 1.1f, 0, 0.1f, 0, 2, 1, 3, 0, 0, 0, 0}, {4, 4}),
               scores = F({0.5, 0.9f, 0.7f, 0.1f}, {4});
  const Tensor half = F({0.5}, {}), least = F({0.2f}, {});
  const Tensor pixels_of = I({40, 50, 3}), object = F({0.2f, 0.3f, 0.6f, 0.9f}, {1, 1, 4});
  const auto zero_noise = [](bool centered, bool normalized) {
    return Attrs{
        {"noise", std::string("zero")}, {"uniform_noise", false}, {"centered", centered}, {"normalized", normalized}};
  };
  const Tensor six = F({1, 2, 3, 4, 5, 6}, {1, 2, 3, 1}), two = I({2, 2}), corner = F({1, 1}, {1, 2});
  return {
      {"ExtractGlimpse", {six, two, corner}, zero_noise(true, true), {F({6, 0, 0, 0}, {1, 2, 2, 1})}},
      {"ExtractGlimpse", {six, two, corner}, zero_noise(true, false), {F({2, 3, 5, 6}, {1, 2, 2, 1})}},
      {"ExtractGlimpse", {six, two, corner}, zero_noise(false, false), {F({1, 2, 4, 5}, {1, 2, 2, 1})}},
      {"ExtractGlimpseV2", {six, two, corner}, zero_noise(true, true), {F({6, 0, 0, 0}, {1, 2, 2, 1})}},
      {"ExtractGlimpseV2", {six, two, F({-1, -1}, {1, 2})}, zero_noise(true, false), {F({1, 2, 4, 5}, {1, 2, 2, 1})}},
      {"ExtractGlimpseV2", {six, two, corner}, zero_noise(false, false), {F({5, 6, 0, 0}, {1, 2, 2, 1})}},
      {"ExtractGlimpse", {image, I({0, 3}), F({0, 0, 0, 0}, {2, 2})}, {}, {F({}, {2, 0, 3, 2})}},
      {"CropAndResize", {four, whole, I({0}), size}, {}, {four}, false},
      {"CropAndResize", {four, F({0, 0, 2, 1}, {1, 4}), I({0}), size}, outside, {F({1, 2, 9, 9}, {1, 2, 2, 1})}, false},
      {"CropAndResize",
       {four, F({0.7f, 0, 1, 0.3f}, {1, 4}), I({0}), I({1, 2})},
       nearest,
       {F({3, 3}, {1, 1, 2, 1})},
       false},
      {"CropAndResize", {image, boxes, I({1, 0}), size}},
      {"CropAndResize", {image, boxes, I({1, 0}), I({1, 1})}},
      {"CropAndResizeGradImage", {four, whole, I({0}), I({1, 2, 2, 1})}, {{"T", DType::kFloat32}}, {four}, false},
      {"CropAndResizeGradImage",
       {four, F({0.125f, 0.25f, 0.75f, 0.875f}, {1, 4}), I({0}), I({1, 2, 2, 1})},
       {{"T", DType::kFloat32}}},
      {"CropAndResizeGradBoxes",
       {four, four, F({0.25, 0.25, 0.75, 0.75}, {1, 4}), I({0})},
       {},
       {F({6, 4, 14, 6}, {1, 4})}},
      {"RGBToHSV", {pixels}},
      {"RGBToHSV", {D({1, 0.5, 0.25}, {1, 3})}, {}, {D({1. / 18, 0.75, 1}, {1, 3})}},
      {"RGBToHSV", {D({0, 0, 0})}, {}, {D({0, 0, 0})}, false},
      {"HSVToRGB", {D({1. / 18, 0.75, 1}, {1, 3})}, {}, {D({1, 0.5, 0.25}, {1, 3})}},
      {"AdjustHue", {red, F({-0.5}, {})}, {}, {F({0, 1, 1}, {1, 3})}},
      {"AdjustSaturation", {red, F({0.5}, {})}, {}, {F({1, 0.5, 0.5}, {1, 3})}},
      {"AdjustContrastv2", {F({1, 2, 3, 4}, {2, 2, 1}), F({2}, {})}, {}, {F({-0.5, 1.5, 3.5, 5.5}, {2, 2, 1})}},
      {"DrawBoundingBoxes",
       {F({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {1, 3, 4, 1}), F({0, 0.4f, 2, 2, 1, 1, 0, 0}, {1, 2, 4})},
       {},
       {F({0, 1, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0}, {1, 3, 4, 1})}},
      {"DrawBoundingBoxesV2",
       {F({5, 6, 7, 8, 9, 0}, {1, 1, 2, 3}), F({0, 1, 0, 1}, {1, 1, 4}), F({1, 2, 3}, {1, 3})},
       {},
       {F({5, 6, 7, 1, 2, 3}, {1, 1, 2, 3})}},
      {"SampleDistortedBoundingBox", {pixels_of, object}, {}, {}, false, true},
      {"SampleDistortedBoundingBoxV2", {pixels_of, object, half}, {}, {}, false, true},
      {"StatelessSampleDistortedBoundingBox", {pixels_of, object, half, I({1, 2})}, {}, {}, false, true},
      {"NonMaxSuppression", {found, scores, I(3)}, {}, {I({1, 2, 3})}},
      {"NonMaxSuppressionV2", {found, scores, I(9), F({1}, {})}, {}, {I({1, 2, 0, 3})}},
      {"NonMaxSuppressionV3", {found, scores, I(9), half, least}, {}, {I({1, 2})}},
      {"NonMaxSuppressionV4",
       {found, scores, I(4), half, least},
       {{"pad_to_max_output_size", true}},
       {I({1, 2, 0, 0}), I(2)}},
      {"NonMaxSuppressionV5",
       {found, scores, I(4), half, least, F({0}, {})},
       {{"pad_to_max_output_size", true}},
       {I({1, 2, 0, 0}), F({0.9f, 0.7f, 0, 0}, {4}), I(2)}},
      {"NonMaxSuppressionV5",  // the first is lowered by the second
       {F({0, 0, 1, 1, 0, 0, 1, 2}, {2, 4}), F({0.5, 1}, {2}), I(2), half, F({0}, {}), F({0.5}, {})},
       {},
       {I({1, 0}), F({1, 0.5f * std::exp(-0.25f)}, {2}), I(2)}},
      {"NonMaxSuppressionWithOverlaps",
       {F({1, 0.6f, 0, 0.6f, 1, 0, 0, 0, 1}, {3, 3}), F({0.5, 0.9f, 0.7f}, {3}), I(9), half, least},
       {},
       {I({1, 2})}},
      {"CombinedNonMaxSuppression",
       {F({0, 0, 1, 1, 0, 0, 1, 2}, {1, 2, 1, 4}), F({0.5, 0.9f, 0.75, 0.1f}, {1, 2, 2}), I(1), I(3), half, least},
       {},
       {F({0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0}, {1, 3, 4}), F({0.9f, 0.75, 0}, {1, 3}), F({1, 0, 0}, {1, 3}), I({2})}},
  };
}

}  // namespace troupe::testing
