// SPDX-License-Identifier: Apache-2.0
// Users' code that throws, or is not of the kind that it should be, where no request waits for it. See barrier_test.cpp
// for kernels and replies.
#include <atomic>
#include <set>

#include "actors/engine_impl.h"
#include "tests/engine/fixtures.h"
#include "tests/op_library.h"
#include "tests/repeats.h"
#include "troupe/control_flow.h"
#include "troupe/dataset.h"
#include "troupe/trace.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

class Tiresome final : public Resource {
  bool wants_work() const override { throw std::runtime_error("in wants_work"); }
};

class Answers final : public ResourceKernel {
  void execute(Resource&, ResourceRequest request) override { request.reply(std::vector<Tensor>{Tensor::scalar(1.f)}); }
};

class MakesHandle final : public ComputeKernel {
  Status compute(KernelContext& c) override {
    auto handle = std::make_shared<ResourceHandle>();
    handle->type = "tiresome";
    handle->name = "it";
    handle->factory = []() -> Result<std::unique_ptr<Resource>> { return std::unique_ptr<Resource>(new Tiresome()); };
    c.set_output(0, Tensor::scalar<ResourceRef>(std::move(handle)));
    return {};
  }
};

class Bare final : public Kernel {};

/// Computes, whatever it is registered as.
Result<std::unique_ptr<Kernel>> make_answer(const KernelInit&) {
  class Answer final : public ComputeKernel {
    Status compute(KernelContext& c) override {
      c.set_output(0, Tensor::scalar(2.f));
      return {};
    }
  };
  return std::unique_ptr<Kernel>(new Answer());
}

class Unsure final : public ComputeKernel {
  bool shareable() const override { throw std::runtime_error("in shareable"); }
  Status compute(KernelContext&) override { return {}; }
};

class Ticks final : public ComputeKernel {
  Status compute(KernelContext& c) override {
    c.set_output(0, Tensor::scalar(++ticks_));
    return {};
  }
  std::atomic<int> ticks_{0};
};

/// Puts out what it knows before; how often it ran is counted, which it should not.
class Known final : public ComputeKernel {
 public:
  explicit Known(const KernelInit& init) : how_(init.attr<std::string>("how")) {}
  Status compute(KernelContext& c) override {
    ++runs;
    c.set_output(0, value_);
    return {};
  }
  const Tensor* constant() const override {
    if (how_ == "throws") throw std::runtime_error("in constant");
    return how_ == "wrong" ? &wrong_ : how_ == "none" ? nullptr : &value_;
  }
  static std::atomic<int> runs;

 private:
  const std::string how_;
  const Tensor value_ = Tensor::scalar(3.f), wrong_ = Tensor::of<float>({1.f, 2.f});
};
std::atomic<int> Known::runs{0};

class Never final : public ComputeKernel {
  Status compute(KernelContext& c) override {
    c.set_output(0, value_);
    return {};
  }
  const Tensor* constant() const override { return &value_; }
  const Tensor value_ = Tensor::scalar(false);
};

/// Answers at once, in one of several ways.
class AnswersAtOnce final : public AnsweringKernel {
 public:
  explicit AnswersAtOnce(const KernelInit& init) : how_(init.attr<std::string>("how")) {}
  Result<std::vector<Tensor>> answer(Resource&, ResourceRequest& request) override {
    if (how_ == "throws") throw std::runtime_error("in answer");
    if (how_ == "refuses") return make_error(Code::kOutOfRange, "no more of '{}'", request.handle().name);
    if (how_ == "two") return std::vector<Tensor>{Tensor::scalar(1.f), Tensor::scalar(2.f)};
    return std::vector<Tensor>{Tensor::scalar(4.f)};
  }

 private:
  const std::string how_;
};

void register_those(OpRegistry& ops, KernelRegistry& kernels) {
  const auto none = not_differentiable("a test's");
  const auto source = [&](const char* name, const char* output) {
    ops.add(OpDef(name).output(output).doc("A test's.").shape(scalar_shape).stateful(), none);
  };
  source("Tiresome", "y: resource");
  kernels.add<MakesHandle>("Tiresome", DeviceKind::kCpu, {});
  ops.add(OpDef("Answers").input("r: resource").output("y: float32").doc("A test's.").shape(scalar_shape).stateful(),
          none);
  kernels.add<Answers>("Answers", DeviceKind::kCpu, {});
  source("AnswersOfNone", "y: float32");
  kernels.add<Answers>("AnswersOfNone", DeviceKind::kCpu, {});
  source("Bare", "y: float32");
  kernels.add<Bare>("Bare", DeviceKind::kCpu, {});
  source("Untold", "y: float32");
  kernels.add("Untold", DeviceKind::kCpu, {}, make_answer);
  source("Mistold", "y: float32");
  kernels.add("Mistold", DeviceKind::kCpu, {}, {KernelKind::kBlocking, make_answer});
  source("Builtin", "y: float32");
  kernels.add("Builtin", DeviceKind::kCpu, {}, [](const KernelInit&) -> Result<std::unique_ptr<Kernel>> {
    return std::unique_ptr<Kernel>(new BuiltinKernel(Builtin::kConst, Tensor::scalar<int32_t>(1)));
  });
  ops.add(OpDef("Known").output("y: float32").attr("how: string = ''").doc("A test's.").shape(scalar_shape), none);
  kernels.add<Known>("Known", DeviceKind::kCpu, {});
  ops.add(OpDef("Never").output("y: bool").doc("A test's.").shape(scalar_shape), none);
  kernels.add<Never>("Never", DeviceKind::kCpu, {});
  ops.add(OpDef("AnswersAtOnce")
              .input("r: resource")
              .output("y: float32")
              .attr("how: string = ''")
              .doc("A test's.")
              .shape(scalar_shape)
              .stateful(),
          none);
  kernels.add<AnswersAtOnce>("AnswersAtOnce", DeviceKind::kCpu, {});
  ops.add(OpDef("Ticks").output("y: int32").doc("A test's.").shape(scalar_shape), none);
  kernels.add<Ticks>("Ticks", DeviceKind::kCpu, {});
  source("Unsure", "y: float32");
  kernels.add<Unsure>("Unsure", DeviceKind::kCpu, {});
}

struct UserEngine {
  std::unique_ptr<Engine> engine =
      *Engine::create({.cpu_threads = {1, 1}, .op_library = testing::op_library(), .register_ops = register_those});
  Graph graph{engine->ops()};
  Scope scope{graph};
  Session session{*engine, graph};
  RunResult run(Output fetch) { return session.run({fetch}, RunOptions{.deadline = 60s}); }
};

TEST_CASE("a resource that throws when it is asked for background work serves on") {
  UserEngine u;
  const Output handle = u.scope.op("Tiresome", {});
  const Output y = u.scope.op("Answers", {handle}), there = u.scope.device("/cpu:1").op("Answers", {handle});
  std::set<caf::actor_id> hosts;
  for (int i = 0; i < repeats(50); ++i) {
    const RunResult r = u.session.run({y, there}, RunOptions{.deadline = 60s});
    INFO((r.ok() ? "" : r.error().str()));
    REQUIRE(r.ok());
    hosts.insert(u.engine->impl().directory->find("tiresome//it").id());
  }
  CHECK(hosts.size() == 1);
}

TEST_CASE("a kernel that knows its output before never runs") {
  UserEngine u;
  Known::runs = 0;
  const auto known = [&](const char* how) { return u.scope.op("Known", {}, {{"how", std::string(how)}}); };
  const Output value = known("");
  const Output sum = u.scope.op("AddV2", {value, value});
  for (int i = 0; i < 3; ++i) {
    const RunResult r = u.session.run({sum, value}, RunOptions{.deadline = 60s});
    INFO((r.ok() ? "" : r.error().str()));
    REQUIRE(r.ok());
    CHECK(r->at(0).data<float>()[0] == 6);
    CHECK(r->at(1).data<float>()[0] == 3);
  }
  CHECK(Known::runs == 0);
  const RunResult unknown = u.run(known("none"));
  REQUIRE(unknown.ok());
  CHECK(unknown->at(0).data<float>()[0] == 3);
  CHECK(Known::runs == 1);
  refused(u.run(known("throws")), Code::kInternal, "in constant");
  const RunResult wrong = u.run(known("wrong"));
  refused(wrong, Code::kInternal, "output 0 is float32[2], declared as float32[]");
  CHECK(wrong.error().op == "Known");
}

TEST_CASE("a kernel that knows its output before may be what a branch chooses, and be waited for") {
  UserEngine u;
  const Output which = u.scope.op("Placeholder", {}, {{"dtype", DType::kBool}, {"shape", PartialShape{}}});
  const Outputs chosen = cond(
      u.scope, which, [](const Scope& s) { return Outputs{s.op("Known", {})}; },
      [](const Scope& s) { return Outputs{s.constant(5.f)}; });
  const Output after = u.scope.after({u.scope.node("Known", {})}).op("Neg", {chosen[0]});
  for (const bool yes : {true, false}) {
    const RunResult r =
        u.session.run({{which, Tensor::scalar(yes)}}, {chosen[0], after}, {}, RunOptions{.deadline = 60s});
    INFO((r.ok() ? "" : r.error().str()));
    REQUIRE(r.ok());
    CHECK(r->at(0).data<float>()[0] == (yes ? 3 : 5));
    CHECK(r->at(1).data<float>()[0] == (yes ? -3 : -5));
  }
}

TEST_CASE("a kernel that knows its output before may be the condition of a loop, also on several devices") {
  UserEngine u;
  for (const char* device : {"/cpu:0", "/cpu:1"}) {
    const Outputs ended = while_loop(
        u.scope.device("/cpu:0"), {u.scope.constant(2.f)},
        [](const Scope& s, const Outputs& l) { return s.after({l[0]}).op("Never", {}); },
        [&](const Scope& s, const Outputs& l) { return Outputs{s.device(device).op("Neg", {l[0]})}; });
    const RunResult r = u.run(ended[0]);
    INFO((r.ok() ? "" : r.error().str()));
    REQUIRE(r.ok());
    CHECK(r->at(0).data<float>()[0] == 2);
  }
}

TEST_CASE("a kernel that answers at once may throw, refuse or answer wrongly, and the resource serves on") {
  UserEngine u;
  const Output handle = u.scope.op("Tiresome", {});
  const auto asked = [&](const char* how, const char* device = "/cpu:0") {
    return u.scope.device(device).op("AnswersAtOnce", {handle}, {{"how", std::string(how)}});
  };
  for (const char* device : {"/cpu:0", "/cpu:1"}) {
    refused(u.run(asked("throws", device)), Code::kInternal, "in answer");
    const RunResult end = u.run(asked("refuses", device));
    refused(end, Code::kOutOfRange, "no more of 'it'");
    CHECK(end.error().op == "AnswersAtOnce");
    refused(u.run(asked("two", device)), Code::kInternal, "it gave 2 outputs, its op has 1");
    const RunResult r = u.run(asked("", device));
    INFO((r.ok() ? "" : r.error().str()));
    REQUIRE(r.ok());
    CHECK(r->at(0).data<float>()[0] == 4);
  }
}

TEST_CASE("a resource kernel of a node without inputs is an error that says what it lacks") {
  UserEngine u;
  for (const char* device : {"/cpu:0", "/cpu:1"}) {
    const RunResult r = u.run(u.scope.device(device).op("AnswersOfNone", {}));
    refused(r, Code::kInvalidArgument, "no input 0 to be the handle");
    CHECK(r.error().op == "AnswersOfNone");
  }
  const RunResult later = u.run(u.scope.op("Answers", {u.scope.op("Tiresome", {})}));
  INFO((later.ok() ? "" : later.error().str()));
  CHECK(later.ok());
}

TEST_CASE("an op without inputs is computed in each iteration of a loop, traced or not") {
  UserEngine u;
  const Output sum = while_loop(
      u.scope, {u.scope.constant(0), u.scope.constant(0)},
      [](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], s.constant(3)});
      },
      [](const Scope& s, const Outputs& v) {
        return Outputs{s.op("AddV2", {v[0], s.constant(1)}), s.op("AddV2", {v[1], s.op("Ticks", {})})};
      })[1];
  for (const int expected : {6, 15, 24}) {
    RunOptions options{.deadline = 60s};
    if (expected == 15) options.trace = std::make_shared<Trace>();
    const RunResult r = u.session.run({sum}, options);
    INFO((r.ok() ? "" : r.error().str()));
    REQUIRE(r.ok());
    CHECK((*r)[0].data<int32_t>()[0] == expected);
  }
}

TEST_CASE("a kernel that derives from Kernel alone is an error that says what to derive from") {
  UserEngine u;
  for (int i = 0; i < 2; ++i) {
    const RunResult r = u.run(u.scope.named("bare").op("Bare", {}));
    refused(r, Code::kInternal, "must derive from ComputeKernel, ResourceKernel or BlockingKernel");
    CHECK(r.error().op == "Bare");
    CHECK(r.error().node == (i == 0 ? "bare" : "bare_1"));
  }
}

TEST_CASE("a kernel of another kind than its registration says is an error that names both") {
  UserEngine u;
  const RunResult untold = u.run(u.scope.op("Untold", {}));
  REQUIRE(untold.ok());
  CHECK((*untold)[0].data<float>()[0] == 2);
  for (int i = 0; i < 2; ++i) {
    const RunResult r = u.run(u.scope.named("mistold").op("Mistold", {}));
    refused(r, Code::kInternal, "its kernel is registered as blocking, but the one made is compute");
    CHECK(r.error().op == "Mistold");
    CHECK(r.error().node == (i == 0 ? "mistold" : "mistold_1"));
  }
}

TEST_CASE("a builtin kernel that a user's registration makes is an error that says what to derive from") {
  UserEngine u;
  const RunResult r = u.run(u.scope.named("mine").op("Builtin", {}));
  refused(r, Code::kInternal, "must derive from ComputeKernel, ResourceKernel or BlockingKernel");
  CHECK(r.error().op == "Builtin");
  CHECK(r.error().node == "mine");
}

TEST_CASE("what shareable() and a priority throw names the node") {
  UserEngine u;
  const RunResult r = u.run(u.scope.named("unsure").op("Unsure", {}));
  refused(r, Code::kInternal, "in shareable");
  CHECK(r.error().op == "Unsure");
  CHECK(r.error().node == "unsure");

  SessionOptions options;
  options.priority = [](const Node&) -> int { throw std::runtime_error("in a priority"); };
  Session session(*u.engine, u.graph, options);
  const Output size = u.scope.constant(Tensor::of<int32_t>({2}));
  const Output drawn = u.scope.named("drawn").op("RandomUniform", {size}, {{"dtype", DType::kFloat32}});
  const RunResult no_plan = session.run({drawn});
  refused(no_plan, Code::kInternal, "in a priority");
  CHECK(no_plan.error().node == "drawn");
  CHECK(no_plan.error().op == "RandomUniform");
}

/// A stage that does not know whether it waits.
struct Undecided final : Dataset::Stage {
  Result<std::unique_ptr<DatasetIterator>> iterate() const override { return make_error(Code::kInternal, "none"); }
  std::vector<DType> dtypes() const override { return {DType::kInt32}; }
  std::vector<PartialShape> shapes() const override { return {{}}; }
  bool may_wait() const override { throw std::runtime_error("in may_wait"); }
};

TEST_CASE("a dataset whose may_wait() throws is refused, and its name stays free") {
  UserEngine u;
  const Dataset undecided(std::make_shared<Undecided>());
  for (const Dataset& d : {undecided, undecided.repeat()}) {
    const Status added = u.engine->add_dataset("numbers", d);
    REQUIRE_FALSE(added.ok());
    CHECK_THAT(added.error().message, Catch::Contains("in may_wait"));
  }
  CHECK(u.engine->add_dataset("numbers", *Dataset::from_tensors({Tensor::of<int32_t>({1, 2})})).ok());
}

}  // namespace
}  // namespace troupe
