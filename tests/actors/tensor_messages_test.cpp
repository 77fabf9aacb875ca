// SPDX-License-Identifier: Apache-2.0
// Tensors as messages of CAF's network: what comes out is what went in, and bytes that are none are an error, whatever
// they say.
#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/stream_deserializer.hpp>
#include <caf/streambuf.hpp>
#include <catch2/catch.hpp>

#include <limits>
#include <random>

#include "tests/engine/fixtures.h"
#include "tests/repeats.h"
#include "troupe/embed.h"
#include "troupe/resource.h"

namespace troupe {
namespace {

using MessageBytes = std::vector<char>;

template <class T> MessageBytes bytes_of_message(T value) {
  MessageBytes out;
  caf::binary_serializer to(nullptr, out);
  const caf::error error = to(value);
  INFO(caf::to_string(error));
  REQUIRE(!error);
  return out;
}

template <class T> caf::error read_message(const MessageBytes& bytes, T& out) {
  caf::binary_deserializer from(nullptr, bytes.data(), bytes.size());
  return from(out);
}

std::vector<Tensor> tensors_of_all_sorts() {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<Tensor> out = {
      Tensor(),
      Tensor::scalar(1.5f),
      Tensor::of<float>({1, -inf, inf, std::nanf("")}, {2, 2}),
      Tensor::of<double>({1e300, std::numeric_limits<double>::infinity()}),
      Tensor::of<bool>({true, false, true}),
      Tensor::scalar(true),
      Tensor::of<int32_t>({}),
      *Tensor::make(DType::kFloat32, Shape{3, 0, 5}),
      Tensor::of<std::string>({"", "short", std::string(1000, 'x'), std::string("a\0b", 3)}, {2, 2}),
      Tensor::scalar<std::string>("one"),
      *Tensor::make(DType::kString, Shape{0}),
      Tensor::of<int8_t>({-1, 2}),
      *Tensor::zeros(DType::kBFloat16, Shape{3}),
      *Tensor::zeros(DType::kComplex64, Shape{2}),
      *Tensor::zeros(DType::kComplex128, Shape{2}),
      Tensor::of<int64_t>({1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 1, 2, 1, 2, 1, 1}),
      *Tensor::zeros(DType::kUInt8, Shape{3 << 20}),
  };
  return out;
}

bool same(const Tensor& a, const Tensor& b) { return a.defined() == b.defined() && (!a.defined() || a.identical(b)); }

}  // namespace

TEST_CASE("a tensor that is written and read is the same, bit for bit") {
  for (const Tensor& tensor : tensors_of_all_sorts()) {
    INFO(tensor.str());
    const MessageBytes bytes = bytes_of_message(tensor);
    Tensor read;
    CHECK(!read_message(bytes, read));
    CHECK(same(read, tensor));
    // From a source that cannot tell how much is left.
    MessageBytes copy = bytes;
    caf::stream_deserializer<caf::arraybuf<char>> from(static_cast<caf::execution_unit*>(nullptr), copy);
    Tensor streamed;
    CHECK(!from(streamed));
    CHECK(same(streamed, tensor));
  }
  const std::vector<Tensor> all = tensors_of_all_sorts();
  std::vector<Tensor> read;
  CHECK(!read_message(bytes_of_message(all), read));
  REQUIRE(read.size() == all.size());
  for (size_t i = 0; i < all.size(); ++i) CHECK(same(read[i], all[i]));
}

TEST_CASE("requests and answers are written and read whole") {
  RunRequest request{7, {Tensor::scalar(1.f), Tensor::of<std::string>({"a"})}};
  RunRequest read_request;
  CHECK(!read_message(bytes_of_message(request), read_request));
  CHECK(read_request.tag == 7);
  REQUIRE(read_request.values.size() == 2);
  CHECK(read_request.values[1].identical(request.values[1]));

  RunAnswer read;
  CHECK(!read_message(bytes_of_message(RunAnswer{8, std::vector{Tensor::scalar(2)}}), read));
  CHECK(read.tag == 8);
  REQUIRE(read.result.ok());
  CHECK((*read.result)[0].identical(Tensor::scalar(2)));

  Error error(Code::kOutOfRange, "at the end", "Op", "node");
  error.device = "/cpu:0";
  error.step = 12;
  CHECK(!read_message(bytes_of_message(RunAnswer{9, error}), read));
  REQUIRE(!read.result.ok());
  CHECK(read.result.error().code == Code::kOutOfRange);
  CHECK(read.result.error().str() == error.str());
}

TEST_CASE("what no other process can use is not written") {
  MessageBytes out;
  caf::binary_serializer to(nullptr, out);
  for (const DType dtype : {DType::kResource, DType::kVariant}) {
    auto tensor = Tensor::make(dtype, Shape{});
    REQUIRE(tensor.ok());
    CHECK(to(*tensor));
  }
}

TEST_CASE("lengths that lie are errors before memory is taken") {
  const auto refused_bytes = [](std::vector<uint8_t> head, std::vector<int64_t> sizes, uint64_t bytes) {
    MessageBytes all(head.begin(), head.end());
    const auto add = [&](auto value) {
      const char* at = reinterpret_cast<const char*>(&value);
      all.insert(all.end(), at, at + sizeof value);
    };
    add(bytes);
    for (const int64_t size : sizes) add(size);
    all.resize(all.size() + 64);
    Tensor out = Tensor::scalar(5);
    const caf::error error = read_message(all, out);
    CHECK(error);
    CHECK(out.identical(Tensor::scalar(5)));
    return caf::to_string(error);
  };
  const auto f32 = static_cast<uint8_t>(DType::kFloat32), text = static_cast<uint8_t>(DType::kString);
  CHECK_THAT(refused_bytes({f32, 1, 0, 0}, {int64_t{1} << 40}, uint64_t{4} << 40),
             Catch::Contains("are due and 64 are left"));
  CHECK_THAT(refused_bytes({text, 1, 0, 0}, {int64_t{1} << 40}, uint64_t{8} << 40),
             Catch::Contains("are due and 64 are left"));
  refused_bytes({f32, 1, 0, 0}, {-1}, 4);
  refused_bytes({f32, 1, 0, 0}, {3}, 8);
  refused_bytes({f32, 2, 0, 0}, {int64_t{1} << 62, 16}, 0);
  refused_bytes({f32, 2, 0, 0}, {int64_t{1} << 32, int64_t{1} << 30}, 0);
  refused_bytes({f32, 0, 0, 0}, {}, ~uint64_t{0});
  refused_bytes({f32, 255, 0, 0}, {}, 4);
  refused_bytes({f32, 0, 1, 0}, {}, 4);
  refused_bytes({200, 0, 0, 0}, {}, 4);
  refused_bytes({static_cast<uint8_t>(DType::kResource), 0, 0, 0}, {}, 0);
  refused_bytes({static_cast<uint8_t>(DType::kVariant), 0, 0, 0}, {}, 8);
  refused_bytes({text, 1, 0, 0}, {2}, 8);
  refused_bytes({text, 1, 0, 0}, {0}, 8);
}

TEST_CASE("messages that end early, or have any byte changed, are errors or other tensors, and never more") {
  std::vector<Tensor> few = {Tensor::of<float>({1, 2, 3}), Tensor::of<bool>({true, false}),
                             Tensor::of<std::string>({"ab", ""}), *Tensor::make(DType::kInt32, Shape{2, 0})};
  const auto try_all = [](const MessageBytes& bytes, auto empty) {
    for (size_t n = 0; n < bytes.size(); ++n) {
      auto out = empty;
      CHECK(read_message(MessageBytes(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n)), out));
    }
    std::mt19937 random(3);
    for (size_t n = 0; n < bytes.size(); ++n)
      for (int i = 0; i < repeats(24); ++i) {
        MessageBytes changed = bytes;
        changed[n] = static_cast<char>(i < 8 ? changed[n] ^ (1 << i) : random());
        auto out = empty;
        if (!read_message(changed, out)) (void)bytes_of_message(out);  // what was read is whole
      }
  };
  try_all(bytes_of_message(few), std::vector<Tensor>());
  try_all(bytes_of_message(RunRequest{1, few}), RunRequest());
  try_all(bytes_of_message(RunAnswer{1, few}), RunAnswer());
  try_all(bytes_of_message(RunAnswer{1, make_error(Code::kInternal, "why")}), RunAnswer());
}

}  // namespace troupe
