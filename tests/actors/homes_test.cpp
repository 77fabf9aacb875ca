// SPDX-License-Identifier: Apache-2.0
#include "actors/homes.h"

#include <caf/scheduler/test_coordinator.hpp>
#include <catch2/catch.hpp>

#include <future>
#include <set>

namespace troupe {
namespace {

struct WorkersConfig : caf::actor_system_config {
  explicit WorkersConfig(size_t workers) { set("scheduler.max-threads", workers); }
};

/// An execution unit that is no worker.
struct Elsewhere : caf::execution_unit {
  void exec_later(caf::resumable*) override {}
};

TEST_CASE("each device has a worker of its own, as far as there are enough") {
  WorkersConfig config(2);
  caf::actor_system system(config);
  const Homes homes(system, 3);
  std::set<caf::execution_unit*> doors;
  for (uint32_t device = 0; device < 2; ++device) {
    CHECK(homes.of(device, nullptr));
    doors.insert(homes.of(device, nullptr));
  }
  CHECK(doors.size() == 2);
  CHECK(homes.of(2, nullptr) == homes.of(0, nullptr));
  Elsewhere elsewhere;
  CHECK(homes.of(1, &elsewhere) == homes.of(1, nullptr));
  CHECK(homes.of(3, &elsewhere) == &elsewhere);  // no device
}

TEST_CASE("an actor that a door wakes runs, and on its own worker a device is told directly") {
  WorkersConfig config(2);
  caf::actor_system system(config);
  const Homes homes(system, 2);
  std::promise<std::pair<caf::execution_unit*, bool>> promise;
  const caf::actor actor = system.spawn([&](caf::event_based_actor* self) -> caf::behavior {
    return {[&, self](int) {
      const auto here = self->context();
      // Of the two homes one is that of the worker it runs on.
      promise.set_value({here, (homes.of(0, here) == here) != (homes.of(1, here) == here)});
      self->quit();
    }};
  });
  actor->enqueue(caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, 1), homes.of(1, nullptr));
  const auto [context, one] = promise.get_future().get();
  CHECK(context);
  CHECK(one);
}

TEST_CASE("under another scheduler nobody has a home") {
  struct Simulated : caf::actor_system_config {
    Simulated() { set("scheduler.policy", caf::atom("testing")); }
  } config;
  caf::actor_system system(config);
  Elsewhere elsewhere;
  CHECK(Homes(system, 2).of(0, &elsewhere) == &elsewhere);
  CHECK_FALSE(Homes().of(0, nullptr));
}

}  // namespace
}  // namespace troupe
