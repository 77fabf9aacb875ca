// SPDX-License-Identifier: Apache-2.0
// Frames: the unit on the wire. A header of 48 bytes, a body, a table of tensors, and their bytes as they are in
// memory. docs/wire_protocol.md has the layout. Implemented in net/frame.cpp and net/frame_reader.cpp.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/allocator.h"
#include "troupe/error.h"
#include "troupe/tensor.h"

namespace troupe::net {

/// What a frame says; net/messages.h has the bodies. The numbers are those on the wire.
enum class FrameType : uint8_t {
  kHello = 1,
  kWelcome = 2,
  kRefused = 3,
  kPing = 4,
  kPong = 5,
  kAck = 6,
  kBye = 7,
  kPeers = 16,
  kReady = 17,
  kRegister = 18,
  kRelease = 20,
  kRun = 21,
  kDone = 22,
  kTensor = 23,
  kAbort = 24,
  kReset = 25,
  kSnapshot = 26,
  kRestore = 27,
  kResult = 28,
  kRestart = 29,
};
/// "HELLO"; "frame type 99" for a number that is none.
std::string to_string(FrameType type);
bool is_known(FrameType type);
/// Whether frames of this type have a sequence number and are sent again after a reconnection. Those from kPeers on.
inline bool is_sequenced(FrameType type) { return type >= FrameType::kPeers; }

/// One message with its tensors. A tensor may be undefined: a signal without a value.
struct Frame {
  FrameType type = FrameType::kPing;
  std::string body = {};
  std::vector<Tensor> tensors = {};
};

/// What a frame may have at most. What is larger is refused by the lengths that it announces, before memory is taken.
struct FrameLimits {
  uint32_t body = uint32_t{64} << 20;     // bytes
  uint32_t tensors = 1 << 16;             // number
  uint64_t payload = uint64_t{16} << 30;  // bytes of all tensors together
};

/// The fixed part that opens each frame, all numbers little-endian.
struct FrameHeader {
  static constexpr size_t kBytes = 48;
  static constexpr std::string_view kMagic = "TRPE";

  FrameType type = FrameType::kPing;
  uint32_t body = 0;          // bytes
  uint32_t tensors = 0;       // number
  uint32_t table = 0;         // bytes of the table of tensors
  uint64_t payload = 0;       // bytes of all tensors
  uint64_t sequence = 0;      // from 1 on; 0 for frames that have none
  uint64_t acknowledged = 0;  // all frames up to this number have come

  std::array<char, kBytes> encode() const;
  /// Errors: kDataLoss for another magic, an unknown type, bytes that must be 0, a checksum that does not match, a
  /// number of tensors and a table that cannot belong together, a sequence where there is none or the other way round;
  /// kResourceExhausted for lengths beyond the limits, with both.
  static Result<FrameHeader> decode(std::span<const char, kBytes> bytes, const FrameLimits& limits);
  /// Of the whole frame on the wire.
  uint64_t bytes() const { return kBytes + uint64_t{body} + table + payload; }
  bool operator==(const FrameHeader&) const = default;
};

/// A frame made ready for the wire: checked, with its table, and string tensors as bytes. Other tensors are not copied;
/// they live as long as this. Immutable, so that a stream keeps what a lane is still writing.
class EncodedFrame {
 public:
  /// Errors: kInvalidArgument for a tensor of kResource or kVariant, which no other process can use, with its place;
  /// kResourceExhausted beyond the limits.
  static Result<std::shared_ptr<const EncodedFrame>> make(Frame frame, const FrameLimits& limits = {});

  FrameType type() const { return header_.type; }
  /// On the wire, with the header.
  uint64_t bytes() const { return header_.bytes(); }
  /// The message.
  std::string_view body() const { return std::string_view(head_).substr(0, header_.body); }
  /// The header with these numbers.
  FrameHeader header(uint64_t sequence, uint64_t acknowledged) const;
  /// What follows the header: body with table, then each tensor that has bytes. None is empty.
  const std::vector<std::span<const char>>& parts() const { return parts_; }

 private:
  EncodedFrame() = default;

  FrameHeader header_;
  std::string head_;  // body and table
  std::vector<Tensor> tensors_;
  std::vector<std::string> blobs_;  // of string tensors
  std::vector<std::span<const char>> parts_;
};
using FrameRef = std::shared_ptr<const EncodedFrame>;

/// One frame with its header, as it came.
struct ReceivedFrame {
  FrameHeader header;
  Frame frame;
};

/// Takes one frame after the other from bytes that come in pieces of any size. Asks for memory only for what the
/// lengths in a checked header and table allow, and for each tensor when its first byte is due, so that a peer that
/// announces much and sends little holds little. One thread at a time. After an error it must not be used again.
class FrameReader {
 public:
  explicit FrameReader(FrameLimits limits = {}, std::shared_ptr<Allocator> allocator = system_allocator());
  ~FrameReader();
  FrameReader(FrameReader&&) noexcept;

  /// Takes bytes up to the end of a frame; returns how many. When that is all of `bytes`, call take() all the same.
  /// Errors: FrameHeader::decode's; kDataLoss for a table or contents that contradict themselves: an unknown dtype,
  /// kResource, kVariant, a negative size, a product of sizes that overflows, bytes that disagree with dtype and shape,
  /// lengths of strings beyond the blob, a bool that is not 0 or 1; kResourceExhausted when the allocator refuses.
  Result<size_t> feed(std::span<const char> bytes);
  /// Where the next bytes may be written, without feed(): the memory of the tensor that is due; empty: there is none.
  /// Followed by filled().
  std::span<char> direct();
  /// `bytes` of direct() have been written. Errors: as feed().
  Status filled(size_t bytes);
  /// The frame, once it is complete; then the next begins.
  std::optional<ReceivedFrame> take();
  /// Whether a frame has begun and is not complete.
  bool in_frame() const;
  /// How much of it has come, for messages: "12 of 48 bytes of its header".
  std::string progress() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe::net
