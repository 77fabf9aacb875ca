// SPDX-License-Identifier: Apache-2.0
// Device: one device as its Executor sees it: how nodes are carried out there, and how values come and leave.
// Implemented in devices/device.cpp. One thread at a time, that of its executor.
#pragma once
#include <memory>
#include <span>

#include "devices/work_timer.h"
#include "troupe/graph.h"
#include "troupe/kernel.h"

namespace troupe {

/// What running a node came to.
struct Ran {
  int64_t ns = 0;     // above 0: nothing else fires until Executor::work_ended()
  bool asks = false;  // its resource is still to be asked
};

class Device {
 public:
  /// What holds for all nodes of a device.
  struct Traits {
    /// A kernel is called, and then has run. Else the device is asked to run() it.
    bool direct = true;
    /// Of what computes, the first in the plan goes first.
    bool ordered = false;
    /// How often nodes fire is counted in every step, not only in those that are timed.
    bool counts_always = false;
    /// What has run may still be at work: values leave by copy_out(), and a step ends by mark(). How long nodes take
    /// is told by timer(), not by how long they keep the executor.
    bool runs_on = false;
  };

  /// `info` lives as long as it.
  Device(const DeviceInfo& info, Traits traits) : info(info), traits(traits) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info;
  const Traits traits;

  /// Of one that is not direct: runs `kernel`, or does as if; nullptr: the node uses a resource. `outputs` are those
  /// that the context sets.
  virtual Result<Ran> run(const Node& node, ComputeKernel* kernel, KernelContext& context,
                          std::span<const Tensor> outputs);
  /// The step of the node at work has failed: Executor::work_ended() is not to be called for it.
  virtual void drop_work() {}

  // Of one that runs on:
  /// Whether a value that is not the host's is in this device's memory.
  virtual bool holds(const Tensor& value) const;
  /// The value, the host's or that of another device of its kind, in the device's memory, for kernels that are run
  /// later. `timer`, one of this device or null, is to time the copy.
  virtual Result<Tensor> copy_in(const Tensor& value, WorkTimer* timer);
  /// Whether copying a value of the host in keeps the host for so long that another thread is to do it.
  virtual bool copies_in_later(const Tensor& value) const;
  /// Has that thread copy it in: the answer to `tag`, with `timer`, has the value.
  virtual void copy_in_later(const Tensor& value, const RequestTag& tag, std::shared_ptr<WorkTimer> timer);
  /// The value in the host's memory, once what was run before has made it: as the answer to `tag`,
  /// Executor::answered(). `timer`: as of copy_in().
  virtual Status copy_out(const Tensor& value, const RequestTag& tag, WorkTimer* timer);
  /// What an error of its work comes of, such as a lack of memory of a device that was lost.
  virtual Error reason(Error error);
  /// An answer without outputs once all that was run before is done.
  virtual Status mark(const RequestTag& tag);
  /// For the work of one node. Null: this device times none.
  virtual std::shared_ptr<WorkTimer> timer();
};

/// A device whose kernels run on the thread that calls them.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const DeviceInfo& info) : Device(info, {}) {}
};

}  // namespace troupe
