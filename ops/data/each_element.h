// SPDX-License-Identifier: Apache-2.0
// Going over a whole dataset within a step.
#pragma once
#include <functional>

#include "ops/data/dataset_value.h"
#include "troupe/blocking_kernel.h"

namespace troupe {

/// Calls `take` with each element, until it says no. Error: kCancelled where the step is.
Status for_each_element(const BlockingRequest& request, const GraphDataset& dataset,
                        const std::function<Result<bool>(Element)>& take);

}  // namespace troupe
