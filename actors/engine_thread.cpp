// SPDX-License-Identifier: Apache-2.0
#include "actors/engine_thread.h"

namespace troupe {

EngineThread*& EngineThread::innermost() {
  static thread_local EngineThread* at = nullptr;
  return at;
}

}  // namespace troupe
