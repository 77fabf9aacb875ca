// SPDX-License-Identifier: Apache-2.0
// Datasets as values of a graph: a scalar variant which holds the description of a pipeline.
#pragma once
#include <memory>

#include "io/dataset_stages.h"
#include "troupe/tensor.h"

namespace troupe {

/// Immutable; any thread.
struct GraphDataset {
  StagePtr stage;
  /// How many elements are produced ahead of those who ask, by a prefetch behind the stage.
  int64_t ahead = 0;
};

Tensor dataset_tensor(GraphDataset dataset);

/// The stage with its prefetch, for another stage behind it.
StagePtr stage_within(GraphDataset dataset);

/// Error: the tensor is something else; `what` names it.
Result<GraphDataset> dataset_of(const Tensor& t, const char* what = "input_dataset");

}  // namespace troupe
