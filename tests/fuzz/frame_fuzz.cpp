// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as frames of a connection, cut where the first byte says, and as the bodies of messages.
// What is read must survive being written and read again.
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "net/messages.h"

using namespace troupe;
using namespace troupe::net;

namespace {

/// Enough for every message, and little enough that no input takes long.
constexpr FrameLimits kLimits = {1 << 16, 64, 1 << 20};

void check_frame(const ReceivedFrame& received) {
  const auto made = EncodedFrame::make(received.frame, kLimits);
  if (!made.ok()) std::abort();
  const auto header = (*made)->header(received.header.sequence, received.header.acknowledged);
  if (header != received.header) std::abort();
  FrameReader reader(kLimits);
  const auto bytes = header.encode();
  if (!reader.feed(bytes).ok()) std::abort();
  for (const auto part : (*made)->parts())
    if (!reader.feed(part).ok()) std::abort();
  const auto again = reader.take();
  if (!again || again->header != header || again->frame.body != received.frame.body) std::abort();
  for (size_t i = 0; i < received.frame.tensors.size(); ++i) {
    const Tensor &a = received.frame.tensors[i], &b = again->frame.tensors[i];
    if (a.defined() != b.defined() || (a.defined() && !a.identical(b))) std::abort();
  }
}

template <class Message> void check_message(std::string_view body) {
  const auto message = decode<Message>(body);
  if (!message.ok()) return;
  const std::string bytes = encode(*message);
  const auto again = decode<Message>(bytes);
  if (!again.ok() || encode(*again) != bytes) std::abort();
}

void check_messages(std::string_view body) {
  check_message<Hello>(body), check_message<Welcome>(body), check_message<Refused>(body), check_message<Ping>(body);
  check_message<Bye>(body), check_message<Peers>(body), check_message<Ready>(body);
  check_message<RegisterProgram>(body), check_message<ReleaseProgram>(body);
  check_message<RunProgram>(body), check_message<StepDone>(body), check_message<EdgeTensor>(body);
  check_message<AbortRun>(body), check_message<ResetContainer>(body), check_message<SnapshotContainer>(body);
  check_message<RestoreContainer>(body), check_message<RequestDone>(body), check_message<RestartDataset>(body);
}

/// Makes the checksum of a header right, which no mutation would.
void seal(char* header) {
  const auto sum = static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(header), FrameHeader::kBytes - 4));
  std::memcpy(header + FrameHeader::kBytes - 4, &sum, sizeof sum);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string copy(reinterpret_cast<const char*>(data) + 1, size - 1);
  check_messages(copy);
  const size_t piece = data[0] == 0 ? size : data[0];
  std::span<char> bytes(copy);
  FrameReader reader(kLimits);
  while (!bytes.empty()) {
    if (!reader.in_frame() && bytes.size() >= FrameHeader::kBytes) seal(bytes.data());
    const auto taken = reader.feed(bytes.first(std::min(piece, bytes.size())));
    if (!taken.ok()) return 0;
    bytes = bytes.subspan(*taken);
    while (const auto frame = reader.take()) {
      check_frame(*frame);
      check_messages(frame->frame.body);
    }
  }
  return 0;
}
