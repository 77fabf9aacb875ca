// SPDX-License-Identifier: Apache-2.0
// What stands for CUDA in a build without its toolkit (TROUPE_CUDA).
#include "gpu/cuda_runtime.h"

namespace troupe::gpu {

Result<std::shared_ptr<Runtime>> make_cuda_runtime() {
  return make_error(Code::kUnavailable, "CUDA: Troupe was built without it");
}

}  // namespace troupe::gpu
