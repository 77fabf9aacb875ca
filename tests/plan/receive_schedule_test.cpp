// SPDX-License-Identifier: Apache-2.0
// What is held back until when, by given times: a chain of products on device 1 reads weights that device 0 makes.
#include "plan/receive_schedule.h"

#include <catch2/catch.hpp>

#include <set>

#include "tests/op_library.h"
#include "troupe/scope.h"

using namespace troupe;

namespace {

constexpr double kMicrosecond = 1000;

struct Weights {
  Output read(const std::string& name, int64_t size = 256) {
    handles.push_back(first.op(
        "VarHandleOp", {}, {{"dtype", DType::kFloat64}, {"shape", PartialShape{size, size}}, {"shared_name", name}}));
    return first.op("ReadVariableOp", {handles.back()}, {{"dtype", DType::kFloat64}});
  }
  Output weight(int i, int64_t size = 256) {
    reads.push_back(read("w" + std::to_string(i), size));
    return first.op("Cast", {reads.back()}, {{"DstT", DType::kFloat32}});
  }
  /// Products, each of the one before and of what make(i) returns.
  void chain(int count, const std::function<Output(int)>& make, int64_t size = 256) {
    Output x =
        second.op("Fill", {scope.constant(Tensor::of<int32_t>({64, static_cast<int32_t>(size)})), scope.constant(1.f)});
    for (int i = 0; i < count; ++i) products.push_back(x = second.op("MatMul", {x, make(i)}));
  }
  ReceiveSchedule schedule(std::vector<Output> fetches, std::vector<const Node*> targets = {},
                           bool compressed = false) {
    INFO((scope.ok() ? "" : scope.status().error().str()));
    REQUIRE(scope.ok());
    const StepGraph step(graph, {}, fetches, targets);
    const Frames frames = *find_frames(step);
    std::vector<uint32_t> devices(static_cast<size_t>(step.ids()));
    for (const Node* node : step.nodes())
      devices[static_cast<size_t>(node->id())] =
          node->device().empty() ? 0 : static_cast<uint32_t>(node->device().back() - '0');
    return schedule_receives(
        {step, frames, devices,
         [](const Node& node) {
           return (node.op().name() == "MatMul" ? 100 : node.op().name() == "Cast" ? 10 : 1) * kMicrosecond;
         },
         [&](const Output&) { return compressed ? 20 * kMicrosecond : 0; }});
  }
  int index_of(const Node* product) const {
    return static_cast<int>(std::ranges::find(products, product, &Output::node) - products.begin());
  }

  OpRegistry ops = testing::op_library()->ops;
  KernelRegistry kernels = testing::op_library()->kernels;
  Graph graph{ops};
  Scope scope{graph}, first = scope.device("/cpu:0"), second = scope.device("/cpu:1"), third = scope.device("/cpu:2");
  std::vector<Output> handles, reads, products;
};

}  // namespace

TEST_CASE("weights are read shortly before the products that need them") {
  Weights t;
  t.chain(8, [&](int i) { return t.weight(i); });
  const ReceiveSchedule schedule = t.schedule({t.products.back()});
  CHECK(schedule.expanded.empty());
  REQUIRE(schedule.made.size() == 6);
  for (size_t k = 0; k < 6; ++k) {
    // To cast and to send one takes 38 us, and each product 100.
    CHECK(schedule.made[k].node == t.reads[k + 2].node);
    CHECK(schedule.made[k].until == t.products[k].node);
  }
}

TEST_CASE("what is expanded waits for its reader, also where making it late is not possible") {
  Weights t;
  t.chain(6, [&](int i) { return t.weight(i); });
  const Output also = t.first.op("AddN", [&] {
    std::vector<Output> all;
    for (const Output& p : t.products) all.push_back(p.node->inputs()[1]);
    return all;
  }());
  const ReceiveSchedule schedule = t.schedule({t.products.back(), also}, {}, true);
  CHECK(schedule.made.empty());
  REQUIRE(schedule.expanded.size() == 4);
  for (size_t k = 0; k < 4; ++k) {
    CHECK(schedule.expanded[k].what == t.products[k + 2].node->inputs()[1]);
    CHECK(schedule.expanded[k].device == 1);
    CHECK(schedule.expanded[k].until == t.products[k].node);
  }
}

TEST_CASE("nothing small, and nothing that others need too, is held back") {
  Weights small;
  small.chain(
      8, [&](int i) { return small.weight(i, 64); }, 64);
  CHECK(small.schedule({small.products.back()}).made.empty());

  Weights shared;
  std::vector<Output> elsewhere;
  shared.chain(8, [&](int i) {
    const Output w = shared.weight(i);
    if (i % 3 == 0) elsewhere.push_back(shared.third.op("Neg", {w}));                            // by a third device
    if (i % 3 == 1) elsewhere.push_back(w);                                                      // fetched
    if (i % 3 == 2) elsewhere.push_back(shared.first.op("Sum", {w, shared.first.constant(0)}));  // by its own
    return w;
  });
  elsewhere.push_back(shared.products.back());
  for (const auto& made : shared.schedule(elsewhere).made) {
    // The variable may be read early as well: its value is there anyway.
    CHECK(made.node->op().name() != "ReadVariableOp");
    FAIL_CHECK(made.node->name());
  }
}

TEST_CASE("a variable is not read later than what changes it") {
  Weights t;
  t.chain(8, [&](int i) { return t.weight(i); });
  const Output value = t.first.op("Neg", {t.first.op("Cast", {t.read("other")}, {{"DstT", DType::kFloat32}})});
  const Output wide = t.first.op("Cast", {value}, {{"DstT", DType::kFloat64}});
  std::vector<const Node*> updates;
  for (int i = 0; i < 8; ++i) {
    const Output handle = t.handles[static_cast<size_t>(i)];
    if (i % 2) {
      updates.push_back(t.first.node("AssignVariableOp", {handle, wide}));  // at any time
    } else {
      const Scope after = t.first.after({t.products[static_cast<size_t>(i)]});
      updates.push_back(after.node("AssignVariableOp", {handle, wide}));
    }
  }
  std::set<const Node*> made;
  for (const auto& each : t.schedule({t.products.back()}, updates).made) made.insert(each.node);
  for (size_t i = 2; i < 8; ++i) CHECK(made.contains(t.reads[i].node) == (i % 2 == 0));
}
