// SPDX-License-Identifier: Apache-2.0
// Headers, and frames made ready for the wire.
#include "net/frame.h"

#include <zlib.h>

#include <cstring>

#include "net/frame_layout.h"
#include "net/tensor_bytes.h"

namespace troupe::net {
namespace {

/// Of all bytes before it.
uint32_t header_checksum(const char* header) {
  return static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(header), kChecksumAt));
}

Error bad_header(const std::string& why) { return make_error(Code::kDataLoss, "header of a frame: {}", why); }

}  // namespace

std::string to_string(FrameType type) {
  switch (type) {
    case FrameType::kHello: return "HELLO";
    case FrameType::kWelcome: return "WELCOME";
    case FrameType::kRefused: return "REFUSED";
    case FrameType::kPing: return "PING";
    case FrameType::kPong: return "PONG";
    case FrameType::kAck: return "ACK";
    case FrameType::kBye: return "BYE";
    case FrameType::kPeers: return "PEERS";
    case FrameType::kReady: return "READY";
    case FrameType::kRegister: return "REGISTER";
    case FrameType::kRelease: return "RELEASE";
    case FrameType::kRun: return "RUN";
    case FrameType::kDone: return "DONE";
    case FrameType::kTensor: return "TENSOR";
    case FrameType::kAbort: return "ABORT";
    case FrameType::kReset: return "RESET";
    case FrameType::kSnapshot: return "SNAPSHOT";
    case FrameType::kRestore: return "RESTORE";
    case FrameType::kResult: return "RESULT";
    case FrameType::kRestart: return "RESTART";
  }
  return fmt::format("frame type {}", static_cast<int>(type));
}

bool is_known(FrameType type) {
  return (type >= FrameType::kHello && type <= FrameType::kBye) ||
         (type >= FrameType::kPeers && type <= FrameType::kRestart);
}

std::array<char, FrameHeader::kBytes> FrameHeader::encode() const {
  std::array<char, kBytes> out = {};
  char* const to = out.data();
  std::memcpy(to, kMagic.data(), kMagic.size());
  put_number(to + 4, static_cast<uint8_t>(type));
  put_number(to + 8, body);
  put_number(to + 12, tensors);
  put_number(to + 16, table);
  put_number(to + 20, payload);
  put_number(to + 28, sequence);
  put_number(to + 36, acknowledged);
  put_number(to + kChecksumAt, header_checksum(to));
  return out;
}

Result<FrameHeader> FrameHeader::decode(std::span<const char, kBytes> bytes, const FrameLimits& limits) {
  const char* const from = bytes.data();
  if (std::string_view(from, kMagic.size()) != kMagic)
    return bad_header(fmt::format("it begins with '{}', not with '{}'", std::string_view(from, kMagic.size()), kMagic));
  if (const auto told = load_number<uint32_t>(from + kChecksumAt); told != header_checksum(from))
    return bad_header(fmt::format("its checksum is {:08x}, not {:08x}", header_checksum(from), told));
  FrameHeader out;
  out.type = static_cast<FrameType>(load_number<uint8_t>(from + 4));
  if (!is_known(out.type)) return bad_header(fmt::format("unknown {}", to_string(out.type)));
  if (from[5] || from[6] || from[7]) return bad_header(to_string(out.type) + " with bytes that must be 0");
  out.body = load_number<uint32_t>(from + 8);
  out.tensors = load_number<uint32_t>(from + 12);
  out.table = load_number<uint32_t>(from + 16);
  out.payload = load_number<uint64_t>(from + 20);
  out.sequence = load_number<uint64_t>(from + 28);
  out.acknowledged = load_number<uint64_t>(from + 36);
  const auto beyond = [&](const char* what, uint64_t value, uint64_t limit) {
    return make_error(Code::kResourceExhausted, "{} with {} {}, at most {}", to_string(out.type), value, what, limit);
  };
  if (out.body > limits.body) return beyond("bytes of body", out.body, limits.body);
  if (out.tensors > limits.tensors) return beyond("tensors", out.tensors, limits.tensors);
  if (out.payload > limits.payload) return beyond("bytes of tensors", out.payload, limits.payload);
  if (out.table < uint64_t{out.tensors} * kEntryBytes ||
      out.table > uint64_t{out.tensors} * (kEntryBytes + kMaxRank * 8) || (out.tensors == 0 && out.payload > 0))
    return bad_header(fmt::format("{} with {} tensors, a table of {} bytes and {} bytes of tensors",
                                  to_string(out.type), out.tensors, out.table, out.payload));
  if (is_sequenced(out.type) != (out.sequence > 0))
    return bad_header(fmt::format("{} with sequence {}", to_string(out.type), out.sequence));
  return out;
}

Result<FrameRef> EncodedFrame::make(Frame frame, const FrameLimits& limits) {
  const auto beyond = [&](const char* what, uint64_t value, uint64_t limit) {
    return make_error(Code::kResourceExhausted, "a {} frame with {} {}, at most {}", to_string(frame.type), value, what,
                      limit);
  };
  if (frame.body.size() > limits.body) return beyond("bytes of body", frame.body.size(), limits.body);
  if (frame.tensors.size() > limits.tensors) return beyond("tensors", frame.tensors.size(), limits.tensors);
  std::shared_ptr<EncodedFrame> out(new EncodedFrame);
  FrameHeader& header = out->header_;
  header.type = frame.type;
  header.body = static_cast<uint32_t>(frame.body.size());
  header.tensors = static_cast<uint32_t>(frame.tensors.size());
  out->head_ = std::move(frame.body);
  out->tensors_ = std::move(frame.tensors);
  for (size_t i = 0; i < out->tensors_.size(); ++i) {
    const Tensor& tensor = out->tensors_[i];
    const DType dtype = tensor.dtype();
    if (const Status travels = check_travels(tensor); !travels.ok())
      return invalid_argument("tensor {} of a {} frame is {}", i, to_string(frame.type), travels.error().message);
    if (dtype == DType::kString) out->blobs_.push_back(string_blob(tensor));
    const uint64_t bytes = dtype == DType::kString ? out->blobs_.back().size() : tensor.defined() ? tensor.bytes() : 0;
    if (bytes > limits.payload - header.payload)
      return beyond("bytes of tensors", header.payload + bytes, limits.payload);
    header.payload += bytes;
    put_entry(tensor, bytes, out->head_);
  }
  header.table = static_cast<uint32_t>(out->head_.size() - header.body);
  // Views only now: a short string moves with its vector.
  if (!out->head_.empty()) out->parts_.emplace_back(out->head_);
  size_t blob = 0;
  for (const Tensor& tensor : out->tensors_) {
    if (!tensor.defined()) continue;
    const auto part = tensor.dtype() == DType::kString
                          ? std::span<const char>(out->blobs_[blob++])
                          : std::span(static_cast<const char*>(tensor.raw()), tensor.bytes());
    if (!part.empty()) out->parts_.push_back(part);
  }
  return FrameRef(std::move(out));
}

FrameHeader EncodedFrame::header(uint64_t sequence, uint64_t acknowledged) const {
  FrameHeader out = header_;
  out.sequence = sequence;
  out.acknowledged = acknowledged;
  return out;
}

}  // namespace troupe::net
