// SPDX-License-Identifier: Apache-2.0
// Pools and their gradients are on GPUs what they are on CPUs; the two may round shares of gradients differently.
#include "ops/parts/window.h"
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

/// Windows over images [batch, height, width, channels].
struct PoolCase {
  int64_t images[4], size[2], stride[2];
  std::string padding = "SAME";
  std::vector<int64_t> pads = {};  // of height and width, before and after
};
const std::vector<PoolCase>& pool_cases() {
  static const std::vector<PoolCase> all = {
      {{2, 6, 4, 3}, {2, 2}, {2, 2}, "VALID"},  // windows tile the image
      {{2, 9, 7, 8}, {3, 3}, {2, 2}},           // windows overlap, packs of channels
      {{1, 5, 6, 5}, {3, 2}, {1, 1}},           //
      {{1, 8, 8, 4}, {2, 2}, {3, 3}, "VALID"},  // windows leave places out
      {{3, 1, 1, 16}, {1, 1}, {1, 1}},          //
      {{1, 7, 7, 2}, {7, 7}, {1, 1}, "VALID"},  // one window
      {{1, 4, 5, 4}, {3, 3}, {2, 1}, "EXPLICIT", {2, 0, 1, 2}},
      {{0, 4, 4, 3}, {2, 2}, {1, 1}},           // nothing
      {{2, 0, 4, 3}, {2, 2}, {1, 1}},           //
      {{2, 4, 4, 0}, {2, 2}, {1, 1}},           //
      {{33, 11, 13, 12}, {3, 3}, {2, 2}},       // more than a grid
      {{1, 2, 2, 1}, {3, 3}, {1, 1}, "VALID"},  // errors
      {{1, 0, 0, 1}, {3, 3}, {1, 1}, "EXPLICIT", {2, 2, 2, 2}},
      {{1, 4, 4, 1}, {2, 2}, {1, 1}, "EXPLICIT", {2, 0, 0, 0}},
  };
  return all;
}

Shape pool_layout(const int64_t (&s)[4], bool first) {
  return first ? Shape{s[0], s[3], s[1], s[2]} : Shape{s[0], s[1], s[2], s[3]};
}
std::vector<int64_t> along_places(const int64_t (&v)[2], bool first) {
  return first ? std::vector<int64_t>{1, 1, v[0], v[1]} : std::vector<int64_t>{1, v[0], v[1], 1};
}
Attrs pool_attrs(const PoolCase& p, bool first, bool by_inputs = false) {
  Attrs attrs{{"padding", p.padding}, {"data_format", std::string(first ? "NCHW" : "NHWC")}};
  if (!by_inputs) {
    attrs.set("ksize", along_places(p.size, first));
    attrs.set("strides", along_places(p.stride, first));
  }
  if (!p.pads.empty()) {
    std::vector<int64_t> pads = {0, 0};
    if (first) pads.insert(pads.end(), {0, 0});
    pads.insert(pads.end(), p.pads.begin(), p.pads.end());
    if (!first) pads.insert(pads.end(), {0, 0});
    attrs.set("explicit_paddings", pads);
  }
  return attrs;
}
/// The pool's shape; that of the images where there is no such pool.
Shape pool_shape(Parity& parity, const PoolCase& p, DType dtype, bool first) {
  const Tensor x = random_values(dtype, pool_layout(p.images, first), 1);
  const auto y = parity.run(DeviceKind::kCpu, {"MaxPool", {x}, pool_attrs(p, first)});
  return y.ok() ? (*y)[0].shape() : x.shape();
}

/// Integers as floats of any type, so that windows have several places of the largest value.
Tensor few_values(DType dtype, const Shape& shape, uint64_t seed) {
  Tensor x = random_values(dtype, shape, seed);
  with_type(dtype, FloatTypes{}, [&]<class T>() {
    for (int64_t i = 0; i < x.elements(); ++i) {
      T& v = x.mutable_data<T>()[i];
      v = narrow<T>(std::round(widen(v)));
    }
  });
  return x;
}

double share_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 1e-6;
    case DType::kFloat64: return 1e-14;
    case DType::kFloat16: return 1e-3;
    default: return 8e-3;
  }
}

TEST_CASE("Pools on GPUs are those of CPUs, bit for bit") {
  Parity parity;
  for (const char* op : {"MaxPool", "AvgPool"})
    for (DType dtype : gpu_types(parity, op))
      for (const PoolCase& p : pool_cases())
        for (bool first : {false, true}) {
          if (*op == 'A' && !p.pads.empty()) continue;
          const Shape shape = pool_layout(p.images, first);
          parity.check({op, {random_values(dtype, shape, 1)}, pool_attrs(p, first)});
          parity.check({op, {random_values(dtype, shape, 2, true)}, pool_attrs(p, first)});
        }
  parity.check({"MaxPool", {random_values(DType::kFloat32, Shape{4, 4}, 3)}, pool_attrs(pool_cases()[0], false)});
}

TEST_CASE("Gradients of MaxPool on GPUs go to the first of the largest values, as on CPUs") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "MaxPoolGrad"))
    for (const PoolCase& p : pool_cases())
      for (bool first : {false, true}) {
        const Shape in = pool_layout(p.images, first), out = pool_shape(parity, p, dtype, first);
        for (bool ties : {false, true}) {
          const Tensor x = ties ? few_values(dtype, in, 4) : random_values(dtype, in, 5, true);
          const auto y = parity.run(DeviceKind::kCpu, {"MaxPool", {x}, pool_attrs(p, first)});
          const Tensor pool = y.ok() ? (*y)[0] : x;
          parity.check({"MaxPoolGrad", {x, pool, random_values(dtype, out, 6)}, pool_attrs(p, first)});
          if (p.padding != "EXPLICIT")
            parity.check({"MaxPoolGradGrad", {x, pool, random_values(dtype, in, 7)}, pool_attrs(p, first)});
        }
        parity.check({"MaxPoolGrad",  // an error
                      {few_values(dtype, in, 4), few_values(dtype, out, 4), random_values(dtype, Shape{2, 2}, 6)},
                      pool_attrs(p, first)});
      }
}

TEST_CASE("Gradients of AvgPool on GPUs agree with those of CPUs") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "AvgPoolGrad"))
    for (const PoolCase& p : pool_cases())
      for (bool first : {false, true}) {
        if (!p.pads.empty()) continue;
        const Shape in = pool_layout(p.images, first), out = pool_shape(parity, p, dtype, first);
        std::vector<int32_t> sizes;
        for (int64_t d : in.dims()) sizes.push_back(static_cast<int32_t>(d));
        const Tensor shape = Tensor::of<int32_t>(std::span<const int32_t>(sizes));
        parity.check(
            {"AvgPoolGrad", {shape, random_values(dtype, out, 8)}, pool_attrs(p, first), share_tolerance(dtype)});
        parity.check({"AvgPoolGrad", {shape, random_values(dtype, Shape{3, 1, 1, 1}, 8)}, pool_attrs(p, first)});
      }
}

TEST_CASE("Pools whose windows are inputs run on GPUs as on CPUs") {
  Parity parity;
  const PoolCase& p = pool_cases()[1];
  for (bool first : {false, true}) {
    const auto input = [&](const int64_t(&v)[2]) {
      std::vector<int32_t> out;
      for (int64_t i : along_places(v, first)) out.push_back(static_cast<int32_t>(i));
      return Tensor::of<int32_t>(std::span<const int32_t>(out));
    };
    const Tensor size = input(p.size), stride = input(p.stride);
    const Attrs attrs = pool_attrs(p, first, true);
    for (DType dtype : gpu_types(parity, "MaxPoolV2")) {
      const Tensor x = few_values(dtype, pool_layout(p.images, first), 9);
      parity.check({"MaxPoolV2", {x, size, stride}, attrs});
      parity.check({"MaxPoolV2", {x, size, Tensor::of<int32_t>({1, 2})}, attrs});  // an error
      const Tensor y = (*parity.run(DeviceKind::kCpu, {"MaxPoolV2", {x, size, stride}, attrs}))[0];
      const Tensor g = random_values(dtype, y.shape(), 10), gg = random_values(dtype, x.shape(), 11);
      parity.check({"MaxPoolGradV2", {x, y, g, size, stride}, attrs});
      parity.check({"MaxPoolGradGradV2", {x, y, gg, size, stride}, attrs});
    }
  }
}

}  // namespace
}  // namespace troupe::testing
