// SPDX-License-Identifier: Apache-2.0
// Mutexes: MutexV2 makes the handle; MutexLock waits at the mutex's host and gives a lock; ConsumeMutexLock ends it.
//
// A lock is an element of a kVariant tensor. The mutex is free again when the last such tensor is gone: after
// ConsumeMutexLock, or with the step when it fails before.
#include <deque>

#include "devices/hosted_resource.h"
#include "ops/parts/resource_kernel.h"
#include "ops/state/register.h"
#include "troupe/tensor_list.h"

namespace troupe {
namespace {

/// A passive core (see Resource): who asks for the lock gets it in the order of asking.
class Mutex final : public HostedResource {
 public:
  void lock(Reply reply) {
    waiting_.push_back(std::move(reply));
    serve();
  }
  void woken() override { serve(); }
  void cancel(uint64_t requester, int64_t step) override {
    std::vector<Reply> cancelled;
    std::erase_if(waiting_, [&](Reply& reply) {
      if (reply.tag().requester != requester || reply.tag().step != step) return false;
      cancelled.push_back(std::move(reply));
      return true;
    });
    for (Reply& reply : cancelled) reply(make_error(Code::kCancelled, "waiting for a mutex was cancelled"));
  }

 private:
  void serve() {
    if (waiting_.empty() || !lock_.expired()) return;
    TensorListRef lock(new TensorList, [wake = host().waker()](TensorList* list) {
      delete list;
      wake();
    });
    lock_ = lock;
    Reply reply = std::move(waiting_.front());
    waiting_.pop_front();
    reply(one_output(Tensor::scalar(std::move(lock))));
  }

  std::deque<Reply> waiting_;
  std::weak_ptr<TensorList> lock_;  // of who has it
};

Result<std::unique_ptr<ComputeKernel>> make_mutex(const KernelInit& init) {
  ResourceHandle handle = make_handle(init, "mutex");
  handle.factory = []() -> Result<std::unique_ptr<Resource>> {
    return std::unique_ptr<Resource>(std::make_unique<Mutex>());
  };
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

class LockKernel final : public ResourceKernel {
 public:
  void execute(Resource& resource, ResourceRequest request) override {
    if (auto* mutex = core_as<Mutex>(resource, request, "mutex")) mutex->lock(std::move(request.reply));
  }
};

/// The executor drops the lock when its last reader, this, has run.
class ConsumeLock final : public ComputeKernel {
 public:
  Status compute(KernelContext&) override { return {}; }
};

}  // namespace

void register_mutex_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("MutexV2")
              .output("resource: resource")
              .attr("container: string = ''")
              .attr("shared_name: string = ''")
              .doc("A handle to a mutex. Nodes of the same `shared_name` (the node's name when empty) and `container` "
                   "share one.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("a handle is not a number"));
  kernels.add("MutexV2", DeviceKind::kCpu, {}, make_mutex);
  ops.add(OpDef("MutexLock")
              .input("mutex: resource")
              .output("mutex_lock: variant")
              .doc("Waits until nobody has the mutex, then gives a lock of it. The lock ends when the last node that "
                   "takes it has run, or its step fails.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("a lock is not a number"));
  kernels.add<LockKernel>("MutexLock", DeviceKind::kCpu, {});
  ops.add(OpDef("ConsumeMutexLock")
              .input("mutex_lock: variant")
              .doc("Takes a lock, so that it lasts until then.")
              .shape(no_outputs)
              .stateful(),
          not_differentiable("it has no output"));
  kernels.add<ConsumeLock>("ConsumeMutexLock", DeviceKind::kCpu, {});
}

}  // namespace troupe
