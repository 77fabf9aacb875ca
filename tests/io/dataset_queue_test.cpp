// SPDX-License-Identifier: Apache-2.0
// Datasets that are pushed into, and those that call a function.
#include "troupe/dataset_queue.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "tests/repeats.h"

using namespace troupe;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

DatasetQueue make_queue(int64_t capacity = 4) {
  return *DatasetQueue::create({DType::kInt32}, {PartialShape::scalar()}, capacity);
}

Element number(int n) { return {Tensor::scalar(n)}; }

std::unique_ptr<DatasetIterator> iterate(const Dataset& dataset) {
  auto it = dataset.iterate();
  REQUIRE(it.ok());
  return std::move(*it);
}

/// The next value; -1 at the end, -1000 - code for an error.
int next(DatasetIterator& it) {
  auto element = it.next();
  if (!element.ok()) return -1000 - static_cast<int>(element.error().code);
  return *element ? (**element)[0].data<int32_t>()[0] : -1;
}

constexpr int error(Code code) { return -1000 - static_cast<int>(code); }

}  // namespace

TEST_CASE("what is pushed comes out in order, and then the end") {
  const DatasetQueue queue = make_queue();
  const Dataset dataset = Dataset::from_queue(queue);
  CHECK(dataset.dtypes() == std::vector{DType::kInt32});
  CHECK(dataset.size() == -1);
  CHECK(dataset.may_wait());
  const auto it = iterate(dataset);
  for (int i = 0; i < 4; ++i) REQUIRE(queue.push(number(i)).ok());
  CHECK(queue.size() == 4);
  CHECK(*queue.try_push(number(9)) == false);
  CHECK(queue.push(number(9), 0ns).error().code == Code::kDeadlineExceeded);
  CHECK(queue.push(number(9), -1ns).error().code == Code::kDeadlineExceeded);
  CHECK(queue.push(number(9), 1ms).error().code == Code::kDeadlineExceeded);
  CHECK(next(*it) == 0);
  CHECK(*queue.try_push(number(4)));
  queue.close();
  queue.close();
  CHECK(queue.closed());
  CHECK(queue.push(number(9)).error().code == Code::kFailedPrecondition);
  CHECK(queue.try_push(number(9)).error().code == Code::kFailedPrecondition);
  for (int i = 1; i < 5; ++i) CHECK(next(*it) == i);
  CHECK(next(*it) == -1);
  CHECK(next(*it) == -1);
}

TEST_CASE("elements that are not as declared are refused by component, and queues that make no sense") {
  const auto queue =
      *DatasetQueue::create({DType::kInt32, DType::kFloat32}, {PartialShape::scalar(), PartialShape{-1, 2}});
  const Tensor one = Tensor::scalar(1), pair = Tensor::of<float>({1, 2}, {1, 2});
  CHECK(queue.push({one, pair}).ok());
  const auto refused = [&](Element e) {
    const Status status = queue.push(std::move(e));
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().code == Code::kInvalidArgument);
    return status.error().message;
  };
  CHECK_THAT(refused({one}), Contains("1 components") && Contains("2"));
  CHECK_THAT(refused({one, one}), Contains("component 1") && Contains("int32[]") && Contains("float32[?,2]"));
  CHECK_THAT(refused({one, Tensor::of<float>({1, 2, 3}, {1, 3})}), Contains("component 1") && Contains("[1,3]"));
  CHECK_THAT(refused({Tensor(), pair}), Contains("component 0"));
  CHECK(queue.size() == 1);

  CHECK_FALSE(DatasetQueue::create({}).ok());
  CHECK_FALSE(DatasetQueue::create({DType::kInt32}, {{}, {}}).ok());
  CHECK_THAT(DatasetQueue::create({DType::kInt32}, {}, 0).error().message, Contains("at least 1, got 0"));
  CHECK(DatasetQueue::create({DType::kInt32})->push({pair}).error().code == Code::kInvalidArgument);
}

TEST_CASE("a tensor that was pushed is the dataset's: writing to it later copies") {
  const DatasetQueue queue = make_queue();
  Tensor mine = Tensor::scalar(7);
  REQUIRE(queue.push({mine}).ok());
  mine.mutable_data<int32_t>()[0] = 8;
  CHECK(next(*iterate(Dataset::from_queue(queue))) == 7);
}

TEST_CASE("dropping the last handle closes a queue, dropping a copy does not") {
  std::optional<DatasetQueue> queue = make_queue();
  const auto it = iterate(Dataset::from_queue(*queue));
  { const DatasetQueue copy = *queue; }
  REQUIRE(queue->push(number(1)).ok());
  queue.reset();
  CHECK(next(*it) == 1);
  CHECK(next(*it) == -1);
}

TEST_CASE("an error of the producer comes behind its elements, to each iterator once") {
  const DatasetQueue queue = make_queue();
  const auto one = iterate(Dataset::from_queue(queue)), two = iterate(Dataset::from_queue(queue));
  REQUIRE(queue.push(number(1)).ok());
  queue.fail(make_error(Code::kDataLoss, "the camera fell"));
  queue.fail(make_error(Code::kInternal, "too late"));
  queue.close();
  CHECK(next(*one) == 1);
  const auto element = two->next();
  REQUIRE_FALSE(element.ok());
  CHECK(element.error().message == "the camera fell");
  CHECK(next(*one) == error(Code::kDataLoss));
  CHECK(next(*one) == -1);
  CHECK(next(*two) == -1);
  CHECK(queue.push(number(1)).error().code == Code::kFailedPrecondition);
}

TEST_CASE("iterators share the elements out, a repeat finds nothing more, a batch takes them together") {
  const DatasetQueue queue = make_queue(8);
  const Dataset dataset = Dataset::from_queue(queue);
  const auto one = iterate(dataset), two = iterate(dataset.repeat());
  for (int i = 0; i < 4; ++i) REQUIRE(queue.push(number(i)).ok());
  CHECK(next(*one) == 0);
  CHECK(next(*two) == 1);
  CHECK(next(*one) == 2);
  queue.close();
  CHECK(next(*two) == 3);
  CHECK(next(*two) == -1);
  CHECK(next(*one) == -1);
  CHECK(next(*iterate(dataset)) == -1);

  const DatasetQueue other = make_queue(8);
  for (int i = 0; i < 5; ++i) REQUIRE(other.push(number(i)).ok());
  other.close();
  const auto batches = iterate(Dataset::from_queue(other).batch(3));
  CHECK((**batches->next())[0].identical(Tensor::of<int32_t>({0, 1, 2})));
  CHECK((**batches->next())[0].identical(Tensor::of<int32_t>({3, 4})));
  CHECK(next(*batches) == -1);
}

TEST_CASE("push waits for room, next waits for elements, and neither longer than the other side lives") {
  const DatasetQueue queue = make_queue(1);
  REQUIRE(queue.push(number(0)).ok());
  auto pushing = std::async(std::launch::async, [&] { return queue.push(number(1)); });
  CHECK(pushing.wait_for(1ms) == std::future_status::timeout);  // nobody reads yet
  auto it = iterate(Dataset::from_queue(queue));
  CHECK(next(*it) == 0);
  CHECK(pushing.get().ok());
  CHECK(next(*it) == 1);
  auto taking = std::async(std::launch::async, [&] { return next(*it); });
  REQUIRE(queue.push(number(2)).ok());
  CHECK(taking.get() == 2);

  // The last reader goes.
  REQUIRE(queue.push(number(3)).ok());
  pushing = std::async(std::launch::async, [&] { return queue.push(number(4)); });
  it.reset();
  CHECK(pushing.get().error().code == Code::kCancelled);
  CHECK(queue.try_push(number(4)).error().code == Code::kCancelled);
  it = iterate(Dataset::from_queue(queue));
  CHECK(next(*it) == 3);
  CHECK(queue.push(number(5)).ok());

  // It closes.
  pushing = std::async(std::launch::async, [&] { return queue.push(number(6)); });
  queue.close();
  const Status closed = pushing.get();
  REQUIRE_FALSE(closed.ok());
  CHECK(closed.error().code == Code::kFailedPrecondition);
}

TEST_CASE("an iterator that is cancelled returns from next() and takes nothing, through all stages") {
  const DatasetQueue queue = make_queue();
  const Dataset plain = Dataset::from_queue(queue);
  const auto identity = [](Element e) -> Result<Element> { return e; };
  for (const Dataset& dataset :
       {plain, plain.batch(2), plain.map(identity).shuffle(4, 1), plain.repeat().take(9).skip(1).shard(1, 0)}) {
    const auto it = iterate(dataset);
    auto taking = std::async(std::launch::async, [&] { return next(*it); });
    it->cancel();
    CHECK(taking.get() == error(Code::kCancelled));
    CHECK(next(*it) == error(Code::kCancelled));
  }
  REQUIRE(queue.push(number(1)).ok() == false);  // all its readers are gone
  const auto it = iterate(plain);
  REQUIRE(queue.push(number(1)).ok());
  it->cancel();
  CHECK(next(*it) == error(Code::kCancelled));
  CHECK(next(*iterate(plain)) == 1);
}

TEST_CASE("many threads push and many take, and each element comes once") {
  const DatasetQueue queue = make_queue(3);
  const int each = repeats(200);
  std::mutex mutex;
  std::multiset<int> seen;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&, it = std::shared_ptr<DatasetIterator>(iterate(Dataset::from_queue(queue)))] {
        for (int value; (value = next(*it)) >= 0;) {
          const std::lock_guard lock(mutex);
          seen.insert(value);
        }
      });
    std::vector<std::jthread> pushers;
    for (int t = 0; t < 3; ++t)
      pushers.emplace_back([&, t] {
        for (int i = 0; i < each; ++i) {
          if (i % 2) (void)queue.push(number(t * each + i)).ok();
          else
            while (!*queue.try_push(number(t * each + i))) std::this_thread::yield();
        }
      });
    pushers.clear();
    queue.close();
  }
  CHECK(static_cast<int>(seen.size()) == 3 * each);
  CHECK(std::set<int>(seen.begin(), seen.end()).size() == seen.size());
}

TEST_CASE("a function is a source: elements, errors, exceptions and the end") {
  int calls = 0;
  const auto dataset = Dataset::from_function(
      [&]() -> Result<std::optional<Element>> {
        switch (calls++) {
          case 1: return make_error(Code::kDataLoss, "noise");
          case 2: throw std::runtime_error("thrown");
          case 3: return std::optional<Element>({Tensor::scalar(1.5f)});
          case 5: return std::optional<Element>();
          default: return std::optional<Element>(number(calls));
        }
      },
      {DType::kInt32}, {PartialShape::scalar()});
  REQUIRE(dataset.ok());
  CHECK(dataset->may_wait());
  CHECK(dataset->size() == -1);
  const auto it = iterate(*dataset);
  CHECK(next(*it) == 1);
  CHECK(next(*it) == error(Code::kDataLoss));
  CHECK_THAT(it->next().error().message, Contains("element 2") && Contains("thrown"));
  CHECK_THAT(it->next().error().message, Contains("component 0") && Contains("float32"));
  CHECK(next(*it) == 5);
  CHECK(next(*it) == -1);
  CHECK(calls == 6);
  CHECK(next(*it) == -1);
  CHECK(calls == 6);  // after the end it is not called again
  CHECK(next(*iterate(dataset->repeat(2))) == 7);

  CHECK_FALSE(Dataset::from_function(Dataset::SourceFn(), {DType::kInt32}).ok());
  CHECK_FALSE(
      Dataset::from_function([]() -> Result<std::optional<Element>> { return std::optional<Element>(number(1)); }, {})
          .ok());
  CHECK_FALSE(
      Dataset::from_function([]() -> Result<std::optional<Element>> { return std::optional<Element>(number(1)); },
                             {DType::kInt32}, {{}, {}})
          .ok());
}

TEST_CASE("a function that waits is told when its iterator is cancelled") {
  const auto dataset = Dataset::from_function(
      [](const std::stop_token& stop) -> Result<std::optional<Element>> {
        std::mutex mutex;
        std::condition_variable_any never;
        std::unique_lock lock(mutex);
        never.wait(lock, stop, [] { return false; });
        return make_error(Code::kCancelled, "told so");
      },
      {DType::kInt32});
  REQUIRE(dataset.ok());
  const auto it = iterate(dataset->batch(2));
  auto taking = std::async(std::launch::async, [&] { return next(*it); });
  it->cancel();
  CHECK(taking.get() == error(Code::kCancelled));
}

TEST_CASE("a map that writes to its element does not change the tensors that it came from") {
  const Tensor rows = Tensor::of<int32_t>({1, 2});
  const auto dataset = Dataset::from_tensors({rows})->map([](Element e) -> Result<Element> {
    e[0].mutable_data<int32_t>()[0] *= 10;
    return e;
  });
  const auto it = iterate(dataset.repeat(2));
  for (const int expected : {10, 20, 10, 20}) CHECK(next(*it) == expected);
  CHECK(rows.identical(Tensor::of<int32_t>({1, 2})));
}

TEST_CASE("an error of the producer comes once to an iterator that repeats") {
  const auto over = [](auto&& stages) {
    const DatasetQueue queue = make_queue();
    const auto it = iterate(stages(Dataset::from_queue(queue)));
    REQUIRE(queue.push(number(1)).ok());
    REQUIRE(queue.push(number(2)).ok());
    queue.fail(make_error(Code::kDataLoss, "the camera fell"));
    std::vector<int> got;
    for (int i = 0; i < 6; ++i) got.push_back(next(*it));
    return got;
  };
  const std::vector<int> expected = {1, 2, error(Code::kDataLoss), -1, -1, -1};
  CHECK(over([](const Dataset& d) { return d; }) == expected);
  CHECK(over([](const Dataset& d) { return d.repeat(); }) == expected);
  CHECK(over([](const Dataset& d) { return d.repeat(3); }) == expected);
  CHECK(over([](const Dataset& d) { return d.take(1).repeat(); }) == expected);
  CHECK(over([](const Dataset& d) { return d.repeat().repeat(); }) == expected);
}

TEST_CASE("an iterator reads its queue between two passes of a repeat too: no push is refused there") {
  const DatasetQueue queue = make_queue(1);
  const int count = repeats(1000);
  const auto it = iterate(Dataset::from_queue(queue).take(1).repeat());
  std::atomic<int> refused = 0;
  std::thread pushing([&] {
    for (int i = 0; i < count; ++i) refused += queue.push(number(i)).ok() ? 0 : 1;
    queue.close();
  });
  std::vector<int> got, expected;
  for (int value; (value = next(*it)) >= 0;) got.push_back(value);
  pushing.join();
  for (int i = 0; i < count; ++i) expected.push_back(i);
  CHECK(refused == 0);
  CHECK((got == expected));

  // Behind its last pass it reads no more.
  const DatasetQueue other = make_queue();
  const auto twice = iterate(Dataset::from_queue(other).take(1).repeat(2));
  for (int i = 0; i < 2; ++i) {
    REQUIRE(other.push(number(i)).ok());
    CHECK(next(*twice) == i);
  }
  CHECK(next(*twice) == -1);
  CHECK(other.push(number(2)).error().code == Code::kCancelled);
}

TEST_CASE("pushes that wait, dropped handles and deadlines of any length do not keep one another") {
  const DatasetQueue queue = make_queue(1);
  REQUIRE(queue.push(number(0), std::chrono::nanoseconds::max() - 1ns).ok());
  CHECK(queue.push(number(1), std::chrono::nanoseconds::min()).error().code == Code::kDeadlineExceeded);
  // A queue of which only a dataset is left is closed, however much is in it.
  std::optional<DatasetQueue> other = make_queue(1);
  const Dataset dataset = Dataset::from_queue(*other);
  REQUIRE(other->push(number(5)).ok());
  auto pushing = std::async(std::launch::async, [copy = *other] { return copy.push(number(6)); });
  other.reset();  // the thread's own is left
  const auto it = iterate(dataset);
  CHECK(next(*it) == 5);
  CHECK(pushing.get().ok());
  pushing = {};
  CHECK(next(*it) == 6);
  CHECK(next(*it) == -1);
}

TEST_CASE("a source function that gives a tensor that is not there is an error, and is called again") {
  int calls = 0;
  const auto dataset = Dataset::from_function(
      [&]() -> Result<std::optional<Element>> {
        switch (calls++) {
          case 0: return std::optional<Element>(Element{Tensor()});
          case 1: return std::optional<Element>(Element{});
          case 2: throw 7;
          default: return std::optional<Element>(number(calls));
        }
      },
      {DType::kInt32});
  REQUIRE(dataset.ok());
  const auto it = iterate(*dataset);
  CHECK(next(*it) == error(Code::kInvalidArgument));
  CHECK(next(*it) == error(Code::kInvalidArgument));
  CHECK(next(*it) == error(Code::kInternal));
  CHECK(next(*it) == 4);
}
