// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as a .npz file.
#include "tests/fuzz/memory_file.h"
#include "troupe/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const troupe::testing::MemoryFile file({reinterpret_cast<const char*>(data), size});
  (void)troupe::read_npz(file.path()).ok();
  return 0;
}
