// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as an idx file, plain or gzip.
#include "tests/fuzz/memory_file.h"
#include "troupe/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const troupe::testing::MemoryFile file({reinterpret_cast<const char*>(data), size});
  const auto tensor = troupe::read_idx(file.path());
  // A file holds all that its header declares; gzip packs at most 1032 to 1.
  if (tensor.ok() && tensor->bytes() > size * 1032) std::abort();
  return 0;
}
