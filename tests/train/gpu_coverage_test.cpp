// SPDX-License-Identifier: Apache-2.0
// What training fires on a GPU has kernels there: every op of the trainer's modes, of pipelines and of the layers,
// forward and backward, but for those that belong to the host.
#include <set>

#include "graph/passes/expand_collectives.h"
#include "tests/gpu/fake_platform.h"
#include "tests/train/trainer_fixture.h"
#include "troupe/pipeline.h"

namespace troupe::nn {
namespace {

using troupe::testing::FakeGpus;

/// Queues, iterators, accumulators and barriers: resources of the host, through which values pass.
bool is_of_host(const std::string& op) {
  for (const char* part : {"Queue", "Iterator", "Accumulator", "Barrier"})
    if (op.find(part) != std::string::npos) return true;
  return false;
}

/// Ops of nodes on GPUs that lack a kernel there, with types.
std::set<std::string> without_kernels(const Graph& graph, const Engine& engine) {
  std::set<std::string> out;
  std::vector<const Node*> all;
  for (int i = 0; i < graph.size(); ++i) all.push_back(&graph.node(i));
  StepGraph step(graph, {}, {}, all);
  REQUIRE(expand_collectives(step).ok());
  for (const Node* at : step.nodes()) {
    const Node& node = *at;
    if (node.device().find("gpu") == std::string::npos || is_of_host(node.op().name())) continue;
    if (engine.kernels().serves(node.op().name(), DeviceKind::kCuda, node.attrs())) continue;
    std::string types;
    for (const Output& in : node.inputs()) types += fmt::format(" {}", to_string(in.dtype()));
    out.insert(node.op().name() + types);
  }
  return out;
}

struct Gpus {
  FakeGpus fake;
  std::unique_ptr<Engine> engine = std::move(Engine::create(fake.options(1, 2))).value();
  std::vector<std::string> names{"/gpu:0", "/gpu:1"};
};

using Layers = std::function<Output(const Scope&, Variables&, Output, bool)>;

/// The ops that a classifier of x [N, shape...] by these layers lacks.
std::set<std::string> lacking(Gpus& gpus, const std::vector<int64_t>& shape, const Layers& layers,
                              TrainerOptions options = {}) {
  std::vector<int64_t> all = {64};
  all.insert(all.end(), shape.begin(), shape.end());
  const Tensor x = *Tensor::zeros(DType::kFloat32, Shape(all));
  const Dataset data =
      std::move(*Dataset::from_tensors({x, *Tensor::zeros(DType::kInt32, Shape{64})})).repeat(-1).batch(8, true);
  options.devices = gpus.names;
  if (!options.optimizer.rate) options.optimizer = momentum(constant_rate(.1f));
  auto trainer = trainer_of(
      *gpus.engine, options, data, [&](const Scope& s, Variables& v, const std::vector<Output>& batch, bool training) {
        const Output logits = dense(s, v, layers(s, v, batch[0], training), 10, "logits");
        return ModelOutputs{sparse_softmax_cross_entropy(s, logits, batch[1]), accuracy(s, logits, batch[1])};
      });
  return without_kernels(trainer->graph(), *gpus.engine);
}

TEST_CASE("gpu: every mode of the trainer and every optimizer have all kernels") {
  Gpus gpus;
  for (const Mode& m : kAllModes) {
    INFO(m.name);
    CHECK(lacking(
              gpus, {6}, [](const Scope& s, Variables& v, Output x, bool) { return dense(s, v, x, 8, "hidden"); },
              settings(*gpus.engine, m)) == std::set<std::string>());
  }
  Optimizer decayed = adam(step_decay(.02f, .5f, 10));
  decayed.weight_decay = .01f;
  decayed.l2 = .001f;
  Optimizer clipped = sgd(cosine_decay(.1f, 100));
  clipped.clip = clip_by_global_norm(1);
  for (const Optimizer& optimizer : {decayed, clipped, sgd(constant_rate(.1f)), adagrad(constant_rate(.1f)),
                                     rmsprop(constant_rate(.1f), .9f, .9f)}) {
    TrainerOptions options;
    options.optimizer = optimizer;
    CHECK(lacking(
              gpus, {6}, [](const Scope& s, Variables& v, Output x, bool) { return dense(s, v, x, 8, "hidden"); },
              options) == std::set<std::string>());
  }
}

TEST_CASE("gpu: every layer has all kernels, forward and backward") {
  Gpus gpus;
  const std::pair<const char*, std::pair<std::vector<int64_t>, Layers>> cases[] = {
      {"images",
       {{12, 12, 3},
        [](const Scope& s, Variables& v, Output x, bool training) {
          x = relu(s, batch_norm(s, v, conv2d(s, v, x, 8, 3, "conv"), "norm", training));
          x = avg_pool(s, max_pool(s, x, 2, 1), 2);
          return dropout(s, v, flatten(s, x), .5f, training);
        }}},
      {"dense",
       {{6},
        [](const Scope& s, Variables& v, Output x, bool training) {
          x = tanh(s, batch_norm(s, v, dense(s, v, x, 8, "a"), "norm", training));
          return softmax(s, sigmoid(s, dense(s, v, x, 8, "b")));
        }}},
      {"embedding",
       {{5},
        [](const Scope& s, Variables& v, Output x, bool) {
          const Output ids = s.op("Cast", {x}, {{"DstT", DType::kInt32}});
          return flatten(s, embedding(s, v, ids, 20, 4, "words"));
        }}},
  };
  for (const auto& [name, model] : cases)
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      INFO(name << " in " << to_string(dtype));
      const Layers layers = [&, layers = &model.second](const Scope& s, Variables& v, Output x, bool training) {
        return (*layers)(s, v, cast(s, x, dtype), training);
      };
      CHECK(lacking(gpus, model.first, layers) == std::set<std::string>());
    }
}

TEST_CASE("gpu: a stack of LSTMs has all kernels, forward and backward") {
  const DType dtype = GENERATE(DType::kFloat32, DType::kBFloat16, DType::kFloat16);
  Gpus gpus;
  Graph graph(gpus.engine->ops());
  Variables variables;
  const Scope root(graph);
  const std::vector<Scope> layers = {root.device("/gpu:0"), root.device("/gpu:1")};
  const Output x = root.op("Placeholder", {}, {{"dtype", dtype}, {"shape", PartialShape{3, 6, 4}}});
  const auto stack = lstm_stack(layers, variables, x, 5, "stack", {.chunk = 2});
  const Output loss = mean_all(layers[1], cast(layers[1], stack.outputs(layers[1]), DType::kFloat32));
  REQUIRE(minimize(layers[1], variables, adam(constant_rate(.1f)), loss));
  INFO((root.ok() ? "" : root.status().error().str()));
  REQUIRE(root.ok());
  CHECK(without_kernels(graph, *gpus.engine) == std::set<std::string>());
}

}  // namespace
}  // namespace troupe::nn
