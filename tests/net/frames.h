// SPDX-License-Identifier: Apache-2.0
// Frames for tests: samples of every dtype, random ones, and their bytes.
#pragma once
#include <random>
#include <string>
#include <vector>

#include "net/frame.h"

namespace troupe::testing {

using net::EncodedFrame;
using net::Frame;
using net::FrameHeader;
using net::FrameLimits;
using net::FrameReader;
using net::FrameRef;
using net::FrameType;
using net::ReceivedFrame;

/// The dtypes that travel.
inline const std::vector<DType> kDTypes = {DType::kFloat32, DType::kFloat64,  DType::kInt32,   DType::kUInt8,
                                           DType::kInt16,   DType::kInt8,     DType::kString,  DType::kComplex64,
                                           DType::kInt64,   DType::kBool,     DType::kUInt32,  DType::kUInt64,
                                           DType::kUInt16,  DType::kBFloat16, DType::kFloat16, DType::kComplex128};

/// A tensor of random bits.
inline Tensor random_tensor(DType dtype, const Shape& shape, std::mt19937& random) {
  Tensor out = Tensor::make(dtype, shape).value();
  if (dtype == DType::kString) {
    for (int64_t i = 0; i < out.elements(); ++i) {
      std::string text(random() % 40, ' ');
      for (char& c : text) c = static_cast<char>(random());
      out.mutable_data<std::string>()[i] = text;
    }
    return out;
  }
  auto* bytes = static_cast<uint8_t*>(out.mutable_raw());
  for (size_t i = 0; i < out.bytes(); ++i)
    bytes[i] = static_cast<uint8_t>(dtype == DType::kBool ? random() % 2 : random());
  return out;
}

/// A frame with up to five tensors of up to a thousand elements, some undefined, some empty.
inline Frame random_frame(std::mt19937& random) {
  Frame out;
  out.type = static_cast<FrameType>(static_cast<int>(FrameType::kPeers) + random() % 13);
  out.body.resize(random() % 3 == 0 ? 0 : random() % 200);
  for (char& c : out.body) c = static_cast<char>(random());
  for (size_t n = random() % 6; n > 0; --n) {
    if (random() % 6 == 0) {
      out.tensors.emplace_back();
      continue;
    }
    Shape shape;
    for (size_t rank = random() % 4; rank > 0; --rank) shape.push_back(random() % 11);
    out.tensors.push_back(random_tensor(kDTypes[random() % kDTypes.size()], shape, random));
  }
  return out;
}

inline FrameRef encoded(Frame frame) { return EncodedFrame::make(std::move(frame)).value(); }

/// The bytes on the wire.
inline std::string bytes_of(const FrameRef& frame, uint64_t sequence = 1, uint64_t acknowledged = 0) {
  const auto header = frame->header(net::is_sequenced(frame->type()) ? sequence : 0, acknowledged).encode();
  std::string out(header.data(), header.size());
  for (const auto part : frame->parts()) out.append(part.data(), part.size());
  return out;
}

/// Same type, body and tensors, bit for bit.
inline bool same(const Frame& a, const Frame& b) {
  if (a.type != b.type || a.body != b.body || a.tensors.size() != b.tensors.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    if (a.tensors[i].defined() != b.tensors[i].defined()) return false;
    if (a.tensors[i].defined() && !a.tensors[i].identical(b.tensors[i])) return false;
  }
  return true;
}

/// Feeds all bytes, in pieces of `piece`; the frames that come of them, or the error.
inline Result<std::vector<ReceivedFrame>> read_all(FrameReader& reader, std::string_view bytes,
                                                   size_t piece = SIZE_MAX) {
  std::vector<ReceivedFrame> out;
  while (!bytes.empty()) {
    std::string_view some = bytes.substr(0, piece);
    bytes.remove_prefix(some.size());
    while (!some.empty()) {
      TROUPE_ASSIGN(const size_t taken, reader.feed(some));
      some.remove_prefix(taken);
      while (auto frame = reader.take()) out.push_back(std::move(*frame));
    }
  }
  return out;
}

/// An allocator that counts, and refuses beyond a limit.
inline std::shared_ptr<Allocator> counting(int64_t limit = 0) { return make_caching_allocator(limit, 0); }

}  // namespace troupe::testing
