// SPDX-License-Identifier: Apache-2.0
// Batch normalisation and its gradients on GPUs agree with those of CPUs; sums are added in another order.
#include "tests/gpu/fake_platform.h"
#include "tests/gpu/parity_cases.h"
#include "troupe/gradients.h"
#include "troupe/scope.h"
#include "troupe/session.h"
#include "troupe/trace.h"

namespace troupe::testing {
namespace {

double statistics_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 2e-5;
    case DType::kFloat64: return 1e-12;
    case DType::kFloat16: return 2e-3;
    default: return 1.6e-2;
  }
}

/// Images [batch, height, width, channels].
const int64_t kNormImages[][4] = {{2, 3, 4, 5},   {1, 1, 1, 3}, {3, 1, 1, 1},    {2, 4, 4, 8},    {5, 7, 3, 33},
                                  {40, 16, 8, 2}, {0, 4, 4, 3}, {2, 0, 4, 3},    {2, 4, 4, 0},    {1, 70, 70, 3},
                                  {2, 1, 3, 130}, {2, 2, 2, 4}, {17, 33, 35, 1}, {3, 10, 11, 64}, {3, 10, 11, 136}};
Shape images_shape(const int64_t (&s)[4], bool first) {
  return first ? Shape{s[0], s[3], s[1], s[2]} : Shape{s[0], s[1], s[2], s[3]};
}
Tensor squares(const Tensor& x) {
  Tensor y = *x.clone();
  with_type(x.dtype(), FloatTypes{}, [&]<class T>() {
    for (int64_t i = 0; i < y.elements(); ++i) {
      T& v = y.mutable_data<T>()[i];
      v = narrow<T>(widen(v) * widen(v) + Arithmetic<T>(0.1f));
    }
  });
  return y;
}
/// Values around 30, whose deviation is small beside that.
Tensor far_from_zero(DType dtype, const Shape& shape, uint64_t seed) {
  Tensor x = random_values(dtype, shape, seed);
  with_type(dtype, FloatTypes{}, [&]<class T>() {
    for (int64_t i = 0; i < x.elements(); ++i) {
      T& v = x.mutable_data<T>()[i];
      v = narrow<T>(widen(v) + Arithmetic<T>(30));
    }
  });
  return x;
}
DType vectors_of(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

TEST_CASE("Batch normalisation on GPUs agrees with that of CPUs") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "FusedBatchNormV3"))
    for (const auto& images : kNormImages)
      for (bool first : {false, true})
        for (float factor : {1.0f, 0.1f, -1.0f}) {  // the last: no training
          const Shape shape = images_shape(images, first), channels{images[3]};
          const Attrs attrs{{"data_format", std::string(first ? "NCHW" : "NHWC")},
                            {"is_training", factor > 0},
                            {"epsilon", 0.01f},
                            {"exponential_avg_factor", factor > 0 ? factor : 1.0f},
                            {"U", vectors_of(dtype)}};
          const auto vector = [&](uint64_t seed) { return random_values(vectors_of(dtype), channels, seed); };
          const Tensor none = random_values(vectors_of(dtype), Shape{0}, 1);
          const Tensor mean = factor == 1 ? none : vector(3), variance = factor == 1 ? none : squares(vector(4));
          const double tolerance = statistics_tolerance(dtype);
          parity.check({"FusedBatchNormV3",
                        {random_values(dtype, shape, 2), vector(5), vector(6), mean, variance},
                        attrs,
                        tolerance});
          if (dtype == DType::kFloat32 || dtype == DType::kFloat64)
            parity.check({"FusedBatchNormV3",
                          {far_from_zero(dtype, shape, 2), vector(5), vector(6), mean, variance},
                          attrs,
                          tolerance * 10});
          parity.check({"FusedBatchNormV3",  // an error
                        {random_values(dtype, shape, 2), vector(5), random_values(vectors_of(dtype), Shape{7}, 6), mean,
                         variance},
                        attrs});
        }
  parity.check({"FusedBatchNormV3", std::vector<Tensor>(5, random_values(DType::kFloat32, Shape{3}, 1))});
}

TEST_CASE("Gradients of batch normalisation on GPUs agree with those of CPUs") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "FusedBatchNormGradV3"))
    for (const auto& images : kNormImages)
      for (bool first : {false, true})
        for (bool training : {false, true}) {
          const Shape shape = images_shape(images, first), channels{images[3]};
          const Attrs attrs{{"data_format", std::string(first ? "NCHW" : "NHWC")},
                            {"is_training", training},
                            {"epsilon", 0.01f},
                            {"U", vectors_of(dtype)}};
          const auto vector = [&](uint64_t seed) { return random_values(vectors_of(dtype), channels, seed); };
          const Tensor g = random_values(dtype, shape, 7), x = random_values(dtype, shape, 8);
          const Tensor none = random_values(vectors_of(dtype), Shape{0}, 1);
          parity.check({"FusedBatchNormGradV3",
                        {g, x, vector(9), vector(10), squares(vector(11)), none},
                        attrs,
                        statistics_tolerance(dtype) * 10});
          parity.check({"FusedBatchNormGradV3",  // an error
                        {random_values(dtype, Shape{3, 2, 1, 1}, 7), x, vector(9), vector(10), vector(11), none},
                        attrs});
        }
}

/// Where Relu is on, as _FusedBatchNormRelu leaves it.
Tensor relu_reserve_of(const Tensor& y) {
  const auto group = 16 / static_cast<int64_t>(size_of(y.dtype())), bytes = (y.elements() + group - 1) / group;
  const DType vectors = vectors_of(y.dtype());
  const auto each = static_cast<int64_t>(size_of(vectors));
  Tensor out = *Tensor::zeros(vectors, {(bytes + each - 1) / each});
  with_type(y.dtype(), FloatTypes{}, [&]<class T>() {
    for (int64_t i = 0; i < y.elements(); ++i)
      static_cast<unsigned char*>(out.mutable_raw())[i / group] |=
          static_cast<unsigned char>((widen(y.data<T>()[i]) > 0) << i % group);
  });
  return out;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

TEST_CASE("Batch norms with Relu on GPUs agree with those of CPUs, and leave where it is on") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "_FusedBatchNormRelu"))
    for (const auto& images : kNormImages)
      for (bool first : {false, true})
        for (bool training : {false, true})
          for (bool side : {false, true}) {
            const Shape shape = images_shape(images, first), channels{images[3]};
            const Attrs attrs{{"data_format", std::string(first ? "NCHW" : "NHWC")},
                              {"is_training", training},
                              {"num_side_inputs", int64_t{side}},
                              {"U", vectors_of(dtype)}};
            INFO(to_string(dtype) << shape.str() << training << side);
            const auto vector = [&](uint64_t seed) { return random_values(vectors_of(dtype), channels, seed); };
            std::vector<Tensor> in = {random_values(dtype, shape, 2), vector(5), vector(6), vector(3),
                                      squares(vector(4))};
            if (side) in.push_back(random_values(dtype, shape, 9));
            const ParityCase c{"_FusedBatchNormRelu", in, attrs, statistics_tolerance(dtype)};
            const auto cpu = parity.run(DeviceKind::kCpu, c);
            REQUIRE(cpu.ok());
            for (const auto layout : {Parity::Layout::kOwn, Parity::Layout::kShared, Parity::Layout::kUnaligned}) {
              const auto gpu = parity.run(DeviceKind::kCuda, c, layout);
              REQUIRE(gpu.ok());
              for (size_t i = 0; i < 5; ++i) parity.compare((*gpu)[i], (*cpu)[i], c.tolerance);
              for (const auto* of : {&*cpu, &*gpu})
                CHECK(
                    same_bytes((*of)[5], training ? relu_reserve_of((*of)[0]) : *Tensor::make(vectors_of(dtype), {0})));
            }
            if (side) {  // an error
              in.back() = random_values(dtype, Shape{3, 2, 1, 1}, 9);
              parity.check({"_FusedBatchNormRelu", in, attrs});
            }
          }
  parity.check({"_FusedBatchNormRelu",
                std::vector<Tensor>(7, random_values(DType::kFloat32, Shape{3}, 1)),
                {{"num_side_inputs", int64_t{2}}}});
}

TEST_CASE("Gradients of batch norms with Relu on GPUs agree with those of CPUs") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "_FusedBatchNormReluGrad"))
    for (const auto& images : kNormImages)
      for (bool first : {false, true})
        for (bool side : {false, true}) {
          const Shape shape = images_shape(images, first), channels{images[3]};
          const Attrs attrs{{"data_format", std::string(first ? "NCHW" : "NHWC")},
                            {"num_side_inputs", int64_t{side}},
                            {"U", vectors_of(dtype)}};
          const auto vector = [&](uint64_t seed) { return random_values(vectors_of(dtype), channels, seed); };
          const Tensor g = random_values(dtype, shape, 7), x = random_values(dtype, shape, 8),
                       bits = relu_reserve_of(random_values(dtype, shape, 12));
          const std::vector<Tensor> in = {g, x, vector(9), vector(10), squares(vector(11)), bits};
          parity.check({"_FusedBatchNormReluGrad", in, attrs, statistics_tolerance(dtype) * 10});
          std::vector<Tensor> wrong = in;  // an error
          wrong[5] = random_values(vectors_of(dtype), Shape{bits.dim(0) + 1}, 1);
          parity.check({"_FusedBatchNormReluGrad", wrong, attrs});
          if (!side) continue;
          const auto out = parity.run(DeviceKind::kCuda, {"_FusedBatchNormReluGrad", in, attrs});
          REQUIRE(out.ok());
          parity.compare((*out)[3], (*parity.run(DeviceKind::kCpu, {"_FusedBatchNormReluGrad", in, attrs}))[3], 0);
        }
}

TEST_CASE("a residual block on a GPU has the same gradients with norms and Relus in one node") {
  FakeGpus gpus;
  auto engine = std::move(*Engine::create(gpus.options()));
  Graph graph(engine->ops());
  const Scope on = Scope(graph).device("/gpu:0");
  const Shape shape{4, 5, 3, 6};
  const auto fed = [&](Shape of) {
    return on.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape(of)}});
  };
  const Output x = fed(shape), weight = fed(shape);
  std::vector<Output> vectors;
  const auto norm = [&](const Output& of) {
    for (int i = 0; i < 2; ++i) vectors.push_back(fed({6}));
    const Output none = on.constant(*Tensor::make(DType::kFloat32, {0}));
    return on.op("FusedBatchNormV3", {of, vectors[vectors.size() - 2], vectors.back(), none, none});
  };
  // x + f(x) twice: with a norm on one side of the sum, and on both.
  const Output first = on.op("Relu", {on.op("AddV2", {on.op("Sin", {on.op("Relu", {norm(x)})}), norm(x)})});
  const Output y = on.op("Relu", {on.op("AddV2", {norm(first), norm(on.op("Sin", {first}))})});
  std::vector<Output> by = vectors;
  by.push_back(x);
  auto made = gradients(on, {on.op("Mul", {y, weight})}, by);
  REQUIRE(made.ok());
  std::vector<Output> fetches = *made;
  fetches.push_back(y);
  std::vector<Feed> feeds{{x, random_values(DType::kFloat32, shape, 1)},
                          {weight, random_values(DType::kFloat32, shape, 2)}};
  for (size_t i = 0; i < vectors.size(); ++i) feeds.push_back({vectors[i], random_values(DType::kFloat32, {6}, 3 + i)});
  std::vector<std::vector<Tensor>> out;
  GraphPasses fuses = GraphPasses::none();
  fuses.fuse_batch_norm = true;
  for (const GraphPasses& passes : {GraphPasses::none(), fuses}) {
    Session session(*engine, graph, {.passes = passes});
    RunOptions options;
    options.trace = std::make_shared<Trace>();
    auto ran = session.run(feeds, fetches, {}, options);
    INFO((ran.ok() ? "" : ran.error().str()));
    REQUIRE(ran.ok());
    out.push_back(std::move(*ran));
    int fused = 0, relus = 0;
    for (const TraceEvent& e : options.trace->take()) {
      if (e.kind != TraceEvent::Kind::kRun || !e.node) continue;
      fused += e.node->op().name().starts_with("_FusedBatchNormRelu");
      relus += e.node->op().name() == "Relu" || e.node->op().name() == "ReluGrad";
    }
    CHECK(fused == (out.size() == 1 ? 0 : 6));
    CHECK(relus == (out.size() == 1 ? 6 : 0));
  }
  for (size_t i = 0; i < fetches.size(); ++i)
    for (int64_t k = 0; k < out[0][i].elements(); ++k)
      CHECK(out[1][i].data<float>()[k] == Approx(out[0][i].data<float>()[k]).epsilon(1e-4).margin(1e-4));
}

}  // namespace
}  // namespace troupe::testing
