// SPDX-License-Identifier: Apache-2.0
// The nodes that take the place of a collective whose devices are cards that a library joins: _CollectiveGroup makes
// the handle of where they meet, _CollectiveRank takes part there for one device, _CollectiveTicket tells the
// iterations of loops apart. Engines without such a library do not know these ops.
#include <atomic>

#include "devices/collective_group.h"
#include "ops/control/register.h"
#include "ops/parts/resource_kernel.h"

namespace troupe {
namespace {

struct NamedKind {
  const char *name, *op;
  gpu::Collective::Kind kind;
};
constexpr NamedKind kKinds[] = {{"ALL_REDUCE", "_AllReduce", gpu::Collective::Kind::kAllReduce},
                                {"REDUCE_SCATTER", "_ReduceScatter", gpu::Collective::Kind::kReduceScatter},
                                {"ALL_GATHER", "_AllGather", gpu::Collective::Kind::kAllGather},
                                {"BROADCAST", "_Broadcast", gpu::Collective::Kind::kBroadcast}};

class RankKernel final : public ResourceKernel {
 public:
  explicit RankKernel(const KernelInit& init) {
    const auto& kind = init.attr<std::string>("kind");
    for (const NamedKind& known : kKinds)
      if (kind == known.name) {
        call_.op = known.op;
        call_.kind = known.kind;
      }
    call_.name = init.attr<std::string>("collective");
    call_.sizes = init.attr<std::vector<int64_t>>("sizes");
    call_.root = static_cast<size_t>(init.attr<int64_t>("root"));
    call_.rank = static_cast<size_t>(init.attr<int64_t>("rank"));
  }
  void execute(Resource& resource, ResourceRequest request) override {
    auto* group = core_as<CollectiveGroup>(resource, request, "group of devices");
    if (!group) return;
    const Tensor& ticket = request.inputs[1];
    if (ticket.dtype() != DType::kInt64 || ticket.elements() != 1 || ticket.space() != Space::kHost)
      return request.reply(invalid_argument("the ticket must be an int64 scalar, got {}", ticket.str()));
    const int64_t number = ticket.data<int64_t>()[0];
    std::optional<Tensor> input;
    if (request.inputs.size() == 3) input = std::move(request.inputs[2]);
    group->join(call_, number, std::move(input), std::move(request));
  }

 private:
  CollectiveCall call_;
};

/// Puts out another number in each call.
class TicketKernel final : public ComputeKernel {
 public:
  Status compute(KernelContext& context) override {
    context.set_output(0, Tensor::scalar(next_.fetch_add(1, std::memory_order_relaxed)));
    return {};
  }

 private:
  std::atomic<int64_t> next_{1};
};

Result<ResourceHandle> group_handle(const KernelInit& init, const std::shared_ptr<gpu::CollectiveRunner>& runner) {
  const auto& devices = init.attr<std::vector<std::string>>("devices");
  ResourceHandle handle;
  handle.type = "collectives";
  handle.name = fmt::format("{}", fmt::join(devices, ","));
  handle.signature = handle.name;
  std::vector<size_t> members;
  for (const std::string& device : devices) {
    const auto all = runner->members();
    const auto at = std::ranges::find(all, device, &gpu::CollectiveRunner::Member::name);
    if (at == all.end()) return make_error(Code::kNotFound, "collectives do not know a device {}", device);
    members.push_back(static_cast<size_t>(at - all.begin()));
  }
  if (members.size() < 2) return invalid_argument("a group is of two devices at least, got {}", members.size());
  handle.factory = [runner, members]() -> Result<std::unique_ptr<Resource>> {
    return std::unique_ptr<Resource>(new CollectiveGroup(runner, members));
  };
  return handle;
}

}  // namespace

void register_card_collective_ops(OpRegistry& ops, KernelRegistry& kernels,
                                  const std::shared_ptr<gpu::CollectiveRunner>& runner) {
  const std::string why = "gradients are taken of the collective";
  ops.add(OpDef("_CollectiveGroup")
              .output("handle: resource")
              .attr("devices: list(string) >= 2")
              .doc("A handle to where the ranks of collectives among these devices meet. Planning a step makes it.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable(why));
  kernels.add("_CollectiveGroup", DeviceKind::kCuda, {},
              [runner](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                TROUPE_ASSIGN(ResourceHandle handle, group_handle(init, runner));
                return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
              });
  ops.add(OpDef("_CollectiveTicket")
              .output("ticket: int64")
              .doc("Another number in each call. Planning a step makes it.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable(why));
  kernels.add<TicketKernel>("_CollectiveTicket", DeviceKind::kCuda, {}, KernelRegistry::HostMemory{{}, {0}});
  ops.add(OpDef("_CollectiveRank")
              .input("group: resource")
              .input("ticket: int64")
              .input("xs: inputs * T")
              .output("y: T")
              .attr("inputs: int >= 0")
              .attr("T: type")
              .attr("kind: {'ALL_REDUCE', 'REDUCE_SCATTER', 'ALL_GATHER', 'BROADCAST'}")
              .attr("collective: string")
              .attr("rank: int >= 0")
              .attr("root: int >= 0 = 0")
              .attr("sizes: list(int) = []")
              .attr("shape: shape = <unknown>")
              .doc("Takes part in a collective for one device, when all others do: those of the same step, "
                   "`collective` and ticket. Planning a step makes it.")
              .shape([](ShapeContext& c) -> Status {
                if (c.num_inputs() > 3) return invalid_argument("takes one tensor or none, got {}", c.num_inputs() - 2);
                c.set_output(0, c.attr<PartialShape>("shape"));
                return {};
              })
              .stateful(),
          not_differentiable(why));
  kernels.add<RankKernel>("_CollectiveRank", DeviceKind::kCuda, {}, KernelRegistry::HostMemory{{1}, {}});
}

}  // namespace troupe
