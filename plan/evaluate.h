// SPDX-License-Identifier: Apache-2.0
// Evaluation of single nodes while a plan is made, for the folding of constants.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "troupe/graph.h"
#include "troupe/kernel.h"

namespace troupe {

/// The outputs of `node` for these inputs, by its CPU kernel on the calling thread alone. None where there is no kernel
/// that computes (a resource's, Placeholder), where it fails, takes more memory than a step should keep, or puts out
/// something else than the node declares (check_outputs).
std::optional<std::vector<Tensor>> evaluate(const KernelRegistry& kernels, const Node& node,
                                            std::span<const Tensor> inputs);

}  // namespace troupe
