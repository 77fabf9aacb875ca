// SPDX-License-Identifier: Apache-2.0
// Cases of arithmetic, parts and sums of sparse tensors.
#pragma once
#include <cmath>

#include "ops/parts/tensor_bytes.h"
#include "tests/ops/op_case.h"

namespace troupe::testing {

/// Expected: TensorFlow 2.21.
inline std::vector<OpCase> ragged_cases() {
  const auto types = [](std::vector<std::string> words) {
    const auto n = static_cast<int64_t>(words.size());
    return Attrs{{"row_partition_types", std::move(words)}, {"num_row_partition_tensors", n}};
  };
  const Attrs splits = types({"ROW_SPLITS"}), twice = types({"ROW_SPLITS", "ROW_SPLITS"}),
              ids = types({"FIRST_DIM_SIZE", "VALUE_ROWIDS"});
  const char* op = "RaggedTensorToTensor";
  const Tensor four = I({1, 2, 3, 4}), nine = I(9), pairs = D({1, 2, 3, 4, 5, 6}, {3, 2});
  return {
      {op, {L(-1), four, I(0), L({0, 2, 2, 4})}, splits, {I({1, 2, 0, 0, 3, 4}, {3, 2})}},
      {op, {L({2, -1}), four, nine, L({0, 3, 4, 4})}, splits, {I({1, 2, 3, 4, 9, 9}, {2, 3})}},
      {op, {I({-1, 2}), D({1, 2, 3, 4}), D(9), I({0, 3, 4, 4})}, splits, {D({1, 2, 4, 9, 9, 9}, {3, 2})}},
      {op,
       {L({5, 3}), four, nine, L(4), L({0, 0, 2, 3})},
       ids,
       {I({1, 2, 9, 9, 9, 9, 3, 9, 9, 4, 9, 9, 9, 9, 9}, {5, 3})}},
      {op,
       {L({-1, -1, -1}), D({1, 2, 3, 4, 5}), D(0), L({0, 2, 3}), L({0, 2, 2, 5})},
       twice,
       {D({1, 2, 0, 0, 0, 0, 3, 4, 5, 0, 0, 0}, {2, 2, 3})}},
      {op,
       {L({-1, 1, -1}), I({1, 2, 3, 4, 5}), I(0), L({0, 2, 3}), L({0, 2, 2, 5})},
       twice,
       {I({1, 2, 0, 3, 4, 5}, {2, 1, 3})}},
      {op, {L({-1, -1, 2}), pairs, D({7, 8}), L({0, 2, 3})}, splits, {D({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2})}},
      {op, {L({-1, -1, 2}), pairs, D({7}), L({0, 2, 3})}, splits, {D({1, 2, 3, 4, 5, 6, 7, 7}, {2, 2, 2})}},
      {op,
       {L(-1), Tensor::of<std::string>({"a", "b"}), Tensor::scalar<std::string>("-"), L({0, 0, 2})},
       splits,
       {Tensor::of<std::string>({"-", "-", "a", "b"}, {2, 2})}},
      {op, {L(-1), I({}, {0}), nine, L({0, 0, 0})}, splits, {I({}, {2, 0})}},
      {op, {L(-1), I({1, 2}), nine, L(2)}, types({"FIRST_DIM_SIZE"}), {I({1, 2})}},
      {"RaggedRange", {I({2, 5, 8}), I({3, 5, 12}), I(1)}, {}, {L({0, 1, 1, 5}), I({2, 8, 9, 10, 11})}},
      {"RaggedRange", {D({0, 3}), D(1), D({.4, -1})}, {}, {L({0, 3, 5}), D({0, .4, .8, 3, 2})}},
      {"RaggedRange",
       {L(INT64_MIN), L(INT64_MAX), L(INT64_MAX)},
       {{"Tsplits", DType::kInt32}},
       {I({0, 3}), L({INT64_MIN, -1, INT64_MAX - 1})}},
      {"RaggedGather",
       {L({0, 2, 3, 3}), pairs, L({2, 0, 0})},
       {{"PARAMS_RAGGED_RANK", int64_t{1}}, {"OUTPUT_RAGGED_RANK", int64_t{1}}},
       {L({0, 0, 2, 4}), D({1, 2, 3, 4, 1, 2, 3, 4}, {4, 2})}},
      {"RaggedGather",
       {L({0, 2, 3}), L({0, 2, 2, 5}), D({1, 2, 3, 4, 5}), I({1, 0, 1, 1}, {2, 2})},
       {{"PARAMS_RAGGED_RANK", int64_t{2}}, {"OUTPUT_RAGGED_RANK", int64_t{3}}},
       {L({0, 2, 4}), L({0, 1, 3, 4, 5}), L({0, 3, 5, 5, 8, 11}), D({3, 4, 5, 1, 2, 3, 4, 5, 3, 4, 5})}},
      {"RaggedTensorToSparse",
       {L({0, 2, 2, 3}), pairs},
       {{"RAGGED_RANK", int64_t{1}}},
       {L({0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 2, 0, 0, 2, 0, 1}, {6, 3}), D({1, 2, 3, 4, 5, 6}), L({3, 2, 2})}},
      {"RaggedTensorToSparse",
       {L({0, 2, 3}), L({0, 0, 2, 3}), D({1, 2, 3})},
       {{"RAGGED_RANK", int64_t{2}}},
       {L({0, 1, 0, 0, 1, 1, 1, 0, 0}, {3, 3}), D({1, 2, 3}), L({2, 2, 2})}},
      {"RaggedBincount", {L({0, 2, 2, 4}), I({1, 1, 4, 0}), I(3), I({})}, {}, {I({0, 2, 0, 0, 0, 0, 1, 0, 0}, {3, 3})}},
      {"RaggedCountSparseOutput",
       {L({0, 2, 2, 4}), I({1, 1, 4, 0}), D({.5, 1, 2, 3})},
       {{"binary_output", false}, {"minlength", int64_t{6}}},
       {L({0, 1, 2, 0, 2, 4}, {3, 2}), D({1.5, 3, 2}), L({3, 6})}},
  };
}

inline std::vector<OpCase> sparse_cases() {
  const auto S = [](std::initializer_list<std::string> v) { return Tensor::of<std::string>(v); };
  // [[0, 1, 0], [2, 0, -3]] and [[4, -1, 0], [0, 0, 5]]
  const Tensor ai = L({0, 1, 1, 0, 1, 2}, {3, 2}), av = D({1, 2, -3}), shape = L({2, 3});
  const Tensor bi = L({0, 0, 0, 1, 1, 2}, {3, 2}), bv = D({4, -1, 5}), dense = D({1, 2, 4, 8, 16, 32}, {2, 3});
  const Tensor row = D({1, 2, 4}), column = D({2, 3}, {2, 1}), none = L({}, {0, 2});
  const Attrs keep = {{"keep_dims", true}};
  const double e = std::exp(-5.0);
  const auto packed = [](const std::vector<Tensor>& parts, const Shape& s) {
    std::vector<std::string> bytes;
    for (const Tensor& t : parts) bytes.push_back(*tensor_bytes(t));
    return Tensor::of<std::string>(bytes, s);
  };
  const Tensor first = L({1}, {1, 1}), second = L({0, 2}, {2, 1});
  const Tensor whole = L({1, 2, -3}), whole_rows = packed({first, L({1}), L({3}), second, L({2, -3}), L({3})}, {2, 3});
  const Tensor rows = packed({first, D({1}), L({3}), second, D({2, -3}), L({3})}, {2, 3});
  return {
      {"SerializeSparse", {ai, whole, shape}, {}, {packed({ai, whole, shape}, {3})}},
      {"SerializeManySparse", {ai, whole, shape}, {}, {whole_rows}},
      {"SerializeManySparse", {none, L({}), L({0, 3})}, {}, {packed({}, {0, 3})}},
      {"DeserializeManySparse", {rows}, {{"dtype", DType::kFloat64}}, {ai, av, shape}},
      {"DeserializeSparse", {packed({ai, av, shape}, {3})}, {{"dtype", DType::kFloat64}}, {ai, av, shape}},
      {"DeserializeSparse",
       {packed({first, D({1}), L({3}), second, D({2, -3}), L({4})}, {2, 1, 3})},
       {{"dtype", DType::kFloat64}},
       {L({0, 0, 1, 1, 0, 0, 1, 0, 2}, {3, 3}), av, L({2, 1, 4})}},
      {"SparseBincount", {ai, L({2, 1, 2}), shape, L(3), D({1, 2, 3})}, {}, {D({0, 0, 1, 0, 2, 3}, {2, 3})}},
      {"SparseBincount", {L({0, 2}, {2, 1}), I({1, 9}), L({4}), I(2), D({})}, {}, {D({0, 1})}},
      {"SparseCountSparseOutput",
       {ai, L({2, 1, 2}), shape, D({})},
       {{"binary_output", false}, {"minlength", int64_t{5}}},
       {L({0, 2, 1, 1, 1, 2}, {3, 2}), D({1, 1, 1}), L({2, 5})}},
      {"DenseCountSparseOutput",
       {I({4, 1, 4}), D({0.5, 2, 1})},
       {{"binary_output", false}},
       {L({1, 4}, {2, 1}), D({2, 1.5}), L({5})}},
      {"DenseCountSparseOutput",
       {L({4, 1, 4, 0}, {2, 2}), I({})},
       {{"binary_output", true}, {"maxlength", int64_t{4}}},
       {L({0, 1, 1, 0}, {2, 2}), I({1, 1}), L({2, 4})}},
      {"DenseCountSparseOutput", {I({}, {2, 0}), D({})}, {{"binary_output", false}}, {L({}, {0, 2}), D({}), L({2, 1})}},
      {"SparseCross",
       {L({0, 0, 0, 1}, {2, 2}), S({"a", "b"}), L({2, 3}), L({7, 8}, {2, 1})},
       {{"N", int64_t{1}},
        {"hashed_output", false},
        {"num_buckets", int64_t{0}},
        {"hash_key", int64_t{0}},
        {"out_type", DType::kString},
        {"internal_type", DType::kInt64},
        {"sparse_types", std::vector<DType>{DType::kString}}},
       {L({0, 0, 0, 1}, {2, 2}), S({"a_X_7", "b_X_7"}), L({2, 2})}},
      {"RaggedCross",
       {S({"a", "b", "c"}), L({0, 1, 3}), L({0, 0, 1, 1}, {2, 2}), S({"p", "q"}), L({2, 2}), L({7, 8}, {2, 1})},
       {{"Nsparse", int64_t{1}},
        {"input_order", std::string("DRS")},
        {"hashed_output", false},
        {"num_buckets", int64_t{0}},
        {"hash_key", int64_t{0}},
        {"ragged_values_types", std::vector<DType>{DType::kString}},
        {"ragged_splits_types", std::vector<DType>{DType::kInt64}},
        {"sparse_values_types", std::vector<DType>{DType::kString}},
        {"dense_types", std::vector<DType>{DType::kInt64}},
        {"out_values_type", DType::kString},
        {"out_row_splits_type", DType::kInt64}},
       {S({"7_X_a_X_p", "8_X_b_X_q", "8_X_c_X_q"}), L({0, 1, 3})}},
      {"RaggedFillEmptyRows",
       {L({0, 0, 2}), D({1, 2, 3}), L(4), D(9)},
       {},
       {L({0, 0, 1, 2, 3}), D({1, 2, 9, 3, 9}), B({false, true, false, true}), L({0, 1, 3})}},
      {"RaggedFillEmptyRowsGrad", {L({0, 1, 3}), D({1, 2, 4, 8, 16})}, {}, {D({1, 2, 8}), D(20)}},
      {"SparseCrossV2",
       {L({5, 6}, {1, 2}), Tensor::of<std::string>({"x", "y"}, Shape{1, 2}), Tensor::scalar<std::string>("-")},
       {{"N", int64_t{0}}, {"sparse_types", std::vector<DType>{}}},
       {L({0, 0, 0, 1, 0, 2, 0, 3}, {4, 2}), S({"5-x", "5-y", "6-x", "6-y"}), L({1, 4})}},
      {"SparseCrossHashed",
       {L({7, 8}, {2, 1}), L(5), Tensor::scalar(false), L({1, 2})},
       {{"N", int64_t{0}}, {"sparse_types", std::vector<DType>{}}, {"dense_types", std::vector<DType>{DType::kInt64}}},
       {L({0, 0, 1, 0}, {2, 2}), L({2, 3}), L({2, 1})}},
      {"SparseAdd",
       {ai, av, shape, bi, bv, shape, D(0)},
       {},
       {L({0, 0, 0, 1, 1, 0, 1, 2}, {4, 2}), D({4, 0, 2, 2}), shape},
       false},
      {"SparseAdd", {ai, av, shape, bi, bv, shape, D(2.5)}, {}, {L({0, 0, 1, 0}, {2, 2}), D({4, 2}), shape}},
      {"SparseAdd", {none, D({}), shape, none, D({}), shape, D(0)}, {}, {none, D({}), shape}},
      {"SparseAddGrad", {D({1, 2, 3}), ai, bi, L({0, 0, 1, 0, 1, 2}, {3, 2})}, {}, {D({0, 2, 3}), D({1, 0, 3})}},
      {"SparseTensorDenseAdd", {ai, av, shape, dense}, {}, {D({1, 3, 4, 10, 16, 29}, {2, 3})}},
      {"SparseTensorDenseAdd", {I({1, 1}, {2, 1}), D({1, 2}), I({2}), D({5, 6})}, {}, {D({5, 9})}},
      {"SparseDenseCwiseAdd", {ai, av, shape, dense}, {}, {D({3, 10, 29})}},
      {"SparseDenseCwiseMul", {ai, av, shape, row}, {}, {D({2, 2, -12})}},
      {"SparseDenseCwiseMul", {ai, av, shape, column}, {}, {D({2, 6, -9})}},
      {"SparseDenseCwiseDiv", {ai, av, shape, dense}, {}, {D({0.5, 0.25, -3. / 32})}},
      {"SparseDenseCwiseDiv", {ai, av, shape, D(2)}, {}, {D({0.5, 1, -1.5})}},
      {"SparseSparseMaximum",
       {ai, av, shape, bi, bv, shape},
       {},
       {L({0, 0, 0, 1, 1, 0, 1, 2}, {4, 2}), D({4, 1, 2, 5})}},
      {"SparseSparseMinimum",
       {ai, av, shape, bi, bv, shape},
       {},
       {L({0, 0, 0, 1, 1, 0, 1, 2}, {4, 2}), D({0, -1, 0, -3})}},
      {"SparseConcat",
       {ai, bi, av, bv, shape, shape},
       {{"concat_dim", int64_t{-1}}},
       {L({0, 1, 0, 3, 0, 4, 1, 0, 1, 2, 1, 5}, {6, 2}), D({1, 4, -1, 2, -3, 5}), L({2, 6})}},
      {"SparseConcat",
       {L({1}, {1, 1}), L({0}, {1, 1}), S({"a"}), S({"b"}), L({2}), L({1})},
       {{"concat_dim", int64_t{0}}},
       {L({1, 2}, {2, 1}), S({"a", "b"}), L({3})}},
      {"SparseSplit",
       {L(1), ai, av, shape},
       {{"num_split", int64_t{2}}},
       {L({0, 1, 1, 0}, {2, 2}), L({1, 0}, {1, 2}), D({1, 2}), D({-3}), L({2, 2}), L({2, 1})}},
      {"SparseSlice", {ai, av, shape, L({1, 1}), L({1, 9})}, {}, {L({0, 1}, {1, 2}), D({-3}), L({1, 2})}},
      {"SparseSliceGrad", {D({7}), ai, L({1, 1}), L({0, 1}, {1, 2})}, {}, {D({0, 0, 7})}},
      {"SparseReduceSum", {ai, av, shape, I({1})}, {}, {D({1, -1})}},
      {"SparseReduceSum", {ai, av, shape, I({-2})}, keep, {D({2, 1, -3}, {1, 3})}},
      {"SparseReduceSum", {ai, av, shape, I({0, 1})}, {}, {D(0)}},
      {"SparseReduceMax", {ai, av, shape, I({0})}, {}, {D({2, 1, -3})}},
      {"SparseReduceSumSparse",
       {L({1, 0, 1, 2}, {2, 2}), D({2, -3}), shape, I({1})},
       keep,
       {L({1, 0}, {1, 2}), D({-1}), L({2, 1})}},
      {"SparseReduceMaxSparse", {ai, av, shape, I({1})}, {}, {L({0, 1}, {2, 1}), D({1, 2}), L({2})}},
      {"SparseSoftmax", {ai, av, shape}, {}, {D({1, 1 / (1 + e), e / (1 + e)})}},
  };
}

}  // namespace troupe::testing
