// SPDX-License-Identifier: Apache-2.0
// Random numbers on GPUs are those of CPUs, bit for bit.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

/// The types that the GPU has a kernel of this op for, by the attribute that names them.
std::vector<DType> random_types(Parity& parity, const std::string& op, const char* attr) {
  std::vector<DType> out;
  for (const auto& [kind, types] : parity.gpu_kernels().kernels(op))
    for (DType dtype : types.at(attr)) out.push_back(dtype);
  REQUIRE_FALSE(out.empty());
  return out;
}

/// Shapes around the groups of four, as inputs; the last is an error.
std::vector<Tensor> random_shapes() {
  return {Tensor::of<int32_t>(std::span<const int32_t>()),
          Tensor::of<int32_t>({0, 3}),
          Tensor::of<int32_t>({1}),
          Tensor::of<int32_t>({5}),
          Tensor::of<int32_t>({16}),
          Tensor::of<int32_t>({3, 7, 2}),
          Tensor::of<int32_t>({40, 1025}),
          Tensor::of<int32_t>({2, -1})};
}
std::vector<Tensor> with(const Tensor& first, std::vector<Tensor> rest) {
  rest.insert(rest.begin(), first);
  return rest;
}
const Tensor& stateless_seed() {
  static const Tensor seed = Tensor::of<int64_t>({17, -5});
  return seed;
}
std::vector<Tensor> key_counter(int32_t algorithm = 1) {
  return {Tensor::of<uint64_t>({0x123456789abcdef0}), Tensor::of<uint64_t>({~uint64_t{0} - 1, 7}),
          Tensor::scalar<int32_t>(algorithm)};
}
Tensor bound(DType dtype, int64_t value) {
  Tensor out = *Tensor::make(dtype, Shape{});
  with_type(dtype, NumberTypes{}, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) *out.mutable_data<T>() = static_cast<T>(value);
  });
  return out;
}

TEST_CASE("Random floats on GPUs are those of CPUs") {
  Parity parity;
  const std::pair<std::string, std::string> ops[] = {{"RandomUniform", "StatelessRandomUniform"},
                                                     {"RandomStandardNormal", "StatelessRandomNormal"},
                                                     {"TruncatedNormal", "StatelessTruncatedNormal"}};
  for (const auto& [op, stateless] : ops)
    for (DType dtype : random_types(parity, op, "dtype"))
      for (const Tensor& shape : random_shapes()) {
        for (int64_t step : {-1, 3}) {
          parity.random_step = step;
          parity.check({op, {shape}, {{"dtype", dtype}, {"seed", int64_t{5}}, {"seed2", int64_t{9}}}});
        }
        parity.check({stateless, {shape, stateless_seed()}, {{"dtype", dtype}}});
        parity.check({stateless + "V2", with(shape, key_counter()), {{"dtype", dtype}}});
      }
  parity.check({"StatelessRandomUniform", {Tensor::of<int32_t>({3}), Tensor::of<int64_t>({1, 2, 3})}});  // errors
  parity.check({"StatelessRandomUniformV2", with(Tensor::of<int32_t>({3}), key_counter(2))});
}

TEST_CASE("Random integers on GPUs are those of CPUs") {
  Parity parity;
  for (const Tensor& shape : random_shapes())
    for (const auto& [low, high] : {std::pair<int64_t, int64_t>{-7, 9}, {0, 1 << 20}, {5, 5}, {9, 2}}) {
      for (DType dtype : random_types(parity, "RandomUniformInt", "Tout"))
        parity.check({"RandomUniformInt",
                      {shape, bound(dtype, low), bound(dtype, high)},
                      {{"seed", int64_t{5}}, {"seed2", int64_t{9}}}});
      for (DType dtype : random_types(parity, "StatelessRandomUniformInt", "dtype"))
        parity.check({"StatelessRandomUniformInt", {shape, stateless_seed(), bound(dtype, low), bound(dtype, high)}});
      for (DType dtype : random_types(parity, "StatelessRandomUniformIntV2", "dtype")) {
        auto inputs = with(shape, key_counter());
        inputs.push_back(bound(dtype, std::max<int64_t>(low, 0)));
        inputs.push_back(bound(dtype, high));
        parity.check({"StatelessRandomUniformIntV2", inputs});
      }
    }
  const Tensor vector = Tensor::of<int32_t>({1, 2}), one = Tensor::scalar<int32_t>(1);  // an error
  parity.check({"RandomUniformInt", {Tensor::of<int32_t>({3}), vector, one}, {{"seed", int64_t{1}}}});
}

TEST_CASE("Random integers of a whole type on GPUs are those of CPUs") {
  Parity parity;
  for (const Tensor& shape : random_shapes())
    for (DType dtype : random_types(parity, "StatelessRandomUniformFullInt", "dtype")) {
      parity.check({"StatelessRandomUniformFullInt", {shape, stateless_seed()}, {{"dtype", dtype}}});
      parity.check({"StatelessRandomUniformFullIntV2", with(shape, key_counter(3)), {{"dtype", dtype}}});
    }
}

}  // namespace
}  // namespace troupe::testing
