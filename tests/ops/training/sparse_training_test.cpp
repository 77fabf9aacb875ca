// SPDX-License-Identifier: Apache-2.0
// The sparse updates: rows change as if the dense op were run on each in turn, and nothing changes when they do not
// fit.
#include <cmath>

#include "tests/ops/state_fixture.h"

using namespace troupe;

namespace {

struct SparseUpdateCase {
  std::string name;  // ResourceApply..., ResourceSparseApply...
  int slots;
  std::vector<double> scalars;  // in the order of the inputs
  int gradient;                 // place of the gradient among them
  Attrs attrs = {};
};

const double lr = 0.1, mo = 0.9, eps = 1e-3, rho = 0.9;

std::vector<SparseUpdateCase> sparse_update_cases() {
  return {{"Momentum", 1, {lr, mo}, 1},
          {"Momentum", 1, {lr, mo}, 1, {{"use_nesterov", true}}},
          {"KerasMomentum", 1, {lr, mo}, 1, {{"use_nesterov", true}}},
          {"Adagrad", 1, {lr}, 1},
          {"Adagrad", 1, {lr}, 1, {{"update_slots", false}}},
          {"AdagradV2", 1, {lr, eps}, 2},
          {"AdagradDA", 2, {lr, 0.01, 0.02, 3}, 0},
          {"Adadelta", 2, {lr, rho, eps}, 3},
          {"RMSProp", 2, {lr, rho, mo, eps}, 4},
          {"CenteredRMSProp", 3, {lr, rho, mo, eps}, 4},
          {"Ftrl", 2, {lr, 0.01, 0.02, -0.5}, 0},
          {"Ftrl", 2, {lr, 0.01, 0.02, -0.6}, 0, {{"multiply_linear_by_lr", true}}},
          {"FtrlV2", 2, {lr, 0.01, 0.02, 0.03, -0.5}, 0},
          {"ProximalGradientDescent", 0, {lr, 0.01, 0.02}, 3},
          {"ProximalAdagrad", 1, {lr, 0.01, 0.02}, 3}};
}

/// Variables of `rows` rows of two, the trained one first.
std::vector<StateFixture::Arg> variables(StateFixture& f, const SparseUpdateCase& c, const std::string& prefix,
                                         int rows) {
  std::vector<StateFixture::Arg> out;
  for (int v = 0; v <= c.slots; ++v) {
    out.push_back(f.variable(prefix + std::to_string(v), {rows, 2}, DType::kFloat64));
    std::vector<double> values;
    for (int i = 0; i < rows * 2; ++i) values.push_back(v ? 0.9 : 0.3 * (i + 1) * (i % 2 ? -1 : 1));
    f.assign(out.back(), Tensor::of<double>(values, {rows, 2}));
  }
  return out;
}

std::vector<StateFixture::Arg> arguments(const SparseUpdateCase& c, std::vector<StateFixture::Arg> args,
                                         const Tensor& g, const Tensor* indices) {
  std::vector<StateFixture::Arg> rest;
  for (size_t i = 0; i < c.scalars.size(); ++i) {
    const bool step = c.name == "AdagradDA" && i == 3;
    rest.push_back(step ? Tensor::scalar(static_cast<int64_t>(c.scalars[i])) : Tensor::scalar(c.scalars[i]));
  }
  if (indices) rest.insert(rest.begin() + c.gradient, *indices);
  rest.insert(rest.begin() + c.gradient, g);
  args.insert(args.end(), rest.begin(), rest.end());
  return args;
}

}  // namespace

TEST_CASE("a sparse update changes rows one after the other as the dense one does") {
  for (const SparseUpdateCase& c : sparse_update_cases()) {
    INFO(c.name);
    StateFixture f;
    const auto sparse = variables(f, c, "sparse", 4);
    const Tensor indices = Tensor::of<int64_t>({2, 0, 2}), g = Tensor::of<double>({1, -2, 0.5, 3, -1, 0}, {3, 2});
    const auto done = f.run("ResourceSparseApply" + c.name, arguments(c, sparse, g, &indices), c.attrs);
    if (!done.ok()) FAIL(done.error().str());
    // The same by the dense op on a variable of one row each.
    std::vector<std::vector<StateFixture::Arg>> rows;
    for (int row = 0; row < 4; ++row) {
      rows.push_back(variables(f, c, "row" + std::to_string(row), 4));
      for (auto& v : rows.back()) f.assign(v, f.read(v));
    }
    for (int k = 0; k < 3; ++k) {
      const int64_t row = indices.data<int64_t>()[k];
      std::vector<double> dense(8, 0);
      dense[static_cast<size_t>(row) * 2] = g.data<double>()[2 * k];
      dense[static_cast<size_t>(row) * 2 + 1] = g.data<double>()[2 * k + 1];
      const auto one =
          f.run("ResourceApply" + c.name,
                arguments(c, rows[static_cast<size_t>(row)], Tensor::of<double>(dense, {4, 2}), nullptr), c.attrs);
      if (!one.ok()) FAIL(one.error().str());
    }
    for (size_t v = 0; v < sparse.size(); ++v) {
      const Tensor got = f.read(sparse[v]);
      for (int64_t row = 0; row < 4; ++row) {
        const Tensor expected = f.read(rows[static_cast<size_t>(row)][v]);
        for (int64_t i = 2 * row; i < 2 * row + 2; ++i)
          CHECK(got.data<double>()[i] == Approx(expected.data<double>()[i]).epsilon(1e-12));
      }
    }
  }
}

// Expected: TensorFlow 2.21. The dense op has ms + (grad^2 - ms) * (1 - rho), lr * grad first, and so infinity.
TEST_CASE("large numbers overflow in a sparse RMSProp where TensorFlow's do") {
  const float inf = INFINITY;
  const auto updated = [&](const std::string& op, std::vector<Tensor> slots) {
    StateFixture f;
    std::vector<StateFixture::Arg> args;
    slots.insert(slots.begin(), Tensor::of<float>({1, 1, 1}));
    for (const Tensor& slot : slots) {
      args.push_back(f.variable("v" + std::to_string(args.size()), {3}, DType::kFloat32));
      f.assign(args.back(), slot);
    }
    const std::vector<StateFixture::Arg> variables = args;
    for (const float scalar : {3e38f, 0.9f, 0.9f, 1e-7f}) args.push_back(Tensor::scalar(scalar));
    args.push_back(Tensor::of<float>({1, 3e38f, 3e19f}));
    args.push_back(Tensor::of<int32_t>({0, 1, 2}));
    const auto done = f.run(op, args);
    if (!done.ok()) FAIL(done.error().str());
    std::vector<Tensor> out;
    for (const auto& v : variables) out.push_back(f.read(v));
    return out;
  };
  const auto check = [](const Tensor& got, std::vector<float> expected) {
    for (size_t i = 0; i < expected.size(); ++i) CHECK(got.data<float>()[i] == Approx(expected[i]).epsilon(1e-6));
  };
  const Tensor ms = Tensor::of<float>({3e38f, 1, -3e38f}), mom = Tensor::of<float>({0, 3e38f, 1});
  const auto plain = updated("ResourceSparseApplyRMSProp", {ms, mom});
  check(plain[0], {-1.82574203e19f, -2.7e38f, 0.1f});
  check(plain[1], {2.7e38f, inf, inf});
  check(plain[2], {1.8257420e19f, 2.7e38f, 0.9f});
  const auto centered =
      updated("ResourceSparseApplyCenteredRMSProp", {Tensor::of<float>({3e38f, -3e38f, 1e19f}), ms, mom});
  check(centered[1], {2.7e38f, -2.4e38f, 1.2e19f});
  check(centered[2], {2.7e38f, inf, inf});
  CHECK(centered[3].data<float>()[2] == Approx(0.9f));
}

TEST_CASE("a sparse update that does not fit is refused and changes nothing") {
  StateFixture f;
  const SparseUpdateCase c = sparse_update_cases()[0];
  const auto v = variables(f, c, "v", 4);
  const Tensor before = f.read(v[0]);
  const Tensor g = Tensor::of<double>({1, -2, 0.5, 3}, {2, 2});
  const auto error = [&](const Tensor& indices, const Tensor& gradient) {
    const auto r = f.run("ResourceSparseApplyMomentum", arguments(c, v, gradient, &indices));
    REQUIRE_FALSE(r.ok());
    return r.error().str();
  };
  CHECK_THAT(error(Tensor::of<int32_t>({1, 4}), g), Catch::Contains("index 4 at position 1") && Catch::Contains("4)"));
  CHECK_THAT(error(Tensor::of<int32_t>({-1, 1}), g), Catch::Contains("index -1"));
  CHECK_THAT(error(Tensor::of<int32_t>({1, 2, 3}), g), Catch::Contains("'v0'") && Catch::Contains("[2,2]"));
  CHECK_THAT(error(Tensor::of<int32_t>({1, 2}, {1, 2}), g), Catch::Contains("[1,2]"));
  CHECK_THAT(error(Tensor::of<int32_t>({1}), Tensor::of<double>({1, 2, 3}, {1, 3})), Catch::Contains("[4,2]"));
  CHECK(f.read(v[0]).identical(before));
  const auto none = f.run(
      "ResourceSparseApplyMomentum",
      arguments(c, v, *Tensor::zeros(DType::kFloat64, {0, 2}), &static_cast<const Tensor&>(Tensor::of<int32_t>({}))));
  CHECK(none.ok());
  CHECK(f.read(v[0]).identical(before));
}
