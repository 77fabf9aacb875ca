// SPDX-License-Identifier: Apache-2.0
// Convolutions by constant filters of 3x3 places after Winograd (ops/nn/winograd.h) against loops over doubles: tiles
// of both sizes, edges, paddings, channels that fill no panel, what follows, threads; and the shapes where it pays.
#include "ops/nn/winograd.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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
  return must(winograd.compute(c, s, epilogue()));
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
    const auto winograd = Winograd::make(filter, attrs_of(k));
    REQUIRE(winograd);
    const std::vector<double> want = expected(s, inputs[0], filter, inputs[2], inputs[3]);
    const Tensor first = convolved(*winograd, s, inputs, 1);
    REQUIRE(first.shape() == Shape{k.batch, s.y.out, s.x.out, k.out});
    const double largest = *std::ranges::max_element(want);
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i)
      worst = std::max(worst, std::fabs(double{first.data<float>()[i]} - want[i]));
    CHECK(worst < 5e-6 * std::max(largest, 1.0));
    for (const int threads : {1, 2, 5}) CHECK(convolved(*winograd, s, inputs, threads).identical(first));
  }
}

TEST_CASE("Winograd takes filters of 3x3 places, strides of 1 and enough channels, and pays where places are many") {
  if (!has_avx2_and_fma()) return;
  const Tensor filter = random_tensor<float>({3, 3, 32, 40}, 1);
  const WindowAttrs attrs = attrs_of({1, 8, 8, 32, 40});
  const auto winograd = Winograd::make(filter, attrs);
  REQUIRE(winograd);
  CHECK(winograd->is_of(filter));
  CHECK_FALSE(winograd->is_of(random_tensor<float>({3, 3, 32, 40}, 1)));
  for (const Shape& other : {Shape{3, 3, 32, 36}, Shape{3, 3, 24, 40}, Shape{3, 1, 32, 40}, Shape{5, 5, 32, 40}})
    CHECK_FALSE(Winograd::make(random_tensor<float>(other, 1), attrs));
  CHECK_FALSE(Winograd::make(random_tensor<double>({3, 3, 32, 40}, 1), attrs));
  WindowAttrs changed = attrs;
  changed.strides[1] = 2;
  CHECK_FALSE(Winograd::make(filter, changed));
  changed = attrs;
  changed.dilations[0] = 2;
  CHECK_FALSE(Winograd::make(filter, changed));
  changed = attrs;
  changed.layout.channels_first = true;
  CHECK_FALSE(Winograd::make(filter, changed));
  CHECK(winograd->pays(shape_of({1, 14, 14, 32, 40})));
  CHECK(winograd->pays(shape_of({1, 7, 7, 32, 40})));
  CHECK(winograd->pays(shape_of({64, 3, 3, 32, 40})));
  CHECK_FALSE(winograd->pays(shape_of({1, 3, 3, 32, 40})));
  CHECK_FALSE(winograd->pays(shape_of({64, 1, 1, 32, 40})));
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
