// SPDX-License-Identifier: Apache-2.0
// Cases of the array, gather, cast and random families, and of the matrix and bias ops.
#pragma once
#include "tests/ops/op_case.h"

namespace troupe::testing {

inline std::vector<OpCase> array_cases() {
  const Tensor x = D({1, 2, 3, 4, 5, 6}, {2, 3});
  const auto masks = [](int64_t begin, int64_t end, int64_t ellipsis, int64_t new_axis, int64_t shrink) {
    return Attrs{{"begin_mask", begin},
                 {"end_mask", end},
                 {"ellipsis_mask", ellipsis},
                 {"new_axis_mask", new_axis},
                 {"shrink_axis_mask", shrink}};
  };
  return {
      {"DataFormatDimMap", {I({0, 1, 2, 3, -1})}, {}, {I({0, 2, 3, 1, 1})}},
      {"DataFormatVecPermute", {L({1, 2, 3, 4})}, {}, {L({1, 4, 2, 3})}},
      {"DataFormatVecPermute",
       {I({1, 2, 3, 4, 5, 6}, {3, 2})},
       {{"src_format", std::string("NDHWC")}, {"dst_format", std::string("WCHDN")}},
       {I({5, 6, 3, 4, 1, 2}, {3, 2})}},
      {"DeviceIndex", {}, {{"device_names", std::vector<std::string>{"GPU", "CPU"}}}, {I(1)}},
      {"FakeParam", {}, {{"dtype", DType::kFloat64}, {"shape", PartialShape{1, 2}}}, {D({0, 0}, {1, 2})}},
      {"InplaceUpdate", {D({1, 2, 3, 4}, {2, 2}), I({1, -1}), D({5, 6, 7, 8}, {2, 2})}, {}, {D({1, 2, 7, 8}, {2, 2})}},
      {"InplaceAdd", {D({1, 2, 3, 4}, {2, 2}), I({1, 1}), D({5, 6, 7, 8}, {2, 2})}, {}, {D({1, 2, 15, 18}, {2, 2})}},
      {"InplaceSub", {L({1, 2, 3}), I({0}), L({5})}, {}, {L({-4, 2, 3})}},
      {"Reshape", {x, I({3, -1})}, {}, {D({1, 2, 3, 4, 5, 6}, {3, 2})}},
      // Beside a 0 a size left open is what the sizes other than 0 give: TensorFlow's results.
      {"Reshape", {D({}, {0, 5, 32}), I({0, -1, 4, 8})}, {}, {D({}, {0, 5, 4, 8})}},
      {"Reshape", {D({}, {2, 0}), I({-1, 0})}, {}, {D({}, {2, 0})}},
      {"Reshape", {D({}, {0, 5}), I({-1, 0})}, {}, {D({}, {5, 0})}},
      {"Reshape", {D({}, {2, 0, 4}), I({0, -1, 3})}, {}, {D({}, {0, 2, 3})}},
      {"Reshape", {D({}, {0}), I({0, -1})}, {}, {D({}, {0, 1})}},
      {"Reshape", {D({}, {0, 4}), I({2, -1})}, {}, {D({}, {2, 0})}},
      {"Reshape", {D(2), I({1, 1})}, {}, {D({2}, {1, 1})}},
      {"Reshape", {x, L({6})}, {}, {D({1, 2, 3, 4, 5, 6})}},
      {"ExpandDims", {x, I(1)}, {}, {D({1, 2, 3, 4, 5, 6}, {2, 1, 3})}},
      {"ExpandDims", {D(2), I(-1)}, {}, {D({2})}},
      {"Squeeze", {D({1, 2}, {1, 2, 1})}, {}, {D({1, 2})}},
      {"Squeeze", {D({1, 2}, {1, 2, 1})}, {{"squeeze_dims", std::vector<int64_t>{-1}}}, {D({1, 2}, {1, 2})}},
      {"Transpose", {x, I({1, 0})}, {}, {D({1, 4, 2, 5, 3, 6}, {3, 2})}},
      {"Transpose", {ramp({2, 3, 4, 2}), I({0, 3, 1, 2})}},
      {"Transpose", {ramp({3, 2, 2}), L({2, 1, 0})}},
      {"InvertPermutation", {I({2, 0, 1})}, {}, {I({1, 2, 0})}},
      {"Tile", {D({1, 2}, {1, 2}), I({2, 2})}, {}, {D({1, 2, 1, 2, 1, 2, 1, 2}, {2, 4})}},
      {"Tile", {D(3), I({})}, {}, {D(3)}},
      {"Tile", {ramp({2, 1, 3, 1}), I({1, 2, 2, 3})}},
      {"Tile", {ramp({1, 2, 1, 1, 2, 1, 2, 1}), L({2, 1, 2, 1, 2, 1, 1, 3})}},
      {"Tile", {ramp({1, 0, 2, 1, 2}), I({2, 1, 1, 0, 1})}},
      {"ReverseV2", {x, I({1})}, {}, {D({3, 2, 1, 6, 5, 4}, {2, 3})}},
      {"ReverseV2", {x, I({0, -1})}, {}, {D({6, 5, 4, 3, 2, 1}, {2, 3})}},
      {"Where", {Tensor::of<complex64>({complex64(0, 0), complex64(0, 1)})}, {}, {L({1}, {1, 1})}},
      {"Where", {B({true, false, false, true}, {2, 2})}, {}, {L({0, 0, 1, 1}, {2, 2})}},
      {"ConcatV2", {x, D({7, 8}, {2, 1}), I(1)}, {}, {D({1, 2, 3, 7, 4, 5, 6, 8}, {2, 4})}},
      {"ConcatV2", {D({1, 2}), D({3}), L(-1)}, {}, {D({1, 2, 3})}},
      {"ParallelConcat",
       {I({1, 2}, {1, 2}), I({3, 4}, {1, 2})},
       {{"shape", PartialShape{2, 2}}},
       {I({1, 2, 3, 4}, {2, 2})}},
      {"ConcatOffset", {I(1), I({2, 2}), I({2, 5})}, {}, {I({0, 0}), I({0, 2})}},
      {"ConcatOffset", {I(0), L({2}), L({3})}, {}, {L({0}), L({2})}},
      {"Split", {I(1), D({1, 2, 3, 4}, {2, 2})}, {{"num_split", int64_t{2}}}, {D({1, 3}, {2, 1}), D({2, 4}, {2, 1})}},
      {"Split", {I(0), D({1, 2})}, {{"num_split", int64_t{2}}}, {D({1}), D({2})}},
      {"SplitV", {x, I({1, -1}), I(1)}, {{"num_split", int64_t{2}}}, {D({1, 4}, {2, 1}), D({2, 3, 5, 6}, {2, 2})}},
      {"Pack", {D({1, 2}), D({3, 4})}, {{"axis", int64_t{1}}}, {D({1, 3, 2, 4}, {2, 2})}},
      {"Pack", {D(1), D(2)}, {}, {D({1, 2})}},
      {"Unpack", {x}, {{"num", int64_t{3}}, {"axis", int64_t{-1}}}, {D({1, 4}), D({2, 5}), D({3, 6})}},
      {"Unpack", {x}, {{"num", int64_t{2}}}, {D({1, 2, 3}), D({4, 5, 6})}},
      {"Slice", {x, I({0, 1}), I({2, -1})}, {}, {D({2, 3, 5, 6}, {2, 2})}},
      {"Slice", {x, L({1, 0}), L({1, 3})}, {}, {D({4, 5, 6}, {1, 3})}},
      {"StridedSlice", {x, I({0, 2}), I({2, 0}), I({1, -1})}, {}, {D({3, 2, 6, 5}, {2, 2})}},
      {"StridedSlice", {x, I({1}), I({2}), I({1})}, masks(0, 0, 0, 0, 1), {D({4, 5, 6})}},
      {"StridedSlice", {x, I({-1, 0}), I({0, 0}), I({-1, 2})}, masks(0, 3, 0, 0, 0), {D({4, 6, 1, 3}, {2, 2})}},
      {"StridedSlice", {x, I({0, 0, -1}), I({0, 0, 0}), I({1, 1, 1})}, masks(0, 0, 1, 2, 4), {D({3, 6}, {2, 1})}},
      {"StridedSlice", {x, L({0, 2}), L({2, -9}), L({INT64_MAX, INT64_MIN})}, {}, {D({3}, {1, 1})}},
      {"StridedSliceGrad",
       {I({2, 3}), I({0, 1}), I({2, 2}), I({1, 1}), D({7, 8}, {2, 1})},
       {},
       {D({0, 7, 0, 0, 8, 0}, {2, 3})}},
      {"XlaDynamicSlice", {x, I({1, 1}), I({1, 2})}, {}, {D({5, 6}, {1, 2})}},
      {"XlaDynamicSlice", {x, L({-3, 9}), L({2, 1})}, {}, {D({3, 6}, {2, 1})}},
      {"XlaDynamicUpdateSlice", {x, D({7, 8}, {1, 2}), I({1, 0})}, {}, {D({1, 2, 3, 7, 8, 6}, {2, 3})}},
      {"XlaDynamicUpdateSlice", {x, D({7, 8}, {2, 1}), L({9, 9})}, {}, {D({1, 2, 7, 4, 5, 8}, {2, 3})}},
      {"XlaDynamicUpdateSlice", {x, D({}, {0, 3}), L({1, 0})}, {}, {x}},
      {"XlaDynamicUpdateSlice", {D(1), D(2), L({})}, {}, {D(2)}},
      {"TensorStridedSliceUpdate",
       {x, I({0, 1}), I({2, 2}), I({1, 1}), D({7, 8}, {2, 1})},
       {},
       {D({1, 7, 3, 4, 8, 6}, {2, 3})}},
      {"TensorStridedSliceUpdate", {x, I({0}), I({2}), I({1}), D({7}, {1, 1})}, {}, {D({7, 7, 7, 7, 7, 7}, {2, 3})}},
      {"TensorStridedSliceUpdate",
       {x, L({1, 2}), L({9, -9}), L({1, -2}), D({7, 8})},
       masks(0, 2, 0, 0, 1),
       {D({1, 2, 3, 8, 5, 7}, {2, 3})}},
      {"Pad", {D({1, 2}, {1, 2}), I({1, 0, 0, 2}, {2, 2})}, {}, {D({0, 0, 0, 0, 1, 2, 0, 0}, {2, 4})}},
      {"PadV2", {D({1}), I({1, 1}, {1, 2}), D(9)}, {}, {D({9, 1, 9})}, false},
  };
}

inline std::vector<OpCase> gather_cases() {
  const Tensor x = D({1, 2, 3, 4, 5, 6}, {3, 2});
  return {
      {"Gather", {x, I({2, 0, 2})}, {}, {D({5, 6, 1, 2, 5, 6}, {3, 2})}},
      {"Gather", {x, L({1, 0}, {1, 2})}, {{"validate_indices", false}}, {D({3, 4, 1, 2}, {1, 2, 2})}},
      {"GatherV2", {x, I({2, 0, 2}), I(0)}, {}, {D({5, 6, 1, 2, 5, 6}, {3, 2})}},
      {"GatherV2", {x, L({1}), I(1)}, {}, {D({2, 4, 6}, {3, 1})}},
      {"GatherV2", {x, Tensor::of<int16_t>({2, 0}), I(0)}, {}, {D({5, 6, 1, 2}, {2, 2})}},
      {"GatherV2", {x, I(1), I(0)}, {}, {D({3, 4})}},
      {"GatherV2", {x, I({1, 0, 0}, {3, 1}), I(1)}, {{"batch_dims", int64_t{1}}}, {D({2, 3, 5}, {3, 1})}},
      {"GatherV2", {x, I({1, 0, 0}, {3, 1}), I(1)}, {{"batch_dims", int64_t{-1}}}, {D({2, 3, 5}, {3, 1})}},
      {"GatherV2", {x, I({1, 0, 0}), I(1)}, {{"batch_dims", int64_t{1}}}, {D({2, 3, 5})}},
      {"GatherV2", {ramp({2, 3, 2}), I({1, 0, 1, 1}, {2, 2}), I(2)}, {{"batch_dims", int64_t{1}}}},
      {"GatherV2", {ramp({2, 2, 3, 2}), L({1, 0, 2, 2, 0, 1, 0, 0}, {2, 2, 2, 1}), I(2)}, {{"batch_dims", int64_t{2}}}},
      {"GatherV2", {ramp({2, 2, 2, 3}), L({1, 0, 2, 2}, {2, 2}), I(3)}, {{"batch_dims", int64_t{1}}}},
      {"GatherNd", {x, I({2, 1, 0, 0}, {2, 2})}, {}, {D({6, 1})}},
      {"GatherNd", {x, L({1}, {1, 1})}, {}, {D({3, 4}, {1, 2})}},
      {"ScatterNd", {I({1, 1, 3}, {3, 1}), D({1, 2, 3}), I({5})}, {}, {D({0, 3, 0, 3, 0})}},
      {"ScatterNd", {I({0, 0}, {2, 1}), L({INT64_MAX, 2}), I({1})}, {}, {L({INT64_MIN + 1})}},
      {"UnsortedSegmentSum", {I({INT32_MAX, 1}), I({0, 0}), I(1)}, {}, {I({INT32_MIN})}},
      {"UnsortedSegmentSum", {x, I({1, -1, 1}), I(2)}, {}, {D({0, 0, 6, 8}, {2, 2})}},
      {"OneHot", {I({1, 3, 0}), I(3), D(2), D(-1)}, {}, {D({-1, 2, -1, -1, -1, -1, 2, -1, -1}, {3, 3})}},
      {"OneHot", {L({1, 0}), I(2), D(1), D(0)}, {{"axis", int64_t{0}}}, {D({0, 1, 1, 0}, {2, 2})}},
      {"TopKV2", {D({1, 5, 3, 5}, {2, 2}), I(1)}, {}, {D({5, 5}, {2, 1}), I({1, 1}, {2, 1})}},
      {"TopKV2", {D({4, 7, 7, 1}), I(3)}, {}, {D({7, 7, 4}), I({1, 2, 0})}, false},
      {"TopKV2", {ramp({2, 2, 3}), I(2)}},
      {"TopKV2", {D({4, 7}), L(1)}, {{"index_type", DType::kInt64}}, {D({7}), L({1})}},
      {"TopKV2", {D({}, {2, 0}), I(0)}, {}, {D({}, {2, 0}), I({}, {2, 0})}},
      {"InTopK", {F({1, 3, 2, 9, 8, 7}, {2, 3}), I({2, 2})}, {{"k", int64_t{2}}}, {B({true, false})}},
      {"InTopKV2", {F({1, 3, 2}, {1, 3}), I({1}), I(1)}, {}, {B({true})}},
      {"Cast", {D({1.75, -2.5})}, {{"DstT", DType::kInt32}}, {I({1, -2})}},
      {"Cast", {D({1.75, -2.5})}, {{"DstT", DType::kFloat64}}},
      {"Cast", {D({0, -2.5})}, {{"DstT", DType::kBool}}, {B({false, true})}},
      {"Cast", {B({true})}, {{"DstT", DType::kFloat64}}, {D({1})}},
      {"Cast", {D({1e20, -1e20, NAN})}, {{"DstT", DType::kInt64}}, {L({INT64_MAX, INT64_MIN, 0})}},
      {"Bitcast", {L({1})}, {{"type", DType::kInt32}}, {I({1, 0}, {1, 2})}},
      {"Bitcast", {I({1, 0}, {1, 2})}, {{"type", DType::kInt64}}, {L({1})}},
  };
}

inline std::vector<OpCase> random_cases() {
  std::vector<OpCase> out;
  const Attrs seeds = {{"dtype", DType::kFloat32}, {"seed", int64_t{7}}};
  for (const char* op : {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"})
    out.push_back({op, {I({3, 5})}, seeds, {}, false, true});
  for (const char* op : {"StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"})
    out.push_back({op, {I({3, 5}), L({1, 2})}, {}, {}, false, true});
  out.push_back({"RandomUniformInt", {I({7}), I(-3), I(9)}, {}, {}, false, true});
  out.push_back({"RandomShuffle", {ramp({5, 2})}, {}, {}, false, true});
  // Expected: TensorFlow 2.21.
  const Tensor seed = L({1, 2, 3}), other = L({7, 8, 9});
  out.push_back({"RandomIndexShuffle", {I({0, 1, 2, 3, 4}), I({1, 2, 3}), I(4)}, {}, {I({2, 0, 3, 4, 1})}});
  out.push_back({"RandomIndexShuffle", {L({0, 5}), seed, L(10)}, {}, {L({2, 10})}});
  out.push_back({"RandomIndexShuffle", {L(5), seed, L({1000000, 10})}, {}, {L({358786, 10})}});
  out.push_back({"RandomIndexShuffle", {L(5), other, L(int64_t{1} << 40)}, {}, {L(300218818)}});
  out.push_back({"RandomIndexShuffle", {L(65536), seed, L(65536)}, {}, {L(7886)}});
  out.push_back({"RandomIndexShuffle",
                 {L(12345678901), other, L(int64_t{1} << 62)},
                 {{"rounds", int64_t{6}}},
                 {L(2130261260248033135)}});
  out.push_back({"RandomIndexShuffle", {L(3), L({-1, -2, -3}), L(3)}, {{"rounds", int64_t{8}}}, {L(2)}});
  out.push_back({"RandomIndexShuffle",
                 {Tensor::of<uint32_t>({0, 1, 2}), Tensor::of<uint64_t>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3}),
                  Tensor::of<uint32_t>({4, 8, 9})},
                 {},
                 {Tensor::of<uint32_t>({2, 1, 8})}});
  out.push_back({"SobolSample",
                 {I(3), I(3), I(2)},
                 {},
                 {F({0.25, 0.75, 0.75, 0.375, 0.375, 0.625, 0.875, 0.875, 0.125}, {3, 3})}});
  out.push_back({"SobolSample", {I(1), I(2), I(0)}, {{"dtype", DType::kFloat64}}, {D({0.5, 0.75}, {2, 1})}});
  out.push_back({"Multinomial", {F({0, 1, 2, 3}, {2, 2}), I(5)}, {}, {}, false, true});
  out.push_back({"StatelessMultinomial", {F({0, 1, 2, 3}, {2, 2}), I(5), I({1, 2})}, {}, {}, false, true});
  const Tensor key = Tensor::of<uint64_t>({7}), counter = Tensor::of<uint64_t>({0, 0}), philox = I(1);
  for (const char* op : {"StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2"})
    out.push_back({op, {I({3, 5}), key, counter, philox}, {}, {}, false, true});
  out.push_back({"StatelessRandomUniformInt", {I({7}), L({1, 2}), L(-3), L(9)}, {}, {}, false, true});
  out.push_back({"StatelessRandomUniformIntV2", {I({7}), key, counter, philox, I(-3), I(9)}, {}, {}, false, true});
  out.push_back({"StatelessRandomUniformFullInt", {I({7}), L({1, 2})}, {}, {}, false, true});
  out.push_back({"StatelessRandomUniformFullIntV2", {I({7}), key, counter, philox}, {}, {}, false, true});
  out.push_back({"RandomGamma", {I({7}), D({0.5, 2})}, {{"seed", int64_t{7}}}, {}, false, true});
  out.push_back({"StatelessRandomGammaV2", {I({7, 2}), L({1, 2}), D({0.5, 2})}, {}, {}, false, true});
  out.push_back({"StatelessRandomGammaV3", {I({7, 2}), key, counter, philox, D({0.5, 2})}, {}, {}, false, true});
  for (const char* op : {"RandomPoisson", "RandomPoissonV2"})
    out.push_back({op, {I({7}), D({0.5, 20})}, {{"seed", int64_t{7}}}, {}, false, true});
  out.push_back({"ParameterizedTruncatedNormal",
                 {I({2, 3}), D({0, 5}), D(2), D(-1), D(8)},
                 {{"seed", int64_t{7}}},
                 {},
                 false,
                 true});
  out.push_back({"StatelessParameterizedTruncatedNormal",
                 {I({4, 2, 3}), L({1, 2}), D({0, 5, 6}), D(2), D({-1, 1}, {2, 1}), D(8)},
                 {},
                 {},
                 false,
                 true});
  out.push_back(
      {"StatelessRandomPoisson", {I({7, 2}), L({1, 2}), D({0.5, 20})}, {{"dtype", DType::kInt32}}, {}, false, true});
  out.push_back({"StatelessRandomBinomial", {I({4, 2}), L({1, 2}), D({5, 90}), D(0.5)}, {}, {}, false, true});
  out.push_back({"StatelessShuffle", {ramp({5, 2}), key, counter, philox}, {}, {}, false, true});
  out.push_back({"StatelessRandomGetKeyCounter", {L({1, 2})}, {}, {}, false, true});
  out.push_back({"StatelessRandomGetKeyCounterAlg", {I({1, 2})}, {}, {}, false, true});
  out.push_back({"StatelessRandomGetAlg", {}, {}, {philox}, false, true});
  out.push_back({"NonDeterministicInts", {I({3, 5})}, {}, {}, false, true});
  return out;
}

inline std::vector<OpCase> matrix_cases() {
  return {
      {"MatMul", {ramp({2, 3}), ramp({3, 2})}},
      {"MatMul", {ramp({3, 2}), ramp({2, 3})}, {{"transpose_a", true}, {"transpose_b", true}}},
      {"BatchMatMulV2", {ramp({2, 2, 3}), ramp({3, 2})}},
      {"BatchMatMul", {ramp({2, 2, 3}), ramp({2, 3, 2})}},
      {"BatchMatMul", {ramp({2, 3, 2}), ramp({2, 2, 3})}, {{"adj_x", true}, {"adj_y", true}}},
      {"BatchMatMulV3", {ramp({2, 2, 3}), ramp({3, 2})}, {{"Tout", DType::kFloat64}}},
      {"BatchMatMulV3",
       {Tensor::of<int8_t>({-100, 100}, {1, 2}), Tensor::of<uint8_t>({200, 100}, {2, 1})},
       {{"Tout", DType::kInt32}},
       {I({-10000}, {1, 1})}},
      {"BatchMatMulV2",
       {Tensor::of<int16_t>({300, 2}, {1, 2}), Tensor::of<int16_t>({300, 5}, {2, 1})},
       {},
       {Tensor::of<int16_t>({24474}, {1, 1})}},
      {"BiasAdd", {ramp({2, 3}), ramp({3})}},
      {"BiasAddGrad", {ramp({2, 3})}},
      {"BiasAdd", {I({INT32_MAX, 1}, {1, 2}), I({1, 2})}, {}, {I({INT32_MIN, 3}, {1, 2})}},
      {"BiasAddGrad", {I({INT32_MAX, 1, 1, 2}, {2, 2})}, {}, {I({INT32_MIN, 3})}},
  };
}

}  // namespace troupe::testing
