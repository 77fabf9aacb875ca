// SPDX-License-Identifier: Apache-2.0
// Convolutions and their gradients on GPUs agree with those of CPUs.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

struct ConvCase {
  int64_t images[4];  // batch, height, width, channels
  int64_t filter[4];  // height, width, channels of a group, filters; the last of depthwise ones: filters of a channel
  int64_t stride[2] = {1, 1}, dilation[2] = {1, 1};
  std::string padding = "SAME";
  std::vector<int64_t> pads = {};  // of height and width, before and after
};
const std::vector<ConvCase>& conv_cases() {
  static const std::vector<ConvCase> all = {
      {{2, 5, 6, 3}, {3, 3, 3, 4}},
      {{1, 8, 8, 4}, {3, 3, 4, 5}, {2, 2}},                     // more padding after than before
      {{2, 9, 7, 6}, {3, 2, 2, 9}, {2, 1}},                     // groups
      {{1, 1, 1, 40}, {1, 1, 40, 35}},                          // a product of matrices
      {{3, 6, 5, 1}, {2, 3, 1, 1}, {1, 1}, {1, 1}, "VALID"},    // one channel
      {{1, 11, 12, 2}, {3, 3, 2, 3}, {1, 1}, {2, 3}, "VALID"},  // dilated
      {{1, 7, 7, 2}, {3, 3, 2, 33}, {2, 3}, {2, 1}},            //
      {{2, 4, 5, 3}, {2, 3, 3, 2}, {1, 2}, {1, 1}, "EXPLICIT", {2, 0, 1, 3}},
      {{1, 5, 5, 70}, {5, 5, 70, 34}, {1, 1}, {1, 1}, "VALID"},  // more than a tile of filters
      {{0, 5, 5, 3}, {3, 3, 3, 4}},                              // nothing
      {{1, 0, 5, 3}, {3, 3, 3, 4}},                              //
      {{1, 5, 5, 3}, {3, 3, 3, 0}},                              //
      {{1, 2, 2, 3}, {3, 3, 3, 4}, {1, 1}, {1, 1}, "VALID"},     // errors
      {{1, 5, 5, 3}, {3, 3, 2, 4}},
  };
  return all;
}
const std::vector<ConvCase>& depthwise_cases() {
  static const std::vector<ConvCase> all = {
      {{2, 5, 6, 3}, {3, 3, 3, 1}},
      {{2, 8, 6, 5}, {3, 2, 5, 2}, {2, 2}},
      {{1, 9, 9, 4}, {3, 3, 4, 3}, {1, 1}, {2, 2}, "VALID"},
      {{1, 5, 5, 2}, {3, 3, 3, 1}},  // an error
  };
  return all;
}

Shape conv_images(const int64_t (&s)[4], bool first) {
  return first ? Shape{s[0], s[3], s[1], s[2]} : Shape{s[0], s[1], s[2], s[3]};
}
Attrs conv_attrs(const ConvCase& c, bool first) {
  const auto along = [&](const int64_t(&v)[2]) {
    return first ? std::vector<int64_t>{1, 1, v[0], v[1]} : std::vector<int64_t>{1, v[0], v[1], 1};
  };
  Attrs attrs{{"padding", c.padding},
              {"data_format", std::string(first ? "NCHW" : "NHWC")},
              {"strides", along(c.stride)},
              {"dilations", along(c.dilation)}};
  if (!c.pads.empty()) {
    std::vector<int64_t> pads = {0, 0};
    if (first) pads.insert(pads.end(), {0, 0});
    pads.insert(pads.end(), c.pads.begin(), c.pads.end());
    if (!first) pads.insert(pads.end(), {0, 0});
    attrs.set("explicit_paddings", pads);
  }
  return attrs;
}
Tensor sizes_tensor(const Shape& s) {
  std::vector<int32_t> sizes;
  for (int64_t d : s.dims()) sizes.push_back(static_cast<int32_t>(d));
  return Tensor::of<int32_t>(std::span<const int32_t>(sizes));
}
/// Of values up to 4, of which some hundred products are added.
double conv_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 1e-4;
    case DType::kFloat64: return 1e-12;
    case DType::kFloat16: return 4e-3;
    default: return 3e-2;
  }
}

/// An op and its two gradients, as one family of kernels.
void check_family(Parity& parity, const std::string& op, const std::vector<ConvCase>& cases) {
  for (DType dtype : gpu_types(parity, op.c_str()))
    for (const ConvCase& c : cases)
      for (bool first : {false, true}) {
        const Attrs attrs = conv_attrs(c, first);
        const Shape in = conv_images(c.images, first), filter{c.filter[0], c.filter[1], c.filter[2], c.filter[3]};
        const Tensor x = random_values(dtype, in, 1), w = random_values(dtype, filter, 2);
        const double tolerance = conv_tolerance(dtype);
        parity.check({op, {x, w}, attrs, tolerance});
        const auto y = parity.run(DeviceKind::kCpu, {op, {x, w}, attrs});
        const Tensor g = random_values(dtype, y.ok() ? (*y)[0].shape() : in, 3);
        parity.check({op + "BackpropInput", {sizes_tensor(in), w, g}, attrs, tolerance});
        parity.check({op + "BackpropFilter", {x, sizes_tensor(filter), g}, attrs, tolerance * 4});
        const Tensor other = random_values(dtype, Shape{1, 2, 3, 5}, 4);  // errors
        parity.check({op + "BackpropInput", {sizes_tensor(in), w, other}, attrs});
        parity.check({op + "BackpropFilter", {x, Tensor::of<int32_t>({3, 3, -1, 1}), g}, attrs});
      }
}

TEST_CASE("Convolutions on GPUs agree with those of CPUs") {
  Parity parity;
  check_family(parity, "Conv2D", conv_cases());
}

TEST_CASE("Depthwise convolutions on GPUs agree with those of CPUs") {
  Parity parity;
  check_family(parity, "DepthwiseConv2dNative", depthwise_cases());
}

}  // namespace
}  // namespace troupe::testing
