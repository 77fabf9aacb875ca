// SPDX-License-Identifier: Apache-2.0
// FakeCollectives: collectives of the fake's cards, whose links are the host's memory. Each rank's stream reads its
// input when it comes to it and waits for the others there, as NCCL's kernels do; sums are taken in the order of
// nn::all_reduce (troupe/collectives.h), so the bits are those of the ring. Implemented in
// gpu/fake/fake_collectives.cpp.
#pragma once
#include <memory>

#include "gpu/collectives.h"
#include "gpu/fake/fake_runtime.h"

namespace troupe::gpu {

/// Calls that can be told to fail.
enum class FakeCollectiveCall { kMake, kReady, kLaunch, kRevoke, kShrink };

/// Thread-safe. Where a card of a communicator is lost, what its ranks have under way never ends, until it is revoked
/// or aborted; its outputs then hold what is NaN of all floating-point types.
class FakeCollectives final : public Collectives {
 public:
  explicit FakeCollectives(std::shared_ptr<FakeRuntime> runtime);
  ~FakeCollectives() override;

  Result<std::unique_ptr<Communicator>> make(std::span<const int> cards) override;

  /// The n-th call of a kind from now on (1: the next one) fails with `code`.
  void fail(FakeCollectiveCall call, int64_t n, Code code);
  /// The n-th collective that is launched from now on hangs: `card` never takes its part.
  void hang(int card, int64_t n = 1);
  /// The n-th collective that is launched from now on hangs, and its communicator's ready() tells `code`.
  void break_down(int64_t n, Code code);
  /// Calls are in progress for so many calls of ready().
  void be_slow(int polls);
  /// From now on abort() waits, until this is called with false.
  void block_aborts(bool block = true);
  /// revoke() and shrink() are not there.
  void be_old();

  struct Counts {
    int made = 0, shrunk = 0, revoked = 0, aborted = 0;  // communicators
    int alive = 0;
    int launched = 0;  // collectives
  };
  Counts counts() const;

 private:
  struct Shared;
  class Comm;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace troupe::gpu
