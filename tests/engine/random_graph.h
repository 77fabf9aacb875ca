// SPDX-License-Identifier: Apache-2.0
// Random graphs of arithmetic, branches and loops.
#pragma once
#include <cmath>
#include <random>

#include "tests/engine/fixtures.h"
#include "troupe/control_flow.h"

namespace troupe {

/// Builds float values of shapes [2, 3], [3] and [] out of one another, from a seed.
class RandomGraph {
 public:
  RandomGraph(TestEngine& t, uint32_t seed) : t_(t), random_(seed) {}

  /// With `open`, no shape is known; the nodes are in `scopes` scopes "part", "part_1", ...
  Outputs build(bool open = false, int scopes = 1) {
    const int64_t two = open ? -1 : 2, three = open ? -1 : 3;
    values_ = {t_.placeholder(DType::kFloat32, {two, three}, "x"), t_.placeholder(DType::kFloat32, {-1, three}, "y"),
               t_.placeholder(DType::kFloat32, {three}, "z")};
    feeds_ = values_;
    for (int part = 0; part < scopes; ++part) {
      const Scope s = t_.scope.scope("part");
      for (int i = 0; i < (open ? 16 : 24); ++i) values_.push_back(next(s, values_, 2));
    }
    Outputs fetches(values_.end() - 8, values_.end());
    return fetches;
  }
  std::vector<Feed> feeds() const {
    return {{feeds_[0], Tensor::of<float>({0.5f, -1, 2, 0, 1, -0.25f}, {2, 3})},
            {feeds_[1], Tensor::of<float>({1, 2, -3, 0.125f, -0.f, 4}, {2, 3})},
            {feeds_[2], Tensor::of<float>({1, -2, 0.75f})}};
  }
  /// With NaN, infinities, zeros of either sign, and values whose squares overflow.
  std::vector<Feed> odd_feeds() const {
    return {{feeds_[0], Tensor::of<float>({NAN, -INFINITY, -0.f, 1e30f, 0, -1}, {2, 3})},
            {feeds_[1], Tensor::of<float>({INFINITY, -0.f, 0, -1e30f, 2, NAN}, {2, 3})},
            {feeds_[2], Tensor::of<float>({-0.f, INFINITY, 1e-30f})}};
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  Output any(const Outputs& from) { return from[static_cast<size_t>(pick(static_cast<int>(from.size())))]; }

  Output constant(const Scope& s) {
    const float scalars[] = {0, -0.f, 1, 2, -1, 0.5f, 3};
    switch (pick(4)) {
      case 0: return s.constant(Tensor::of<float>({1, 1, 1}));
      case 1: return s.constant(Tensor::of<float>({0.5f, -2, 1}));
      default: return s.constant(scalars[pick(7)]);
    }
  }
  /// A value that changes nothing of x's shape.
  Output unary(const Scope& s, Output x) {
    const char* ops[] = {"Neg", "Identity", "Tanh", "Relu", "Sigmoid", "Abs", "Square", "StopGradient", "Elu", "Floor"};
    return s.op(ops[pick(10)], {x});
  }
  Output binary(const Scope& s, Output a, Output b) {
    const char* ops[] = {"AddV2", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference"};
    return pick(2) ? s.op(ops[pick(6)], {a, b}) : s.op(ops[pick(6)], {b, a});
  }
  Output next(const Scope& s, const Outputs& from, int depth) {
    const Output x = any(from);
    switch (pick(depth > 0 ? 12 : 9)) {
      case 0:
      case 1:
      case 2: return s.op("Tanh", {binary(s, x, any(from))});  // keeps values small
      case 3:
      case 4: return binary(s, x, constant(s));
      case 5: return s.op("Mul", {x, binary(s, constant(s), constant(s))});
      case 6: return s.op("Pow", {x, s.constant(static_cast<float>(1 + pick(3)))});
      case 7: return s.op("Mul", {x, s.op("Cast", {s.op("Rank", {x})}, {{"DstT", DType::kFloat32}})});
      case 8:
      case 9: return unary(s, unary(s, x));
      case 10: return branch(s, from, depth - 1);
      default: return loop(s, from, depth - 1);
    }
  }
  Output several(const Scope& s, Outputs from, int depth) {
    const int n = 1 + pick(4);
    for (int i = 0; i < n; ++i) from.push_back(next(s, from, depth));
    return from.back();
  }
  Output branch(const Scope& s, const Outputs& from, int depth) {
    const Output x = any(from);
    const Output axes = s.op("Range", {s.constant(0), s.op("Rank", {x}), s.constant(1)}),
                 scalar = s.op("Sum", {x, axes});
    const auto side = [&](const Scope& in) { return Outputs{several(in, from, depth)}; };
    return cond(s, s.op("Less", {scalar, s.constant(0.f)}), side, side)[0];
  }
  Output loop(const Scope& s, const Outputs& from, int depth) {
    const int times = pick(4);
    const Output first = s.op("BroadcastTo", {s.constant(0.5f), s.constant(Tensor::of<int32_t>({2, 3}))});
    return while_loop(
        s, {s.constant(0), first},
        [&](const Scope& in, const Outputs& v) {
          return in.op("Less", {v[0], in.constant(times)});
        },
        [&](const Scope& in, const Outputs& v) {
          Outputs inner = from;
          inner.push_back(v[1]);
          const Output changed = in.op("Tanh", {in.op("AddV2", {v[1], several(in, inner, depth)})});
          return Outputs{in.op("AddV2", {v[0], in.constant(1)}), changed};
        },
        {.shapes = {PartialShape::scalar(), PartialShape::unknown()}})[1];
  }

  TestEngine& t_;
  std::mt19937 random_;
  Outputs values_, feeds_;
};

}  // namespace troupe
