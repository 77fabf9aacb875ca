// SPDX-License-Identifier: Apache-2.0
// The optimizers' updates against the formulas of TensorFlow's documentation, written again in double precision.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "ops/parts/type_dispatch.h"
#include "tests/ops/state_fixture.h"

using namespace troupe;

namespace {

using State = std::vector<double>;  // one element: the variable, then its slots

struct UpdateCase {
  std::string op;
  std::vector<double> slots;    // initial values
  std::vector<double> scalars;  // in the order of the inputs
  int gradient;                 // place of the gradient among scalars and gradient
  Attrs attrs;
  std::function<void(State&, double g)> step;
};

std::vector<UpdateCase> update_cases() {
  const double lr = 0.1, mo = 0.9, b1 = 0.8, b2 = 0.95, eps = 1e-3, rho = 0.9;
  return {
      {"ResourceApplyGradientDescent", {}, {lr}, 1, {}, [=](State& s, double g) { s[0] -= lr * g; }},
      {"ResourceApplyMomentum",
       {0},
       {lr, mo},
       1,
       {},
       [=](State& s, double g) { s[1] = mo * s[1] + g, s[0] -= lr * s[1]; }},
      {"ResourceApplyMomentum",
       {0},
       {lr, mo},
       1,
       {{"use_nesterov", true}},
       [=](State& s, double g) { s[1] = mo * s[1] + g, s[0] -= lr * (g + mo * s[1]); }},
      {"ResourceApplyKerasMomentum",
       {0},
       {lr, mo},
       1,
       {},
       [=](State& s, double g) { s[1] = mo * s[1] - lr * g, s[0] += s[1]; }},
      {"ResourceApplyKerasMomentum",
       {0},
       {lr, mo},
       1,
       {{"use_nesterov", true}},
       [=](State& s, double g) { s[1] = mo * s[1] - lr * g, s[0] += mo * s[1] - lr * g; }},
      {"ResourceApplyAdam",
       {0, 0},
       {b1, b2, lr, b1, b2, eps},
       6,
       {},
       [=](State& s, double g) {
         s[1] = b1 * s[1] + (1 - b1) * g, s[2] = b2 * s[2] + (1 - b2) * g * g;
         s[0] -= lr * std::sqrt(1 - b2) / (1 - b1) * s[1] / (std::sqrt(s[2]) + eps);
       }},
      {"ResourceApplyAdam",
       {0, 0},
       {b1, b2, lr, b1, b2, eps},
       6,
       {{"use_nesterov", true}},
       [=](State& s, double g) {
         s[1] = b1 * s[1] + (1 - b1) * g, s[2] = b2 * s[2] + (1 - b2) * g * g;
         s[0] -= lr * std::sqrt(1 - b2) / (1 - b1) * (b1 * s[1] + (1 - b1) * g) / (std::sqrt(s[2]) + eps);
       }},
      {"ResourceApplyAdagrad",
       {0.1},
       {lr},
       1,
       {},
       [=](State& s, double g) { s[1] += g * g, s[0] -= lr * g / std::sqrt(s[1]); }},
      {"ResourceApplyAdagrad",
       {0.1},
       {lr},
       1,
       {{"update_slots", false}},
       [=](State& s, double g) { s[0] -= lr * g / std::sqrt(s[1]); }},
      {"ResourceApplyAdagradV2",
       {0.1},
       {lr, eps},
       2,
       {},
       [=](State& s, double g) { s[1] += g * g, s[0] -= lr * g / (std::sqrt(s[1]) + eps); }},
      {"ResourceApplyRMSProp",
       {0, 0},
       {lr, rho, mo, eps},
       4,
       {},
       [=](State& s, double g) {
         s[1] = rho * s[1] + (1 - rho) * g * g, s[2] = mo * s[2] + lr * g / std::sqrt(s[1] + eps), s[0] -= s[2];
       }},
      {"ResourceApplyCenteredRMSProp",
       {0, 0, 0},
       {lr, rho, mo, eps},
       4,
       {},
       [=](State& s, double g) {
         s[1] = rho * s[1] + (1 - rho) * g, s[2] = rho * s[2] + (1 - rho) * g * g;
         s[3] = mo * s[3] + lr * g / std::sqrt(s[2] - s[1] * s[1] + eps), s[0] -= s[3];
       }},
      {"ResourceApplyAdadelta",
       {0, 0},
       {lr, rho, eps},
       3,
       {},
       [=](State& s, double g) {
         s[1] = rho * s[1] + (1 - rho) * g * g;
         const double update = std::sqrt(s[2] + eps) / std::sqrt(s[1] + eps) * g;
         s[2] = rho * s[2] + (1 - rho) * update * update, s[0] -= lr * update;
       }},
      {"ResourceApplyFtrl",
       {0.1, 0},
       {lr, 0.05, 0.02, -0.5},
       0,
       {},
       [=](State& s, double g) {
         const double now = s[1] + g * g;
         s[2] += g - (std::sqrt(now) - std::sqrt(s[1])) / lr * s[0], s[1] = now;
         const double sign = s[2] > 0 ? 1 : -1;
         s[0] = std::abs(s[2]) > 0.05 ? (sign * 0.05 - s[2]) / (std::sqrt(now) / lr + 2 * 0.02) : 0;
       }},
      {"ResourceApplyFtrlV2",
       {0.1, 0},
       {lr, 0.05, 0.02, 0.03, -0.5},
       0,
       {},
       [=](State& s, double g) {
         const double now = s[1] + g * g;
         s[2] += g + 2 * 0.03 * s[0] - (std::sqrt(now) - std::sqrt(s[1])) / lr * s[0], s[1] = now;
         s[0] = (std::clamp(s[2], -0.05, 0.05) - s[2]) / (std::sqrt(now) / lr + 2 * 0.02);
       }},
      {"ResourceApplyFtrl",
       {0.1, 0},
       {lr, 0.05, 0.02, -0.5},
       0,
       {{"multiply_linear_by_lr", true}},
       [=](State& s, double g) {
         const double now = s[1] + g * g;
         s[2] += g * lr - (std::sqrt(now) - std::sqrt(s[1])) * s[0], s[1] = now;
         s[0] = (std::clamp(s[2], -0.05 * lr, 0.05 * lr) - s[2]) / (std::sqrt(now) + 2 * 0.02 * lr);
       }},
      {"ResourceApplyAdaMax",
       {0, 0},
       {b1, lr, b1, b2, eps},
       5,
       {},
       [=](State& s, double g) {
         s[1] = b1 * s[1] + (1 - b1) * g, s[2] = std::max(b2 * s[2], std::abs(g));
         s[0] -= lr / (1 - b1) * s[1] / (s[2] + eps);
       }},
      {"ResourceApplyAdamWithAmsgrad",
       {0, 0, 0},
       {b1, b2, lr, b1, b2, eps},
       6,
       {},
       [=](State& s, double g) {
         s[1] = b1 * s[1] + (1 - b1) * g, s[2] = b2 * s[2] + (1 - b2) * g * g, s[3] = std::max(s[3], s[2]);
         s[0] -= lr * std::sqrt(1 - b2) / (1 - b1) * s[1] / (std::sqrt(s[3]) + eps);
       }},
      {"ResourceApplyAddSign",
       {0},
       {lr, 1.5, 0.7, b1},
       4,
       {},
       [=](State& s, double g) {
         s[1] = b1 * s[1] + (1 - b1) * g;
         s[0] -= lr * (1.5 + 0.7 * (g * s[1] > 0 ? 1 : -1)) * g;
       }},
      {"ResourceApplyPowerSign",
       {0},
       {lr, 1.5, 0.7, b1},
       4,
       {},
       [=](State& s, double g) {
         s[1] = b1 * s[1] + (1 - b1) * g;
         s[0] -= lr * std::exp(1.5 * 0.7 * (g * s[1] > 0 ? 1 : -1)) * g;
       }},
      {"ResourceApplyAdagradDA",
       {0, 0.1},
       {lr, 0.05, 0.02, 4},
       0,
       {},
       [=](State& s, double g) {
         s[1] += g, s[2] += g * g;
         const double sign = s[1] > 0 ? 1 : -1;
         s[0] = -lr * sign * std::max(std::abs(s[1]) - 4 * 0.05, 0.) / (0.02 * 4 * lr + std::sqrt(s[2]));
       }},
      {"ResourceApplyProximalGradientDescent",
       {},
       {lr, 0.5, 0.2},
       3,
       {},
       [=](State& s, double g) {
         const double x = s[0] - lr * g, sign = x > 0 ? 1 : -1;
         s[0] = sign * std::max(std::abs(x) - lr * 0.5, 0.) / (1 + 0.2 * lr);
       }},
      {"ResourceApplyProximalAdagrad",
       {0.1},
       {lr, 0.5, 0.2},
       3,
       {},
       [=](State& s, double g) {
         s[1] += g * g;
         const double r = lr / std::sqrt(s[1]), x = s[0] - r * g, sign = x > 0 ? 1 : -1;
         s[0] = sign * std::max(std::abs(x) - r * 0.5, 0.) / (1 + 0.2 * r);
       }},
      {"ResourceApplyFtrl",
       {0.1, 0},
       {lr, 0, 0.02, -0.7},
       0,
       {},
       [=](State& s, double g) {
         const double now = s[1] + g * g;
         s[2] += g - (std::pow(now, 0.7) - std::pow(s[1], 0.7)) / lr * s[0], s[1] = now;
         s[0] = s[2] == 0 ? 0 : -s[2] / (std::pow(now, 0.7) / lr + 2 * 0.02);
       }},
  };
}

template <class T> double as_double(T x) { return widen(x); }

template <class T> void follow(const UpdateCase& c, double tolerance) {
  INFO(c.op << " " << to_string(dtype_of<T>));
  constexpr int kElements = 37;  // some whole vectors and a rest
  StateFixture f;
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<State> model(kElements);
  std::vector<StateFixture::Arg> variables;
  for (size_t v = 0; v <= c.slots.size(); ++v) {
    variables.push_back(f.variable("v" + std::to_string(v), {kElements}, dtype_of<T>));
    std::vector<T> initial(kElements);
    for (int i = 0; i < kElements; ++i) {
      initial[i] = T(static_cast<float>(v ? c.slots[v - 1] : normal(random)));
      model[i].push_back(as_double(initial[i]));
    }
    f.assign(variables[v], Tensor::of<T>(std::span<const T>(initial)));
  }
  for (int step = 0; step < 8; ++step) {
    std::vector<T> g(kElements);
    for (int i = 0; i < kElements; ++i) {
      g[i] = T(static_cast<float>(normal(random)));
      c.step(model[i], as_double(g[i]));
    }
    auto args = variables;
    for (double s : c.scalars) args.push_back(Tensor::scalar(T(s)));
    if (c.op == "ResourceApplyAdagradDA") args.back() = Tensor::scalar(static_cast<int64_t>(c.scalars.back()));
    args.insert(args.begin() + variables.size() + c.gradient, Tensor::of<T>(std::span<const T>(g)));
    const auto done = f.run(c.op, args, c.attrs);
    if (!done.ok()) FAIL(done.error().str());
  }
  for (size_t v = 0; v < variables.size(); ++v) {
    const Tensor got = f.read(variables[v]);
    for (int i = 0; i < kElements; ++i)
      REQUIRE(as_double(got.data<T>()[i]) == Approx(model[i][v]).epsilon(tolerance).margin(tolerance));
  }
}

}  // namespace

TEST_CASE("each optimizer follows its formula for several steps") {
  for (const UpdateCase& c : update_cases()) {
    follow<float>(c, 2e-5);
    follow<double>(c, 1e-7);  // scalars pass through float nowhere
  }
}

TEST_CASE("16-bit variables are updated with float arithmetic") {
  const auto all = update_cases();
  follow<bfloat16>(all[0], 0.05);
  follow<float16>(all[1], 0.02);
}

TEST_CASE("an update that does not fit is refused and changes nothing") {
  StateFixture f;
  const auto w = f.variable("w"), m = f.variable("m"), none = f.variable("none");
  f.assign(w, Tensor::of<float>({1, 2}));
  f.assign(m, Tensor::of<float>({0, 0, 0}));
  const Tensor lr = Tensor::scalar(1.f), g = Tensor::of<float>({1, 1});
  CHECK_THAT(f.run("ResourceApplyMomentum", {w, m, lr, g, lr}).error().message,
             Catch::Contains("'m'") && Catch::Contains("[3]") && Catch::Contains("[2]"));
  CHECK(f.run("ResourceApplyMomentum", {w, none, lr, g, lr}).error().code == Code::kFailedPrecondition);
  CHECK_THAT(f.run("ResourceApplyMomentum", {w, w, lr, g, lr}).error().message, Catch::Contains("twice"));
  CHECK_THAT(f.run("ResourceApplyGradientDescent", {w, g, g}).error().str(), Catch::Contains("rank 0"));
  const auto far =
      f.handle("VarHandleOp", "far",
               {{"dtype", DType::kFloat32}, {"shape", PartialShape{2}}, {"container", std::string("elsewhere")}});
  CHECK_THAT(f.run("ResourceApplyMomentum", {w, far, lr, g, lr}).error().message, Catch::Contains("input 1"));
  CHECK(f.read(w).identical(Tensor::of<float>({1, 2})));
  const auto sized = f.variable("sized", {3});
  CHECK_THAT(f.run("ResourceApplyGradientDescent", {sized, lr, g}).error().str(), Catch::Contains("[3]"));
}
