// SPDX-License-Identifier: Apache-2.0
// Random ops: published vectors of the generator, distributions by their moments, and what seeds promise.
#include <algorithm>

#include "ops/random/philox.h"
#include "tests/ops/check_op.h"
#include "tests/ops/op_case.h"

namespace troupe::testing {
namespace {

/// Two runs of one node on `threads` threads.
std::vector<Tensor> two_runs(const std::string& op, const std::vector<Tensor>& inputs, Attrs attrs, int threads = 1) {
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const Node* node = add_node(scope, op, inputs, std::move(attrs));
  REQUIRE(scope.ok());
  Evaluator evaluator(threads);
  const Tensor first = evaluator.value(node->out());
  return {first, evaluator.value(node->out())};
}

struct Moments {
  double mean = 0, variance = 0, low = 1e300, high = -1e300;
};
Moments moments(const Tensor& t) {
  Moments m;
  const auto v = doubles(t);
  for (double x : v) {
    m.mean += x / static_cast<double>(v.size());
    m.low = std::min(m.low, x);
    m.high = std::max(m.high, x);
  }
  for (double x : v) m.variance += (x - m.mean) * (x - m.mean) / static_cast<double>(v.size());
  return m;
}

}  // namespace

TEST_CASE("Philox gives its authors' vectors", "[random]") {
  CHECK(Philox(0, 0)(0) == Philox::Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint64_t ones = ~uint64_t{0};
  CHECK(Philox(ones, ones)(ones) == Philox::Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Philox(0x299f31d0a4093822, 0x0370734413198a2e)(0x85a308d3243f6a88) ==
        Philox::Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("distributions have their moments in every type", "[random]") {
  const Tensor shape = I({40001});  // not a multiple of a block
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    const Attrs attrs = {{"dtype", dtype}, {"seed", int64_t{3}}, {"seed2", int64_t{4}}};
    INFO(to_string(dtype));
    const double coarse = dtype == DType::kBFloat16 ? 0.01 : dtype == DType::kFloat16 ? 0.003 : 0;
    const Moments u = moments(*apply("RandomUniform", {shape}, attrs));
    CHECK(std::fabs(u.mean - 0.5) < 0.006 + coarse);  // four standard errors
    CHECK(std::fabs(u.variance - 1.0 / 12) < 0.002 + coarse);
    CHECK((u.low >= 0 && u.high < 1));
    const Moments n = moments(*apply("RandomStandardNormal", {shape}, attrs));
    CHECK(std::fabs(n.mean) < 0.02);
    CHECK(std::fabs(n.variance - 1) < 0.03);
    CHECK((n.high > 3.2 && n.low < -3.2));
    const Moments t = moments(*apply("TruncatedNormal", {shape}, attrs));
    CHECK(std::fabs(t.mean) < 0.02);
    CHECK(std::fabs(t.variance - 0.7737) < 0.02);  // 1 - 4 phi(2) / (2 Phi(2) - 1)
    CHECK((t.high <= 2 && t.low >= -2));
  }
}

TEST_CASE("uniform numbers fill sixteen bins evenly and neighbours are not correlated", "[random]") {
  const Tensor t = *apply("RandomUniform", {I({64000})}, {{"dtype", DType::kFloat32}, {"seed", int64_t{11}}});
  const auto v = doubles(t);
  std::vector<int> bins(16, 0);
  double correlation = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    ++bins[static_cast<size_t>(v[i] * 16)];
    if (i > 0) correlation += (v[i] - 0.5) * (v[i - 1] - 0.5) * 12 / 64000;
  }
  double chi = 0;
  for (int n : bins) chi += (n - 4000.0) * (n - 4000.0) / 4000;
  CHECK(chi < 37.7);  // 99.9 % of 15 degrees of freedom
  CHECK(std::fabs(correlation) < 0.016);
}

TEST_CASE("integers cover their range evenly", "[random]") {
  const Tensor t = *apply("RandomUniformInt", {I({60000}), L(-2), L(4)}, {{"seed", int64_t{1}}});
  std::vector<int> bins(6, 0);
  for (double x : doubles(t)) {
    REQUIRE((x >= -2 && x < 4));
    ++bins[static_cast<size_t>(x + 2)];
  }
  for (int n : bins) CHECK(std::abs(n - 10000) < 400);
}

TEST_CASE("seeds decide, runs differ, threads do not matter", "[random]") {
  const Attrs a = {{"dtype", DType::kFloat32}, {"seed", int64_t{5}}, {"seed2", int64_t{6}}};
  const Attrs b = {{"dtype", DType::kFloat32}, {"seed", int64_t{5}}, {"seed2", int64_t{7}}};
  const Attrs none = {{"dtype", DType::kFloat32}};
  for (const char* op : {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"}) {
    const auto first = two_runs(op, {I({30000})}, a), again = two_runs(op, {I({30000})}, a, 2);
    CHECK(first[0].identical(again[0]));
    CHECK(first[1].identical(again[1]));
    CHECK_FALSE(first[0].identical(first[1]));
    CHECK_FALSE(first[0].identical(two_runs(op, {I({30000})}, b)[0]));
    CHECK_FALSE(two_runs(op, {I({30000})}, none)[0].identical(two_runs(op, {I({30000})}, none)[0]));
  }
  const Tensor s = *apply("StatelessRandomNormal", {I({9}), L({1, 2})});
  CHECK(s.identical(*apply("StatelessRandomNormal", {I({9}), L({1, 2})})));
  CHECK_FALSE(s.identical(*apply("StatelessRandomNormal", {I({9}), L({2, 1})})));
}

TEST_CASE("a random step decides what a run draws, whatever ran before", "[random]") {
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const Output x = scope.op("RandomUniform", {scope.constant(I({50}))},
                            {{"dtype", DType::kFloat32}, {"seed", int64_t{5}}, {"seed2", int64_t{6}}});
  const auto draw = [&](Evaluator& evaluator, int64_t random_step) {
    evaluator.random_step = random_step;
    return evaluator.value(x);
  };
  Evaluator one, other;
  const Tensor counted = draw(one, -1), third = draw(one, 3), fourth = draw(one, 4);
  CHECK(draw(other, 4).identical(fourth));
  CHECK(draw(other, 3).identical(third));
  CHECK(draw(one, 3).identical(third));
  CHECK_FALSE(third.identical(fourth));
  CHECK_FALSE(third.identical(counted));
  CHECK(draw(other, -1).identical(counted));  // not counted among the others
}

TEST_CASE("a shuffle keeps rows together and loses none", "[random]") {
  const Tensor x = ramp({100, 3});
  const auto runs = two_runs("RandomShuffle", {x}, {{"seed", int64_t{2}}});
  CHECK_FALSE(runs[0].identical(x));
  CHECK_FALSE(runs[0].identical(runs[1]));
  std::vector<std::vector<double>> want, got;
  for (int64_t i = 0; i < 100; ++i) {
    want.push_back(doubles(*x.slice(i, i + 1)));
    got.push_back(doubles(*runs[0].slice(i, i + 1)));
  }
  std::ranges::sort(want);
  std::ranges::sort(got);
  CHECK(got == want);
}

TEST_CASE("classes are drawn by their probabilities", "[random]") {
  const float log3 = std::log(3.0f);
  const Tensor t = *apply("Multinomial", {F({0, log3, -1e30f}, {1, 3}), I(20000)}, {{"seed", int64_t{2}}});
  const auto v = doubles(t);
  CHECK(std::abs(std::ranges::count(v, 1.0) - 15000) < 300);
  CHECK(std::ranges::count(v, 2.0) == 0);
}

TEST_CASE("keys and counters decide what stateless ops of the second version draw", "[random]") {
  const auto words = [](std::initializer_list<uint64_t> v) { return Tensor::of<uint64_t>(v); };
  const auto draw = [&](const Tensor& key, const Tensor& counter, int32_t alg) {
    return *apply("StatelessRandomUniformV2", {I({9}), key, counter, I(alg)});
  };
  const Tensor x = draw(words({7}), words({0, 0}), 1);
  CHECK(x.identical(draw(words({7}), words({0, 0}), 3)));
  CHECK_FALSE(x.identical(draw(words({8}), words({0, 0}), 1)));
  CHECK_FALSE(x.identical(draw(words({7}), words({1, 0}), 1)));
  CHECK_FALSE(x.identical(draw(words({7}), words({0, 1}), 1)));
  // The key and the counter of a seed draw what the seed does.
  const Tensor key = *apply("StatelessRandomGetKeyCounter", {L({1, 2})});
  const Tensor counter = *apply("StatelessRandomGetKeyCounter", {L({1, 2})}, {}, 1);
  CHECK(draw(key, counter, 1).identical(*apply("StatelessRandomUniform", {I({9}), L({1, 2})})));
}

TEST_CASE("stateless integers and shuffles are those of their seeds", "[random]") {
  const auto ints = doubles(*apply("StatelessRandomUniformInt", {I({20000}), L({1, 2}), I(-1), I(3)}));
  for (int k = -1; k < 3; ++k) CHECK(std::abs(std::ranges::count(ints, k) - 5000) < 300);
  const Attrs full = {{"dtype", DType::kInt32}};
  double sum = 0;
  for (double v : doubles(*apply("StatelessRandomUniformFullInt", {I({20000}), L({1, 2})}, full))) sum += v < 0;
  CHECK(std::abs(sum - 10000) < 400);
  const Tensor key = Tensor::of<uint64_t>({7}), counter = Tensor::of<uint64_t>({0, 0});
  const Tensor x = ramp({100}), y = *apply("StatelessShuffle", {x, key, counter, I(1)});
  CHECK(y.identical(*apply("StatelessShuffle", {x, key, counter, I(1)})));
  CHECK_FALSE(y.identical(x));
  CHECK(std::ranges::is_permutation(doubles(x), doubles(y)));
}

TEST_CASE("random ops refuse seeds, keys and ranges that are none", "[random][bad_input]") {
  const Tensor shape = I({2}), key = Tensor::of<uint64_t>({7}), counter = Tensor::of<uint64_t>({0, 0});
  check_kernel_fails("StatelessRandomNormal", {shape, L({1})}, "two numbers, not the shape [1]");
  check_kernel_fails("StatelessRandomGetKeyCounter", {L({1, 2, 3})}, "not the shape [3]");
  check_kernel_fails("StatelessRandomNormalV2", {shape, key, counter, I(2)}, "alg 2 is not Philox");
  check_kernel_fails("StatelessRandomNormalV2", {shape, counter, counter, I(1)}, "key [2] and counter [2]");
  check_kernel_fails("StatelessRandomNormalV2", {shape, key, key, I(1)}, "key [1] and counter [1]");
  check_kernel_fails("StatelessRandomUniformInt", {shape, L({1, 2}), I(3), I(3)}, "minval 3 is not below maxval 3");
  check_kernel_fails("StatelessRandomUniformInt", {shape, L({1, 2}), I({3}), I(4)}, "scalars, not [1]");
  check_kernel_fails("StatelessRandomGammaV2", {shape, L({1, 2}), D({1, -2})}, "alpha -2 at position 1");
  check_kernel_fails("RandomGamma", {shape, D(NAN)}, "alpha nan at position 0");
  check_kernel_fails("StatelessRandomGammaV2", {shape, L({1, 2}), D({1, 2, 3})}, "shape [2] does not end with [3]");
  check_kernel_fails("StatelessMultinomial", {F({NAN, INFINITY}, {1, 2}), I(1), L({1, 2})},
                     "row 0 are not a distribution");
}

TEST_CASE("Gamma and Poisson numbers have their moments for each parameter", "[random]") {
  const std::vector<double> parameters = {0.3, 1, 2.5, 9.9, 10, 300};
  const Tensor values = Tensor::of<double>(parameters);
  for (const char* op : {"RandomGamma", "RandomPoisson", "RandomPoissonV2"}) {
    Attrs attrs = {{"seed", int64_t{3}}};
    if (op == std::string("RandomPoissonV2")) attrs.set("dtype", DType::kFloat32);
    const Tensor y = *apply(op, {I({5000, 2}), values}, attrs), again = *apply(op, {I({5000, 2}), values}, attrs, 0, 2);
    REQUIRE(y.shape() == Shape{5000, 2, 6});
    CHECK(y.identical(again));
    const auto all = doubles(y);
    for (size_t k = 0; k < parameters.size(); ++k) {
      INFO(op << " " << parameters[k]);
      std::vector<double> own;
      for (size_t i = k; i < all.size(); i += parameters.size()) own.push_back(all[i]);
      const Moments m = moments(Tensor::of<double>(own));
      // Both have the parameter as their mean and their variance.
      CHECK(std::fabs(m.mean - parameters[k]) < 4.5 * std::sqrt(parameters[k] / 10000));
      CHECK(m.variance == Approx(parameters[k]).epsilon(0.15));
      CHECK(m.low >= 0);
    }
  }
  const auto trials = doubles(
      *apply("StatelessRandomBinomial", {I({10000, 4}), L({1, 2}), D({7, 7, 100, 1e6}), D({0.25, 1, 0.3, 0.9})}));
  for (const auto& [k, mean, variance] : {std::tuple{0, 1.75, 1.3125}, {1, 7., 0.}, {2, 30., 21.}, {3, 9e5, 9e4}}) {
    std::vector<double> own;
    for (size_t i = static_cast<size_t>(k); i < trials.size(); i += 4) own.push_back(trials[i]);
    const Moments m = moments(Tensor::of<double>(own));
    CHECK(std::fabs(m.mean - mean) <= 4.5 * std::sqrt(variance / 10000) + 1e-9);
    CHECK(m.variance == Approx(variance).epsilon(0.06).margin(1e-9));
  }
  CHECK_FALSE(apply_unshaped("StatelessRandomBinomial", {I({3}), L({1, 2}), D({1, 2}), D(0.5)}).ok());
  CHECK_FALSE(apply_unshaped("StatelessRandomBinomial", {I({1}), L({1, 2}), D({NAN}), D(0.5)}).ok());
  const Tensor none = *apply("StatelessRandomPoisson", {I({3}), L({1, 2}), D(0)}, {{"dtype", DType::kInt64}});
  CHECK(none.identical(L({0, 0, 0})));
  CHECK(apply("StatelessRandomGammaV2", {I({2}), L({1, 2}), D(0)})->identical(D({0, 0})));
}

TEST_CASE("truncated normal numbers lie between their bounds with the moments of these", "[random]") {
  const double inf = INFINITY;
  struct Case {
    double mean, deviation, low, high, expected;  // the mean of the truncated distribution
  };
  // All of it, one side, the other, a narrow part, far out, and halves.
  const std::vector<Case> cases = {{1, 2, -20, 20, 1},      {0, 1, -2, inf, 0.05525}, {3, 1, -inf, 5, 2.94475},
                                   {0, 1, 0.5, 0.6, .5495}, {0, 1, 4, inf, 4.22561},  {0, 1, 0, inf, 0.797885}};
  for (const char* op : {"ParameterizedTruncatedNormal", "StatelessParameterizedTruncatedNormal"}) {
    for (const Case& k : cases) {
      INFO(op << " " << k.low << " " << k.high);
      std::vector<Tensor> inputs = {I({10000}), D(k.mean), D(k.deviation), D(k.low), D(k.high)};
      const bool stateless = op[0] == 'S';
      if (stateless) inputs.insert(inputs.begin() + 1, L({3, 4}));
      const Moments m = moments(*apply(op, inputs, stateless ? Attrs{} : Attrs{{"seed", int64_t{5}}}));
      CHECK(m.low >= k.low);
      CHECK(m.high <= k.high);
      CHECK(std::fabs(m.mean - k.expected) < 4.5 * std::sqrt(m.variance / 10000) + 1e-4);
    }
    const auto fails = [&](double deviation, double low, double high, const char* message) {
      std::vector<Tensor> inputs = {I({3}), D(0), D(deviation), D(low), D(high)};
      if (op[0] == 'S') inputs.insert(inputs.begin() + 1, L({3, 4}));
      check_kernel_fails(op, inputs, message);
    };
    fails(-1, 0, 1, "standard deviation -1 must be above 0");
    fails(NAN, 0, 1, "standard deviation nan");
    fails(1, 2, 1, "minval 2 below maxval 1");
    fails(1, -inf, inf, "one of the two finite");
    fails(1, NAN, 1, "minval nan");
  }
  check_kernel_fails("ParameterizedTruncatedNormal", {I({3, 2}), D({0, 1}), D(1), D(0), D(1)}, "means of shape [2]");
  check_kernel_fails("ParameterizedTruncatedNormal", {I({1}), D(NAN), D(1), D(0), D(1)}, "1000 numbers in a row");
  check_kernel_fails("StatelessParameterizedTruncatedNormal", {I({3}), L({1, 2}), D({0, 1}), D(1), D(0), D(1)},
                     "shape [3] does not end with [2]");
  CHECK(apply("ParameterizedTruncatedNormal", {I({0, 2}), D(0), D(1), D(0), D(1)})->shape() == Shape{0, 2});
}

TEST_CASE("an index that cannot be shuffled is an error", "[random]") {
  const Tensor seed = L({1, 2, 3});
  check_kernel_fails("RandomIndexShuffle", {L(5), seed, L(4)}, "index must be in [0, 4], got 5");
  check_kernel_fails("RandomIndexShuffle", {L(-1), seed, L(4)}, "index must be at least 0, got -1");
  check_kernel_fails("RandomIndexShuffle", {L(0), seed, L(-4)}, "max_index must be at least 0, got -4");
  check_kernel_fails("RandomIndexShuffle", {L(0), seed, L(4)}, "got 5", {{"rounds", int64_t{5}}});
  check_always_fails("RandomIndexShuffle", {L(0), L({1, 2}), L(4)}, "seed [2]");
  check_always_fails("RandomIndexShuffle", {L({0, 1}), seed, L({4, 4, 4})}, "index [2] and max_index [3]");
}

TEST_CASE("points of Sobol's sequence have every cell of a grid equally often", "[random]") {
  for (const int64_t dim : {2, 101}) {
    const auto y = apply("SobolSample", {I(static_cast<int>(dim)), I(255), I(0)}, {{"dtype", DType::kFloat64}});
    REQUIRE(y.ok());
    REQUIRE(y->shape() == Shape{255, dim});
    for (int64_t d = 0; d < dim; ++d) {
      std::vector<int> seen(256);
      seen[0] = 1;  // the point at 0, which is left out
      for (int64_t i = 0; i < 255; ++i) ++seen.at(static_cast<size_t>(y->data<double>()[i * dim + d] * 256));
      CHECK(std::ranges::all_of(seen, [](int n) { return n == 1; }));
    }
  }
  const auto all = apply("SobolSample", {I(7), I(90), I(10)}), some = apply("SobolSample", {I(7), I(20), I(80)});
  REQUIRE((all.ok() && some.ok()));
  CHECK(std::equal(some->data<float>(), some->data<float>() + 140, all->data<float>() + 490));
  const auto last = apply("SobolSample", {I(1), I(1), I(INT32_MAX - 2)}, {{"dtype", DType::kFloat64}});
  CHECK(last->data<double>()[0] == 0.5 + std::ldexp(1, -31));
}

TEST_CASE("points of Sobol's sequence that are not there are an error", "[random]") {
  check_always_fails("SobolSample", {I(0), I(3), I(0)}, "dim must be in [1, 101], got 0");
  check_always_fails("SobolSample", {I(102), I(3), I(0)}, "dim must be in [1, 101], got 102");
  check_always_fails("SobolSample", {I(2), I(0), I(0)}, "num_results must be at least 1, got 0");
  check_kernel_fails("SobolSample", {I(2), I(3), I(-1)}, "skip must be at least 0, got -1");
  check_kernel_fails("SobolSample", {I(2), I(INT32_MAX), I(0)}, "must add up to less than 2147483647");
}

TEST_CASE("samples of Gamma change with alpha as their gradient tells", "[random]") {
  // The mean is alpha, so that the derivatives have the mean 1.
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const Output alpha = scope.op("Placeholder", {}, {{"dtype", DType::kFloat64}, {"shape", PartialShape{3}}});
  const Output y = scope.op("StatelessRandomGammaV2", {scope.constant(I({4000, 3})), scope.constant(L({1, 2})), alpha});
  const auto dx = gradients(scope, {y}, {alpha});
  REQUIRE(dx.ok());
  const Tensor got = Evaluator().value((*dx)[0], {{alpha, D({0.6, 2, 40})}});
  REQUIRE(got.shape() == Shape{3});
  for (double v : doubles(got)) CHECK(v / 4000 == Approx(1).epsilon(0.06));
}

}  // namespace troupe::testing
