// SPDX-License-Identifier: Apache-2.0
// Graphs of ops on images in blocks of channels, and of what these stand for.
#pragma once
#include <catch2/catch.hpp>

#include <cmath>

#include "tests/ops/evaluate.h"

namespace troupe::testing {

struct BlockedFixture {
  explicit BlockedFixture(int threads = 1) : evaluator(threads) {}

  Evaluator evaluator;
  Graph graph{op_library()->ops};
  Scope s{graph};
  std::vector<std::pair<Output, Tensor>> feeds;

  static Tensor numbers(const Shape& shape) {
    Tensor t = *Tensor::make(DType::kFloat32, shape);
    for (int64_t i = 0; i < t.elements(); ++i)
      t.mutable_data<float>()[i] = static_cast<float>(i * 7919 % 1013 - 500) / 500;
    return t;
  }
  Output values(const Shape& shape, bool constant = true) {
    if (constant) return s.constant(numbers(shape));
    const Output fed = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape(shape)}});
    feeds.emplace_back(fed, numbers(shape));
    return fed;
  }
  Output blocked(Output x) { return s.op("_BlockImages", {x}); }
  Output unblocked(Output x, int64_t channels) { return s.op("_UnblockImages", {x}, {{"channels", channels}}); }
  std::vector<Tensor> run(const std::vector<Output>& fetches) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    auto r = evaluator.run(fetches, feeds);
    INFO((r.ok() ? "" : r.error().str()));
    REQUIRE(r.ok());
    return std::move(r).value();
  }
  void same(const Tensor& a, const Tensor& b) {
    REQUIRE(a.shape() == b.shape());
    float worst = 0;
    for (int64_t i = 0; i < a.elements(); ++i)
      worst = std::max(worst, std::fabs(a.data<float>()[i] - b.data<float>()[i]));
    CHECK(worst < 1e-4f);
  }
};

}  // namespace troupe::testing
