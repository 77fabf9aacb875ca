// SPDX-License-Identifier: Apache-2.0
// Which long short-term memories lose their gates, and which keep them.
#include "graph/passes/drop_gates.h"

#include "tests/graph/passes/pass_fixture.h"

using namespace troupe;

namespace {

struct MemoryFixture : test::PassFixture {
  const Node* memory(const std::string& op, DType dtype = DType::kFloat32, Attrs attrs = {}) {
    std::vector<Output> in = {s.constant(Tensor::scalar<int64_t>(4))};
    for (const PartialShape& shape : {PartialShape{4, 2, 3}, {2, 5}, {2, 5}, {8, 20}, {5}, {5}, {5}, {20}})
      in.push_back(placeholder("", shape, dtype));
    return s.node(op, std::move(in), std::move(attrs));
  }
  std::string dropped(Output fetch, std::vector<Output> fed = {}, const PassDevices& devices = {}) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, fed, {&fetch, 1}, {});
    GateDropping pass(step, devices);
    step.sweep([&](const Node& node) { pass.visit(node); });
    step.drop_unneeded();
    const Output now = step.now(fetch);
    const Output read = now.node->inputs().empty() || now.node->op().name().find("LSTM") != std::string::npos
                            ? now
                            : step.now(now.node->inputs()[0]);
    return fmt::format("{}:{}", read.node->op().name(), read.port);
  }
};

}  // namespace

TEST_CASE("a memory of which only cells and results are read leaves out its gates") {
  for (const std::string op : {"BlockLSTM", "BlockLSTMV2"}) {
    MemoryFixture f;
    const Node* node = f.memory(op, DType::kFloat32, {{"cell_clip", 2.0f}, {"use_peephole", true}});
    CHECK(f.dropped(f.s.op("Relu", {node->out(6)})) == "_BlockLSTMStates:1");
    CHECK(f.dropped(f.s.op("Relu", {node->out(1)})) == "_BlockLSTMStates:0");
    CHECK(f.dropped(node->out(6)) == "_BlockLSTMStates:1");
    const Output fetch = node->out(6);
    StepGraph step(f.graph, {}, {&fetch, 1}, {});
    GateDropping pass(step, {});
    step.sweep([&](const Node& each) { pass.visit(each); });
    const Node& made = *step.now(fetch).node;
    CHECK(made.name() == node->name());
    CHECK(made.inputs() == node->inputs());
    CHECK(made.attrs().at<std::string>("op") == op);
    CHECK(made.attrs().at<float>("cell_clip") == 2.0f);
    CHECK(made.attrs().at<float>("forget_bias") == (op == "BlockLSTM" ? 1.0f : 0.0f));
    CHECK(made.attrs().at<bool>("use_peephole"));
    CHECK(step.shape(step.now(fetch)).str() == fetch.shape().str());
  }
}

TEST_CASE("a memory keeps gates that are read, fetched or fed, of other types, and on GPUs") {
  MemoryFixture f;
  const Node* node = f.memory("BlockLSTM");
  CHECK(f.dropped(f.s.op("AddV2", {node->out(6), node->out(3)})) == "BlockLSTM:6");
  CHECK(f.dropped(node->out(0)) == "BlockLSTM:0");
  CHECK(f.dropped(f.s.op("Relu", {node->out(6)}), {node->out(1)}) == "BlockLSTM:6");
  CHECK(f.dropped(f.s.op("Relu", {node->out(6)}), {}, {.on_gpu = [](const Node&) { return true; }}) == "BlockLSTM:6");
  const Node* half = f.memory("BlockLSTM", DType::kFloat16);
  CHECK(f.dropped(f.s.op("Relu", {half->out(6)})) == "BlockLSTM:6");
  const Scope after = f.s.after({f.placeholder("other", {}).node});
  std::vector<Output> in = node->inputs();
  const Node* waits = after.node("BlockLSTM", in);
  CHECK(f.dropped(f.s.op("Relu", {waits->out(6)})) == "BlockLSTM:6");
}
