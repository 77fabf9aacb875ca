// SPDX-License-Identifier: Apache-2.0
// What fills the queues of TensorFlow 1's input pipelines while a program's steps run, as its
// tf.train.start_queue_runners does.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "troupe/saved_model.h"

namespace troupe {

/// Those that fill the queues which are among `needed`, and the queues that these wait for. Takes the graph's mutex.
std::vector<QueueRunner> used_queue_runners(const Graph& graph, const std::vector<QueueRunner>& runners,
                                            std::vector<const Node*> needed);

/// Runs each enqueue node again and again on a thread of its own, until it fails. At the end of its input (out of
/// range) the last node of a queue closes that, so that its readers get what is there and then an end. After another
/// error all queues are closed, and so do those who wait for them. Of one thread.
class QueueRunners {
 public:
  /// `session` outlives this.
  explicit QueueRunners(Session& session) : session_(session) {}
  QueueRunners(const QueueRunners&) = delete;
  ~QueueRunners() { (void)stop(); }
  /// Once.
  void start(std::vector<QueueRunner> runners);
  /// Cancels what runs and waits for it. Returns the first error of a node other than an end.
  Status stop();

 private:
  struct Queue {
    QueueRunner runner;
    std::atomic<size_t> running = 0;
  };
  void fill(Queue& queue, const Node* enqueue);
  void failed(const Queue& queue, Error error);

  Session& session_;
  CancelToken cancel_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;  // guards first_
  Status first_;
};

}  // namespace troupe
