// SPDX-License-Identifier: Apache-2.0
// The ops and kernels that come with Troupe, for engines to share. Implemented in ops/all.cpp.
#pragma once
#include <memory>

#include "troupe/export.h"
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace TROUPE_API troupe {

/// Ops and kernels. Filled once, then only read, by any thread.
struct OpLibrary {
  OpRegistry ops;
  KernelRegistry kernels;
};

/// All of Troupe's own but for the kernels of GPUs. Takes some milliseconds; a copy of it takes a fraction of one.
std::shared_ptr<const OpLibrary> make_op_library();

}  // namespace troupe
