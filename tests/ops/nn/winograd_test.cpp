// SPDX-License-Identifier: Apache-2.0
// Convolutions by constant filters of 3x3 places after Winograd (ops/nn/winograd.h) against loops over doubles: tiles
// of both sizes, edges, paddings, channels that fill no panel, what follows, threads; and the shapes where it pays.
#include "ops/nn/winograd.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "ops/parts/instruction_sets.h"
#include "tests/ops/check_op.h"
#include "tests/ops/op_graph.h"
#include "tests/repeats.h"

namespace troupe::testing {
namespace {

struct ImageCase {
  int64_t batch, height, width, in, out;
  std::string padding = "SAME";
  std::vector<int64_t> pads = {};
};

WindowAttrs attrs_of(const ImageCase& k) {
  Attrs a{{"strides", std::vector<int64_t>{1, 1, 1, 1}},
          {"padding", k.padding},
          {"data_format", std::string("NHWC")},
          {"dilations", std::vector<int64_t>{1, 1, 1, 1}}};
  a.set("explicit_paddings", k.pads);
  return *WindowAttrs::parse(a);
}

ConvShape shape_of(const ImageCase& k) {
  return *ConvShape::resolve(attrs_of(k), PartialShape{k.batch, k.height, k.width, k.in},
                             PartialShape{3, 3, k.in, k.out}, false);
}

/// The convolution, bias and image added, negative results 0.
std::vector<double> expected(const ConvShape& s, const Tensor& x, const Tensor& filter, const Tensor& bias,
                             const Tensor& image) {
  std::vector<double> out(static_cast<size_t>(s.batch * s.y.out * s.x.out * s.out_channels));
  const float *from = x.data<float>(), *w = filter.data<float>();
  for (size_t place = 0; place < out.size() / static_cast<size_t>(s.out_channels); ++place) {
    const auto p = static_cast<int64_t>(place);
    const int64_t n = p / (s.y.out * s.x.out), oy = p / s.x.out % s.y.out, ox = p % s.x.out;
    double* const to = out.data() + p * s.out_channels;
    for (int64_t o = 0; o < s.out_channels; ++o)
      to[o] = double{bias.data<float>()[o]} + double{image.data<float>()[p * s.out_channels + o]};
    for (int64_t ky = 0; ky < 3; ++ky)
      for (int64_t kx = 0; kx < 3; ++kx) {
        const int64_t iy = oy - s.y.lo + ky, ix = ox - s.x.lo + kx;
        if (iy < 0 || iy >= s.y.in || ix < 0 || ix >= s.x.in) continue;
        for (int64_t c = 0; c < s.in_channels; ++c) {
          const double value = from[((n * s.y.in + iy) * s.x.in + ix) * s.in_channels + c];
          const float* const row = w + ((ky * 3 + kx) * s.in_channels + c) * s.out_channels;
          for (int64_t o = 0; o < s.out_channels; ++o) to[o] += value * double{row[o]};
        }
      }
    for (int64_t o = 0; o < s.out_channels; ++o) to[o] = std::max(to[o], 0.0);
  }
  return out;
}

/// Epilogue::make() of BiasAdd, Add and Relu.
Epilogue epilogue() {
  const Attrs attrs{{"T", DType::kFloat32},
                    {"num_args", int64_t{2}},
                    {"fused_ops", std::vector<std::string>{"BiasAdd", "Add", "Relu"}},
                    {"data_format", std::string("NHWC")}};
  KernelInit init;
  init.attrs = &attrs;
  auto made = Epilogue::make(init, EpilogueKernels(op_library()->kernels), true);
  INFO((made.ok() ? "" : made.error().str()));
  REQUIRE(made.ok());
  return std::move(*made);
}

/// inputs: images, filter, bias, image to add.
Tensor convolved(Winograd& winograd, const ConvShape& s, const std::vector<Tensor>& inputs, int threads) {
  std::vector<Tensor> values = inputs;
  std::vector<uint32_t> slots(values.size());
  std::iota(slots.begin(), slots.end(), 0);
  const std::vector<int32_t> uses(values.size(), 2);
  const auto n = static_cast<uint32_t>(values.size());
  values.emplace_back();
  DeviceInfo device;
  device.threads = threads;
  device.allocator = own_allocator(new GuardedAllocator);
  set_team(threads);
  KernelContext c(values.data(), uses.data(), slots.data(), static_cast<int>(n), n, 1, device, 1);
  return must(winograd.compute(c, inputs[0], inputs[1], s, epilogue()));
}

/// [3, 3, in, out] as [3, 3, out, in], its places in the other order.
Tensor turned_round(const Tensor& filter) {
  const int64_t in = filter.dim(2), out = filter.dim(3);
  Tensor made = *Tensor::make(DType::kFloat32, Shape{3, 3, out, in});
  for (int64_t place = 0; place < 9; ++place)
    for (int64_t i = 0; i < in; ++i)
      for (int64_t o = 0; o < out; ++o)
        made.mutable_data<float>()[((8 - place) * out + o) * in + i] = filter.data<float>()[(place * in + i) * out + o];
  return made;
}

TEST_CASE("Winograd's convolutions are those of loops, with what follows, and the same on any number of threads") {
  if (!has_avx2_and_fma()) return;
  const std::vector<ImageCase> cases = {
      {1, 7, 7, 32, 32},          {1, 8, 8, 40, 48},
      {2, 14, 14, 32, 104},       {1, 30, 29, 32, 56},
      {3, 9, 5, 64, 40, "VALID"}, {1, 3, 17, 32, 32, "VALID"},
      {2, 1, 1, 32, 64},          {1, 6, 7, 48, 32, "EXPLICIT", {0, 0, 2, 1, 0, 2, 0, 0}},
      {5, 13, 21, 72, 64}};
  unsigned number = 0;
  for (const ImageCase& k : cases) {
    if (!runs_case(number++)) continue;
    const ConvShape s = shape_of(k);
    INFO(fmt::format("[{},{},{},{}] to {}, {}", k.batch, k.height, k.width, k.in, k.out, k.padding));
    const Tensor filter = random_tensor<float>({3, 3, k.in, k.out}, 1);
    const std::vector<Tensor> inputs = {random_tensor<float>({k.batch, k.height, k.width, k.in}, 2), filter,
                                        random_tensor<float>({k.out}, 3),
                                        random_tensor<float>({k.batch, s.y.out, s.x.out, k.out}, 4)};
    const std::vector<double> want = expected(s, inputs[0], filter, inputs[2], inputs[3]);
    const double largest = *std::ranges::max_element(want);
    // With the filter kept and with any, forward, and back from images of as many channels.
    std::optional<Tensor> first;
    for (const auto direction : {Winograd::Filter::kForward, Winograd::Filter::kBack})
      for (const bool constant : {true, false}) {
        std::vector<Tensor> given = inputs;
        if (direction == Winograd::Filter::kBack) given[1] = turned_round(filter);
        const auto winograd = Winograd::make(attrs_of(k), direction, constant ? given[1] : Tensor());
        REQUIRE(winograd);
        for (const int threads : {1, 2, 5}) {
          const Tensor got = convolved(*winograd, s, given, threads);
          REQUIRE(got.shape() == Shape{k.batch, s.y.out, s.x.out, k.out});
          double worst = 0;
          for (size_t i = 0; i < want.size(); ++i)
            worst = std::max(worst, std::fabs(double{got.data<float>()[i]} - want[i]));
          CHECK(worst < 5e-6 * std::max(largest, 1.0));
          if (!constant) continue;  // whose tiles may be of another size
          if (!first) first = got;
          CHECK(got.identical(*first));
        }
      }
  }
}

TEST_CASE("Winograd takes filters of 3x3 places, strides of 1 and enough channels, and pays where places are many") {
  if (!has_avx2_and_fma()) return;
  const Tensor filter = random_tensor<float>({3, 3, 32, 40}, 1), other = random_tensor<float>({3, 3, 32, 40}, 1);
  const ImageCase image{1, 8, 8, 32, 40};
  const WindowAttrs attrs = attrs_of(image);
  const auto forward = Winograd::Filter::kForward;
  const auto winograd = Winograd::make(attrs, forward, filter);
  REQUIRE(winograd);
  WindowAttrs changed = attrs;
  changed.strides[1] = 2;
  CHECK_FALSE(Winograd::make(changed, forward, filter));
  changed = attrs;
  changed.dilations[0] = 2;
  CHECK_FALSE(Winograd::make(changed, forward, filter));
  changed = attrs;
  changed.layout.channels_first = true;
  CHECK_FALSE(Winograd::make(changed, forward, filter));

  const auto pays = [&](const ImageCase& k, const Tensor& by) { return winograd->pays(shape_of(k), by); };
  CHECK(pays({1, 14, 14, 32, 40}, filter));
  CHECK(pays({1, 7, 7, 32, 40}, filter));
  CHECK(pays({64, 3, 3, 32, 40}, filter));
  CHECK(pays({8, 14, 14, 32, 40}, other));
  CHECK_FALSE(pays({1, 7, 7, 32, 40}, other));  // one that is transformed each time
  CHECK_FALSE(pays({1, 3, 3, 32, 40}, filter));
  CHECK_FALSE(pays({64, 1, 1, 32, 40}, filter));
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{32, 36}, {24, 40}, {32, 24}}) {
    const Tensor by = random_tensor<float>({3, 3, in, out}, 1);
    CHECK_FALSE(pays({1, 14, 14, in, out}, by));
  }
}

TEST_CASE("The shape of a gradient by the input is that of the convolution back") {
  const ConvShape s = shape_of({2, 6, 7, 48, 32, "EXPLICIT", {0, 0, 2, 1, 0, 2, 0, 0}}), back = back_of(s);
  CHECK((back.in_channels == 32 && back.out_channels == 48));
  CHECK((back.y.in == s.y.out && back.y.out == 6 && back.y.lo == 0));
  CHECK((back.x.in == s.x.out && back.x.out == 7 && back.x.lo == 2));
}

TEST_CASE("Gradients by the input through Winograd are those of loops, padded and not") {
  for (const ImageCase& k : {ImageCase{4, 16, 15, 32, 40},
                             {4, 16, 15, 40, 32, "VALID"},
                             {4, 13, 12, 32, 32, "EXPLICIT", {0, 0, 2, 1, 0, 2, 0, 0}}}) {
    const ConvShape s = shape_of(k);
    const Tensor dy = random_tensor<float>({k.batch, s.y.out, s.x.out, k.out}, 1),
                 filter = random_tensor<float>({3, 3, k.in, k.out}, 2);
    OpGraph g;
    const Output w = g.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape(filter.shape())}});
    Attrs attrs{{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", k.padding}};
    if (!k.pads.empty()) attrs.set("explicit_paddings", k.pads);
    const Tensor sizes = Tensor::of<int32_t>({static_cast<int32_t>(k.batch), static_cast<int32_t>(k.height),
                                              static_cast<int32_t>(k.width), static_cast<int32_t>(k.in)});
    const Tensor got = g.evaluator.value(g.op("Conv2DBackpropInput", {g.of(sizes), w, g.of(dy)}, attrs), {{w, filter}});
    std::vector<double> want(static_cast<size_t>(got.elements()));
    for (int64_t n = 0; n < k.batch; ++n)
      for (int64_t oy = 0; oy < s.y.out; ++oy)
        for (int64_t ox = 0; ox < s.x.out; ++ox)
          for (int64_t place = 0; place < 9; ++place) {
            const int64_t iy = oy - s.y.lo + place / 3, ix = ox - s.x.lo + place % 3;
            if (iy < 0 || iy >= k.height || ix < 0 || ix >= k.width) continue;
            const float* const from = dy.data<float>() + ((n * s.y.out + oy) * s.x.out + ox) * k.out;
            for (int64_t i = 0; i < k.in; ++i)
              for (int64_t o = 0; o < k.out; ++o)
                want[static_cast<size_t>(((n * k.height + iy) * k.width + ix) * k.in + i)] +=
                    double{from[o]} * double{filter.data<float>()[(place * k.in + i) * k.out + o]};
          }
    check_close(doubles(got), want, 1e-4);
  }
}

TEST_CASE("A convolution by a constant filter of 3x3 places is the same where a step feeds the filter") {
  const Shape images{2, 12, 12, 32};
  const Tensor x = random_tensor<float>(images, 1), filter = random_tensor<float>({3, 3, 32, 32}, 2),
               other = random_tensor<float>({3, 3, 32, 32}, 3);
  OpGraph g;
  const Output w = g.of(filter);
  const Output y =
      g.op("Conv2D", {g.of(x), w}, {{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("SAME")}});
  const auto want = [&](const Tensor& by) {
    const ConvShape s = shape_of({2, 12, 12, 32, 32});
    const Tensor none = Tensor::of<float>(std::vector<float>(static_cast<size_t>(images.elements())), images);
    std::vector<double> out;
    for (const float sign : {1.f, -1.f}) {  // expected() has no negative results
      Tensor turned = *Tensor::make(DType::kFloat32, by.shape());
      for (int64_t i = 0; i < by.elements(); ++i) turned.mutable_data<float>()[i] = sign * by.data<float>()[i];
      const auto part = expected(s, x, turned, none, none);
      out.resize(part.size());
      for (size_t i = 0; i < part.size(); ++i) out[i] += double{sign} * part[i];
    }
    return out;
  };
  for (int i = 0; i < 2; ++i) {
    check_close(doubles(g.evaluator.value(y, {})), want(filter), 1e-4);
    check_close(doubles(g.evaluator.value(y, {{w, other}})), want(other), 1e-4);
  }
}

}  // namespace
}  // namespace troupe::testing
