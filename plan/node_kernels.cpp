// SPDX-License-Identifier: Apache-2.0
// Kernels of nodes, made or found.
#include "plan/node_kernels.h"

#include "plan/cut.h"
#include "troupe/guarded.h"

namespace troupe {
namespace {

/// What a shareable kernel may depend on, as a key; empty where attributes are too large to compare.
std::string kernel_key(const Node& node, DeviceKind kind) {
  std::string key(1, static_cast<char>(kind));
  key += node.op().name();
  for (const auto& [name, value] : node.attrs()) {
    if (name == "_class" || name == kNodeIdAttr || name == kPriorityAttr) continue;  // where, not what
    key += '\0';
    key += name;
    if (const DType* dtype = std::get_if<DType>(&value)) key += static_cast<char>(*dtype);
    else if (std::holds_alternative<Tensor>(value)) return {};
    else key += to_string(value);
  }
  return key;
}

/// CPUs have even places, GPUs odd ones.
size_t place_of(int id, DeviceKind kind) {
  return 2 * static_cast<size_t>(id) + (that_runs(kind) == DeviceKind::kCuda ? 1 : 0);
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

std::shared_ptr<Kernel> KernelCache::find(int id, DeviceKind kind) const {
  const std::lock_guard lock(mutex_);
  const size_t at = place_of(id, kind);
  return at < by_node_.size() ? by_node_[at] : nullptr;
}

std::shared_ptr<Kernel> KernelCache::keep(int id, DeviceKind kind, std::shared_ptr<Kernel> kernel) {
  const std::lock_guard lock(mutex_);
  const size_t at = place_of(id, kind);
  if (at >= by_node_.size()) by_node_.resize(at + 1);
  if (!by_node_[at]) by_node_[at] = std::move(kernel);
  return by_node_[at];
}

std::shared_ptr<Kernel> KernelCache::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto at = shareable_.find(key);
  return at == shareable_.end() ? nullptr : at->second.lock();
}

std::shared_ptr<Kernel> KernelCache::keep(const std::string& key, std::shared_ptr<Kernel> kernel) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<Kernel>& kept = shareable_[key];
  if (auto known = kept.lock()) return known;
  kept = kernel;
  return kernel;
}

std::shared_ptr<const Tensor> KernelCache::find_constant(int id, uint32_t device) const {
  const std::lock_guard lock(mutex_);
  const auto at = constants_.find({id, device});
  return at == constants_.end() ? nullptr : at->second.lock();
}

std::shared_ptr<const Tensor> KernelCache::keep_constant(int id, uint32_t device, std::shared_ptr<const Tensor> value) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<const Tensor>& kept = constants_[{id, device}];
  if (auto first = kept.lock()) return first;
  kept = value;
  return value;
}

void KernelCache::forget_unused() {
  const std::lock_guard lock(mutex_);
  std::erase_if(constants_, [](const auto& entry) { return entry.second.expired(); });
  std::erase_if(shareable_, [](const auto& entry) { return entry.second.expired(); });
}

Error at_node(Error error, const Node& node) {
  if (error.node.empty()) error.node = node.name();
  if (error.op.empty()) error.op = node.op().name();
  return error;
}

Result<KernelKind> kernel_kind(const Node& node, DeviceKind kind, const KernelRegistry& registry) {
  auto found = registry.kind(node.op().name(), that_runs(kind), node.attrs());
  if (!found.ok()) return at_node(std::move(found.error()), node);
  return found;
}

Result<std::shared_ptr<Kernel>> find_kernel(const Node& node, DeviceKind kind, const KernelRegistry& registry,
                                            KernelCache& cache) {
  kind = that_runs(kind);
  const std::string key = kernel_key(node, kind);
  if (auto known = key.empty() ? nullptr : cache.find(key)) return known;
  TROUPE_ASSIGN(std::shared_ptr<Kernel> kernel, make_kernel(node, kind, registry));
  auto shareable = guarded([&] { return Result<bool>(!key.empty() && kernel->shareable()); });
  if (!shareable.ok()) return at_node(std::move(shareable.error()), node);
  if (!*shareable) return kernel;
  return cache.keep(key, std::move(kernel));
}

Result<KernelKind> check_kind(const Node& node, const Kernel& kernel, KernelKind registered) {
  const KernelKind kind = kind_of(kernel);
  if (kind == KernelKind::kUnknown)
    return at_node(make_error(Code::kInternal,
                              "its kernel must derive from ComputeKernel, ResourceKernel or "
                              "BlockingKernel, not from Kernel alone"),
                   node);
  if (kernel.checked && kind >= KernelKind::kConst)  // what it promises of its outputs nobody would hold it to
    return at_node(make_error(Code::kInternal,
                              "its kernel must derive from ComputeKernel, ResourceKernel or "
                              "BlockingKernel, not be a BuiltinKernel"),
                   node);
  if (registered != KernelKind::kUnknown && registered != kind)
    return at_node(make_error(Code::kInternal, "its kernel is registered as {}, but the one made is {}",
                              to_string(registered), to_string(kind)),
                   node);
  return kind;
}

}  // namespace troupe
