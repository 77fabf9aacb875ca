// SPDX-License-Identifier: Apache-2.0
#include "base/system_code.h"

#include <catch2/catch.hpp>
#include <cerrno>

namespace troupe {

TEST_CASE("what the system refuses is not called an internal error where the cause is outside") {
  const std::pair<int, Code> expected[] = {{ENOENT, Code::kNotFound},
                                           {ENOTDIR, Code::kNotFound},
                                           {EEXIST, Code::kAlreadyExists},
                                           {EADDRINUSE, Code::kAlreadyExists},
                                           {EACCES, Code::kFailedPrecondition},
                                           {EROFS, Code::kFailedPrecondition},
                                           {EADDRNOTAVAIL, Code::kFailedPrecondition},
                                           {ENAMETOOLONG, Code::kInvalidArgument},
                                           {EISDIR, Code::kInvalidArgument},
                                           {ENOSPC, Code::kResourceExhausted},
                                           {EMFILE, Code::kResourceExhausted},
                                           {EIO, Code::kDataLoss},
                                           {EFAULT, Code::kInternal}};
  for (const auto& [number, code] : expected) {
    INFO(number);
    CHECK(code_of_system_error(number) == code);
  }
}

}  // namespace troupe
