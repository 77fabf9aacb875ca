// SPDX-License-Identifier: Apache-2.0
#include "cli/worker_datasets.h"

#include <unistd.h>

#include "io/file_pattern.h"
#include "io/file_system.h"

namespace troupe {
namespace {

using FromFiles = Result<Dataset> (*)(std::vector<std::string> files, Shard shard);

Error in_option(const char* option, const std::string& text, Error error) {
  error.message = fmt::format("{} {}: {}", option, text, error.message);
  return error;
}

/// A FIFO would be waited for, and has no second pass.
Status can_open(const std::string& path) {
  TROUPE_ASSIGN(const int fd, open_for_reading(path, false));
  ::close(fd);
  return {};
}

Result<Dataset> read_files(FromFiles from_files, const std::string& pattern, Shard shard) {
  TROUPE_ASSIGN(auto files, matching_files(pattern));
  if (files.empty()) return make_error(Code::kNotFound, "no file matches");
  const int64_t step = std::ssize(files) < shard.count ? 1 : shard.count;
  for (int64_t i = step == 1 ? 0 : shard.index; i < std::ssize(files); i += step)
    TROUPE_RETURN_IF_ERROR(can_open(files[static_cast<size_t>(i)]));
  return from_files(std::move(files), shard);
}

Status add(const char* option, const std::string& text, FromFiles from_files, const WorkerDatasets& wanted, Shard shard,
           std::map<std::string, Dataset>& out) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return in_option(option, text, invalid_argument("NAME=PATTERN is expected"));
  const std::string name = text.substr(0, equals);
  if (out.contains(name)) return in_option(option, text, invalid_argument("there is a dataset '{}' already", name));
  auto dataset = read_files(from_files, text.substr(equals + 1), shard);
  if (!dataset.ok()) return in_option(option, text, std::move(dataset.error()));
  if (wanted.repeat) dataset = dataset->repeat();
  if (wanted.batch > 0) dataset = dataset->batch(wanted.batch);
  out.emplace(name, std::move(*dataset));
  return {};
}

}  // namespace

Shard shard_of(const net::ClusterSpec& cluster, const net::TaskId& task) {
  const auto& tasks = cluster.jobs().at(task.job);
  return {std::ssize(tasks), std::distance(tasks.begin(), tasks.find(task.task))};
}

Result<std::map<std::string, Dataset>> read_datasets(const WorkerDatasets& wanted, Shard shard) {
  std::map<std::string, Dataset> out;
  for (const std::string& text : wanted.records)
    TROUPE_RETURN_IF_ERROR(add("--records", text, Dataset::from_records, wanted, shard, out));
  for (const std::string& text : wanted.lines)
    TROUPE_RETURN_IF_ERROR(add("--lines", text, Dataset::from_text_lines, wanted, shard, out));
  if (out.empty() && (wanted.batch > 0 || wanted.repeat))
    return invalid_argument("{} is of the datasets of --records and --lines, and there is none",
                            wanted.batch > 0 ? "--batch" : "--repeat");
  return out;
}

}  // namespace troupe
