// SPDX-License-Identifier: Apache-2.0
// Lender: which thread runs an actor that was told something.
#include "actors/lender.h"

#include <caf/all.hpp>
#include <catch2/catch.hpp>

#include <atomic>
#include <future>
#include <thread>

namespace troupe {
namespace {

struct Say {
  std::shared_ptr<std::promise<std::thread::id>> where;
};
struct SayTwice {
  std::shared_ptr<std::promise<std::thread::id>> first, second;
};
struct Hold {
  std::shared_ptr<std::promise<void>> begun;
  std::shared_future<void> until;
};
struct PassOn {
  caf::actor to;
  Say say;
};

}  // namespace
}  // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Say)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::SayTwice)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Hold)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::PassOn)

namespace troupe {
namespace {

/// Says on which thread it runs.
class Teller : public caf::event_based_actor {
 public:
  using caf::event_based_actor::event_based_actor;
  caf::behavior make_behavior() override {
    return {
        [](const Say& m) { m.where->set_value(std::this_thread::get_id()); },
        [this](const SayTwice& m) {
          m.first->set_value(std::this_thread::get_id());
          send(this, Say{m.second});
        },
        [](const Hold& m) {
          m.begun->set_value();
          m.until.wait();
        },
        [this](const PassOn& m) {
          if (Lender* const lender = Lender::of(context())) lender->tell(m.to, m.say);
          else send(m.to, m.say);
        },
    };
  }
};

struct Told {
  std::shared_ptr<std::promise<std::thread::id>> where = std::make_shared<std::promise<std::thread::id>>();
  std::future<std::thread::id> answer = where->get_future();
  bool here() { return answer.get() == std::this_thread::get_id(); }
  bool came() { return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
};

struct Stage {
  caf::actor_system_config config;
  caf::actor_system system{config};
  Lender lender{system};
  caf::actor spawn() { return system.spawn<Teller>(); }
  ~Stage() {
    for (const caf::actor& actor : actors) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }
  std::vector<caf::actor> actors{spawn(), spawn()};
  /// An actor runs first where it was spawned.
  void begin(const caf::actor& actor) {
    Told told;
    caf::anon_send(actor, Say{told.where});
    told.answer.wait();
    // It is idle once a thread that lends itself gets it.
    while (true) {
      Told again;
      lender.tell(actor, Say{again.where});
      lender.run();
      if (again.here()) return;
    }
  }
};

TEST_CASE("an idle actor runs on the thread that is lent, when that says so") {
  Stage s;
  s.begin(s.actors[0]);
  Told told;
  s.lender.tell(s.actors[0], Say{told.where});
  CHECK_FALSE(told.came());
  s.lender.run();
  REQUIRE(told.came());
  CHECK(told.here());
}

TEST_CASE("what is left after one message goes to the scheduler") {
  Stage s;
  s.begin(s.actors[0]);
  Told first, second;
  s.lender.tell(s.actors[0], SayTwice{first.where, second.where});
  s.lender.run();
  REQUIRE(first.came());
  CHECK(first.here());
  CHECK_FALSE(second.here());
}

TEST_CASE("a thread that would wait anyway goes on until what it waits for is there") {
  Stage s;
  s.begin(s.actors[0]);
  for (const bool done : {false, true}) {
    Told first, second;
    Lender patient(s.system, Lender::Time::kAll);
    patient.tell(s.actors[0], SayTwice{first.where, second.where});
    patient.run([done] { return done; });
    CHECK(first.here());
    CHECK(second.here() == !done);
    s.begin(s.actors[0]);
  }
}

TEST_CASE("an actor that is at work elsewhere stays there") {
  Stage s;
  s.begin(s.actors[0]);
  std::promise<void> go_on;
  Hold hold{std::make_shared<std::promise<void>>(), go_on.get_future().share()};
  caf::anon_send(s.actors[0], hold);
  hold.begun->get_future().wait();
  Told told;
  s.lender.tell(s.actors[0], Say{told.where});
  s.lender.run();
  CHECK_FALSE(told.came());
  go_on.set_value();
  CHECK_FALSE(told.here());
}

TEST_CASE("of two actors that are told something the second runs at once elsewhere") {
  Stage s;
  s.begin(s.actors[0]);
  s.begin(s.actors[1]);
  Told first, second;
  s.lender.tell(s.actors[0], Say{first.where});
  s.lender.tell(s.actors[1], Say{second.where});
  CHECK_FALSE(second.here());  // while the first waits
  CHECK_FALSE(first.came());
  s.lender.run();
  CHECK(first.here());
}

TEST_CASE("a lent actor can lend the thread to another") {
  Stage s;
  s.begin(s.actors[0]);
  s.begin(s.actors[1]);
  Told told;
  s.lender.tell(s.actors[0], PassOn{s.actors[1], {told.where}});
  s.lender.run();
  REQUIRE(told.came());
  CHECK(told.here());
}

TEST_CASE("a lender that goes leaves what was told to the scheduler") {
  Stage s;
  s.begin(s.actors[0]);
  Told told;
  {
    Lender other(s.system);
    other.tell(s.actors[0], Say{told.where});
    CHECK_FALSE(told.came());
  }
  CHECK_FALSE(told.here());
}

TEST_CASE("many threads lend themselves to one actor, and nothing is lost") {
  Stage s;
  constexpr int kThreads = 4, kTimes = 2000;
  std::vector<std::thread> threads;
  std::atomic<int> answered{0};
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      Lender own(s.system);
      for (int i = 0; i < kTimes; ++i) {
        Told told;
        own.tell(s.actors[0], Say{told.where});
        own.run();
        told.answer.wait();
        ++answered;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(answered == kThreads * kTimes);
}

}  // namespace
}  // namespace troupe
