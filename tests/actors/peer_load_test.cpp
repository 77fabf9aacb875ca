// SPDX-License-Identifier: Apache-2.0
// PeerLoad: who sends more than a peer takes waits, and never for ever.
#include <catch2/catch.hpp>

#include <semaphore>
#include <thread>

#include "actors/peer_load.h"
#include "tests/repeats.h"

using namespace troupe;

TEST_CASE("a load is full with more than its bytes in two frames, or with too many frames") {
  PeerLoad one;
  CHECK_FALSE(one.add(10 * PeerLoad::kMostBytes));  // alone, it may be as large as it likes
  CHECK(one.add(1));
  CHECK_FALSE(one.let_go());
  one.remove(1, 10 * PeerLoad::kMostBytes);
  CHECK(one.let_go());
  CHECK_FALSE(one.let_go());  // once
  CHECK(one.bytes() == 1);

  PeerLoad small;
  for (uint64_t i = 0; i < PeerLoad::kMostFrames; ++i) REQUIRE_FALSE(small.add(1));
  CHECK(small.add(1));
  small.remove(1, 1);
  CHECK(small.let_go());
}

TEST_CASE("who is told to wait is let go, whichever thread comes first") {
  PeerLoad load;
  std::counting_semaphore<> sent(0), let_go(0);
  const int frames = many(100'000);
  constexpr uint64_t kBytes = PeerLoad::kMostBytes / 2;
  std::thread taker([&] {
    for (int i = 0; i < frames; ++i) {
      sent.acquire();
      load.remove(1, kBytes);
      if (load.let_go()) let_go.release();
    }
  });
  for (int i = 0; i < frames; ++i) {
    const bool full = load.add(kBytes);
    sent.release();
    if (full) let_go.acquire();
  }
  taker.join();
  CHECK(load.bytes() == 0);
}
