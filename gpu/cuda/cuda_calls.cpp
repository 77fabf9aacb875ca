// SPDX-License-Identifier: Apache-2.0
// Errors of CUDA, and the look-up of the driver's functions.
#include "gpu/cuda/cuda_calls.h"

namespace troupe::gpu {

bool loses_card(cudaError_t error) {
  switch (error) {
    case cudaErrorCudartUnloading:  // the process ends
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown: return true;
    default: return false;
  }
}

Error CudaCalls::lost_error(const char* call) const {
  return make_error(Code::kUnavailable, "{} on card {}: the card is lost: {}", call, card_,
                    cudaGetErrorString(lost_by_.load(std::memory_order_relaxed)));
}

Status CudaCalls::enter(const char* call) {
  if (lost()) return lost_error(call);
  return check(cudaSetDevice(card_), call);
}

Status CudaCalls::check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  if (loses_card(error)) {
    cudaError_t before = cudaSuccess;
    lost_by_.compare_exchange_strong(before, error);  // the first one counts
    return lost_error(call);
  }
  const Code code = error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kInternal;
  return make_error(code, "{} on card {}: {} ({})", call, card_, cudaGetErrorString(error), cudaGetErrorName(error));
}

Status CudaDriver::load() {
  constexpr unsigned kVersion = 10020;  // the CUDA that brought all of them
  Status out;
  const auto find = [&](const char* name, auto& function) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult state = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &state);
    if (error != cudaSuccess) (void)cudaGetLastError();
    if (out.ok() && (error != cudaSuccess || state != cudaDriverEntryPointSuccess || !found))
      out = make_error(Code::kUnavailable, "CUDA: the driver has no {}", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find("cuMemGetAllocationGranularity", granularity);
  find("cuMemAddressReserve", reserve);
  find("cuMemAddressFree", unreserve);
  find("cuMemCreate", create);
  find("cuMemRelease", release);
  find("cuMemMap", map);
  find("cuMemUnmap", unmap);
  find("cuMemSetAccess", set_access);
  return out;
}

CUmemAllocationProp_v1 memory_of(int card) {
  CUmemAllocationProp_v1 out = {};
  out.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  out.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  out.location.id = card;
  return out;
}

}  // namespace troupe::gpu
