// SPDX-License-Identifier: Apache-2.0
// A graph of ops under test with an evaluator: values, errors and gradients in one call each.
#pragma once
#include <catch2/catch.hpp>

#include "tests/ops/evaluate.h"
#include "troupe/gradients.h"

namespace troupe::testing {

struct OpGraph {
  Graph graph{op_library()->ops};
  Scope scope{graph};
  Evaluator evaluator;

  Output of(Tensor t) { return scope.constant(std::move(t)); }
  Output op(std::string_view name, std::vector<Output> inputs, Attrs attrs = {}) {
    Output out = scope.op(name, std::move(inputs), std::move(attrs));
    INFO((scope.ok() ? "" : scope.status().error().str()));
    REQUIRE(scope.ok());
    return out;
  }
  Tensor run(Output y) {
    auto values = evaluator.run({y});
    INFO((values.ok() ? "" : values.error().str()));
    REQUIRE(values.ok());
    return (*values)[0];
  }
  Error error(Output y) {
    auto values = evaluator.run({y});
    REQUIRE_FALSE(values.ok());
    return values.error();
  }
  /// The gradient of sum(y * weights) by x.
  Tensor gradient(Output y, Output x, Tensor weights) {
    auto dx = gradients(scope, {y}, {x}, {of(std::move(weights))});
    INFO((dx.ok() ? "" : dx.error().str()));
    REQUIRE(dx.ok());
    REQUIRE((*dx)[0]);
    return run((*dx)[0]);
  }
};

}  // namespace troupe::testing
