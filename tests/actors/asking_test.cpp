// SPDX-License-Identifier: Apache-2.0
// Resources that ask others, message by message and in every order that a seed gives: readers and the queues that they
// take names from, mutexes and the steps that hold them.
#include <random>
#include <set>

#include "tests/actors/simulation.h"
#include "tests/engine/fixtures.h"
#include "tests/io/temporary_directory.h"
#include "tests/repeats.h"

namespace troupe {
namespace {

/// Steps that read, and steps that put in the name of a file.
struct Reading : Simulation {
  explicit Reading(const std::string& op = "IdentityReaderV2") {
    queue = scope.op("FIFOQueueV2", {}, {{"component_types", std::vector<DType>{DType::kString}}});
    reader = scope.op(op, {}, {});
    value = scope.named("read").node("ReaderReadV2", {reader, queue})->out(1);
    count = scope.op("ReaderNumRecordsProducedV2", {reader});
  }
  StepRef put(const std::string& name) {
    return start({}, {scope.node("QueueEnqueueV2", {queue, scope.constant(Tensor::scalar(name))})});
  }
  std::string text(const StepRef& step) const {
    const auto& result = results.at(step->id);
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    return (*result)[0].data<std::string>()[0];
  }
  Code code(const StepRef& step) const {
    REQUIRE_FALSE(results.at(step->id).ok());
    return results.at(step->id).error().code;
  }

  Output queue, reader, value, count;
};

TEST_CASE("protocol: a read asks the queue for a name and has the file read elsewhere") {
  const TemporaryDirectory d;
  Reading r("TextLineReaderV2");
  const StepRef first = r.start({r.value});
  CHECK(r.settle() == Messages{"cpu:0 RunStep", "reader UseResource", "queue AskResource"});
  r.put(d.write("a", "one\ntwo\n"));
  CHECK(r.settle() == Messages{
                          "cpu:0 RunStep",          //
                          "queue UseResource",      // gives the name to the reader
                          "cpu:0 ResourceAnswers",  //
                          "reader ResourceAnswers",
                          "job",                     // reads both lines
                          "reader ResourceAnswers",  //
                          "cpu:0 ResourceAnswers",
                      });
  CHECK(r.text(first) == "one");
  const StepRef second = r.start({r.value});
  CHECK(r.settle() == Messages{"cpu:0 RunStep", "reader UseResource", "cpu:0 ResourceAnswers"});
  CHECK(r.text(second) == "two");
}

TEST_CASE("protocol: a read that is cancelled withdraws its question") {
  Reading r;
  const StepRef late = r.start({r.value});
  r.watch(late, std::chrono::seconds(5));
  r.settle();
  r.advance(std::chrono::seconds(5));
  CHECK(r.settle() == Messages{"timer DeadlinePassed", "cpu:0 AbortStep", "reader CancelUses", "queue CancelUses",
                               "cpu:0 ResourceAnswers", "reader ResourceAnswers"});
  CHECK(r.code(late) == Code::kDeadlineExceeded);
  r.put("a");
  const StepRef next = r.start({r.value});
  r.settle();
  CHECK(r.text(next) == "a");
}

TEST_CASE("protocol: a queue that closes tells the reader, and a reader that closes the queue") {
  Reading r;
  const StepRef waiting = r.start({r.value});
  r.settle();
  r.start({}, {r.scope.node("QueueCloseV2", {r.queue})});
  r.settle();
  CHECK(r.code(waiting) == Code::kOutOfRange);
  CHECK(r.results.at(waiting->id).error().node == "read");

  Reading other;
  const StepRef again = other.start({other.value});
  other.settle();
  for (const caf::actor& host : other.directory->remove_container(""))
    caf::anon_send(host, CloseResource{"it was reset"});
  other.settle();
  CHECK_FALSE(other.results.at(again->id).ok());
}

TEST_CASE("protocol: whatever the order of messages, each name is read once, also when steps are aborted") {
  for (uint32_t seed = 0; seed < repeats(100); ++seed) {
    INFO("seed " << seed);
    Reading r;
    std::mt19937 random(seed);
    std::vector<StepRef> reads;
    for (int i = 0; i < 5; ++i) {
      r.put(std::to_string(i));
      reads.push_back(r.start({r.value}));
    }
    const StepRef victim = seed % 2 ? reads[random() % reads.size()] : nullptr;
    for (uint32_t before = random() % 40; victim && before > 0 && r.waiting() > 0; --before)
      r.carry_out(random() % r.waiting());
    if (victim) abort_step(victim, make_error(Code::kCancelled, "the test says so"), *r.directory);
    while (r.waiting() > 0) r.carry_out(random() % r.waiting());
    std::set<std::string> seen;
    for (const StepRef& step : reads)
      if (step != victim || r.results.at(step->id).ok()) CHECK(seen.insert(r.text(step)).second);
    const StepRef left = r.start({r.count});
    r.settle();
    const int64_t produced = (*r.results.at(left->id))[0].data<int64_t>()[0];
    CHECK((produced == static_cast<int64_t>(seen.size()) || (victim && produced == 5)));
  }
}

TEST_CASE("a reader of a queue that is not there says so, by its node") {
  TestEngine t({1});
  ResourceHandle handle;
  handle.type = "queue";
  handle.name = "nobody's";
  const Output queue = t.placeholder(DType::kResource, {}, "queue");
  const Node* read = t.scope.named("read").node("ReaderReadV2", {t.scope.op("IdentityReaderV2", {}, {}), queue});
  const auto got = t.session->run(
      {{queue, Tensor::scalar<ResourceRef>(std::make_shared<const ResourceHandle>(handle))}}, {read->out(0)});
  REQUIRE_FALSE(got.ok());
  CHECK(got.error().node == "read");
  CHECK_THAT(got.error().message, Catch::Contains("nobody's"));
}

TEST_CASE("an engine ends while a reader waits for a queue and a step for a mutex") {
  TestEngine t({1});
  const Output reader = t.scope.op("IdentityReaderV2", {}, {});
  const Node* read = t.scope.node("ReaderReadV2", {reader, t.queue("q", DType::kString)});
  const Output lock = t.scope.op("MutexLock", {t.scope.op("MutexV2", {}, {})}, {});
  const auto held = t.session->run(std::vector<Feed>{}, {lock});  // outlives its step, and the engine
  REQUIRE(held.ok());
  CancelToken token;
  auto reading = t.session->run_future(std::vector<Feed>{}, {read->out(0)}, {}, {.cancel = token});
  auto locking = t.session->run_future(std::vector<Feed>{}, {lock}, {}, {.cancel = token});
  REQUIRE(t.session->run(std::vector<Feed>{}, {t.scope.op("ReaderNumRecordsProducedV2", {reader})}).ok());
  token.cancel();
  CHECK(reading.get().error().code == Code::kCancelled);
  CHECK(locking.get().error().code == Code::kCancelled);
  t.session.reset();
  t.engine.reset();
}

/// Steps that add to a variable by reading and assigning it, under a mutex.
struct Locking : Simulation {
  Locking() {
    handle = scope.op("VarHandleOp", {},
                      {{"dtype", DType::kInt32}, {"shape", PartialShape::scalar()}, {"shared_name", "v"}});
    lock = scope.op("MutexLock", {scope.op("MutexV2", {}, {})}, {});
    before = scope.after(std::vector{lock.node}).op("ReadVariableOp", {handle}, {{"dtype", DType::kInt32}});
    assign = scope.node("AssignVariableOp", {handle, scope.op("AddV2", {before, scope.constant(1)})});
    unlock = scope.after(std::vector{assign}).node("ConsumeMutexLock", {lock});
    start({}, {scope.node("AssignVariableOp", {handle, scope.constant(0)})});
    settle();
  }
  Output handle, lock, before;
  const Node *assign, *unlock;
};

TEST_CASE("protocol: a mutex is woken by the end of its lock") {
  Locking p;
  p.start({}, {p.unlock});
  p.start({}, {p.unlock});
  CHECK(p.settle() == Messages{
                          "cpu:0 RunStep",
                          "cpu:0 RunStep",
                          "mutex UseResource",
                          "mutex UseResource",
                          "cpu:0 ResourceAnswers",  // the first has the lock
                          "container UseResource",
                          "cpu:0 ResourceAnswers",  // reads
                          "container UseResource",
                          "cpu:0 ResourceAnswers",  // assigns, unlocks
                          "mutex WakeResource",
                          "cpu:0 ResourceAnswers",  // now the second
                          "container UseResource",
                          "cpu:0 ResourceAnswers",
                          "container UseResource",
                          "cpu:0 ResourceAnswers",
                          "mutex WakeResource",
                      });
}

TEST_CASE("protocol: whatever the order of messages, steps with a lock do not mix, also when one is aborted") {
  for (uint32_t seed = 0; seed < repeats(100); ++seed) {
    INFO("seed " << seed);
    Locking p;
    std::mt19937 random(seed);
    std::vector<StepRef> steps;
    for (int i = 0; i < 5; ++i) steps.push_back(p.start({p.before}, {p.unlock}));
    const StepRef victim = steps[random() % steps.size()];
    for (uint32_t before = random() % 40; before > 0 && p.waiting() > 0; --before) p.carry_out(random() % p.waiting());
    if (seed % 2) abort_step(victim, make_error(Code::kCancelled, "the test says so"), *p.directory);
    while (p.waiting() > 0) p.carry_out(random() % p.waiting());
    std::set<int32_t> seen;  // each step finds another number: no two had the lock at once
    for (const StepRef& step : steps) {
      const auto& result = p.results.at(step->id);
      if (result.ok()) CHECK(seen.insert((*result)[0].data<int32_t>()[0]).second);
      else CHECK((seed % 2 && step == victim));
    }
  }
}

}  // namespace
}  // namespace troupe
