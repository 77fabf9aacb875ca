// SPDX-License-Identifier: Apache-2.0
// Gradients in one node with a product on GPUs: against CPUs and against their nodes one by one, whatever the matrix
// library does itself; and perceptrons that learn the same with and without them.
#include <map>
#include <random>
#include <set>

#include "tests/gpu/fake_platform.h"
#include "tests/gpu/parity_cases.h"
#include "troupe/gradients.h"
#include "troupe/scope.h"
#include "troupe/session.h"
#include "troupe/trace.h"
#include "troupe/transformer.h"

namespace troupe::testing {
namespace {

double gradient_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 1e-4;
    case DType::kFloat64: return 1e-12;
    case DType::kFloat16: return 2e-3;
    default: return 1e-2;
  }
}

/// Of 16-bit floats small whole numbers, whose products and sums are exact in between.
Tensor operand(DType dtype, const Shape& shape, uint64_t seed) {
  if (size_of(dtype) > 2) return random_values(dtype, shape, seed);
  Tensor x = *Tensor::make(dtype, shape);
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < x.elements(); ++i) {
    const auto v = static_cast<float>(random() % 5) - 2;
    if (dtype == DType::kFloat16) x.mutable_data<float16>()[i] = float16(v);
    else x.mutable_data<bfloat16>()[i] = bfloat16(v);
  }
  return x;
}

std::vector<Tensor> on_gpu(Parity& parity, const std::string& op, std::vector<Tensor> in, const Attrs& attrs) {
  auto out = parity.run(DeviceKind::kCuda, {op, std::move(in), attrs});
  INFO(op << (out.ok() ? "" : out.error().str()));
  REQUIRE(out.ok());
  return *out;
}

/// Both outputs of a fused node against `expected`, which other nodes of the GPU computed.
void compare_all(Parity& parity, const std::vector<Tensor>& got, const std::vector<Tensor>& expected,
                 double tolerance) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) parity.compare(got[i], expected[i], tolerance);
}

/// `gelu`: else of Relu.
void check_activation_gradient(Parity& parity, DType dtype, bool gelu, int64_t m, int64_t n, int64_t k, bool ta,
                               bool tb, bool biased) {
  // What a forward product of some other sizes made, with elements that are 0 before Relu too.
  std::vector<std::string> fused_ops;
  if (biased) fused_ops.push_back("BiasAdd");
  if (!gelu) fused_ops.push_back("Relu");
  const Attrs forward{{"num_args", int64_t{biased}}, {"fused_ops", fused_ops}};
  std::vector<Tensor> in = {operand(dtype, {m, 6}, 1), operand(dtype, {6, n}, 2)};
  if (biased) in.push_back(operand(dtype, {n}, 3));
  const auto y = fused_ops.empty() ? on_gpu(parity, "MatMul", in, {}) : on_gpu(parity, "_FusedMatMul", in, forward);
  const char* const alone = gelu ? "_GeluApproximateGrad" : "ReluGrad";
  const Tensor a = operand(dtype, ta ? Shape{k, m} : Shape{m, k}, 4),
               b = operand(dtype, tb ? Shape{n, k} : Shape{k, n}, 5);
  const Attrs product{{"transpose_a", ta}, {"transpose_b", tb}};
  const Tensor d = on_gpu(parity, alone, {on_gpu(parity, "MatMul", {a, b}, product)[0], y[0]}, {})[0];
  const Tensor sums = on_gpu(parity, "BiasAddGrad", {d}, {})[0];
  for (const bool with_sums : {false, true}) {
    Attrs attrs = product;
    attrs.set("num_sums", int64_t{with_sums});
    // What the gradient goes by may have another shape, which is the gradient's then.
    for (const Shape& shape : {Shape{m, n}, Shape{m, 1, n}}) {
      const ParityCase c{gelu ? "_FusedMatMulGeluGrad" : "_FusedMatMulReluGrad",
                         {a, b, *y[0].reshape(shape)},
                         attrs,
                         gradient_tolerance(dtype)};
      if (size_of(dtype) > 2) parity.check(c);
      std::vector<Tensor> expected = {*d.reshape(shape)};
      if (with_sums) expected.push_back(sums);
      // Of 16-bit floats the plain nodes round between the product and GELU's derivative, which is seldom whole.
      const double rounded = gelu && size_of(dtype) == 2 ? 8 : 1;
      compare_all(parity, on_gpu(parity, c.op, c.inputs, attrs), expected, rounded * gradient_tolerance(dtype));
    }
  }
}

void check_bias_gradient(Parity& parity, DType dtype, int64_t m, int64_t n, int64_t k, bool of_a, bool other) {
  // The other operand may be transposed or not.
  const bool ta = of_a || other, tb = !of_a && !other ? false : of_a && other;
  const Tensor a = operand(dtype, ta ? Shape{k, m} : Shape{m, k}, 6),
               b = operand(dtype, tb ? Shape{n, k} : Shape{k, n}, 7);
  Attrs attrs{{"transpose_a", ta}, {"transpose_b", tb}};
  const std::vector<Tensor> expected = {on_gpu(parity, "MatMul", {a, b}, attrs)[0],
                                        on_gpu(parity, "BiasAddGrad", {of_a ? a : b}, {})[0]};
  attrs.set("summed", std::string(of_a ? "a" : "b"));
  const ParityCase c{"_FusedMatMulBiasAddGrad", {a, b}, attrs, gradient_tolerance(dtype)};
  if (size_of(dtype) > 2) parity.check(c);
  compare_all(parity, on_gpu(parity, c.op, c.inputs, attrs), expected, gradient_tolerance(dtype));
}

const gpu::FakeBlasOptions kLibraries[] = {{}, {.sums = false}, {.masks = false}, {.epilogues = false}};

TEST_CASE("products with gradients give what their nodes give, whatever the library does itself") {
  for (const gpu::FakeBlasOptions& options : kLibraries) {
    Parity parity(gpu::make_fake_blas(options));
    for (const DType dtype : gpu_types(parity, "_FusedMatMulReluGrad"))
      for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
               {1, 1, 1}, {3, 5, 4}, {33, 17, 65}, {7, 257, 3}, {0, 5, 4}, {3, 0, 4}, {3, 5, 0}})
        for (const bool first : {false, true})
          for (const bool second : {false, true}) {
            INFO(m << " " << n << " " << k << " " << first << second << " " << to_string(dtype));
            for (const bool gelu : {false, true})
              check_activation_gradient(parity, dtype, gelu, m, n, k, first, second, m % 2 == 1);
            check_bias_gradient(parity, dtype, m, n, k, first, second);
          }
  }
}

TEST_CASE("fused gradients of a GPU refuse what those of a CPU refuse") {
  Parity parity;
  const auto values = [](Shape shape) { return random_values(DType::kFloat32, std::move(shape), 1); };
  const auto refused = [&](const std::vector<Tensor>& in, int64_t sums) {
    for (const char* op : {"_FusedMatMulReluGrad", "_FusedMatMulGeluGrad"})
      parity.check({op, in, {{"num_sums", sums}}});
  };
  refused({values({2, 3}), values({3, 4}), values({4, 3})}, 1);
  refused({values({2, 3}), values({2, 4}), values({2, 4})}, 0);
  refused({values({2, 3}), values({3, 4}), values({2, 4})}, 2);
  refused({values({2, 3}), values({3}), values({2, 4})}, 0);
  const auto sums = [&](bool ta, bool tb, const char* of) {
    const Attrs attrs{{"transpose_a", ta}, {"transpose_b", tb}, {"summed", std::string(of)}};
    parity.check({"_FusedMatMulBiasAddGrad", {values({3, 3}), values({3, 3})}, attrs, 1e-5});
  };
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const char* of : {"a", "b"}) sums(ta, tb, of);
}

/// A perceptron of two hidden layers: its loss and the gradients by weights and biases. `gelu`: its activation, else
/// Relu. `sequences`: each layer takes [2,4,n] apart into rows.
struct Perceptron {
  static constexpr int64_t kSizes[] = {6, 10, 7, 3};
  const bool gelu, sequences;
  std::vector<Output> weights;  // weight and bias of each layer
  Output x, target;
  std::vector<Output> wanted;  // the loss first

  Perceptron(const Scope& s, DType dtype, bool gelu, bool sequences) : gelu(gelu), sequences(sequences) {
    const auto fed = [&](Shape shape) {
      return s.op("Placeholder", {}, {{"dtype", dtype}, {"shape", PartialShape(shape)}});
    };
    x = fed({8, kSizes[0]});
    target = fed({8, kSizes[3]});
    Output h = x;
    for (int layer = 0; layer < 3; ++layer) {
      weights.push_back(fed({kSizes[layer], kSizes[layer + 1]}));
      weights.push_back(fed({kSizes[layer + 1]}));
      h = s.op("MatMul", {h, weights[weights.size() - 2]});
      if (sequences) h = s.op("Reshape", {h, s.constant(Tensor::of<int64_t>({2, 4, kSizes[layer + 1]}))});
      h = s.op("BiasAdd", {h, weights.back()});
      if (layer < 2) h = gelu ? nn::gelu(s, h, true) : s.op("Relu", {h});
      if (sequences) h = s.op("Reshape", {h, s.constant(Tensor::of<int64_t>({-1, kSizes[layer + 1]}))});
    }
    const Output loss =
        s.op("Mean", {s.op("Square", {s.op("Sub", {h, target})}), s.constant(Tensor::of<int32_t>({0, 1}))});
    auto by = gradients(s, {loss}, weights);
    INFO((by.ok() ? "" : by.error().str()));
    REQUIRE(by.ok());
    wanted = *by;
    wanted.insert(wanted.begin(), loss);
  }
};

/// Trained with and without passes, by a fake of the library or the real one.
void check_perceptron(const gpu::FakeBlasOptions& library, bool gelu, bool sequences) {
  CAPTURE(gelu, sequences);
  FakeGpus gpus;
  if (!on_real_gpu()) {
    GpuPlatform platform = *gpus.platform;
    platform.make_blas = [library](int) -> Result<std::shared_ptr<gpu::Blas>> { return gpu::make_fake_blas(library); };
    gpus.platform = std::make_shared<const GpuPlatform>(std::move(platform));
  }
  auto engine = std::move(*Engine::create(gpus.options()));
  Graph graph(engine->ops());
  const Perceptron net(Scope(graph).device("/gpu:0"), DType::kFloat32, gelu, sequences);
  const auto train = [&](GraphPasses passes, std::multiset<std::string>& ran) {
    Session session(*engine, graph, {.passes = passes});
    std::vector<Tensor> values;
    for (size_t i = 0; i < net.weights.size(); ++i) {
      values.push_back(random_values(DType::kFloat32, net.weights[i].shape().shape(), 20 + i));
      for (int64_t k = 0; k < values[i].elements(); ++k) values[i].mutable_data<float>()[k] *= 0.1f;
    }
    std::vector<double> losses;
    for (uint64_t step = 0; step < 12; ++step) {
      std::vector<Feed> feeds{{net.x, random_values(DType::kFloat32, {8, 6}, 2 * (step % 3))},
                              {net.target, random_values(DType::kFloat32, {8, 3}, 2 * (step % 3) + 1)}};
      for (size_t i = 0; i < values.size(); ++i) feeds.push_back({net.weights[i], values[i]});
      RunOptions options;
      options.trace = std::make_shared<Trace>();
      const auto out = session.run(feeds, net.wanted, {}, options);
      INFO((out.ok() ? "" : out.error().str()));
      REQUIRE(out.ok());
      losses.push_back((*out)[0].data<float>()[0]);
      for (size_t i = 0; i < values.size(); ++i) {
        Tensor next = *Tensor::make(DType::kFloat32, values[i].shape());
        for (int64_t k = 0; k < next.elements(); ++k)
          next.mutable_data<float>()[k] = values[i].data<float>()[k] - 0.02f * (*out)[i + 1].data<float>()[k];
        values[i] = std::move(next);
      }
      ran.clear();
      for (const TraceEvent& e : options.trace->take())
        if (e.kind == TraceEvent::Kind::kRun && e.node) ran.insert(e.node->op().name());
    }
    return std::pair(std::move(values), std::move(losses));
  };
  std::multiset<std::string> with, without;
  const auto [fused, losses] = train(GraphPasses::all(), with);
  const auto [plain, expected] = train(GraphPasses::none(), without);
  CHECK(with.count(gelu ? "_FusedMatMulGeluGrad" : "_FusedMatMulReluGrad") == 2);
  CHECK(with.count("ReluGrad") + with.count("_GeluApproximateGrad") == 0);
  CHECK(with.count("BiasAddGrad") == sequences);  // of the last layer, whose product of weights takes rows
  if (!sequences) {
    CHECK(with.count("_FusedMatMul") == 3);
    CHECK(with.count("_FusedMatMulBiasAddGrad") == 1);
    CHECK(with.count("MatMul") == 2);
  }
  CHECK(without.count("ReluGrad") == (gelu ? 0 : 2));
  CHECK(without.count("BiasAddGrad") == 3);
  CHECK(losses[9] < losses[0]);  // of the same batch
  for (size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == Approx(expected[i]).epsilon(1e-4));
  for (size_t i = 0; i < fused.size(); ++i)
    for (int64_t k = 0; k < fused[i].elements(); ++k)
      CHECK(fused[i].data<float>()[k] == Approx(plain[i].data<float>()[k]).epsilon(1e-3).margin(1e-5));
}

TEST_CASE("perceptrons learn on a GPU what they learn without fused gradients") {
  for (const gpu::FakeBlasOptions& library : kLibraries) {
    if (on_real_gpu() && &library != kLibraries) continue;
    for (const bool gelu : {false, true})
      for (const bool sequences : {false, true}) check_perceptron(library, gelu, sequences);
  }
}

}  // namespace
}  // namespace troupe::testing
