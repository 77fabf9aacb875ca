// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as a sorted table, with the check sums of its blocks made right. What is read must be
// found by key, too, and survive being written and read again.
#include "io/crc32c.h"
#include "tests/fuzz/table_entries.h"

using namespace troupe;

namespace {

constexpr size_t kEnd = 48;

/// Makes the sum of the block right whose place stands at the front of `place`; what is in it.
std::string repair(std::string& bytes, std::string_view& place) {
  const auto offset = take_varint(place), size = take_varint(place);
  if (!offset || !size || *offset > bytes.size() || *size > bytes.size() - *offset ||
      bytes.size() - *offset - *size < 5 + kEnd)
    return "";
  std::string sum;
  put_word(sum, mask_crc(crc32c(bytes.data() + *offset, *size + 1)));
  bytes.replace(*offset + *size + 1, 4, sum);
  return bytes.substr(*offset, *size);
}

std::string with_sums(std::string bytes) {
  if (bytes.size() < kEnd) return bytes;
  bytes.replace(bytes.size() - 8, 8, "\x57\xfb\x80\x8b\x24\x75\x47\xdb");
  const std::string end = bytes.substr(bytes.size() - kEnd);
  std::string_view places(end);
  repair(bytes, places);
  const std::string index = repair(bytes, places);
  // The values of its entries are the places of blocks.
  for (std::string_view rest(index); !rest.empty();) {
    (void)take_varint(rest);
    const auto key = take_varint(rest), value = take_varint(rest);
    if (!key || !value || *key > rest.size() || *value > rest.size() - *key) break;
    std::string_view place = rest.substr(*key, *value);
    repair(bytes, place);
    rest.remove_prefix(*key + *value);
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = with_sums(std::string(reinterpret_cast<const char*>(data), size));
  const auto files = std::make_shared<SimulatedFiles>();
  if (!(*files->create("t"))->append(bytes.data(), bytes.size()).ok()) std::abort();
  if (!SortedTable::is_one(**files->open("t"))) return 0;
  auto table = SortedTable::open(*files->open("t"), "t");
  if (!table.ok()) return 0;
  testing::TableEntries entries;
  const Status read = table->for_each([&](std::string_view key, std::string_view value) -> Status {
    if (!entries.emplace(key, value).second) std::abort();
    return {};
  });
  if (!read.ok()) return 0;
  for (const auto& [key, value] : entries) {
    const auto found = table->find(key);
    if (!found.ok() || *found != value) std::abort();
  }
  testing::put_table(*files, "copy", entries);
  if (testing::entries_at(*files, "copy") != entries) std::abort();
  return 0;
}
