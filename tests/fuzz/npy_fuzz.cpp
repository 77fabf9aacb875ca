// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as a .npy file. What is read must survive being written and read again.
#include "troupe/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensor = troupe::decode_npy({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!tensor.ok()) return 0;
  const auto bytes = troupe::encode_npy(*tensor, "fuzz");
  if (!bytes.ok()) std::abort();
  const auto again = troupe::decode_npy(*bytes, "fuzz");
  if (!again.ok() || !again->identical(*tensor)) std::abort();
  return 0;
}
