// SPDX-License-Identifier: Apache-2.0
// Random graphs of loops and branches within one another, whose nodes are on any of three devices.
#pragma once
#include <random>

#include "tests/engine/fixtures.h"
#include "troupe/control_flow.h"

namespace troupe {

/// Floats of shape [3] made of one another by loops in loops and branches, each node anywhere, or (placed = false) all
/// on one device. Graphs of one seed are the same but for that. With `dead_values` some loops begin with values of
/// which one may be dead while their counters live; such graphs may have dead gradients.
class RandomLoops {
 public:
  RandomLoops(const Scope& scope, uint32_t seed, bool placed, bool dead_values = false)
      : random_(seed), devices_(seed + 1), placed_(placed), dead_values_(dead_values) {
    Outputs values = {scope.constant(Tensor::of<float>({0.5f, -1, 2})),
                      scope.constant(Tensor::of<float>({1, 3, -0.25f}))};
    inputs = values;
    for (int i = 0; i < 3; ++i) values.push_back(loop(scope, values, 2));
    values.push_back(branch(scope, values, 2));
    for (int i = 0; i < 3; ++i) values.push_back(next(scope, values, 1));
    outputs = {values.begin() + 2, values.end()};
  }
  Outputs inputs, outputs;

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  Scope on(const Scope& s) {
    const auto device = devices_() % 5;
    return placed_ && device < 3 ? s.device("/cpu:" + std::to_string(device)) : s;
  }
  Scope perhaps_later(const Scope& s, const Outputs& from) { return pick(3) ? s : s.after(Outputs{any(from)}); }
  Output any(const Outputs& from) {
    return from[from.size() - 1 - static_cast<size_t>(pick(static_cast<int>(std::min<size_t>(from.size(), 5))))];
  }
  Output next(const Scope& s, const Outputs& from, int depth) {
    const Output x = any(from), y = any(from);
    if (dead_values_ && depth > 0 && pick(4) == 0) return half_dead(s, from, depth - 1);
    switch (pick(depth > 0 ? 10 : 7)) {
      case 0: return on(s).op("Sin", {x});
      case 1: return on(s).op("Mul", {x, on(s).constant(0.5f)});
      case 2: return on(s).op("Sub", {x, y});
      case 3:
      case 4: return on(s).op("Sin", {on(s).op("AddV2", {x, y})});
      case 5: return on(s).op("Identity", {on(s).op("Cos", {x})});
      case 6: return on(s).op("Mul", {on(s).op("Sin", {x}), y});
      case 7: return branch(s, from, depth - 1);
      default: return loop(s, from, depth - 1);
    }
  }
  Output several(const Scope& s, Outputs from, int depth) {
    for (int n = 1 + pick(4); n > 0; --n) from.push_back(next(s, from, depth));
    return from.back();
  }
  Output branch(const Scope& s, const Outputs& from, int depth) {
    const Output sum = on(s).op("Sum", {any(from), on(s).constant(0)});
    const auto side = [&](const Scope& in) { return Outputs{several(in, from, depth)}; };
    const Output less = on(s).op("Less", {sum, on(s).constant(0.f)});
    return cond(on(perhaps_later(s, from)), less, side, side)[0];
  }
  /// A value, or what loops make of it, whose counters live even where it is dead.
  Output half_dead(const Scope& s, Outputs from, int depth) {
    const Output sum = on(s).op("Sum", {any(from), on(s).constant(0)});
    const Node* sides = on(s).node("Switch", {any(from), on(s).op("Less", {sum, on(s).constant(0.f)})});
    if (!sides) return {};
    const Output maybe = on(s).op("Identity", {sides->out(1)});
    from.insert(from.end(), {maybe, maybe});
    const Output first = loop(s, from, depth);
    if (!first) return {};
    const Output later = on(s.after({pick(2) ? first : maybe})).op("Identity", {any(from)});
    from.insert(from.end(), {later, maybe, later});
    const Output second = loop(s, from, depth);
    if (!second) return {};
    const Output made = on(s).op("Sin", {on(s).op("AddV2", {on(s).op("AddV2", {first, second}), maybe})});
    return on(s).op("Merge", {on(s).op("Identity", {sides->out(0)}), made});
  }
  Output loop(const Scope& s, const Outputs& from, int depth) {
    const int times = pick(5), parallel = 1 + pick(4), carried = 1 + pick(3);
    Outputs init = {on(s).constant(0)};
    for (int i = 0; i < carried; ++i) init.push_back(any(from));
    const Scope later = perhaps_later(s, from), around = pick(3) ? later : on(later);
    const Outputs last = while_loop(
        around, init,
        [&](const Scope& in, const Outputs& v) {
          return on(in).op("Less", {v[0], on(in).constant(times)});
        },
        [&](const Scope& in, const Outputs& v) {
          Outputs inner = from;
          inner.insert(inner.end(), v.begin() + 1, v.end());
          Outputs out = {on(in).op("AddV2", {v[0], on(in).constant(1)})};
          for (int i = 0; i < carried; ++i) {
            // Of the iteration's values at least one, so that what comes next depends on the condition.
            const Output old = any(Outputs(v.begin() + 1, v.end()));
            out.push_back(pick(6) ? on(in).op("Sin", {on(in).op("AddV2", {old, several(in, inner, depth)})}) : old);
          }
          return out;
        },
        {.parallel_iterations = parallel});
    return last.empty() ? Output() : last[1 + static_cast<size_t>(pick(carried))];
  }

  std::mt19937 random_, devices_;
  const bool placed_, dead_values_;
};

}  // namespace troupe
