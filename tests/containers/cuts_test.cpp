// SPDX-License-Identifier: Apache-2.0
// Snapshots of a container between the updates of steps.
#include "containers/cuts.h"

#include <catch2/catch.hpp>

#include <random>

#include "tests/repeats.h"

namespace troupe {
namespace {

/// Steps that run until the test ends them.
class Steps final : public StepWatch {
 public:
  std::set<int64_t> running, told;
  bool is_running(int64_t step) override { return running.contains(step); }
  bool tell_when_ended(int64_t step) override {
    if (running.contains(step)) told.insert(step);
    return running.contains(step);
  }
};

struct CutsFixture {
  Container container{"c"};
  Steps steps;
  Cuts cuts{container, steps};

  static ResourceHandle handle(const std::string& name) {
    ResourceHandle h;
    h.type = "container";
    h.name = name;
    h.dtype = DType::kInt64;
    h.shape = PartialShape::scalar();
    return h;
  }
  void add(int64_t step, const std::string& name, int64_t amount) {
    cuts.apply(step, [&](Container& c, bool) {
      const ResourceHandle h = handle(name);
      const ResourceHandle* handles[] = {&h};
      return c.update(handles, system_allocator(), [&](std::span<Tensor* const> t) {
        t[0]->mutable_data<int64_t>()[0] += amount;
        return Status();
      });
    });
  }
  void end(int64_t step) {
    steps.running.erase(step);
    if (steps.told.erase(step) > 0) cuts.step_ended(step);
  }
  void take(std::optional<std::map<std::string, int64_t>>& into) {
    cuts.snapshot([&into](Result<Cuts::Variables> v) {
      REQUIRE(v.ok());
      into.emplace();
      for (const auto& [name, tensor] : *v) (*into)[name] = tensor.data<int64_t>()[0];
    });
  }
  explicit CutsFixture(std::vector<std::string> names) {
    for (const std::string& name : names) REQUIRE(container.assign(handle(name), Tensor::scalar<int64_t>(0)).ok());
  }
};

using Values = std::map<std::string, int64_t>;

TEST_CASE("a snapshot without steps at work comes at once") {
  CutsFixture f({"a", "b"});
  std::optional<Values> taken;
  f.take(taken);
  CHECK(taken == Values{{"a", 0}, {"b", 0}});
}

TEST_CASE("a snapshot has the whole of a step that had begun and nothing of one that begins later") {
  CutsFixture f({"a", "b"});
  f.steps.running = {1, 2};
  f.add(1, "a", 1);
  std::optional<Values> taken;
  f.take(taken);
  CHECK_FALSE(taken);
  f.add(2, "b", 100);  // begins its updates after the cut
  f.add(1, "b", 10);
  f.add(2, "a", 1000);
  f.end(2);
  CHECK_FALSE(taken);
  f.end(1);
  CHECK(taken == Values{{"a", 1}, {"b", 10}});
  std::optional<Values> later;
  f.take(later);
  CHECK(later == Values{{"a", 1001}, {"b", 110}});
}

TEST_CASE("a step that ended without being told of needs no waiting") {
  CutsFixture f({"a"});
  f.steps.running = {1};
  f.add(1, "a", 1);
  f.steps.running.clear();
  std::optional<Values> taken;
  f.take(taken);
  CHECK(taken == Values{{"a", 1}});
}

TEST_CASE("temporary variables are in no snapshot, and go with their step, whether it failed or not") {
  CutsFixture f({"a"});
  f.steps.running = {7};
  f.cuts.apply(7, [&](Container& c, bool) {
    return c.assign(CutsFixture::handle(temporary_name("t", 7, 0)), Tensor::scalar<int64_t>(5));
  });
  std::optional<Values> taken;
  f.take(taken);
  CHECK(f.container.size() == 2);
  f.end(7);
  CHECK(taken == Values{{"a", 0}});
  CHECK(f.container.size() == 1);
  CHECK(f.container.temporaries() == 0);
}

TEST_CASE("a container that goes answers the snapshots that wait") {
  std::optional<Code> code;
  {
    CutsFixture f({"a"});
    f.steps.running = {1};
    f.add(1, "a", 1);
    f.cuts.snapshot([&](Result<Cuts::Variables> v) { code = v.ok() ? Code::kInternal : v.error().code; });
    CHECK_FALSE(code);
  }
  CHECK(code == Code::kFailedPrecondition);
}

TEST_CASE("an update that finds no memory on the copy is the snapshot's error") {
  CutsFixture f({"a", "b"});
  f.steps.running = {1};
  f.add(1, "a", 1);
  std::optional<Code> code;
  f.cuts.snapshot([&](Result<Cuts::Variables> v) { code = v.ok() ? Code::kInternal : v.error().code; });
  f.cuts.apply(1, [&](Container&, bool last) -> Status {
    if (last) return {};
    return make_error(Code::kResourceExhausted, "no memory");
  });
  f.end(1);
  CHECK(code == Code::kResourceExhausted);
}

// Each step adds its own bit to every variable, in any order, mixed with other steps and with snapshots: all variables
// of a snapshot then have the same bits.
TEST_CASE("snapshots of any mixture of steps are whole") {
  std::mt19937 random(5);
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  for (int round = 0; round < repeats(400); ++round) {
    CutsFixture f(names);
    std::map<int64_t, std::vector<std::string>> left;
    int64_t next = 1;
    std::list<std::optional<Values>> snapshots;
    int64_t ended = 0;
    while (ended < 12) {
      const int choice = static_cast<int>(random() % 10);
      if (choice < 2 && next <= 12) {
        f.steps.running.insert(next);
        left[next] = names;
        std::ranges::shuffle(left[next], random);
        ++next;
      } else if (choice == 2) {
        f.take(snapshots.emplace_back());
      } else if (!left.empty()) {
        auto at = std::next(left.begin(), static_cast<ptrdiff_t>(random() % left.size()));
        if (at->second.empty()) {
          f.end(at->first);
          left.erase(at);
          ++ended;
        } else {
          f.add(at->first, at->second.back(), int64_t{1} << at->first);
          at->second.pop_back();
        }
      }
    }
    for (const auto& taken : snapshots) {
      REQUIRE(taken);
      for (const auto& [name, value] : *taken) CHECK(value == taken->begin()->second);
    }
  }
}

}  // namespace
}  // namespace troupe
