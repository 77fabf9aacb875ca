// SPDX-License-Identifier: Apache-2.0
// LSTMBlockCell against a sequence of one step, GRUBlockCell against a graph of elementary ops, with their gradients.
#include "tests/ops/check_op.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr int64_t kCellBatch = 3, kCellInputs = 4, kCellUnits = 5;

std::vector<Tensor> random_tensors(const std::vector<Shape>& shapes) {
  std::vector<Tensor> out;
  uint32_t seed = 1;
  for (const Shape& s : shapes) out.push_back(random_tensor<float>(s, seed++));
  return out;
}

/// x, cs_prev, h_prev, w, wci, wcf, wco, b.
std::vector<Tensor> lstm_inputs() {
  return random_tensors({{kCellBatch, kCellInputs},
                         {kCellBatch, kCellUnits},
                         {kCellBatch, kCellUnits},
                         {kCellInputs + kCellUnits, 4 * kCellUnits},
                         {kCellUnits},
                         {kCellUnits},
                         {kCellUnits},
                         {4 * kCellUnits}});
}

/// x, h_prev, w_ru, w_c, b_ru, b_c.
std::vector<Tensor> gru_inputs() {
  return random_tensors({{kCellBatch, kCellInputs},
                         {kCellBatch, kCellUnits},
                         {kCellInputs + kCellUnits, 2 * kCellUnits},
                         {kCellInputs + kCellUnits, kCellUnits},
                         {2 * kCellUnits},
                         {kCellUnits}});
}

struct BuiltCell {
  Graph graph{op_library()->ops};
  Scope scope{graph};
  std::vector<Output> in;
  explicit BuiltCell(const std::vector<Tensor>& inputs) {
    for (const Tensor& t : inputs) in.push_back(scope.constant(t));
  }
};

/// The values of `got` and `want`, and their gradients by all inputs, agree.
void check_agree(const BuiltCell& b, const std::vector<Output>& got, const std::vector<Output>& want,
                 const std::vector<Output>& by_got, const std::vector<Output>& by_want) {
  INFO((b.scope.ok() ? "" : b.scope.status().error().str()));
  REQUIRE(b.scope.ok());
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i)
    check_close(doubles(Evaluator().value(got[i])), doubles(Evaluator().value(want[i])), 1e-6);
  std::vector<Output> dys;
  for (size_t i = 0; i < by_got.size(); ++i)
    dys.push_back(b.scope.constant(random_tensor<float>({kCellBatch, kCellUnits}, 90 + static_cast<uint32_t>(i))));
  const auto dgot = gradients(b.scope, by_got, b.in, dys), dwant = gradients(b.scope, by_want, b.in, dys);
  INFO((dgot.ok() ? "" : dgot.error().str()));
  REQUIRE((dgot.ok() && dwant.ok()));
  for (size_t i = 0; i < b.in.size(); ++i) {
    INFO("input " << i);
    check_close(doubles(Evaluator().value((*dgot)[i])), doubles(Evaluator().value((*dwant)[i])), 2e-6);
  }
}

}  // namespace

TEST_CASE("a cell of an LSTM is a sequence of one step") {
  for (const bool peephole : {false, true})
    for (const float clip : {0.f, 0.3f}) {
      const BuiltCell b(lstm_inputs());
      const Attrs attrs = {{"forget_bias", 0.5f}, {"cell_clip", clip}, {"use_peephole", peephole}};
      const Node* cell = b.scope.node("LSTMBlockCell", b.in, attrs);
      std::vector<Output> in = {b.scope.constant(Tensor::scalar<int64_t>(1)),
                                b.scope.op("ExpandDims", {b.in[0], b.scope.constant(Tensor::scalar<int32_t>(0))})};
      in.insert(in.end(), b.in.begin() + 1, b.in.end());
      const Node* sequence = b.scope.node("BlockLSTM", in, attrs);
      REQUIRE(b.scope.ok());
      std::vector<Output> got, want;
      for (int i = 0; i < 7; ++i) {
        got.push_back(cell->out(i));
        want.push_back(b.scope.op("Squeeze", {sequence->out(i)}, {{"squeeze_dims", std::vector<int64_t>{0}}}));
        CHECK(cell->shape(i) == PartialShape{kCellBatch, kCellUnits});
      }
      check_agree(b, got, want, {got[1], got[6]}, {want[1], want[6]});
    }
}

TEST_CASE("a cell of a GRU is what elementary ops make of it") {
  const BuiltCell b(gru_inputs());
  const Scope& s = b.scope;
  const Node* cell = s.node("GRUBlockCell", b.in);
  const auto op = [&](const char* name, std::vector<Output> in) { return s.op(name, std::move(in)); };
  const Output last = s.constant(Tensor::scalar<int32_t>(1)), one = s.constant(Tensor::scalar(1.f));
  const Output x = b.in[0], h = b.in[1];
  const Output gates = op("Sigmoid", {op("BiasAdd", {op("MatMul", {op("ConcatV2", {x, h, last}), b.in[2]}), b.in[4]})});
  const Node* parts = s.node("Split", {last, gates}, {{"num_split", int64_t{2}}});
  REQUIRE(s.ok());
  const Output r = parts->out(0), u = parts->out(1);
  const Output both = op("ConcatV2", {x, op("Mul", {h, r}), last});
  const Output c = op("Tanh", {op("BiasAdd", {op("MatMul", {both, b.in[3]}), b.in[5]})});
  const Output next = op("AddV2", {op("Mul", {u, h}), op("Mul", {op("Sub", {one, u}), c})});
  check_agree(b, {cell->out(0), cell->out(1), cell->out(2), cell->out(3)}, {r, u, c, next}, {cell->out(3)}, {next});
}

TEST_CASE("wrong inputs of recurrent cells are errors that say which") {
  const auto fails = [](const char* op, std::vector<Tensor> in, size_t i, const Shape& shape, const char* text) {
    in[i] = *Tensor::zeros(DType::kFloat32, shape);
    const Attrs attrs = std::string(op) == "LSTMBlockCell" ? Attrs{{"use_peephole", true}} : Attrs{};
    const auto result = apply_unshaped(op, in, attrs);
    REQUIRE_FALSE(result.ok());
    CHECK_THAT(result.error().message, Catch::Contains(text));
  };
  fails("LSTMBlockCell", lstm_inputs(), 0, {1, 3, 4}, "x must have shape [batch, inputs], not [1,3,4]");
  fails("LSTMBlockCell", lstm_inputs(), 2, {3, 4}, "h_prev must have shape [3,5], not [3,4]");
  fails("LSTMBlockCell", lstm_inputs(), 3, {9, 5}, "w must have shape [9,20], not [9,5]");
  fails("LSTMBlockCell", lstm_inputs(), 6, {4}, "wco must have shape [5], not [4]");
  fails("GRUBlockCell", gru_inputs(), 1, {2, 5}, "h_prev must have shape [3, units], not [2,5]");
  fails("GRUBlockCell", gru_inputs(), 2, {9, 5}, "w_ru must have shape [9,10], not [9,5]");
  fails("GRUBlockCell", gru_inputs(), 5, {10}, "b_c must have shape [5], not [10]");
  const BuiltCell b(gru_inputs());
  const Node* cell = b.scope.node("GRUBlockCell", b.in);
  const auto by_gate = gradients(b.scope, {cell->out(1)}, {b.in[0]});
  REQUIRE_FALSE(by_gate.ok());
  CHECK_THAT(by_gate.error().message, Catch::Contains("output h only"));
}
