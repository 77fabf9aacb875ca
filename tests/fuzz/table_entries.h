// SPDX-License-Identifier: Apache-2.0
// Sorted tables from the bytes of a fuzzer: sums that are right by themselves would stop it at the first byte that it
// changes.
#pragma once
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "io/sorted_table.h"
#include "io/varint.h"
#include "tests/io/simulated_files.h"

namespace troupe::testing {

using TableEntries = std::map<std::string, std::string>;

/// A count, and for each entry lengths and bytes of key and value; as much of it as there is. Takes it from `bytes`.
inline TableEntries take_entries(std::string_view& bytes) {
  TableEntries out;
  const auto text = [&bytes] {
    const uint64_t told = take_varint(bytes).value_or(0);
    const size_t length = std::min<uint64_t>(told, bytes.size());
    const std::string_view text = bytes.substr(0, length);
    bytes.remove_prefix(length);
    return std::string(text);
  };
  for (uint64_t left = take_varint(bytes).value_or(0); left > 0 && !bytes.empty(); --left) {
    std::string key = text();
    out[std::move(key)] = text();
  }
  return out;
}

/// What take_entries() takes.
inline std::string put_entries(const TableEntries& entries) {
  std::string out;
  put_varint(out, entries.size());
  for (const auto& [key, value] : entries)
    for (const std::string& text : {key, value}) {
      put_varint(out, text.size());
      out += text;
    }
  return out;
}

/// Puts a table of the entries at `path`.
inline void put_table(SimulatedFiles& files, const std::string& path, const TableEntries& entries) {
  const auto file = files.create(path);
  if (!file.ok()) std::abort();
  SortedTableWriter table(**file);
  for (const auto& [key, value] : entries)
    if (!table.add(key, value).ok()) std::abort();
  if (!table.finish().ok()) std::abort();
}

/// The entries of the table at `path`, in order.
inline TableEntries entries_at(SimulatedFiles& files, const std::string& path) {
  auto table = SortedTable::open(*files.open(path), path);
  TableEntries out;
  if (!table.ok()) std::abort();
  const Status status = table->for_each([&out](std::string_view key, std::string_view value) -> Status {
    out.emplace(key, value);
    return {};
  });
  if (!status.ok()) std::abort();
  return out;
}

}  // namespace troupe::testing
