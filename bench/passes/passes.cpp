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
#include "programs/program.h"
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

/// Networks on images [batch, channels, height, width].
class ChannelsFirst {
 public:
  ChannelsFirst(const Scope& s, nn::Variables& v) : s_(s), v_(v) {}

  Output lenet(Output x) {
    for (const int64_t filters : {6, 16}) x = pool(s_.op("Relu", {bias(conv(x, filters, 5))}));
    const auto features = static_cast<int32_t>(x.shape()[1] * x.shape()[2] * x.shape()[3]);
    x = s_.op("Reshape", {x, s_.constant(Tensor::of<int32_t>({-1, features}))});
    return nn::dense(s_, v_, x, 10, name());
  }
  /// Four blocks of a MobileNet v2, two of them residual.
  Output separable(Output x) {
    for (int i = 0; i < 4; ++i) {
      Output h = relu6(norm(conv(x, 4 * x.shape()[1], 1)));
      h = norm(conv(relu6(norm(conv(h, 0, 3, true))), 32, 1));
      x = i % 2 ? s_.op("AddV2", {h, x}) : h;
    }
    return classify(x);
  }
  /// Four blocks of a ResNet after its first pool.
  Output residual(Output x) {
    x = pool(x);
    for (int i = 0; i < 4; ++i) {
      const Output h = s_.op("Relu", {norm(conv(x, x.shape()[1], 3))});
      x = s_.op("Relu", {s_.op("AddV2", {norm(conv(h, x.shape()[1], 3)), x})});
    }
    return classify(x);
  }

 private:
  std::string name() { return fmt::format("layer{}", count_++); }
  Output relu6(Output x) { return s_.op("Relu6", {x}); }
  static Attrs windows(int64_t size, std::string padding) {
    return {{"strides", std::vector<int64_t>{1, 1, size, size}},
            {"padding", std::move(padding)},
            {"data_format", std::string("NCHW")}};
  }
  Output conv(Output x, int64_t filters, int64_t size, bool depthwise = false) {
    const Output w =
        v_.read(s_, name() + "/kernel", {size, size, x.shape()[1], depthwise ? 1 : filters}, nn::he_normal());
    return s_.op(depthwise ? "DepthwiseConv2dNative" : "Conv2D", {x, w}, windows(1, "SAME"));
  }
  Output bias(Output x) {
    const Output b = v_.read(s_, name() + "/bias", {x.shape()[1]}, nn::zeros());
    return s_.op("BiasAdd", {x, b}, {{"data_format", std::string("NCHW")}});
  }
  Output norm(Output x) {
    const Output scale = v_.read(s_, name() + "/gamma", {x.shape()[1]}, nn::ones());
    const Output offset = v_.read(s_, name() + "/beta", {x.shape()[1]}, nn::zeros());
    return s_.op("FusedBatchNormV3", {x, scale, offset, offset, scale}, {{"data_format", std::string("NCHW")}});
  }
  Output pool(Output x) {
    Attrs attrs = windows(2, "VALID");
    attrs.set("ksize", std::vector<int64_t>{1, 1, 2, 2});
    return s_.op("MaxPool", {x}, std::move(attrs));
  }
  Output classify(Output x) {
    return nn::dense(s_, v_, s_.op("Mean", {x, s_.constant(Tensor::of<int32_t>({2, 3}))}), 10, name());
  }

  const Scope& s_;
  nn::Variables& v_;
  int count_ = 0;
};

void layout_rows(int threads) {
  const GraphPasses layout = must(GraphPasses::parse("choose_layout"));
  struct Net {
    const char* name;
    Shape image;
    Output (ChannelsFirst::*build)(Output);
  };
  for (const Net& net : {Net{"lenet", {64, 1, 28, 28}, &ChannelsFirst::lenet},
                         Net{"separable blocks", {8, 32, 28, 28}, &ChannelsFirst::separable},
                         Net{"residual blocks", {8, 64, 56, 56}, &ChannelsFirst::residual}})
    for (const bool training : {false, true})
      row(fmt::format("{} of {} on NCHW images {}, choice of the layout alone", training ? "training" : "inference",
                      net.name, net.image.str())
              .c_str(),
          threads, net.image, layout, [&](const Scope& s, nn::Variables& v, Output x) {
            const Output logits = (ChannelsFirst(s, v).*net.build)(x);
            if (!training) return Step{logits};
            const Output y = s.constant(must(Tensor::zeros(DType::kInt32, {net.image[0]})));
            const Output loss = nn::sparse_softmax_cross_entropy(s, logits, y);
            return Step{loss, {nn::minimize(s, v, nn::sgd(nn::constant_rate(0.01f)), loss)}};
          });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures what graph passes gain, by kind of step; prints one Markdown table.");
  int threads = 1;
  app.add_option("--threads", threads, "Threads a kernel may use")->capture_default_str()->check(CLI::Range(1, 1024));
  bool layouts = false;
  app.add_flag("--layouts", layouts, "Only the rows of networks on NCHW images");
  if (const auto status = programs::begin(app, argc, argv)) return *status;
  std::printf("| step, %d thread%s | without passes, us | with | without / with |\n|---|---|---|---|\n", threads,
              threads == 1 ? "" : "s");
  layout_rows(threads);
  if (layouts) return programs::end({});
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
  return programs::end({});
}
