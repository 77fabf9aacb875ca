// SPDX-License-Identifier: Apache-2.0
#include "queues/staging_map.h"

#include "tests/queues/recording_sink.h"

namespace troupe {
namespace {

const StagingMap::Types kBoth{DType::kInt32, DType::kFloat32};

struct MapFixture {
  explicit MapFixture(int64_t capacity = 0, int64_t memory_limit = 0) {
    auto made = StagingMap::make({"map", capacity, memory_limit});
    REQUIRE(made.ok());
    resource = std::move(*made);
  }
  StagingMap& map() { return dynamic_cast<StagingMap&>(*resource); }
  /// A whole element [v, v / 2].
  uint32_t put(int64_t key, int32_t v, int64_t step = 1) {
    map().put(key, {0, 1}, kBoth, {Tensor::scalar(v), Tensor::scalar(static_cast<float>(v) / 2)}, sink.reply(1, step));
    return sink.last();
  }
  uint32_t put_part(int64_t key, int64_t index, const Tensor& value) {
    map().put(key, {index}, kBoth, {value}, sink.reply());
    return sink.last();
  }
  uint32_t take(std::optional<int64_t> key, StagingMap::Indices indices = {0, 1}, StagingMap::Types types = kBoth) {
    map().take(key, std::move(indices), std::move(types), sink.reply());
    return sink.last();
  }
  void fails(uint32_t request, Code code, const char* text) {
    CHECK(sink.error(request).code == code);
    CHECK_THAT(sink.error(request).message, Catch::Contains(text));
  }
  int32_t value(uint32_t request, size_t at = 0) { return sink.outputs(request).at(at).data<int32_t>()[0]; }

  RecordingSink sink;
  std::unique_ptr<Resource> resource;
};

}  // namespace

TEST_CASE("a staging map gives elements by their keys, and waits") {
  MapFixture f;
  const uint32_t seven = f.take(7), any = f.take({});
  f.put(5, 50);
  CHECK_FALSE(f.sink.answered(seven));
  CHECK(f.sink.outputs(any).at(0).data<int64_t>()[0] == 5);
  CHECK(f.value(any, 1) == 50);
  f.put(7, 70);
  CHECK(f.value(seven) == 70);
  f.put(9, 90);
  f.put(8, 80);
  f.map().peek(9, {0}, {DType::kInt32}, f.sink.reply());
  CHECK(f.value(f.sink.last()) == 90);
  CHECK(f.map().size() == 2);
  CHECK(f.value(f.take({}), 1) == 80);
  f.map().clear();
  CHECK(f.map().size() == 0);
}

TEST_CASE("components of a staging map come and go one by one") {
  MapFixture f;
  const uint32_t waits = f.take(1, {1}, {DType::kFloat32});
  CHECK(f.sink.ok(f.put_part(1, 1, Tensor::scalar(2.f))));
  CHECK_FALSE(f.sink.answered(waits));
  CHECK(f.map().incomplete_size() == 1);
  CHECK(f.map().size() == 0);
  f.fails(f.put_part(1, 1, Tensor::scalar(2.f)), Code::kInvalidArgument, "component 1 of key 1 has come already");
  CHECK(f.sink.ok(f.put_part(1, 0, Tensor::scalar(4))));
  CHECK(f.sink.outputs(waits).at(0).data<float>()[0] == 2);
  CHECK(f.map().size() == 1);
  f.fails(f.take(1), Code::kInvalidArgument, "component 1 of key 1 was taken");
  CHECK(f.value(f.take(1, {0}, {DType::kInt32})) == 4);
  CHECK(f.map().size() == 0);
}

TEST_CASE("a full staging map keeps puts waiting, but not those that make elements whole of which others wait") {
  for (const auto& [capacity, bytes] : {std::pair{2, 0}, {0, 16}}) {
    MapFixture f(capacity, bytes);
    CHECK(f.sink.ok(f.put(1, 10)));
    CHECK(f.sink.ok(f.put(2, 20)));
    const uint32_t waits = f.put(3, 30);
    CHECK_FALSE(f.sink.answered(waits));
    CHECK(f.value(f.take(1)) == 10);
    CHECK(f.sink.ok(waits));
    CHECK(f.map().size() == 2);
  }
  MapFixture f(0, 7);
  f.fails(f.put(1, 10), Code::kResourceExhausted, "values of 8 bytes are more than its memory_limit, 7");
}

TEST_CASE("what a staging map is given must fit") {
  MapFixture f;
  CHECK(f.sink.ok(f.put(1, 10)));
  const auto refused = [&](uint32_t request, const char* text) { f.fails(request, Code::kInvalidArgument, text); };
  refused(f.put(1, 10), "has an element of key 1");
  refused(f.put_part(2, 0, Tensor::scalar(1.f)), "component 0 is int32, the node has float32");
  refused(f.put_part(2, 2, Tensor::scalar(1)), "index 2, of elements of 2 components");
  refused(f.put_part(2, -1, Tensor::scalar(1)), "index -1, of elements of 2 components");
  f.map().put(2, {0}, {DType::kInt32}, {Tensor::scalar(1)}, f.sink.reply());
  refused(f.sink.last(), "the node puts");
  f.map().put(2, {0, 1}, kBoth, {Tensor::scalar(1)}, f.sink.reply());
  refused(f.sink.last(), "2 indices, of 1 components");
  f.map().put(2, {}, kBoth, {}, f.sink.reply());
  refused(f.sink.last(), "there are no values");
  refused(f.take(1, {1, 0}, {DType::kFloat32, DType::kInt32}), "indices must ascend, got 0 behind 1");
  refused(f.take(1, {0}, {DType::kFloat32}), "component 0 is int32, the node has float32");
  CHECK(f.map().size() == 1);
  CHECK_FALSE(StagingMap::make({"map", -1, 0}).ok());
}

TEST_CASE("calls that wait for a staging map are cancelled with their step") {
  MapFixture f(1);
  f.put(1, 10);
  const uint32_t put = f.put(2, 20, 5), other = f.put(3, 30, 6);
  f.map().cancel(1, 5);
  f.fails(put, Code::kCancelled, "waiting for the staging map 'map' was cancelled");
  f.take(1);
  CHECK(f.sink.ok(other));
}

}  // namespace troupe
