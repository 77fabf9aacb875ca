// SPDX-License-Identifier: Apache-2.0
// What a run leaves on disk: checkpoints to go on from and events for TensorBoard.
#pragma once
#include <memory>
#include <string>

#include "images.h"
#include "troupe/checkpoint.h"
#include "troupe/engine.h"
#include "troupe/events.h"

/// Checkpoints in `out`/checkpoints, events in `out`/events. One thread.
class Records {
 public:
  /// What a checkpoint says.
  struct Point {
    troupe::Snapshot variables;
    int64_t images = 0;  // trained on so far
    std::string path;
  };

  static troupe::Result<Records> open(const std::string& out);

  /// The last good checkpoint; kNotFound when there is none. Damaged ones are passed over, with a line on stderr.
  troupe::Result<Point> load() const;
  /// Saves `snapshot`. `images` were trained on at `step`, and `per_update` more for each update since. Returns the
  /// step saved.
  troupe::Result<int64_t> save(troupe::Snapshot snapshot, int64_t images, int64_t step, int64_t per_update);

  troupe::Status scalar(const std::string& name, double value, int64_t step);
  /// The graph and a few training images, once.
  troupe::Status start(const troupe::Graph& graph, const Images& images, int64_t step);
  /// A histogram of each variable that is trained.
  troupe::Status weights(const troupe::Snapshot& variables, const troupe::nn::Variables& model, int64_t step);

 private:
  Records(troupe::Checkpointer checkpoints, std::unique_ptr<troupe::EventWriter> events)
      : checkpoints_(std::move(checkpoints)), events_(std::move(events)) {}

  troupe::Checkpointer checkpoints_;
  std::unique_ptr<troupe::EventWriter> events_;
};
