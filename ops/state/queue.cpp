// SPDX-License-Identifier: Apache-2.0
// Queues: FIFOQueueV2, RandomShuffleQueueV2, PaddingFIFOQueueV2, PriorityQueueV2 and _DeviceQueue make handles;
// QueueEnqueueV2, QueueEnqueueManyV2, QueueDequeueV2, QueueDequeueManyV2, QueueDequeueUpToV2, QueueCloseV2, QueueSizeV2
// and QueueIsClosedV2 run at the queue's host.
//
// The elements of a _DeviceQueue on a GPU are in its memory: what comes from the host is copied there before it goes
// into the queue, so that the step that takes it finds it there.
#include <algorithm>

#include "gpu/compute.h"
#include "ops/parts/resource_kernel.h"
#include "ops/random/philox.h"
#include "ops/state/register.h"
#include "queues/fifo_queue.h"
#include "queues/priority_queue.h"
#include "queues/random_shuffle_queue.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

// -- handles ----------------------------------------------------------------------------------------------------------

/// The factory must outlive the node's attributes, so what it needs beside the options is read here.
Result<std::unique_ptr<ComputeKernel>> queue_handle(
    const KernelInit& init, std::function<Result<std::unique_ptr<Resource>>(QueueOptions)> make) {
  ResourceHandle handle = make_handle(init, "queue");
  QueueOptions options{handle.name, init.attr<std::vector<DType>>("component_types"),
                       init.attr<std::vector<PartialShape>>("shapes"), init.attr<int64_t>("capacity")};
  TROUPE_RETURN_IF_ERROR(make(options));  // wrong options show at the node
  handle.signature = signature_of(init);
  handle.input = true;
  handle.factory = [make = std::move(make), options] { return make(options); };
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

void add_queue(OpRegistry& ops, KernelRegistry& kernels, OpDef op, const char* components, std::string doc,
               KernelFactory factory) {
  const std::string name = op.name();
  ops.add(op.output("handle: resource")
              .attr(fmt::format("component_types: list(type) >= {}", components))
              .attr("shapes: list(shape) >= 0 = []")
              .attr("capacity: int = -1")
              .attr("container: string = ''")
              .attr("shared_name: string = ''")
              .doc(doc + " `component_types` and `shapes` are those of an element's components (no shapes: any), "
                         "`capacity` the most elements it holds (-1: no bound). Nodes of the same `shared_name` (the "
                         "node's name when empty) and `container` share one queue.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("a handle is not a number"));
  kernels.add(name, DeviceKind::kCpu, {}, std::move(factory));
}

// -- requests ---------------------------------------------------------------------------------------------------------

class QueueKernel : public ResourceKernel {
 public:
  void execute(Resource& resource, ResourceRequest request) final {
    if (Queue* queue = core_as<Queue>(resource, request, "queue")) run(*queue, request);
  }

 private:
  virtual void run(Queue& queue, ResourceRequest& request) = 0;
};

template <bool kMany> class EnqueueKernel final : public QueueKernel {
  void run(Queue& queue, ResourceRequest& request) override {
    request.inputs.erase(request.inputs.begin());
    if (kMany) queue.enqueue_many(std::move(request.inputs), std::move(request.reply));
    else queue.enqueue(std::move(request.inputs), std::move(request.reply));
  }
};

/// What a dequeue node expects must be what the queue holds, for its consumers were planned for it.
bool same_components(const Queue& queue, const std::vector<DType>& wanted, ResourceRequest& request) {
  const auto& held = queue.options().dtypes;
  if (held == wanted) return true;
  request.reply(invalid_argument("{} '{}' holds {}, the node takes {}", queue.kind(), queue.options().name,
                                 to_string(AttrValue(held)), to_string(AttrValue(wanted))));
  return false;
}

/// Lets an element through that is in the memory of the device that asks. Lives until it has delivered, which a Reply
/// does exactly once.
class NearReply final : public ReplySink {
 public:
  static Reply wrap(Reply reply, const gpu::Compute* gpu) {
    const RequestTag tag = reply.tag();
    return Reply(*new NearReply(std::move(reply), gpu), tag);
  }
  void deliver(const RequestTag&, Result<std::vector<Tensor>> outputs) override {
    const std::unique_ptr<NearReply> self(this);
    if (outputs.ok() && !std::ranges::all_of(*outputs, [this](const Tensor& value) { return is_near(value); }))
      outputs = make_error(Code::kFailedPrecondition,
                           "the element is in the memory of another device: what uses a queue that has its elements on "
                           "a GPU must be on that GPU");
    reply_(std::move(outputs));
  }

 private:
  NearReply(Reply reply, const gpu::Compute* gpu) : reply_(std::move(reply)), gpu_(gpu) {}
  bool is_near(const Tensor& value) const {
    if (!gpu_) return value.space() == Space::kHost;
    return is_object(value.dtype()) || gpu_->holds(value);
  }
  Reply reply_;
  const gpu::Compute* const gpu_;  // of the device that asks, which outlives its steps
};

class DequeueKernel final : public QueueKernel {
 public:
  explicit DequeueKernel(const KernelInit& init) : dtypes_(init.output_dtypes) {}

 private:
  void run(Queue& queue, ResourceRequest& request) override {
    if (same_components(queue, dtypes_, request)) queue.dequeue(NearReply::wrap(std::move(request.reply), request.gpu));
  }
  const std::vector<DType> dtypes_;
};

template <bool kUpTo> class DequeueManyKernel final : public QueueKernel {
 public:
  explicit DequeueManyKernel(const KernelInit& init) : dtypes_(init.output_dtypes) {}

 private:
  void run(Queue& queue, ResourceRequest& request) override {
    if (!same_components(queue, dtypes_, request)) return;
    const Tensor& n = request.inputs[1];
    if (n.dtype() != DType::kInt32 || n.elements() != 1)
      return request.reply(invalid_argument("the number of elements must be an int32 scalar, got {}", n.str()));
    const int64_t count = n.data<int32_t>()[0];
    if (kUpTo) queue.dequeue_up_to(count, std::move(request.allocator), std::move(request.reply));
    else queue.dequeue_many(count, std::move(request.allocator), std::move(request.reply));
  }
  const std::vector<DType> dtypes_;
};

class CloseKernel final : public QueueKernel {
 public:
  explicit CloseKernel(const KernelInit& init) : cancel_pending_(init.attr<bool>("cancel_pending_enqueues")) {}

 private:
  void run(Queue& queue, ResourceRequest& request) override { queue.close(cancel_pending_, std::move(request.reply)); }
  const bool cancel_pending_;
};

class SizeKernel final : public QueueKernel {
  void run(Queue& queue, ResourceRequest& request) override {
    request.reply(one_output(Tensor::scalar(static_cast<int32_t>(queue.size()))));
  }
};

class IsClosedKernel final : public QueueKernel {
  void run(Queue& queue, ResourceRequest& request) override {
    request.reply(one_output(Tensor::scalar(queue.is_closed())));
  }
};

// -- shapes -----------------------------------------------------------------------------------------------------------

/// Shapes of the components of the queue that input 0 comes from, those of one element; empty: unknown.
std::vector<PartialShape> component_shapes(const ShapeContext& c) {
  const Node* node = c.source(0).node;
  const auto* shapes = node ? node->attrs().get<std::vector<PartialShape>>("shapes") : nullptr;
  if (!shapes) return {};
  std::vector<PartialShape> out = *shapes;
  if (node->op().name() == "PriorityQueueV2") out.insert(out.begin(), PartialShape::scalar());
  return out;
}

template <bool kMany> Status enqueue_shape(ShapeContext& c) {
  const auto shapes = component_shapes(c);
  if (shapes.empty()) return {};
  if (static_cast<int>(shapes.size()) != c.num_inputs() - 1)
    return invalid_argument("the queue has {} components, got {}", shapes.size(), c.num_inputs() - 1);
  for (size_t i = 0; i < shapes.size(); ++i) {
    PartialShape expected = shapes[i];
    if (kMany && expected.has_rank() && expected.rank() < kMaxRank) {
      expected = PartialShape{-1};
      for (int64_t d : shapes[i].dims()) expected.push_back(d);
    }
    const PartialShape& got = c.input(static_cast<int>(i) + 1);
    if (!expected.compatible(got))
      return invalid_argument("component {} must have shape {}, got {}", i, expected.str(), got.str());
  }
  return {};
}

Status dequeue_shape(ShapeContext& c) {
  const auto shapes = component_shapes(c);
  for (int i = 0; i < c.num_outputs() && i < static_cast<int>(shapes.size()); ++i) c.set_output(i, shapes[i]);
  return {};
}

template <bool kUpTo> Status dequeue_many_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0));
  int64_t n = -1;
  if (const auto constant = c.constant_input(1); constant && !kUpTo) n = constant->data<int32_t>()[0];
  if (n < -1) return invalid_argument("{} elements are asked for", n);
  const auto shapes = component_shapes(c);
  for (int i = 0; i < c.num_outputs() && i < static_cast<int>(shapes.size()); ++i) {
    if (!shapes[i].has_rank() || shapes[i].rank() == kMaxRank) continue;
    PartialShape shape{n};
    for (int64_t d : shapes[i].dims()) shape.push_back(d);
    c.set_output(i, shape);
  }
  return {};
}

}  // namespace

void register_queue_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_queue(ops, kernels, OpDef("FIFOQueueV2"), "1", "A handle to a queue whose elements leave in the order they came.",
            [](const KernelInit& init) { return queue_handle(init, FifoQueue::make); });
  add_queue(
      ops, kernels, OpDef("PaddingFIFOQueueV2"), "1",
      "A handle to a first-in-first-out queue whose elements may differ in size where `shapes` say -1; a batch is "
      "padded with zeros to its largest element.",
      [](const KernelInit& init) { return queue_handle(init, PaddingFifoQueue::make); });
  add_queue(ops, kernels, OpDef("PriorityQueueV2"), "0 = []",
            "A handle to a queue whose elements leave by priority, the smallest first; the priority is an int64 scalar "
            "before the other components, which are all that the attributes list.",
            [](const KernelInit& init) { return queue_handle(init, PriorityQueue::make); });
  add_queue(
      ops, kernels,
      OpDef("RandomShuffleQueueV2").attr("min_after_dequeue: int = 0").attr("seed: int = 0").attr("seed2: int = 0"),
      "1",
      "A handle to a queue from which dequeues draw at random, in TensorFlow's order by the seeds; while it is open, "
      "`min_after_dequeue` elements stay in it.",
      [](const KernelInit& init) {
        return queue_handle(init, [minimum = init.attr<int64_t>("min_after_dequeue"),
                                   seed = static_cast<uint64_t>(init.attr<int64_t>("seed")),
                                   seed2 = static_cast<uint64_t>(init.attr<int64_t>("seed2"))](QueueOptions o) {
          return RandomShuffleQueue::make(std::move(o), minimum,
                                          [words = Philox(seed, seed2), n = uint64_t{0}]() mutable {
                                            const uint64_t word = n++;
                                            return words(word / 4)[word % 4];
                                          });
        });
      });

  add_queue(
      ops, kernels, OpDef("_DeviceQueue"), "1",
      "A handle to a first-in-first-out queue whose elements are in the memory of the device that the node is on: "
      "on a GPU what is put in is copied there ahead of who takes it. All that uses it must be on that device.",
      [](const KernelInit& init) { return queue_handle(init, FifoQueue::make); });
  kernels.add("_DeviceQueue", DeviceKind::kCuda, {},
              [](const KernelInit& init) { return queue_handle(init, FifoQueue::make); });

  const char* no_value = "it has no output";
  const char* from_queue = "elements come from the queue; what was put in is not traced";
  const auto kCpu = DeviceKind::kCpu, kGpu = DeviceKind::kCuda;

  ops.add(
      OpDef("QueueEnqueueV2")
          .input("handle: resource")
          .input("components: Tcomponents")
          .attr("Tcomponents: list(type) >= 1")
          .attr("timeout_ms: int = -1")
          .doc("Adds one element; waits while the queue is full. Fails when it is closed or the components do not fit.")
          .shape(enqueue_shape<false>)
          .stateful(),
      not_differentiable(no_value));
  kernels.add<EnqueueKernel<false>>("QueueEnqueueV2", kCpu, {});
  kernels.add<EnqueueKernel<false>>("QueueEnqueueV2", kGpu, {});
  ops.add(OpDef("QueueEnqueueManyV2")
              .input("handle: resource")
              .input("components: Tcomponents")
              .attr("Tcomponents: list(type) >= 1")
              .attr("timeout_ms: int = -1")
              .doc("Adds row i of every component as element i, as room comes. Fails when the queue is closed.")
              .shape(enqueue_shape<true>)
              .stateful(),
          not_differentiable(no_value));
  kernels.add<EnqueueKernel<true>>("QueueEnqueueManyV2", kCpu, {});

  ops.add(OpDef("QueueDequeueV2")
              .input("handle: resource")
              .output("components: component_types")
              .attr("component_types: list(type) >= 1")
              .attr("timeout_ms: int = -1")
              .cost(move_cost)
              .doc("Takes one element; waits for one. Fails with out-of-range when the queue is closed and empty.")
              .shape(dequeue_shape)
              .stateful(),
          not_differentiable(from_queue));
  kernels.add<DequeueKernel>("QueueDequeueV2", kCpu, {});
  kernels.add<DequeueKernel>("QueueDequeueV2", kGpu, {});
  ops.add(OpDef("QueueDequeueManyV2")
              .input("handle: resource")
              .input("n: int32")
              .output("components: component_types")
              .attr("component_types: list(type) >= 1")
              .attr("timeout_ms: int = -1")
              .cost(move_cost)
              .doc("Takes `n` elements stacked on a new first axis; waits for them. Fails with out-of-range when the "
                   "queue is closed and holds fewer.")
              .shape(dequeue_many_shape<false>)
              .stateful(),
          not_differentiable(from_queue));
  kernels.add<DequeueManyKernel<false>>("QueueDequeueManyV2", kCpu, {});
  ops.add(OpDef("QueueDequeueUpToV2")
              .input("handle: resource")
              .input("n: int32")
              .output("components: component_types")
              .attr("component_types: list(type) >= 1")
              .attr("timeout_ms: int = -1")
              .cost(move_cost)
              .doc("As QueueDequeueManyV2, but takes what is left once the queue is closed, if anything is.")
              .shape(dequeue_many_shape<true>)
              .stateful(),
          not_differentiable(from_queue));
  kernels.add<DequeueManyKernel<true>>("QueueDequeueUpToV2", kCpu, {});

  ops.add(
      OpDef("QueueCloseV2")
          .input("handle: resource")
          .attr("cancel_pending_enqueues: bool = false")
          .doc("Lets no more elements in; what is there can still be taken. Waiting enqueues are carried out first, "
               "or cancelled on request.")
          .shape(no_outputs)
          .stateful(),
      not_differentiable(no_value));
  kernels.add<CloseKernel>("QueueCloseV2", kCpu, {});
  kernels.add<CloseKernel>("QueueCloseV2", kGpu, {});
  ops.add(OpDef("QueueSizeV2")
              .input("handle: resource")
              .output("size: int32")
              .doc("How many elements the queue holds.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("a count does not depend on values"));
  kernels.add<SizeKernel>("QueueSizeV2", kCpu, {});
  kernels.add<SizeKernel>("QueueSizeV2", kGpu, {}, {{}, {0}});
  ops.add(OpDef("QueueIsClosedV2")
              .input("handle: resource")
              .output("is_closed: bool")
              .doc("Whether the queue is closed.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("the output is a truth value"));
  kernels.add<IsClosedKernel>("QueueIsClosedV2", kCpu, {});
  kernels.add<IsClosedKernel>("QueueIsClosedV2", kGpu, {}, {{}, {0}});
}

}  // namespace troupe
