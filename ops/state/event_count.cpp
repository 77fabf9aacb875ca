// SPDX-License-Identifier: Apache-2.0
// Event counts: _EventCount makes the handle; _EventCountAwait and _EventCountAdvance run at the count's host.
#include "queues/event_count.h"
#include "ops/parts/resource_kernel.h"
#include "ops/state/register.h"

namespace troupe {
namespace {

Result<std::unique_ptr<ComputeKernel>> make_event_count(const KernelInit& init) {
  ResourceHandle handle = make_handle(init, "event_count");
  handle.factory = EventCount::make;
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

class AwaitKernel final : public ResourceKernel {
 public:
  explicit AwaitKernel(const KernelInit& init) : slack_(init.attr<int64_t>("slack")) {}
  void execute(Resource& resource, ResourceRequest request) override {
    auto* events = core_as<EventCount>(resource, request, "event count");
    if (!events) return;
    const Tensor& count = request.inputs[1];
    if (count.dtype() != DType::kInt64 || count.elements() != 1)
      return request.reply(invalid_argument("the count to await must be an int64 scalar, got {}", count.str()));
    const int64_t wanted = count.data<int64_t>()[0];
    // No count is negative, so what would wrap around is reached already.
    events->await(wanted < 0 ? 0 : wanted - slack_, std::move(request.reply));
  }

 private:
  const int64_t slack_;
};

class AdvanceKernel final : public ResourceKernel {
 public:
  void execute(Resource& resource, ResourceRequest request) override {
    auto* events = core_as<EventCount>(resource, request, "event count");
    if (!events) return;
    events->advance();
    request.reply(std::vector<Tensor>());
  }
};

Status await_shape(ShapeContext& c) { return c.with_rank(1, 0).status(); }

}  // namespace

void register_event_count_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("_EventCount")
              .output("handle: resource")
              .attr("container: string = ''")
              .attr("shared_name: string = ''")
              .doc("A handle to a count of events, 0 at first. Nodes of the same `shared_name` (the node's name when "
                   "empty) and `container` share one.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("a handle is not a number"));
  kernels.add("_EventCount", DeviceKind::kCpu, {}, make_event_count);
  ops.add(OpDef("_EventCountAwait")
              .input("handle: resource")
              .input("count: int64")
              .attr("slack: int >= 0 = 0")
              .doc("Waits until at least `count` less `slack` events have been counted. A credit of n is a slack of "
                   "n - 1.")
              .shape(await_shape)
              .stateful(),
          not_differentiable("it has no output"));
  kernels.add<AwaitKernel>("_EventCountAwait", DeviceKind::kCpu, {});
  ops.add(OpDef("_EventCountAdvance").input("handle: resource").doc("Counts one event.").shape(no_outputs).stateful(),
          not_differentiable("it has no output"));
  kernels.add<AdvanceKernel>("_EventCountAdvance", DeviceKind::kCpu, {});
}

}  // namespace troupe
