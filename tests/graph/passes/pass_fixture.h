// SPDX-License-Identifier: Apache-2.0
// A graph of the real ops, and what passes make of a step of it, as text.
#pragma once
#include <catch2/catch.hpp>

#include "graph/passes/passes.h"
#include "tests/op_library.h"
#include "troupe/scope.h"

namespace troupe {

using Outputs = std::vector<Output>;

namespace test {

struct RealOps : OpLibrary {
  RealOps() : OpLibrary(*testing::op_library()) {}
};

struct PassFixture : RealOps {
  Graph graph{ops};
  Scope s{graph};

  Output placeholder(const std::string& name, PartialShape shape, DType dtype = DType::kFloat32) {
    return s.named(name).op("Placeholder", {}, {{"dtype", dtype}, {"shape", std::move(shape)}});
  }

  /// One pass and no other.
  static GraphPasses only(bool GraphPasses::*pass) {
    GraphPasses passes = GraphPasses::none();
    passes.*pass = true;
    return passes;
  }

  /// What stands for `fetch` after the passes: "Mul(x, Const)", Placeholders by their names, port p of a node as ":p".
  std::string after(const GraphPasses& passes, Output fetch, std::vector<Output> fed = {}, Evaluate evaluate = {}) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, fed, {&fetch, 1}, {});
    if (!evaluate) evaluate = [this](const Node& n, std::span<const Tensor> in) { return compute(n, in); };
    run_passes(step, passes, evaluate);
    return text(step, fetch);
  }
  /// What stands for the fetches once products have taken what they can, where all nodes run on a GPU or on none.
  std::vector<std::string> with_epilogues(StepGraph& step, const Outputs& fetches, bool on_gpu) const {
    run_device_passes(step, only(&GraphPasses::fuse_epilogues),
                      {.has_kernel = [](const Node&, const std::string&, const Attrs&) { return true; },
                       .on_gpu = [on_gpu](const Node&) { return on_gpu; }});
    std::vector<std::string> out;
    for (const Output& fetch : fetches) out.push_back(text(step, fetch));
    return out;
  }
  std::string text(const StepGraph& step, Output o) const {
    o = step.now(o);
    std::string out = o.node->op().name();
    if (out == "Placeholder" || step.is_fed(o)) out = o.node->name();
    else if (const Tensor* value = step.constant(o)) out = value->str(4);
    else if (!o.node->inputs().empty()) {
      out += "(";
      for (const Output& in : o.node->inputs()) out += (out.back() == '(' ? "" : ", ") + text(step, in);
      out += ")";
    }
    return o.port ? fmt::format("{}:{}", out, o.port) : out;
  }

  /// The outputs of one node by its kernel; none where it fails.
  std::optional<std::vector<Tensor>> compute(const Node& node, std::span<const Tensor> inputs) const {
    KernelInit init{node.op().name(), node.name(), &node.attrs(), {}, {}, {}, {inputs.begin(), inputs.end()}};
    for (const Tensor& in : inputs) {
      init.input_dtypes.push_back(in.dtype());
      init.input_shapes.push_back(in.shape());
    }
    for (int i = 0; i < node.num_outputs(); ++i) init.output_dtypes.push_back(node.dtype(i));
    auto kernel = kernels.make(init, DeviceKind::kCpu);
    auto* compute = kernel.ok() ? dynamic_cast<ComputeKernel*>(kernel->get()) : nullptr;
    if (!compute) return {};
    std::vector<Tensor> values(inputs.begin(), inputs.end());
    std::vector<uint32_t> slots;
    for (uint32_t i = 0; i < inputs.size(); ++i) slots.push_back(i);
    const std::vector<int32_t> uses(inputs.size(), 2);
    values.resize(inputs.size() + static_cast<size_t>(node.num_outputs()));
    const DeviceInfo device{"test", DeviceKind::kCpu, 1, system_allocator()};
    KernelContext context(values.data(), uses.data(), slots.data(), static_cast<int>(inputs.size()),
                          static_cast<uint32_t>(inputs.size()), node.num_outputs(), device, 0);
    if (!compute->compute(context).ok()) return {};
    return std::vector<Tensor>(values.begin() + static_cast<long>(inputs.size()), values.end());
  }
};

}  // namespace test
}  // namespace troupe
