// SPDX-License-Identifier: Apache-2.0
// Gathering writes and scattering reads. A read asks for the rest of the tensor that is due and, behind it, a little
// into a buffer, so that the header of the next frame costs no call of its own; without a tensor that is due, the
// buffer takes many small frames at once.
#include "net/lane.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/check.h"

namespace troupe::net {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 16;
/// Of the buffer, what is read behind a tensor: what comes after the next header is copied once more.
constexpr size_t kBehindTensor = size_t{1} << 12;
constexpr int kMostPieces = 128;  // of one call

}  // namespace

Lane::Lane(std::unique_ptr<Transport> transport, LaneOptions options)
    : transport_(std::move(transport)), reader_(options.limits, std::move(options.allocator)), buffer_(kBufferBytes) {
  fcntl(fd(), F_SETFL, fcntl(fd(), F_GETFL) | O_NONBLOCK);
  const int on = 1;
  setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // of a socket that is not TCP: refused, and not needed
}

void Lane::add(FrameRef frame, uint64_t sequence, uint64_t acknowledged) {
  unwritten_ += frame->bytes();
  outgoing_.push_back({frame->header(sequence, acknowledged).encode(), std::move(frame)});
}

Result<uint64_t> Lane::write() {
  while (unwritten() > 0 && write_fault_.ok()) {
    iovec pieces[kMostPieces];
    int count = 0;
    const auto add = [&](std::span<const char> piece) {
      pieces[count++] = {const_cast<char*>(piece.data()), piece.size()};
    };
    size_t part = part_;
    uint64_t offset = offset_;
    for (auto out = outgoing_.begin(); out != outgoing_.end() && count < kMostPieces; ++out, part = 0) {
      const auto& parts = out->frame->parts();
      for (; part <= parts.size() && count < kMostPieces; ++part, offset = 0)
        add((part == 0 ? std::span<const char>(out->header) : parts[part - 1]).subspan(offset));
    }
    const auto written = transport_->write({pieces, static_cast<size_t>(count)});
    ++counters_.writes;
    if (!written.ok()) write_fault_ = written.error();
    else if (!*written) break;
    else advance(**written);
  }
  if (!write_fault_.ok()) return write_fault_;
  return unwritten();
}

void Lane::advance(uint64_t bytes) {
  counters_.bytes_out += bytes;
  unwritten_ -= bytes;
  while (!outgoing_.empty()) {
    const auto& parts = outgoing_.front().frame->parts();
    const uint64_t left = (part_ == 0 ? FrameHeader::kBytes : parts[part_ - 1].size()) - offset_;
    if (bytes < left) {
      offset_ += bytes;
      return;
    }
    bytes -= left;
    offset_ = 0;
    if (++part_ <= parts.size()) continue;
    part_ = 0;
    outgoing_.pop_front();
    ++counters_.frames_out;
  }
  TROUPE_CHECK(bytes == 0);
}

Result<Lane::ReadResult> Lane::read(const OnFrame& on_frame, uint64_t budget) {
  if (!read_fault_.ok()) return read_fault_;
  auto out = read_some(on_frame, budget);
  if (!out.ok()) read_fault_ = out.status();
  return out;
}

Result<Lane::ReadResult> Lane::read_some(const OnFrame& on_frame, uint64_t budget) {
  ReadResult out;
  while (out.bytes < budget) {
    const std::span<char> direct = reader_.direct();
    iovec pieces[2];
    int count = 0;
    if (!direct.empty()) pieces[count++] = {direct.data(), direct.size()};
    const size_t behind = direct.empty() ? kBufferBytes : kBehindTensor;
    pieces[count++] = {buffer_.data(), behind};
    TROUPE_ASSIGN(const auto got, transport_->read({pieces, static_cast<size_t>(count)}));
    ++counters_.reads;
    if (!got) return out;
    if (*got == 0) {
      if (!reader_.in_frame()) return make_error(Code::kInternal, "the peer closed the connection");
      return make_error(Code::kInternal, "the peer closed the connection within a frame: {}", reader_.progress());
    }
    const size_t bytes = *got;
    out.bytes += bytes;
    counters_.bytes_in += bytes;
    const size_t straight = std::min(bytes, direct.size());
    if (straight > 0) {
      TROUPE_RETURN_IF_ERROR(reader_.filled(straight));
      TROUPE_RETURN_IF_ERROR(deliver(on_frame));
    }
    for (std::span<const char> rest(buffer_.data(), bytes - straight); !rest.empty();) {
      TROUPE_ASSIGN(const size_t taken, reader_.feed(rest));
      rest = rest.subspan(taken);
      TROUPE_RETURN_IF_ERROR(deliver(on_frame));
    }
    // Less came than there was room for, and no frame waits for more: another call would most likely find nothing.
    if (bytes < direct.size() + behind && !reader_.in_frame() && !transport_->pending()) return out;
  }
  out.more = true;
  return out;
}

Status Lane::deliver(const OnFrame& on_frame) {
  while (auto frame = reader_.take()) {
    ++counters_.frames_in;
    TROUPE_RETURN_IF_ERROR(on_frame(std::move(*frame)));
  }
  return {};
}

}  // namespace troupe::net
