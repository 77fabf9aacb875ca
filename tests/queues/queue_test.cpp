// SPDX-License-Identifier: Apache-2.0
// The four queues: waiting, closing, cancelling, batches; and random requests of which no element may get lost.
#include <algorithm>
#include <random>
#include <set>

#include "queues/fifo_queue.h"
#include "queues/priority_queue.h"
#include "queues/random_shuffle_queue.h"
#include "tests/queues/recording_sink.h"

using namespace troupe;
using Catch::Contains;

namespace {

const auto kMemory = system_allocator();

/// A queue of int32 scalars, with what is needed to ask it.
struct Asked {
  std::unique_ptr<Resource> resource;
  RecordingSink sink;
  Queue& q;

  explicit Asked(Result<std::unique_ptr<Resource>> made)
      : resource(std::move(made).value()), q(dynamic_cast<Queue&>(*resource)) {}
  ~Asked() { resource.reset(); }  // answers what waits while the sink is there

  uint32_t put(int x, int64_t step = 1) {
    return q.enqueue({Tensor::scalar<int32_t>(x)}, sink.reply(1, step)), sink.last();
  }
  uint32_t put_many(std::initializer_list<int> x, int64_t step = 1) {
    return q.enqueue_many({Tensor::of<int32_t>(x)}, sink.reply(1, step)), sink.last();
  }
  uint32_t take(int64_t step = 1) { return q.dequeue(sink.reply(1, step)), sink.last(); }
  uint32_t take_many(int n, int64_t step = 1) { return q.dequeue_many(n, kMemory, sink.reply(1, step)), sink.last(); }
  uint32_t take_up_to(int n, int64_t step = 1) { return q.dequeue_up_to(n, kMemory, sink.reply(1, step)), sink.last(); }
  uint32_t close(bool cancel = false, int64_t step = 1) { return q.close(cancel, sink.reply(1, step)), sink.last(); }
  std::vector<int> got(uint32_t request) const {
    const auto values = sink.outputs(request).at(0).values<int32_t>();
    return {values.begin(), values.end()};
  }
};

QueueOptions ints(int64_t capacity = -1) { return {"q", {DType::kInt32}, {PartialShape::scalar()}, capacity}; }
using Ints = std::vector<int>;

}  // namespace

TEST_CASE("elements leave a FIFO queue in the order they came; dequeues wait for them") {
  Asked a(FifoQueue::make(ints()));
  const auto first = a.take(), second = a.take();
  CHECK_FALSE(a.sink.answered(first));
  a.put(1);
  CHECK(a.got(first) == Ints{1});
  CHECK_FALSE(a.sink.answered(second));
  a.put_many({2, 3, 4});
  CHECK(a.got(second) == Ints{2});
  CHECK(a.q.size() == 2);
  CHECK(a.got(a.take_many(2)) == Ints{3, 4});
  CHECK(a.sink.outputs(a.take_many(0)).at(0).shape() == Shape{0});
  CHECK_THAT(a.sink.error(a.take_many(-1)).message, Contains("-1"));
}

TEST_CASE("enqueues wait for room and are answered in order") {
  Asked a(FifoQueue::make(ints(2)));
  const auto many = a.put_many({1, 2, 3, 4}), one = a.put(5);
  CHECK(a.q.size() == 2);
  CHECK_FALSE(a.sink.answered(many));
  CHECK(a.got(a.take_many(2)) == Ints{1, 2});
  CHECK(a.sink.ok(many));
  CHECK_FALSE(a.sink.answered(one));
  CHECK(a.got(a.take_many(3)) == Ints{3, 4, 5});  // more than the capacity
  CHECK(a.sink.ok(one));
}

TEST_CASE("close lets waiting enqueues finish, then refuses; dequeues drain the rest") {
  Asked a(FifoQueue::make(ints(1)));
  a.put(1);
  const auto waiting = a.put(2);
  const auto closing = a.close();
  CHECK_FALSE(a.q.is_closed());
  CHECK(a.got(a.take()) == Ints{1});
  CHECK(a.sink.ok(waiting));
  CHECK(a.sink.ok(closing));
  CHECK(a.q.is_closed());
  CHECK(a.sink.error(a.put(3)).code == Code::kCancelled);
  CHECK(a.sink.ok(a.put_many({})));
  CHECK_THAT(a.sink.error(a.close()).message, Contains("already closed"));
  const auto& short_of = a.sink.error(a.take_many(3));
  CHECK(short_of.code == Code::kOutOfRange);
  CHECK_THAT(short_of.message, Contains("'q'") && Contains("requested 3") && Contains("current size 1"));
  CHECK(a.got(a.take_up_to(3)) == Ints{2});
  CHECK(a.sink.error(a.take()).code == Code::kOutOfRange);
  CHECK(a.sink.error(a.take_up_to(1)).code == Code::kOutOfRange);
}

TEST_CASE("close answers dequeues that wait, and cancels enqueues on request") {
  Asked a(FifoQueue::make(ints(2)));
  const auto batch = a.take_many(3), rest = a.take_up_to(5), none = a.take();
  a.put_many({1, 2});
  CHECK(a.q.size() == 0);  // the first dequeue holds both
  a.close();
  CHECK(a.sink.error(batch).code == Code::kOutOfRange);
  CHECK(a.got(rest) == Ints{1, 2});
  CHECK(a.sink.error(none).code == Code::kOutOfRange);

  Asked b(FifoQueue::make(ints(1)));
  b.put(1);
  const auto waiting = b.put(2);
  CHECK(b.sink.ok(b.close(true)));
  CHECK(b.sink.error(waiting).code == Code::kCancelled);
  CHECK(b.got(b.take()) == Ints{1});
}

TEST_CASE("a cancelled dequeue gives back what it collected, in order") {
  Asked a(FifoQueue::make(ints()));
  const auto batch = a.take_many(4, 7), next = a.take_many(2, 8);
  a.put_many({1, 2, 3});
  a.q.cancel(2, 7);  // another requester's
  CHECK_FALSE(a.sink.answered(batch));
  a.q.cancel(1, 7);
  CHECK(a.sink.error(batch).code == Code::kCancelled);
  CHECK(a.got(next) == Ints{1, 2});
  CHECK(a.got(a.take()) == Ints{3});
}

TEST_CASE("a cancelled enqueue makes way for the next; a cancelled close does not close") {
  Asked a(FifoQueue::make(ints(1)));
  a.put(1);
  const auto dropped = a.put(2, 7), closing = a.close(false, 7), kept = a.put(3, 8);
  a.q.cancel(1, 7);
  CHECK(a.sink.error(dropped).code == Code::kCancelled);
  CHECK(a.sink.error(closing).code == Code::kCancelled);
  CHECK(a.got(a.take()) == Ints{1});
  CHECK(a.sink.ok(kept));
  CHECK(a.got(a.take()) == Ints{3});
  CHECK_FALSE(a.q.is_closed());
}

TEST_CASE("components are checked and the message says what was expected") {
  RecordingSink sink;
  auto made = FifoQueue::make({"data", {DType::kFloat32, DType::kInt64}, {{2, 3}, {-1}}, 5});
  auto& q = dynamic_cast<Queue&>(**made);
  const auto zeros = [](DType d, Shape s) { return *Tensor::zeros(d, s); };
  q.enqueue({zeros(DType::kFloat32, {2, 3})}, sink.reply());
  CHECK_THAT(sink.error(1).message, Contains("2 components, got 1"));
  q.enqueue({zeros(DType::kFloat32, {2, 3}), zeros(DType::kInt32, {1})}, sink.reply());
  CHECK_THAT(sink.error(2).message, Contains("component 1 must be int64[?], got int32[1]"));
  q.enqueue({zeros(DType::kFloat32, {3, 2}), zeros(DType::kInt64, {1})}, sink.reply());
  CHECK_THAT(sink.error(3).message, Contains("component 0 must be float32[2,3], got float32[3,2]"));
  q.enqueue_many({zeros(DType::kFloat32, {4, 2, 3}), zeros(DType::kInt64, {3, 1})}, sink.reply());
  CHECK_THAT(sink.error(4).message, Contains("component 1") && Contains("[3,1]"));
  q.enqueue_many({zeros(DType::kFloat32, {}), zeros(DType::kInt64, {})}, sink.reply());
  CHECK(sink.error(5).code == Code::kInvalidArgument);
  q.dequeue_many(2, kMemory, sink.reply());
  CHECK_THAT(sink.error(6).message, Contains("full shape"));
  q.enqueue_many({zeros(DType::kFloat32, {0, 2, 3}), zeros(DType::kInt64, {0, 1})}, sink.reply());
  CHECK(sink.ok(7));
  CHECK(FifoQueue::make({"q", {}, {}, 1}).error().code == Code::kInvalidArgument);
  CHECK(FifoQueue::make({"q", {DType::kInt32}, {{}, {}}, 1}).error().code == Code::kInvalidArgument);
  CHECK(FifoQueue::make(ints(0)).error().code == Code::kInvalidArgument);
}

TEST_CASE("a batch that finds no memory leaves its elements in the queue") {
  Asked a(FifoQueue::make(ints()));
  a.put_many({1, 2, 3});
  a.q.dequeue_many(2, make_caching_allocator(1), a.sink.reply());
  CHECK(a.sink.error(a.sink.last()).code == Code::kResourceExhausted);
  CHECK(a.got(a.take_many(3)) == Ints{1, 2, 3});
}

TEST_CASE("a random-shuffle queue keeps its minimum, repeats by what is drawn and draws uniformly") {
  const auto drawn = [](uint32_t seed) {
    Asked a(RandomShuffleQueue::make(ints(20), 2, std::mt19937(seed)));
    a.put_many({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    Ints out = a.got(a.take_many(8));
    const auto waiting = a.take();
    CHECK_FALSE(a.sink.answered(waiting));
    a.close();
    out.push_back(a.got(waiting)[0]);
    out.push_back(a.got(a.take())[0]);
    return out;
  };
  Ints order = drawn(1);
  CHECK(order == drawn(1));
  CHECK(order != drawn(2));
  std::ranges::sort(order);
  CHECK(order == Ints{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  std::array<int, 10> first{};
  for (int seed = 0; seed < 2000; ++seed) ++first[drawn(seed)[0]];
  double chi2 = 0;
  for (int n : first) chi2 += (n - 200.0) * (n - 200.0) / 200.0;
  CHECK(chi2 < 27.9);  // 9 degrees of freedom, p = 0.001
  CHECK(RandomShuffleQueue::make(ints(5), 5, std::mt19937(0)).error().code == Code::kInvalidArgument);
}

TEST_CASE("a random-shuffle queue takes the element of a word's remainder, and fills its place with the last one") {
  Asked a(RandomShuffleQueue::make(ints(20), 0, [n = 5u]() mutable { return n += 1000; }));
  a.put_many({0, 1, 2, 3, 4, 5});
  CHECK(a.got(a.take_many(6)) == Ints{3, 0, 1, 4, 5, 2});
}

TEST_CASE("a padding queue fills a batch up to its largest element") {
  RecordingSink sink;
  auto made = PaddingFifoQueue::make({"q", {DType::kInt32, DType::kString}, {{-1, 2}, {-1}}, -1});
  auto& q = dynamic_cast<Queue&>(**made);
  q.enqueue({Tensor::of<int32_t>({1, 2}, {1, 2}), Tensor::of<std::string>({"a", "b"})}, sink.reply());
  q.enqueue({Tensor::of<int32_t>({3, 4, 5, 6}, {2, 2}), Tensor::of<std::string>({"c"})}, sink.reply());
  q.dequeue_many(2, kMemory, sink.reply());
  CHECK(sink.outputs(3)[0].identical(Tensor::of<int32_t>({1, 2, 0, 0, 3, 4, 5, 6}, {2, 2, 2})));
  CHECK(sink.outputs(3)[1].identical(Tensor::of<std::string>({"a", "b", "c", ""}, {2, 2})));
  q.dequeue_many(0, kMemory, sink.reply());
  CHECK(sink.outputs(4)[0].shape() == Shape{0, 0, 2});
  CHECK_THAT(PaddingFifoQueue::make({"q", {DType::kInt32}, {PartialShape()}, -1}).error().message, Contains("rank"));
}

TEST_CASE("a priority queue gives the smallest first, equals in the order they came") {
  RecordingSink sink;
  auto made = PriorityQueue::make({"q", {DType::kInt32}, {PartialShape::scalar()}, -1});
  auto& q = dynamic_cast<Queue&>(**made);
  q.dequeue_many(5, kMemory, sink.reply(1, 9));
  q.enqueue_many({Tensor::of<int64_t>({5, 1, 5, 1}), Tensor::of<int32_t>({10, 11, 12, 13})}, sink.reply());
  q.cancel(1, 9);  // what it collected keeps its place before its equals
  q.enqueue({Tensor::scalar<int64_t>(1), Tensor::scalar<int32_t>(14)}, sink.reply());
  q.dequeue_many(5, kMemory, sink.reply());
  CHECK(sink.outputs(4)[0].identical(Tensor::of<int64_t>({1, 1, 1, 5, 5})));
  CHECK(sink.outputs(4)[1].identical(Tensor::of<int32_t>({11, 13, 14, 10, 12})));
  CHECK(PriorityQueue::make({"q", {DType::kInt32}, {}, -1}).error().code == Code::kInvalidArgument);
}

TEST_CASE("random requests, cancelled and closed, lose and repeat no element") {
  const auto seed = GENERATE(range(0, 40));
  const bool shuffled = seed % 2;
  std::mt19937 random(seed);
  const int capacity = 1 + random() % 20;
  Asked a(shuffled ? RandomShuffleQueue::make(ints(capacity), random() % capacity, std::mt19937(seed))
                   : FifoQueue::make(ints(capacity)));
  std::map<uint32_t, Ints> puts;
  std::set<uint32_t> takes;
  int next = 0;
  const auto one_request = [&](bool only_takes) {
    const int64_t step = random() % 8;
    switch (random() % (only_takes ? 4 : 9)) {
      case 0: takes.insert(a.take(step)); break;
      case 1: takes.insert(a.take_many(random() % 7, step)); break;
      case 2: takes.insert(a.take_up_to(1 + random() % 6, step)); break;
      case 3: a.q.cancel(1, step); break;
      case 4:
        puts[a.put(next, step)] = {next};
        ++next;
        break;
      default: {
        const int k = random() % 4;
        Ints values(k);
        for (int& v : values) v = next++;
        a.q.enqueue_many({Tensor::of<int32_t>(std::span<const int32_t>(values))}, a.sink.reply(1, step));
        puts[a.sink.last()] = values;
      }
    }
    REQUIRE(a.q.size() <= capacity + 7);
  };
  for (int i = 0; i < 400; ++i) one_request(false);
  a.close(random() % 2);
  for (int i = 0; i < 50; ++i) one_request(true);
  for (int64_t step = 0; step < 8; ++step) a.q.cancel(1, step);
  while (a.q.size() > 0) takes.insert(a.take());

  CHECK(a.sink.answers.size() == a.sink.last());
  Ints out;
  for (uint32_t request : a.sink.order)
    if (takes.contains(request) && a.sink.ok(request)) {
      const Ints values = a.got(request);
      out.insert(out.end(), values.begin(), values.end());
    }
  if (!shuffled) CHECK(std::ranges::is_sorted(out));
  std::ranges::sort(out);
  CHECK(std::ranges::adjacent_find(out) == out.end());
  for (const auto& [request, values] : puts) {
    // A refused enqueue may have brought in its first rows, but no row after one that is missing.
    bool missing = false;
    for (int v : values) {
      const bool there = std::ranges::binary_search(out, v);
      CHECK_FALSE((there && missing));
      missing |= !there;
    }
    if (a.sink.ok(request)) CHECK_FALSE(missing);
  }
  CHECK(out.size() > 50);
}
