// SPDX-License-Identifier: Apache-2.0
// Lane: frames over one connection, plain or encrypted, written from and read into the memory of tensors.
// Implemented in net/lane.cpp.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "net/frame.h"
#include "net/transport.h"
#include "troupe/allocator.h"
#include "troupe/error.h"

namespace troupe::net {

struct LaneOptions {
  FrameLimits limits = {};                                    // of frames that come in
  std::shared_ptr<Allocator> allocator = system_allocator();  // of their tensors
};

/// What went over a lane so far; frames that are complete.
struct LaneCounters {
  uint64_t frames_in = 0, bytes_in = 0, frames_out = 0, bytes_out = 0;
  uint64_t reads = 0, writes = 0;  // calls of the transport
};

/// One thread may read while another one writes. Nothing waits; who owns the socket watches it: for reading always, for
/// writing while write() leaves something. The socket stays its owner's, who closes it after the lane.
class Lane {
 public:
  /// Over a connected stream socket (TCP, UNIX, a socketpair). Set to non-blocking, and TCP to send at once.
  explicit Lane(int fd, LaneOptions options = {}) : Lane(make_plain_transport(fd), std::move(options)) {}
  explicit Lane(std::unique_ptr<Transport> transport, LaneOptions options = {});
  Lane(const Lane&) = delete;

  int fd() const { return transport_->fd(); }

  /// Puts a frame behind those that wait to be written; write() does that. Its tensors live until they are written.
  void add(FrameRef frame, uint64_t sequence = 0, uint64_t acknowledged = 0);
  /// Writes what was added, as much as the socket takes, many frames at once. Returns how many bytes are left: 0, or
  /// call again once the socket is writable. Errors: kInternal when the connection is gone; nothing can be written
  /// then.
  Result<uint64_t> write();
  /// Bytes that were added and are not written.
  uint64_t unwritten() const { return unwritten_ + transport_->unsent(); }

  struct ReadResult {
    uint64_t bytes = 0;  // read by this call
    bool more = false;   // `budget` ended it: there may be more
  };
  /// Whether there may be more to read although the socket is not readable: read() again.
  bool pending() const { return transport_->pending(); }
  using OnFrame = std::function<Status(ReceivedFrame)>;
  /// Reads what has come, until the socket has no more or `budget` bytes were read, and gives each complete frame to
  /// `on_frame`, which may add and write to this lane but not read from it, nor destroy it. Errors: kInternal when the
  /// peer closed the connection, in a frame or between two, or it broke: a later connection may go on;
  /// kDataLoss and kResourceExhausted for what the peer sent (FrameReader); what on_frame returns. After an error
  /// nothing can be read any more.
  Result<ReadResult> read(const OnFrame& on_frame, uint64_t budget = uint64_t{16} << 20);

  const LaneCounters& counters() const { return counters_; }

 private:
  struct Outgoing {
    std::array<char, FrameHeader::kBytes> header;
    FrameRef frame;
  };
  void advance(uint64_t bytes);
  Result<ReadResult> read_some(const OnFrame& on_frame, uint64_t budget);
  Status deliver(const OnFrame& on_frame);

  const std::unique_ptr<Transport> transport_;
  std::deque<Outgoing> outgoing_;
  size_t part_ = 0;      // of the first outgoing frame: 0 is its header, then its parts
  uint64_t offset_ = 0;  // within that part
  uint64_t unwritten_ = 0;
  FrameReader reader_;
  std::vector<char> buffer_;  // what was read beyond the tensor that was due
  Status read_fault_, write_fault_;
  LaneCounters counters_;
};

}  // namespace troupe::net
