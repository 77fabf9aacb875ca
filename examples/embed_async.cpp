// SPDX-License-Identifier: Apache-2.0
// Training inside an asynchronous program: steps are futures and continuations, no thread waits for a step.
//
//   main thread:   starts the loop ... does other work ... asks for the loss by a future
//   continuation:  step done -> start the next step (on a thread of the engine, never blocking)
#include <CLI/CLI.hpp>
#include <atomic>

#include "programs/cluster_flags.h"
#include "programs/program.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"

using namespace troupe;

// Learns exclusive or, one asynchronous step after another; `finished` gets the outcome.
struct Loop {
  Session& session;
  std::shared_ptr<Session::Prepared> step;
  int steps_left;
  std::atomic<int> done{0};
  std::promise<Status> finished = {};

  void next() {
    session.run_async(step, {}, [this](RunResult result) {
      if (!result.ok()) return finished.set_value(result.error());
      ++done;
      if (--steps_left == 0) return finished.set_value({});
      next();
    });
  }
};

static Status run(int steps, const programs::ClusterFlags& cluster) {
  TROUPE_ASSIGN(auto engine, Engine::create(cluster.engine()));
  cluster.forget_former_client(*engine);
  Graph graph(engine->ops());
  const Scope s(graph);
  nn::Variables variables;
  const Output x = s.constant(Tensor::of<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2}));
  const Output wanted = s.constant(Tensor::of<float>({0, 1, 1, 0}, {4, 1}));
  const Output hidden = nn::tanh(s, nn::dense(s, variables, x, 8, "hidden"));
  const Output logits = nn::dense(s, variables, hidden, 1, "out");
  const Output loss = nn::sigmoid_cross_entropy(s, logits, wanted);
  const Output answers = nn::sigmoid(s, logits);
  const Node* update = nn::minimize(s, variables, nn::adam(nn::constant_rate(0.05f)), loss);
  TROUPE_RETURN_IF_ERROR(s.status());

  Session session(*engine, graph);
  TROUPE_RETURN_IF_ERROR(session.run(variables.initializers()));
  TROUPE_ASSIGN(auto step, session.prepare({}, {}, {update}));
  Loop loop{session, step, steps};
  auto finished = loop.finished.get_future();
  loop.next();
  // Steps may be asked for from anywhere at any time; this one runs among those of the loop.
  TROUPE_ASSIGN(const auto early, session.run_future({}, {loss}).get());
  programs::print("after about {} steps: loss {:.4f}\n", loop.done.load(), early[0].data<float>()[0]);

  TROUPE_RETURN_IF_ERROR(finished.get());
  TROUPE_ASSIGN(const auto late, session.run_future({}, {loss, answers}).get());
  programs::print("after {} steps: loss {:.4f}, answers {}\n", loop.done.load(), late[0].data<float>()[0],
                  late[1].str());
  return {};
}

int main(int argc, char** argv) {
  int steps = 500;
  CLI::App app("Trains by continuations: no thread waits for a step.");
  app.add_option("--steps", steps, "Updates")->check(CLI::PositiveNumber)->capture_default_str();
  programs::ClusterFlags cluster;
  cluster.add_to(app);
  return programs::run(app, argc, argv, [&] { return run(steps, cluster); });
}
