// SPDX-License-Identifier: Apache-2.0
// Troupe's ops and kernels, made once for all tests of a program: to make them takes longer than many a test.
#pragma once
#include "troupe/op_library.h"

namespace troupe::testing {

inline const std::shared_ptr<const OpLibrary>& op_library() {
  static const std::shared_ptr<const OpLibrary> made = make_op_library();
  return made;
}

}  // namespace troupe::testing
