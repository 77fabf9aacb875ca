// SPDX-License-Identifier: Apache-2.0
// Functions of a library that do the same for several kinds of devices: those with one value of the attribute
// api_implements. A library as TensorFlow Probability calls its default in the graph and counts on TensorFlow to call
// the one whose api_preferred_device is CPU when the step runs there; their random numbers differ.
#pragma once
#include "graph/graph_def/graph.pb.h"

namespace troupe {

/// Has each call of such a function, but those on GPUs, call the one for CPUs, if there is one with the same signature.
/// Of functions for gradients, which come in pairs that hand on values of their own: the forward one must take the
/// same arguments, the backward one give the same outputs and read what the call of the forward one gives last.
void call_cpu_functions(proto::GraphDef& def);

}  // namespace troupe
