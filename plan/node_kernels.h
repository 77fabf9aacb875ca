// SPDX-License-Identifier: Apache-2.0
// The kernels of a plan's nodes.
#pragma once
#include "plan/plan.h"

namespace troupe {

/// `error` with node and op, where it names none.
Error at_node(Error error, const Node& node);

/// The kernel of a node on devices of that kind, from `cache` where another node that agrees with it has one already.
/// It is made of the node as the graph has it: it may outlive a plan, so it knows nothing of what passes put in place
/// of the node's inputs. Errors: kUnimplemented where there is none, those of making it.
Result<std::shared_ptr<Kernel>> find_kernel(const Node& node, DeviceKind kind, const KernelRegistry& registry,
                                            KernelCache& cache);

}  // namespace troupe
