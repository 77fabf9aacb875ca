// SPDX-License-Identifier: Apache-2.0
// A small interpreter of graphs for tests: evaluates nodes in topological order, one at a time, with the real kernels.
// It keeps resources between calls and reuses buffers by the executor's rules.
#pragma once
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "devices/parallel.h"
#include "tests/op_library.h"
#include "tests/ops/guarded_allocator.h"
#include "troupe/blocking_kernel.h"
#include "troupe/graph.h"
#include "troupe/scope.h"

namespace troupe::testing {

/// Evaluates graphs. Resources live as long as the evaluator; kernels are made once for each node.
class Evaluator {
 public:
  explicit Evaluator(int threads = 1, const OpLibrary& library = *op_library()) : library_(library) {
    device_.name = "/job:localhost/task:0/device:cpu:0";
    device_.threads = threads;
    device_.allocator = own_allocator(new GuardedAllocator);
  }

  /// The values of `fetches`, with `feeds` in place of what they name. `targets` run as well. Errors name op and node.
  Result<std::vector<Tensor>> run(const std::vector<Output>& fetches,
                                  const std::vector<std::pair<Output, Tensor>>& feeds = {},
                                  const std::vector<const Node*>& targets = {}) {
    set_team(device_.threads);
    std::vector<const Node*> order;
    std::set<const Node*> seen;
    std::map<std::pair<int, int>, Tensor> fed;
    for (const auto& [output, value] : feeds) fed[{output.node->id(), output.port}] = value;
    for (const Output& f : fetches) {
      if (!f) return invalid_argument("an empty output was fetched");
      if (!fed.count({f.node->id(), f.port})) visit(f.node, fed, seen, order);
    }
    for (const Node* t : targets) visit(t, fed, seen, order);

    // Slots: one for each output, in order of execution; uses as the executor counts them.
    std::map<std::pair<int, int>, uint32_t> slot;
    uint32_t slots = 0;
    for (const auto& [key, value] : fed) slot[key] = slots++;
    std::unordered_map<const Node*, uint32_t> first;
    for (const Node* n : order) {
      first[n] = slots;
      for (int p = 0; p < n->num_outputs(); ++p, ++slots) slot.try_emplace({n->id(), p}, slots);
    }
    std::vector<Tensor> values(slots);
    std::vector<int32_t> uses(slots, 0);
    for (const auto& [key, value] : fed) values[slot[key]] = value;
    for (const Node* n : order) {
      std::set<uint32_t> wanted;
      for (const Output& in : n->inputs()) wanted.insert(slot.at({in.node->id(), in.port}));
      for (uint32_t s : wanted) ++uses[s];
    }
    for (const Output& f : fetches) ++uses[slot.at({f.node->id(), f.port})];

    for (const Node* n : order) {
      std::vector<uint32_t> inputs;
      for (const Output& in : n->inputs()) inputs.push_back(slot.at({in.node->id(), in.port}));
      if (Status s = execute(*n, values.data(), uses.data(), inputs, first[n]); !s.ok()) {
        s.error().op = n->op().name();
        s.error().node = n->name();
        return std::move(s.error());
      }
      const std::set<uint32_t> done(inputs.begin(), inputs.end());
      for (uint32_t s : done)
        if (--uses[s] == 0) values[s] = Tensor();
    }
    std::vector<Tensor> out;
    for (const Output& f : fetches) out.push_back(values[slot.at({f.node->id(), f.port})]);
    return out;
  }

  /// One value; an undefined tensor and a message on stderr where it fails.
  Tensor value(Output fetch, const std::vector<std::pair<Output, Tensor>>& feeds = {}) {
    auto r = run({fetch}, feeds);
    if (r.ok()) return std::move((*r)[0]);
    fmt::print(stderr, "{}\n", r.error().str());
    return {};
  }

  DeviceInfo& device() { return device_; }

  /// As in RunOptions.
  int64_t random_step = -1;

 private:
  class Sink final : public ReplySink {
   public:
    void deliver(const RequestTag&, Result<std::vector<Tensor>> outputs) override { result = std::move(outputs); }
    std::optional<Result<std::vector<Tensor>>> result;
  };

  static void visit(const Node* node, const std::map<std::pair<int, int>, Tensor>& fed, std::set<const Node*>& seen,
                    std::vector<const Node*>& order) {
    // Depth first with a stack of its own: graphs of tests may be deep.
    std::vector<std::pair<const Node*, size_t>> stack = {{node, 0}};
    if (!seen.insert(node).second) return;
    while (!stack.empty()) {
      auto& [n, next] = stack.back();
      const size_t data = n->inputs().size();
      if (next == data + n->control_inputs().size()) {
        order.push_back(n);
        stack.pop_back();
        continue;
      }
      const size_t i = next++;
      const Node* before = i < data ? n->inputs()[i].node : n->control_inputs()[i - data];
      if (i < data && fed.count({before->id(), n->inputs()[i].port})) continue;
      if (seen.insert(before).second) stack.push_back({before, 0});
    }
  }

  Status execute(const Node& n, Tensor* values, const int32_t* uses, const std::vector<uint32_t>& inputs,
                 uint32_t first) {
    auto& kernel = kernels_[&n];
    if (!kernel) {
      KernelInit init;
      init.op = n.op().name();
      init.node = n.name();
      init.attrs = &n.attrs();
      for (const Output& in : n.inputs()) {
        init.input_dtypes.push_back(in.dtype());
        init.input_shapes.push_back(in.shape());
        const bool constant = in.node->op().name() == "Const";
        init.constants.push_back(constant ? *in.node->attrs().get<Tensor>("value") : Tensor());
      }
      for (int p = 0; p < n.num_outputs(); ++p) init.output_dtypes.push_back(n.dtype(p));
      TROUPE_ASSIGN(kernel, library_.kernels.make(init, DeviceKind::kCpu));
    }
    if (auto* compute = dynamic_cast<ComputeKernel*>(kernel.get())) {
      KernelContext context(values, uses, inputs.data(), static_cast<int>(inputs.size()), first, n.num_outputs(),
                            device_, step_++, random_step);
      TROUPE_RETURN_IF_ERROR(compute->compute(context));
      for (int p = 0; p < n.num_outputs(); ++p)
        if (!values[first + p].defined()) return invalid_argument("output {} was not set", p);
      return {};
    }
    if (auto* builtin = dynamic_cast<BuiltinKernel*>(kernel.get())) {
      if (builtin->kind == Builtin::kConst) values[first] = builtin->value;
      if (builtin->kind == Builtin::kPlaceholder) return invalid_argument("it was not fed");
      return {};
    }
    std::vector<Tensor> given;
    for (uint32_t i : inputs) given.push_back(values[i]);
    if (auto* blocking = dynamic_cast<BlockingKernel*>(kernel.get())) {
      TROUPE_ASSIGN(const auto outputs, blocking->run({std::move(given), device_.allocator, step_++, random_step}));
      return set_outputs(n, outputs, values + first);
    }
    auto* use = dynamic_cast<ResourceKernel*>(kernel.get());
    Sink sink;
    ResourceRequest request;
    request.inputs = std::move(given);
    request.allocator = device_.allocator;
    request.reply = Reply(sink, RequestTag{});
    const ResourceHandle handle = request.handle();
    auto& resource = resources_[handle.host_key()];
    if (!resource) {
      if (!handle.factory) return make_error(Code::kNotFound, "no resource {}", handle.host_key());
      TROUPE_ASSIGN(resource, handle.factory());
    }
    use->execute(*resource, std::move(request));
    if (!sink.result) return make_error(Code::kDeadlineExceeded, "it would wait");
    if (!sink.result->ok()) return sink.result->status();
    return set_outputs(n, **sink.result, values + first);
  }

  static Status set_outputs(const Node& n, const std::vector<Tensor>& outputs, Tensor* values) {
    if (static_cast<int>(outputs.size()) != n.num_outputs())
      return invalid_argument("{} outputs instead of {}", outputs.size(), n.num_outputs());
    std::ranges::copy(outputs, values);
    return {};
  }

  const OpLibrary& library_;
  DeviceInfo device_;
  int64_t step_ = 0;
  std::map<std::string, std::unique_ptr<Resource>> resources_;
  std::unordered_map<const Node*, std::unique_ptr<Kernel>> kernels_;
};

}  // namespace troupe::testing
