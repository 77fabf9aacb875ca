// SPDX-License-Identifier: Apache-2.0
// The kernels of a plan's nodes.
#pragma once
#include "plan/plan.h"

namespace troupe {

/// `error` with node and op, where it names none.
Error at_node(Error error, const Node& node);

/// Whose kernels devices of a kind run: simulated ones those of CPUs.
inline DeviceKind that_runs(DeviceKind kind) { return kind == DeviceKind::kSim ? DeviceKind::kCpu : kind; }

/// What carries a node out.
struct NodeKernel {
  KernelKind kind;  // that of the kernel
  std::shared_ptr<Kernel> kernel;
};

/// How a node is carried out on devices of that kind, as the registration of its kernel tells without making it.
/// Errors: kUnimplemented where there is none.
Result<KernelKind> kernel_kind(const Node& node, DeviceKind kind, const KernelRegistry& registry);

/// The kernel of a node on devices of that kind, from `cache` where another node that agrees with it has one already.
/// It is made of the node as the graph has it: it may outlive a plan, so it knows nothing of what passes put in place
/// of the node's inputs. Errors: kUnimplemented where there is none, those of making it.
Result<std::shared_ptr<Kernel>> find_kernel(const Node& node, DeviceKind kind, const KernelRegistry& registry,
                                            KernelCache& cache);

/// The kind of a node's kernel. Errors: kInternal where it is not that of its registration (unless that is kUnknown),
/// or the executor has no use for it.
Result<KernelKind> check_kind(const Node& node, const Kernel& kernel, KernelKind registered);

}  // namespace troupe
