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
  /// How many elements an iterator over it produces ahead of those who ask, by its last prefetch.
  int64_t ahead = 0;
};

Tensor dataset_tensor(GraphDataset dataset);

/// Error: the tensor is something else; `what` names it.
Result<GraphDataset> dataset_of(const Tensor& t, const char* what = "input_dataset");

}  // namespace troupe
