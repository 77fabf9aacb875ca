// SPDX-License-Identifier: Apache-2.0
// What an executor sends and gets: tensors for the partitions of other devices, requests to the hosts of resources and
// to threads that may wait, and their answers.
#pragma once
#include <memory>
#include <vector>

#include "devices/step_call.h"
#include "devices/work_timer.h"
#include "troupe/blocking_kernel.h"
#include "troupe/kernel.h"

namespace troupe {

/// A tensor (or, undefined, a mere signal) for a Recv of another partition.
struct ReadyTensor {
  StepRef call;
  uint32_t node = 0;
  Tensor value;
  bool dead = false;  // the branch of its producer was not taken
  /// In a loop, which iterations of the loops around the Recv, outermost first, and of its own it is for.
  std::vector<uint32_t> iterations = {};
};

/// One request to the host of a resource. The kernel lives as long as the step that waits for the reply, the device
/// that asks as long as the engine.
struct ResourceUse {
  ResourceKernel* kernel = nullptr;
  std::vector<Tensor> inputs;
  const DeviceInfo* asks = nullptr;
  RequestTag tag;
  bool timed = false;                     // the answer is to tell how long the kernel took
  std::shared_ptr<WorkTimer> timer = {};  // of a device that runs on: times what the kernel puts in
};

/// One call of a kernel that may block. It may outlast its step, so it owns the kernel and what that reads.
struct BlockingUse {
  std::weak_ptr<StepCall> call;
  std::shared_ptr<BlockingKernel> kernel;
  BlockingRequest request;
  RequestTag tag;
};

/// The answer to one of either.
struct ResourceAnswer {
  RequestTag tag;
  Result<std::vector<Tensor>> outputs;
  int64_t ns = 0;                         // that a kernel took which answered at once; 0: not measured
  std::shared_ptr<WorkTimer> timer = {};  // in its place: that of the request
};

}  // namespace troupe
