// SPDX-License-Identifier: Apache-2.0
// What computing scopes again in the backward pass saves and costs: the peak of the tensors of a training step, and its
// time, beside those of the same step that keeps every value. Steps of the two take turns. Prints a Markdown table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>

#include "bench/networks/networks.h"
#include "programs/program.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"

namespace {
using namespace troupe;
using Clock = std::chrono::steady_clock;

struct Settings {
  int threads = 1, batch = 16, rounds = 5;
};

/// A network: its logits, and the scopes of its blocks.
using Build = std::function<Output(const Scope&, nn::Variables&, Output x, std::vector<std::string>& blocks)>;

struct Net {
  std::string key, name;
  Shape input;
  Build build;
};

/// `depth` dense layers, `each` of them in a scope.
Output dense_chain(const Scope& root, nn::Variables& v, Output x, int depth, int each,
                   std::vector<std::string>& blocks) {
  Scope s = root;
  for (int i = 0; i < depth; ++i) {
    if (i % each == 0) blocks.push_back((s = root.scope("block")).prefix());
    x = nn::relu(s, nn::dense(s, v, x, x.shape().dim(-1), fmt::format("dense{}", i)));
  }
  return nn::dense(root, v, x, 10, "logits");
}

/// The encoder of a transformer on rows [batch * steps, width], a layer in a scope.
class Encoder {
 public:
  Encoder(const Scope& root, nn::Variables& variables, int32_t steps, int32_t heads)
      : root_(root), s_(root), v_(variables), steps_(steps), heads_(heads) {}

  Output build(Output x, int depth, std::vector<std::string>& blocks) {
    const int64_t width = x.shape().dim(-1);
    for (int i = 0; i < depth; ++i) {
      blocks.push_back((s_ = root_.scope("block")).prefix());
      x = s_.op("AddV2", {x, dense(attention(norm(x)), width)});
      x = s_.op("AddV2", {x, dense(nn::relu(s_, dense(norm(x), 4 * width)), width)});
    }
    s_ = root_;
    return dense(norm(x), 10);
  }

 private:
  Output ints(std::initializer_list<int32_t> values) { return s_.constant(Tensor::of<int32_t>(values)); }
  std::string name() { return fmt::format("layer{}", count_++); }
  Output dense(Output x, int64_t units) { return nn::dense(s_, v_, x, units, name()); }
  Output norm(Output x) {
    const int64_t width = x.shape().dim(-1);
    const std::string label = name();
    const auto mean = [&](Output of) { return s_.op("Mean", {of, ints({1})}, {{"keep_dims", true}}); };
    const Output center = mean(x);
    const Output variance = mean(s_.op("SquaredDifference", {x, center}));
    const Output scale = s_.op("Rsqrt", {s_.op("AddV2", {variance, s_.constant(1e-5f)})});
    const Output normed = s_.op("Mul", {s_.op("Sub", {x, center}), scale});
    return s_.op("AddV2", {s_.op("Mul", {normed, v_.read(s_, label + "/gamma", {width}, nn::ones())}),
                           v_.read(s_, label + "/beta", {width}, nn::zeros())});
  }
  /// [batch, heads, steps, width / heads] of a projection of x.
  Output split(Output x) {
    const auto width = static_cast<int32_t>(x.shape().dim(-1));
    const Output parts = s_.op("Reshape", {dense(x, width), ints({-1, steps_, heads_, width / heads_})});
    return s_.op("Transpose", {parts, ints({0, 2, 1, 3})});
  }
  Output attention(Output x) {
    const auto width = static_cast<int32_t>(x.shape().dim(-1));
    const Output query = split(x), key = split(x), value = split(x);
    const Output scores = s_.op("BatchMatMulV2", {query, key}, {{"adj_y", true}});
    const float scale = 1 / std::sqrt(static_cast<float>(width / heads_));
    const Output weights = nn::softmax(s_, s_.op("Mul", {scores, s_.constant(scale)}));
    const Output mixed = s_.op("Transpose", {s_.op("BatchMatMulV2", {weights, value}), ints({0, 2, 1, 3})});
    return s_.op("Reshape", {mixed, ints({-1, width})});
  }

  const Scope root_;
  Scope s_;
  nn::Variables& v_;
  const int32_t steps_, heads_;
  int count_ = 0;
};

/// A training step of a network on an engine.
class Training {
 public:
  static Result<std::unique_ptr<Training>> create(Engine& engine, const Net& net, bool again) {
    std::unique_ptr<Training> t(new Training(engine));
    const Scope s(t->graph_);
    nn::Variables variables;
    const Output x = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape(net.input)}});
    std::vector<std::string> blocks;
    const Output logits = net.build(s, variables, x, blocks);
    if (!s.ok()) return s.status().error();
    TROUPE_ASSIGN(const Tensor labels, Tensor::zeros(DType::kInt32, {logits.shape().dim(0)}));
    const Output loss = nn::sparse_softmax_cross_entropy(s, logits, s.constant(labels));
    if (!again) blocks.clear();
    const Node* update = nn::minimize(s, variables, nn::sgd(nn::constant_rate(0.01f)), loss, {.recompute = blocks});
    if (!s.ok()) return s.status().error();
    TROUPE_RETURN_IF_ERROR(t->session_.run(std::vector<Feed>{}, {}, variables.initializers()));
    TROUPE_ASSIGN(t->step_, t->session_.prepare({x}, {loss}, {update}));
    TROUPE_ASSIGN(t->value_, Tensor::make(DType::kFloat32, net.input));
    for (int64_t i = 0; i < t->value_.elements(); ++i)
      t->value_.mutable_data<float>()[i] = static_cast<float>(i * 7919 % 1000) * 1e-3f;
    return t;
  }
  /// Milliseconds of a step.
  Result<double> step() {
    const auto begin = Clock::now();
    TROUPE_RETURN_IF_ERROR(session_.run(step_, {value_}));
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

 private:
  explicit Training(Engine& engine) : graph_(engine.ops()), session_(engine, graph_) {}

  Graph graph_;
  Session session_;
  std::shared_ptr<Session::Prepared> step_;
  Tensor value_;
};

/// MiB that tensors of the device take at most, in steps before and after costs of nodes are known.
Result<double> peak(const Settings& s, const Net& net, bool again) {
  TROUPE_ASSIGN(auto engine, Engine::create({.cpu_threads = {s.threads}}));
  TROUPE_ASSIGN(auto training, Training::create(*engine, net, again));
  for (int i = 0; i < 5; ++i) TROUPE_RETURN_IF_ERROR(training->step());
  return static_cast<double>(engine->device_stats()[0].memory.peak) / (1 << 20);
}

Status row(const Settings& s, const Net& net) {
  double mib[2];
  for (const int again : {0, 1}) {
    TROUPE_ASSIGN(mib[again], peak(s, net, again == 1));
  }
  TROUPE_ASSIGN(auto engine, Engine::create({.cpu_threads = {s.threads}}));
  std::unique_ptr<Training> trainings[2];
  for (const int again : {0, 1}) {
    TROUPE_ASSIGN(trainings[again], Training::create(*engine, net, again == 1));
    for (int i = 0; i < 3; ++i) TROUPE_RETURN_IF_ERROR(trainings[again]->step());
  }
  std::vector<double> ms[2], ratios;
  for (int round = 0; round < s.rounds; ++round) {
    for (const int again : {0, 1}) {
      TROUPE_ASSIGN(const double took, trainings[again]->step());
      ms[again].push_back(took);
    }
    ratios.push_back(ms[1].back() / ms[0].back());
  }
  const auto median = [](std::vector<double>& values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  };
  std::printf("| %s | %.0f | %.0f | %.2f | %.0f | %.0f | %.2f |\n", net.name.c_str(), mib[0], mib[1], mib[1] / mib[0],
              median(ms[0]), median(ms[1]), median(ratios));
  std::fflush(stdout);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures what computing scopes again saves and costs; prints a Markdown table.");
  Settings s;
  app.add_option("--threads", s.threads, "Threads a kernel may use")->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--batch", s.batch, "Images of ResNet-50 and MobileNetV2")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  app.add_option("--rounds", s.rounds, "Steps timed; medians are shown")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  std::vector<std::string> chosen = {"resnet", "mobilenet", "encoder", "dense"};
  app.add_option("--nets", chosen, "Networks of the table")->delimiter(',')->check(CLI::IsMember(chosen));
  if (const auto status = programs::begin(app, argc, argv)) return *status;
  const auto known = [](const char* net) -> Build {
    return [=](const Scope& scope, nn::Variables& v, Output x, std::vector<std::string>& blocks) {
      return bench::network(net, scope, v, x, true, &blocks);
    };
  };
  const Shape images = bench::input_shape("resnet", s.batch);
  const Net nets[] = {
      {"resnet", fmt::format("ResNet-50, batch {}, 16 blocks", s.batch), images, known("resnet")},
      {"mobilenet", fmt::format("MobileNetV2, batch {}, 17 blocks", s.batch), images, known("mobilenet")},
      {"encoder",
       "transformer encoder, 12 layers of 256, 8 x 128 steps",
       {8 * 128, 256},
       [](const Scope& scope, nn::Variables& v, Output x, std::vector<std::string>& blocks) {
         return Encoder(scope, v, 128, 4).build(x, 12, blocks);
       }},
      {"dense",
       "36 dense layers of 512, 6 in a scope, batch 2048",
       {2048, 512},
       [](const Scope& scope, nn::Variables& v, Output x, std::vector<std::string>& blocks) {
         return dense_chain(scope, v, x, 36, 6, blocks);
       }},
  };
  std::printf(
      "| training step, %d thread%s | MiB, kept | MiB, again | again / kept | ms, kept | ms, again | again / kept |\n"
      "|---|---|---|---|---|---|---|\n",
      s.threads, s.threads == 1 ? "" : "s");
  for (const Net& net : nets) {
    if (std::ranges::find(chosen, net.key) == chosen.end()) continue;
    if (const Status status = row(s, net); !status.ok()) {
      std::fprintf(stderr, "bench_recompute: %s: %s\n", net.name.c_str(), status.error().str().c_str());
      return programs::kFailed;
    }
  }
  return programs::end({});
}
