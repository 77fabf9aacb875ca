// SPDX-License-Identifier: Apache-2.0
// Collectives by NCCL. Implemented in gpu/cuda/nccl_collectives.cpp.
#pragma once
#include <memory>

#include "gpu/collectives.h"

namespace troupe::gpu {

/// The library, opened now. Its communicators do not block. Versions before 2.28.7 cannot revoke, so that a
/// communicator which fails is only aborted, and another made from nothing. Errors: kUnavailable, in one line: the
/// library is not there, too old (before 2.18), or this build had not its header.
Result<std::shared_ptr<Collectives>> make_nccl();

}  // namespace troupe::gpu
