// SPDX-License-Identifier: Apache-2.0
// The protocols of docs/protocols.md, message by message, and in every order that a seed gives.
#include <random>

#include "tests/actors/simulation.h"
#include "tests/repeats.h"

namespace troupe {
namespace {

struct Protocol : Simulation {
  Output variable(const std::string& name, const std::string& device = "/cpu:0", const std::string& container = "") {
    return scope.device(device).op(
        "VarHandleOp", {},
        {{"dtype", DType::kInt32}, {"shape", PartialShape::scalar()}, {"shared_name", name}, {"container", container}});
  }
  Output read(Output variable) { return scope.op("ReadVariableOp", {variable}, {{"dtype", DType::kInt32}}); }
  Output queue(int64_t capacity) {
    return scope.op("FIFOQueueV2", {},
                    {{"component_types", std::vector<DType>{DType::kInt32}}, {"capacity", capacity}});
  }
  Output dequeue(Output queue) {
    return scope.op("QueueDequeueV2", {queue}, {{"component_types", std::vector<DType>{DType::kInt32}}});
  }
  /// Runs the targets by themselves.
  void prepare(std::vector<const Node*> targets) {
    const StepRef step = start({}, std::move(targets));
    settle();
    REQUIRE(results.at(step->id).ok());
  }
  int32_t value(const StepRef& step, size_t fetch = 0) {
    const auto& result = results.at(step->id);
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    return (*result)[fetch].data<int32_t>()[0];
  }
  Code code(const StepRef& step) {
    REQUIRE_FALSE(results.at(step->id).ok());
    return results.at(step->id).error().code;
  }
};

TEST_CASE("protocol: a step over two devices and a container") {
  Protocol p;
  const Output v = p.variable("v");
  p.prepare({p.scope.node("AssignVariableOp", {v, p.scope.constant(20)})});
  const Output before = p.read(v);
  const Output more = p.scope.device("/cpu:1").op("AddV2", {before, p.scope.device("/cpu:1").constant(1)});
  const StepRef step = p.start({more}, {p.scope.node("AssignVariableOp", {v, more})});
  CHECK(p.settle() == Messages{
                          "cpu:0 RunStep",          // asks for the value
                          "cpu:1 RunStep",          // has to wait
                          "container UseResource",  //
                          "cpu:0 ResourceAnswers",  //
                          "cpu:1 TensorsReady",     // adds, fetches, and is done
                          "cpu:0 TensorsReady",     //
                          "container UseResource",  //
                          "cpu:0 ResourceAnswers",  // the last one done answers the caller
                      });
  CHECK(p.value(step) == 21);
}

TEST_CASE("protocol: a failure ends the step on every device, and the caller hears once all have ended") {
  Protocol p;
  const Output wrong = p.scope.device("/cpu:0").op("FloorDiv", {p.scope.constant(1), p.scope.constant(0)});
  const Output next = p.scope.device("/cpu:1").op("Neg", {wrong});
  const StepRef step = p.start({next});
  CHECK(p.carry_out() == "cpu:0 RunStep");
  CHECK(step->failed());
  CHECK(p.results.empty());
  CHECK(p.settle() == Messages{"cpu:1 RunStep", "cpu:1 AbortStep"});
  CHECK(p.code(step) == Code::kInvalidArgument);
}

TEST_CASE("protocol: a deadline cancels what waits, and the queue loses nothing") {
  Protocol p;
  const Output q = p.queue(2);
  const Output element = p.dequeue(q);
  const StepRef late = p.start({element});
  p.watch(late, std::chrono::seconds(5));
  CHECK(p.settle() == Messages{"cpu:0 RunStep", "timer WatchStep", "queue UseResource"});
  p.advance(std::chrono::seconds(4));
  CHECK(p.settle().empty());
  p.advance(std::chrono::seconds(1));
  CHECK(p.settle() == Messages{"timer DeadlinePassed", "cpu:0 AbortStep", "queue CancelUses", "cpu:0 ResourceAnswers"});
  CHECK(p.code(late) == Code::kDeadlineExceeded);

  p.prepare({p.scope.node("QueueEnqueueV2", {q, p.scope.constant(7)})});
  const StepRef next = p.start({element});
  CHECK(p.settle() == Messages{"cpu:0 RunStep", "queue UseResource", "cpu:0 ResourceAnswers"});
  CHECK(p.value(next) == 7);
}

TEST_CASE("protocol: the timer is woken once for each deadline, however many have passed before a late one") {
  Protocol p;
  using std::chrono::seconds;
  const Output element = p.dequeue(p.queue(2));
  const auto woken = [&](seconds after) {
    p.advance(after);
    return std::ranges::count(p.settle(), "timer DeadlinePassed");
  };
  const StepRef late = p.start({element}), later = p.start({element});
  p.watch(late, seconds(60));
  p.watch(later, seconds(90));
  for (int i = 0; i < 3; ++i) {
    const StepRef early = p.start({element});
    p.watch(early, seconds(10));
    p.settle();
    CHECK(woken(seconds(10)) == 1);
    CHECK(p.code(early) == Code::kDeadlineExceeded);
  }
  CHECK(woken(seconds(30)) == 1);
  CHECK(p.code(late) == Code::kDeadlineExceeded);
  CHECK(woken(seconds(30)) == 1);
  CHECK(p.code(later) == Code::kDeadlineExceeded);
}

TEST_CASE("protocol: a queue that closes answers who waits, and who comes later") {
  Protocol p;
  const Output element = p.dequeue(p.queue(2));
  const StepRef waiting = p.start({element});
  p.settle();
  CHECK(p.results.empty());
  for (const caf::actor& host : p.directory->remove_container("")) caf::anon_send(host, CloseResource{"it was reset"});
  CHECK(p.settle() == Messages{"queue CloseResource", "cpu:0 ResourceAnswers"});
  CHECK(p.code(waiting) == Code::kCancelled);
  // The handle makes a new queue: nobody is there to fill it.
  const StepRef next = p.start({element});
  CHECK(p.settle() == Messages{"cpu:0 RunStep", "queue UseResource"});
  CHECK(p.results.size() == 1);
}

TEST_CASE("protocol: a device does not keep the handles that it has asked for, and an iterator goes with its own") {
  Protocol p;
  const Attrs numbers = {{"output_types", std::vector{DType::kInt64}},
                         {"output_shapes", std::vector{PartialShape::scalar()}}};
  const auto number = [&](int64_t n) { return p.scope.constant(Tensor::scalar(n)); };
  const Output dataset = p.scope.op("RangeDataset", {number(5), number(8), number(1)}, numbers);
  const Output iterator = p.scope.op("AnonymousIteratorV3", {}, numbers);
  const Node* begin = p.scope.node("_SetIteratorDataset", {iterator, dataset});
  const Output next = p.scope.after(std::vector{begin}).op("IteratorGetNext", {iterator}, numbers);
  REQUIRE(p.scope.ok());
  for (int i = 0; i < 3; ++i) {
    const int64_t step = p.start({iterator, next})->id;
    p.settle();
    REQUIRE(p.results.at(step).ok());
    const std::vector<Tensor> fetched = std::move(*p.results.extract(step).mapped());
    CHECK(fetched[1].data<int64_t>()[0] == 5);
    CHECK(fetched[0].data<ResourceRef>()[0].use_count() == 1);
  }
}

TEST_CASE("protocol: a device lets go of hosts that are gone, and other steps still wait at theirs") {
  Protocol p;
  const StepRef waiting = p.start({p.dequeue(p.queue(2))});
  p.settle();
  std::vector<caf::actor_addr> gone;
  for (int i = 0; i < 3; ++i) {
    const std::string container = fmt::format("c{}", i);
    p.prepare({p.scope.node("AssignVariableOp", {p.variable("v", "/cpu:0", container), p.scope.constant(i)})});
    caf::actor host = p.directory->remove("container/" + container);
    REQUIRE(host);
    caf::anon_send(host, CloseResource{"it was reset"});
    caf::anon_send_exit(host, caf::exit_reason::user_shutdown);
    gone.push_back(host.address());
  }
  p.prepare({p.scope.node("AssignVariableOp", {p.variable("last"), p.scope.constant(1)})});
  for (const caf::actor_addr& host : gone) CHECK_FALSE(caf::actor_cast<caf::actor>(host));
  CHECK_FALSE(p.results.contains(waiting->id));
  CHECK(waiting->fail(make_error(Code::kCancelled, "by the test")));
  caf::anon_send(p.directory->devices[0], AbortStep{0, waiting});
  p.settle();
  CHECK(p.code(waiting) == Code::kCancelled);
}

TEST_CASE("protocol: the time that a device waits for a queue is time that it waits for input") {
  Protocol p;
  const Output q = p.queue(2);
  const StepRef waiting = p.start({p.dequeue(q)});
  p.settle();
  p.advance(std::chrono::seconds(5));
  p.prepare({p.scope.node("QueueEnqueueV2", {q, p.scope.constant(7)})});
  CHECK(p.value(waiting) == 7);
  CHECK(p.counters[0].input_wait_ns == 5'000'000'000);

  const Output file = p.scope.constant(Tensor::scalar<std::string>("/no/such/file"));
  const StepRef reading = p.start({p.scope.op("ReadFile", {file})});
  CHECK(p.carry_out() == "cpu:0 RunStep");
  p.advance(std::chrono::seconds(5));
  p.settle();
  CHECK(p.code(reading) == Code::kNotFound);
  CHECK(p.counters[0].input_wait_ns == 5'000'000'000);
}

TEST_CASE("protocol: files are waited for elsewhere") {
  Protocol p;
  const auto text = [&](const std::string& s) { return p.scope.constant(Tensor::of<std::string>({s}, {1})); };
  const Output file = p.scope.constant(Tensor::scalar<std::string>("/no/such/file"));
  const Output loaded =
      p.scope.op("RestoreV2", {file, text("w"), text("")}, {{"dtypes", std::vector<DType>{DType::kInt32}}});
  const StepRef step = p.start({loaded});
  CHECK(p.settle() == Messages{"cpu:0 RunStep", "job", "cpu:0 ResourceAnswers"});
  CHECK(p.code(step) == Code::kNotFound);

  const StepRef cancelled = p.start({loaded});
  CHECK(p.carry_out() == "cpu:0 RunStep");
  abort_step(cancelled, make_error(Code::kCancelled, "no more"), *p.directory);
  CHECK(p.carry_out() == "cpu:0 AbortStep");
  CHECK(p.code(cancelled) == Code::kCancelled);  // before the kernel has answered, which then changes nothing
  CHECK(p.settle() == Messages{"job", "cpu:0 ResourceAnswers"});
}

TEST_CASE("protocol: a step that fails does not wait for its files, and their answers find nobody") {
  Protocol p;
  const auto file = [&](const char* path) { return p.scope.constant(Tensor::scalar<std::string>(path)); };
  const Output one = p.scope.op("ReadFile", {file("/no/such/file")});
  const Output two = p.scope.op("ReadFile", {file("/nor/this/one")});
  const StepRef step = p.start({one, two});
  CHECK(p.settle() == Messages{"cpu:0 RunStep", "job", "cpu:0 ResourceAnswers", "job", "cpu:0 ResourceAnswers"});
  CHECK(p.code(step) == Code::kNotFound);

  const StepRef late = p.start({one});
  p.watch(late, std::chrono::seconds(5));
  CHECK(p.carry_out() == "cpu:0 RunStep");
  CHECK(p.carry_out() == "timer WatchStep");
  p.advance(std::chrono::seconds(5));
  CHECK(p.carry_out() == "timer DeadlinePassed");
  CHECK(p.carry_out() == "cpu:0 AbortStep");
  CHECK(p.code(late) == Code::kDeadlineExceeded);
  CHECK(p.settle() == Messages{"job", "cpu:0 ResourceAnswers"});
}

TEST_CASE("protocol: an iterator works ahead between requests") {
  Protocol p;
  auto rows = Dataset::from_tensors({Tensor::of<int32_t>({1, 2})});
  REQUIRE(rows.ok());
  REQUIRE(p.directory->add("iterator//data", std::make_unique<IteratorResource>(rows->prefetch(1))).ok());
  p.settle();
  const Output iterator = p.scope.op("IteratorV2", {},
                                     {{"shared_name", std::string("data")},
                                      {"container", std::string()},
                                      {"output_types", std::vector<DType>{DType::kInt32}},
                                      {"output_shapes", std::vector<PartialShape>{PartialShape::scalar()}}});
  const Output next = p.scope.op("IteratorGetNext", {iterator},
                                 {{"output_types", std::vector<DType>{DType::kInt32}},
                                  {"output_shapes", std::vector<PartialShape>{PartialShape::scalar()}}});
  const StepRef step = p.start({next});
  CHECK(p.settle() == Messages{"cpu:0 RunStep", "iterator UseResource", "iterator Work", "cpu:0 ResourceAnswers"});
  CHECK(p.value(step) == 1);
}

/// Steps that use everything: they pass a token through a queue, count in a variable on the other device, and loop.
struct Crowd : Protocol {
  Output v = variable("count");
  Output q = queue(2);
  const Scope there = scope.device("/cpu:1");
  const Node* put = there.node("QueueEnqueueV2", {q, there.op("Neg", {there.constant(-3)})});
  Output taken = dequeue(q);
  Output sum = there.op("AddV2", {taken, there.constant(4)});
  const Node* count = scope.node("AssignAddVariableOp", {v, scope.op("Sub", {sum, scope.constant(6)})});
  Output now = read(v);

  Crowd() { prepare({scope.node("AssignVariableOp", {v, scope.constant(0)})}); }
};

TEST_CASE("protocol: whatever the order of messages, every step ends as it should") {
  for (uint32_t seed = 0; seed < repeats(100); ++seed) {
    INFO("seed " << seed);
    Crowd p;
    std::mt19937 random(seed);
    std::vector<StepRef> puts, counts;
    for (int i = 0; i < 5; ++i) {
      puts.push_back(p.start({}, {p.put}));
      counts.push_back(p.start({p.sum}, {p.count}));
    }
    while (p.waiting() > 0) p.carry_out(random() % p.waiting());
    for (const StepRef& step : puts) CHECK(p.results.at(step->id).ok());
    for (const StepRef& step : counts) CHECK(p.value(step) == 7);
    const StepRef last = p.start({p.now});
    p.settle();
    CHECK(p.value(last) == 5);
  }
}

TEST_CASE("protocol: steps aborted at any message end once, and leave the others and the resources whole") {
  for (uint32_t seed = 0; seed < repeats(200); ++seed) {
    INFO("seed " << seed);
    Crowd p;
    std::mt19937 random(seed);
    std::vector<StepRef> puts, counts;
    for (int i = 0; i < 4; ++i) {
      puts.push_back(p.start({}, {p.put}));
      counts.push_back(p.start({p.sum}, {p.count}));
    }
    const StepRef& victim = counts[random() % counts.size()];
    for (uint32_t before = random() % 30; before > 0 && p.waiting() > 0; --before) p.carry_out(random() % p.waiting());
    abort_step(victim, make_error(Code::kCancelled, "the test says so"), *p.directory);
    while (p.waiting() > 0) p.carry_out(random() % p.waiting());
    // Only the victim may have failed; what it had counted or taken by then stays counted and taken.
    int32_t counted = 0;
    for (const StepRef& step : counts) {
      if (step != victim) CHECK(p.value(step) == 7);
      counted += p.results.at(step->id).ok();
    }
    for (const StepRef& step : puts) CHECK(p.results.at(step->id).ok());
    if (!p.results.at(victim->id).ok()) CHECK(p.code(victim) == Code::kCancelled);
    const StepRef last = p.start({p.now});
    p.settle();
    CHECK((p.value(last) == counted || p.value(last) == counted + 1));
  }
}

}  // namespace
}  // namespace troupe
