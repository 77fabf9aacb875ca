// SPDX-License-Identifier: Apache-2.0
// BlockingKernel: the code of an op that reads or writes files. Implemented in devices/, like troupe/kernel.h.
#pragma once
#include "troupe/export.h"
#include "troupe/kernel.h"

namespace TROUPE_API troupe {

/// What a BlockingKernel is called with.
struct BlockingRequest {
  std::vector<Tensor> inputs;
  std::shared_ptr<Allocator> allocator;  // of the asking device
  int64_t step = 0;
};

/// Runs at the engine's actor for such work, on a thread of its own, so it may wait for files; the device goes on
/// meanwhile. Requests of one device run in order, one at a time. Returns the outputs of the node.
class BlockingKernel : public Kernel {
 public:
  virtual Result<std::vector<Tensor>> run(const BlockingRequest& request) = 0;
};

}  // namespace troupe
