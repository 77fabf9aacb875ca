// SPDX-License-Identifier: Apache-2.0
// Where nodes may run: partial names, colocation, kernels, soft placement, and the errors of what cannot be.
#include <catch2/catch.hpp>

#include "plan/constraints.h"
#include "tests/graph/fake_ops.h"
#include "troupe/graph_def.h"

using namespace troupe;
using Catch::Contains;
using Devices = std::vector<uint32_t>;

namespace {

/// Two tasks of a job with two CPUs and a GPU each, and a parameter server:
/// 0 worker/0 cpu:0, 1 worker/0 cpu:1, 2 worker/0 gpu:0, 3-5 the same of task 1, 6 ps/0 cpu:0.
struct ClusterFixture : test::Fixture {
  ClusterFixture() {
    std::vector<std::string> names;
    for (int task : {0, 1})
      for (const char* device : {"cpu:0", "cpu:1", "gpu:0"})
        names.push_back(fmt::format("/job:worker/replica:0/task:{}/device:{}", task, device));
    names.push_back("/job:ps/replica:0/task:0/device:cpu:0");
    devices.emplace(*DeviceList::make(names));
    x = placeholder("x", {});
  }
  Output on(const std::string& name, const std::string& device) {
    return scope.named(name).device(device).op("Neg", {x});
  }
  Output with(const std::string& name, const std::vector<std::string>& others, const std::string& device = "") {
    std::vector<std::string> places;
    for (const std::string& other : others) places.push_back("loc:@" + other);
    return scope.named(name).device(device).op("Neg", {x}, {{"_class", places}});
  }
  Result<Constraints> find(std::vector<Output> fetches) {
    INFO((scope.ok() ? "" : scope.status().error().str()));
    REQUIRE(scope.ok());
    const StepGraph step(graph, std::span(&x, 1), fetches, {});
    return Constraints::find(graph, step, *devices, options);
  }
  Devices of(Output node) {
    auto found = find({node});
    INFO((found.ok() ? "" : found.error().str()));
    REQUIRE(found.ok());
    const auto where = found->devices(*node.node);
    return {where.begin(), where.end()};
  }
  Error error(std::vector<Output> fetches) {
    auto found = find(std::move(fetches));
    REQUIRE_FALSE(found.ok());
    return found.error();
  }

  std::optional<DeviceList> devices;
  ConstraintOptions options;
  Output x;
};

}  // namespace

TEST_CASE("device names in full and in part leave the devices they match") {
  ClusterFixture c;
  int i = 0;
  const auto of = [&](const std::string& device) { return c.of(c.on(fmt::format("n{}", i++), device)); };
  CHECK(of("") == Devices{0, 1, 2, 3, 4, 5, 6});
  CHECK(of("/job:worker/task:1/device:gpu:0") == Devices{5});
  CHECK(of("/job:worker/replica:0/task:0/device:CPU:1") == Devices{1});
  CHECK(of("/gpu:0") == Devices{2, 5});
  CHECK(of("/device:gpu:*") == Devices{2, 5});
  CHECK(of("/job:ps") == Devices{6});
  CHECK(of("/task:1") == Devices{3, 4, 5});
  CHECK(of("/job:worker/task:1") == Devices{3, 4, 5});
  CHECK(of("/job:worker/device:cpu:*") == Devices{0, 1, 3, 4});
  CHECK(of("/device:*:1") == Devices{1, 4});
}

TEST_CASE("by hand a node goes to the default device, or to the first that it asks for") {
  ClusterFixture c;
  c.options.default_device = 4;
  const Output free = c.on("free", ""), gpu = c.on("gpu", "/gpu:*"), cpus = c.on("cpus", "/cpu:*"),
               with = c.with("with", {"gpu"});
  auto found = c.find({free, gpu, cpus, with});
  REQUIRE(found.ok());
  CHECK(found->by_hand(*free.node) == 4);
  CHECK(found->by_hand(*gpu.node) == 2);
  CHECK(found->by_hand(*cpus.node) == 0);
  CHECK(found->by_hand(*with.node) == 2);
  CHECK_FALSE(found->constrained(*free.node));
  CHECK(found->constrained(*with.node));
  CHECK(found->asker(*with.node) == gpu.node);
  CHECK(found->asker(*free.node) == nullptr);
}

TEST_CASE("nodes of a chain of colocations go where all that they ask for agrees") {
  ClusterFixture c;
  const Output a = c.on("a", "/job:worker"), b = c.with("b", {"a"}), d = c.with("d", {"b"}, "/cpu:1"),
               e = c.with("e", {"d"}, "/task:1"), other = c.on("other", "");
  auto found = c.find({a, b, d, e, other});
  REQUIRE(found.ok());
  for (const Output& o : {a, b, d, e}) {
    CHECK(found->group(*o.node) == found->group(*a.node));
    CHECK(found->devices(*o.node).size() == 1);
    CHECK(found->devices(*o.node)[0] == 4);
  }
  CHECK(found->group(*other.node) != found->group(*a.node));
}

TEST_CASE("a node may be with one that the step does not need, and with several") {
  ClusterFixture c;
  c.on("gone", "/job:worker/task:1");
  c.with("between", {"gone"}, "/device:cpu:*");
  c.on("ps", "/device:*:1");
  CHECK(c.of(c.with("n", {"between"})) == Devices{3, 4});
  CHECK(c.of(c.with("both", {"between", "ps"})) == Devices{4});
}

TEST_CASE("Scope::colocate puts nodes where another goes, whatever the scope's device") {
  ClusterFixture c;
  const Output a = c.on("a", "/job:ps");
  const Output b = c.scope.device("/gpu:0").colocate(a.node).named("b").op("Neg", {c.x});
  CHECK(*b.node->attrs().get<std::vector<std::string>>("_class") == std::vector<std::string>{"loc:@a"});
  CHECK(b.node->device().empty());
  CHECK(c.of(b) == Devices{6});
  CHECK(c.scope.colocate(nullptr).op("Neg", {c.x}).node->attrs().find("_class") == nullptr);
  const Output wrong = c.scope.colocate(a.node).device("/job:worker").named("wrong").op("Neg", {c.x});
  CHECK(c.error({wrong}).code == Code::kInvalidArgument);
}

TEST_CASE("colocation in a GraphDef goes by the names that its nodes get: of an import, of a call of a function") {
  const char* const text = R"(
      node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } }
      node { name: 'a' op: 'Neg' input: 'x' device: '/job:ps' attr { key: 'T' value { type: DT_FLOAT } } }
      node { name: 'b' op: 'Neg' input: 'a' attr { key: 'T' value { type: DT_FLOAT } }
             attr { key: '_class' value { list { s: 'loc:@a' } } } }
      node { name: 'call' op: 'f' input: 'b' }
      library { function {
        signature { name: 'f' input_arg { name: 'i' type: DT_FLOAT } output_arg { name: 'o' type: DT_FLOAT } }
        node_def { name: 'n' op: 'Neg' input: 'i' device: '/task:1' attr { key: 'T' value { type: DT_FLOAT } } }
        node_def { name: 'm' op: 'Neg' input: 'n:y:0' attr { key: 'T' value { type: DT_FLOAT } }
                   attr { key: '_class' value { list { s: 'loc:@n' } } } }
        ret { key: 'o' value: 'm:y:0' } } })";
  ClusterFixture c;
  c.ops.add(OpDef("IdentityN")
                .input("input: T")
                .output("output: T")
                .attr("T: list(type) >= 1")
                .doc("Themselves.")
                .shape([](ShapeContext& s) -> Status {
                  for (int i = 0; i < s.num_outputs(); ++i) s.set_output(i, s.input(i));
                  return {};
                }),
            not_differentiable("it is not needed in these tests"));
  const Status read = from_graph_def(text, c.graph, "copy");
  INFO((read.ok() ? "" : read.error().str()));
  REQUIRE(read.ok());
  CHECK(c.of(c.graph.find("copy/b")->out()) == Devices{6});
  CHECK(c.of(c.graph.find("copy/call/m")->out()) == Devices{3, 4, 5});
}

TEST_CASE("what cannot be together is an error with all nodes of the group and what they ask for") {
  ClusterFixture c;
  c.on("first", "/job:worker/task:0");
  c.with("second", {"first"});
  const Error error = c.error({c.on("unrelated", "/job:ps"), c.with("third", {"second"}, "/task:1/cpu:0")});
  CHECK(error.code == Code::kInvalidArgument);
  for (const char* part : {"'first' asks for /job:worker/task:0", "'second' is with 'first'",
                           "'third' asks for /task:1/cpu:0 and is with 'second'", "/task:0", "/task:1"})
    CHECK_THAT(error.message, Contains(part));
  CHECK_THAT(error.message, !Contains("unrelated"));
  CHECK(!error.node.empty());
}

TEST_CASE("a device that is not there is an error with those there are") {
  ClusterFixture c;
  const Error error = c.error({c.on("far", "/gpu:7")});
  CHECK(error.code == Code::kNotFound);
  CHECK(error.node == "far");
  CHECK_THAT(error.message, Contains("/gpu:7") && Contains("/job:ps/replica:0/task:0/device:cpu:0"));
  // Each alone is there, both together are not.
  c.on("ps", "/job:ps");
  const Error both = c.error({c.with("gpu", {"ps"}, "/gpu:0")});
  CHECK(both.code == Code::kNotFound);
  CHECK_THAT(both.message, Contains("/job:ps/device:gpu:0") && Contains("'ps'") && Contains("'gpu'"));
  CHECK(c.error({c.on("bad", "/cpu:x")}).node == "bad");
  const Error missing = c.error({c.with("alone", {"firts"})});
  CHECK(missing.code == Code::kNotFound);
  CHECK_THAT(missing.message, Contains("'firts'"));
}

TEST_CASE("kernels leave the kinds of devices that have one") {
  ClusterFixture c;
  c.options.has_kernel = [](const Node& node, const std::string& kind) {
    return node.name().starts_with("nowhere") ? false : node.name().starts_with(kind) || kind == "cpu";
  };
  CHECK(c.of(c.on("free", "")) == Devices{0, 1, 3, 4, 6});
  CHECK(c.of(c.on("gpu_free", "")) == Devices{0, 1, 2, 3, 4, 5, 6});
  CHECK(c.of(c.on("gpu", "/gpu:*")) == Devices{2, 5});
  CHECK(c.of(c.on("task", "/task:1")) == Devices{3, 4});
  // No kernel there, or nowhere: who makes kernels says so.
  CHECK(c.of(c.on("cpu", "/gpu:0")) == Devices{2, 5});
  CHECK(c.of(c.on("nowhere", "/task:1")) == Devices{3, 4, 5});
  c.options.has_kernel = [](const Node& node, const std::string& kind) {
    return node.op().name() != "Neg" || node.name().starts_with(kind);
  };
  c.on("gpu_a", "");
  const Error error = c.error({c.with("cpu_b", {"gpu_a"})});
  CHECK(error.code == Code::kInvalidArgument);
  CHECK_THAT(error.message, Contains("kernels") && Contains("'gpu_a'") && Contains("'cpu_b'"));
}

TEST_CASE("soft placement finds the nearest device where there is none, and only if asked") {
  ClusterFixture c;
  c.options.default_device = 1;
  c.options.has_kernel = [](const Node&, const std::string& kind) { return kind == "cpu"; };
  CHECK_FALSE(c.find({c.on("strict", "/tpu:0")}).ok());
  c.options.soft = true;
  CHECK(c.of(c.on("kind", "/job:chief/task:3/device:cpu:1")) == Devices{1, 4});
  CHECK(c.of(c.on("none", "/tpu:0")) == Devices{0, 1, 3, 4, 6});
  const Output gpu = c.on("gpu", "/job:worker/task:1/gpu:0");  // is there, but has no kernel
  CHECK(c.of(gpu) == Devices{0, 1, 3, 4, 6});
  auto found = c.find({gpu});
  CHECK(found->by_hand(*gpu.node) == 1);
  // The first counts.
  c.on("first", "/cpu:1");
  CHECK(c.of(c.with("second", {"first"}, "/job:ps/cpu:0")) == Devices{1, 4});
  // With a node that is not there: together all the same.
  const Output a = c.with("a", {"lost"}, "/job:ps"), b = c.with("b", {"lost"});
  found = c.find({a, b});
  REQUIRE(found.ok());
  CHECK(found->group(*a.node) == found->group(*b.node));
  CHECK(found->devices(*b.node)[0] == 6);
  CHECK_FALSE(c.find({c.on("bad", "/cpu:x")}).ok());
}

TEST_CASE("a wish to be together yields to constraints") {
  ClusterFixture c;
  const Output a = c.on("a", "/task:1"), b = c.on("b", "/cpu:*"), d = c.on("d", "/gpu:*"), e = c.on("e", "");
  auto found = c.find({a, b, d, e});
  REQUIRE(found.ok());
  CHECK(found->join(*a.node, *b.node));
  CHECK(found->devices(*a.node).size() == 2);
  CHECK(found->devices(*b.node)[0] == 3);
  CHECK_FALSE(found->join(*d.node, *b.node));
  CHECK(found->devices(*d.node).size() == 2);
  CHECK(found->join(*e.node, *a.node));
  CHECK(found->join(*e.node, *b.node));
  CHECK(found->devices(*e.node)[1] == 4);
}

TEST_CASE("lists of devices want full names") {
  const std::vector<std::string> partial = {"/cpu:0"}, bad = {"/job:"};
  CHECK_FALSE(DeviceList::make(partial).ok());
  CHECK_FALSE(DeviceList::make(bad).ok());
  CHECK_FALSE(DeviceList::make({}).ok());
}
