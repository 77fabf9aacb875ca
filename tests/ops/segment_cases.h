// SPDX-License-Identifier: Apache-2.0
// Cases of the scan, segment, partition, unique, histogram, order, sparse, LRN, LSTM, CTC and candidate families.
#pragma once
#include <cmath>
#include <limits>

#include "tests/ops/op_case.h"

namespace troupe::testing {

inline std::vector<OpCase> scan_cases() {
  const Tensor x = D({1, 2, 3, 4, -5, 6}, {2, 3});
  const Attrs exclusive = {{"exclusive", true}}, reverse = {{"reverse", true}};
  const Attrs both = {{"exclusive", true}, {"reverse", true}};
  const double inf = std::numeric_limits<double>::infinity();
  const auto log = [](double v) { return std::log(v); };
  return {
      {"Cumsum", {x, I(0)}, {}, {D({1, 2, 3, 5, -3, 9}, {2, 3})}},
      {"Cumsum", {x, I(-1)}, exclusive, {D({0, 1, 3, 0, 4, -1}, {2, 3})}},
      {"Cumsum", {x, L(1)}, reverse, {D({6, 5, 3, 5, 1, 6}, {2, 3})}},
      {"Cumsum", {L({INT64_MAX, 1, 2}), I(0)}, {}, {L({INT64_MAX, INT64_MIN, INT64_MIN + 2})}},
      {"Cumsum", {ramp({2, 3, 200}), I(1)}, both},
      {"Cumprod", {x, I(1)}, {}, {D({1, 2, 6, 4, -20, -120}, {2, 3})}},
      {"Cumprod", {x, I(1)}, both, {D({6, 3, 1, -30, 6, 1}, {2, 3})}},
      {"CumulativeLogsumexp", {D({0, log(2), log(5)}), I(0)}, {}, {D({0, log(3), log(8)})}},
      {"CumulativeLogsumexp", {D({0, log(2), log(5)}), I(0)}, reverse, {D({log(8), log(7), log(5)})}},
      {"CumulativeLogsumexp", {D({0, -inf}), I(0)}, exclusive, {D({-inf, 0})}, false},
  };
}

inline std::vector<OpCase> segment_cases() {
  const Tensor x = D({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2}), ids = I({0, 0, 2, 2}), any = I({2, -1, 0, 2});
  const Tensor zeros = D({0, 2, 3, 0, 5, 0, 7, 0}, {4, 2});
  const float low = std::numeric_limits<float>::lowest();
  const Tensor indices = I({3, 0, 1}), rows = I({0, 0, 2});
  const double r = std::sqrt(0.5);
  return {
      {"SegmentSum", {x, ids}, {}, {D({4, 6, 0, 0, 12, 14}, {3, 2})}},
      {"SegmentSum", {D({}, {0, 2}), L({})}, {}, {D({}, {0, 2})}},
      {"SegmentMean", {x, ids}, {}, {D({2, 3, 0, 0, 6, 7}, {3, 2})}},
      {"SegmentMean", {I({-7, 2}), I({0, 0})}, {}, {I({-2})}},
      {"SegmentProd", {x, ids}, {}, {D({3, 8, 1, 1, 35, 48}, {3, 2})}},
      {"SegmentProd", {zeros, ids}, {}, {D({0, 0, 1, 1, 35, 0}, {3, 2})}},
      {"SegmentMax", {x, ids}, {}, {D({3, 4, 0, 0, 7, 8}, {3, 2})}},
      {"SegmentMin", {x, L({0, 1, 1, 1})}, {}, {D({1, 2, 3, 4}, {2, 2})}},
      {"SegmentSumV2", {x, ids, I(4)}, {}, {D({4, 6, 0, 0, 12, 14, 0, 0}, {4, 2})}},
      {"SegmentProdV2", {x, ids, I(3)}, {}, {D({3, 8, 1, 1, 35, 48}, {3, 2})}},
      {"SegmentMaxV2", {x, L({0, 1, 1, 1}), L(2)}, {}, {D({1, 2, 7, 8}, {2, 2})}},
      {"SegmentMaxV2", {L({5, 7}), I({0, 0}), L(2)}, {}, {L({7, INT64_MIN})}},
      {"SegmentMinV2", {I({5, 3}), I({0, 0}), I(2)}, {}, {I({3, INT32_MAX})}},
      {"UnsortedSegmentProd", {x, any, I(3)}, {}, {D({5, 6, 1, 1, 7, 16}, {3, 2})}},
      {"UnsortedSegmentProd", {zeros, I({0, 0, 0, 1}), I(2)}},
      {"UnsortedSegmentMax", {x, I({1, -1, 0, 1}), I(2)}, {}, {D({5, 6, 7, 8}, {2, 2})}},
      {"UnsortedSegmentMax", {F({1, 2}, {2}), I({2, -1}), I(3)}, {}, {F({low, low, 1}, {3})}, false},
      {"UnsortedSegmentMin", {x, I({1, -1, 0, 1}), L(2)}, {}, {D({5, 6, 1, 2}, {2, 2})}},
      {"UnsortedSegmentMin", {I({4, 3}), I({1, 1}), L(2)}, {}, {I({INT32_MAX, 3})}},
      {"UnsortedSegmentMin", {x, I({0, 1, 1, 0, 2, 2, 0, 0}, {4, 2}), I(3)}, {}, {D({1, 2, 5})}},
      {"SparseSegmentSum", {x, indices, rows}, {}, {D({8, 10, 0, 0, 3, 4}, {3, 2})}},
      {"SparseSegmentSum", {x, L({}), I({})}, {}, {D({}, {0, 2})}},
      {"SparseSegmentMean", {x, indices, rows}, {}, {D({4, 5, 0, 0, 3, 4}, {3, 2})}},
      {"SparseSegmentSqrtN", {x, indices, rows}, {}, {D({8 * r, 10 * r, 0, 0, 3, 4}, {3, 2})}},
      {"SparseSegmentSumWithNumSegments", {x, indices, rows, I(4)}, {}, {D({8, 10, 0, 0, 3, 4, 0, 0}, {4, 2})}},
      {"SparseSegmentMeanWithNumSegments", {x, indices, rows, I(3)}, {}, {D({4, 5, 0, 0, 3, 4}, {3, 2})}},
      {"SparseSegmentSqrtNWithNumSegments", {x, indices, rows, L(3)}, {}, {D({8 * r, 10 * r, 0, 0, 3, 4}, {3, 2})}},
      {"SparseSegmentSumGrad", {D({1, 2, 3}), I({3, 0, 3}), rows, I(4)}, {}, {D({1, 0, 0, 4})}},
      {"SparseSegmentMeanGrad", {D({1, 2, 3}), I({3, 0, 3}), rows, I(4)}, {}, {D({0.5, 0, 0, 3.5})}},
      {"SparseSegmentSqrtNGrad", {D({1, 2, 3}), I({3, 0, 3}), rows, I(4)}, {}, {D({r, 0, 0, 3 + r})}},
      {"SparseSegmentSumGradV2", {D({1, 2, 3}), I({3, 0, 3}), rows, I(4)}, {}, {D({1, 4}), I({0, 3})}},
      {"SparseSegmentMeanGradV2", {D({1, 2, 3}), I({3, 0, 3}), rows, I(4)}, {}, {D({0.5, 3.5}), I({0, 3})}},
      {"SparseSegmentSqrtNGradV2", {D({1, 2, 3}), L({3, 0, 3}), rows, I(4)}, {}, {D({r, 3 + r}), L({0, 3})}},
      {"DynamicPartition",
       {x, I({1, 0, 1, 1})},
       {{"num_partitions", int64_t{3}}},
       {D({3, 4}, {1, 2}), D({1, 2, 5, 6, 7, 8}, {3, 2}), D({}, {0, 2})}},
      {"DynamicPartition", {D(3), I(1)}, {{"num_partitions", int64_t{2}}}, {D({}), D({3})}},
      {"DynamicStitch", {I({0, 3}), I({2}, {1, 1}), D({1, 2}), D({5}, {1, 1})}, {}, {D({1, 0, 5, 2})}},
      {"DynamicStitch",
       {I({1}), I({0, 2}), D({1, 2}, {1, 2}), D({3, 4, 5, 6}, {2, 2})},
       {},
       {D({3, 4, 1, 2, 5, 6}, {3, 2})}},
      {"ParallelDynamicStitch", {I({1}), I(0), D({1}), D(3)}, {}, {D({3, 1})}},
  };
}

inline std::vector<OpCase> set_cases() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto S = [](std::initializer_list<std::string> v) { return Tensor::of<std::string>(v); };
  const Tensor m = I({1, 2, 1, 1, 2, 1, 3, 2, 3}, {3, 3});
  const Tensor x = D({3, 1, 4, 1, 5, 9, 2, 6}, {2, 4});
  const Attrs wide = {{"out_idx", DType::kInt64}};
  return {
      {"Unique", {I({3, 1, 3, 2})}, {}, {I({3, 1, 2}), I({0, 1, 0, 2})}},
      {"Unique", {S({"b", "", "b"})}, wide, {S({"b", ""}), L({0, 1, 0})}},
      {"Unique", {D({0, -0.0, nan, nan})}, {}, {D({0, nan, nan}), I({0, 0, 1, 2})}},
      {"UniqueWithCounts", {L({3, 1, 3})}, {}, {L({3, 1}), I({0, 1, 0}), I({2, 1})}},
      {"UniqueV2", {m, L({0})}, {}, {I({1, 2, 1, 3, 2, 3}, {2, 3}), I({0, 0, 1})}},
      {"UniqueV2", {m, I({-1})}, {}, {I({1, 2, 1, 2, 3, 2}, {3, 2}), I({0, 1, 0})}},
      {"UniqueV2", {I({7, 7}), L({})}, {}, {I({7}), I({0, 0})}},
      {"UniqueWithCountsV2", {m, L({0})}, wide, {I({1, 2, 1, 3, 2, 3}, {2, 3}), L({0, 0, 1}), L({2, 1})}},
      {"ListDiff", {I({1, 2, 3, 4, 2}), I({2, 5})}, {}, {I({1, 3, 4}), I({0, 2, 3})}},
      {"ListDiff", {S({"a", "b"}), S({"a"})}, wide, {S({"b"}), L({1})}},
      {"DenseToDenseSetOperation",
       {I({1, 9, 2, 2, 3, 4}, {2, 3}), I({9, 1, 8, 5}, {2, 2})},
       {{"set_operation", "intersection"}},
       {L({0, 0, 0, 1}, {2, 2}), I({1, 9}), L({2, 2})}},
      {"DenseToDenseSetOperation",
       {S({"b", "a"}), S({"c", "a"})},
       {{"set_operation", "Union"}},
       {L({0, 1, 2}, {3, 1}), S({"a", "b", "c"}), L({3})}},
      {"DenseToSparseSetOperation",
       {I({1, 9, 2, 2, 3, 4}, {2, 3}), L({0, 0, 1, 0, 1, 5}, {3, 2}), I({9, 7, 2}), L({2, 6})},
       {{"set_operation", "a-b"}},
       {L({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2}), I({1, 2, 3, 4}), L({2, 2})}},
      {"SparseToSparseSetOperation",
       {L({1, 0}, {1, 2}), L({3}), L({2, 1}), L({0, 0, 1, 4}, {2, 2}), L({6, 3}), L({2, 5})},
       {{"set_operation", "b-a"}},
       {L({0, 0}, {1, 2}), L({6}), L({2, 1})}},
      {"SetSize", {L({0, 0, 0, 1, 2, 0}, {3, 2}), I({5, 5, 1}), L({3, 2})}, {}, {I({1, 0, 1})}},
      {"EditDistance",
       {L({0, 0, 0, 1, 2, 0}, {3, 2}), I({5, 6, 7}), L({3, 2}), L({0, 0, 0, 1, 0, 2, 1, 0}, {4, 2}), I({5, 7, 8, 9}),
        L({3, 3})},
       {},
       {F({2.f / 3, 1, std::numeric_limits<float>::infinity()}, {3})}},
      {"EditDistance",
       {L({0}, {1, 1}), S({"a"}), L({1}), L({0, 1}, {2, 1}), S({"b", "a"}), L({2})},
       {{"normalize", false}},
       {F({1}, {})}},
      {"Bincount", {I({0, 3, 1, 3, 9}), I(4), L({})}, {}, {L({1, 1, 0, 2})}},
      {"Bincount", {I({0, 1, 1}), I(2), D({0.5, 2, 3})}, {}, {D({0.5, 5})}},
      {"DenseBincount", {I({0, 1, 1, 1}, {2, 2}), I(2), D({})}, {}, {D({1, 1, 0, 2}, {2, 2})}},
      {"DenseBincount", {L({0, 1, 1}), L(3), I({})}, {{"binary_output", true}}, {I({1, 1, 0})}},
      {"HistogramFixedWidth", {D({-1, 0, 1.5, 2, 5, 15}), D({0, 5}), I(5)}, {}, {I({2, 1, 1, 0, 2})}},
      {"HistogramFixedWidth", {D({nan}), D({0, 5}), I(2)}, {{"dtype", DType::kInt64}}, {L({1, 0})}},
      {"IsotonicRegression",
       {D({3, 1, 2, 2, 4, 0, 1, 2, 3, 4}, {2, 5})},
       {{"output_dtype", DType::kFloat64}},
       {D({3, 2.25, 2.25, 2.25, 2.25, 2, 2, 2, 2, 2}, {2, 5}), I({0, 1, 1, 1, 1, 0, 0, 0, 0, 0}, {2, 5})},
       false},
      {"IsotonicRegression", {I({1, 2})}, {}, {F({1.5, 1.5}, {2}), I({0, 0})}},
      {"NearestNeighbors",
       {F({0, 0, 5, 5}, {2, 2}), F({1, 0, 4, 5, 0, 1}, {3, 2}), L(2)},
       {},
       {L({0, 2, 1, 0}, {2, 2}), F({1, 1, 1, 41}, {2, 2})},
       false},
      {"NearestNeighbors", {F({1, 2}, {2, 1}), F({}, {0, 1}), L(3)}, {}, {L({}, {2, 0}), F({}, {2, 0})}, false},
      {"KmeansPlusPlusInitialization", {F({2, 3}, {1, 2}), L(1), L(7), L(-1)}, {}, {F({2, 3}, {1, 2})}, false},
      {"KMC2ChainInitialization", {F({1, 0, 2}, {3}), L(7)}, {}, {L(2)}, false},
      {"Bucketize", {D({-5, 0, 10, 100.5})}, {{"boundaries", std::vector<float>{0, 10, 100}}}, {I({0, 1, 2, 3})}},
      {"LowerBound", {I({0, 3, 9, 9, 10}, {1, 5}), I({9, 2, 11}, {1, 3})}, {}, {I({2, 1, 5}, {1, 3})}},
      {"UpperBound",
       {D({0, 3, 9, 9, 10}, {1, 5}), D({9, 2, 11}, {1, 3})},
       {{"out_type", DType::kInt64}},
       {L({4, 1, 5}, {1, 3})}},
      {"NthElement", {x, I(1)}, {}, {D({1, 5})}, false},
      {"NthElement", {x, I(0)}, {{"reverse", true}}, {D({4, 9})}},
      {"TopK", {x}, {{"k", int64_t{2}}}, {D({4, 3, 9, 6}, {2, 2}), I({2, 0, 1, 3}, {2, 2})}},
      {"TopKV2", {x, I(1)}, {{"index_type", DType::kInt16}}, {D({4, 9}, {2, 1}), Tensor::of<int16_t>({2, 1}, {2, 1})}},
      {"SparseToDense",
       {I({0, 1, 2, 0}, {2, 2}), I({3, 2}), D({5, 6}), D(-1)},
       {},
       {D({-1, 5, -1, -1, 6, -1}, {3, 2})}},
      {"SparseToDense", {L({1, 3}), L({4}), D(5), D(0.5)}, {}, {D({0.5, 5, 0.5, 5})}},
      {"SparseMatMul", {F({1, 0, 0, 2, 3, 0}, {3, 2}), F({1, 2, 3, 4}, {2, 2})}, {}, {F({1, 2, 6, 8, 3, 6}, {3, 2})}},
      {"SparseMatMul",
       {F({1, 0, 0, 2, 3, 0}, {3, 2}), F({1, 0, 2}, {1, 3})},
       {{"transpose_a", true}, {"transpose_b", true}, {"a_is_sparse", true}},
       {F({7, 0}, {2, 1})}},
      {"SparseTensorDenseMatMul",
       {L({0, 1, 1, 0, 1, 2}, {3, 2}), D({2, 3, 4}), L({2, 3}), D({1, 2, 3, 4, 5, 6}, {3, 2})},
       {},
       {D({6, 8, 23, 30}, {2, 2})}},
      {"SparseTensorDenseMatMul",
       {I({1, 0, 1, 0}, {2, 2}), D({2, 3}), L({2, 1}), D({1, 2, 3, 4, 5, 6}, {3, 2})},
       {{"adjoint_a", true}, {"adjoint_b", true}},
       {D({10, 20, 30}, {1, 3})}},
      {"SparseReorder",
       {L({2, 0, 0, 1, 0, 0}, {3, 2}), D({5, 6, 7}), L({3, 2})},
       {},
       {L({0, 0, 0, 1, 2, 0}, {3, 2}), D({7, 6, 5})}},
      {"SparseReshape",
       {L({0, 1, 2, 2}, {2, 2}), L({3, 4}), L({2, -1, 3})},
       {},
       {L({0, 0, 1, 1, 1, 1}, {2, 3}), L({2, 2, 3})}},
      {"SparseFillEmptyRows",
       {L({0, 1, 2, 0}, {2, 2}), D({5, 6}), L({4, 2}), D(-1)},
       {},
       {L({0, 1, 1, 0, 2, 0, 3, 0}, {4, 2}), D({5, -1, 6, -1}), B({false, true, false, true}), L({0, 2})}},
      {"SparseFillEmptyRowsGrad", {L({0, 2}), D({1, 2, 3, 4})}, {}, {D({1, 3}), D(6)}},
      {"SparseFillEmptyRowsGrad", {L({1}), I({INT32_MAX, 2, 1})}, {}, {I({2}), I(INT32_MIN)}},
      {"LRN",
       {F({1, 2, 3, 4}, {1, 1, 1, 4})},
       {{"depth_radius", int64_t{1}}, {"alpha", 1.f}, {"beta", 1.f}},
       {F({1 / 6.f, 2 / 15.f, 3 / 30.f, 4 / 26.f}, {1, 1, 1, 4})}},
      {"LRN", {ramp32({2, 1, 2, 7})}, {{"depth_radius", int64_t{2}}}},
      {"LRNGrad", {ramp32({1, 1, 2, 3}), ramp32({1, 1, 2, 3}), ramp32({1, 1, 2, 3})}},
      {"ComputeAccidentalHits",
       {L({1, 2, 3, 5}, {2, 2}), L({2, 7, 1})},
       {{"num_true", int64_t{2}}},
       {I({0, 0}), L({2, 0})}},
      {"AllCandidateSampler",
       {L({1, 2}, {2, 1})},
       {{"num_true", int64_t{1}}, {"num_sampled", int64_t{3}}, {"unique", true}},
       {L({0, 1, 2})}},
  };
}

inline std::vector<OpCase> sequence_cases() {
  std::vector<OpCase> out;
  const Tensor logits = ramp({4, 2, 3}), labels = I({1, 1, 0}), lengths = I({4, 3});
  const Tensor places = L({0, 0, 0, 1, 1, 0}, {3, 2});
  const Tensor state = ramp32({1, 2}), peephole = ramp32({2}), of_step = ramp32({1, 1, 2});
  const std::vector<Tensor> lstm = {L(1),     of_step,  state,    state,      ramp32({4, 8}),
                                    peephole, peephole, peephole, ramp32({8})};
  std::vector<Tensor> lstm_grad = lstm;
  lstm_grad.insert(lstm_grad.end(), 9, of_step);
  for (const char* version : {"", "V2"}) {  // tests/ops/nn/lstm_test.cpp has their values
    out.push_back({fmt::format("BlockLSTM{}", version), lstm, {}, {}, false});
    out.push_back({fmt::format("BlockLSTMGrad{}", version), lstm_grad, {{"use_peephole", true}}, {}, false});
  }
  const Tensor row = ramp32({1, 2});  // tests/ops/nn/recurrent_cell_test.cpp has their values
  const std::vector<Tensor> cell = {row, state, state, ramp32({4, 8}), peephole, peephole, peephole, ramp32({8})};
  std::vector<Tensor> cell_grad = cell;
  cell_grad.insert(cell_grad.end(), 8, state);
  out.push_back({"LSTMBlockCell", cell, {}, {}, false});
  out.push_back({"LSTMBlockCellGrad", cell_grad, {{"use_peephole", true}}, {}, false});
  const std::vector<Tensor> gru = {row, state, ramp32({4, 4}), ramp32({4, 2}), ramp32({4}), ramp32({2})};
  std::vector<Tensor> gru_grad = gru;
  gru_grad.insert(gru_grad.end(), 4, state);
  out.push_back({"GRUBlockCell", gru, {}, {}, false});
  out.push_back({"GRUBlockCellGrad", gru_grad, {}, {}, false});
  // Two steps, one label, equal classes: of 9 ways label-label, label-blank and blank-label are right.
  out.push_back({"CTCLoss",
                 {*Tensor::zeros(DType::kFloat64, {2, 1, 3}), L({0, 0}, {1, 2}), I({1}), I({2})},
                 {},
                 {D({std::log(3)})},
                 false});
  for (const char* attr : {"ctc_merge_repeated", "preprocess_collapse_repeated"})
    out.push_back({"CTCLoss", {logits, places, labels, lengths}, {{attr, attr[0] == 'p'}}, {}, false});
  out.push_back({"CTCLossV2", {ramp32({3, 1, 3}), L({0, 0}, {1, 2}), I({2}), I({3})}, {}, {}, false});
  out.push_back({"CTCGreedyDecoder",
                 {D({0, 5, 0, 0, 4, 0, 0, 0, 3, 2, 0, 0}, {4, 1, 3}), I({4})},
                 {},
                 {L({0, 0, 0, 1, 0, 2}, {3, 2}), L({1, 1, 0}), L({1, 3}), D({-14}, {1, 1})}});
  // Two steps: blank, label and blank-label, label-blank, label-label.
  const auto log = [](double v) { return std::log(v); };
  out.push_back(
      {"CTCBeamSearchDecoder",
       {D({log(0.6), log(0.4), log(0.5), log(0.5)}, {2, 1, 2}), I({2})},
       {{"beam_width", int64_t{4}}, {"top_paths", int64_t{2}}},
       {L({0, 0}, {1, 2}), L({}, {0, 2}), L({0}), L({}), L({1, 1}), L({1, 0}), D({log(0.8), log(0.2)}, {1, 2})}});
  const Attrs sampler = {{"num_true", int64_t{1}},
                         {"num_sampled", int64_t{3}},
                         {"unique", true},
                         {"range_max", int64_t{5}},
                         {"seed", int64_t{3}}};
  for (const char* op : {"UniformCandidateSampler", "LogUniformCandidateSampler", "LearnedUnigramCandidateSampler",
                         "ThreadUnsafeUnigramCandidateSampler"})
    out.push_back({op, {L({1, 2}, {2, 1})}, sampler, {}, false, true});
  Attrs fixed = sampler;
  fixed.set("unigrams", std::vector<float>{1, 2, 3, 4, 5});
  out.push_back({"FixedUnigramCandidateSampler", {L({1, 2}, {2, 1})}, fixed, {}, false, true});
  return out;
}

}  // namespace troupe::testing
