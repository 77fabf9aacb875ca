// SPDX-License-Identifier: Apache-2.0
#include "troupe/graph_file.h"

#include "io/file_system.h"
#include "troupe/graph_def.h"

namespace troupe {

Status read_graph_def(const std::string& path, Graph& graph, std::string_view prefix) {
  TROUPE_ASSIGN(const auto file, make_posix_file_system()->open(path));
  const auto read = [&](int64_t offset, void* to, size_t bytes) {
    return file->read(static_cast<uint64_t>(offset), to, bytes);
  };
  return from_graph_def({static_cast<int64_t>(file->size()), read}, graph, prefix);
}

}  // namespace troupe
