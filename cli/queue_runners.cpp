// SPDX-License-Identifier: Apache-2.0
#include "cli/queue_runners.h"

#include <algorithm>
#include <chrono>
#include <unordered_set>

#include "base/printable.h"
#include "graph/prune.h"

namespace troupe {
namespace {

/// Filling a queue takes as long as its readers do.
RunOptions without_deadline() { return {.deadline = std::chrono::nanoseconds::max()}; }

}  // namespace

std::vector<QueueRunner> used_queue_runners(const Graph& graph, const std::vector<QueueRunner>& runners,
                                            std::vector<const Node*> needed) {
  std::vector<QueueRunner> out, rest = runners;
  std::unordered_set<const Node*> all(needed.begin(), needed.end());
  for (;;) {
    const auto used = std::ranges::find_if(rest, [&](const QueueRunner& r) { return all.contains(r.queue); });
    if (used == rest.end()) return out;
    {
      const std::lock_guard lock(graph.mutex());
      needed = needed_nodes(graph, {}, {}, used->enqueue);
    }
    all.insert(needed.begin(), needed.end());
    out.push_back(std::move(*used));
    rest.erase(used);
  }
}

void QueueRunners::start(std::vector<QueueRunner> runners) {
  for (QueueRunner& runner : runners) {
    auto& queue = *queues_.emplace_back(std::make_unique<Queue>());
    queue.runner = std::move(runner);
    queue.running = queue.runner.enqueue.size();
  }
  for (const auto& queue : queues_)
    for (const Node* enqueue : queue->runner.enqueue)
      threads_.emplace_back([this, &queue = *queue, enqueue] { fill(queue, enqueue); });
}

Status QueueRunners::stop() {
  cancel_.cancel();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return first_;
}

void QueueRunners::fill(Queue& queue, const Node* enqueue) {
  RunOptions options = without_deadline();
  options.cancel = cancel_;
  RunResult last = std::vector<Tensor>();
  while (last.ok()) last = session_.run(enqueue, options);
  if (cancel_.cancelled()) return;
  const bool ends = last.error().code == Code::kOutOfRange, is_last = --queue.running == 0;
  if (!ends) return failed(queue, std::move(last.error()));
  if (is_last && queue.runner.close) (void)session_.run(queue.runner.close, options);  // it may be closed already
}

void QueueRunners::failed(const Queue& queue, Error error) {
  error.message = fmt::format("what fills queue {}: {}", in_quotes(queue.runner.queue->name()), error.message);
  {
    const std::lock_guard lock(mutex_);
    if (!first_.ok()) return;
    first_ = std::move(error);
  }
  for (const auto& each : queues_)
    if (each->runner.cancel) (void)session_.run(each->runner.cancel, without_deadline());
}

}  // namespace troupe
