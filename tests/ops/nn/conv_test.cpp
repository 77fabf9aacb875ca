// SPDX-License-Identifier: Apache-2.0
// Convolutions against loops, in both layouts, with every padding, strides, dilations and groups, and bad input.
#include "tests/ops/check_op.h"
#include "tests/ops/op_graph.h"

namespace troupe::testing {
namespace {

struct ConvCase {
  Shape in;      // [batch, height, width, channels]
  Shape filter;  // [height, width, in/groups, out], or [height, width, in, multiplier]
  std::string padding = "VALID";
  int64_t stride = 1, dilation = 1;
  std::vector<int64_t> pads = {0, 0, 0, 0};  // top, bottom, left, right of EXPLICIT
  bool depthwise = false;
};

const std::vector<ConvCase> kConvCases = {
    {{2, 8, 9, 1}, {5, 5, 1, 6}, "SAME"},
    {{3, 14, 14, 6}, {5, 5, 6, 16}},
    {{2, 7, 7, 32}, {3, 3, 32, 64}, "SAME"},
    {{4, 26, 24, 32}, {3, 3, 32, 64}},
    {{3, 27, 28, 48}, {3, 3, 48, 32}, "SAME"},
    {{2, 9, 8, 3}, {3, 2, 3, 5}, "SAME", 2},
    {{2, 11, 12, 64}, {3, 3, 64, 72}, "SAME"},
    {{1, 9, 10, 72}, {5, 5, 72, 64}, "VALID", 2},
    {{1, 12, 9, 64}, {1, 3, 64, 64}, "EXPLICIT", 1, 2, {0, 0, 4, 0}},
    {{2, 10, 11, 4}, {3, 3, 4, 5}, "VALID", 3},
    {{1, 9, 9, 2}, {3, 3, 2, 4}, "SAME", 1, 2},
    {{2, 6, 6, 2}, {3, 3, 2, 3}, "EXPLICIT", 2, 1, {2, 0, 1, 3}},
    {{2, 6, 6, 8}, {3, 3, 2, 8}, "SAME"},
    {{2, 6, 6, 8}, {1, 1, 8, 16}, "VALID", 2},
    {{3, 8, 8, 4}, {1, 1, 4, 6}, "SAME", 2},
    {{2, 7, 8, 1}, {1, 1, 1, 3}, "VALID", 2},
    {{2, 6, 7, 4}, {3, 3, 4, 2}, "SAME", 1, 1, {0, 0, 0, 0}, true},
    {{2, 6, 7, 16}, {3, 3, 16, 1}, "SAME", 2, 1, {0, 0, 0, 0}, true},
};

Attrs attrs_of_conv(const ConvCase& k, bool first) {
  const auto list = [&](int64_t v) {
    return first ? std::vector<int64_t>{1, 1, v, v} : std::vector<int64_t>{1, v, v, 1};
  };
  Attrs a{{"strides", list(k.stride)},
          {"dilations", list(k.dilation)},
          {"padding", k.padding},
          {"data_format", std::string(first ? "NCHW" : "NHWC")}};
  std::vector<int64_t> pads(8, 0);
  for (int i = 0; i < 4; ++i) pads[(first ? 4 : 2) + i] = k.pads[i];
  if (k.padding == "EXPLICIT") a.set("explicit_paddings", pads);
  return a;
}

/// [n,h,w,c] as [n,c,h,w], or back.
Tensor moved(const Tensor& t, bool to_first) {
  const Shape& s = t.shape();
  const Shape d = to_first ? Shape{s[0], s[3], s[1], s[2]} : Shape{s[0], s[2], s[3], s[1]};
  Tensor out = *Tensor::make(t.dtype(), d);
  const int64_t h = to_first ? s[1] : s[2], w = to_first ? s[2] : s[3], c = to_first ? s[3] : s[1];
  for (int64_t n = 0; n < s[0]; ++n)
    for (int64_t p = 0; p < h * w; ++p)
      for (int64_t k = 0; k < c; ++k) {
        const int64_t last = (n * h * w + p) * c + k, front = (n * c + k) * h * w + p;
        out.mutable_data<float>()[to_first ? front : last] = t.data<float>()[to_first ? last : front];
      }
  return out;
}

/// The three results by definition: output, gradient by input, gradient by filter, for dy = `g` (made if empty).
struct ConvReference {
  Shape out_shape;
  std::vector<double> out, dx, dw, g;
  Tensor dy;
};

ConvReference conv_reference(const ConvCase& k, const Tensor& in, const Tensor& filter) {
  const auto size = [&](int64_t n, int64_t f, int64_t lo, int64_t hi, int64_t& begin) {
    const int64_t reach = (f - 1) * k.dilation + 1;
    begin = lo;
    if (k.padding != "SAME") return (n + lo + hi - reach) / k.stride + 1;
    const int64_t out = (n + k.stride - 1) / k.stride;
    begin = std::max<int64_t>(0, (out - 1) * k.stride + reach - n) / 2;
    return out;
  };
  int64_t top = 0, left = 0;
  const int64_t h = k.in[1], w = k.in[2], c = k.in[3], fh = k.filter[0], fw = k.filter[1];
  const int64_t oh = size(h, fh, k.pads[0], k.pads[1], top), ow = size(w, fw, k.pads[2], k.pads[3], left);
  const int64_t multiplier = k.filter[3], oc = k.depthwise ? c * multiplier : k.filter[3];
  const int64_t group_in = k.depthwise ? 1 : k.filter[2], group_out = oc / (c / group_in);
  ConvReference r{{k.in[0], oh, ow, oc}, {}, {}, {}, {}, random_tensor<float>({k.in[0], oh, ow, oc}, 7)};
  r.g = doubles(r.dy);
  r.out.resize(r.g.size());
  r.dx.resize(in.elements());
  r.dw.resize(filter.elements());
  const std::vector<double> x = doubles(in), f = doubles(filter);
  for (int64_t n = 0; n < k.in[0]; ++n)
    for (int64_t oy = 0; oy < oh; ++oy)
      for (int64_t ox = 0; ox < ow; ++ox)
        for (int64_t o = 0; o < oc; ++o)
          for (int64_t ky = 0; ky < fh; ++ky)
            for (int64_t kx = 0; kx < fw; ++kx)
              for (int64_t i = 0; i < group_in; ++i) {
                const int64_t iy = oy * k.stride - top + ky * k.dilation, ix = ox * k.stride - left + kx * k.dilation;
                if (iy < 0 || iy >= h || ix < 0 || ix >= w) continue;
                const int64_t at_x = ((n * h + iy) * w + ix) * c + o / group_out * group_in + i;
                const int64_t at_w = k.depthwise ? (ky * fw + kx) * oc + o : ((ky * fw + kx) * group_in + i) * oc + o;
                const int64_t at_y = ((n * oh + oy) * ow + ox) * oc + o;
                r.out[at_y] += x[at_x] * f[at_w];
                r.dx[at_x] += r.g[at_y] * f[at_w];
                r.dw[at_w] += r.g[at_y] * x[at_x];
              }
  return r;
}

Tensor sizes(const Shape& s) {
  std::vector<int32_t> v(s.begin(), s.end());
  return Tensor::of<int32_t>(std::span<const int32_t>(v));
}

TEST_CASE("Convolutions and their gradients agree with loops") {
  for (size_t i = 0; i < kConvCases.size(); ++i) {
    const ConvCase& k = kConvCases[i];
    const Tensor in = random_tensor<float>(k.in, 1), filter = random_tensor<float>(k.filter, 2);
    const ConvReference want = conv_reference(k, in, filter);
    for (bool first : {false, true})
      for (int threads : {1, 2}) {
        INFO("case " << i << (first ? " NCHW" : " NHWC"));
        const std::string op = k.depthwise ? "DepthwiseConv2dNative" : "Conv2D";
        const Tensor x = first ? moved(in, true) : in, g = first ? moved(want.dy, true) : want.dy;
        const Attrs attrs = attrs_of_conv(k, first);
        Tensor y = must(apply(op, {x, filter}, attrs, 0, threads));
        Tensor dx = must(apply(op + "BackpropInput", {sizes(x.shape()), filter, g}, attrs, 0, threads));
        const Tensor dw = must(apply(op + "BackpropFilter", {x, sizes(k.filter), g}, attrs, 0, threads));
        if (first) y = moved(y, false);
        if (first) dx = moved(dx, false);
        REQUIRE(y.shape() == want.out_shape);
        check_close(doubles(y), want.out, 1e-4);
        check_close(doubles(dx), want.dx, 1e-4);
        check_close(doubles(dw), want.dw, 1e-4);
      }
  }
}

TEST_CASE("Convolutions' gradients agree with finite differences") {
  for (const ConvCase& k : {ConvCase{{1, 4, 5, 2}, {3, 2, 2, 3}, "SAME", 2},
                            ConvCase{{1, 5, 5, 4}, {2, 2, 2, 4}, "EXPLICIT", 1, 2, {1, 0, 0, 2}},
                            ConvCase{{1, 4, 4, 2}, {2, 2, 2, 2}, "VALID", 1, 1, {0, 0, 0, 0}, true}}) {
    const std::string op = k.depthwise ? "DepthwiseConv2dNative" : "Conv2D";
    const Tensor x = random_tensor<double>(k.in, 1), w = random_tensor<double>(k.filter, 2);
    const Attrs attrs = attrs_of_conv(k, false);
    check_gradients(op, {x, w}, attrs, {0, 1});
    const Tensor g = random_tensor<double>(must(apply(op, {x, w}, attrs)).shape(), 3);
    check_gradients(op + "BackpropInput", {sizes(k.in), w, g}, attrs, {1, 2});
    check_gradients(op + "BackpropFilter", {x, sizes(k.filter), g}, attrs, {0, 2});
  }
}

TEST_CASE("A convolution holds a filter that stays the same, and lets go of it when another comes") {
  OpGraph g;
  const auto placeholder = [&](const Shape& shape) {
    return g.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape(shape)}});
  };
  const Output x = placeholder({2, 9, 9, 16}), w = placeholder({3, 3, 16, 32});
  const Output y = g.op("Conv2D", {x, w}, attrs_of_conv({{}, {}, "SAME"}, false));
  const Tensor in = random_tensor<float>({2, 9, 9, 16}, 1);
  const auto check = [&](const Tensor& filter, const Tensor& want) {
    CHECK(g.evaluator.value(y, {{x, in}, {w, filter}}).identical(want));
  };
  Tensor first = random_tensor<float>({3, 3, 16, 32}, 2), second = random_tensor<float>({3, 3, 16, 32}, 3);
  const Tensor a = g.evaluator.value(y, {{x, in}, {w, first}});
  OpGraph other;
  const Tensor b =
      other.run(other.op("Conv2D", {other.of(in), other.of(second)}, attrs_of_conv({{}, {}, "SAME"}, false)));
  REQUIRE_FALSE(a.identical(b));
  second = *second.clone();  // of which the other graph knows nothing
  for (int i = 0; i < 8; ++i) check(first, a);
#if __has_include(<oneapi/dnnl/dnnl.hpp>)
  CHECK_FALSE(first.unique());
#endif
  for (int i = 0; i < 8; ++i) {
    check(second, b);
    CHECK(first.unique());
    CHECK(second.unique());  // once wrong, it waits longer
  }
  check(first, a);
  for (int i = 0; i < 50; ++i) check(second, b);
#if __has_include(<oneapi/dnnl/dnnl.hpp>)
  CHECK_FALSE(second.unique());
#endif
  // Memory that is written while nobody holds it is another filter.
  for (int i = 0; i < 3; ++i) check(first, a);
  CHECK(first.unique());
  std::memcpy(first.mutable_raw(), second.raw(), second.bytes());
  check(first, b);
}

TEST_CASE("A transposed convolution lays its constant filter out once, and takes one that is fed") {
  OpGraph g;
  const Shape images{1, 8, 8, 64};
  const Output dy = g.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::unknown()}});
  const Tensor filter = random_tensor<float>({4, 4, 64, 128}, 2), other = random_tensor<float>({4, 4, 64, 128}, 3);
  const Tensor in = random_tensor<float>({1, 4, 4, 128}, 1);
  const Attrs attrs = attrs_of_conv({{}, {}, "SAME", 2}, false);
  const Output w = g.of(filter), y = g.op("Conv2DBackpropInput", {g.of(sizes(images)), w, dy}, attrs);
  const Tensor want = must(apply("Conv2DBackpropInput", {sizes(images), filter, in}, attrs));
  for (int i = 0; i < 3; ++i) check_close(doubles(g.evaluator.value(y, {{dy, in}})), doubles(want), 1e-5);
  const Tensor fed = must(apply("Conv2DBackpropInput", {sizes(images), other, in}, attrs));
  for (int i = 0; i < 3; ++i) check_close(doubles(g.evaluator.value(y, {{dy, in}, {w, other}})), doubles(fed), 1e-5);
}

TEST_CASE("Convolutions of nothing are empty, their filters' gradient zero") {
  const Attrs attrs = attrs_of_conv(kConvCases[1], false);
  const Tensor x = random_tensor<float>({0, 14, 14, 6}, 1), w = random_tensor<float>({5, 5, 6, 16}, 2);
  CHECK(must(apply("Conv2D", {x, w}, attrs)).shape() == Shape{0, 10, 10, 16});
  const Tensor dw =
      must(apply("Conv2DBackpropFilter", {x, sizes(w.shape()), random_tensor<float>({0, 10, 10, 16}, 3)}, attrs));
  CHECK(doubles(dw) == std::vector<double>(dw.elements(), 0.0));
}

TEST_CASE("Convolutions that do not fit are errors") {
  const Tensor x = random_tensor<float>({1, 4, 4, 3}, 1), w = random_tensor<float>({3, 3, 3, 2}, 2);
  const Attrs attrs = attrs_of_conv({{}, {}}, false);
  const auto both = [&](const std::string& op, std::vector<Tensor> inputs, const Attrs& a, const char* text) {
    for (const auto& r : {apply(op, inputs, a), apply_unshaped(op, inputs, a)}) {
      REQUIRE_FALSE(r.ok());
      CHECK_THAT(r.error().str(), Catch::Contains(text) && Catch::Contains(op));
    }
  };
  both("Conv2D", {x, random_tensor<float>({6, 3, 3, 2}, 3)}, attrs, "larger than the height of 4");
  both("Conv2D", {x, random_tensor<float>({3, 3, 2, 2}, 3)}, attrs, "3 channels");
  both("Conv2D", {x, random_tensor<float>({3, 0, 3, 2}, 3)}, attrs, "no weights");
  both("Conv2D", {random_tensor<float>({4, 4, 3}, 3), w}, attrs, "rank 4");
  both("DepthwiseConv2dNative", {x, random_tensor<float>({3, 3, 2, 2}, 3)}, attrs, "3 channels");
  both("Conv2DBackpropInput", {sizes(x.shape()), w, x}, attrs, "out_backprop");
  both("Conv2DBackpropFilter", {x, sizes(w.shape()), x}, attrs, "out_backprop");
  both("Conv2DBackpropInput", {Tensor::of<int32_t>({1, -4, 4, 3}), w, x}, attrs, "-4");
  Attrs bad = attrs;
  bad.set("strides", std::vector<int64_t>{1, 0, 1, 1});
  both("Conv2D", {x, w}, bad, "strides must be 1 or more");
  bad.set("strides", std::vector<int64_t>{1, 1});
  both("Conv2D", {x, w}, bad, "4 values");
  bad = attrs;
  bad.set("padding", std::string("EXPLICIT"));
  both("Conv2D", {x, w}, bad, "8 values");
}

}  // namespace
}  // namespace troupe::testing
