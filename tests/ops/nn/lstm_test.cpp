// SPDX-License-Identifier: Apache-2.0
// BlockLSTM and BlockLSTMV2 against plain loops in float64, and their gradients against central differences of those.
#include <cmath>

#include "tests/ops/check_op.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr int64_t kSteps = 4, kBatch = 2, kInputs = 3, kUnits = 5;

struct Options {
  std::string op = "BlockLSTM";
  bool peephole = false;
  float forget_bias = 1, clip = 0;
  int64_t length = kSteps;
  int64_t steps = kSteps;

  Attrs attrs() const {
    Attrs out = {{"cell_clip", clip}, {"use_peephole", peephole}};
    if (op == "BlockLSTM") out.set("forget_bias", forget_bias);
    return out;
  }
};

/// seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b.
std::vector<Tensor> inputs(const Options& o) {
  std::vector<Tensor> out = {Tensor::scalar(o.length)};
  uint32_t seed = 1;
  for (const Shape& s : {Shape{o.steps, kBatch, kInputs},
                         {kBatch, kUnits},
                         {kBatch, kUnits},
                         {kInputs + kUnits, 4 * kUnits},
                         {kUnits},
                         {kUnits},
                         {kUnits},
                         {4 * kUnits}})
    out.push_back(random_tensor<float>(s, seed++));
  return out;
}

/// x [..., rows, n] with its rows so many times over.
Tensor repeated(const Tensor& x, int64_t times) {
  std::vector<int64_t> dims(x.shape().dims().begin(), x.shape().dims().end());
  const int64_t block = x.dim(-1) * x.dim(-2), blocks = x.elements() / block;
  dims[dims.size() - 2] *= times;
  Tensor y = *Tensor::make(DType::kFloat32, *Shape::make(dims));
  for (int64_t i = 0; i < blocks * times; ++i)
    std::copy_n(x.data<float>() + i / times * block, block, y.mutable_data<float>() + i * block);
  return y;
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

/// All seven outputs, [steps, batch, units] each, of inputs as in inputs().
std::vector<std::vector<double>> plain_lstm(const Options& o, const std::vector<std::vector<double>>& in) {
  std::vector<std::vector<double>> out(7, std::vector<double>(o.steps * kBatch * kUnits));
  const int64_t cell = o.op == "BlockLSTM" ? 1 : 2, forget = 3 - cell;
  for (int64_t t = 0; t < o.length; ++t)
    for (int64_t n = 0; n < kBatch; ++n)
      for (int64_t k = 0; k < kUnits; ++k) {
        const auto before = [&](int of, const std::vector<double>& first, int64_t unit) {
          return t == 0 ? first[n * kUnits + unit] : out[of][((t - 1) * kBatch + n) * kUnits + unit];
        };
        const auto sum = [&](int64_t gate) {
          double s = in[8][gate * kUnits + k];
          for (int64_t i = 0; i < kInputs; ++i)
            s += in[1][(t * kBatch + n) * kInputs + i] * in[4][i * 4 * kUnits + gate * kUnits + k];
          for (int64_t u = 0; u < kUnits; ++u)
            s += before(6, in[3], u) * in[4][(kInputs + u) * 4 * kUnits + gate * kUnits + k];
          return s;
        };
        const double c = before(1, in[2], k), peep = o.peephole ? 1 : 0;
        const double i = logistic(sum(0) + peep * in[5][k] * c);
        const double f = logistic(sum(forget) + (o.op == "BlockLSTM" ? o.forget_bias : 0) + peep * in[6][k] * c);
        const double ci = std::tanh(sum(cell));
        double cs = ci * i + c * f;
        if (o.clip > 0) cs = std::clamp<double>(cs, -o.clip, o.clip);
        const double out_gate = logistic(sum(3) + peep * in[7][k] * cs), co = std::tanh(cs);
        const double all[] = {i, cs, f, out_gate, ci, co, co * out_gate};
        for (int j = 0; j < 7; ++j) out[j][(t * kBatch + n) * kUnits + k] = all[j];
      }
  return out;
}

std::vector<std::vector<double>> as_doubles(const std::vector<Tensor>& in) {
  std::vector<std::vector<double>> out;
  for (const Tensor& t : in) out.push_back(doubles(t));
  return out;
}

const Options kOptions[] = {{},
                            {.peephole = true},
                            {.forget_bias = 0.5f, .clip = 0.4f},
                            {.length = 2},
                            {.length = 0},
                            {.op = "BlockLSTMV2"},
                            {.op = "BlockLSTMV2", .peephole = true, .length = 3}};

/// The same with rows enough for weights in panels, where it is not cut short.
Options longer(Options o) {
  if (o.length == o.steps) o.length = 5 * kSteps;
  o.steps = 5 * kSteps;
  return o;
}

}  // namespace

TEST_CASE("a sequence through an LSTM is what plain loops make of it") {
  for (const Options& each : kOptions)
    for (const auto& [o, threads] : {std::pair(each, 1), {each, 2}, {longer(each), 1}, {longer(each), 2}}) {
      const std::vector<Tensor> in = inputs(o);
      const auto want = plain_lstm(o, as_doubles(in));
      for (int port = 0; port < 7; ++port) {
        INFO(o.op << " output " << port);
        auto got = apply(o.op, in, o.attrs(), port, threads);
        INFO((got.ok() ? "" : got.error().str()));
        REQUIRE(got.ok());
        CHECK(got->shape() == Shape{o.steps, kBatch, kUnits});
        check_close(doubles(*got), want[port], 2e-6);
      }
    }
}

TEST_CASE("an LSTM gives the same, to the bit, on one thread and more, however its units fill panels") {
  // More steps than rows are worth laying out the weights for; 250 units leave a panel in part, and two threads share.
  for (const int64_t units : {3, 16, 250})
    for (const int64_t batch : {1, 3}) {
      constexpr int64_t kLong = 40, kWide = 19;
      std::vector<Tensor> in = {Tensor::scalar(kLong)};
      uint32_t seed = 1;
      for (const Shape& s : {Shape{kLong, batch, kWide}, {batch, units}, {batch, units}, {kWide + units, 4 * units}})
        in.push_back(random_tensor<float>(s, seed++));
      float* w = in[4].mutable_data<float>();  // small, so that 40 steps do not magnify what is rounded
      for (int64_t i = 0; i < in[4].elements(); ++i) w[i] *= 0.05f;
      for (int i = 0; i < 3; ++i) in.push_back(random_tensor<float>({units}, seed++));
      in.push_back(random_tensor<float>({4 * units}, seed++));
      const Attrs attrs = {{"use_peephole", true}};
      const auto run = [&](const std::vector<Tensor>& inputs, int port, int threads) {
        auto got = apply("BlockLSTM", inputs, attrs, port, threads);
        INFO((got.ok() ? "" : got.error().str()));
        REQUIRE(got.ok());
        return doubles(*got);
      };
      for (const int port : {1, 6}) {
        const auto one = run(in, port, 1);
        CHECK(run(in, port, 2) == one);
        // Rows do not meet: eight of them, which go another way, are each what it is alone.
        std::vector<Tensor> wide = in;
        for (const int i : {1, 2, 3}) wide[i] = repeated(in[i], 8);
        const auto many = run(wide, port, 2);
        for (int64_t t = 0; t < kLong; ++t)
          for (int64_t k = 0; k < 8 * batch * units; ++k)
            REQUIRE(many[t * 8 * batch * units + k] ==
                    Approx(one[t * batch * units + k % (batch * units)]).margin(1e-4));
      }
    }
}

TEST_CASE("an LSTM without its gates has the same cells and results") {
  for (const Options& each : kOptions)
    for (const auto& [o, threads] : {std::pair(each, 1), {each, 2}, {longer(each), 1}, {longer(each), 2}}) {
      const std::vector<Tensor> in = inputs(o);
      const auto want = plain_lstm(o, as_doubles(in));
      Attrs attrs = o.attrs();
      attrs.set("op", o.op);
      for (int port = 0; port < 2; ++port) {
        INFO(o.op << " output " << port);
        auto got = apply("_BlockLSTMStates", in, attrs, port, threads);
        INFO((got.ok() ? "" : got.error().str()));
        REQUIRE(got.ok());
        CHECK(got->shape() == Shape{o.steps, kBatch, kUnits});
        check_close(doubles(*got), want[port == 0 ? 1 : 6], 2e-6);
      }
    }
}

TEST_CASE("an LSTM without its gates takes any number of rows, the same to the bit on one thread and more in panels") {
  constexpr int64_t kLong = 6;
  for (const int64_t units : {3, 16, 150})
    for (const int64_t wide : {0, 1, 140})
      for (const int64_t batch : {1, 7, 8, 15, 33, 64, 65}) {
        INFO(units << " units, " << wide << " inputs, " << batch << " rows");
        std::vector<Tensor> in = {Tensor::scalar(kLong)};
        uint32_t seed = 1;
        for (const Shape& s : {Shape{kLong, batch, wide}, {batch, units}, {batch, units}, {wide + units, 4 * units}})
          in.push_back(random_tensor<float>(s, seed++));
        float* w = in[4].mutable_data<float>();
        for (int64_t i = 0; i < in[4].elements(); ++i) w[i] *= 0.1f;
        for (int i = 0; i < 3; ++i) in.push_back(random_tensor<float>({units}, seed++));
        in.push_back(random_tensor<float>({4 * units}, seed++));
        const auto run = [&](const char* op, const Attrs& attrs, int port, int threads) {
          auto got = apply(op, in, attrs, port, threads);
          INFO((got.ok() ? "" : got.error().str()));
          REQUIRE(got.ok());
          return doubles(*got);
        };
        const Attrs attrs{{"op", std::string("BlockLSTM")}, {"forget_bias", 1.0f}, {"cell_clip", 3.0f}};
        for (const int port : {0, 1}) {
          const auto one = run("_BlockLSTMStates", attrs, port, 1);
          const auto three = run("_BlockLSTMStates", attrs, port, 3);
          if (batch <= 64) CHECK((three == one));  // more are a product of their own
          check_close(three, one, 2e-5);
          check_close(one, run("BlockLSTM", {}, port == 0 ? 1 : 6, 1), 2e-5);
        }
      }
}

TEST_CASE("an LSTM whose weights stay the same from call to call makes the same bits, and sees others") {
  std::vector<Options> all(std::begin(kOptions), std::end(kOptions));
  for (const Options& o : kOptions) all.push_back(longer(o));
  for (const Options& o : all) {
    const std::vector<Tensor> in = inputs(o);
    std::vector<Tensor> other = in;
    other[4] = random_tensor<float>(in[4].shape(), 77);
    Graph graph(op_library()->ops);
    const Scope scope(graph);
    const Node* node = add_node(scope, o.op, in, o.attrs());
    REQUIRE(scope.ok());
    Evaluator evaluator(2);
    std::map<const Tensor*, std::vector<std::vector<double>>> first;  // results, by weights
    const auto check = [&](const std::vector<Tensor>& now) {
      const auto want = plain_lstm(o, as_doubles(now));
      std::vector<Output> fetches;
      for (int port = 0; port < 7; ++port) fetches.push_back(node->out(port));
      auto got = evaluator.run(fetches, {{node->inputs()[4], now[4]}});
      INFO(o.op << (got.ok() ? "" : got.error().str()));
      REQUIRE(got.ok());
      std::vector<std::vector<double>> results;
      for (const Tensor& result : *got) results.push_back(doubles(result));
      for (size_t port = 0; port < 7; ++port) check_close(results[port], want[port], 2e-6);
      CHECK(first.try_emplace(&now[4], results).first->second == results);
    };
    for (int i = 0; i < 8; ++i) check(in);
    check(other);
    for (int i = 0; i < 40; ++i) check(in);
    for (int i = 0; i < 2; ++i) check(other);
  }
}

TEST_CASE("an LSTM's gradients agree with differences") {
  for (const Options& o : kOptions) {
    if (o.clip > 0) continue;  // counts as no change
    std::vector<Tensor> in = inputs(o);
    const Tensor by_cs = random_tensor<float>({kSteps, kBatch, kUnits}, 50);
    const Tensor by_h = random_tensor<float>({kSteps, kBatch, kUnits}, 51);
    Graph graph(op_library()->ops);
    const Scope scope(graph);
    std::vector<Output> nodes;
    for (const Tensor& t : in) nodes.push_back(scope.constant(t));
    const Node* node = scope.node(o.op, nodes, o.attrs());
    REQUIRE(scope.ok());
    auto dxs = gradients(scope, {node->out(1), node->out(6)}, {nodes.begin() + 1, nodes.end()},
                         {scope.constant(by_cs), scope.constant(by_h)});
    INFO((dxs.ok() ? "" : dxs.error().str()));
    REQUIRE(dxs.ok());
    auto values = as_doubles(in);
    const auto loss = [&] {
      const auto out = plain_lstm(o, values);
      double sum = 0;
      for (size_t k = 0; k < out[1].size(); ++k)
        sum += out[1][k] * by_cs.data<float>()[k] + out[6][k] * by_h.data<float>()[k];
      return sum;
    };
    for (size_t i = 0; i < dxs->size(); ++i) {
      INFO(o.op << " input " << i + 1);
      const Tensor got = Evaluator().value((*dxs)[i]);
      REQUIRE(got.defined());
      std::vector<double> want;
      for (double& v : values[i + 1]) {
        const double at = v;
        v = at + 1e-5;
        const double above = loss();
        v = at - 1e-5;
        want.push_back((above - loss()) / 2e-5);
        v = at;
      }
      check_close(doubles(got), want, 1e-5);
    }
  }
}

TEST_CASE("an LSTM's gradients by a row are the same with many rows as with few, on one thread and more") {
  constexpr int64_t kLong = 6, kWide = 19, kFew = 3;
  for (const int64_t units : {3, 16, 250})
    for (const int64_t times : {3, 11, 22}) {  // 9 rows, 33, 66
      INFO(units << " units, " << kFew * times << " rows");
      uint32_t seed = 1;
      std::vector<Tensor> few = {Tensor::scalar(kLong)};
      for (const Shape& s : {Shape{kLong, kFew, kWide}, {kFew, units}, {kFew, units}, {kWide + units, 4 * units}})
        few.push_back(random_tensor<float>(s, seed++));
      float* w = few[4].mutable_data<float>();
      for (int64_t i = 0; i < few[4].elements(); ++i) w[i] *= 0.1f;
      for (int i = 0; i < 3; ++i) few.push_back(random_tensor<float>({units}, seed++));
      few.push_back(random_tensor<float>({4 * units}, seed++));
      const auto run = [](const char* op, const std::vector<Tensor>& in, int port, int threads) {
        auto got = apply(op, in, {{"use_peephole", true}}, port, threads);
        INFO((got.ok() ? "" : got.error().str()));
        REQUIRE(got.ok());
        return *got;
      };
      for (int port = 0; port < 7; ++port) few.push_back(run("BlockLSTM", {few.begin(), few.begin() + 9}, port, 1));
      for (int i = 0; i < 2; ++i) few.push_back(random_tensor<float>({kLong, kFew, units}, seed++));
      std::vector<Tensor> many = few;
      for (size_t i = 1; i < few.size(); ++i)
        if (i < 4 || i > 8) many[i] = repeated(few[i], times);
      for (int port = 0; port < 8; ++port) {  // by x, cs_prev, h_prev, then by w, wci, wcf, wco, b: sums over rows
        INFO("gradient " << port);
        const Tensor by_few = run("BlockLSTMGrad", few, port, 1);
        auto want = doubles(port < 3 ? repeated(by_few, times) : by_few);
        const double rows = port < 3 ? 1 : static_cast<double>(times);
        for (double& v : want) v *= rows;
        for (const int threads : {1, 3})
          check_close(doubles(run("BlockLSTMGrad", many, port, threads)), want, 1e-5 * rows);
      }
    }
}

TEST_CASE("wrong inputs of an LSTM are errors that say which") {
  const Options o;
  const auto fails = [&](size_t i, const Tensor& wrong, const char* text) {
    std::vector<Tensor> in = inputs(o);
    in[i] = wrong;
    Attrs attrs = {{"use_peephole", true}};
    const auto result = apply_unshaped("BlockLSTM", in, attrs);
    REQUIRE_FALSE(result.ok());
    CHECK_THAT(result.error().message, Catch::Contains(text));
  };
  const auto zeros = [](const Shape& s) { return *Tensor::zeros(DType::kFloat32, s); };
  fails(0, Tensor::scalar(int64_t{5}), "seq_len_max is 5, and x has 4 steps");
  fails(0, Tensor::scalar(int64_t{-1}), "seq_len_max is -1");
  fails(0, Tensor::of<int64_t>({1, 2}), "seq_len_max must be a scalar");
  fails(1, zeros({4, 2}), "[4,2]");
  fails(2, zeros({3, 5}), "cs_prev must have shape [2,5], not [3,5]");
  fails(3, zeros({2, 4}), "h_prev must have shape [2,5], not [2,4]");
  fails(4, zeros({8, 5}), "w must have shape [8,20], not [8,5]");
  fails(6, zeros({4}), "wcf must have shape [5], not [4]");
  fails(8, zeros({21}), "[21]");
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const Node* node = add_node(scope, "BlockLSTM", inputs(o));
  REQUIRE(scope.ok());
  auto by_gate = gradients(scope, {node->out(0)}, {node->inputs()[1]});
  REQUIRE_FALSE(by_gate.ok());
  CHECK_THAT(by_gate.error().message, Catch::Contains("cs and h only"));
}
