// SPDX-License-Identifier: Apache-2.0
// The datasets of a task that its command line names: files that all tasks of its job read, each its shard.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "net/cluster_spec.h"
#include "troupe/dataset.h"

namespace troupe {

/// As --records, --lines, --batch and --repeat have it.
struct WorkerDatasets {
  std::vector<std::string> records, lines;  // NAME=PATTERN, see io/file_pattern.h
  int64_t batch = 0;                        // elements; 0: one by one
  bool repeat = false;
};

/// The shard of a task: by its place among the tasks of its job.
Shard shard_of(const net::ClusterSpec& cluster, const net::TaskId& task);

/// The datasets by name. The files of the shard are opened once, to see that they can be. Errors, each naming the
/// option: kInvalidArgument for what is not NAME=PATTERN, a name twice, a pattern that is none, --batch or --repeat
/// without a dataset; kNotFound where no file matches; what the system says of a file.
Result<std::map<std::string, Dataset>> read_datasets(const WorkerDatasets& wanted, Shard shard);

}  // namespace troupe
