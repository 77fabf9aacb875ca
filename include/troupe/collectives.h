// SPDX-License-Identifier: Apache-2.0
// Collectives: tensors of several devices summed, gathered and handed round, as nodes of a graph. Implemented in
// train/collectives.cpp.
//
// The devices stand in a ring in the order given, one tensor on each; each sends to the next alone. A tensor goes round
// in as many chunks as there are devices, so that all links are busy at once, and nothing but data dependencies orders
// the steps: the first chunk leaves as soon as it is there. With n devices and a tensor of b bytes, each link carries
// in all_reduce 2 (n-1)/n b bytes, in reduce_scatter and all_gather (n-1)/n b (b: of the whole), in broadcast 2 (n-1)/n
// b at most. One device: the results are the tensors themselves.
//
// In a graph a collective is one node (_AllReduce, ...), below a scope "all_reduce", "reduce_scatter", ..., with an
// Identity on each device; planning a step puts the ring in its place (graph/passes/expand_collectives.h), whose nodes
// are on the devices of these names and have its name. A device may be named more than once. All are differentiable.
// Faults stick to the scope: no devices or more than 1,024, not one tensor for each, dtypes or shapes that differ, an
// axis that is not there, a mean of integers. Shapes need not be known: those that turn out to differ are then an error
// of the step. One thread at a time, like a Scope.
//
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
#pragma once
#include <string>
#include <vector>

#include "troupe/chunk_sizes.h"
#include "troupe/export.h"
#include "troupe/scope.h"

namespace TROUPE_API troupe {
namespace nn {

enum class Reduction {
  kSum,   // any type of number; integers wrap around
  kMean,  // floating-point types: the sum times 1/n, rounded to the type
};

using troupe::chunk_sizes;

/// On each device the sum or mean of all, the same bits everywhere. xs: one tensor on each device, of one dtype and
/// shape. The elements are taken as a vector; its chunk c (see chunk_sizes) is summed in the order of devices c+1, c+2,
/// ..., c, modulo n: the order depends on the number of devices and elements alone.
std::vector<Output> all_reduce(const ScopeAt& scope, const std::vector<std::string>& devices,
                               const std::vector<Output>& xs, Reduction reduction = Reduction::kSum);

/// On device c the chunk c along `axis` (negative: from the end) of the sum or mean; summed in the order of all_reduce.
std::vector<Output> reduce_scatter(const ScopeAt& scope, const std::vector<std::string>& devices,
                                   const std::vector<Output>& xs, Reduction reduction = Reduction::kSum, int axis = 0);

/// On each device all tensors in the order of the devices, joined along `axis` (negative: from the end). Along it sizes
/// may differ. Any dtype.
std::vector<Output> all_gather(const ScopeAt& scope, const std::vector<std::string>& devices,
                               const std::vector<Output>& xs, int axis = 0);

/// On each device x, which is on devices[root]. Any dtype.
std::vector<Output> broadcast(const ScopeAt& scope, const std::vector<std::string>& devices, Output x, size_t root = 0);

}  // namespace nn
}  // namespace troupe
