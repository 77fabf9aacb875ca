// SPDX-License-Identifier: Apache-2.0
// What calls of functions become, counted before any function is put in.
#pragma once
#include "graph/graph_def/function_library.h"

namespace troupe {

/// What calls may become in all, in nodes and in bytes of a GraphDef; a few functions can ask for 2^40 nodes.
inline constexpr uint64_t kMostNodes = 1'000'000, kMostLoweredBytes = uint64_t{1} << 30;

/// Refuses a function that calls itself, and calls that would become more than there may be, before memory is taken for
/// them. Errors name the call: kInvalidArgument, kResourceExhausted.
Status check_call_sizes(const proto::GraphDef& def, const FunctionLibrary& library);

}  // namespace troupe
