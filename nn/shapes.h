// SPDX-License-Identifier: Apache-2.0
// The sizes that layers ask of their inputs. Implemented in nn/shapes.cpp.
#pragma once
#include <string>
#include <vector>

#include "troupe/scope.h"

namespace troupe::nn {

/// The last size of x, or 0 after failing the scope because x is empty, has fewer than `min_rank` dimensions or a last
/// size that is 0 or not known.
int64_t last_size_of(const Scope& scope, Output x, int min_rank, const char* layer, const std::string& name);

/// y with the shape of `like`, whose rank is known, up to its last dimension, and `sizes` after that. What of this is
/// not known while the graph is built is read from `like` in each step.
Output with_last_sizes(const Scope& scope, Output y, Output like, const std::vector<int64_t>& sizes);

}  // namespace troupe::nn
