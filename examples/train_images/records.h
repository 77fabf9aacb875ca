// SPDX-License-Identifier: Apache-2.0
// What a run leaves on disk: checkpoints to go on from and events for TensorBoard.
#pragma once
#include <memory>
#include <string>

#include "images.h"
#include "troupe/checkpoint.h"
#include "troupe/engine.h"
#include "troupe/events.h"
#include "troupe/train.h"

/// How a run was set up, by the names of its options; kept in its checkpoints.
using Settings = troupe::Checkpointer::Metadata;
/// The settings of a run on so many images. A run that goes on must have the same batch, images, model, optimizer and
/// seed, or its count of epochs and its variables mean nothing; others may change.
Settings settings_of(const Options& options, int64_t images);

/// Checkpoints in `out`/checkpoints, events in `out`/events. One thread, one process.
class Records {
 public:
  /// What a checkpoint says.
  struct Point {
    troupe::Snapshot variables;
    int64_t images = 0;  // trained on so far
    std::string path;
  };

  /// Error: kFailedPrecondition when another process has `out`.
  static troupe::Result<Records> open(const std::string& out, Settings settings);

  /// The last good checkpoint; kNotFound when there is none. Damaged ones are passed over, with a line on stderr; so is
  /// said which settings are other ones. Error: kFailedPrecondition, naming those that must be the same and are not.
  troupe::Result<Point> load() const;
  /// Saves `snapshot`. `images` were trained on at `step`, and `per_update` more for each update since. Returns the
  /// step saved.
  troupe::Result<int64_t> save(troupe::Snapshot snapshot, int64_t images, int64_t step, int64_t per_update);

  troupe::Status scalar(const std::string& name, double value, int64_t step);
  /// Points behind `step` that were written before count no more: training goes on from there.
  troupe::Status go_on(int64_t step);
  /// The graph and a few training images, once.
  troupe::Status start(const troupe::Graph& graph, const Images& images, int64_t step);
  /// A histogram of each variable that is trained.
  troupe::Status weights(const troupe::Snapshot& variables, const troupe::nn::Variables& model, int64_t step);

 private:
  Records(troupe::Checkpointer checkpoints, std::unique_ptr<troupe::EventWriter> events, Settings settings)
      : checkpoints_(std::move(checkpoints)), events_(std::move(events)), settings_(std::move(settings)) {}
  troupe::Status compare(const troupe::Checkpointer::Loaded& loaded) const;

  troupe::Checkpointer checkpoints_;
  std::unique_ptr<troupe::EventWriter> events_;
  Settings settings_;
};
