// SPDX-License-Identifier: Apache-2.0
// What the passes over a step's graph gain: one row for each kind of step, the best time without passes and with them,
// in turns. Prints one Markdown table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "bench/training/networks.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"

namespace {
using namespace troupe;
using Clock = std::chrono::steady_clock;

template <class T> T must(Result<T> r) {
  if (!r.ok()) {
    std::fprintf(stderr, "bench_passes: %s\n", r.error().str().c_str());
    std::exit(1);
  }
  return std::move(*r);
}

Tensor filled(const Shape& shape) {
  Tensor t = must(Tensor::make(DType::kFloat32, shape));
  for (int64_t i = 0; i < t.elements(); ++i)
    t.mutable_data<float>()[i] = static_cast<float>(i * 7919 % 1000) * 1e-3f - 0.5f;
  return t;
}

/// What a row measures: how `fetch` follows from x, and what else a step does.
struct Step {
  Output fetch;
  std::vector<const Node*> targets = {};
};
using Build = std::function<Step(const Scope&, nn::Variables&, Output x)>;

void row(const char* name, int threads, const Shape& input, const GraphPasses& passes, const Build& build) {
  auto engine = must(Engine::create({.cpu_threads = {threads}}));
  Graph graph(engine->ops());
  const Scope s(graph);
  nn::Variables variables;
  const Output x = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape(input)}});
  const Step step = build(s, variables, x);
  if (!s.ok()) must(Result<int>(s.status().error()));
  const Tensor value = filled(input);
  double best[2] = {1e300, 1e300};
  Session sessions[2] = {{*engine, graph, {.passes = GraphPasses::none()}}, {*engine, graph, {.passes = passes}}};
  must(sessions[0].run({}, std::vector<Output>{}, variables.initializers()));
  const auto begin = Clock::now();
  while (Clock::now() - begin < std::chrono::seconds(3))
    for (int which : {0, 1}) {
      auto prepared = must(sessions[which].prepare({x}, {step.fetch}, step.targets));
      for (int i = 0; i < 10; ++i) {
        const auto before = Clock::now();
        must(sessions[which].run(prepared, {value}));
        best[which] = std::min(best[which], std::chrono::duration<double, std::micro>(Clock::now() - before).count());
      }
    }
  std::printf("| %s | %.0f | %.0f | %.2f |\n", name, best[0], best[1], best[0] / best[1]);
  std::fflush(stdout);
}

Output number(const Scope& s, float v) { return s.constant(v); }

Output gelu(const Scope& s, Output x) {
  const Output cubic = s.op("Mul", {number(s, 0.044715f), s.op("Mul", {x, s.op("Mul", {x, x})})});
  const Output inner = s.op("Mul", {number(s, 0.7978845608f), s.op("AddV2", {x, cubic})});
  const Output cdf = s.op("AddV2", {number(s, 1), s.op("Tanh", {inner})});
  return s.op("Mul", {s.op("Mul", {number(s, 0.5f), x}), cdf});
}

/// x normalised by statistics that are there, scaled and shifted by rows.
Output affine(const Scope& s, Output x, Output mean, Output variance) {
  const int64_t n = x.shape()[1];
  const Output gamma = s.constant(filled({n})), beta = s.constant(filled({n}));
  const Output root = s.op("Rsqrt", {s.op("AddV2", {variance, number(s, 1e-5f)})});
  return s.op("AddV2", {s.op("Mul", {s.op("Mul", {s.op("Sub", {x, mean}), root}), gamma}), beta});
}

Output conv(const Scope& s, Output x, int64_t filters, bool depthwise = false) {
  const int64_t channels = x.shape()[3];
  return s.op(depthwise ? "DepthwiseConv2dNative" : "Conv2D",
              {x, s.constant(filled({depthwise || filters == 32 ? 3 : 1, depthwise || filters == 32 ? 3 : 1, channels,
                                     depthwise ? 1 : filters}))},
              {{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("SAME")}});
}
Output normed(const Scope& s, Output x) {
  const int64_t c = x.shape()[3];
  Tensor variance = must(Tensor::make(DType::kFloat32, {c}));
  std::fill_n(variance.mutable_data<float>(), c, 2.f);
  return s.op("FusedBatchNormV3",
              {x, s.constant(filled({c})), s.constant(filled({c})), s.constant(filled({c})), s.constant(variance)},
              {{"is_training", false}});
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures what graph passes gain, by kind of step; prints one Markdown table.");
  int threads = 1;
  app.add_option("--threads", threads, "Threads a kernel may use")->capture_default_str()->check(CLI::Range(1, 1024));
  CLI11_PARSE(app, argc, argv);
  std::printf("| step, %d thread%s | without passes, us | with | without / with |\n|---|---|---|---|\n", threads,
              threads == 1 ? "" : "s");
  const GraphPasses elementwise = must(GraphPasses::parse("fuse_elementwise"));
  const Build of_gelu = [](const Scope& s, nn::Variables&, Output x) { return Step{gelu(s, x)}; };
  row("gelu of 64 floats, element-wise fusing alone", threads, {64}, elementwise, of_gelu);
  row("gelu of [64,512], element-wise fusing alone", threads, {64, 512}, elementwise, of_gelu);
  row("gelu of [1024,4096], element-wise fusing alone", threads, {1024, 4096}, elementwise, of_gelu);
  row("x * sigmoid(x) and its gradient, [1024,1024], element-wise fusing alone", threads, {1024, 1024}, elementwise,
      [](const Scope& s, nn::Variables&, Output x) {
        const Output y = s.op("Sigmoid", {x}), dy = s.op("AddV2", {x, number(s, 1)});
        return Step{s.op("AddV2", {s.op("Mul", {dy, y}), s.op("SigmoidGrad", {y, s.op("Mul", {dy, x})})})};
      });
  row("scale and shift by rows and columns, [1024,1024], element-wise fusing alone", threads, {1024, 1024}, elementwise,
      [](const Scope& s, nn::Variables&, Output x) {
        const Output axis = s.constant(Tensor::of<int32_t>({1}));
        const Output mean = s.op("Mean", {x, axis}, {{"keep_dims", true}});
        return Step{affine(s, x, mean, s.op("Square", {mean}))};
      });
  for (const int64_t batch : {1, 64})
    for (const char* net : {"mlp", "lenet", "convnet"})
      row(fmt::format("inference of {}, batch {}", net, batch).c_str(), threads, {batch, 28, 28, 1}, GraphPasses::all(),
          [&](const Scope& s, nn::Variables& v, Output x) { return Step{bench::network(net, s, v, x)}; });
  for (const int64_t batch : {1, 16})
    row(fmt::format("convolution, batch norm, relu, and depthwise separable, frozen, batch {}", batch).c_str(), threads,
        {batch, 28, 28, 32}, GraphPasses::all(), [](const Scope& s, nn::Variables&, Output x) {
          Output h = s.op("Relu6", {normed(s, conv(s, x, 32))});
          h = s.op("Relu6", {normed(s, conv(s, h, 0, true))});
          return Step{s.op("Relu6", {normed(s, conv(s, h, 64))})};
        });
  for (const char* net : {"mlp", "lenet", "convnet"})
    row(fmt::format("training of {}, batch 64", net).c_str(), threads, {64, 28, 28, 1}, GraphPasses::all(),
        [&](const Scope& s, nn::Variables& v, Output x) {
          const Output y = s.constant(must(Tensor::zeros(DType::kInt32, {64})));
          const Output loss = nn::sparse_softmax_cross_entropy(s, bench::network(net, s, v, x), y);
          return Step{loss, {nn::minimize(s, v, nn::sgd(nn::constant_rate(0.01f)), loss)}};
        });
}
