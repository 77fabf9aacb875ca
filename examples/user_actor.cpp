// SPDX-License-Identifier: Apache-2.0
// Actors of a program's own as parts of a graph: a source, an op and a queue.
//
//   Numbers (source) --next--> x ──> Squarer (op) --square--> y ──> Line (queue) --put-->
//                                                                      └──take--> another step
//
// Each node sends a message to its actor and ends when that answers; no thread waits in between. Numbers ends the data
// by an error, as datasets do. Squarer answers at once. Line answers a `take` when there is something to take.
#include <CLI/CLI.hpp>
#include <caf/all.hpp>
#include <cstdio>
#include <deque>

#include "programs/cluster_flags.h"
#include "programs/program.h"
#include "troupe/embed.h"

using namespace troupe;

// 0, 1, 2, ..., count - 1, each as a vector of two.
class Numbers : public caf::event_based_actor {
 public:
  Numbers(caf::actor_config& config, int count) : caf::event_based_actor(config), count_(count) {}
  caf::behavior make_behavior() override {
    return {[this](const ActorRequest& request) {
      if (next_ == count_) return request.reply(make_error(Code::kOutOfRange, "no more numbers"));
      const auto value = static_cast<float>(next_++);
      request.reply(std::vector{Tensor::of<float>({value, -value})});
    }};
  }

 private:
  const int count_;
  int next_ = 0;
};

class Squarer : public caf::event_based_actor {
 public:
  using caf::event_based_actor::event_based_actor;
  caf::behavior make_behavior() override {
    return {[](const ActorRequest& request) {
      Tensor y = request.inputs[0];  // writing makes a copy where others read it
      float* v = y.mutable_data<float>();
      for (int64_t i = 0; i < y.elements(); ++i) v[i] *= v[i];
      request.reply(std::vector{y});
    }};
  }
};

// A queue without bounds.
class Line : public caf::event_based_actor {
 public:
  using caf::event_based_actor::event_based_actor;
  caf::behavior make_behavior() override {
    return {[this](const ActorRequest& request) {
      if (request.call == "put") {
        elements_.push_back(request.inputs);
        request.reply(std::vector<Tensor>());
      } else {
        takers_.push_back(request.reply);
      }
      while (!elements_.empty() && !takers_.empty()) {
        if (takers_.front().wanted()) {  // its step may have been cancelled
          takers_.front()(elements_.front());
          elements_.pop_front();
        }
        takers_.pop_front();
      }
    }};
  }

 private:
  std::deque<std::vector<Tensor>> elements_;
  std::deque<ActorReply> takers_;
};

static Status run(int count, const programs::ClusterFlags& cluster) {
  TROUPE_ASSIGN(auto engine, Engine::create(cluster.engine({.register_ops = register_actor_ops})));
  caf::actor_system& system = actor_system(*engine);
  TROUPE_RETURN_IF_ERROR(add_actor(*engine, "numbers", system.spawn<Numbers>(count)));
  TROUPE_RETURN_IF_ERROR(add_actor(*engine, "squarer", system.spawn<Squarer>()));
  TROUPE_RETURN_IF_ERROR(add_actor(*engine, "line", system.spawn<Line>()));

  Graph graph(engine->ops());
  const Scope s(graph);
  const ActorOutput pair{DType::kFloat32, {2}};
  const Node* x = actor_call(s, "numbers", "next", {}, {pair});
  TROUPE_RETURN_IF_ERROR(s.status());
  const Output shifted = s.op("AddV2", {x->out(), s.constant(1.f)});
  const Node* y = actor_call(s, "squarer", "square", {shifted}, {pair});
  TROUPE_RETURN_IF_ERROR(s.status());
  const Node* put = actor_call(s, "line", "put", {y->out()}, {});
  const Node* take = actor_call(s, "line", "take", {}, {pair});
  TROUPE_RETURN_IF_ERROR(s.status());

  Session session(*engine, graph);
  auto taken = session.run_future({}, take->out());  // waits for the first put
  int steps = 0;
  RunResult end = std::vector<Tensor>();
  while ((end = session.run(put)).ok()) ++steps;
  if (end.error().code != Code::kOutOfRange) return end.error();
  programs::print("{} steps until: {}\n", steps, end.error().message);
  TROUPE_ASSIGN(const auto first, taken.get());
  programs::print("taken: {}", first[0].str());
  for (int i = 1; i < steps; ++i) {
    TROUPE_ASSIGN(const auto next, session.run(take->out()));
    programs::print(", {}", next[0].str());
  }
  // A step that waits for an answer that does not come ends by its deadline.
  const RunResult none = session.run(take->out(), {.deadline = std::chrono::milliseconds(10)});
  programs::print("\nas expected: {}\n", none.error().str());
  return none.error().code == Code::kDeadlineExceeded && steps == count ? Status() : none.error();
}

int main(int argc, char** argv) {
  int count = 5;
  CLI::App app("Actors of the program's own as a source, an op and a queue of a graph.");
  app.add_option("--count", count, "Numbers")->check(CLI::PositiveNumber)->capture_default_str();
  programs::ClusterFlags cluster;
  cluster.add_to(app);
  return programs::run(app, argc, argv, [&] { return run(count, cluster); });
}
