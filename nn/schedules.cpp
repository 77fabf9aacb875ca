// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules as nodes over the number of the update.
#include "troupe/optimizers.h"

namespace troupe::nn {

Schedule constant_rate(float rate) {
  return [=](const Scope& scope, Output) { return scope.constant(rate); };
}

Schedule exponential_decay(float rate, float factor, int64_t every, bool staircase) {
  return [=](const Scope& scope, Output step) {
    if (every < 1) {
      scope.fail(invalid_argument("exponential_decay: `every` must be at least 1, got {}", every));
      return Output{};
    }
    Output power = scope.op("RealDiv", {step, scope.constant(static_cast<float>(every))});
    if (staircase) power = scope.op("Floor", {power});
    return scope.op("Mul", {scope.constant(rate), scope.op("Pow", {scope.constant(factor), power})});
  };
}

Schedule piecewise_rate(float first, std::vector<std::pair<int64_t, float>> from) {
  return [=](const Scope& scope, Output step) {
    Output rate = scope.constant(first);
    for (size_t i = 0; i < from.size(); ++i) {
      const auto [boundary, next] = from[i];
      if (i > 0 && boundary <= from[i - 1].first) {
        scope.fail(
            invalid_argument("piecewise_rate: boundaries must ascend, but {} follows {}", boundary, from[i - 1].first));
        return Output{};
      }
      const Output reached = scope.op("GreaterEqual", {step, scope.constant(static_cast<float>(boundary))});
      rate = scope.op("SelectV2", {reached, scope.constant(next), rate});
    }
    return rate;
  };
}

Schedule cosine_decay(float rate, int64_t total, int64_t warmup, float floor) {
  return [=](const Scope& scope, Output step) {
    if (total <= std::max<int64_t>(0, warmup)) {
      scope.fail(invalid_argument("cosine_decay: `total` must be more than `warmup` and than 0, got {} and {}", total,
                                  warmup));
      return Output{};
    }
    const auto number = [&](double x) { return scope.constant(static_cast<float>(x)); };
    const auto span = static_cast<double>(total - std::max<int64_t>(0, warmup));
    Output done = scope.op(
        "Mul", {scope.op("Sub", {step, number(static_cast<double>(std::max<int64_t>(0, warmup)))}), number(1 / span)});
    done = scope.op("Minimum", {scope.op("Maximum", {done, number(0)}), number(1)});
    const Output wave = scope.op("Cos", {scope.op("Mul", {done, number(3.14159265358979)})});
    const Output half = scope.op("Mul", {scope.op("AddV2", {wave, number(1)}), number((rate - floor) / 2)});
    const Output falling = scope.op("AddV2", {half, number(floor)});
    if (warmup <= 0) return falling;
    const Output rise =
        scope.op("Mul", {scope.op("AddV2", {step, number(1)}), number(1. / static_cast<double>(warmup))});
    return scope.op("Mul", {falling, scope.op("Minimum", {rise, number(1)})});
  };
}

}  // namespace troupe::nn
