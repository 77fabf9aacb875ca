// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as a checkpoint. What is read must survive being written and read again; a check sum that
// is demanded makes no other difference than an error.
#include "io/safetensors.h"
#include "tests/fuzz/memory_file.h"

using namespace troupe;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const testing::MemoryFile file({reinterpret_cast<const char*>(data), size});
  const auto read = read_safetensors(file.path());
  const auto opened = make_posix_file_system()->open(file.path());
  if (!opened.ok()) std::abort();
  const auto checked = decode_safetensors(**opened, file.path(), true);
  if (checked.ok() != (read.ok() && read->checked)) std::abort();
  if (!read.ok()) return 0;

  const auto encoded = encode_safetensors(read->tensors, read->step);
  if (!encoded.ok()) std::abort();
  std::string bytes = encoded->header;
  for (const auto& [piece, length] : encoded->data) bytes.append(static_cast<const char*>(piece), length);
  const testing::MemoryFile copy(bytes);
  const auto again = read_safetensors(copy.path());
  if (!again.ok() || !again->checked || again->tensors.size() != read->tensors.size()) std::abort();
  for (const auto& [name, tensor] : read->tensors)
    if (!again->tensors.at(name).identical(tensor)) std::abort();
  return 0;
}
