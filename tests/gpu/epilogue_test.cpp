// SPDX-License-Identifier: Apache-2.0
// Products with a bias and an activation in one node on GPUs: against CPUs, against their nodes one by one, where the
// matrix library does what follows a product and where it does not; and that passes fuse for the device that is there.
#include <cmath>

#include "tests/gpu/fake_platform.h"
#include "tests/gpu/parity_cases.h"
#include "troupe/scope.h"
#include "troupe/session.h"
#include "troupe/trace.h"

namespace troupe::testing {
namespace {

using Ops = std::vector<std::string>;

const std::vector<Ops> kForms = {{"BiasAdd"},
                                 {"Relu"},
                                 {"BiasAdd", "Relu"},
                                 {"BiasAdd", "Relu6"},
                                 {"BiasAdd", "Elu"},
                                 {"BiasAdd", "Tanh"},
                                 {"Sigmoid"},
                                 {"Tanh"},
                                 {"BiasAdd", "Sigmoid"},
                                 {"BiasAdd", "GeluApproximate"},
                                 {"GeluApproximate"},
                                 {"BiasAdd", "GeluExact"},
                                 {}};

double fused_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 1e-4;
    case DType::kFloat64: return 1e-12;
    case DType::kFloat16: return 1e-2;
    default: return 8e-2;
  }
}

/// GELU of 16-bit floats, by its formula.
Tensor gelu_of(const Tensor& x, bool exact) {
  Tensor y = *Tensor::make(x.dtype(), x.shape());
  const auto fill = [&]<class T>(T) {
    for (int64_t i = 0; i < x.elements(); ++i) {
      const double v = static_cast<double>(static_cast<float>(x.data<T>()[i]));
      const double curve =
          exact ? std::erf(v / std::sqrt(2.0)) : std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v));
      y.mutable_data<T>()[i] = T(static_cast<float>(v / 2 * (1 + curve)));
    }
  };
  if (x.dtype() == DType::kFloat16) fill(float16());
  else fill(bfloat16());
  return y;
}

/// What the nodes give one by one.
Tensor one_by_one(Parity& parity, const std::string& op, const std::vector<Tensor>& in, const Ops& ops,
                  const Attrs& attrs) {
  const auto run = [&](const std::string& name, std::vector<Tensor> inputs, const Attrs& with) {
    auto out = parity.run(DeviceKind::kCuda, {name, std::move(inputs), with});
    INFO((out.ok() ? "" : out.error().str()));
    REQUIRE(out.ok());
    return (*out)[0];
  };
  Tensor y = run(op, {in[0], in[1]}, attrs);
  for (const std::string& next : ops) {
    if (next.starts_with("Gelu")) y = gelu_of(y, next == "GeluExact");
    else if (next != "BiasAdd") y = run(next, {y}, {});
    else if (attrs.has("data_format"))
      y = run(next, {y, in[2]}, {{"data_format", *attrs.get<std::string>("data_format")}});
    else y = run(next, {y, in[2]}, {});
  }
  return y;
}

void check_fused(Parity& parity, const std::string& op, const Shape& a, const Shape& b, const Shape& bias,
                 const Attrs& attrs) {
  for (const DType dtype : gpu_types(parity, ("_Fused" + op).c_str()))
    for (const Ops& ops : kForms) {
      std::vector<Tensor> in = {random_values(dtype, a, 1), random_values(dtype, b, 2)};
      if (!ops.empty() && ops[0] == "BiasAdd") in.push_back(random_values(dtype, bias, 3));
      Attrs fused = attrs;
      fused.set("num_args", static_cast<int64_t>(in.size()) - 2);
      fused.set("fused_ops", ops);
      const ParityCase c{"_Fused" + op, in, fused, fused_tolerance(dtype)};
      INFO((ops.empty() ? "" : ops.back()));
      if (size_of(dtype) > 2) {
        parity.check(c);
        continue;
      }
      const auto got = parity.run(DeviceKind::kCuda, c);
      REQUIRE(got.ok());
      parity.compare((*got)[0], one_by_one(parity, op, in, ops, attrs), c.tolerance);
    }
}

TEST_CASE("fused products on GPUs agree with those of CPUs, whatever the library does itself") {
  for (const bool epilogues : {true, false}) {
    Parity parity(gpu::make_fake_blas({.epilogues = epilogues}));
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
             {1, 1, 1}, {3, 5, 4}, {33, 17, 65}, {7, 257, 3}, {0, 5, 4}, {3, 0, 4}, {3, 5, 0}})
      for (const bool ta : {false, true})
        for (const bool tb : {false, true})
          check_fused(parity, "MatMul", ta ? Shape{k, m} : Shape{m, k}, tb ? Shape{n, k} : Shape{k, n}, {n},
                      {{"transpose_a", ta}, {"transpose_b", tb}});
  }
}

TEST_CASE("fused convolutions on GPUs agree with those of CPUs, in both layouts, whatever the library does itself") {
  const bool epilogues = GENERATE(true, false);
  Parity parity(gpu::make_fake_blas(), gpu::make_fake_dnn({.epilogues = epilogues}));
  for (const bool first : {false, true})
    for (const bool depthwise : {false, true}) {
      const Attrs attrs{{"strides", std::vector<int64_t>{1, 1, 1, 1}},
                        {"padding", std::string("SAME")},
                        {"data_format", std::string(first ? "NCHW" : "NHWC")}};
      const int64_t out = depthwise ? 6 : 5;
      check_fused(parity, depthwise ? "DepthwiseConv2dNative" : "Conv2D", first ? Shape{2, 3, 5, 6} : Shape{2, 5, 6, 3},
                  {3, 3, 3, depthwise ? 2 : 5}, {out}, attrs);
      check_fused(parity, depthwise ? "DepthwiseConv2dNative" : "Conv2D", first ? Shape{0, 3, 5, 6} : Shape{0, 5, 6, 3},
                  {3, 3, 3, depthwise ? 2 : 5}, {out}, attrs);
    }
}

TEST_CASE("a fused node of a GPU refuses what one of a CPU refuses") {
  Parity parity;
  const auto values = [](Shape shape) { return random_values(DType::kFloat32, shape, 1); };
  const auto check = [&](const std::vector<Tensor>& in, const Ops& ops) {
    parity.check({"_FusedMatMul", in, {{"num_args", static_cast<int64_t>(in.size()) - 2}, {"fused_ops", ops}}});
  };
  check({values({2, 3}), values({3, 4}), values({3})}, {"BiasAdd"});
  check({values({2, 3}), values({3, 4}), values({4, 1})}, {"BiasAdd", "Tanh"});
  check({values({2, 3}), values({2, 4})}, {"Relu"});
  check({values({2, 3}), values({3, 4})}, {"BiasAdd"});
  check({values({2, 3}), values({3, 4})}, {"Exp"});
  check({values({2, 3}), values({3, 4})}, {"Relu", "Tanh"});
}

/// A perceptron and a chain of element-wise nodes on one device.
Output fusable_model(const Scope& s, const Output& x, const Output& w, const Output& b) {
  const Output hidden = s.op("Relu", {s.op("BiasAdd", {s.op("MatMul", {x, w}), b})});
  return s.op("Tanh", {s.op("Mul", {s.op("Exp", {s.op("Neg", {hidden})}), hidden})});
}

/// GELU of `x`, as TensorFlow writes it.
Output gelu_nodes(const Scope& s, const Output& x, bool exact) {
  const auto times = [&](float factor, const Output& y) { return s.op("Mul", {s.constant(factor), y}); };
  const Output cube = s.op("Pow", {x, s.constant(3.f)});
  const Output curve = exact ? s.op("Erf", {s.op("RealDiv", {x, s.constant(1.41421356f)})})
                             : s.op("Tanh", {times(0.797884561f, s.op("AddV2", {x, times(0.044715f, cube)}))});
  return s.op("Mul", {times(0.5f, x), s.op("AddV2", {s.constant(1.f), curve})});
}

TEST_CASE("passes fuse GELU with the product before it, also behind a reshape") {
  FakeGpus gpus;
  auto engine = std::move(*Engine::create(gpus.options()));
  Graph graph(engine->ops());
  const Scope s(graph);
  const auto fed = [&](Shape shape) {
    return s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape(shape)}});
  };
  const Output x = fed({6, 3}), w = fed({3, 5}), b = fed({5});
  std::vector<Output> results;
  for (const char* device : {"/gpu:0", "/cpu:0"})
    for (const bool exact : {false, true}) {
      const Scope on = s.device(device);
      results.push_back(gelu_nodes(on, on.op("BiasAdd", {on.op("MatMul", {x, w}), b}), exact));
      const Output cut = on.op("Reshape", {on.op("MatMul", {x, w}), on.constant(Tensor::of<int32_t>({2, 3, 5}))});
      results.push_back(gelu_nodes(on, on.op("AddV2", {cut, b}), exact));
    }
  REQUIRE(s.ok());
  const FeedList feeds{{x, random_values(DType::kFloat32, {6, 3}, 1)},
                       {w, random_values(DType::kFloat32, {3, 5}, 2)},
                       {b, random_values(DType::kFloat32, {5}, 3)}};
  std::vector<std::vector<Tensor>> out;
  GraphPasses fuses = GraphPasses::none();
  fuses.fuse_epilogues = true;
  for (const GraphPasses& passes : {GraphPasses::none(), fuses}) {
    Session session(*engine, graph, {.passes = passes});
    RunOptions options;
    options.trace = std::make_shared<Trace>();
    auto ran = session.run(feeds, results, {}, options);
    INFO((ran.ok() ? "" : ran.error().str()));
    REQUIRE(ran.ok());
    out.push_back(std::move(*ran));
    int fused = 0, left = 0;
    for (const TraceEvent& e : options.trace->take()) {
      if (e.kind != TraceEvent::Kind::kRun || !e.node) continue;
      fused += e.node->op().name() == "_FusedMatMul";
      left += e.node->op().name() == "Tanh" || e.node->op().name() == "Erf";
    }
    CHECK(fused == (out.size() == 1 ? 0 : 8));
    CHECK(left == (out.size() == 1 ? 8 : 0));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    REQUIRE(out[0][i].shape() == out[1][i].shape());
    for (int64_t k = 0; k < out[0][i].elements(); ++k)
      CHECK(out[1][i].data<float>()[k] == Approx(out[0][i].data<float>()[k]).epsilon(1e-4).margin(1e-5));
  }
}

TEST_CASE("passes fuse for the devices on which nodes run") {
  FakeGpus gpus;
  auto engine = std::move(*Engine::create(gpus.options()));
  Graph graph(engine->ops());
  const Scope s(graph), gpu = s.device("/gpu:0");
  const auto fed = [&](Shape shape) {
    return s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape(shape)}});
  };
  const Output x = fed({4, 3}), w = fed({3, 5}), b = fed({5});
  const Output here = fusable_model(s, x, w, b), there = fusable_model(gpu, x, w, b);
  // Convolutions in the layout that CPUs do not like, beside.
  const Output images = fed({1, 8, 6, 6}), filter = fed({3, 3, 8, 8});
  const Attrs nchw{{"strides", std::vector<int64_t>{1, 1, 1, 1}},
                   {"padding", std::string("SAME")},
                   {"data_format", std::string("NCHW")}};
  const Output conv_here = s.op("Relu", {s.op("Conv2D", {images, filter}, nchw)}),
               conv_there = gpu.op("Relu", {gpu.op("Conv2D", {images, filter}, nchw)});
  REQUIRE(s.ok());
  const FeedList feeds{{x, random_values(DType::kFloat32, {4, 3}, 1)},
                       {w, random_values(DType::kFloat32, {3, 5}, 2)},
                       {b, random_values(DType::kFloat32, {5}, 3)},
                       {images, random_values(DType::kFloat32, {1, 8, 6, 6}, 4)},
                       {filter, random_values(DType::kFloat32, {3, 3, 8, 8}, 5)}};
  // Without soft placement a node that the GPU has no kernel for would be an error.
  Session session(*engine, graph, {.passes = GraphPasses::all()}),
      plain(*engine, graph, {.passes = GraphPasses::none()});
  std::map<std::string, std::multiset<std::string>> ran;
  const auto run = [&](Session& by) {
    RunOptions options;
    options.trace = std::make_shared<Trace>();
    const auto out = by.run(feeds, {here, there, conv_here, conv_there}, {}, options);
    INFO((out.ok() ? "" : out.error().str()));
    REQUIRE(out.ok());
    ran.clear();
    for (const TraceEvent& e : options.trace->take())
      if (e.kind == TraceEvent::Kind::kRun && e.node)
        ran[engine->devices()[e.device].substr(engine->devices()[e.device].rfind("device:"))].insert(
            e.node->op().name());
    return *out;
  };
  const std::vector<Tensor> fused = run(session);
  const auto on_gpu = ran["device:gpu:0"], on_cpu = ran["device:cpu:0"];
  CHECK(on_gpu.count("_FusedMatMul") == 1);
  CHECK(on_gpu.count("_FusedConv2D") == 1);
  CHECK(on_gpu.count("_FusedElementwise") == 1);
  for (const char* const one : {"Neg", "Exp", "Mul", "Tanh"}) CHECK(on_gpu.count(one) == 0);
  CHECK(on_gpu.count("Transpose") == 0);
  CHECK(on_cpu.count("_FusedMatMul") == 1);
  CHECK(on_cpu.count("_FusedElementwise") == 1);
  const std::vector<Tensor> expected = run(plain);
  for (size_t i = 0; i < fused.size(); ++i)
    for (int64_t k = 0; k < fused[i].elements(); ++k)
      CHECK(fused[i].data<float>()[k] == Approx(expected[i].data<float>()[k]).margin(1e-4));
}

}  // namespace
}  // namespace troupe::testing
