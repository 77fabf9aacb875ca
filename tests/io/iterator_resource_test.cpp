// SPDX-License-Identifier: Apache-2.0
// The core of an iterator actor: every request is answered once and in order.
#include <catch2/catch.hpp>

#include "troupe/dataset.h"

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

void work_off(IteratorResource& it) {
  for (int i = 0; i < 100 && it.wants_work(); ++i) it.work();
  CHECK(!it.wants_work());
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
    IteratorResource it(three()
                            .map([&produced](Element e) -> Result<Element> {
                              ++produced;
                              return e;
                            })
                            .prefetch(depth));
    work_off(it);
    CHECK(produced == depth);
    it.get_next(sink.ask(1));
    CHECK(sink.answers.size() == (depth > 0 ? 1 : 0));
    work_off(it);
    CHECK(sink.values() == V{10});
    CHECK(produced == 1 + depth);
  }
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
  Sink sink;
  IteratorResource it(three());
  it.get_next(sink.ask(1));
  work_off(it);
  it.restart();
  for (int i = 0; i < 4; ++i) it.get_next(sink.ask(2));
  work_off(it);
  it.restart();
  it.get_next(sink.ask(3));
  work_off(it);
  CHECK(sink.values() == V{10, 10, 20, 30, kEnd, 10});
}

TEST_CASE("an element's error goes to one request; a dataset that cannot start fails them all") {
  Sink sink;
  IteratorResource it(three().map([](Element e) -> Result<Element> {
    if (e[0].data<int32_t>()[0] == 20) return make_error(Code::kDataLoss, "bad");
    return e;
  }));
  for (int i = 0; i < 4; ++i) it.get_next(sink.ask(i));
  work_off(it);
  CHECK(sink.values() == V{10, -static_cast<int>(Code::kDataLoss), 30, kEnd});

  Sink other;
  IteratorResource broken(three().batch(0));
  broken.get_next(other.ask(1));
  work_off(broken);
  CHECK(other.values() == V{-static_cast<int>(Code::kInvalidArgument)});
}

TEST_CASE("an iterator that goes away answers who waits") {
  Sink sink;
  {
    IteratorResource it(three());
    it.get_next(sink.ask(1));
  }
  CHECK(sink.values() == V{kCancelled});
}
