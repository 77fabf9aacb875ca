// SPDX-License-Identifier: Apache-2.0
// TaskDatasets: the datasets that a task of a cluster has from its start (ClusterOptions::datasets), which each of its
// clients finds at their first element. Thread-safe.
//
// A visit is one client's time with the task, by its number; a later one has a greater. Iterators are replaced, not
// restarted: a step of a client that has gone may still ask the old ones, and gets nothing of the next one's elements.
// Those of a repeatable dataset read nothing before they are asked: files may change until the next client comes.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "actors/directory.h"
#include "troupe/dataset.h"

namespace troupe {

class TaskDatasets {
 public:
  TaskDatasets(std::map<std::string, Dataset> datasets, std::shared_ptr<Directory> directory)
      : datasets_(std::move(datasets)), directory_(std::move(directory)) {}

  /// Makes the iterators, before the first visit. Error: what a dataset throws.
  Status begin();
  /// A client asks for its first step. No step of its visit begins before this returns.
  void came(uint64_t visit);
  /// The client has gone, and its steps have ended.
  void went(uint64_t visit);
  /// The default container was reset.
  void reset();

 private:
  /// Under mutex_: replaces all iterators; an error is logged.
  void begin_anew(const std::string& why);

  const std::map<std::string, Dataset> datasets_;
  const std::shared_ptr<Directory> directory_;
  std::mutex mutex_;  // held while iterators are made: nobody takes it who holds another
  uint64_t visit_ = 0;
  bool used_ = false;  // perhaps, by that visit
};

}  // namespace troupe
