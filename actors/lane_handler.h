// SPDX-License-Identifier: Apache-2.0
// LaneHandler: a lane (net/lane.h) as an event handler of CAF's multiplexer. Frames are written by whoever sends them,
// in its own turn, as far as the socket takes them; the multiplexer writes the rest, and reads. Nobody waits while
// another thread writes: that one takes along what has come meanwhile.
#pragma once
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/event_handler.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "actors/sockets.h"
#include "net/lane.h"
#include "net/session.h"

namespace troupe {

/// States: made -> watched (start) -> closed (close, or the connection broke). Thread-safe.
class LaneHandler final : public caf::io::network::event_handler {
 public:
  /// Both on the multiplexer's thread. `broken` is called once at most, and nothing after it; after close() neither.
  struct Callbacks {
    std::function<void(std::vector<net::ReceivedFrame>)> frames;
    std::function<void(Error)> broken;
  };

  /// Takes the connection over, which is closed in the end.
  static std::shared_ptr<LaneHandler> make(caf::io::network::default_multiplexer& multiplexer, Connection connection,
                                           net::LaneOptions options, Callbacks callbacks);
  void start();
  /// Writes them behind those that were sent before, now or when the socket can take them; after the connection has
  /// broken nothing. Frames that two threads send at once go in the order in which they came here.
  void send(std::vector<net::OutgoingFrame> frames) {
    queue(std::move(frames));
    write_queue();
  }
  /// The two halves of that: the first takes moments, the second as long as the socket takes more.
  void queue(std::vector<net::OutgoingFrame> frames);
  void write_queue();
  /// No callback comes later than the one under way. The socket is closed when the multiplexer has let go of it.
  void close();
  /// When bytes came last; steady clock.
  int64_t heard_ns() const { return heard_ns_.load(std::memory_order_relaxed); }
  /// For how long there have been bytes to write and the socket has taken none; 0: it takes what there is.
  int64_t stands_ns(int64_t now) const;

  void handle_event(caf::io::network::operation op) override;
  void removed_from_loop(caf::io::network::operation op) override;
  void graceful_shutdown() override { close(); }

 private:
  LaneHandler(caf::io::network::default_multiplexer& multiplexer, Connection connection, net::LaneOptions options,
              Callbacks callbacks);
  void read();
  void write();
  /// With writing_ held: hands what is queued to the lane.
  void add_queued();
  bool has_queued();
  /// On the multiplexer's thread.
  void let_go();
  void leave();
  void break_off(Error why);
  template <class F> void post(F f);

  net::Lane lane_;
  Callbacks callbacks_;
  std::atomic<int64_t> heard_ns_;
  std::mutex queue_mutex_;  // held for moments only
  std::vector<net::OutgoingFrame> queue_;
  std::mutex writing_;  // guards writing to lane_; changes of the next three. Never waited for by who sends
  std::atomic<bool> watched_for_writing_{false};
  std::atomic<int64_t> wrote_ns_{0};  // while it is watched: when the socket took some last
  std::atomic<bool> write_failed_{false};
  std::atomic<bool> closed_{false};
  // The multiplexer's thread alone:
  bool reads_ = false, writes_ = false, broken_ = false;
  std::shared_ptr<LaneHandler> self_;  // while the multiplexer has it
  std::weak_ptr<LaneHandler> weak_;
};

}  // namespace troupe
