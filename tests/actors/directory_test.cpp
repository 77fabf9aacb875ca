// SPDX-License-Identifier: Apache-2.0
// Factories of resources: they are called without a lock, so they may ask for other hosts, and of what two threads make
// at once one stays.
#include <caf/all.hpp>

#include <atomic>
#include <future>
#include <latch>
#include <optional>

#include "actors/engine_impl.h"
#include "tests/engine/fixtures.h"

namespace troupe {
namespace {

using Made = Result<std::unique_ptr<Resource>>;

/// Counts how many of them there are.
class Thing final : public Resource {
 public:
  explicit Thing(std::atomic<int>& there) : there_(there) { ++there_; }
  ~Thing() override { --there_; }

 private:
  std::atomic<int>& there_;
};

struct Hosts {
  std::atomic<int> there{0};
  TestEngine engine;
  Directory& directory = *engine.engine->impl().directory;

  Made thing() { return std::unique_ptr<Resource>(new Thing(there)); }
  static ResourceHandle handle(const std::string& name, ResourceHandle::Factory factory) {
    ResourceHandle out;
    out.type = "thing";
    out.name = name;
    out.factory = std::move(factory);
    return out;
  }
};

TEST_CASE("a factory may ask for another host") {
  Hosts h;
  const ResourceHandle inner = h.handle("inner", [&] { return h.thing(); });
  const auto outer = h.directory.host(h.handle("outer", [&]() -> Made {
    TROUPE_RETURN_IF_ERROR(h.directory.host(inner));
    return h.thing();
  }));
  REQUIRE(outer.ok());
  CHECK((h.directory.find("thing//outer") == *outer));
  CHECK((h.directory.find("thing//inner") == *h.directory.host(inner)));
  CHECK(h.there == 2);
}

TEST_CASE("a factory that asks for what it is to make is told so, and the next one may make it") {
  Hosts h;
  Status inside;
  ResourceHandle handle = h.handle("it", {});
  handle.factory = [&]() -> Made {
    inside = h.directory.host(handle).status();
    TROUPE_RETURN_IF_ERROR(inside);
    return h.thing();
  };
  CHECK(h.directory.host(handle).error().code == Code::kFailedPrecondition);
  REQUIRE_FALSE(inside.ok());
  CHECK(inside.error().message == "the factory of thing 'it' must not ask for what it is to make");
  handle.factory = [&] { return h.thing(); };
  CHECK(h.directory.host(handle).ok());
  CHECK(h.there == 1);
}

TEST_CASE("two threads whose factories are at work at once get one host, and what the other made is dropped") {
  Hosts h;
  std::latch both(2);
  const ResourceHandle handle = h.handle("it", [&] {
    both.arrive_and_wait();
    return h.thing();
  });
  const auto ask = [&] { return h.directory.host(handle); };
  auto first = std::async(std::launch::async, ask), second = std::async(std::launch::async, ask);
  const auto one = first.get(), other = second.get();
  REQUIRE(one.ok());
  REQUIRE(other.ok());
  CHECK((*one == *other));
  CHECK(h.there == 1);
}

TEST_CASE("a factory that fails costs nobody else the host") {
  Hosts h;
  std::promise<void> begun, made;
  auto late = std::async(std::launch::async, [&] {
    return h.directory.host(h.handle("it", [&]() -> Made {
      begun.set_value();
      made.get_future().wait();
      throw std::runtime_error("there is one already");
    }));
  });
  begun.get_future().wait();
  const auto host = h.directory.host(h.handle("it", [&] { return h.thing(); }));
  made.set_value();
  REQUIRE(host.ok());
  const auto same = late.get();
  REQUIRE(same.ok());
  CHECK((*same == *host));

  // Alone it gets its error.
  const auto fails = [&]() -> Made { return invalid_argument("no"); };
  CHECK(h.directory.host(h.handle("other", fails)).error().message == "no");
  CHECK(h.directory.host(h.handle("other", [&] { return h.thing(); })).ok());
}

TEST_CASE("what a factory makes while the engine begins to end is dropped") {
  std::atomic<int> there{0};
  int spawned = 0;
  Directory directory([&](std::unique_ptr<Resource>) -> caf::actor {
    ++spawned;
    return {};
  });
  const auto host = directory.host(Hosts::handle("it", [&]() -> Made {
    directory.shut();
    return std::unique_ptr<Resource>(new Thing(there));
  }));
  REQUIRE_FALSE(host.ok());
  CHECK(host.error().code == Code::kCancelled);
  CHECK(spawned == 0);
  CHECK(there == 0);
}

TEST_CASE("a host that is dead before it is watched is not kept") {
  Hosts h;
  caf::actor_system& system = h.engine.engine->impl().system();
  int died = 0;
  std::optional<Directory> directory;
  directory.emplace(
      [&](std::unique_ptr<Resource>) {
        auto actor = system.spawn([](caf::event_based_actor*) -> caf::behavior { return {[](int) {}}; });
        caf::anon_send_exit(actor, caf::exit_reason::kill);
        caf::scoped_actor(system)->wait_for(actor);
        return actor;
      },
      [&](const caf::actor& actor) {
        actor->attach_functor([&, id = actor.id()](const caf::error&) {
          directory->remove(id);
          ++died;
        });
      });
  CHECK(directory->host(h.handle("it", [&] { return h.thing(); })).ok());
  CHECK(died == 1);
  CHECK_FALSE(static_cast<bool>(directory->find("thing//it")));
  CHECK(directory->add("thing//added", *h.thing()).ok());
  CHECK(died == 2);
  CHECK_FALSE(static_cast<bool>(directory->find("thing//added")));
}

}  // namespace
}  // namespace troupe
