// SPDX-License-Identifier: Apache-2.0
#include "actors/peer_stream.h"

#include "base/steady_clock.h"

namespace troupe {

PeerStream::Sent PeerStream::push(net::FrameRef frame) {
  if (closed_) return Sent::kClosed;
  ++loaded_frames_, loaded_bytes_ += frame->bytes();
  const bool full = load_->add(frame->bytes());
  stream_.push(std::move(frame));
  return full ? Sent::kFull : Sent::kYes;
}

PeerStream::Sent PeerStream::queue(net::FrameRef frame) {
  const std::lock_guard guard(mutex_);
  return push(std::move(frame));
}

PeerStream::Sent PeerStream::send(net::FrameRef frame) {
  std::unique_lock guard(mutex_);
  const Sent sent = push(std::move(frame));
  const auto written_by = hand_on(steady_ns());
  guard.unlock();
  if (written_by) written_by->write_queue();
  return sent;
}

void PeerStream::flush() {
  std::unique_lock guard(mutex_);
  const auto written_by = hand_on(steady_ns());
  guard.unlock();
  if (written_by) written_by->write_queue();
}

void PeerStream::send_now(net::FrameRef frame) {
  std::unique_lock guard(mutex_);
  const std::shared_ptr<LaneHandler> connection = connection_;
  if (!connection) return;
  connection->queue({stream_.unsequenced(std::move(frame))});
  guard.unlock();
  connection->write_queue();
}

Status PeerStream::connect(uint64_t number, std::shared_ptr<LaneHandler> connection, bool resumed, uint64_t received) {
  std::unique_lock guard(mutex_);
  if (connection_) connection_->close();  // the peer has given it up before we noticed
  connection_ = std::move(connection);
  number_ = number;
  if (closed_) {
    connection_->close();
    connection_ = nullptr;
    return {};
  }
  if (resumed) {
    TROUPE_RETURN_IF_ERROR(stream_.resume(received));
  } else if (stream_.sent() > 0 || stream_.received() > 0) {
    return make_error(Code::kUnavailable, "what was sent to it before its connection broke is lost");
  }
  unload();
  connection_->start();
  const auto written_by = hand_on(steady_ns());
  guard.unlock();
  if (written_by) written_by->write_queue();
  return {};
}

bool PeerStream::disconnect(uint64_t number) {
  const std::lock_guard guard(mutex_);
  if (number != number_ || !connection_) return false;
  connection_->close();
  connection_ = nullptr;
  return true;
}

std::vector<net::FrameRef> PeerStream::close() {
  const std::scoped_lock guard(receiving_, mutex_);
  closed_ = true;
  if (connection_) connection_->close();
  connection_ = nullptr;
  return {stream_.kept().begin(), stream_.kept().end()};
}

bool PeerStream::connected() const {
  const std::lock_guard guard(mutex_);
  return connection_ != nullptr;
}

void PeerStream::receive(uint64_t number, std::vector<net::ReceivedFrame> frames, int64_t now, const Take& take) {
  const std::lock_guard receiving(receiving_);
  Result<std::vector<net::ReceivedFrame>> fresh = std::vector<net::ReceivedFrame>();
  std::shared_ptr<LaneHandler> written_by;
  {
    const std::lock_guard guard(mutex_);
    if (closed_ || number != number_) return;
    heard_ = true;
    fresh = fresh_of(std::move(frames), now);
    unload();
    written_by = hand_on(now);
  }
  take(std::move(fresh));
  if (written_by) written_by->write_queue();
}

Result<std::vector<net::ReceivedFrame>> PeerStream::fresh_of(std::vector<net::ReceivedFrame> frames, int64_t now) {
  std::vector<net::ReceivedFrame> fresh;
  for (net::ReceivedFrame& frame : frames) {
    TROUPE_ASSIGN(const bool is_fresh, stream_.receive(frame.header, now));
    if (is_fresh) fresh.push_back(std::move(frame));
  }
  return fresh;
}

std::optional<int64_t> PeerStream::wants_tick() {
  const std::lock_guard guard(mutex_);
  if (told_) return {};
  const auto at = stream_.ack_at();
  told_ = at.has_value();
  return at;
}

std::optional<int64_t> PeerStream::tick(int64_t now) {
  std::unique_lock guard(mutex_);
  const auto written_by = hand_on(now);
  const auto at = stream_.ack_at();
  told_ = at.has_value();
  guard.unlock();
  if (written_by) written_by->write_queue();
  return at;
}

uint64_t PeerStream::received() const {
  const std::lock_guard guard(mutex_);
  return stream_.received();
}

bool PeerStream::heard() const {
  const std::lock_guard guard(mutex_);
  return heard_;
}

std::optional<int64_t> PeerStream::heard_ns() const {
  const std::lock_guard guard(mutex_);
  return connection_ ? std::optional(connection_->heard_ns()) : std::nullopt;
}

int64_t PeerStream::stands_ns(int64_t now) const {
  const std::lock_guard guard(mutex_);
  return connection_ ? connection_->stands_ns(now) : 0;
}

std::shared_ptr<LaneHandler> PeerStream::hand_on(int64_t now) {
  if (!connection_) return nullptr;
  std::vector<net::OutgoingFrame> out;
  while (auto frame = stream_.next()) out.push_back(std::move(*frame));
  if (auto ack = stream_.ack(now)) out.push_back(std::move(*ack));
  if (out.empty()) return nullptr;
  connection_->queue(std::move(out));
  return connection_;
}

void PeerStream::unload() {
  const uint64_t frames = stream_.waiting_frames() + stream_.in_flight_frames();
  const uint64_t bytes = stream_.waiting_bytes() + stream_.in_flight_bytes();
  load_->remove(loaded_frames_ - frames, loaded_bytes_ - bytes);
  loaded_frames_ = frames, loaded_bytes_ = bytes;
}

}  // namespace troupe
