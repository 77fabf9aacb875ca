// SPDX-License-Identifier: Apache-2.0
// What the ops on resources share: the kernel that makes a handle, and the checks of a request.
#pragma once
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "troupe/kernel.h"

namespace troupe {

/// Outputs one handle, always the same tensor.
class HandleKernel final : public ComputeKernel {
 public:
  explicit HandleKernel(ResourceHandle handle)
      : value_(Tensor::scalar<ResourceRef>(std::make_shared<const ResourceHandle>(std::move(handle)))) {}
  Status compute(KernelContext& context) override {
    context.set_output(0, value_);
    return {};
  }
  const Tensor* constant() const override { return &value_; }

 private:
  const Tensor value_;
};

/// A handle of the node's `container` and `shared_name`; an empty shared_name stands for the node's name.
inline ResourceHandle make_handle(const KernelInit& init, std::string type) {
  const auto& shared = init.attr<std::string>("shared_name");
  ResourceHandle handle;
  handle.type = std::move(type);
  handle.container = init.attr<std::string>("container");
  handle.name = shared.empty() ? std::string(init.node) : shared;
  return handle;
}

/// The op with all attributes but the names of the resource: what nodes that share one must agree on.
inline std::string signature_of(const KernelInit& init) {
  std::string out(init.op);
  for (const auto& [name, value] : *init.attrs)
    if (name != "shared_name" && name != "container" && !name.starts_with('_'))
      out += fmt::format(" {}={}", name, to_string(value));
  return out;
}

/// The handle that input i holds, or nullptr when it holds none.
inline const ResourceHandle* handle_at(const ResourceRequest& request, int i) {
  const Tensor& t = request.inputs[i];
  return t.dtype() == DType::kResource && t.elements() == 1 ? t.data<ResourceRef>()->get() : nullptr;
}

/// The host as the core C that the op is for. Error: kInvalidArgument where it is another.
template <class C> Result<C*> core_of(Resource& resource, const ResourceRequest& request, const char* wanted) {
  const ResourceHandle* handle = handle_at(request, 0);
  C* core = nullptr;
  if constexpr (std::is_final_v<C>)
    core = handle && typeid(resource) == typeid(C) ? static_cast<C*>(&resource) : nullptr;
  else core = handle ? dynamic_cast<C*>(&resource) : nullptr;
  if (!core) [[unlikely]]
    return invalid_argument("the op needs a {}; input 0 is {}", wanted,
                            handle ? handle->type + " '" + handle->name + "'" : "no resource handle");
  return core;
}

/// The same of a kernel that replies: replies the error, and returns nullptr.
template <class C> C* core_as(Resource& resource, ResourceRequest& request, const char* wanted) {
  auto core = core_of<C>(resource, request, wanted);
  if (core.ok()) return *core;
  request.reply(std::move(core.error()));
  return nullptr;
}

/// One output, as a reply; it goes in `list`, whose tensors are no longer needed: that of the inputs spares making one.
inline Result<std::vector<Tensor>> one_output(Result<Tensor> value, std::vector<Tensor>&& list = {}) {
  if (!value.ok()) return std::move(value.error());
  list.clear();
  list.push_back(std::move(value).value());
  return std::move(list);
}

/// No output, as a reply; `list` as above.
inline Result<std::vector<Tensor>> no_output(Status status, std::vector<Tensor>&& list = {}) {
  if (!status.ok()) return std::move(status.error());
  list.clear();
  return std::move(list);
}

}  // namespace troupe
