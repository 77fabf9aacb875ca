// SPDX-License-Identifier: Apache-2.0
#include "queues/staging_area.h"

#include "tests/queues/recording_sink.h"

namespace troupe {
namespace {

Tensor number(int32_t v) { return Tensor::scalar(v); }

struct AreaFixture {
  explicit AreaFixture(int64_t capacity = 0, int64_t memory_limit = 0) {
    auto made = StagingArea::make({"area", {DType::kInt32}, capacity, memory_limit});
    REQUIRE(made.ok());
    resource = std::move(*made);
  }
  StagingArea& area() { return dynamic_cast<StagingArea&>(*resource); }
  uint32_t put(int32_t v, int64_t step = 1) {
    area().put({number(v)}, sink.reply(1, step));
    return sink.last();
  }
  uint32_t get(int64_t step = 1) {
    area().get(sink.reply(1, step));
    return sink.last();
  }
  uint32_t peek(int64_t index) {
    area().peek(index, sink.reply());
    return sink.last();
  }
  int32_t value(uint32_t request) { return sink.outputs(request).at(0).data<int32_t>()[0]; }

  RecordingSink sink;
  std::unique_ptr<Resource> resource;
};

}  // namespace

TEST_CASE("a staging area gives in the order it took, and waits") {
  AreaFixture f;
  const uint32_t first = f.get(), second = f.get(), third = f.peek(1);
  CHECK_FALSE(f.sink.answered(first));
  f.put(7);
  CHECK(f.value(first) == 7);
  f.put(8);
  CHECK(f.value(second) == 8);
  f.put(9);
  CHECK_FALSE(f.sink.answered(third));  // element 1 is not there yet, and holds up nobody
  f.put(10);
  CHECK(f.value(third) == 10);
  CHECK(f.area().size() == 2);
  CHECK(f.value(f.peek(0)) == 9);
  CHECK(f.value(f.get()) == 9);
  f.area().clear();
  CHECK(f.area().size() == 0);
}

TEST_CASE("a full staging area keeps puts waiting until there is room") {
  for (const auto& [capacity, bytes] : {std::pair{2, 0}, {0, 8}, {0, 11}}) {
    AreaFixture f(capacity, bytes);
    CHECK(f.sink.ok(f.put(1)));
    CHECK(f.sink.ok(f.put(2)));
    const uint32_t waits = f.put(3), last = f.put(4);
    CHECK_FALSE(f.sink.answered(waits));
    CHECK(f.value(f.get()) == 1);
    CHECK(f.sink.ok(waits));
    CHECK_FALSE(f.sink.answered(last));
    f.area().clear();
    CHECK(f.sink.ok(last));
    CHECK(f.value(f.get()) == 4);
  }
}

TEST_CASE("cancelling a step answers what it waits for in a staging area") {
  AreaFixture f(1);
  const uint32_t cancelled = f.get(7), waits = f.get(8);
  f.area().cancel(1, 7);
  CHECK(f.sink.error(cancelled).code == Code::kCancelled);
  CHECK_FALSE(f.sink.answered(waits));
  f.put(1), f.put(2);
  CHECK(f.value(waits) == 1);
  const uint32_t full = f.put(3, 7);
  f.area().cancel(1, 7);
  CHECK(f.sink.error(full).code == Code::kCancelled);
  f.resource.reset();
}

TEST_CASE("what does not fit a staging area is an error", "[bad_input]") {
  AreaFixture f(0, 8);
  f.area().put({Tensor::scalar(1.0f)}, f.sink.reply());
  CHECK_THAT(f.sink.error(f.sink.last()).str(), Catch::Contains("holds [int32], the element has [float32]"));
  f.area().put({Tensor::of<int32_t>({1, 2, 3})}, f.sink.reply());
  CHECK(f.sink.error(f.sink.last()).code == Code::kResourceExhausted);
  CHECK_THAT(f.sink.error(f.sink.last()).str(), Catch::Contains("12 bytes is more than its memory_limit, 8"));
  CHECK_THAT(f.sink.error(f.peek(-1)).str(), Catch::Contains("at least 0, got -1"));
  CHECK_THAT(StagingArea::make({"a", {}, -1, 0}).error().str(), Catch::Contains("capacity must be at least 0, got -1"));
}

}  // namespace troupe
