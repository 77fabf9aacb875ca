// SPDX-License-Identifier: Apache-2.0
// Frames: what goes in comes out bit for bit, however the bytes are cut; what contradicts itself is an error, and no
// announcement alone takes memory.
#include "net/frame.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <limits>

#include "tests/net/frames.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

/// Writes a number at a place in bytes.
template <class T> void poke(std::string& bytes, size_t at, T value) { std::memcpy(&bytes[at], &value, sizeof value); }

/// Makes the checksum of the header right again.
void seal(std::string& bytes) {
  poke(bytes, 44, static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), 44)));
}

/// The error of bytes; they must have one.
Error error_of(const std::string& bytes, FrameLimits limits = {}) {
  const auto memory = counting();
  FrameReader reader(limits, memory);
  const auto out = read_all(reader, bytes);
  REQUIRE_FALSE(out.ok());
  CHECK(memory->stats().peak < 4096);
  return out.error();
}

/// A frame with one tensor; its table begins at 48, its sizes at 60.
std::string one_tensor(const Tensor& tensor) { return bytes_of(encoded({FrameType::kTensor, "", {tensor}})); }

}  // namespace

TEST_CASE("a frame of every dtype, empty, scalar and undefined tensors comes out as it went in") {
  std::mt19937 random(1);
  Frame frame{FrameType::kRun, "body", {}};
  for (const DType dtype : kDTypes)
    for (const Shape& shape : {Shape{}, Shape{3, 2}, Shape{0}, Shape{2, 0, 3}, Shape{1, 1, 1, 1, 1, 1, 1, 2}})
      frame.tensors.push_back(random_tensor(dtype, shape, random));
  frame.tensors.emplace_back();
  frame.tensors.push_back(Tensor::of<double>({0.0, -0.0, INFINITY, -INFINITY, std::nan("7"), 5e-324}));
  frame.tensors.push_back(Tensor::of<std::string>({"", std::string("\0x", 2), std::string(3000, 'y')}));
  frame.tensors.emplace_back();
  const std::string bytes = bytes_of(encoded(frame), 7, 5);
  FrameReader reader;
  const auto out = read_all(reader, bytes).value();
  REQUIRE(out.size() == 1);
  CHECK(same(out[0].frame, frame));
  CHECK(out[0].header.sequence == 7);
  CHECK(out[0].header.acknowledged == 5);
  CHECK(out[0].header.bytes() == bytes.size());
  CHECK_FALSE(reader.in_frame());
}

TEST_CASE("tensors other than strings are not copied into a frame") {
  const Tensor big = Tensor::zeros(DType::kFloat32, {1000}).value();
  const FrameRef frame = encoded({FrameType::kTensor, "b", {big}});
  REQUIRE(frame->parts().size() == 2);
  CHECK(frame->parts()[1].data() == big.raw());
  CHECK(frame->bytes() == 48 + 1 + 20 + 4000);
}

TEST_CASE("random frames come out as they went in, cut into pieces of any size") {
  std::mt19937 random(2);
  for (int round = 0; round < 40; ++round) {
    std::vector<Frame> frames;
    std::string bytes;
    for (int i = 0; i < 5; ++i) {
      frames.push_back(random_frame(random));
      bytes += bytes_of(encoded(frames.back()), i + 1);
    }
    for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{47}, 1 + random() % 500, SIZE_MAX}) {
      FrameReader reader;
      const auto out = read_all(reader, bytes, piece).value();
      REQUIRE(out.size() == frames.size());
      for (size_t i = 0; i < out.size(); ++i) REQUIRE(same(out[i].frame, frames[i]));
    }
  }
}

TEST_CASE("a small frame cut at each place, once, comes out whole") {
  std::mt19937 random(3);
  const Frame frame{FrameType::kTensor,
                    "head",
                    {random_tensor(DType::kInt16, {3}, random), Tensor(), Tensor::of<std::string>({"ab", ""}),
                     Tensor::of<bool>({true, false})}};
  const std::string bytes = bytes_of(encoded(frame));
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    FrameReader reader;
    CHECK(read_all(reader, bytes.substr(0, cut)).value().size() == (cut == bytes.size() ? 1 : 0));
    CHECK(reader.in_frame() == (cut > 0 && cut < bytes.size()));
    const auto out = read_all(reader, bytes.substr(cut)).value();
    if (cut < bytes.size()) {
      REQUIRE(out.size() == 1);
      REQUIRE(same(out[0].frame, frame));
    }
  }
}

TEST_CASE("bytes of a tensor may be written straight into its memory") {
  const Tensor tensor = Tensor::of<int64_t>({1, 2, 3});
  const std::string bytes = one_tensor(tensor);
  FrameReader reader;
  CHECK(reader.direct().empty());
  const size_t head = bytes.size() - 24;
  CHECK(read_all(reader, bytes.substr(0, head)).value().empty());
  REQUIRE(reader.direct().size() == 24);
  CHECK(reader.progress() == "0 of 24 bytes of tensor 0 of TENSOR");
  std::memcpy(reader.direct().data(), bytes.data() + head, 10);
  CHECK(reader.filled(10).ok());
  CHECK_FALSE(reader.take());
  REQUIRE(reader.direct().size() == 14);
  std::memcpy(reader.direct().data(), bytes.data() + head + 10, 14);
  CHECK(reader.filled(14).ok());
  CHECK(reader.direct().empty());
  CHECK(reader.take()->frame.tensors[0].identical(tensor));
}

TEST_CASE("each flipped bit of a small frame is an error or another frame, and takes no memory") {
  const Frame frame{FrameType::kTensor, "b", {Tensor::of<bool>({true, false}), Tensor::of<std::string>({"ab", "c"})}};
  const std::string bytes = bytes_of(encoded(frame));
  int errors = 0, in_header = 0;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto memory = counting();
    FrameReader reader({}, memory);
    const auto out = read_all(reader, flipped);
    CHECK(memory->stats().peak < 4096);
    errors += !out.ok();
    in_header += !out.ok() && bit / 8 < 48;
    if (!out.ok()) CHECK(out.error().code == Code::kDataLoss);
    if (out.ok() && !out->empty()) CHECK_FALSE(same(out->at(0).frame, frame));
  }
  CHECK(in_header == 48 * 8);
  CHECK(errors > 48 * 8 + 8 * 40);
}

TEST_CASE("lengths beyond the limits are refused by the header alone") {
  const FrameLimits limits{100, 3, 1000};
  const auto refused = [&](size_t at, auto value) {
    std::string bytes(48, '\0');
    std::memcpy(bytes.data(), "TRPE", 4);
    bytes[4] = static_cast<char>(FrameType::kTensor);
    poke<uint64_t>(bytes, 28, 1);
    poke(bytes, at, value);
    if (at == 20) poke<uint32_t>(bytes, 12, 1), poke<uint32_t>(bytes, 16, 20);
    seal(bytes);
    const Error error = error_of(bytes, limits);
    CHECK(error.code == Code::kResourceExhausted);
    return error.message;
  };
  CHECK(refused(8, uint32_t{101}) == "TENSOR with 101 bytes of body, at most 100");
  CHECK(refused(8, UINT32_MAX) == "TENSOR with 4294967295 bytes of body, at most 100");
  CHECK(refused(12, uint32_t{4}) == "TENSOR with 4 tensors, at most 3");
  CHECK(refused(20, uint64_t{1001}) == "TENSOR with 1001 bytes of tensors, at most 1000");
  CHECK(refused(20, UINT64_MAX) == "TENSOR with 18446744073709551615 bytes of tensors, at most 1000");

  const auto made = [&](Frame frame) { return EncodedFrame::make(std::move(frame), limits).status().error(); };
  CHECK(made({FrameType::kRun, std::string(101, 'x'), {}}).message ==
        "a RUN frame with 101 bytes of body, at most 100");
  CHECK_THAT(made({FrameType::kRun, "", std::vector<Tensor>(4)}).message, Contains("4 tensors, at most 3"));
  CHECK_THAT(made({FrameType::kRun, "", {Tensor::zeros(DType::kUInt8, {1001}).value()}}).message,
             Contains("1001 bytes of tensors, at most 1000"));
}

TEST_CASE("headers that contradict themselves are errors") {
  const std::string good = one_tensor(Tensor::of<float>({1}));
  const auto with = [&](size_t at, auto value) {
    std::string bytes = good;
    poke(bytes, at, value);
    seal(bytes);
    return error_of(bytes).message;
  };
  CHECK_THAT(with(0, 'X'), Contains("it begins with 'XRPE', not with 'TRPE'"));
  CHECK_THAT(with(4, uint8_t{99}), Contains("unknown frame type 99"));
  CHECK_THAT(with(4, uint8_t{8}), Contains("unknown frame type 8"));
  CHECK_THAT(with(5, uint8_t{1}), Contains("TENSOR with bytes that must be 0"));
  CHECK_THAT(with(12, uint32_t{2}), Contains("TENSOR with 2 tensors, a table of 20 bytes"));
  CHECK_THAT(with(12, uint32_t{0}), Contains("TENSOR with 0 tensors, a table of 20 bytes"));
  CHECK_THAT(with(16, uint32_t{1} << 20), Contains("a table of 1048576 bytes"));
  CHECK_THAT(with(28, uint64_t{0}), Contains("TENSOR with sequence 0"));
  CHECK_THAT(with(4, uint8_t{4}), Contains("PING with sequence 1"));
  std::string unsealed = good;
  poke<uint64_t>(unsealed, 36, 9);
  CHECK_THAT(error_of(unsealed).message, Contains("its checksum is"));
}

TEST_CASE("tables that contradict themselves or the header are errors that name the tensor") {
  const std::string good = one_tensor(Tensor::of<float>({1, 2}, {1, 2}));
  const auto with = [&](size_t at, auto value) {
    std::string bytes = good;
    poke(bytes, at, value);
    return error_of(bytes).message;
  };
  CHECK(with(48, uint8_t{77}) == "tensor 0 of TENSOR: unknown dtype 77");
  CHECK(with(48, uint8_t{200}) == "tensor 0 of TENSOR: unknown dtype 200");
  CHECK(with(48, uint8_t{20}) == "tensor 0 of TENSOR: a resource cannot come from another process");
  CHECK(with(48, uint8_t{21}) == "tensor 0 of TENSOR: a variant cannot come from another process");
  CHECK(with(48, uint8_t{0}) == "tensor 0 of TENSOR: 8 bytes of rank 2 for no tensor");
  CHECK(with(48, uint8_t{2}) == "tensor 0 of TENSOR: 8 bytes for float64[1,2]");
  CHECK(with(49, uint8_t{1}) == "tensor 0 of TENSOR: 8 bytes for float32[1]");
  CHECK(with(49, uint8_t{3}) == "tensor 0 of TENSOR: the table ends within its sizes");
  CHECK(with(49, uint8_t{17}) == "tensor 0 of TENSOR: rank 17, at most 16");
  CHECK(with(50, uint8_t{1}) == "tensor 0 of TENSOR: bytes that must be 0");
  CHECK(with(52, uint64_t{4}) == "tensor 0 of TENSOR: 4 bytes for float32[1,2]");
  CHECK_THAT(with(60, int64_t{-1}), Contains("tensor 0 of TENSOR: negative size -1"));
  CHECK_THAT(with(60, int64_t{1} << 62), Contains("has more elements than an int64 counts"));
  CHECK_THAT(with(60, (int64_t{1} << 61) + 1), Contains("has more elements than an int64 counts"));
  CHECK_THAT(with(60, int64_t{1} << 50), Contains("8 bytes for float32[1125899906842624,2]"));
  // Several tensors that pass each, and do not sum up.
  std::string two = bytes_of(encoded({FrameType::kTensor, "", {Tensor::of<uint8_t>({1}), Tensor::of<uint8_t>({1})}}));
  poke<uint64_t>(two, 20, 1);
  seal(two);
  CHECK(error_of(two).message == "TENSOR: its tensors up to 1 have more bytes than the 1 of its header");
  poke<uint64_t>(two, 20, 3);
  seal(two);
  CHECK(error_of(two).message == "TENSOR: 0 bytes behind its table, and 2 of 3 bytes of tensors in it");
}

TEST_CASE("contents that contradict the table are errors") {
  std::string bools = one_tensor(Tensor::of<bool>({true, false, true}));
  bools[bools.size() - 2] = 2;
  CHECK(error_of(bools).message == "tensor 0 of TENSOR: element 1 of a bool is 2");
  const std::string strings = one_tensor(Tensor::of<std::string>({"abc", "de"}));
  const auto with = [&](size_t at, uint64_t value) {
    std::string bytes = strings;
    poke(bytes, at, value);
    return error_of(bytes).message;
  };
  CHECK(with(68, 6) == "tensor 0 of TENSOR: string 0 has 6 bytes and 5 are left");
  CHECK(with(68, UINT64_MAX) == "tensor 0 of TENSOR: string 0 has 18446744073709551615 bytes and 5 are left");
  CHECK(with(76, 1) == "tensor 0 of TENSOR: 1 bytes are left behind 2 strings");
  CHECK(with(60, 3) == "tensor 0 of TENSOR: 21 bytes for string[3]");
  CHECK(with(60, 1) == "tensor 0 of TENSOR: 10 bytes are left behind 1 strings");
  CHECK(with(60, 1000) == "tensor 0 of TENSOR: 21 bytes for string[1000]");
  CHECK(with(60, 0) == "tensor 0 of TENSOR: 21 bytes for string[0]");
}

TEST_CASE("strings are filled one after the other as their bytes come") {
  const Tensor strings = Tensor::of<std::string>({"abc", "", "de", std::string(100'000, 'x')}, {2, 2});
  const std::string bytes = one_tensor(strings);
  const size_t lengths = bytes.size() - 32 - 100'005;
  FrameReader reader;
  size_t at = 0;
  const auto come = [&](size_t until) {
    CHECK(read_all(reader, bytes.substr(at, until - at)).value().empty());
    at = until;
    return reader.progress();
  };
  CHECK(come(lengths + 5) == "5 of 32 bytes of the lengths of tensor 0 of TENSOR");
  CHECK(come(lengths + 32) == "0 of 3 bytes of string 0 of tensor 0 of TENSOR");
  CHECK(come(lengths + 32 + 4) == "1 of 2 bytes of string 2 of tensor 0 of TENSOR");
  CHECK(come(lengths + 32 + 5 + 99'999) == "99999 of 100000 bytes of string 3 of tensor 0 of TENSOR");
  const auto frames = read_all(reader, bytes.substr(bytes.size() - 1)).value();
  REQUIRE(frames.size() == 1);
  CHECK(frames[0].frame.tensors[0].identical(strings));
}

TEST_CASE("an announcement alone takes no memory") {
  const Tensor big = Tensor::zeros(DType::kUInt8, {int64_t{1} << 20}).value();
  const FrameRef frame = encoded({FrameType::kTensor, "", {big, big, big}});
  const auto memory = counting();
  FrameReader reader({}, memory);
  const size_t head = 48 + 3 * 20;
  const std::string bytes = bytes_of(frame);
  CHECK(read_all(reader, bytes.substr(0, head - 1)).value().empty());
  CHECK(memory->stats().peak == 0);
  CHECK(read_all(reader, bytes.substr(head - 1, 2)).value().empty());
  CHECK(memory->stats().peak < int64_t{2} << 20);  // the first tensor only
  // And memory that is refused is an error.
  FrameReader poor({}, counting(int64_t{7} << 18));
  const auto refused = read_all(poor, bytes);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Code::kResourceExhausted);
  CHECK_THAT(refused.error().message, Contains("tensor 1 of TENSOR"));
}

TEST_CASE("resources and variants are refused by their names") {
  const auto made = [](DType dtype) {
    return EncodedFrame::make({FrameType::kDone, "", {Tensor(), Tensor::make(dtype, {2}).value()}}).status().error();
  };
  CHECK(made(DType::kResource).message == "tensor 1 of a DONE frame is a resource, which no other process can use");
  CHECK(made(DType::kVariant).message == "tensor 1 of a DONE frame is a variant, which no other process can use");
}

TEST_CASE("the types of frames have names, and those from PEERS on a sequence") {
  CHECK(net::to_string(FrameType::kTensor) == "TENSOR");
  CHECK(net::to_string(static_cast<FrameType>(99)) == "frame type 99");
  int known = 0;
  for (int i = 0; i < 256; ++i) known += net::is_known(static_cast<FrameType>(i));
  CHECK(known == 21);
  CHECK_FALSE(net::is_sequenced(FrameType::kBye));
  CHECK(net::is_sequenced(FrameType::kPeers));
}
