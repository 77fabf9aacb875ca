// SPDX-License-Identifier: Apache-2.0
#include "actors/lane_handler.h"

#include <algorithm>
#include <iterator>

#include "base/steady_clock.h"

namespace troupe {
namespace {

using caf::io::network::operation;

/// Bytes read in one turn: the other lanes of the multiplexer wait so long.
constexpr uint64_t kReadInOneTurn = uint64_t{1} << 20;

}  // namespace

LaneHandler::LaneHandler(caf::io::network::default_multiplexer& multiplexer, Connection connection,
                         net::LaneOptions options, Callbacks callbacks)
    : caf::io::network::event_handler(multiplexer, connection.socket.release()),
      lane_(std::move(connection.transport), std::move(options)), callbacks_(std::move(callbacks)),
      heard_ns_(steady_ns()) {
  state_.reading = true;  // else events to read are passed over
}

std::shared_ptr<LaneHandler> LaneHandler::make(caf::io::network::default_multiplexer& multiplexer,
                                               Connection connection, net::LaneOptions options, Callbacks callbacks) {
  std::shared_ptr<LaneHandler> out(
      new LaneHandler(multiplexer, std::move(connection), std::move(options), std::move(callbacks)));
  out->weak_ = out;
  return out;
}

template <class F> void LaneHandler::post(F f) {
  backend().post([self = weak_.lock(), f = std::move(f)] { f(*self); });
}

void LaneHandler::start() {
  post([](LaneHandler& h) {
    if (h.closed_) return;
    h.self_ = h.weak_.lock();
    h.reads_ = true;
    h.backend().add(operation::read, h.fd(), &h);
    if (h.lane_.pending()) h.read();  // what came with the handshake
  });
}

void LaneHandler::queue(std::vector<net::OutgoingFrame> frames) {
  const std::lock_guard guard(queue_mutex_);
  if (write_failed_ || closed_) return;
  std::ranges::move(frames, std::back_inserter(queue_));
}

void LaneHandler::write_queue() {
  while (has_queued()) {
    const std::unique_lock writing(writing_, std::try_to_lock);
    if (!writing) return;  // who has it looks for more when he is done
    add_queued();
    if (watched_for_writing_ || write_failed_) continue;
    wrote_ns_ = steady_ns();
    const auto left = lane_.write();
    if (left.ok() && *left == 0) continue;
    // What broke the connection is told by the multiplexer, which sees it too.
    write_failed_ = !left.ok();
    watched_for_writing_ = true;
    post([](LaneHandler& h) {
      if (!h.self_ || h.broken_) return;
      h.writes_ = true;
      h.backend().add(operation::write, h.fd(), &h);
    });
  }
}

bool LaneHandler::has_queued() {
  const std::lock_guard guard(queue_mutex_);
  return !queue_.empty();
}

void LaneHandler::add_queued() {
  std::vector<net::OutgoingFrame> frames;
  {
    const std::lock_guard guard(queue_mutex_);
    frames.swap(queue_);
  }
  if (write_failed_) return;
  for (net::OutgoingFrame& f : frames) lane_.add(std::move(f.frame), f.sequence, f.acknowledged);
}

int64_t LaneHandler::stands_ns(int64_t now) const {
  return watched_for_writing_ && !write_failed_ && !closed_ ? std::max<int64_t>(now - wrote_ns_, 0) : 0;
}

void LaneHandler::close() {
  if (closed_.exchange(true)) return;
  post([](LaneHandler& h) { h.let_go(); });
}

void LaneHandler::let_go() {
  if (std::exchange(reads_, false)) backend().del(operation::read, fd(), this);
  if (std::exchange(writes_, false)) backend().del(operation::write, fd(), this);
  callbacks_ = {};
  // One that was put in during the same turn is taken out without a word.
  if (eventbf() == 0) leave();
}

void LaneHandler::removed_from_loop(operation) {
  if (!reads_ && !writes_) leave();
}

void LaneHandler::leave() {
  // All changes have been made by the time a post of now is carried out.
  if (self_) backend().post([self = std::move(self_)] {});
}

void LaneHandler::handle_event(operation op) {
  if (closed_) return;
  if (op == operation::write) write();
  else read();  // an error is what the next read tells
}

void LaneHandler::read() {
  std::vector<net::ReceivedFrame> frames;
  const auto result = lane_.read(
      [&](net::ReceivedFrame frame) -> Status {
        frames.push_back(std::move(frame));
        return {};
      },
      kReadInOneTurn);
  heard_ns_.store(steady_ns(), std::memory_order_relaxed);
  if (!frames.empty() && callbacks_.frames) callbacks_.frames(std::move(frames));
  if (!result.ok()) return break_off(result.error());
  // The multiplexer does not tell of what has been taken out of the socket already.
  if (lane_.pending())
    post([](LaneHandler& h) {
      if (h.reads_ && !h.closed_) h.read();
    });
}

void LaneHandler::write() {
  Result<uint64_t> left = uint64_t{0};
  {
    const std::lock_guard guard(writing_);
    add_queued();
    // The socket can take some, and does, or it has broken.
    wrote_ns_ = steady_ns();
    if (!write_failed_) left = lane_.write();
    if (!left.ok()) write_failed_ = true;
    else if (*left == 0) watched_for_writing_ = false;
  }
  if (left.ok() && *left > 0) return write_queue();
  writes_ = false;
  backend().del(operation::write, fd(), this);
  if (!left.ok()) return break_off(left.error());
  write_queue();  // what came as the mutex was held
}

void LaneHandler::break_off(Error why) {
  if (std::exchange(broken_, true)) return;
  const auto broken = std::move(callbacks_.broken);
  let_go();
  if (broken && !closed_) broken(std::move(why));
}

}  // namespace troupe
