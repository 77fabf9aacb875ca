// SPDX-License-Identifier: Apache-2.0
// Barriers: Barrier makes the handle; BarrierInsertMany, BarrierTakeMany, BarrierClose, BarrierReadySize and
// BarrierIncompleteSize run at the barrier's host.
#include "queues/barrier.h"

#include "ops/parts/resource_kernel.h"
#include "ops/state/register.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

Result<std::unique_ptr<ComputeKernel>> make_barrier(const KernelInit& init) {
  ResourceHandle handle = make_handle(init, "barrier");
  const QueueOptions options{handle.name, init.attr<std::vector<DType>>("component_types"),
                             init.attr<std::vector<PartialShape>>("shapes"), init.attr<int64_t>("capacity")};
  TROUPE_RETURN_IF_ERROR(Barrier::make(options));  // wrong options show at the node
  handle.signature =
      fmt::format("Barrier {} {}", to_string(AttrValue(options.dtypes)), to_string(AttrValue(options.shapes)));
  handle.factory = [options] { return Barrier::make(options); };
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

class BarrierKernel : public ResourceKernel {
 public:
  void execute(Resource& resource, ResourceRequest request) final {
    if (auto* barrier = core_as<Barrier>(resource, request, "barrier")) run(*barrier, request);
  }

 private:
  virtual void run(Barrier& barrier, ResourceRequest& request) = 0;
};

class InsertMany final : public BarrierKernel {
 public:
  explicit InsertMany(const KernelInit& init) : component_(init.attr<int64_t>("component_index")) {}

 private:
  void run(Barrier& barrier, ResourceRequest& request) override {
    request.reply(no_output(barrier.insert_many(component_, request.inputs[1], request.inputs[2])));
  }
  const int64_t component_;
};

class TakeMany final : public BarrierKernel {
 public:
  explicit TakeMany(const KernelInit& init)
      : dtypes_(init.attr<std::vector<DType>>("component_types")), small_(init.attr<bool>("allow_small_batch")) {}

 private:
  void run(Barrier& barrier, ResourceRequest& request) override {
    const auto& held = barrier.options().dtypes;
    if (held != dtypes_)
      return request.reply(invalid_argument("barrier '{}' holds {}, the node takes {}", barrier.options().name,
                                            to_string(AttrValue(held)), to_string(AttrValue(dtypes_))));
    const Tensor& n = request.inputs[1];
    if (n.dtype() != DType::kInt32 || n.elements() != 1)
      return request.reply(invalid_argument("num_elements must be an int32 scalar, got {}", n.str()));
    barrier.take_many(n.data<int32_t>()[0], small_, std::move(request.allocator), std::move(request.reply));
  }
  const std::vector<DType> dtypes_;
  const bool small_;
};

class CloseBarrier final : public BarrierKernel {
 public:
  explicit CloseBarrier(const KernelInit& init) : cancel_pending_(init.attr<bool>("cancel_pending_enqueues")) {}

 private:
  void run(Barrier& barrier, ResourceRequest& request) override {
    request.reply(no_output(barrier.close(cancel_pending_)));
  }
  const bool cancel_pending_;
};

template <bool kReady> class BarrierSize final : public BarrierKernel {
  void run(Barrier& barrier, ResourceRequest& request) override {
    const int64_t n = kReady ? barrier.ready_size() : barrier.incomplete_size();
    request.reply(one_output(Tensor::scalar(static_cast<int32_t>(n))));
  }
};

Status insert_many_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape keys, c.with_rank(1, 1));
  TROUPE_ASSIGN(const PartialShape values, c.with_rank_at_least(2, 1));
  if (values.has_rank() && keys[0] >= 0 && values[0] >= 0 && keys[0] != values[0])
    return invalid_argument("{} keys for {} values", keys[0], values[0]);
  return {};
}

Status take_many_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0));
  int64_t n = -1;
  if (const auto constant = c.constant_input(1); constant && !c.attr<bool>("allow_small_batch"))
    n = constant->data<int32_t>()[0];
  if (n < -1) return invalid_argument("{} elements are asked for", n);
  c.set_output(0, {n});
  c.set_output(1, {n});
  const Node* barrier = c.source(0).node;
  const auto* shapes = barrier ? barrier->attrs().get<std::vector<PartialShape>>("shapes") : nullptr;
  for (int i = 2; shapes && i < c.num_outputs() && i - 2 < static_cast<int>(shapes->size()); ++i) {
    const PartialShape& row = (*shapes)[static_cast<size_t>(i - 2)];
    if (!row.has_rank() || row.rank() == kMaxRank) continue;
    PartialShape shape{n};
    for (const int64_t d : row.dims()) shape.push_back(d);
    c.set_output(i, shape);
  }
  return {};
}

}  // namespace

void register_barrier_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto cpu = DeviceKind::kCpu;
  const char* no_value = "it has no output";
  const char* count = "a count does not depend on values";
  ops.add(OpDef("Barrier")
              .output("handle: resource")
              .attr("component_types: list(type) >= 1")
              .attr("shapes: list(shape) >= 0 = []")
              .attr("capacity: int = -1")
              .attr("container: string = ''")
              .attr("shared_name: string = ''")
              .doc("A handle to a barrier, which gathers the components of elements by their keys until each element "
                   "has all. `component_types` and `shapes` are those of the components, `capacity` must be -1. Nodes "
                   "of the same `shared_name` (the node's name when empty) and `container` share one.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("a handle is not a number"));
  kernels.add("Barrier", cpu, {}, make_barrier);

  ops.add(OpDef("BarrierInsertMany")
              .input("handle: resource")
              .input("keys: string")
              .input("values: T")
              .attr("T: type")
              .attr("component_index: int")
              .doc("Gives the element of key i row i of `values` as component `component_index`, all or nothing. Fails "
                   "for a component that is there already, and for a new key when the barrier is closed.")
              .shape(insert_many_shape)
              .stateful(),
          not_differentiable(no_value));
  kernels.add<InsertMany>("BarrierInsertMany", cpu, {});

  ops.add(OpDef("BarrierTakeMany")
              .input("handle: resource")
              .input("num_elements: int32")
              .output("indices: int64")
              .output("keys: string")
              .output("values: component_types")
              .attr("component_types: list(type) >= 1")
              .attr("allow_small_batch: bool = false")
              .attr("wait_for_incomplete: bool = false")
              .attr("timeout_ms: int = -1")
              .doc("Takes complete elements, stacked, those first whose keys came with earlier inserts; waits for "
                   "`num_elements`. When "
                   "the barrier is closed and no more can become complete it gives what is left on "
                   "`allow_small_batch`, else it fails with out-of-range.")
              .shape(take_many_shape)
              .stateful(),
          not_differentiable("elements come from the barrier; what was put in is not traced"));
  kernels.add<TakeMany>("BarrierTakeMany", cpu, {});

  ops.add(OpDef("BarrierClose")
              .input("handle: resource")
              .attr("cancel_pending_enqueues: bool = false")
              .doc("Lets in no new keys, on request nothing more at all.")
              .shape(no_outputs)
              .stateful(),
          not_differentiable(no_value));
  kernels.add<CloseBarrier>("BarrierClose", cpu, {});

  const auto add_size = [&](const char* name, const char* doc) {
    ops.add(OpDef(name).input("handle: resource").output("size: int32").doc(doc).shape(scalar_shape).stateful(),
            not_differentiable(count));
  };
  add_size("BarrierReadySize", "How many elements are complete.");
  kernels.add<BarrierSize<true>>("BarrierReadySize", cpu, {});
  add_size("BarrierIncompleteSize", "How many elements lack components.");
  kernels.add<BarrierSize<false>>("BarrierIncompleteSize", cpu, {});
}

}  // namespace troupe
