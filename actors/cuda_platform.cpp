// SPDX-License-Identifier: Apache-2.0
#include "actors/cuda_platform.h"

namespace troupe {

Result<std::shared_ptr<const GpuPlatform>> make_cuda_platform() {
  return make_error(Code::kUnavailable, "this build of Troupe has no support for CUDA");
}

}  // namespace troupe
