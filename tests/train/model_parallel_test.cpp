// SPDX-License-Identifier: Apache-2.0
// Models over several devices: a stack of LSTMs with a device for each layer, and meshes of devices.
#include "plan/op_costs.h"
#include "tests/nn/fixture.h"
#include "troupe/device_mesh.h"
#include "troupe/tensor_parallel.h"

#include <cmath>

namespace troupe::nn {
namespace {

// Losses of `steps` updates, and one after them.
std::vector<float> losses(Fixture& f, Output loss, const Optimizer& optimizer, int steps = 4) {
  const Node* update = minimize(f.s, f.variables, optimizer, loss);
  f.initialise();
  std::vector<float> result;
  for (int i = 0; i < steps; ++i) result.push_back(f.run({loss}, {update})[0].data<float>()[0]);
  result.push_back(f.number(loss));
  return result;
}

void check_close(const std::vector<float>& got, const std::vector<float>& wanted) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) CHECK(got[i] == Approx(wanted[i]).epsilon(1e-5).margin(1e-6));
}

std::vector<Scope> scopes_of(const Scope& s, const char* kind, int n) {
  std::vector<Scope> scopes;
  for (int i = 0; i < n; ++i) scopes.push_back(s.device(fmt::format("/{}:{}", kind, i)));
  return scopes;
}

TEST_CASE("a stack of LSTMs learns the same whole and in chunks, on one device and on several") {
  const Tensor x = random_tensor({2, 7, 3}), wanted = random_tensor({2, 7, 4}, 2);
  const auto learn = [&](const std::function<Output(Fixture&)>& model) {
    Fixture f(3);
    const Output y = model(f);
    REQUIRE(f.s.ok());
    CHECK(y.shape() == PartialShape{2, 7, 4});
    return losses(f, mean_squared_error(f.s, y, f.s.constant(wanted)), adam(constant_rate(0.05f)));
  };
  const auto whole = learn([&](Fixture& f) {
    Output y = f.s.constant(x);
    for (int layer = 0; layer < 3; ++layer)
      y = lstm(f.s, f.variables, y, 4, fmt::format("stack/layer_{}", layer)).outputs;
    return y;
  });
  CHECK(whole.back() < whole.front());
  for (const int64_t chunk : {0, 2, 7, 100}) {
    INFO("chunks of " << chunk);
    check_close(learn([&](Fixture& f) {
                  const auto stack =
                      lstm_stack(scopes_of(f.s, "cpu", 3), f.variables, f.s.constant(x), 4, "stack", {.chunk = chunk});
                  CHECK(stack.chunks.size() == (chunk == 2 ? 4 : 1));
                  CHECK(stack.chunks.back().node->device() == "/cpu:2");
                  CHECK(stack.states.size() == 3);
                  return stack.outputs(f.s);
                }),
                whole);
  }
}

TEST_CASE("a stack of LSTMs goes on from the states of the text before") {
  Fixture f(2);
  const Tensor text = random_tensor({6, 2, 3});
  const LstmOptions by_time = {.time_major = true};
  const auto scopes = scopes_of(f.s, "cpu", 2);
  const auto steps = [&](int from, int n) {
    return f.s.op("Slice", {f.s.constant(text), f.s.constant(Tensor::of<int32_t>({from, 0, 0})),
                            f.s.constant(Tensor::of<int32_t>({n, 2, 3}))});
  };
  const auto whole = lstm_stack(scopes, f.variables, f.s.constant(text), 4, "stack", {.chunk = 4, .lstm = by_time});
  f.variables.reuse();
  const auto before = lstm_stack(scopes, f.variables, steps(0, 3), 4, "stack", {.lstm = by_time});
  f.variables.reuse();
  const auto after =
      lstm_stack(scopes, f.variables, steps(3, 3), 4, "stack", {.lstm = by_time, .initial = before.states});
  f.initialise();
  CHECK(whole.outputs(f.s).shape() == PartialShape{6, 2, 4});
  for (size_t layer = 0; layer < 2; ++layer) {
    check_close(f.floats(after.states[layer].h), f.floats(whole.states[layer].h));
    check_close(f.floats(after.states[layer].c), f.floats(whole.states[layer].c));
  }
}

TEST_CASE("a stack of LSTMs refuses sizes that do not fit") {
  using Catch::Contains;
  const auto fault = [](const LstmStackOptions& options, const Shape& shape = {2, 4, 3}) {
    Fixture f;
    CHECK(lstm_stack({f.s, f.s}, f.variables, f.s.constant(random_tensor(shape)), 4, "stack", options).chunks.empty());
    REQUIRE_FALSE(f.s.ok());
    return f.s.status().error().message;
  };
  CHECK_THAT(fault({.chunk = -1}), Contains("'stack'") && Contains("-1"));
  CHECK_THAT(fault({.initial = std::vector<LstmState>(3)}), Contains("3 of 2 layers"));
  CHECK_THAT(fault({}, {2, 0, 3}), Contains("'stack'") && Contains("0 steps"));
  CHECK_THAT(fault({}, {2, 3}), Contains("'stack'") && Contains("[2,3]"));
}

// Virtual nanoseconds of a training step of a stack with its layers spread over so many simulated devices.
double step_time(int layers, int devices, int64_t chunk) {
  auto engine =
      Engine::create({.cpu_threads = {1}, .sim = {.devices = std::vector<DeviceRates>(static_cast<size_t>(devices))}});
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  const Scope s(graph);
  Variables variables;
  std::vector<Scope> scopes;
  for (int layer = 0; layer < layers; ++layer)
    scopes.push_back(s.device(fmt::format("/sim:{}", layer * devices / layers)));
  const Output x = scopes[0].op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{16, 32, 64}}});
  const auto stack = lstm_stack(scopes, variables, x, 64, "stack", {.chunk = chunk});
  std::vector<Output> sums;
  for (const Output& part : stack.chunks) sums.push_back(sum_all(scopes.back(), scopes.back().op("Square", {part})));
  const Output loss = scopes.back().op("AddN", sums);
  const Node* update = minimize(s, variables, sgd(constant_rate(1e-6f)), loss);
  REQUIRE(s.ok());
  Session session(**engine, graph, {.default_device = "/sim:0"});
  REQUIRE(session.run({}, std::vector<Output>{}, variables.initializers()).ok());
  const int64_t before = (*engine)->sim_now_ns();
  const auto done = session.run({{x, random_tensor({16, 32, 64})}}, {loss}, {update});
  INFO((done.ok() ? "" : done.error().str()));
  REQUIRE(done.ok());
  return static_cast<double>((*engine)->sim_now_ns() - before);
}

TEST_CASE("layers on devices of their own work at once on different chunks") {
  // Of 4 layers on 8 chunks each way takes 11 slots rather than 32.
  const double one = step_time(4, 1, 4), four = step_time(4, 4, 4);
  CHECK(one / four > 2.5);
  CHECK(one / four <= 32. / 11);
  // In one chunk each layer waits for the whole of the layer before.
  const double whole = step_time(4, 1, 0) / step_time(4, 4, 0);
  CHECK(whole < 1.1);
}

TEST_CASE("an LSTM costs the products of its steps") {
  Fixture f;
  const Output x = f.s.constant(random_tensor({2, 7, 3}));
  const Output y = lstm(f.s, f.variables, x, 4, "cell").outputs;
  REQUIRE(gradients(f.s, {y}, {x}).ok());
  double forward = 0, backward = 0;
  for (int id = 0; id < f.graph.size(); ++id) {
    const Node& node = f.graph.node(id);
    if (node.op().name() == "BlockLSTM") forward = cost_of(node).flops;
    if (node.op().name() == "BlockLSTMGrad") backward = cost_of(node).flops;
  }
  CHECK(forward == 2. * 2 * 7 * (3 + 4) * 16);
  CHECK(backward == 2 * forward);
}

// A network of two layers, split over the devices of `tensor` for each of `x`, x[i] being replica i's share of the
// batch.
Output spread_loss(const Scope& scope, Variables& v, const DeviceMesh& mesh, const std::vector<Tensor>& x,
                   const std::vector<Tensor>& labels) {
  std::vector<Output> parts;
  for (size_t replica = 0; replica < x.size(); ++replica) {
    const auto devices = mesh.along("tensor", {{"data", static_cast<int64_t>(replica)}}).value();
    const Scope s = scope.device(devices[0]);
    v.reuse();
    const Spread hidden = each(s, dense_by_columns(s, v, s.constant(x[replica]), 7, "up", devices), tanh);
    const Spread logits = dense_by_columns(s, v, dense_by_rows_to_all(s, v, hidden, 6, "down"), 5, "out");
    parts.push_back(sparse_softmax_cross_entropy(s, logits, s.constant(labels[replica])));
  }
  return scope.op("Mul", {scope.op("AddN", parts), scope.constant(1.f / static_cast<float>(parts.size()))});
}

TEST_CASE("replicas along one axis of a mesh, layers split along the other, are the whole model") {
  const Tensor x = random_tensor({6, 3}), labels = Tensor::of<int32_t>({0, 1, 2, 3, 4, 0});
  for (const Optimizer& optimizer : {sgd(constant_rate(0.5f)), adam(constant_rate(0.05f))}) {
    Fixture whole;
    const Output hidden = tanh(whole.s, dense(whole.s, whole.variables, whole.s.constant(x), 7, "up"));
    const Output logits = dense(whole.s, whole.variables, dense(whole.s, whole.variables, hidden, 6, "down"), 5, "out");
    const auto wanted =
        losses(whole, sparse_softmax_cross_entropy(whole.s, logits, whole.s.constant(labels)), optimizer);

    Fixture f(4);
    const auto mesh = DeviceMesh::create(f.engine->devices(), {{"data", 2}, {"tensor", 2}});
    REQUIRE(mesh.ok());
    std::vector<Tensor> xs, ys;
    for (int64_t replica = 0; replica < 2; ++replica) {
      xs.push_back(x.slice(replica * 3, replica * 3 + 3).value());
      ys.push_back(labels.slice(replica * 3, replica * 3 + 3).value());
    }
    check_close(losses(f, spread_loss(f.s, f.variables, *mesh, xs, ys), optimizer), wanted);
    CHECK(wanted.back() < wanted.front());
    // Every device has worked, and each share's variables are updated from that of the first replica.
    for (const DeviceStats& d : f.engine->device_stats()) CHECK(d.nodes > 0);
    const Tensor whole_kernel = whole.variable("up/kernel"), share = f.variable("up/kernel_1");
    CHECK(share.shape() == Shape{3, 3});
    for (int row = 0; row < 3; ++row)
      for (int column = 0; column < 3; ++column)
        CHECK(share.data<float>()[row * 3 + column] ==
              Approx(whole_kernel.data<float>()[row * 7 + 4 + column]).margin(1e-5));
  }
}

}  // namespace
}  // namespace troupe::nn
