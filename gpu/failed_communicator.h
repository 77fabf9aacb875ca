// SPDX-License-Identifier: Apache-2.0
// FailedCommunicator: sees a communicator that failed to its end: revokes it, makes one of the cards that are left
// where some are lost, and aborts it by a thread of its own. Implemented in gpu/failed_communicator.cpp.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "gpu/collectives.h"
#include "troupe/tensor.h"

namespace troupe::gpu {

/// One thread at a time.
class FailedCommunicator {
 public:
  using Clock = std::chrono::steady_clock;
  /// What its collectives use, kept until it is aborted and the streams have done what they held.
  struct Kept {
    std::vector<Tensor> tensors;
    std::vector<std::shared_ptr<Stream>> streams;
  };

  /// Begins with its end. Revoking and shrinking may take `patience` each, then it goes on to the abort.
  FailedCommunicator(std::shared_ptr<Runtime> runtime, std::unique_ptr<Communicator> communicator, Kept kept,
                     std::chrono::nanoseconds patience);
  /// The end need not have come: what is needed for it lives on.
  ~FailedCommunicator();
  FailedCommunicator(const FailedCommunicator&) = delete;

  Clock::time_point since() const { return since_; }
  /// Looks how far it is, without waiting; true when it has ended, then and later. `is_lost(rank)`: whether its card
  /// is.
  bool go_on(const std::function<bool(size_t rank)>& is_lost);
  /// The communicator of the cards that are left, ready to be used; null: there is none.
  std::unique_ptr<Communicator> take_rest() { return std::move(shrunk_); }
  /// Leaves out what is not begun but the abort.
  void hurry();
  /// Waits until then at most for the end. Whether it has come.
  bool await_end(Clock::time_point until);

 private:
  struct Ending;
  enum class Stage { kRevoking, kShrinking, kAborting };
  bool shrink(const std::function<bool(size_t rank)>& is_lost);
  void abort();
  void start();

  const std::shared_ptr<Runtime> runtime_;
  const std::chrono::nanoseconds patience_;
  const Clock::time_point since_ = Clock::now();
  Stage stage_ = Stage::kRevoking;
  Clock::time_point stage_since_ = since_;
  std::unique_ptr<Communicator> communicator_, rest_, shrunk_;
  Kept kept_;
  std::shared_ptr<Ending> ending_;  // of the abort, whose thread has it too
  std::thread thread_;
};

}  // namespace troupe::gpu
