// SPDX-License-Identifier: Apache-2.0
// Tests of a model on every batch of a dataset, as Trainer and Pipeline make them.
#pragma once
#include <memory>
#include <span>

#include "train/batch_source.h"
#include "troupe/train.h"

namespace troupe::nn {

/// Makes sure that loss and accuracy are what ModelOutputs says, where shapes are not known when the step runs. Without
/// an accuracy it is 0. Faults stick to the scope: no loss, another dtype, a shape that is not a scalar's.
ModelOutputs checked_outputs(const Scope& scope, ModelOutputs outputs);

/// Feeds each batch to one of `tests`, in turn, each of which fetches loss and accuracy; at most `at_once` steps are
/// under way. Blocks the calling thread, which must not be the engine's. Errors: the first of the dataset or a step,
/// after the steps under way have ended; kCancelled once `stopped` holds while a batch is waited for (see
/// BatchSource::next).
Result<Metrics> evaluate_batches(Session& session, BatchSource& batches,
                                 std::span<const std::shared_ptr<Session::Prepared>> tests, size_t at_once,
                                 const std::function<bool()>& stopped);

}  // namespace troupe::nn
