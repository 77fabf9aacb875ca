// SPDX-License-Identifier: Apache-2.0
// CollectiveRunner: carries out the collectives of one engine's devices: makes communicators, launches, watches, and
// ends what hangs. Implemented in gpu/collective_runner.cpp.
//
// Invariants:
//  1. One thread launches everything, one collective after the other, into one stream for each device: so all cards
//     come to them in one order, and none can wait for another in a circle.
//  2. A collective is done when the host knows that all its ranks are: only then is somebody told. So what it has made
//     is whole, and an error is told before anybody reads it. No compute stream ever waits for a collective.
//  3. A communicator that failed is revoked, or else aborted, and always aborted in the end, by a thread that nobody
//     waits for long. Until that has returned the memory of its collectives is kept, and its devices begin no other.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/collectives.h"
#include "gpu/logical_device.h"

namespace troupe::gpu {

struct CollectiveRunnerOptions {
  /// How long a collective may take, from when the first of its cards has come to it; and so long may a communicator
  /// take to be made.
  std::chrono::nanoseconds timeout{std::chrono::seconds(60)};
  /// How long the others wait for the end of a communicator that failed, and the end of all for that of any.
  std::chrono::nanoseconds patience{std::chrono::seconds(5)};
};

/// Any thread may call anything, but stop() comes once, and last.
class CollectiveRunner {
 public:
  struct Member {
    std::string name;  // "/job:localhost/replica:0/task:0/device:gpu:0"
    LogicalDevice* device = nullptr;
  };
  /// A collective whose addresses are those of `inputs` and `outputs`, in the memory of its ranks' devices. Inputs are
  /// what the compute streams make by now. Of a broadcast only the root has an input, and the others an output.
  struct Task {
    std::vector<size_t> members;  // by rank: numbers of members, on distinct cards
    Collective collective;        // not empty
    std::vector<Tensor> inputs, outputs;
    /// Called once, by a thread that may not be kept. Errors: kDeadlineExceeded, naming the devices that have not come
    /// or hang; those of the library; kUnavailable of cards that are lost, or that an earlier communicator holds;
    /// kCancelled by stop().
    std::function<void(Status)> done;
  };

  CollectiveRunner(std::shared_ptr<Runtime> runtime, std::shared_ptr<Collectives> library, std::vector<Member> members,
                   CollectiveRunnerOptions options = {});
  /// As stop().
  ~CollectiveRunner();
  CollectiveRunner(const CollectiveRunner&) = delete;

  std::span<const Member> members() const { return members_; }
  /// The number of the member whose kernels run by that; none: it is of another engine.
  std::optional<size_t> member_of(const Compute* compute) const;
  /// Whether members whose kernels run by these are on distinct cards.
  bool can_join(std::span<const Compute* const> computes) const;
  void run(Task task);
  /// Ends what is under way, and waits for that as long as the options say. The members may go afterwards.
  void stop();

 private:
  class Loop;
  const std::vector<Member> members_;
  std::vector<const Compute*> computes_;  // of members, which may have gone
  const std::unique_ptr<Loop> loop_;
};

}  // namespace troupe::gpu
