// SPDX-License-Identifier: Apache-2.0
// Calls of CUDA: what their errors mean to Troupe, and the driver's functions for virtual memory.
#pragma once
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <string>

#include "troupe/error.h"

namespace troupe::gpu {

/// Whether no work of the card is done any more after such an error, as CUDA documents: every later call gives the
/// same.
bool loses_card(cudaError_t error);

/// Makes errors of calls for one card. Thread-safe.
class CudaCalls {
 public:
  explicit CudaCalls(int card) : card_(card) {}
  /// Of a call that is to begin: sets the thread's device to the card. Errors: kUnavailable if the card was lost
  /// before, without a call of CUDA.
  Status enter(const char* call);
  /// Of a call that returned: kUnavailable for what loses the card, kResourceExhausted without memory, else kInternal.
  /// The thread's last error is cleared, so that no later launch is blamed for it.
  Status check(cudaError_t error, const char* call);
  /// CUresult has the numbers of cudaError_t where the two mean the same.
  Status check(CUresult result, const char* call) { return check(static_cast<cudaError_t>(result), call); }
  bool lost() const { return lost_by_.load(std::memory_order_relaxed) != cudaSuccess; }

 private:
  Error lost_error(const char* call) const;
  const int card_;
  std::atomic<cudaError_t> lost_by_{cudaSuccess};
};

/// The driver's functions, which cudart finds in the library that it loaded.
struct CudaDriver {
  /// Errors: kUnavailable naming the function that the driver lacks.
  Status load();
  PFN_cuMemGetAllocationGranularity_v10020 granularity = nullptr;
  PFN_cuMemAddressReserve_v10020 reserve = nullptr;
  PFN_cuMemAddressFree_v10020 unreserve = nullptr;
  PFN_cuMemCreate_v10020 create = nullptr;
  PFN_cuMemRelease_v10020 release = nullptr;
  PFN_cuMemMap_v10020 map = nullptr;
  PFN_cuMemUnmap_v10020 unmap = nullptr;
  PFN_cuMemSetAccess_v10020 set_access = nullptr;
};

/// Memory of a card as the driver's functions name it.
CUmemAllocationProp_v1 memory_of(int card);

}  // namespace troupe::gpu
