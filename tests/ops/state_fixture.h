// SPDX-License-Identifier: Apache-2.0
// Runs ops on resources without actors: nodes go through a graph, kernels through the registry, hosts are kept here.
#pragma once
#include <variant>

#include "tests/op_library.h"
#include "tests/ops/fake_host.h"
#include "tests/queues/recording_sink.h"
#include "troupe/graph.h"

namespace troupe {

/// The types of what queues and barriers hold, and the attributes of ops that take it.
inline const std::vector<DType> kTypes{DType::kFloat32, DType::kInt32};
inline const Attrs kTaken{{"component_types", kTypes}};

class StateFixture {
 public:
  /// An input of a node: a handle made by handle(), or a value.
  struct Arg {
    Output output;
    Tensor value;
    Arg(Output output, Tensor value) : output(output), value(std::move(value)) {}
    Arg(Tensor value) : value(std::move(value)) {}
  };

  /// The handle that an op makes from constants; its host is made with it, unless it is there.
  Result<Arg> try_handle(const std::string& op, const std::string& name, Attrs attrs,
                         const std::vector<Tensor>& inputs = {}) {
    NodeSpec spec{op, name, {}, std::move(attrs)};
    for (const Tensor& input : inputs) {
      TROUPE_ASSIGN(const Output constant, this->constant(input));
      spec.inputs.push_back(constant);
    }
    TROUPE_ASSIGN(const Node* node, graph.add(std::move(spec)));
    TROUPE_ASSIGN(auto kernel, make(*node));
    std::vector<Tensor> values = inputs;
    values.emplace_back();
    const std::vector<int32_t> uses(values.size(), 1);
    std::vector<uint32_t> slots(inputs.size());
    std::iota(slots.begin(), slots.end(), 0);
    const auto n = static_cast<int>(inputs.size());
    const DeviceInfo device{"cpu", DeviceKind::kCpu, 1, system_allocator()};
    KernelContext context(values.data(), uses.data(), slots.data(), n, static_cast<uint32_t>(n), 1, device, 1);
    TROUPE_RETURN_IF_ERROR(dynamic_cast<ComputeKernel&>(*kernel).compute(context));
    const ResourceHandle& h = *values.back().data<ResourceRef>()[0];
    auto& made = hosts[h.host_key()];
    if (!made && h.factory) {
      made = h.factory().value();
      if (auto* hosted = dynamic_cast<HostedResource*>(made.get())) hosted->attach(host);
    }
    return Arg{node->out(), values.back()};
  }
  Arg handle(const std::string& op, const std::string& name, Attrs attrs, const std::vector<Tensor>& inputs = {}) {
    auto made = try_handle(op, name, std::move(attrs), inputs);
    if (!made.ok()) FAIL(made.error().str());
    return *made;
  }
  Arg variable(const std::string& name, PartialShape shape = {}, DType dtype = DType::kFloat32) {
    return handle("VarHandleOp", name, {{"dtype", dtype}, {"shape", shape}});
  }

  /// Adds a node, sends its request to the host of input 0 and returns the request's number in `sink`.
  Result<uint32_t> ask(const std::string& op, std::vector<Arg> args, Attrs attrs = {}, int64_t step = 1) {
    NodeSpec spec{op, graph.unique_name(op), {}, std::move(attrs)};
    for (Arg& arg : args) {
      if (!arg.output) {
        TROUPE_ASSIGN(arg.output, constant(arg.value));
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
  /// ask(), answered at once or when a job that it gave its host has run.
  Result<std::vector<Tensor>> run(const std::string& op, std::vector<Arg> args, Attrs attrs = {}) {
    const Tensor handle = args.empty() ? Tensor() : args[0].value;
    TROUPE_ASSIGN(const uint32_t request, ask(op, std::move(args), std::move(attrs)));
    if (!sink.answered(request) && !host.jobs.empty()) host.run_job(hosted(handle));
    REQUIRE(sink.answered(request));
    return sink.answers.at(request);
  }
  /// The resource that `handle` names, as one that asks its host.
  HostedResource& hosted(const Tensor& handle) {
    return dynamic_cast<HostedResource&>(*hosts.at(handle.data<ResourceRef>()[0]->host_key()));
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

  OpRegistry ops = testing::op_library()->ops;
  KernelRegistry kernels = testing::op_library()->kernels;
  Graph graph{ops};
  RecordingSink sink;
  FakeHost host;                                           // of all that ask one
  std::map<std::string, std::unique_ptr<Resource>> hosts;  // after sink: what waits is answered as they go
  const Node* last_node = nullptr;

 private:
  Result<Output> constant(const Tensor& value) {
    TROUPE_ASSIGN(const Node* node,
                  graph.add({"Const", graph.unique_name("const"), {}, {{"value", value}, {"dtype", value.dtype()}}}));
    return node->out();
  }
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
