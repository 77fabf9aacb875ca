// SPDX-License-Identifier: Apache-2.0
// BatchSource: the batches of a dataset for a loop that must end in time though the dataset waits.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "troupe/dataset.h"

namespace troupe::nn {

/// One iterator. A dataset that may wait is asked by a thread apart, for one batch at a time, none ahead. Calls come
/// from one thread at a time, but for interrupt().
class BatchSource {
 public:
  using Batch = Result<std::optional<Element>>;

  static Result<std::unique_ptr<BatchSource>> make(const Dataset& batches);
  /// Cancels the iterator. A thread that does not come back within a second is left behind. In a child
  /// after fork() nothing is done.
  ~BatchSource();
  BatchSource(const BatchSource&) = delete;

  /// What iterator.next() gives, an exception as an error; nothing once `stopped` holds before that. The batch that
  /// comes later is then what the next call gives. `stopped` is asked under a lock that interrupt() takes.
  std::optional<Batch> next(const std::function<bool()>& stopped);
  /// Has a next() that waits ask `stopped` again. From any thread.
  void interrupt();

 private:
  struct State;
  explicit BatchSource(std::shared_ptr<State> state);
  const std::shared_ptr<State> state_;
};

}  // namespace troupe::nn
