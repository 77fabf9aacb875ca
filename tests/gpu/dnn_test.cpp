// SPDX-License-Identifier: Apache-2.0
// Convolutions of the fake's library are what a Convolution says, and what none can do is an error and a fault.
#include "gpu/dnn.h"

#include <algorithm>
#include <array>
#include <random>

#include <catch2/catch.hpp>

#include "gpu/fake/fake_dnn.h"
#include "tests/gpu/inline_stream.h"

namespace troupe::gpu::fake {
std::vector<std::string> take_faults();
}  // namespace troupe::gpu::fake

namespace troupe::testing {
namespace {

using gpu::Convolution;

struct DnnHost {
  InlineStream stream;
  gpu::Card card;
  std::shared_ptr<gpu::Dnn> dnn = gpu::make_fake_dnn();
  gpu::Compute compute{.stream = stream, .card = card, .dnn = dnn.get(), .allocator = {}};
};

/// An element [n, y, x, c] of images or filters of these sizes; 0 beside the image.
double& element_of(std::vector<double>& values, bool first, std::array<int64_t, 4> size, std::array<int64_t, 4> at) {
  static double nothing;
  nothing = 0;
  if (at[1] < 0 || at[1] >= size[1] || at[2] < 0 || at[2] >= size[2]) return nothing;
  return values[static_cast<size_t>(first ? ((at[0] * size[3] + at[3]) * size[1] + at[1]) * size[2] + at[2]
                                          : ((at[0] * size[1] + at[1]) * size[2] + at[2]) * size[3] + at[3])];
}

TEST_CASE("The fake convolves images and makes both gradients") {
  DnnHost host;
  for (bool first : {false, true}) {
    Convolution c{.dtype = DType::kFloat64, .channels_first = first, .batch = 2, .in_channels = 4, .out_channels = 6};
    c.groups = 2;
    c.y = {.in = 7, .size = 3, .stride = 2, .dilation = 1, .padding = 1, .out = 4};
    c.x = {.in = 6, .size = 2, .stride = 1, .dilation = 3, .padding = 2, .out = 7};
    std::mt19937_64 random(1);
    const auto numbers = [&](int64_t n) {
      std::vector<double> out(static_cast<size_t>(n));
      for (double& v : out) v = static_cast<double>(random() % 9) - 4;
      return out;
    };
    auto in = numbers(2 * 7 * 6 * 4), filter = numbers(6 * 3 * 2 * 2), out = numbers(2 * 4 * 7 * 6);
    // The sum of all products of one element of each is the scalar product of what is made with the third tensor.
    double expected = 0;
    for (int64_t n = 0; n < 2; ++n)
      for (int64_t k = 0; k < 6; ++k)
        for (int64_t oy = 0; oy < 4; ++oy)
          for (int64_t ox = 0; ox < 7; ++ox)
            for (int64_t fy = 0; fy < 3; ++fy)
              for (int64_t fx = 0; fx < 2; ++fx)
                for (int64_t q = 0; q < 2; ++q)
                  expected += element_of(out, first, {2, 4, 7, 6}, {n, oy, ox, k}) *
                              element_of(filter, first, {6, 3, 2, 2}, {k, fy, fx, q}) *
                              element_of(in, first, {2, 7, 6, 4}, {n, oy * 2 - 1 + fy, ox - 2 + fx * 3, k / 3 * 2 + q});
    c.input = in.data();
    c.filter = filter.data();
    c.output = out.data();
    for (Convolution::Makes makes :
         {Convolution::Makes::kOutput, Convolution::Makes::kInput, Convolution::Makes::kFilter}) {
      const auto& third = makes == Convolution::Makes::kOutput  ? out
                          : makes == Convolution::Makes::kInput ? in
                                                                : filter;
      std::vector<double> made(third.size(), 99);
      c.makes = makes;
      c.made = made.data();
      REQUIRE(host.dnn->convolve(host.compute, c).ok());
      double sum = 0;
      for (size_t i = 0; i < made.size(); ++i) sum += made[i] * third[i];
      CHECK(sum == expected);
    }
    // One element by itself.
    std::vector<double> made(out.size());
    c.makes = Convolution::Makes::kOutput;
    c.made = made.data();
    REQUIRE(host.dnn->convolve(host.compute, c).ok());
    double one = 0;
    for (int64_t fy = 0; fy < 3; ++fy)
      for (int64_t fx = 0; fx < 2; ++fx)
        for (int64_t q = 0; q < 2; ++q)
          one += element_of(filter, first, {6, 3, 2, 2}, {4, fy, fx, q}) *
                 element_of(in, first, {2, 7, 6, 4}, {1, 2 * 2 - 1 + fy, 3 - 2 + fx * 3, 2 + q});
    CHECK(element_of(made, first, {2, 4, 7, 6}, {1, 2, 3, 4}) == one);
  }
}

TEST_CASE("A bias and Relu follow a convolution") {
  DnnHost host;
  for (const bool first : {false, true})
    for (const bool biased : {false, true})
      for (const bool relu : {false, true}) {
        Convolution c{
            .dtype = DType::kFloat64, .channels_first = first, .batch = 2, .in_channels = 2, .out_channels = 3};
        c.y = {.in = 4, .size = 2, .stride = 1, .dilation = 1, .padding = 0, .out = 3};
        c.x = {.in = 5, .size = 3, .stride = 2, .dilation = 1, .padding = 1, .out = 3};
        std::vector<double> in(2 * 4 * 5 * 2), filter(3 * 2 * 3 * 2), plain(2 * 3 * 3 * 3), made(plain.size());
        for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<double>(i * 7 % 9) - 4;
        for (size_t i = 0; i < filter.size(); ++i) filter[i] = static_cast<double>(i * 5 % 7) - 3;
        const std::vector<double> bias = {20, -5, 0.5};
        c.input = in.data();
        c.filter = filter.data();
        c.made = plain.data();
        REQUIRE(host.dnn->convolve(host.compute, c).ok());
        c.made = made.data();
        if (biased) c.bias = bias.data();
        if (relu) c.activation = gpu::Activation::kRelu;
        REQUIRE(host.dnn->convolve(host.compute, c).ok());
        for (size_t i = 0; i < made.size(); ++i) {
          const size_t channel = first ? i / 9 % 3 : i % 3;
          const double x = plain[i] + (biased ? bias[channel] : 0);
          CHECK(made[i] == (relu ? std::max(x, 0.0) : x));
        }
      }
}

TEST_CASE("Convolutions that cannot be are errors that say why") {
  DnnHost host;
  (void)gpu::fake::take_faults();
  float x[64] = {};
  Convolution good{.in_channels = 2, .out_channels = 4};
  good.input = good.filter = x;
  good.made = x + 32;
  good.x = {.in = 4, .size = 3, .out = 2};
  CHECK(host.dnn->convolve(host.compute, good).ok());
  const auto refused = [&](auto change) {
    Convolution c = good;
    change(c);
    const Status status = host.dnn->convolve(host.compute, c);
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().code == Code::kInvalidArgument);
    return status.error().message;
  };
  CHECK(refused([](Convolution& c) { c.groups = 3; }) ==
        "1 images cannot be convolved from 2 to 4 channels in 3 groups");
  CHECK(refused([](Convolution& c) { c.batch = 0; }) ==
        "0 images cannot be convolved from 2 to 4 channels in 1 groups");
  CHECK(refused([](Convolution& c) { c.x.out = 3; }) ==
        "a filter of 3 places, 1 apart, does not stand 3 times, 1 apart, over 4 places with 0 of padding");
  CHECK(refused([](Convolution& c) { c.x.size = 9; }) ==
        "a filter of 9 places, 1 apart, does not stand 2 times, 1 apart, over 4 places with 0 of padding");
  CHECK(refused([](Convolution& c) {
          c.makes = Convolution::Makes::kInput;
          c.bias = c.input;
        }) == "a gradient of a convolution takes neither bias nor activation");
  CHECK(gpu::fake::take_faults().size() == 5);
  Convolution curved = good;
  curved.activation = gpu::Activation::kGelu;
  CHECK(host.dnn->convolve(host.compute, curved).error().code == Code::kUnimplemented);
  Convolution whole = good;
  whole.dtype = DType::kInt32;
  CHECK(host.dnn->convolve(host.compute, whole).error().code == Code::kUnimplemented);
}

}  // namespace
}  // namespace troupe::testing
