// SPDX-License-Identifier: Apache-2.0
// _FusedMatMul, _FusedConv2D, _FusedDepthwiseConv2dNative against the nodes one by one; bad attributes.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "tests/ops/evaluate.h"
#include "tests/repeats.h"

using namespace troupe;

namespace {

using OpNames = std::vector<std::string>;
using Outputs = std::vector<Output>;

struct ProductFixture {
  testing::Evaluator evaluator;
  Graph graph{testing::op_library()->ops};
  Scope s{graph};

  /// Const, or fed, so that a kernel cannot take it for one.
  template <class T> Output values(Shape shape, bool constant = true) {
    Tensor t = *Tensor::make(dtype_of<T>, shape);
    for (int64_t i = 0; i < t.elements(); ++i)
      t.mutable_data<T>()[i] = static_cast<T>((static_cast<double>(i * 7919 % 1013) - 500) / 500);
    if (constant) return s.constant(std::move(t));
    const Output fed = s.op("Placeholder", {}, {{"dtype", dtype_of<T>}, {"shape", PartialShape(shape)}});
    feeds.emplace_back(fed, std::move(t));
    return fed;
  }
  Output fused(const std::string& op, std::vector<Output> inputs, OpNames ops, Attrs attrs = {}) {
    attrs.set("num_args", static_cast<int64_t>(inputs.size()) - 2);
    attrs.set("fused_ops", std::move(ops));
    return s.op("_Fused" + op, std::move(inputs), std::move(attrs));
  }
  /// GELU by its formula.
  template <class T> Output gelu(const Output& x, bool exact) {
    const auto number = [&](double v) { return s.constant(Tensor::scalar(static_cast<T>(v))); };
    const auto times = [&](const Output& a, const Output& b) { return s.op("Mul", {a, b}); };
    const Output cube = times(x, times(x, x)), sum = s.op("AddV2", {x, times(number(0.044715), cube)});
    const Output curve = exact ? s.op("Erf", {s.op("RealDiv", {x, number(std::sqrt(2.0))})})
                               : s.op("Tanh", {times(number(std::sqrt(2 / M_PI)), sum)});
    return times(times(number(0.5), x), s.op("AddV2", {number(1), curve}));
  }
  /// `op` with what `ops` say, fused and one by one; twice, since kernels keep things.
  template <class T>
  void check(const std::string& op, Output x, Output w, Output bias, const OpNames& ops, const Attrs& attrs = {},
             Output image = {}) {
    INFO(op << " " << fmt::format("{}", fmt::join(ops, " ")));
    Output expected = s.op(op, {x, w}, attrs);
    for (const std::string& next : ops) {
      if (next.starts_with("Gelu")) expected = gelu<T>(expected, next == "GeluExact");
      else if (next == "Swish") expected = s.op("Mul", {expected, s.op("Sigmoid", {expected})});
      else if (next == "Add") expected = s.op(next, {expected, image});
      else if (next != "BiasAdd") expected = s.op(next, {expected});
      else if (attrs.has("data_format"))
        expected = s.op(next, {expected, bias}, {{"data_format", *attrs.get<std::string>("data_format")}});
      else expected = s.op(next, {expected, bias});
    }
    const bool biased = !ops.empty() && ops[0] == "BiasAdd";
    std::vector<Output> inputs = {x, w};
    if (biased) inputs.push_back(bias);
    if (image) inputs.push_back(image);
    const Output one = fused(op, std::move(inputs), ops, attrs);
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    for (int round = 0; round < 2; ++round) {
      auto r = evaluator.run({one, expected}, feeds);
      INFO((r.ok() ? "" : r.error().str()));
      REQUIRE(r.ok());
      REQUIRE((*r)[0].shape() == (*r)[1].shape());
      double worst = 0;
      for (int64_t i = 0; i < (*r)[0].elements(); ++i)
        worst = std::max(worst, std::fabs(static_cast<double>((*r)[0].data<T>()[i]) - (*r)[1].data<T>()[i]));
      CHECK(worst < (sizeof(T) == 4 ? 1e-4 : 1e-13));
    }
  }
  std::vector<std::pair<Output, Tensor>> feeds = {};
};

const std::vector<OpNames> kEpilogues = {{"BiasAdd"},
                                         {"Relu"},
                                         {"BiasAdd", "Relu"},
                                         {"BiasAdd", "Relu6"},
                                         {"BiasAdd", "Elu"},
                                         {"BiasAdd", "Tanh"},
                                         {"Sigmoid"},
                                         {"BiasAdd", "Swish"},
                                         {},
                                         {"BiasAdd", "GeluApproximate"},
                                         {"GeluExact"},
                                         {"BiasAdd", "GeluExact"}};

}  // namespace

TEMPLATE_TEST_CASE("fused products give what their nodes give", "", float, double) {
  ProductFixture f;
  for (const OpNames& ops : kEpilogues) {
    f.check<TestType>("MatMul", f.values<TestType>({5, 7}), f.values<TestType>({7, 3}), f.values<TestType>({3}), ops);
    f.check<TestType>("MatMul", f.values<TestType>({0, 7}), f.values<TestType>({3, 7}), f.values<TestType>({3}), ops,
                      {{"transpose_b", true}});
  }
}

TEMPLATE_TEST_CASE("fused products by a large constant give what their nodes give, of any number of rows", "", float,
                   double) {
  ProductFixture f;
  std::vector<OpNames> all = kEpilogues;
  for (const OpNames& ops : {OpNames{"Add"}, {"BiasAdd", "Add"}, {"BiasAdd", "Add", "Relu"}}) all.push_back(ops);
  for (const bool constant : {true, false})
    for (const bool transposed : {false, true}) {
      const Attrs attrs{{"transpose_a", transposed}, {"transpose_b", !transposed}};
      const int64_t k = transposed ? 128 : 96, n = transposed ? 96 : 128;
      const Output w = f.values<TestType>(transposed ? Shape{k, n} : Shape{n, k}, constant);
      const Output bias = f.values<TestType>({n});
      for (const int64_t m : {33, 70})
        for (const OpNames& ops : all)
          for (const int64_t rows : {m, int64_t{1}}) {  // the sum's other side may broadcast
            const bool adds = std::ranges::find(ops, "Add") != ops.end();
            if (rows == 1 && !adds) continue;
            const Output x = f.values<TestType>(transposed ? Shape{k, m} : Shape{m, k});
            f.check<TestType>("MatMul", x, w, bias, ops, attrs, adds ? f.values<TestType>({rows, n}) : Output());
          }
    }
}

TEST_CASE("rows by a constant that is laid out in panels, of any numbers of rows, columns and threads") {
  unsigned number = 0;
  for (const int threads : {1, 2, 5})
    for (const auto& [k, n] : {std::pair<int64_t, int64_t>{300, 100}, {1400, 100}, {130, 2100}, {9000, 30}})
      for (const bool transposed : {false, true}) {
        ProductFixture f{testing::Evaluator(threads)};
        const Output w = f.values<float>(transposed ? Shape{n, k} : Shape{k, n}), bias = f.values<float>({n});
        for (const int64_t m : {2, 9, 27, 29, 130, 300, 600}) {
          if (m * k * n > 100'000'000 || !runs_case(number++)) continue;
          INFO(fmt::format("[{},{}] by [{},{}]{}, {} threads", m, k, k, n, transposed ? " transposed" : "", threads));
          const Output x = f.values<float>({m, k});
          for (const OpNames& ops : {OpNames{}, {"BiasAdd", "GeluExact"}}) {
            const Output one = f.fused("MatMul", ops.empty() ? Outputs{x, w} : Outputs{x, w, bias}, ops,
                                       {{"transpose_b", transposed}});
            Output expected = f.s.op("MatMul", {x, w}, {{"transpose_b", transposed}});
            if (!ops.empty()) expected = f.gelu<float>(f.s.op("BiasAdd", {expected, bias}), true);
            REQUIRE(f.s.ok());
            auto r = f.evaluator.run({one, expected});
            REQUIRE(r.ok());
            double worst = 0, largest = 1;
            for (int64_t i = 0; i < (*r)[1].elements(); ++i) {
              const double want = (*r)[1].data<float>()[i];
              worst = std::max(worst, std::fabs((*r)[0].data<float>()[i] - want));
              largest = std::max(largest, std::fabs(want));
            }
            CHECK(worst < 1e-5 * largest);
          }
        }
      }
}

TEST_CASE("one row by a constant gives what its nodes give, on any number of threads") {
  for (const int threads : {1, 3}) {
    ProductFixture f{testing::Evaluator(threads)};
    std::vector<OpNames> all = kEpilogues;
    all.push_back({"BiasAdd", "Add", "GeluExact"});
    for (const int64_t k : {513, 520})
      for (const int64_t n : {777, 1024})
        for (const bool ta : {false, true})
          for (const OpNames& ops : all) {
            const bool adds = std::ranges::find(ops, "Add") != ops.end();
            f.check<float>("MatMul", f.values<float>(ta ? Shape{k, 1} : Shape{1, k}), f.values<float>({k, n}),
                           f.values<float>({n}), ops, {{"transpose_a", ta}}, adds ? f.values<float>({1, n}) : Output());
          }
    f.check<float>("MatMul", f.values<float>({1, 600}), f.values<float>({900, 600}), f.values<float>({900}),
                   {"BiasAdd"}, {{"transpose_b", true}});
  }
}

TEST_CASE("a product by a large constant takes any rows in turn, and another factor that is fed") {
  ProductFixture f;
  const Output x = f.s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1, 96}}});
  const Output w = f.values<float>({96, 128}), bias = f.values<float>({128});
  const Output y = f.fused("MatMul", {x, w, bias}, {"BiasAdd", "Tanh"});
  const Output plain = f.s.op("Tanh", {f.s.op("BiasAdd", {f.s.op("MatMul", {x, w}), bias})});
  for (const int64_t rows : {40, 1, 50, 0, 60, 40, 70, 1})
    for (const bool fed : {false, true}) {
      Tensor in = *Tensor::make(DType::kFloat32, {rows, 96});
      for (int64_t i = 0; i < in.elements(); ++i)
        in.mutable_data<float>()[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
      std::vector<std::pair<Output, Tensor>> feeds = {{x, in}};
      if (fed) feeds.emplace_back(w, *Tensor::zeros(DType::kFloat32, {96, 128}));
      auto r = f.evaluator.run({y, plain}, feeds);
      REQUIRE(r.ok());
      REQUIRE((*r)[0].shape() == Shape{rows, 128});
      for (int64_t i = 0; i < rows * 128; ++i)
        REQUIRE(std::fabs((*r)[0].data<float>()[i] - (*r)[1].data<float>()[i]) < 1e-4f);
    }
}

TEST_CASE("NaN and infinity come through a product by a large constant") {
  for (const char* activation : {"", "GeluExact", "GeluApproximate", "Tanh", "Sigmoid", "Elu", "Swish"}) {
    ProductFixture f;
    std::vector<float> in(64 * 96, 1);
    in[0] = NAN;
    in[96] = INFINITY;
    const Output x = f.s.constant(Tensor::of<float>(std::span<const float>(in), {64, 96}));
    const std::vector<float> half(96 * 128, 0.5f);
    const Output w = f.s.constant(Tensor::of<float>(std::span<const float>(half), {96, 128}));
    OpNames ops = {"BiasAdd"};
    if (*activation) ops.push_back(activation);
    auto r = f.evaluator.run({f.fused("MatMul", {x, w, f.values<float>({128})}, ops)});
    REQUIRE(r.ok());
    INFO(activation);
    CHECK(std::isnan((*r)[0].data<float>()[5]));
    const float after = (*r)[0].data<float>()[128 + 5];
    CHECK((*activation == 'T' || std::string_view(activation) == "Sigmoid" ? after == 1 : after == INFINITY));
  }
}

TEMPLATE_TEST_CASE("fused convolutions give what their nodes give, also with a filter kept in another layout", "",
                   float, double) {
  ProductFixture f;
  for (const bool constant : {true, false})
    for (const std::string format : {"NHWC", "NCHW"})
      for (const int64_t channels : {3, 32}) {
        const bool first = format == "NCHW";
        const Attrs attrs{
            {"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("SAME")}, {"data_format", format}};
        const int64_t size = sizeof(TestType) == 4 ? 26 : 6;
        const Output x = f.values<TestType>(first ? Shape{4, channels, size, size} : Shape{4, size, size, channels});
        const Output w = f.values<TestType>({3, 3, channels, 2 * channels}, constant);
        const Output d = f.values<TestType>({3, 3, channels, 1}, constant);
        for (const OpNames& ops : kEpilogues) {
          if (sizeof(TestType) == 8 && ops.size() < 2) continue;
          f.check<TestType>("Conv2D", x, w, f.values<TestType>({2 * channels}), ops, attrs);
          f.check<TestType>("DepthwiseConv2dNative", x, d, f.values<TestType>({channels}), ops, attrs);
        }
      }
}

TEMPLATE_TEST_CASE("a fused convolution adds an image as its nodes do, its own input and one that broadcasts too", "",
                   float, double) {
  ProductFixture f;
  const std::vector<OpNames> all = {{"Add"}, {"Add", "Relu"}, {"BiasAdd", "Add"}, {"BiasAdd", "Add", "Relu6"}};
  for (const bool constant : {true, false})
    for (const std::string format : {"NHWC", "NCHW"})
      for (const int64_t channels : {3, 32}) {
        const bool first = format == "NCHW";
        const Attrs attrs{
            {"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("SAME")}, {"data_format", format}};
        const int64_t size = sizeof(TestType) == 4 ? 26 : 6;
        const auto image = [&](int64_t batch) {
          return f.values<TestType>(first ? Shape{batch, channels, size, size} : Shape{batch, size, size, channels});
        };
        const Output x = image(4), w = f.values<TestType>({3, 3, channels, channels}, constant);
        const Output d = f.values<TestType>({3, 3, channels, 1}, constant), bias = f.values<TestType>({channels});
        // Of its own, so that the kernel may write into it.
        const Output own = f.s.op("Neg", {image(4)});
        for (const OpNames& ops : all)
          for (const Output& added : {own, image(4), x, image(1)}) {
            f.check<TestType>("Conv2D", x, w, bias, ops, attrs, added);
            if (channels == 32) f.check<TestType>("DepthwiseConv2dNative", x, d, bias, ops, attrs, added);
          }
      }
}

TEST_CASE("a small convolution with a constant filter gives what one with another filter gives") {
  ProductFixture f;
  for (const auto& [batch, size, channels] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 14, 64}, {2, 7, 128}, {1, 10, 128}}) {
    const Attrs attrs{{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("SAME")}};
    const Output x = f.values<float>({batch, size, size, channels});
    const Shape of_filter{3, 3, channels, channels};
    const Output w = f.values<float>(of_filter), same = f.values<float>(of_filter, false);
    const Output one = f.s.op("Conv2D", {x, w}, attrs), other = f.s.op("Conv2D", {x, same}, attrs);
    auto r = f.evaluator.run({one, other}, f.feeds);
    REQUIRE(r.ok());
    float worst = 0, largest = 0;
    for (int64_t i = 0; i < (*r)[0].elements(); ++i) {
      const float a = (*r)[0].data<float>()[i], b = (*r)[1].data<float>()[i];
      worst = std::max(worst, std::fabs(a - b));
      largest = std::max(largest, std::fabs(b));
    }
    CHECK(worst < 1e-5f * largest);
  }
}

TEMPLATE_TEST_CASE("a fused GELU of what is not finite or huge is that of its nodes", "", float, double) {
  constexpr TestType kInfinity = std::numeric_limits<TestType>::infinity();
  const auto huge = std::numeric_limits<TestType>::max();
  for (const bool exact : {false, true}) {
    ProductFixture f;
    const Output x = f.s.constant(
                     Tensor::of<TestType>({NAN, kInfinity, -kInfinity, huge, -huge, TestType(1e9), TestType(-1e9),
                                           TestType(6), TestType(-6), TestType(1e-30), TestType(-1e-30), TestType(0)},
                                          {12, 1})),
                 one = f.s.constant(Tensor::of<TestType>({1}, {1, 1}));
    const Output fused = f.fused("MatMul", {x, one}, {exact ? "GeluExact" : "GeluApproximate"});
    auto r = f.evaluator.run({fused, f.gelu<TestType>(f.s.op("MatMul", {x, one}), exact)}, {});
    REQUIRE(r.ok());
    for (int64_t i = 0; i < 12; ++i) {
      const TestType got = (*r)[0].template data<TestType>()[i], wanted = (*r)[1].template data<TestType>()[i];
      INFO(i);
      if (std::isnan(wanted)) CHECK(std::isnan(got));
      else CHECK((got == wanted || std::fabs(got - wanted) <= std::fabs(wanted) * 1e-4));
    }
  }
}

TEST_CASE("a Const filter that a step feeds is not the one that was kept") {
  ProductFixture f;
  const Output x = f.values<float>({1, 8, 8, 16}), w = f.values<float>({3, 3, 16, 16});
  const Attrs attrs{{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("VALID")}};
  const Output y = f.fused("Conv2D", {x, w}, {"Relu"}, attrs);
  auto kept = f.evaluator.run({y});
  REQUIRE(kept.ok());
  auto zero = f.evaluator.run({y}, {{w, *Tensor::zeros(DType::kFloat32, {3, 3, 16, 16})}});
  REQUIRE(zero.ok());
  CHECK((*zero)[0].identical(*Tensor::zeros(DType::kFloat32, {1, 6, 6, 16})));
  auto again = f.evaluator.run({y});
  REQUIRE(again.ok());
  CHECK((*again)[0].identical((*kept)[0]));
}

TEST_CASE("a bias that does not fit and ops that cannot be fused are errors") {
  ProductFixture f;
  const auto fault = [&](const std::string& op, std::vector<Output> inputs, OpNames ops, Attrs attrs = {}) {
    auto r = f.evaluator.run({f.fused(op, std::move(inputs), std::move(ops), std::move(attrs))});
    REQUIRE_FALSE(r.ok());
    return r.error().message;
  };
  const Output x = f.values<float>({2, 3}), w = f.values<float>({3, 4}), b = f.values<float>({3});
  CHECK(fault("MatMul", {x, w, b}, {"BiasAdd"}) == "bias [3] for 4 channels of value [2,4]");
  CHECK(fault("MatMul", {x, w}, {"BiasAdd"}) == "num_args is 0 for fused_ops [BiasAdd]");
  CHECK(fault("MatMul", {x, w}, {"Gelu"}).starts_with("fused_ops are [Gelu]; BiasAdd may come first"));
  CHECK(fault("MatMul", {x, w}, {"Exp"}).starts_with("fused_ops are [Exp]; BiasAdd may come first"));
  CHECK(fault("MatMul", {x, w}, {"Relu", "Tanh"}).starts_with("fused_ops are [Relu, Tanh];"));
  CHECK(fault("MatMul", {x, w, b}, {"Relu", "BiasAdd"}).starts_with("fused_ops are [Relu, BiasAdd];"));
  const Attrs attrs{{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("VALID")}};
  const Output image = f.values<float>({1, 4, 4, 2}), filter = f.values<float>({3, 3, 2, 2});
  CHECK(fault("MatMul", {x, w, x}, {"Add"}).find("[2,3]") != std::string::npos);
  CHECK(fault("Conv2D", {image, filter, image}, {"Add", "BiasAdd"}, attrs)
            .starts_with("fused_ops are [Add, BiasAdd]; BiasAdd may come first, Add next and one of"));
  CHECK(fault("Conv2D", {image, filter}, {"Add"}, attrs) == "num_args is 0 for fused_ops [Add]");
  CHECK(fault("Conv2D", {image, filter, image}, {"Add"}, attrs).find("[1,2,2,2]") != std::string::npos);
  CHECK(fault("Conv2D", {image, filter, b}, {"BiasAdd", "Relu"}, attrs) ==
        "bias [3] for 2 channels of value [1,2,2,2]");
}
