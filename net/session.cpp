// SPDX-License-Identifier: Apache-2.0
#include "net/session.h"

#include <algorithm>

#include "base/check.h"

namespace troupe::net {

void Stream::push(FrameRef frame) {
  TROUPE_CHECK(is_sequenced(frame->type()));
  kept_bytes_ += frame->bytes();
  kept_.push_back(std::move(frame));
}

OutgoingFrame Stream::outgoing(FrameRef frame, uint64_t sequence) {
  told_ = received_;
  untold_bytes_ = 0;
  ack_at_.reset();
  return {std::move(frame), sequence, received_};
}

std::optional<OutgoingFrame> Stream::next() {
  if (in_flight_frames() == kept_.size()) return {};
  const FrameRef& frame = kept_[in_flight_frames()];
  const bool credit = in_flight_frames() < options_.credit_frames && in_flight_bytes_ <= options_.credit_bytes &&
                      frame->bytes() <= options_.credit_bytes - in_flight_bytes_;
  if (in_flight_frames() > 0 && !credit) return {};
  in_flight_bytes_ += frame->bytes();
  ++sent_;
  if (sent_ <= highest_) ++counters_.resent;
  highest_ = std::max(highest_, sent_);
  return outgoing(frame, sent_);
}

OutgoingFrame Stream::unsequenced(FrameRef frame) {
  TROUPE_CHECK(!is_sequenced(frame->type()));
  return outgoing(std::move(frame), 0);
}

Result<bool> Stream::receive(const FrameHeader& header, int64_t now) {
  TROUPE_RETURN_IF_ERROR(acknowledge(header.acknowledged));
  if (!is_sequenced(header.type)) return true;
  if (header.sequence > received_ + 1)
    return make_error(Code::kDataLoss, "{} with sequence {} where {} is due", to_string(header.type), header.sequence,
                      received_ + 1);
  const bool fresh = header.sequence == received_ + 1;
  if (fresh) ++received_;
  else ++counters_.duplicates;  // its ACK was lost with a connection: it is owed again
  untold_bytes_ += header.bytes();
  const bool now_due = untold_bytes_ >= options_.ack_bytes || received_ - told_ >= options_.ack_frames;
  const int64_t at = now_due ? now : now + options_.ack_delay_ns;
  ack_at_ = std::min(ack_at_.value_or(at), at);
  return fresh;
}

std::optional<OutgoingFrame> Stream::ack(int64_t now) {
  if (!ack_at_ || now < *ack_at_) return {};
  if (!ack_frame_) ack_frame_ = EncodedFrame::make({FrameType::kAck}).value();
  ++counters_.acks;
  return outgoing(ack_frame_, 0);
}

Status Stream::acknowledge(uint64_t number) {
  if (number > highest_)
    return make_error(Code::kDataLoss, "sequence {} is acknowledged, the last that was sent is {}", number, highest_);
  for (; acknowledged_ < number; ++acknowledged_) {
    const uint64_t bytes = kept_.front()->bytes();
    kept_bytes_ -= bytes;
    if (acknowledged_ < sent_) in_flight_bytes_ -= bytes;
    else ++sent_;  // sent by an earlier connection
    kept_.pop_front();
  }
  return {};
}

Status Stream::resume(uint64_t peer_received) {
  TROUPE_RETURN_IF_ERROR(acknowledge(peer_received));
  sent_ = acknowledged_;
  in_flight_bytes_ = 0;
  told_ = received_;  // by the handshake
  untold_bytes_ = 0;
  ack_at_.reset();
  ++counters_.resumes;
  return {};
}

Heartbeat::Heartbeat(int64_t now, HeartbeatOptions options)
    : options_(options), heard_(now), ticked_(now), pinged_(now) {}

void Heartbeat::heard(int64_t now) { heard_ = std::max(heard_, now); }

void Heartbeat::pong(int64_t sent, int64_t now) {
  heard(now);
  if (sent <= now) round_trip_ = now - sent;
}

Heartbeat::Verdict Heartbeat::tick(int64_t now) {
  // A tick is due each interval. What came later than two was not looked for: this side stood still.
  const int64_t gap = now - ticked_;
  if (gap > 2 * options_.interval_ns) heard_ = std::min(now, heard_ + gap - options_.interval_ns);
  ticked_ = std::max(ticked_, now);
  if (lost_ || now - heard_ >= options_.limit_ns) {
    lost_ = true;
    return Verdict::kLost;
  }
  if (now - pinged_ < options_.interval_ns) return Verdict::kQuiet;
  pinged_ = now;
  return Verdict::kPing;
}

int64_t Heartbeat::next() const { return std::min(pinged_ + options_.interval_ns, heard_ + options_.limit_ns); }

}  // namespace troupe::net
