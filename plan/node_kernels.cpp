// SPDX-License-Identifier: Apache-2.0
#include "plan/node_kernels.h"

namespace troupe {
namespace {

/// What a shareable kernel may depend on, as a key; empty where attributes are too large to compare.
std::string kernel_key(const Node& node, DeviceKind kind) {
  std::string key(1, static_cast<char>(kind));
  key += node.op().name();
  for (const auto& [name, value] : node.attrs()) {
    if (name == "_class") continue;  // where, not what
    key += '\0';
    key += name;
    if (const DType* dtype = std::get_if<DType>(&value)) key += static_cast<char>(*dtype);
    else if (std::holds_alternative<Tensor>(value)) return {};
    else key += to_string(value);
  }
  return key;
}

Result<std::shared_ptr<Kernel>> make_kernel(const Node& node, DeviceKind kind, const KernelRegistry& registry) {
  KernelInit init{node.op().name(), node.name(), &node.attrs(), {}, {}, {}, {}};
  for (const Output& in : node.inputs()) {
    init.input_dtypes.push_back(in.dtype());
    init.input_shapes.push_back(in.shape());
    const Tensor* value = in.node->op().name() == "Const" ? in.node->attrs().get<Tensor>("value") : nullptr;
    init.constants.push_back(value ? *value : Tensor());
  }
  for (int i = 0; i < node.num_outputs(); ++i) init.output_dtypes.push_back(node.dtype(i));
  auto made = registry.make(init, kind);
  if (!made.ok()) return at_node(std::move(made.error()), node);
  return std::shared_ptr<Kernel>(std::move(made).value());
}

}  // namespace

Error at_node(Error error, const Node& node) {
  if (error.node.empty()) error.node = node.name();
  if (error.op.empty()) error.op = node.op().name();
  return error;
}

Result<std::shared_ptr<Kernel>> find_kernel(const Node& node, DeviceKind kind, const KernelRegistry& registry,
                                            KernelCache& cache) {
  if (kind == DeviceKind::kSim) kind = DeviceKind::kCpu;  // simulated devices run the CPU's kernels
  const std::string key = kernel_key(node, kind);
  if (auto at = cache.shareable.find(key); at != cache.shareable.end())
    if (auto kernel = at->second.lock()) return kernel;
  TROUPE_ASSIGN(std::shared_ptr<Kernel> kernel, make_kernel(node, kind, registry));
  if (!key.empty() && kernel->shareable()) cache.shareable.insert_or_assign(key, kernel);
  return kernel;
}

}  // namespace troupe
