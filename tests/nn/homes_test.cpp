// SPDX-License-Identifier: Apache-2.0
// Models over several tasks: each variable lives in one, and nothing but values crosses. There are only graphs here,
// with names of devices of two tasks; for numbers their nodes are copied to devices of one process.
#include <set>

#include "tests/nn/fixture.h"
#include "troupe/tensor_parallel.h"

namespace troupe::nn {
namespace {

const std::string kA = "/job:worker/replica:0/task:0/device:cpu:0", kA1 = "/job:worker/replica:0/task:0/device:cpu:1",
                  kB = "/job:worker/replica:0/task:1/device:cpu:0", kB1 = "/job:worker/replica:0/task:1/device:cpu:1";

struct TwoTasks : Fixture {
  TwoTasks() : Fixture(2) {}
  Scope a = s.device(kA), a1 = s.device(kA1), b = s.device(kB), b1 = s.device(kB1);

  std::string task(const Node& node) const { return s.device(node.device()).task_name(); }
  std::vector<const Node*> of_op(std::string_view op) const {
    std::vector<const Node*> out;
    for (int id = 0; id < graph.size(); ++id)
      if (graph.node(id).op().name() == op) out.push_back(&graph.node(id));
    return out;
  }
  /// The task of each variable's handles, by name. Checks that it is one, and that no handle leaves it.
  std::map<std::string, std::string> homes() const {
    INFO((s.ok() ? std::string() : s.status().error().str()));
    REQUIRE(s.ok());
    std::map<std::string, std::string> out;
    for (const Node* handle : of_op("VarHandleOp")) {
      const auto [at, first] = out.try_emplace(*handle->attrs().get<std::string>("shared_name"), task(*handle));
      INFO(handle->name());
      CHECK(at->second == task(*handle));
    }
    for (int id = 0; id < graph.size(); ++id)
      for (const Output& in : graph.node(id).inputs()) {
        INFO(graph.node(id).name() << " reads " << in.name());
        if (in.dtype() == DType::kResource) CHECK(task(graph.node(id)) == task(*in.node));
      }
    return out;
  }
  /// What goes from task to task of at least that many elements, by the names of its makers.
  std::set<std::string> crossing(int64_t elements) const {
    std::set<std::string> out;
    for (int id = 0; id < graph.size(); ++id)
      for (const Output& in : graph.node(id).inputs())
        if (in.shape().fully_known() && in.shape().shape().elements() >= elements && in.node->op().name() != "Const" &&
            task(graph.node(id)) != task(*in.node))
          out.insert(in.name());
    return out;
  }
};

/// The same nodes on the devices of one process: a task is a device.
struct InOneProcess {
  explicit InOneProcess(TwoTasks& f) : graph(f.engine->ops()), session(*f.engine, graph) {
    for (int id = 0; id < f.graph.size(); ++id) {
      const Node& node = f.graph.node(id);
      NodeSpec spec{node.op().name(), node.name(), {}, node.attrs(), {}, {}};
      for (const Output& in : node.inputs()) spec.inputs.push_back(now(in));
      for (const Node* before : node.control_inputs()) spec.control_inputs.push_back(copies.at(before));
      if (!f.task(node).empty()) spec.device = node.device().find("task:1") == std::string::npos ? "/cpu:0" : "/cpu:1";
      auto added = graph.add(std::move(spec));
      INFO((added.ok() ? std::string() : added.error().str()));
      REQUIRE(added.ok());
      copies[&node] = *added;
    }
  }
  Output now(Output o) const { return {copies.at(o.node), o.port}; }
  /// The loss before each of `steps` updates.
  std::vector<float> train(const Variables& variables, Output loss, const Node* update, int steps) {
    std::vector<const Node*> init;
    for (const Node* node : variables.initializers()) init.push_back(copies.at(node));
    const auto begun = session.run({}, {}, init);
    INFO((begun.ok() ? std::string() : begun.error().str()));
    REQUIRE(begun.ok());
    std::vector<float> losses;
    for (int i = 0; i < steps; ++i) {
      const RunResult r = session.run({}, {now(loss)}, {copies.at(update)});
      INFO((r.ok() ? std::string() : r.error().str()));
      REQUIRE(r.ok());
      losses.push_back((*r)[0].data<float>()[0]);
    }
    return losses;
  }

  Graph graph;
  Session session;
  std::map<const Node*, const Node*> copies;
};

TEST_CASE("a variable is made once, in the task that uses it first; another task gets its value") {
  TwoTasks f;
  const Output own = f.variables.read(f.a, "w", {2, 2}, ones());
  const Output there = f.variables.read(f.b, "w", {2, 2}, ones());
  const Variable& w = f.variables.all()[0];
  CHECK(f.variables.handles(w).size() == 1);
  CHECK(f.homes() == std::map<std::string, std::string>{{"w", "/job:worker/replica:0/task:0"}});
  CHECK(w.init->device() == kA);
  CHECK(own.node->op().name() == "ReadVariableOp");
  CHECK(own.node->device() == kA);
  CHECK(there.node->op().name() == "Identity");
  CHECK(there.node->device() == kB);
  CHECK(there.node->inputs()[0] == own);
  CHECK(there.shape() == PartialShape{2, 2});
  CHECK(f.variables.read(f.b.scope("again"), w) == there);
  CHECK(f.variables.handle(f.b, w) == own.node->inputs()[0]);

  // A device of the home task has a handle of its own, as in one process; one of another task has not.
  CHECK(f.variables.read(f.a1, w).node->device() == kA1);
  CHECK(f.variables.read(f.b1, w).node->inputs()[0] == own);
  CHECK(f.variables.handles(w).size() == 2);
  CHECK(f.of_op("ReadVariableOp").size() == 2);
  CHECK(f.variables.home(f.a1, "w").device_name() == kA1);
  CHECK(f.variables.home(f.b1, "w").device_name() == kA);
  CHECK(f.variables.home(f.b1, "unknown").device_name() == kB1);
}

TEST_CASE("devices without a task in their names have handles of their own, and belong to the task that is named") {
  TwoTasks f;
  const auto devices = [&](size_t variable) {
    std::set<std::string> out;
    for (const Output& handle : f.variables.handles(f.variables.all()[variable])) out.insert(handle.node->device());
    return out;
  };
  for (const char* device : {"", "/cpu:0", "/cpu:1"}) f.variables.read(f.s.device(device), "v", {2}, ones());
  CHECK(devices(0) == std::set<std::string>{"", "/cpu:0", "/cpu:1"});
  CHECK(f.of_op("Identity").empty());

  // Named later: what comes then is there.
  f.variables.read(f.b, "v", {2}, ones());
  f.variables.read(f.a, "v", {2}, ones());
  f.variables.read(f.s.device("/gpu:2"), "v", {2}, ones());
  CHECK(devices(0) == std::set<std::string>{"", "/cpu:0", "/cpu:1", kB, "/job:worker/replica:0/task:1/device:gpu:2"});
  CHECK(f.of_op("Identity").size() == 1);

  // Named in part: a job alone is no other task than one of that job.
  for (const char* device : {"/job:ps", "/job:ps/task:1/cpu:0", "/job:ps/task:0/cpu:0", "/task:1", "/job:worker"})
    f.variables.read(f.s.device(device), "u", {2}, ones());
  CHECK(devices(1) == std::set<std::string>{"/job:ps", "/job:ps/task:1/cpu:0", "/job:ps/replica:0/task:1"});
  CHECK(f.of_op("Identity").size() == 3);
  CHECK(f.of_op("Identity")[2]->device() == "/job:worker");
}

TEST_CASE("every optimizer updates a variable at its home, wherever its gradient is made") {
  const auto rate = constant_rate(0.01f);
  Optimizer decays = sgd(rate), pulls = adam(rate), clips = momentum(rate);
  decays.weight_decay = pulls.l2 = 0.01f;
  clips.clip = clip_by_global_norm(1);
  for (const Optimizer& optimizer :
       {sgd(rate), momentum(rate), adam(rate), adagrad(rate), rmsprop(rate), decays, pulls, clips}) {
    std::vector<float> losses[2];
    for (const bool spread : {false, true}) {
      TwoTasks f;
      const Scope second = spread ? f.b : f.a;
      const Output x = f.a.constant(random_tensor({8, 4})), labels = second.constant(random_tensor({8, 4}, 2));
      // The first layer's variables are used in the second task too, and those alone: "shared" is read in both.
      Output y = tanh(f.a, dense(f.a, f.variables, x, 4, "shared"));
      f.variables.reuse("shared");
      y = dense(second, f.variables, tanh(second, dense(second, f.variables, y, 4, "shared")), 4, "last");
      f.variables.read(f.a, "remote/kernel", {4, 4}, he_normal());
      y = dense(second, f.variables, y, 4, "remote");
      const Output penalty = l2_penalty(second, f.variables, 0.01f);
      const Output loss = second.op("AddV2", {mean_squared_error(second, y, labels), penalty});
      const Node* update = minimize(second, f.variables, optimizer, loss);
      const auto homes = f.homes();
      for (const auto& [name, task] : homes) {
        INFO(name);
        const bool first = name.starts_with("shared") || name.starts_with("remote/kernel");
        CHECK(task == (first || !spread ? "/job:worker/replica:0/task:0" : "/job:worker/replica:0/task:1"));
      }
      CHECK(homes.contains("global_step"));
      losses[spread] = InOneProcess(f).train(f.variables, loss, update, 3);
    }
    CHECK(losses[0] == losses[1]);
    CHECK(losses[0][0] > losses[0][2]);
  }
}

TEST_CASE("a value that another task reads often is sent there once, and its gradients come back as one") {
  TwoTasks f;
  const Output w = f.variables.read(f.a, "w", {8, 8}, he_normal());
  Output y = f.b.constant(random_tensor({8, 8}));
  for (int i = 0; i < 3; ++i) y = f.b.op("MatMul", {y, f.variables.read(f.b, "w", {8, 8}, he_normal())});
  minimize(f.b, f.variables, sgd(constant_rate(0.1f)), mean_all(f.b, y));
  f.homes();
  std::set<std::string> crosses = f.crossing(64);
  REQUIRE(crosses.size() == 2);
  CHECK(crosses.erase(w.name()) == 1);
  CHECK(f.graph.find(crosses.begin()->substr(0, crosses.begin()->find(':')))->op().name() == "AddN");
}

TEST_CASE("rows of a table of another task are taken there, and their gradients added there") {
  for (const bool whole : {true, false}) {
    std::vector<float> losses[2];
    for (const bool spread : {false, true}) {
      TwoTasks f;
      const Scope second = spread ? f.b : f.a;
      const int64_t rows = 100, width = 4;
      const auto taken = [&](const Scope& scope, std::initializer_list<int32_t> ids) {
        f.variables.reuse("words");
        const Output of = scope.constant(Tensor::of<int32_t>(ids));
        if (whole) return embedding(scope, f.variables, of, rows, width, "words");
        const std::string device = scope.device_name();
        return embedding_by_rows(scope, f.variables, of, rows, width, "words", {device, device});
      };
      const Output first = taken(f.a, {1, 2}), y = taken(second, {70, 1, 70});
      const Output loss = second.op("AddV2", {mean_all(second, second.op("Square", {y})), sum_all(f.a, first)});
      const Node* update = minimize(second, f.variables, adagrad(constant_rate(0.1f)), loss);
      for (const auto& [name, task] : f.homes())
        if (name.starts_with("words")) CHECK(task == "/job:worker/replica:0/task:0");
      CHECK(f.crossing(50 * width).empty());
      int gathers = 0;
      for (const Node* gather : f.of_op("GatherV2")) {
        if (gather->inputs()[0].node->op().name() != "ReadVariableOp") continue;  // others put gradients in order
        CHECK(gather->device() == kA);
        ++gathers;
      }
      CHECK(gathers == (whole ? 2 : 4));
      CHECK(f.of_op(whole ? "ResourceSparseApplyAdagradV2" : "ResourceApplyAdagradV2").size() == (whole ? 1 : 0));
      losses[spread] = InOneProcess(f).train(f.variables, loss, update, 3);
    }
    CHECK(losses[0] == losses[1]);
  }
}

TEST_CASE("moving averages of another task follow there") {
  std::vector<float> losses[2];
  for (const bool spread : {false, true}) {
    TwoTasks f;
    const Scope second = spread ? f.b : f.a;
    const Output x = second.constant(random_tensor({8, 4}));
    batch_norm(f.a, f.variables, f.a.constant(random_tensor({8, 4}, 2)), "norm", false);
    f.variables.reuse();
    const Output y = batch_norm(second, f.variables, x, "norm", true);
    f.variables.reuse();
    const Output test =
        mean_all(f.a, batch_norm(f.a, f.variables, f.a.constant(random_tensor({8, 4}, 2)), "norm", false));
    const Output loss = second.op("AddV2", {mean_all(second, second.op("Square", {y})), test});
    const Node* update = minimize(second, f.variables, sgd(constant_rate(0.1f)), loss);
    for (const auto& [name, task] : f.homes())
      if (name.starts_with("norm")) CHECK(task == "/job:worker/replica:0/task:0");
    CHECK(f.of_op("AssignSubVariableOp").size() == 2);
    losses[spread] = InOneProcess(f).train(f.variables, loss, update, 3);
  }
  CHECK(losses[0] == losses[1]);
}

TEST_CASE("an optimizer of a user's has the scope of the variable's home") {
  TwoTasks f;
  f.variables.read(f.a, "w", {2}, ones());
  const Output loss = sum_all(f.b, f.variables.read(f.b, "w", {2}, ones()));
  Optimizer own;
  own.rate = constant_rate(0.5f);
  own.update = [](const UpdateContext& c) {
    const Output speed = c.slot("speed");
    c.scope.node("AssignAddVariableOp", {speed, c.gradient});
    return c.scope.node("AssignSubVariableOp", {c.handle(), c.scope.op("Mul", {c.rate, c.gradient})});
  };
  minimize(f.b, f.variables, own, loss);
  const auto homes = f.homes();
  CHECK(homes.at("w/speed") == "/job:worker/replica:0/task:0");
  CHECK(homes.at("global_step") == "/job:worker/replica:0/task:1");
  for (const Node* node : f.of_op("AssignSubVariableOp")) CHECK(node->device() == kA);
}

}  // namespace
}  // namespace troupe::nn
