// SPDX-License-Identifier: Apache-2.0
// Cases of ops that move elements: mirrors, orders, blocks, diagonals, indices into several dimensions; and of Einsum
// and rounding to few bits.
#pragma once
#include "tests/ops/op_case.h"

namespace troupe::testing {

inline std::vector<OpCase> nd_index_cases() {
  const Tensor x = D({1, 2, 3, 4, 5, 6}, {3, 2});
  const Attrs ignore = {{"bad_indices_policy", std::string("IGNORE")}};
  return {
      {"GatherNd", {x, I({}, {0, 1})}, {}, {D({}, {0, 2})}},
      {"GatherNd", {x, I({1, 7}, {2, 1})}, ignore, {D({3, 4, 0, 0}, {2, 2})}},
      {"GatherNd", {x, Tensor::of<int16_t>({2, 0}, {1, 2})}, {}, {D({5})}},
      {"ScatterNd", {I({1, 9}, {2, 1}), D({1, 2}), I({3})}, ignore, {D({0, 1, 0})}},
      {"ScatterNd", {I({0, 0, 2}, {3, 1}), B({true, false, true}), I({3})}, {}, {B({true, false, true})}},
      {"ScatterNdNonAliasingAdd", {x, I({1, 1, 1, 0}, {2, 2}), D({10, 20})}, {}, {D({1, 2, 23, 14, 5, 6}, {3, 2})}},
      {"TensorScatterUpdate", {x, I({2, 0}, {2, 1}), D({7, 8, 9, 10}, {2, 2})}, {}, {D({9, 10, 3, 4, 7, 8}, {3, 2})}},
      {"TensorScatterUpdate",
       {Tensor::of<std::string>({"a", "b"}), L({1}, {1, 1}), Tensor::of<std::string>({"c"})},
       {},
       {Tensor::of<std::string>({"a", "c"})}},
      {"TensorScatterAdd", {x, L({1, 0, 1, 0}, {2, 2}), D({10, 20})}, {}, {D({1, 2, 33, 4, 5, 6}, {3, 2})}},
      {"TensorScatterAdd", {I({INT32_MAX}), I({0}, {1, 1}), I({1})}, {}, {I({INT32_MIN})}},
      {"TensorScatterSub", {x, I({2}, {1, 1}), D({1, 2}, {1, 2})}, {}, {D({1, 2, 3, 4, 4, 4}, {3, 2})}},
      {"TensorScatterMin", {x, I({2, 0}, {2, 1}), D({1, 9, 0.5, 7}, {2, 2})}, {}, {D({0.5, 2, 3, 4, 1, 6}, {3, 2})}},
      {"TensorScatterMax", {x, I({2, 0}, {2, 1}), D({1, 9, 0.5, 7}, {2, 2})}, {}, {D({1, 7, 3, 4, 5, 9}, {3, 2})}},
  };
}

inline std::vector<OpCase> einsum_cases() {
  const auto equation = [](const char* text) { return Attrs{{"equation", std::string(text)}}; };
  const Tensor a = ramp({2, 3}), b = ramp({3, 4});
  return {
      {"Einsum",
       {D({1, 2, 3, 4}, {2, 2}), D({5, 6, 7, 8}, {2, 2})},
       equation("ij,jk->ik"),
       {D({19, 22, 43, 50}, {2, 2})}},
      {"Einsum", {D({1, 2, 3, 4}, {2, 2})}, equation("ii->i"), {D({1, 4})}},
      {"Einsum", {D({1, 2})}, equation("i->ii"), {D({1, 0, 0, 2}, {2, 2})}},
      {"Einsum", {D({1, 2, 3, 4}, {2, 2})}, equation("ij->"), {D(10)}},
      {"Einsum", {D({}, {2, 0}), D({}, {0, 2})}, equation("ij,jk->ik"), {D({0, 0, 0, 0}, {2, 2})}},
      {"Einsum", {a, b}, equation("ab,bc->ca")},
      {"Einsum", {a, ramp({4, 3})}, equation("ab,cb->ac")},
      {"Einsum", {ramp({2, 1, 3, 4}), ramp({5, 4, 2})}, equation("...ab,...bc->...ac")},
      {"Einsum", {ramp({2, 3, 2, 5}), ramp({2, 3, 2, 5})}, equation("bqhd,bkhd->bhqk")},
      {"Einsum", {ramp({2, 3, 4}), ramp({3, 2})}, equation("abc,bd->d")},
      {"Einsum", {ramp({3, 3, 2})}, equation("aab->b")},
      {"Einsum", {ramp({2, 3, 4})}, equation("...a->a...")},
      {"Einsum", {ramp({2, 3}), ramp({4, 3, 2})}, equation("a...,...a->...a")},
      {"Einsum", {ramp({3}), ramp({2, 3})}, equation("a,...a->...a")},
      {"Einsum", {ramp({2, 3}), ramp({3})}, equation("ab,b->aab")},
  };
}

inline std::vector<OpCase> rounding_cases() {
  const Tensor x = F({-7, -1.3f, 0.1f, 0.62f, 2.9f, 6.4f}, {2, 3}), g = F({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor low = F({-1}, {}), high = F({1}, {}), lows = F({-1, 0, -2}, {3}), highs = F({1, 0, 4}, {3});
  const Attrs narrow = {{"num_bits", int64_t{4}}, {"narrow_range", true}}, two = {{"num_bits", int64_t{2}}};
  const Tensor y = D({-1.2, -0.4, 0.1, 0.9});
  std::vector<OpCase> out = {
      {"FakeQuantWithMinMaxArgs", {x}, two, {F({-8, 0, 0, 0, 4, 4}, {2, 3})}, false},
      {"FakeQuantWithMinMaxArgsGradient", {g, x}, {}, {F({0, 2, 3, 4, 5, 0}, {2, 3})}},
      {"FakeQuantWithMinMaxVars", {x, low, high}, narrow, {}, false},
      {"FakeQuantWithMinMaxVars", {x, F({0}, {}), F({0}, {})}, {}, {F({0, 0, 0, 0, 0, 0}, {2, 3})}, false},
      {"FakeQuantWithMinMaxVarsGradient",
       {g, x, low, high},
       {},
       {F({0, 0, 3, 4, 0, 0}, {2, 3}), F({3}, {}), F({11}, {})}},
      {"FakeQuantWithMinMaxVarsPerChannel", {x, lows, highs}, narrow, {}, false},
      {"FakeQuantWithMinMaxVarsPerChannelGradient",
       {g, x, lows, highs},
       {},
       {F({0, 2, 3, 4, 5, 0}, {2, 3}), F({1, 0, 0}, {3}), F({0, 0, 6}, {3})}},
      {"QuantizeAndDequantize", {y}, {{"num_bits", int64_t{2}}}, {D({-0.9, 0, 0, 0.9})}, false},
      {"QuantizeAndDequantizeV4Grad", {D({1, 2, 3, 4}), y, D(-1), D(0.5)}, {}, {D({0, 2, 3, 0}), D(0), D(0)}},
  };
  for (const char* op : {"QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4"}) {
    out.push_back(
        {op, {y, D(-1), D(0.5)}, {{"range_given", true}, {"num_bits", int64_t{2}}}, {D({-1, -0.5, 0, 0.5})}, false});
    out.push_back({op, {y, D(0), D(0)}, {{"num_bits", int64_t{2}}}, {D({-0.9, 0, 0, 0.9})}, false});
  }
  out.push_back({"QuantizeAndDequantizeV3", {y, D(-1), D(0.5), I(2)}, {}, {D({-1, -0.5, 0, 0.5})}, false});
  return out;
}

}  // namespace troupe::testing
