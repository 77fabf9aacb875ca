// SPDX-License-Identifier: Apache-2.0
#include "base/engine_thread.h"

namespace troupe {

EngineThread*& EngineThread::innermost() {
  static thread_local EngineThread* at = nullptr;
  return at;
}

}  // namespace troupe
