// SPDX-License-Identifier: Apache-2.0
#include "base/system_code.h"

#include <cerrno>

namespace troupe {

Code code_of_system_error(int number) {
  switch (number) {
    case ENOENT:
    case ENOTDIR: return Code::kNotFound;
    case EEXIST:
    case EADDRINUSE: return Code::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
    case EBUSY:
    case ETXTBSY:
    case ENOTEMPTY:
    case ENOEXEC:
    case EPIPE:
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT: return Code::kFailedPrecondition;
    case EISDIR:
    case EINVAL:
    case ELOOP:
    case ENAMETOOLONG:
    case E2BIG: return Code::kInvalidArgument;
    case EAGAIN:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case ENOBUFS:
    case EMFILE:
    case ENFILE: return Code::kResourceExhausted;
    case EIO: return Code::kDataLoss;
    default: return Code::kInternal;
  }
}

}  // namespace troupe
