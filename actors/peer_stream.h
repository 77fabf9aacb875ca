// SPDX-License-Identifier: Apache-2.0
// PeerStream: one lane of a peer: its frames in order and once each (net/session.h), over one connection after the
// other. Whoever has a frame sends it in its own turn, without a hand-over to another thread.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "actors/lane_handler.h"
#include "actors/peer_load.h"
#include "net/session.h"

namespace troupe {

/// States: without a connection <-> connected -> closed. Thread-safe; nothing waits, and nothing is called back with
/// its mutex held. Connections have numbers, which never come again, so that what is late of an old one can be told.
class PeerStream {
 public:
  explicit PeerStream(std::shared_ptr<PeerLoad> load) : load_(std::move(load)) {}

  /// What became of a frame. kFull: it has its turn, and who sends is to wait, see PeerLoad::add(). kClosed: it is
  /// dropped.
  enum class Sent { kYes, kFull, kClosed };
  /// Sends it in its turn: now, or when there is a connection and credit.
  Sent send(net::FrameRef frame);
  /// The same, for another thread to write it: by flush().
  Sent queue(net::FrameRef frame);
  /// Sends what has its turn.
  void flush();
  /// A PING, PONG or BYE: now, or never.
  void send_now(net::FrameRef frame);

  /// Starts the connection, which takes the place of any other; what the peer lacks goes out again. `resumed` and
  /// `received` are net::Accepted's. Error: the two sides cannot go on from there; close() is then to follow.
  Status connect(uint64_t number, std::shared_ptr<LaneHandler> connection, bool resumed, uint64_t received);
  /// Closes that connection; false: it is not the present one.
  bool disconnect(uint64_t number);
  /// For good. Once it has returned, `take` of receive() is not running, and is not called any more. Returns the frames
  /// that the peer has not acknowledged.
  std::vector<net::FrameRef> close();
  bool connected() const;

  /// What came over a connection, on the multiplexer's thread: acknowledges it, sends what there is credit for now, and
  /// calls `take` with those frames that are to be delivered, or an error of net::Stream::receive(). What came over an
  /// old connection is dropped: it comes again. `take` may call all functions but receive() and close().
  using Take = std::function<void(Result<std::vector<net::ReceivedFrame>>)>;
  void receive(uint64_t number, std::vector<net::ReceivedFrame> frames, int64_t now, const Take& take);
  /// When tick() is due for what came; tells it once for each call of tick().
  std::optional<int64_t> wants_tick();
  /// Acknowledges what has waited for long enough. When it is due again, if it is.
  std::optional<int64_t> tick(int64_t now);

  /// All up to here have come.
  uint64_t received() const;
  /// Whether anything has come, a PING included.
  bool heard() const;
  /// See LaneHandler. Without a connection: none, and 0.
  std::optional<int64_t> heard_ns() const;
  int64_t stands_ns(int64_t now) const;

 private:
  Result<std::vector<net::ReceivedFrame>> fresh_of(std::vector<net::ReceivedFrame> frames, int64_t now);
  /// With the mutex held: what queue() does.
  Sent push(net::FrameRef frame);
  /// With the mutex held: hands on what there is credit for, in its order. Where there is something, what is to write
  /// it when the mutex is free again: a write may take long.
  [[nodiscard]] std::shared_ptr<LaneHandler> hand_on(int64_t now);
  /// Takes what was acknowledged out of the load.
  void unload();

  const std::shared_ptr<PeerLoad> load_;
  std::mutex receiving_;      // held while `take` runs; before mutex_
  mutable std::mutex mutex_;  // guards all that follows
  net::Stream stream_;
  std::shared_ptr<LaneHandler> connection_;
  uint64_t number_ = 0;                            // of the present connection, or the last
  uint64_t loaded_frames_ = 0, loaded_bytes_ = 0;  // of this stream in the load
  bool heard_ = false, told_ = false, closed_ = false;
};

}  // namespace troupe
