// SPDX-License-Identifier: Apache-2.0
// Training inside a program of coroutines: each waits for its steps by co_await, and no thread waits for any of them.
//
//   trainer:   co_await train ... co_await train ...          (goes on on a thread of the engine)
//   watcher:   co_await loss, every now and then, then on a thread of the program's own
#include <CLI/CLI.hpp>
#include <condition_variable>
#include <coroutine>
#include <cstdio>
#include <deque>
#include <mutex>

#include "programs/cluster_flags.h"
#include "programs/program.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"

using namespace troupe;

// A coroutine that begins at once and tells a future how it ended. Any other kind will do.
struct Job {
  struct promise_type {
    std::promise<Status> done;
    Job get_return_object() { return {done.get_future()}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_value(Status status) { done.set_value(std::move(status)); }
    void unhandled_exception() { done.set_exception(std::current_exception()); }
  };
  std::future<Status> done;
};

// Coroutines that go on on the thread that calls run(): `co_await loop` takes one there.
class Loop {
 public:
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> handle) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(handle);
    changed_.notify_one();
  }
  void await_resume() const {}
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const std::coroutine_handle<> next = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      next.resume();
      lock.lock();
    }
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::coroutine_handle<>> waiting_;
  bool stopped_ = false;
};

static Job train(Session& session, const Node* update, int steps, std::atomic<bool>& ended) {
  Status status;
  for (int i = 0; i < steps && status.ok(); ++i) status = (co_await session.run_async(update)).status();
  ended = true;
  co_return status;
}

static Job watch(Session& session, Output loss, const std::atomic<bool>& ended, Loop& loop) {
  struct Stop {
    Loop& loop;
    ~Stop() { loop.stop(); }
  } at_the_end{loop};
  float last = 0;
  int looks = 0;
  for (bool end = false; !end; ++looks) {
    end = ended;
    const RunResult result = co_await session.run_async(loss);
    if (!result.ok()) co_return result.error();
    last = (*result)[0].data<float>()[0];
    co_await loop;  // here it may block, and print as slowly as it likes
  }
  programs::print("loss {:.4f} in the end; looked {} times\n", last, looks);
  co_return last < 0.1f ? Status() : make_error(Code::kInternal, "the loss is still {}", last);
}

static Status run(int steps, const programs::ClusterFlags& cluster) {
  TROUPE_ASSIGN(auto engine, Engine::create(cluster.engine()));
  cluster.forget_former_client(*engine);
  Graph graph(engine->ops());
  const Scope s(graph);
  nn::Variables variables;
  const Output x = s.constant(Tensor::of<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2}));
  const Output wanted = s.constant(Tensor::of<float>({0, 1, 1, 0}, {4, 1}));
  const Output hidden = nn::tanh(s, nn::dense(s, variables, x, 8, "hidden"));
  const Output loss = nn::sigmoid_cross_entropy(s, nn::dense(s, variables, hidden, 1, "out"), wanted);
  const Node* update = nn::minimize(s, variables, nn::adam(nn::constant_rate(0.05f)), loss);
  TROUPE_RETURN_IF_ERROR(s.status());

  Session session(*engine, graph);
  TROUPE_RETURN_IF_ERROR(session.run(variables.initializers()));
  std::atomic<bool> ended{false};
  Loop loop;
  Job trainer = train(session, update, steps, ended);
  Job watcher = watch(session, loss, ended, loop);
  loop.run();
  TROUPE_RETURN_IF_ERROR(trainer.done.get());
  return watcher.done.get();
}

int main(int argc, char** argv) {
  int steps = 500;
  CLI::App app("Trains by coroutines: no thread waits for a step.");
  app.add_option("--steps", steps, "Updates")->check(CLI::PositiveNumber)->capture_default_str();
  programs::ClusterFlags cluster;
  cluster.add_to(app);
  return programs::run(app, argc, argv, [&] { return run(steps, cluster); });
}
