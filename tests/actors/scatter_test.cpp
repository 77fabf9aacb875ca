// SPDX-License-Identifier: Apache-2.0
// ClusterOptions::scatter: nodes at random on the devices of tasks.
#include <set>

#include "tests/actors/socket_cluster.h"
#include "tests/engine/fixtures.h"
#include "troupe/dataset.h"
#include "troupe/nn.h"
#include "troupe/optimizers.h"
#include "troupe/trace.h"

using namespace troupe;

TEST_CASE("a graph whose nodes are scattered gives the bits of one device, with any seed") {
  const auto train = [](Engine& engine, std::set<uint32_t>& devices) {
    Graph graph(engine.ops());
    const Scope s(graph), asks = s.device("/cpu:0");
    nn::Variables model;
    const Output x = asks.constant(Tensor::of<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2}));
    const Output hidden = nn::tanh(asks, nn::dense(asks, model, x, 8, "hidden"));
    const Output loss = nn::mean_squared_error(s, nn::dense(s, model, hidden, 1, "out"),
                                               s.constant(Tensor::of<float>({0, 1, 1, 0}, {4, 1})));
    const Node* const update = nn::minimize(s, model, nn::adam(nn::constant_rate(0.05f)), loss);
    Session session(engine, graph);
    // Each initialiser is a step of its own, and a variable is where all later steps use it.
    for (const Node* const initialiser : model.initializers()) REQUIRE(session.run(initialiser).ok());
    std::vector<Tensor> losses;
    for (int i = 0; i < 5; ++i) {
      const auto trace = std::make_shared<Trace>();
      auto result = session.run({loss}, {update}, {.trace = trace});
      INFO((result.ok() ? "" : result.error().str()));
      REQUIRE(result.ok());
      losses.push_back((*result)[0]);
      for (const TraceEvent& e : trace->take())
        if (e.kind != TraceEvent::Kind::kSend && e.kind != TraceEvent::Kind::kReceive) devices.insert(e.device);
    }
    return losses;
  };
  std::set<uint32_t> devices;
  auto alone = Engine::create({.cpu_threads = {1}});
  REQUIRE(alone.ok());
  const auto expected = train(**alone, devices);
  SocketCluster cluster(3);
  devices.clear();
  for (uint64_t seed : {1u, 2u, 3u, 4u}) {
    cluster.options.cluster.scatter = seed;
    const auto client = cluster.client();
    const auto got = train(*client, devices);
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].identical(expected[i]));
    client->reset_container("");
  }
  CHECK(devices == std::set<uint32_t>{1, 2, 3});  // 0 is the client's
}

TEST_CASE("what reads the client's dataset stays with the client") {
  SocketCluster cluster(2);
  for (uint64_t seed : {1u, 2u, 3u}) {
    cluster.options.cluster.scatter = seed;
    const auto client = cluster.client();
    REQUIRE(client->add_dataset("numbers", *Dataset::from_tensors({Tensor::of<float>({1, 2, 3})})).ok());
    Graph graph(client->ops());
    const Scope s(graph);
    const std::vector<DType> dtypes = {DType::kFloat32};
    const std::vector<PartialShape> shapes = {PartialShape{}};
    const Output iterator = s.op("IteratorV2", {},
                                 {{"shared_name", std::string("numbers")},
                                  {"container", std::string()},
                                  {"output_types", dtypes},
                                  {"output_shapes", shapes}});
    const Output y =
        s.op("Neg", {s.op("IteratorGetNext", {iterator}, {{"output_types", dtypes}, {"output_shapes", shapes}})});
    REQUIRE(s.status().ok());
    Session session(*client, graph);
    for (const float x : {1.0f, 2.0f, 3.0f}) {
      const auto result = session.run({y});
      INFO((result.ok() ? "" : result.error().str()));
      REQUIRE(result.ok());
      CHECK((*result)[0].data<float>()[0] == -x);
    }
  }
}
