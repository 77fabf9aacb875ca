// SPDX-License-Identifier: Apache-2.0
// Cases of ops with windows: pools with places, patches, dilations, pools and convolutions of volumes.
#pragma once
#include "tests/ops/op_case.h"

namespace troupe::testing {

using Ints = std::vector<int64_t>;

/// Attributes of windows over volumes; a window of 0 has none.
inline Attrs volume_attrs(Ints window, Ints strides, const char* padding) {
  Attrs out = {{"padding", padding}, {"strides", Ints{1, strides[0], strides[1], strides[2], 1}}};
  if (!window.empty()) out.set("ksize", Ints{1, window[0], window[1], window[2], 1});
  return out;
}

inline std::vector<OpCase> window_cases() {
  const Tensor row = D({3, 1, 4, 1, 5}, {1, 1, 5, 1}), image = ramp({2, 4, 5, 2}), flat = D({1, 5, 2, 4}, {1, 2, 2, 1});
  const Tensor pair = I({1, 1, 2, 1});
  const auto window = [](int64_t h, int64_t w, int64_t sh, int64_t sw, const char* padding) {
    return Attrs{{"ksize", Ints{1, h, w, 1}}, {"strides", Ints{1, sh, sw, 1}}, {"padding", padding}};
  };
  const auto rated = [](Ints size, Ints strides, Ints rates, const char* padding) {
    Attrs out = {{"strides", Ints{1, strides[0], strides[1], 1}}, {"rates", Ints{1, rates[0], rates[1], 1}}};
    out.set("padding", padding);
    if (!size.empty()) out.set("ksizes", Ints{1, size[0], size[1], 1});
    return out;
  };
  const auto cubes = [](Ints size, Ints strides, const char* padding) {
    return Attrs{{"ksizes", std::move(size)}, {"strides", std::move(strides)}, {"padding", padding}};
  };
  Attrs whole = window(2, 2, 2, 2, "SAME");
  whole.set("include_batch_in_index", true);
  const Tensor square = D({1, 2, 3, 4}, {1, 2, 2, 1});
  const auto ratios = [](std::vector<float> by, bool pseudo, bool overlapping) {
    Attrs out = {{"pooling_ratio", std::move(by)}, {"pseudo_random", pseudo}, {"overlapping", overlapping}};
    for (const char* seed : {"seed", "seed2"}) out.set(seed, int64_t{7});
    out.set("deterministic", true);
    return out;
  };
  const Attrs halves = ratios({1, 1, 2, 1}, false, false), overlapping = {{"overlapping", true}};
  const Tensor four = D({3, 1, 4, 5}, {1, 1, 4, 1}), cut = L({0, 1}), cuts = L({0, 2, 4}), g = D({1, 2}, {1, 1, 2, 1});
  return {
      {"FractionalMaxPool", {four}, halves, {D({3, 5}, {1, 1, 2, 1}), cut, cuts}},
      {"FractionalMaxPool", {four}, ratios({1, 1, 2, 1}, true, true), {D({4, 5}, {1, 1, 2, 1}), cut, cuts}},
      {"FractionalMaxPool", {image}, ratios({1, 1.4f, 1.7f, 1}, true, false)},
      {"FractionalMaxPool", {image}, ratios({1, 1.4f, 1.7f, 1}, false, true)},
      {"FractionalMaxPool", {I({3, 1, 4, 5}, {1, 1, 4, 1})}, halves, {I({3, 5}, {1, 1, 2, 1})}},
      {"FractionalAvgPool", {four}, halves, {D({2, 4.5}, {1, 1, 2, 1}), cut, cuts}},
      {"FractionalAvgPool", {image}, ratios({1, 1.4f, 1.7f, 1}, true, true)},
      {"FractionalAvgPool", {image}, ratios({1, 1.4f, 1.7f, 1}, false, false)},
      {"FractionalAvgPool", {D({}, {0, 2, 2, 1})}, halves, {D({}, {0, 2, 1, 1})}},
      {"FractionalMaxPoolGrad",
       {four, D({4, 5}, {1, 1, 2, 1}), g, cut, cuts},
       overlapping,
       {D({0, 0, 1, 2}, {1, 1, 4, 1})},
       false},
      {"FractionalAvgPoolGrad",
       {L({1, 1, 4, 1}), D({3, 2}, {1, 1, 2, 1}), cut, cuts},
       overlapping,
       {D({1, 1, 2, 1}, {1, 1, 4, 1})}},
      {"MaxPoolWithArgmax",
       {row},
       window(1, 2, 1, 2, "SAME"),
       {D({3, 4, 5}, {1, 1, 3, 1}), L({0, 2, 4}, {1, 1, 3, 1})}},
      {"MaxPoolV2", {row, pair, pair}, {{"padding", "SAME"}}, {D({3, 4, 5}, {1, 1, 3, 1})}},
      {"MaxPoolV2", {image, I({1, 2, 3, 1}), I({1, 1, 2, 1})}, {{"padding", "VALID"}}},
      {"MaxPoolGradV2",
       {row, D({3, 4, 5}, {1, 1, 3, 1}), D({1, 2, 3}, {1, 1, 3, 1}), pair, pair},
       {{"padding", "SAME"}},
       {D({1, 0, 2, 0, 3}, {1, 1, 5, 1})},
       false},
      {"MaxPoolGradGradV2",
       {row, D({3, 4, 5}, {1, 1, 3, 1}), D({1, 2, 3, 4, 5}, {1, 1, 5, 1}), pair, pair},
       {{"padding", "SAME"}},
       {D({1, 3, 5}, {1, 1, 3, 1})},
       false},
      {"MaxPoolWithArgmax", {image}, window(2, 3, 1, 2, "VALID")},
      {"MaxPoolWithArgmax", {image}, whole},
      {"MaxPoolGradWithArgmax",
       {row, D({1, 2, 3}, {1, 1, 3, 1}), L({0, 2, 2}, {1, 1, 3, 1})},
       window(1, 2, 1, 2, "SAME"),
       {D({1, 0, 5, 0, 0}, {1, 1, 5, 1})}},
      {"ExtractImagePatches",
       {square},
       rated({2, 2}, {1, 1}, {1, 1}, "SAME"),
       {D({1, 2, 3, 4, 2, 0, 4, 0, 3, 4, 0, 0, 4, 0, 0, 0}, {1, 2, 2, 4})}},
      {"ExtractImagePatches", {image}, rated({2, 2}, {2, 1}, {2, 2}, "VALID")},
      {"ExtractImagePatches", {image}, rated({3, 2}, {1, 2}, {1, 2}, "SAME")},
      {"ExtractImagePatches",
       {L({5, 6}, {1, 1, 2, 1})},
       rated({1, 2}, {1, 2}, {1, 1}, "VALID"),
       {L({5, 6}, {1, 1, 1, 2})}},
      {"ExtractVolumePatches",
       {D({1, 2, 3, 4}, {1, 1, 2, 2, 1})},
       cubes({1, 1, 2, 2, 1}, Ints(5, 1), "SAME"),
       {D({1, 2, 3, 4, 2, 0, 4, 0, 3, 4, 0, 0, 4, 0, 0, 0}, {1, 1, 2, 2, 4})}},
      {"ExtractVolumePatches", {ramp({2, 3, 2, 3, 2})}, cubes({1, 2, 1, 2, 1}, {1, 1, 1, 2, 1}, "SAME")},
      {"ExtractVolumePatches", {ramp({2, 3, 2, 3, 1})}, cubes({1, 2, 2, 1, 1}, {1, 2, 1, 1, 1}, "VALID")},
      {"ExtractVolumePatches",
       {D({}, {0, 2, 2, 2, 1})},
       cubes({1, 2, 2, 2, 1}, Ints(5, 1), "VALID"),
       {D({}, {0, 1, 1, 1, 8})}},
      {"ExtractVolumePatches",
       {L({5, 6}, {1, 2, 1, 1, 1})},
       cubes({1, 2, 1, 1, 1}, Ints(5, 1), "VALID"),
       {L({5, 6}, {1, 1, 1, 1, 2})}},
      {"Dilation2D", {flat, D({0, 2}, {1, 2, 1})}, rated({}, {1, 1}, {1, 1}, "VALID"), {D({7, 6}, {1, 2, 1, 1})}},
      {"Dilation2D", {image, ramp({2, 2, 2}, 0.11)}, rated({}, {1, 2}, {2, 1}, "SAME")},
      {"Dilation2DBackpropInput",
       {flat, D({0, 2}, {1, 2, 1}), D({3, 4}, {1, 2, 1, 1})},
       rated({}, {1, 1}, {1, 1}, "VALID"),
       {D({0, 3, 0, 4}, {1, 2, 2, 1})}},
      {"Dilation2DBackpropFilter",
       {flat, D({0, 2}, {1, 2, 1}), D({3, 4}, {1, 2, 1, 1})},
       rated({}, {1, 1}, {1, 1}, "VALID"),
       {D({0, 7}, {1, 2, 1})}},
  };
}

inline std::vector<OpCase> volume_cases() {
  const Tensor line = D({3, 1, 4, 1, 5}, {1, 1, 1, 5, 1}), volume = ramp({2, 3, 4, 3, 2}),
               filter = ramp({2, 3, 2, 2, 3}, 0.05);
  const Attrs pairs = volume_attrs({1, 1, 2}, {1, 1, 2}, "SAME"), cubes = volume_attrs({2, 2, 2}, {1, 2, 1}, "VALID");
  const Attrs same = volume_attrs({}, {1, 2, 1}, "SAME"), valid = volume_attrs({}, {1, 1, 1}, "VALID");
  Attrs dilated = valid;
  dilated.set("dilations", Ints{1, 1, 1, 2, 1});
  const Tensor sizes = I({1, 1, 1, 5, 1}), ones = D({1, 1, 1}, {1, 1, 1, 3, 1}), two = D({1, 10}, {1, 1, 2, 1, 1});
  return {
      {"MaxPool3D", {line}, pairs, {D({3, 4, 5}, {1, 1, 1, 3, 1})}},
      {"MaxPool3D", {volume}, cubes},
      {"MaxPool3DGrad",
       {line, D({3, 4, 5}, {1, 1, 1, 3, 1}), ones},
       pairs,
       {D({1, 0, 1, 0, 1}, {1, 1, 1, 5, 1})},
       false},
      {"MaxPool3DGradGrad", {line, D({3, 4, 5}, {1, 1, 1, 3, 1}), line}, pairs, {D({3, 4, 5}, {1, 1, 1, 3, 1})}, false},
      {"AvgPool3D", {line}, pairs, {D({2, 2.5, 5}, {1, 1, 1, 3, 1})}},
      {"AvgPool3D", {volume}, volume_attrs({2, 3, 2}, {2, 1, 2}, "SAME")},
      {"AvgPool3D", {D({}, {0, 2, 2, 2, 1})}, cubes, {D({}, {0, 1, 1, 1, 1})}},
      {"AvgPool3DGrad", {sizes, ones}, pairs, {D({0.5, 0.5, 0.5, 0.5, 1}, {1, 1, 1, 5, 1})}},
      {"Conv3D", {line, two}, valid, {D({13, 41, 14, 51}, {1, 1, 1, 4, 1})}},
      {"Conv3D", {line, two}, dilated, {D({43, 11, 54}, {1, 1, 1, 3, 1})}},
      {"Conv3D", {volume, filter}, same},
      {"Conv3D", {D({}, {0, 1, 1, 2, 1}), two}, valid, {D({}, {0, 1, 1, 1, 1})}},
      {"Conv3DBackpropInputV2",
       {sizes, two, D({1, 2, 3, 4}, {1, 1, 1, 4, 1})},
       valid,
       {D({1, 12, 23, 34, 40}, {1, 1, 1, 5, 1})}},
      {"Conv3DBackpropFilterV2",
       {line, I({1, 1, 2, 1, 1}), D({1, 2, 3, 4}, {1, 1, 1, 4, 1})},
       valid,
       {D({21, 32}, {1, 1, 2, 1, 1})}},
  };
}

}  // namespace troupe::testing
