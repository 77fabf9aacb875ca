// SPDX-License-Identifier: Apache-2.0
// Runs ops on resources without actors: nodes go through a graph, kernels through the registry, hosts are kept here.
#pragma once
#include <variant>

#include "ops/all.h"
#include "tests/queues/recording_sink.h"
#include "troupe/graph.h"

namespace troupe {

class StateFixture {
 public:
  /// An input of a node: a handle made by handle(), or a value.
  struct Arg {
    Output output;
    Tensor value;
    Arg(Output output, Tensor value) : output(output), value(std::move(value)) {}
    Arg(Tensor value) : value(std::move(value)) {}
  };

  StateFixture() { register_all_ops(ops, kernels); }

  /// The handle that an op without inputs makes; its host is made with it.
  Arg handle(const std::string& op, const std::string& name, Attrs attrs) {
    auto node = graph.add({op, name, {}, std::move(attrs)});
    if (!node.ok()) FAIL(node.error().str());
    auto kernel = make(**node);
    if (!kernel.ok()) FAIL(kernel.error().str());
    Tensor value;
    const int32_t uses = 1;
    const DeviceInfo device{"cpu", DeviceKind::kCpu, 1, system_allocator()};
    KernelContext context(&value, &uses, nullptr, 0, 0, 1, device, 1);
    REQUIRE(dynamic_cast<ComputeKernel&>(**kernel).compute(context).ok());
    const ResourceHandle& h = *value.data<ResourceRef>()[0];
    if (!hosts[h.host_key()] && h.factory) hosts[h.host_key()] = h.factory().value();
    return {(*node)->out(), value};
  }
  Arg variable(const std::string& name, PartialShape shape = {}, DType dtype = DType::kFloat32) {
    return handle("VarHandleOp", name, {{"dtype", dtype}, {"shape", shape}});
  }

  /// Adds a node, sends its request to the host of input 0 and returns the request's number in `sink`.
  Result<uint32_t> ask(const std::string& op, std::vector<Arg> args, Attrs attrs = {}, int64_t step = 1) {
    NodeSpec spec{op, graph.unique_name(op), {}, std::move(attrs)};
    for (Arg& arg : args) {
      if (!arg.output) {
        auto constant =
            graph.add({"Const", graph.unique_name("const"), {}, {{"value", arg.value}, {"dtype", arg.value.dtype()}}});
        if (!constant.ok()) FAIL(constant.error().str());
        arg.output = (*constant)->out();
      }
      spec.inputs.push_back(arg.output);
    }
    TROUPE_ASSIGN(last_node, graph.add(std::move(spec)));
    TROUPE_ASSIGN(auto kernel, make(*last_node));
    ResourceRequest request;
    for (Arg& arg : args) request.inputs.push_back(arg.value);
    request.allocator = system_allocator();
    request.reply = sink.reply(1, step);
    Resource& host = *hosts.at(request.handle().host_key());
    dynamic_cast<ResourceKernel&>(*kernel).execute(host, std::move(request));
    return sink.last();
  }
  /// ask(), answered at once.
  Result<std::vector<Tensor>> run(const std::string& op, std::vector<Arg> args, Attrs attrs = {}) {
    TROUPE_ASSIGN(const uint32_t request, ask(op, std::move(args), std::move(attrs)));
    REQUIRE(sink.answered(request));
    return sink.answers.at(request);
  }
  Tensor read(const Arg& variable) {
    auto out = run("ReadVariableOp", {variable}, {{"dtype", variable.value.data<ResourceRef>()[0]->dtype}});
    if (!out.ok()) FAIL(out.error().str());
    return out->at(0);
  }
  void assign(const Arg& variable, Tensor value) {
    const auto out = run("AssignVariableOp", {variable, value});
    if (!out.ok()) FAIL(out.error().str());
  }

  OpRegistry ops;
  KernelRegistry kernels;
  Graph graph{ops};
  RecordingSink sink;
  std::map<std::string, std::unique_ptr<Resource>> hosts;  // after sink: what waits is answered as they go
  const Node* last_node = nullptr;

 private:
  Result<std::unique_ptr<Kernel>> make(const Node& node) {
    KernelInit init{node.op().name(), node.name(), &node.attrs(), {}, {}, {}, {}};
    for (const Output& in : node.inputs()) {
      init.input_dtypes.push_back(in.dtype());
      init.input_shapes.push_back(in.shape());
      init.constants.emplace_back();
    }
    for (int i = 0; i < node.num_outputs(); ++i) init.output_dtypes.push_back(node.dtype(i));
    return kernels.make(init, DeviceKind::kCpu);
  }
};

}  // namespace troupe
