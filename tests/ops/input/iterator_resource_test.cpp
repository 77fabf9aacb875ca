// SPDX-License-Identifier: Apache-2.0
// The core of an iterator actor: every request is answered once and in order, wherever the elements are made.
#include "ops/input/iterator_resource.h"

#include <catch2/catch.hpp>

#include <future>
#include <latch>
#include <optional>
#include <stdexcept>
#include <thread>

#include "tests/repeats.h"
#include "troupe/dataset_queue.h"

using namespace troupe;

namespace {

struct Sink : ReplySink {
  struct Answer {
    RequestTag tag;
    Result<std::vector<Tensor>> outputs;
    int value() const {
      return outputs.ok() ? (*outputs)[0].data<int32_t>()[0] : -static_cast<int>(outputs.error().code);
    }
  };
  std::vector<Answer> answers;
  void deliver(const RequestTag& tag, Result<std::vector<Tensor>> outputs) override {
    answers.push_back({tag, std::move(outputs)});
  }
  Reply ask(int64_t step, uint64_t requester = 1) { return Reply(*this, {requester, step, 0}); }
  std::vector<int> values() const {
    std::vector<int> out;
    for (const Answer& a : answers) out.push_back(a.value());
    return out;
  }
};

Dataset three() { return *Dataset::from_tensors({Tensor::of<int32_t>({10, 20, 30})}); }

/// A dataset that may wait, for all that a host knows.
Dataset mapped() {
  return three().map([](Element e) -> Result<Element> { return e; });
}

/// Keeps the jobs until the test has them run, and counts how often it was woken.
struct Host final : ResourceHost {
  uint64_t ask(const ResourceRef&, Use) override { return 0; }
  void withdraw(uint64_t) override {}
  uint64_t run_blocking(Job) override { return 0; }
  Status start_blocking(Job job) override {
    if (refuses) return make_error(Code::kResourceExhausted, "no thread");
    jobs.push_back(std::move(job));
    return {};
  }
  std::function<void()> waker() override {
    return [this] { ++wakes; };
  }
  /// Runs the oldest job here, then does what the wake-ups ask for.
  void run_job(IteratorResource& it) {
    REQUIRE_FALSE(jobs.empty());
    const Job job = std::move(jobs.front());
    jobs.pop_front();
    job();
    for (; wakes > 0; --wakes) it.woken();
  }
  std::deque<Job> jobs;
  std::atomic<int> wakes = 0;
  bool refuses = false;
};

/// Has all that can be produced now be produced.
void work_off(IteratorResource& it) {
  for (int i = 0; i < 100 && it.wants_work(); ++i) it.work();
  CHECK(!it.wants_work());
}
void work_off(IteratorResource& it, Host& host) {
  work_off(it);
  while (!host.jobs.empty()) host.run_job(it);
}

using V = std::vector<int>;
constexpr int kEnd = -static_cast<int>(Code::kOutOfRange);
constexpr int kCancelled = -static_cast<int>(Code::kCancelled);

}  // namespace

TEST_CASE("an iterator answers in order, then with the end, over and over") {
  Sink sink;
  IteratorResource it(three());
  for (int step = 0; step < 5; ++step) it.get_next(sink.ask(step));
  work_off(it);
  CHECK(sink.values() == V{10, 20, 30, kEnd, kEnd});
  for (int i = 0; i < 5; ++i) CHECK(sink.answers[i].tag.step == i);
  it.get_next(sink.ask(9));
  CHECK(sink.values().back() == kEnd);
}

TEST_CASE("an iterator produces ahead up to its depth, and then answers at once") {
  for (int depth : {0, 1, 2}) {
    int produced = 0;
    Sink sink;
    Host host;
    IteratorResource it(three()
                            .map([&produced](Element e) -> Result<Element> {
                              ++produced;
                              return e;
                            })
                            .prefetch(depth));
    it.attach(host);
    work_off(it, host);
    CHECK(produced == depth);
    it.get_next(sink.ask(1));
    CHECK(sink.answers.size() == (depth > 0 ? 1 : 0));
    work_off(it, host);
    CHECK(sink.values() == V{10});
    CHECK(produced == (depth == 2 ? 2 : 1 + depth));  // half of those ahead are left: no job for one
  }
}

TEST_CASE("an iterator that begins when it is asked makes nothing before, and then produces ahead") {
  for (const bool waits : {false, true}) {
    int made = 0;
    struct Counted final : Dataset::Stage {
      Counted(Dataset of, int& count, bool may_wait) : dataset(std::move(of)), made(count), waits(may_wait) {}
      Result<std::unique_ptr<DatasetIterator>> iterate() const override { return ++made, dataset.iterate(); }
      std::vector<DType> dtypes() const override { return dataset.dtypes(); }
      std::vector<PartialShape> shapes() const override { return dataset.shapes(); }
      bool may_wait() const override { return waits; }
      const Dataset dataset;
      int& made;
      const bool waits;
    };
    Sink sink;
    Host host;
    IteratorResource it(Dataset(std::make_shared<Counted>(three(), made, waits)), IteratorResource::Begin::kWhenAsked);
    it.attach(host);
    work_off(it, host);
    it.restart();
    it.woken();
    it.cancel(1, 1);
    work_off(it, host);
    CHECK(made == 0);
    it.get_next(sink.ask(1));
    work_off(it, host);
    CHECK(made == 1);
    CHECK(sink.values() == V{10});
    it.get_next(sink.ask(2));
    it.get_next(sink.ask(3));
    CHECK(sink.values() == V{10, 20, 30});  // of which two were ready
    it.restart();
    work_off(it, host);
    CHECK(made == 2);
  }
}

TEST_CASE("an element that is ready costs neither a message nor, while half of those ahead are left, a job") {
  Sink sink;
  Host host;
  IteratorResource it(mapped().repeat().prefetch(4));
  it.attach(host);
  work_off(it, host);
  it.get_next(sink.ask(1));
  it.get_next(sink.ask(2));
  CHECK(host.jobs.empty());
  it.get_next(sink.ask(3));
  CHECK(host.jobs.size() == 1);
  host.jobs.front()();
  CHECK(host.wakes == 0);
  CHECK(sink.values() == V{10, 20, 30});
  for (int step = 4; step < 9; ++step) it.get_next(sink.ask(step));  // 4 are there, one waits
  CHECK(sink.answers.size() == 7);
  host.jobs.back()();
  CHECK(host.wakes == 1);
  it.woken();
  CHECK(sink.values() == V{10, 20, 30, 10, 20, 30, 10, 20});
}

TEST_CASE("cancel answers the waiting requests of one step of one requester, and takes nothing from others") {
  Sink sink;
  IteratorResource it(three());
  it.get_next(sink.ask(1));
  it.get_next(sink.ask(2));
  it.get_next(sink.ask(1, 7));
  it.get_next(sink.ask(1));
  it.cancel(1, 1);
  CHECK(sink.values() == V{kCancelled, kCancelled});
  work_off(it);
  CHECK(sink.values() == V{kCancelled, kCancelled, 10, 20});
  CHECK(sink.answers[3].tag.requester == 7);
  it.cancel(1, 1);
  CHECK(sink.answers.size() == 4);
}

TEST_CASE("restart begins anew, after the end too") {
  for (const Dataset& dataset : {three(), mapped()}) {
    Sink sink;
    Host host;
    IteratorResource it(dataset);
    it.attach(host);
    it.get_next(sink.ask(1));
    work_off(it, host);
    it.restart();
    for (int i = 0; i < 4; ++i) it.get_next(sink.ask(2));
    work_off(it, host);
    it.restart();
    it.get_next(sink.ask(3));
    work_off(it, host);
    CHECK(sink.values() == V{10, 10, 20, 30, kEnd, 10});
  }
}

TEST_CASE("an element's error goes to one request; a dataset that cannot start fails them all") {
  Sink sink;
  Host host;
  IteratorResource it(three().map([](Element e) -> Result<Element> {
    if (e[0].data<int32_t>()[0] == 20) return make_error(Code::kDataLoss, "bad");
    return e;
  }));
  it.attach(host);
  for (int i = 0; i < 4; ++i) it.get_next(sink.ask(i));
  work_off(it, host);
  CHECK(sink.values() == V{10, -static_cast<int>(Code::kDataLoss), 30, kEnd});

  for (const Dataset& dataset : {three().batch(0), mapped().batch(0)}) {
    Sink other;
    IteratorResource broken(dataset);
    broken.attach(host);
    for (int i = 0; i < 3; ++i) broken.get_next(other.ask(i));
    work_off(broken, host);
    CHECK(other.values() == V(3, -static_cast<int>(Code::kInvalidArgument)));
  }
}

/// A stage of a user's own that throws where it is told to.
struct Throwing final : Dataset::Stage {
  explicit Throwing(bool at_once) : at_once(at_once) {}
  struct Iterator final : DatasetIterator {
    Result<std::optional<Element>> next() override {
      if (++calls == 1) throw std::runtime_error("from next()");
      if (calls == 2) throw 7;
      return std::optional<Element>({Tensor::scalar(calls)});
    }
    int calls = 0;
  };
  Result<std::unique_ptr<DatasetIterator>> iterate() const override {
    if (at_once) throw std::runtime_error("from iterate()");
    return std::unique_ptr<DatasetIterator>(new Iterator());
  }
  std::vector<DType> dtypes() const override { return {DType::kInt32}; }
  std::vector<PartialShape> shapes() const override { return {{}}; }
  const bool at_once;
};

TEST_CASE("what a dataset throws is the error of one element, or of all where there is no iterator") {
  for (const bool at_once : {false, true}) {
    Sink sink;
    Host host;
    IteratorResource it{Dataset(std::make_shared<Throwing>(at_once))};
    it.attach(host);
    for (int i = 0; i < 3; ++i) it.get_next(sink.ask(i));
    work_off(it, host);
    REQUIRE(sink.answers.size() == 3);
    CHECK(sink.values() == (at_once ? V(3, -static_cast<int>(Code::kInternal))
                                    : V{-static_cast<int>(Code::kInternal), -static_cast<int>(Code::kInternal), 3}));
    CHECK_THAT(sink.answers[0].outputs.error().message, Catch::Contains(at_once ? "from iterate()" : "from next()"));
  }
}

TEST_CASE("where no thread can be had, those that ask hear of it, and later ones are served") {
  Sink sink;
  Host host;
  host.refuses = true;
  IteratorResource it(mapped());
  it.attach(host);
  it.get_next(sink.ask(1));
  CHECK(sink.values() == V{-static_cast<int>(Code::kResourceExhausted)});
  host.refuses = false;
  it.get_next(sink.ask(2));
  work_off(it, host);
  CHECK(sink.values().back() == 10);
}

/// A source whose elements come when the test says so; it counts the calls that have begun.
struct Tap {
  std::mutex mutex;
  std::condition_variable changed;
  int calls = 0, allowed = 0;
  bool cancelled = false;

  Dataset dataset(const std::shared_ptr<Tap>& self) {
    return *Dataset::from_function(
        [self]() -> Result<std::optional<Element>> {
          std::unique_lock lock(self->mutex);
          const int number = self->calls++;
          self->changed.notify_all();
          self->changed.wait(lock, [&] { return number < self->allowed; });
          return std::optional<Element>({Tensor::scalar(number)});
        },
        {DType::kInt32}, {PartialShape::scalar()});
  }
  void allow(int calls) {
    const std::lock_guard lock(mutex);
    allowed = calls;
    changed.notify_all();
  }
  void await_calls(int n) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return calls >= n; });
  }
};

TEST_CASE("restart while next() hangs leaves the old iterator behind, and drops its late element") {
  const auto tap = std::make_shared<Tap>();
  Sink sink;
  Host host;
  IteratorResource it(tap->dataset(tap).prefetch(0));
  it.attach(host);
  it.get_next(sink.ask(1));
  REQUIRE(host.jobs.size() == 1);
  std::thread hung(std::exchange(host.jobs.front(), nullptr));
  host.jobs.pop_front();
  tap->await_calls(1);
  it.restart();  // the request goes on waiting, for the new iterator
  REQUIRE(host.jobs.size() == 1);
  tap->allow(1);
  hung.join();
  CHECK(host.wakes == 0);
  CHECK(sink.answers.empty());
  tap->allow(2);
  work_off(it, host);
  CHECK(sink.values() == V{1});
}

TEST_CASE("an iterator goes away while next() hangs, and what comes late finds nobody") {
  for (int i = 0; i < repeats(100); ++i) {
    const auto tap = std::make_shared<Tap>();
    Sink sink;
    Host host;
    std::thread hung;
    {
      IteratorResource it(tap->dataset(tap));
      it.attach(host);
      REQUIRE(host.jobs.size() == 1);
      hung = std::thread(std::exchange(host.jobs.front(), nullptr));
      host.jobs.pop_front();
      it.get_next(sink.ask(1));
      if (i % 2) tap->await_calls(1);
    }
    CHECK(sink.values() == V{kCancelled});
    tap->allow(5);
    hung.join();
    host.jobs.clear();
  }
}

TEST_CASE("a queue keeps its reader over a restart, and loses it with the iterator") {
  auto queue = *DatasetQueue::create({DType::kInt32}, {PartialShape::scalar()}, 1);
  Sink sink;
  Host host;
  std::optional<IteratorResource> it(std::in_place, Dataset::from_queue(queue).prefetch(0));
  it->attach(host);
  REQUIRE(queue.push({Tensor::scalar(1)}).ok());
  it->get_next(sink.ask(1));
  work_off(*it, host);
  CHECK(sink.values() == V{1});
  it->restart();
  for (int i = 2; i < 4; ++i) {
    REQUIRE(queue.push({Tensor::scalar(i)}, std::chrono::seconds(20)).ok());
    it->get_next(sink.ask(i));
    work_off(*it, host);
  }
  CHECK(sink.values() == V{1, 2, 3});
  REQUIRE(queue.push({Tensor::scalar(4)}).ok());
  auto waiting = std::async(std::launch::async, [&] { return queue.push({Tensor::scalar(5)}); });
  it.reset();
  host.jobs.clear();
  CHECK(waiting.get().error().code == Code::kCancelled);
}

TEST_CASE("threads that produce and a host that takes lose nothing and change no order") {
  for (int depth : {0, 1, 2, 5}) {
    // A host as an engine has it: one thread for its calls, others for jobs.
    struct Threads final : ResourceHost {
      uint64_t ask(const ResourceRef&, Use) override { return 0; }
      void withdraw(uint64_t) override {}
      uint64_t run_blocking(Job) override { return 0; }
      Status start_blocking(Job job) override {
        const std::lock_guard lock(mutex);
        jobs.emplace_back(std::move(job));
        return {};
      }
      std::function<void()> waker() override {
        return [this] {
          const std::lock_guard lock(mutex);
          ++wakes;
          changed.notify_all();
        };
      }
      std::mutex mutex;
      std::condition_variable changed;
      int wakes = 0;
      std::vector<std::jthread> jobs;
    };
    Threads host;
    Sink sink;
    const int n = repeats(400);
    {
      IteratorResource it(mapped().repeat().prefetch(depth));
      it.attach(host);
      for (int asked = 0; static_cast<int>(sink.answers.size()) < n;) {
        for (int more = asked % 3; more >= 0 && asked < n; --more) it.get_next(sink.ask(asked++));
        if (static_cast<int>(sink.answers.size()) == asked) continue;
        std::unique_lock lock(host.mutex);
        host.changed.wait(lock, [&] { return host.wakes > 0; });
        --host.wakes;
        lock.unlock();
        it.woken();
      }
    }
    for (int i = 0; i < n; ++i) {
      CHECK(sink.answers[i].tag.step == i);
      CHECK(sink.answers[i].value() == 10 * (i % 3 + 1));
    }
  }
}

TEST_CASE("an iterator that goes away answers who waits") {
  Sink sink;
  {
    IteratorResource it(three());
    it.get_next(sink.ask(1));
  }
  CHECK(sink.values() == V{kCancelled});
}

TEST_CASE("an iterator that another takes the place of goes without a lock") {
  struct Stage final : Dataset::Stage {
    struct Iterator final : DatasetIterator {
      explicit Iterator(const Stage& stage) : stage(stage) {}
      ~Iterator() override {
        if (stage.gone) stage.gone();
      }
      Result<std::optional<Element>> next() override { return std::optional<Element>({Tensor::scalar(1)}); }
      const Stage& stage;
    };
    Result<std::unique_ptr<DatasetIterator>> iterate() const override {
      return std::unique_ptr<DatasetIterator>(new Iterator(*this));
    }
    std::vector<DType> dtypes() const override { return {DType::kInt32}; }
    std::vector<PartialShape> shapes() const override { return {{}}; }
    bool may_wait() const override { return false; }
    std::function<void()> gone;
  };
  const auto stage = std::make_shared<Stage>();
  Sink sink;
  IteratorResource it{Dataset(stage)};
  it.get_next(sink.ask(0));
  work_off(it);
  int gone = 0;
  stage->gone = [&] {
    ++gone;
    (void)it.wants_work();  // takes the lock
  };
  it.restart();
  it.get_next(sink.ask(1));
  work_off(it);
  CHECK(gone == 1);
  CHECK(sink.values() == V{1, 1});
  stage->gone = nullptr;
}
