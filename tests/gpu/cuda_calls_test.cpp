// SPDX-License-Identifier: Apache-2.0
// What errors of CUDA become; cudart tells of them without a card.
#include "gpu/cuda/cuda_calls.h"

#include <catch2/catch.hpp>

namespace troupe::gpu {

TEST_CASE("cuda calls: memory, loss and all else are told apart, and name call and card") {
  CudaCalls calls(3);
  CHECK(calls.check(cudaSuccess, "Stream::copy").ok());
  CHECK(calls.check(CUDA_SUCCESS, "Runtime::map").ok());
  const Status memory = calls.check(CUDA_ERROR_OUT_OF_MEMORY, "Runtime::map");
  REQUIRE_FALSE(memory.ok());
  CHECK(memory.error().code == Code::kResourceExhausted);
  CHECK(memory.error().message == "Runtime::map on card 3: out of memory (cudaErrorMemoryAllocation)");
  CHECK(calls.check(cudaErrorInvalidResourceHandle, "Stream::record").error().code == Code::kInternal);
  CHECK_FALSE(calls.lost());
}

TEST_CASE("cuda calls: a card is lost by its first such error, and enters no call any more") {
  CudaCalls calls(0);
  const Status lost = calls.check(cudaErrorIllegalAddress, "Event::done");
  REQUIRE_FALSE(lost.ok());
  CHECK(lost.error().code == Code::kUnavailable);
  CHECK(lost.error().message == "Event::done on card 0: the card is lost: an illegal memory access was encountered");
  CHECK(calls.lost());
  CHECK(calls.check(cudaErrorECCUncorrectable, "Event::wait").error().message ==
        "Event::wait on card 0: the card is lost: an illegal memory access was encountered");
  const Status later = calls.enter("Stream::fill");
  REQUIRE_FALSE(later.ok());
  CHECK(later.error().code == Code::kUnavailable);
  CHECK(later.error().message.find("Stream::fill on card 0: the card is lost: an illegal") == 0);
}

TEST_CASE("cuda calls: the driver's errors have the numbers that the switch knows") {
  CHECK(loses_card(static_cast<cudaError_t>(CUDA_ERROR_DEINITIALIZED)));
  CHECK(loses_card(static_cast<cudaError_t>(CUDA_ERROR_ECC_UNCORRECTABLE)));
  CHECK(loses_card(static_cast<cudaError_t>(CUDA_ERROR_ILLEGAL_ADDRESS)));
  CHECK(loses_card(static_cast<cudaError_t>(CUDA_ERROR_LAUNCH_FAILED)));
  CHECK(loses_card(static_cast<cudaError_t>(CUDA_ERROR_UNKNOWN)));
  CHECK_FALSE(loses_card(static_cast<cudaError_t>(CUDA_ERROR_INVALID_VALUE)));
  CHECK_FALSE(loses_card(static_cast<cudaError_t>(CUDA_ERROR_NOT_READY)));
  CHECK_FALSE(loses_card(cudaErrorNotReady));
}

}  // namespace troupe::gpu
