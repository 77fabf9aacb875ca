// SPDX-License-Identifier: Apache-2.0
// PeerLoad: what is on its way to a peer, so that devices hold steps that would send to one that is slow.
#pragma once
#include <atomic>
#include <cstdint>

namespace troupe {

/// From PeerStream::send() until it is acknowledged. Thread-safe.
class PeerLoad {
 public:
  /// More than that, in more than one frame, and devices wait before they send more.
  static constexpr uint64_t kMostBytes = uint64_t{64} << 20, kMostFrames = 4096;
  /// Whether who sends is to wait, until let_go() was true once.
  bool add(uint64_t bytes) {
    frames_ += 1, bytes_ += bytes;
    if (!full()) return false;
    holds_ = true;
    return full();  // it may have been emptied in between, and then nobody lets go
  }
  void remove(uint64_t frames, uint64_t bytes) { frames_ -= frames, bytes_ -= bytes; }
  /// Whether somebody waits who need not any longer.
  bool let_go() { return !full() && holds_.exchange(false); }
  uint64_t bytes() const { return bytes_; }

 private:
  bool full() const { return frames_ > kMostFrames || (bytes_ > kMostBytes && frames_ > 1); }
  std::atomic<uint64_t> frames_{0}, bytes_{0};
  std::atomic<bool> holds_{false};
};

}  // namespace troupe
