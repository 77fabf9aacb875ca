// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as a TFRecord file, as they are and with check sums put right, which no mutation would
// guess. Records that are read must be those of the file.
#include <algorithm>

#include "io/crc32c.h"
#include "io/tfrecord.h"
#include "tests/fuzz/memory_file.h"

using namespace troupe;

namespace {

void put(std::string& bytes, size_t at, uint32_t sum) {
  for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(sum >> (8 * i));
}

std::string with_right_sums(std::string bytes) {
  for (size_t at = 0; bytes.size() - at >= 12;) {
    uint64_t length = 0;
    for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[at + i]);
    put(bytes, at + 8, mask_crc(crc32c(bytes.data() + at, 8)));
    at += 12;
    if (bytes.size() - at < 4 || length > bytes.size() - at - 4) break;
    put(bytes, at + length, mask_crc(crc32c(bytes.data() + at, length)));
    at += length + 4;
  }
  return bytes;
}

void read(const std::string& bytes) {
  const testing::MemoryFile file(bytes);
  auto reader = RecordReader::open(file.path());
  if (!reader.ok()) std::abort();
  std::string again;
  for (auto record = reader->next();; record = reader->next()) {
    if (!record.ok()) return;
    if (!*record) break;
    again += encode_record(**record);
  }
  const bool gzip = bytes.starts_with("\x1f\x8b");
  if (!gzip && again != bytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  read(with_right_sums(bytes));
  return 0;
}
