// SPDX-License-Identifier: Apache-2.0
// Long short-term memories and their gradients on GPUs agree with those of CPUs.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

struct LstmCase {
  int64_t steps, most_steps, batch, inputs, units;
};
const LstmCase kLstmCases[] = {{1, 1, 1, 1, 1}, {3, 3, 2, 5, 4}, {4, 7, 3, 2, 33}, {0, 2, 2, 3, 4},
                               {2, 2, 0, 3, 4}, {2, 3, 2, 0, 3}, {2, 2, 2, 3, 0},  {5, 5, 20, 8, 40}};

/// Of 16-bit floats states are rounded between steps, of which CPUs know nothing.
double lstm_tolerance(DType dtype) { return dtype == DType::kFloat32 ? 2e-5 : dtype == DType::kFloat16 ? 1e-2 : 6e-2; }

Tensor small_values(DType dtype, const Shape& shape, uint64_t seed) {
  Tensor x = random_values(dtype, shape, seed);
  with_type(dtype, FloatTypes{}, [&]<class T>() {
    for (int64_t i = 0; i < x.elements(); ++i) {
      T& v = x.mutable_data<T>()[i];
      v = narrow<T>(widen(v) * Arithmetic<T>(0.2f));
    }
  });
  return x;
}

/// x, cs_prev, h_prev, w, wci, wcf, wco, b; behind seq_len_max unless they are of a cell.
std::vector<Tensor> lstm_inputs(DType dtype, const LstmCase& c, bool cell) {
  std::vector<Tensor> out;
  if (!cell) out.push_back(Tensor::scalar<int64_t>(c.steps));
  const auto add = [&](const Shape& shape) { out.push_back(small_values(dtype, shape, out.size() + 1)); };
  add(cell ? Shape{c.batch, c.inputs} : Shape{c.most_steps, c.batch, c.inputs});
  add({c.batch, c.units});
  add({c.batch, c.units});
  add({c.inputs + c.units, 4 * c.units});
  for (int i = 0; i < 3; ++i) add({c.units});
  add({4 * c.units});
  return out;
}

/// An op and its gradient.
void check_lstm(const std::string& op, const std::string& gradient, bool cell) {
  Parity parity;
  for (DType dtype : gpu_types(parity, op.c_str()))
    for (const LstmCase& c : kLstmCases)
      for (bool peephole : {false, true})
        for (float clip : {0.f, 0.15f}) {
          Attrs attrs{{"use_peephole", peephole}, {"cell_clip", clip}};
          if (!op.ends_with("V2")) attrs.set("forget_bias", 0.7f);
          const std::vector<Tensor> inputs = lstm_inputs(dtype, c, cell);
          const double tolerance = lstm_tolerance(dtype);
          parity.check({op, inputs, attrs, tolerance});
          const auto kept = parity.run(DeviceKind::kCpu, {op, inputs, attrs});
          REQUIRE(kept.ok());
          // Of a cell all but the last of the results, then the gradients by cs and h.
          std::vector<Tensor> all = inputs;
          all.insert(all.end(), kept->begin(), kept->end() - (cell ? 1 : 0));
          for (uint64_t seed : {20, 21}) all.push_back(small_values(dtype, (*kept)[0].shape(), seed));
          const Attrs of_gradient{{"use_peephole", peephole}};
          parity.check({gradient, all, of_gradient, tolerance * 4});
          all.back() = small_values(dtype, Shape{7}, 1);  // errors
          parity.check({gradient, all, of_gradient});
          std::vector<Tensor> wrong = inputs;
          wrong.back() = small_values(dtype, Shape{5}, 1);
          parity.check({op, wrong, attrs});
        }
}

TEST_CASE("Sequences through an LSTM on GPUs agree with those on CPUs") {
  check_lstm("BlockLSTM", "BlockLSTMGrad", false);
  check_lstm("BlockLSTMV2", "BlockLSTMGradV2", false);
}

TEST_CASE("Steps of an LSTM on GPUs agree with those on CPUs") {
  check_lstm("LSTMBlockCell", "LSTMBlockCellGrad", true);
}

TEST_CASE("The length of a sequence is checked on GPUs as on CPUs") {
  Parity parity;
  for (int64_t steps : {-1, 4}) {
    std::vector<Tensor> inputs = lstm_inputs(DType::kFloat32, {3, 3, 2, 2, 2}, false);
    inputs[0] = Tensor::scalar<int64_t>(steps);
    parity.check({"BlockLSTM", inputs});
  }
}

}  // namespace
}  // namespace troupe::testing
