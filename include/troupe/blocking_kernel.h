// SPDX-License-Identifier: Apache-2.0
// BlockingKernel: the code of an op that may wait: for files, or anything else. Implemented in devices/, like
// troupe/kernel.h.
#pragma once
#include <functional>
#include <stop_token>

#include "troupe/export.h"
#include "troupe/kernel.h"

namespace TROUPE_API troupe {

class FunctionCaller;  // tensor/function_caller.h

/// What a BlockingKernel is called with.
struct BlockingRequest {
  std::vector<Tensor> inputs;
  std::shared_ptr<Allocator> allocator;  // of the asking device
  int64_t step = 0;
  int64_t random_step = -1;  // as KernelContext::random_step()
  /// Calls the functions that nodes carry.
  std::shared_ptr<FunctionCaller> functions = {};
  /// Told when the step has failed, and nobody wants the outputs any more: run() need not go on.
  std::stop_token stop = {};
};

/// Runs on a thread apart, where it may wait as long as it likes: device, other steps and other blocking kernels go on
/// meanwhile, and up to 256 run at once in an engine, beside those that wait in Session::run. So run() may be called by
/// several threads at the same time, for one node too, in any order but that of the graph's edges: what a kernel keeps
/// between calls needs a mutex, and nodes that must not overlap a control edge.
///
/// A step that fails, is cancelled or meets its deadline does not wait for run(): what that returns then is dropped.
/// The engine keeps kernel and request alive until it returns, also beyond the end of session and engine, which waits
/// for it a second at most. So it must own whatever else it uses, by shared pointers.
class BlockingKernel : public Kernel {
 public:
  /// The outputs of the node. An exception is an error of the node.
  virtual Result<std::vector<Tensor>> run(const BlockingRequest& request) = 0;
};

}  // namespace troupe
