// SPDX-License-Identifier: Apache-2.0
// Stream: frames of one lane in order and exactly once, over connections that break. Heartbeat: tells when a peer is
// lost. Both without sockets, threads and clocks of their own. Implemented in net/session.cpp.
//
// Invariants of a Stream, of which the tests try to break each:
//  1. Sequenced frames are numbered 1, 2, 3 ... in the order of push(). A number stays that frame's for good.
//  2. acknowledged <= sent <= highest number handed out <= pushed. A frame is kept until it is acknowledged.
//  3. What is in flight (acknowledged, sent] has at most credit_frames and credit_bytes, or is one frame alone.
//  4. receive() says true for the numbers 1, 2, 3 ... , each once. A smaller number is a duplicate, dropped and
//  counted;
//     a greater one than the next is an error.
//  5. received never falls, and each frame that goes out carries it. A peer that sends without end hears of it: by a
//     frame, or by an ACK that is due after ack_frames, ack_bytes or ack_delay_ns.
//  6. An acknowledgement of what was never sent is an error; an old one changes nothing.
//  7. resume(n) leaves the two sides as if all frames up to n, if not more, had been acknowledged and none after that
//     sent.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>

#include "net/frame.h"
#include "troupe/error.h"

namespace troupe::net {

struct StreamOptions {
  uint64_t credit_bytes = uint64_t{64} << 20;  // in flight: sent and not acknowledged
  uint64_t credit_frames = 2048;
  uint64_t ack_bytes = uint64_t{4} << 20;  // received and not acknowledged: an ACK is due
  uint64_t ack_frames = 256;
  int64_t ack_delay_ns = 20'000'000;
};

/// A frame with the numbers it goes out with: lane.add(out.frame, out.sequence, out.acknowledged).
struct OutgoingFrame {
  FrameRef frame;
  uint64_t sequence = 0, acknowledged = 0;
};

struct StreamCounters {
  uint64_t resent = 0;      // frames handed out again after a reconnection
  uint64_t duplicates = 0;  // frames that came again and were dropped
  uint64_t acks = 0;        // bare ACKs
  uint64_t resumes = 0;
};

/// One thread at a time. Lives as long as the two incarnations talk, through any number of connections.
class Stream {
 public:
  explicit Stream(StreamOptions options = {}) : options_(options) {}

  // --- sending ---

  /// Takes a frame of a sequenced type, behind those that wait. It has no bound of its own: look at waiting_bytes().
  void push(FrameRef frame);
  /// The next frame to be written, if there is one and credit for it.
  std::optional<OutgoingFrame> next();
  /// A frame without a number (PING, PONG, BYE), to be written now.
  OutgoingFrame unsequenced(FrameRef frame);
  uint64_t waiting_frames() const { return kept_.size() - in_flight_frames(); }
  uint64_t waiting_bytes() const { return kept_bytes_ - in_flight_bytes_; }
  uint64_t in_flight_frames() const { return sent_ - acknowledged_; }
  uint64_t in_flight_bytes() const { return in_flight_bytes_; }
  /// Those that are not acknowledged, in the order of push().
  const std::deque<FrameRef>& kept() const { return kept_; }
  /// The numbers of the invariants.
  uint64_t acknowledged() const { return acknowledged_; }
  uint64_t sent() const { return sent_; }

  // --- receiving ---

  /// Looks at the header of each frame that comes. Returns whether the frame is to be delivered: true for the next in
  /// order and for frames without a number, false for a duplicate. `now` in nanoseconds. Errors: kDataLoss for a gap,
  /// with both numbers, and for an acknowledgement of what was not sent. A connection with an error must be closed.
  Result<bool> receive(const FrameHeader& header, int64_t now);
  /// All up to here have come.
  uint64_t received() const { return received_; }
  /// An ACK frame, when one is due.
  std::optional<OutgoingFrame> ack(int64_t now);
  /// When ack() should be called at the latest; none: nothing is unacknowledged.
  std::optional<int64_t> ack_at() const { return ack_at_; }

  // --- connections ---

  /// A new connection stands, and the peer has received all up to `peer_received`, or to what it has acknowledged: it
  /// may have gone on over the old connection since it said so. What came after that is handed out again by next().
  /// What the last connection still held must be dropped before. Error: kDataLoss for a number that was not sent.
  Status resume(uint64_t peer_received);

  const StreamCounters& counters() const { return counters_; }

 private:
  Status acknowledge(uint64_t number);
  OutgoingFrame outgoing(FrameRef frame, uint64_t sequence);

  StreamOptions options_;
  std::deque<FrameRef> kept_;  // of the numbers acknowledged_ + 1 ...
  uint64_t kept_bytes_ = 0, in_flight_bytes_ = 0;
  uint64_t acknowledged_ = 0, sent_ = 0, highest_ = 0;
  uint64_t received_ = 0, told_ = 0;  // told_: of received_, what the peer was told
  uint64_t untold_bytes_ = 0;
  std::optional<int64_t> ack_at_;
  FrameRef ack_frame_;
  StreamCounters counters_;
};

struct HeartbeatOptions {
  int64_t interval_ns = 200'000'000;
  int64_t limit_ns = 2'000'000'000;  // of silence, several intervals
};

/// Says when to send a PING, and that a peer is lost when nothing came from it for so long. Anything that comes counts.
/// If this process itself stood still, so that tick() was called late, the peer is not blamed for that time.
class Heartbeat {
 public:
  explicit Heartbeat(int64_t now, HeartbeatOptions options = {});

  /// Bytes came from the peer.
  void heard(int64_t now);
  /// The peer's answer to a Ping that said `sent`.
  void pong(int64_t sent, int64_t now);

  enum class Verdict { kQuiet, kPing, kLost };
  /// What to do now: nothing, send a PING with `now`, or give the peer up, which stays so. Call it at next() at the
  /// latest.
  Verdict tick(int64_t now);
  /// When something is to be done, unless something is heard.
  int64_t next() const;
  /// How long nothing came.
  int64_t silence(int64_t now) const { return now - heard_; }
  /// Of the last PING that was answered; none: none was.
  std::optional<int64_t> round_trip_ns() const { return round_trip_; }

 private:
  HeartbeatOptions options_;
  int64_t heard_, ticked_, pinged_;
  bool lost_ = false;
  std::optional<int64_t> round_trip_;
};

}  // namespace troupe::net
