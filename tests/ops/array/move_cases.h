// SPDX-License-Identifier: Apache-2.0
// Cases of ops that move elements: mirrors, orders, blocks, diagonals, indices into several dimensions; and of Einsum
// and rounding to few bits.
#pragma once
#include "tests/ops/op_case.h"

namespace troupe::testing {

inline std::vector<OpCase> move_cases() {
  const Tensor x = D({1, 2, 3, 4, 5, 6}, {2, 3});
  const auto mode = [](const char* name) { return Attrs{{"mode", std::string(name)}}; };
  const auto along = [](int64_t sequence, int64_t batch) { return Attrs{{"seq_dim", sequence}, {"batch_dim", batch}}; };
  return {
      {"MirrorPad", {D({1, 2, 3}), I({2, 1}, {1, 2})}, mode("REFLECT"), {D({3, 2, 1, 2, 3, 2})}},
      {"MirrorPad", {D({1, 2, 3}), L({2, 3}, {1, 2})}, mode("SYMMETRIC"), {D({2, 1, 1, 2, 3, 3, 2, 1})}},
      {"MirrorPad", {ramp({2, 3, 2}), I({1, 0, 2, 1, 0, 1}, {3, 2})}, mode("REFLECT")},
      {"MirrorPad", {D(3), I({}, {0, 2})}, mode("REFLECT"), {D(3)}},
      {"MirrorPad", {D({}, {0, 2}), I({0, 0, 1, 1}, {2, 2})}, mode("REFLECT"), {D({}, {0, 4})}},
      {"MirrorPadGrad", {D({1, 2, 3, 4, 5, 6}), I({2, 1}, {1, 2})}, mode("REFLECT"), {D({3, 12, 6})}},
      {"MirrorPadGrad", {ramp({4, 5}), I({1, 1, 2, 1}, {2, 2})}, mode("SYMMETRIC")},
      {"Reverse", {x, B({false, true})}, {}, {D({3, 2, 1, 6, 5, 4}, {2, 3})}},
      {"Reverse", {D(2), B({})}, {}, {D(2)}},
      {"ReverseV2", {D({}, {0, 2}), I({0})}, {}, {D({}, {0, 2})}},
      {"ReverseSequence", {x, L({2, 3})}, along(1, 0), {D({2, 1, 3, 6, 5, 4}, {2, 3})}},
      {"ReverseSequence", {x, I({0, 1, 2})}, along(0, 1), {D({1, 2, 6, 4, 5, 3}, {2, 3})}},
      {"ReverseSequence", {ramp({2, 2, 3, 2}), L({3, 1})}, along(2, 1)},
      {"Roll", {D({1, 2, 3, 4, 5}), I(2), I(0)}, {}, {D({4, 5, 1, 2, 3})}},
      {"Roll", {x, L({-1, 3}), I({1, 0})}, {}, {D({5, 6, 4, 2, 3, 1}, {2, 3})}},
      {"Roll", {x, I({1, 1}), L({-1, 1})}, {}, {D({2, 3, 1, 5, 6, 4}, {2, 3})}},
      {"Roll", {D({}, {0, 2}), I(3), I(0)}, {}, {D({}, {0, 2})}},
      {"ConjugateTranspose", {x, I({1, 0})}, {}, {D({1, 4, 2, 5, 3, 6}, {3, 2})}},
      {"Concat", {I(1), x, D({7, 8}, {2, 1})}, {}, {D({1, 2, 3, 7, 4, 5, 6, 8}, {2, 4})}},
      {"ConcatOffset", {I(0), L({2, 2}), L({3, 2})}, {}, {L({0, 0}), L({2, 0})}},
      {"LinSpace", {D(1), D(2), I(5)}, {}, {D({1, 1.25, 1.5, 1.75, 2})}},
      {"LinSpace", {D(3), D(-1), L(1)}, {}, {D({3})}},
      {"LinSpace", {D(1), D(-INFINITY), L(3)}, {}, {D({1, -INFINITY, -INFINITY})}},
      {"UnravelIndex", {I({0, 5, 11}), I({3, 4})}, {}, {I({0, 1, 2, 0, 1, 3}, {2, 3})}},
      {"UnravelIndex", {L(7), L({3, 4})}, {}, {L({1, 3})}},
      {"BroadcastArgs", {I({3, 1}), I({2, 1, 4})}, {}, {I({2, 3, 4})}},
      {"BroadcastArgs", {L({}), L({2})}, {}, {L({2})}},
  };
}

inline std::vector<OpCase> block_cases() {
  const Tensor image = D({1, 2, 3, 4}, {1, 2, 2, 1});
  const auto block = [](const char* format = "NHWC") {
    return Attrs{{"block_size", int64_t{2}}, {"data_format", std::string(format)}};
  };
  const Attrs two = {{"block_size", int64_t{2}}};
  return {
      {"SpaceToBatchND", {image, I({2, 2}), I({0, 0, 0, 0}, {2, 2})}, {}, {D({1, 2, 3, 4}, {4, 1, 1, 1})}},
      {"SpaceToBatchND", {D({1, 2, 3}, {1, 3}), L({2}), L({1, 0}, {1, 2})}, {}, {D({0, 2, 1, 3}, {2, 2})}},
      {"SpaceToBatchND", {ramp({2, 3, 4, 2}), I({3, 2}), I({2, 1, 0, 2}, {2, 2})}},
      {"SpaceToBatchND", {ramp({2, 3}), I({}), I({}, {0, 2})}},
      {"BatchToSpaceND", {D({1, 2, 3, 4}, {4, 1, 1, 1}), I({2, 2}), I({0, 0, 0, 0}, {2, 2})}, {}, {image}},
      {"BatchToSpaceND", {D({1, 2, 3, 4}, {2, 2}), L({2}), L({1, 0}, {1, 2})}, {}, {D({3, 2, 4}, {1, 3})}},
      {"BatchToSpaceND", {ramp({12, 2, 3, 2}), I({3, 2}), I({1, 0, 2, 1}, {2, 2})}},
      {"SpaceToBatch", {image, I({0, 0, 0, 0}, {2, 2})}, two, {D({1, 2, 3, 4}, {4, 1, 1, 1})}},
      {"SpaceToBatch", {ramp({1, 3, 4, 2}), I({0, 1, 1, 1}, {2, 2})}, two},
      {"BatchToSpace", {ramp({4, 2, 2, 1}), I({1, 0, 0, 1}, {2, 2})}, two},
      {"SpaceToDepth", {image}, block(), {D({1, 2, 3, 4}, {1, 1, 1, 4})}},
      {"SpaceToDepth", {D({1, 2, 3, 4}, {1, 1, 2, 2})}, block("NCHW"), {D({1, 2, 3, 4}, {1, 4, 1, 1})}},
      {"SpaceToDepth", {ramp({2, 4, 2, 3})}, block()},
      {"SpaceToDepth", {ramp({2, 3, 4, 2})}, block("NCHW")},
      {"DepthToSpace", {D({1, 2, 3, 4}, {1, 1, 1, 4})}, block(), {image}},
      {"DepthToSpace", {ramp({2, 2, 1, 8})}, block()},
      {"DepthToSpace", {ramp({2, 8, 1, 2})}, block("NCHW")},
  };
}

inline std::vector<OpCase> diagonal_cases() {
  const Tensor m = D({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {3, 4}), batch = ramp({2, 3, 4});
  const auto align = [](const char* how) { return Attrs{{"align", std::string(how)}}; };
  const Tensor two = I({-1, 1}), band = D({0, 8, 9, 1, 2, 3, 4, 5, 0}, {3, 3});
  return {
      {"MatrixBandPart", {m, L(1), L(0)}, {}, {D({1, 0, 0, 0, 5, 6, 0, 0, 0, 10, 11, 0}, {3, 4})}},
      {"MatrixBandPart", {batch, I(-1), I(1)}},
      {"Diag", {D({1, 2})}, {}, {D({1, 0, 0, 2}, {2, 2})}},
      {"Diag", {ramp({2, 2})}},
      {"DiagPart", {D({1, 2, 3, 4}, {2, 2})}, {}, {D({1, 4})}},
      {"DiagPart", {ramp({2, 2, 2, 2})}},
      {"MatrixDiag", {D({1, 2, 3, 4}, {2, 2})}, {}, {D({1, 0, 0, 2, 3, 0, 0, 4}, {2, 2, 2})}},
      {"MatrixDiagV2", {D({1, 2}), I(1), I(-1), I(-1), D(9)}, {}, {D({9, 1, 9, 9, 9, 2, 9, 9, 9}, {3, 3})}, false},
      {"MatrixDiagV3", {band, two, I(-1), I(-1), D(0)}, {}, {D({1, 8, 0, 4, 2, 9, 0, 5, 3}, {3, 3})}, false},
      {"MatrixDiagV3",
       {D({1, 2}), I({-1}), I(3), I(2), D(0)},
       align("LEFT_LEFT"),
       {D({0, 0, 1, 0, 0, 2}, {3, 2})},
       false},
      {"MatrixDiagPart", {m}, {}, {D({1, 6, 11})}},
      {"MatrixDiagPart", {batch}},
      {"MatrixDiagPartV2", {m, I(-1), D(0)}, {}, {D({5, 10})}, false},
      {"MatrixDiagPartV3", {m, I({-2, 1}), D(0)}, {}, {D({2, 7, 12, 1, 6, 11, 5, 10, 0, 9, 0, 0}, {4, 3})}, false},
      {"MatrixDiagPartV3", {m, I({1, 2}), D(-1)}, align("LEFT_RIGHT"), {D({3, 8, -1, 2, 7, 12}, {2, 3})}, false},
      {"MatrixSetDiag", {m, D({-1, -2, -3})}, {}, {D({-1, 2, 3, 4, 5, -2, 7, 8, 9, 10, -3, 12}, {3, 4})}},
      {"MatrixSetDiagV2", {batch, ramp({2, 2}), I(2)}},
      {"MatrixSetDiagV3", {batch, ramp({2, 3, 3}), I({-1, 1})}, align("RIGHT_RIGHT")},
  };
}

inline std::vector<OpCase> nd_index_cases() {
  const Tensor x = D({1, 2, 3, 4, 5, 6}, {3, 2});
  const Attrs ignore = {{"bad_indices_policy", std::string("IGNORE")}};
  return {
      {"GatherNd", {x, I({}, {0, 1})}, {}, {D({}, {0, 2})}},
      {"GatherNd", {x, I({1, 7}, {2, 1})}, ignore, {D({3, 4, 0, 0}, {2, 2})}},
      {"GatherNd", {x, Tensor::of<int16_t>({2, 0}, {1, 2})}, {}, {D({5})}},
      {"ScatterNd", {I({1, 9}, {2, 1}), D({1, 2}), I({3})}, ignore, {D({0, 1, 0})}},
      {"ScatterNd",
       {I({1, 1}, {2, 1}), Tensor::of<std::string>({"a", "b"}), I({2})},
       {},
       {Tensor::of<std::string>({"", "ab"})}},
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
  const Tensor numbers = F({-1, 0, 1.5, 300}, {4}), turned = F({-2.5, 1.5, 0.5, 200}, {2, 2});
  const auto range = [](float a, float b) { return std::vector{F({a}, {}), F({b}, {})}; };
  const auto limits = [&](const Tensor& x, float a, float b) { return std::vector{x, range(a, b)[0], range(a, b)[1]}; };
  const auto bytes = [](std::initializer_list<uint8_t> v) { return Tensor::of<uint8_t>(v); };
  const auto signs = [](std::initializer_list<int8_t> v, const Shape& s) { return Tensor::of<int8_t>(v, s); };
  const Attrs scaled = {{"T", DType::kInt8}, {"mode", "SCALED"}, {"round_mode", "HALF_TO_EVEN"}};
  out.push_back({"QuantizeV2",
                 limits(numbers, 0, 255),
                 {{"T", DType::kUInt8}},
                 {bytes({0, 0, 2, 255}), range(0, 255)[0], range(0, 255)[1]}});
  out.push_back({"QuantizeV2", limits(numbers, 0, 255), {{"T", DType::kInt8}}, {signs({-128, -128, -127, 127}, {4})}});
  out.push_back({"QuantizeV2", limits(turned, -128, 127), scaled, {signs({-2, 2, 0, 127}, {2, 2})}});
  out.push_back({"QuantizeV2",
                 {turned, F({-128, -64}, {2}), F({127, 1}, {2})},
                 {{"T", DType::kInt8}, {"mode", "SCALED"}, {"axis", int64_t{1}}},
                 {signs({-3, 3, 1, 127}, {2, 2}), F({-128, -64}, {2}), F({127, 63.5}, {2})}});
  out.push_back(
      {"QuantizeV2", limits(numbers, 0, 255), {{"T", DType::kUInt8}, {"mode", "MIN_FIRST"}}, {bytes({0, 0, 2, 255})}});
  out.push_back({"Dequantize", limits(bytes({0, 2, 255}), 0, 255), {}, {F({0, 2, 255}, {3})}});
  out.push_back({"Dequantize", limits(signs({-128, 0, 127}, {3}), 0, 255), {}, {F({0, 128, 255}, {3})}});
  out.push_back({"Dequantize",
                 {signs({-128, 0, 127, 1}, {2, 2}), F({-64, -1}, {2}), F({1, 254}, {2})},
                 {{"mode", "SCALED"}, {"axis", int64_t{0}}},
                 {F({-64, 0, 254, 2}, {2, 2})}});
  out.push_back({"Dequantize", limits(bytes({0, 2, 255}), 0, 255), {{"mode", "MIN_FIRST"}}, {F({0, 2, 255}, {3})}});
  for (const char* op : {"QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4"}) {
    out.push_back(
        {op, {y, D(-1), D(0.5)}, {{"range_given", true}, {"num_bits", int64_t{2}}}, {D({-1, -0.5, 0, 0.5})}, false});
    out.push_back({op, {y, D(0), D(0)}, {{"num_bits", int64_t{2}}}, {D({-0.9, 0, 0, 0.9})}, false});
  }
  out.push_back({"QuantizeAndDequantizeV3", {y, D(-1), D(0.5), I(2)}, {}, {D({-1, -0.5, 0, 0.5})}, false});
  return out;
}

}  // namespace troupe::testing
