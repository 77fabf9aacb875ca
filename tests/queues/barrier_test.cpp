// SPDX-License-Identifier: Apache-2.0
// Barriers: elements in the order of their keys, waiting, closing; what does not fit.
#include "queues/barrier.h"

#include "tests/queues/recording_sink.h"

using namespace troupe;
using Catch::Contains;

namespace {

struct Fixture {
  Fixture() : core(Barrier::make({"b", {DType::kFloat32, DType::kInt32}, {{2}, PartialShape::scalar()}}).value()) {}
  Barrier& barrier() { return static_cast<Barrier&>(*core); }
  Status floats(std::initializer_list<std::string> keys, std::initializer_list<float> values) {
    const auto n = static_cast<int64_t>(keys.size());
    return barrier().insert_many(0, Tensor::of<std::string>(keys), Tensor::of<float>(values, {n, 2}));
  }
  Status ints(std::initializer_list<std::string> keys, std::initializer_list<int32_t> values) {
    return barrier().insert_many(1, Tensor::of<std::string>(keys), Tensor::of<int32_t>(values));
  }
  uint32_t take(int64_t n, bool small = false, int64_t step = 1) {
    barrier().take_many(n, small, system_allocator(), sink.reply(1, step));
    return sink.last();
  }

  RecordingSink sink;
  std::unique_ptr<Resource> core;  // after sink: what waits is answered as it goes
};

}  // namespace

TEST_CASE("elements are taken when they are complete, by a take that waits as they become so") {
  Fixture f;
  const auto waiting = f.take(2);
  REQUIRE(f.floats({"a", "b", "c"}, {1, 2, 3, 4, 5, 6}).ok());
  REQUIRE(f.ints({"c"}, {30}).ok());
  CHECK(f.barrier().incomplete_size() == 2);
  CHECK_FALSE(f.sink.answered(waiting));
  REQUIRE(f.ints({"d", "a"}, {40, 10}).ok());
  const auto& first = f.sink.outputs(waiting);
  CHECK(first[0].identical(Tensor::of<int64_t>({INT64_MIN, INT64_MIN})));
  CHECK(first[1].identical(Tensor::of<std::string>({"c", "a"})));
  CHECK(first[2].identical(Tensor::of<float>({5, 6, 1, 2}, {2, 2})));
  CHECK(first[3].identical(Tensor::of<int32_t>({30, 10})));
  REQUIRE(f.ints({"b"}, {20}).ok());
  CHECK(f.barrier().ready_size() == 1);
  CHECK(f.barrier().incomplete_size() == 1);
  REQUIRE(f.floats({"a"}, {7, 8}).ok());  // a key may come again once it was taken
}

TEST_CASE("of the elements that are complete those come first whose keys came with an earlier insert") {
  Fixture f;
  REQUIRE(f.floats({"a", "b"}, {1, 2, 3, 4}).ok());
  REQUIRE(f.floats({"c"}, {5, 6}).ok());
  REQUIRE(f.ints({"c", "b", "a"}, {30, 20, 10}).ok());
  const auto& taken = f.sink.outputs(f.take(3));
  CHECK(taken[0].identical(Tensor::of<int64_t>({INT64_MIN, INT64_MIN, INT64_MIN + 1})));
  CHECK(taken[1].identical(Tensor::of<std::string>({"b", "a", "c"})));
}

TEST_CASE("a closed barrier lets in what is missing, then gives what is left") {
  Fixture f;
  REQUIRE(f.floats({"a", "b"}, {1, 2, 3, 4}).ok());
  REQUIRE(f.ints({"a"}, {1}).ok());
  REQUIRE(f.barrier().close(false).ok());
  CHECK(f.floats({"c"}, {1, 2}).error().code == Code::kCancelled);
  const auto exact = f.take(3), some = f.take(3, true);
  CHECK_FALSE(f.sink.answered(exact));  // "b" may still come
  REQUIRE(f.ints({"b"}, {2}).ok());
  CHECK(f.sink.error(exact).code == Code::kOutOfRange);
  CHECK_THAT(f.sink.error(exact).message, Catch::StartsWith("barrier 'b' is closed and has insufficient elements"));
  CHECK(f.sink.outputs(some)[3].identical(Tensor::of<int32_t>({1, 2})));
  CHECK(f.barrier().close(false).error().code == Code::kCancelled);
  REQUIRE(f.barrier().close(true).ok());
  CHECK(f.barrier().close(true).error().code == Code::kCancelled);
}

TEST_CASE("closing with cancelling ends everything") {
  Fixture f;
  REQUIRE(f.floats({"a"}, {1, 2}).ok());
  const auto waiting = f.take(1);
  REQUIRE(f.barrier().close(true).ok());
  CHECK(f.sink.error(waiting).code == Code::kOutOfRange);
  CHECK(f.ints({"a"}, {1}).error().code == Code::kCancelled);
}

TEST_CASE("a take that is cancelled takes nothing") {
  Fixture f;
  REQUIRE(f.floats({"a"}, {1, 2}).ok());
  const auto gone = f.take(2, false, 7);
  REQUIRE(f.ints({"a"}, {1}).ok());
  f.barrier().cancel(1, 7);
  CHECK(f.sink.error(gone).code == Code::kCancelled);
  CHECK_THAT(f.sink.error(gone).message, Contains("of barrier 'b' was cancelled"));
  CHECK(f.sink.ok(f.take(1)));
}

TEST_CASE("what does not fit a barrier is an error and changes nothing") {
  Fixture f;
  REQUIRE(f.ints({"a"}, {1}).ok());
  CHECK_THAT(f.ints({"b", "a"}, {1, 2}).error().message, Contains("'a' has component 1 already"));
  CHECK_THAT(f.ints({"b", "b"}, {1, 2}).error().message, Contains("'b' has component 1 already"));
  CHECK(f.barrier().incomplete_size() == 1);
  const Tensor key = Tensor::of<std::string>({"a"});
  CHECK_THAT(f.barrier().insert_many(2, key, key).error().message, Contains("component_index 2"));
  CHECK_THAT(f.barrier().insert_many(0, key, Tensor::of<float>({1, 2, 3}, {1, 3})).error().message, Contains("[1,3]"));
  CHECK_THAT(f.barrier().insert_many(0, key, Tensor::scalar(1.f)).error().message, Contains("[]"));
  CHECK_FALSE(f.barrier().insert_many(1, Tensor::scalar<std::string>("a"), Tensor::of<int32_t>({1})).ok());
  CHECK_THAT(Barrier::make({"b", {DType::kInt32}, {}, 5}).error().message, Contains("capacity 5"));
  CHECK_FALSE(Barrier::make({"b", {}, {}}).ok());
}
