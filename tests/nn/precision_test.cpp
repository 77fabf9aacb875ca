// SPDX-License-Identifier: Apache-2.0
// Layers whose input is float16 or bfloat16: what has which type, and that training comes out near that in float32.
#include "tests/nn/fixture.h"
#include "troupe/tensor_parallel.h"

namespace troupe::nn {
namespace {

/// Logits [8,3] of x [8,6,6,2] by every kind of layer, in the type given.
Output small_network(const Scope& s, Variables& v, Output x, DType dtype) {
  x = cast(s, x, dtype);
  x = relu(s, batch_norm(s, v, conv2d(s, v, x, 4, 3, "conv"), "norm", true));
  x = avg_pool(s, max_pool(s, x, 2, 1), 2);
  x = s.op("Reshape", {x, s.constant(Tensor::of<int32_t>({8, 4, 4}))});
  x = lstm(s, v, x, 5, "lstm").last;
  return dense(s, v, dropout(s, v, x, 0.1f, true), 3, "logits");
}

/// The loss before each of some updates.
std::vector<float> losses(DType dtype, const Optimizer& optimizer, float scale = 1) {
  Fixture f;
  const Output x = f.s.constant(random_tensor({8, 6, 6, 2}));
  const Output labels = f.s.constant(Tensor::of<int32_t>({0, 1, 2, 0, 1, 2, 0, 1}));
  const Output logits = small_network(f.s, f.variables, x, dtype);
  const Output loss = sparse_softmax_cross_entropy(f.s, logits, labels);
  CHECK(logits.dtype() == dtype);
  CHECK(loss.dtype() == DType::kFloat32);
  const Node* const update = minimize(f.s, f.variables, optimizer, f.s.op("Mul", {loss, f.s.constant(scale)}));
  for (const Variable& v : f.variables.all()) CHECK((v.dtype == DType::kFloat32 || v.name == "global_step"));
  f.initialise();
  std::vector<float> out;
  for (int i = 0; i < 30; ++i) out.push_back(f.run({loss}, {update})[0].data<float>()[0]);
  for (const char* average : {"norm/moving_mean", "norm/moving_variance"})
    CHECK(f.variable(average).dtype() == DType::kFloat32);
  return out;
}

TEST_CASE("layers take their float32 variables in the 16-bit type of their input, and train as in float32") {
  const Optimizer optimizer = momentum(constant_rate(0.1f));
  const std::vector<float> expected = losses(DType::kFloat32, optimizer);
  CHECK(expected.back() < 0.7f * expected.front());
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    INFO(to_string(dtype));
    const std::vector<float> got = losses(dtype, optimizer);
    CHECK(got != expected);  // it was not computed in float32
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).margin(0.06));
  }
}

TEST_CASE("a loss that is scaled, with gradients scaled back by clipping, trains as one that is not") {
  Optimizer scaled = momentum(constant_rate(0.1f));
  scaled.clip = [](const Scope& s, const std::vector<Output>& gradients) {
    std::vector<Output> out;
    for (const Output& g : gradients) out.push_back(g ? s.op("Mul", {g, s.constant(1 / 1024.f)}) : g);
    return out;
  };
  const std::vector<float> expected = losses(DType::kFloat16, momentum(constant_rate(0.1f)));
  const std::vector<float> got = losses(DType::kFloat16, scaled, 1024);
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).margin(0.03));
}

TEST_CASE("layers that are split over devices compute in the type of their input too") {
  Fixture f(2);
  const Output x = f.s.constant(random_tensor({4, 6}));
  const std::vector<std::string> devices = f.engine->devices();
  const auto result = [&](DType dtype) {
    const Output in = cast(f.s, x, dtype);
    f.variables.reuse();
    const Spread hidden = dense_by_columns(f.s, f.variables, in, 8, "hidden", devices);
    const Output y = dense_by_rows(f.s, f.variables, hidden, 3, "out");
    const Spread all = dense_by_rows_to_all(f.s, f.variables, hidden, 3, "all");
    REQUIRE(f.s.ok());
    CHECK(y.dtype() == dtype);
    CHECK(all.parts.at(1).dtype() == dtype);
    return std::vector<Output>{cast(f.s, y, DType::kFloat32), cast(f.s, all.parts.at(1), DType::kFloat32)};
  };
  const auto wide = result(DType::kFloat32), narrow = result(DType::kBFloat16);
  f.initialise();
  for (size_t i = 0; i < wide.size(); ++i) {
    const auto expected = f.floats(wide[i]), got = f.floats(narrow[i]);
    CHECK(got != expected);
    for (size_t k = 0; k < got.size(); ++k) CHECK(got[k] == Approx(expected[k]).margin(0.06));
  }
}

TEST_CASE("losses of 16-bit floats are those of the same values in float32") {
  Fixture f;
  const Output rows = cast(f.s, f.s.constant(random_tensor({6, 4})), DType::kBFloat16);
  const Output wide = cast(f.s, rows, DType::kFloat32);
  const Output targets = softmax(f.s, cast(f.s, f.s.constant(random_tensor({6, 4}, 2)), DType::kBFloat16));
  const Output wide_targets = cast(f.s, targets, DType::kFloat32);
  CHECK(f.number(softmax_cross_entropy(f.s, rows, targets)) ==
        f.number(softmax_cross_entropy(f.s, wide, wide_targets)));
  CHECK(f.number(sigmoid_cross_entropy(f.s, rows, targets)) ==
        f.number(sigmoid_cross_entropy(f.s, wide, wide_targets)));
  CHECK(f.number(mean_squared_error(f.s, rows, targets)) == f.number(mean_squared_error(f.s, wide, wide_targets)));
}

TEST_CASE("a cast to the type that is there adds nothing, and one of nothing is a fault") {
  Fixture f;
  const Output x = f.s.constant(1.f);
  CHECK(cast(f.s, x, DType::kFloat32) == x);
  CHECK(f.s.ok());
  CHECK_FALSE(cast(f.s, {}, DType::kFloat32));
  CHECK_FALSE(f.s.ok());
}

}  // namespace
}  // namespace troupe::nn
