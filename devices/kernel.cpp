// SPDX-License-Identifier: Apache-2.0
// The kernel registry.
#include "troupe/kernel.h"

#include <algorithm>
#include <stdexcept>

#include "troupe/blocking_kernel.h"
#include "troupe/guarded.h"

namespace troupe {
namespace {

const char* name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu: return "cpu";
    case DeviceKind::kCuda: return "gpu";
    case DeviceKind::kSim: return "sim";
  }
  return "?";
}

bool of_types(const KernelRegistry::Types& types, const Attrs& attrs) {
  for (const auto& [name, allowed] : types) {
    const DType* dtype = attrs.get<DType>(name);
    if (dtype && std::ranges::find(allowed, *dtype) == allowed.end()) return false;
  }
  return true;
}

std::string describe(const KernelRegistry::Types& types) {
  std::string out;
  for (const auto& [name, allowed] : types) {
    out += (out.empty() ? "" : "; ") + name + " in ";
    for (size_t i = 0; i < allowed.size(); ++i) out += std::string(i ? "," : "") + to_string(allowed[i]);
  }
  return out.empty() ? "any type" : out;
}

}  // namespace

const char* to_string(KernelKind kind) {
  switch (kind) {
    case KernelKind::kUnknown: return "unknown";
    case KernelKind::kCompute: return "compute";
    case KernelKind::kResource: return "resource";
    case KernelKind::kBlocking: return "blocking";
    case KernelKind::kConst: return "constant";
    case KernelKind::kNoOp: return "no-op";
    case KernelKind::kPlaceholder: return "placeholder";
    case KernelKind::kControlFlow: return "control flow";
  }
  return "?";
}

KernelKind kind_of(const Kernel& kernel) {
  if (dynamic_cast<const ComputeKernel*>(&kernel)) return KernelKind::kCompute;
  if (dynamic_cast<const ResourceKernel*>(&kernel)) return KernelKind::kResource;
  if (dynamic_cast<const BlockingKernel*>(&kernel)) return KernelKind::kBlocking;
  const auto* builtin = dynamic_cast<const BuiltinKernel*>(&kernel);
  if (!builtin) return KernelKind::kUnknown;
  switch (builtin->kind) {
    case Builtin::kConst: return KernelKind::kConst;
    case Builtin::kNoOp: return KernelKind::kNoOp;
    case Builtin::kPlaceholder: return KernelKind::kPlaceholder;
    case Builtin::kControlFlow: return KernelKind::kControlFlow;
  }
  return KernelKind::kUnknown;
}

void KernelContext::no_such(const char* what, int i, int count) {
  throw std::out_of_range(fmt::format("the kernel asked for {} {} of {}", what, i, count));
}

void KernelRegistry::add(std::string_view op, DeviceKind kind, Types types, KernelFactory factory) {
  add(op, kind, std::move(types), std::move(factory), HostMemory());
}

void KernelRegistry::add(std::string_view op, DeviceKind kind, Types types, KernelFactory factory, HostMemory host) {
  entries_[std::string(op)].push_back(
      std::make_shared<const Entry>(Entry{kind, std::move(types), std::move(factory), checked_, std::move(host)}));
}

void KernelRegistry::add(std::string_view op, DeviceKind kind, std::string_view attr, DType dtype,
                         KernelFactory factory) {
  add(op, kind, Types{{std::string(attr), {dtype}}}, std::move(factory));
}

Result<std::unique_ptr<Kernel>> KernelRegistry::made_by(const Entry& entry, const KernelInit& init) const {
  auto kernel = guarded([&] {
    if (!data_folders_) return entry.factory(init);
    KernelInit limited = init;
    limited.data_folders = data_folders_;
    return entry.factory(limited);
  });
  if (kernel.ok() && !*kernel) return make_error(Code::kInternal, "the factory of its kernel made none");
  if (kernel.ok()) (*kernel)->checked = entry.checked;
  if (kernel.ok() && entry.checked && entry.kind == DeviceKind::kCuda)
    (*kernel)->host_outputs = std::make_shared<const std::vector<int>>(entry.host.outputs);
  return kernel;
}

bool KernelRegistry::is_for(const Entry& entry, DeviceKind kind, const Attrs& attrs) {
  if (entry.kind == kind) return true;
  if (kind != DeviceKind::kCuda || entry.kind != DeviceKind::kCpu) return false;
  const auto known = guarded([&] { return Result<KernelKind>(entry.factory.kind(attrs)); });
  return known.ok() && *known >= KernelKind::kConst;
}

Result<const KernelRegistry::Entry*> KernelRegistry::find(std::string_view op, DeviceKind kind,
                                                          const Attrs& attrs) const {
  const auto at = entries_.find(op);
  if (at != entries_.end())
    for (const auto& e : at->second)
      if (is_for(*e, kind, attrs) && of_types(e->types, attrs)) return e.get();
  std::string there, asked;
  if (at != entries_.end())
    for (const auto& e : at->second)
      there += fmt::format("{}{}: {}", there.empty() ? "" : " | ", name_of(e->kind), describe(e->types));
  for (const auto& [name, value] : attrs)
    if (const DType* dtype = std::get_if<DType>(&value)) asked += fmt::format(" {}={}", name, to_string(*dtype));
  return make_error(Code::kUnimplemented, "no kernel on {} for{}; there are: {}", name_of(kind),
                    asked.empty() ? " it" : asked, there.empty() ? "none" : there);
}

Result<std::unique_ptr<Kernel>> KernelRegistry::make(const KernelInit& init, DeviceKind kind) const {
  TROUPE_ASSIGN(const Entry* const entry, find(init.op, kind, *init.attrs));
  return made_by(*entry, init);
}

Result<KernelKind> KernelRegistry::kind(std::string_view op, DeviceKind device, const Attrs& attrs) const {
  TROUPE_ASSIGN(const Entry* const entry, find(op, device, attrs));
  return guarded([&] { return Result<KernelKind>(entry->factory.kind(attrs)); });
}

Result<KernelRegistry::HostMemory> KernelRegistry::host_memory(std::string_view op, DeviceKind device,
                                                               const Attrs& attrs) const {
  TROUPE_ASSIGN(const Entry* const entry, find(op, device, attrs));
  return entry->host;
}

bool KernelRegistry::serves(std::string_view op, DeviceKind kind, const Attrs& attrs) const {
  const auto at = entries_.find(op);
  return at != entries_.end() && std::ranges::any_of(at->second, [&](const auto& e) {
           return is_for(*e, kind, attrs) && of_types(e->types, attrs);
         });
}

bool KernelRegistry::has(std::string_view op, DeviceKind kind) const {
  auto at = entries_.find(op);
  return at != entries_.end() && std::ranges::any_of(at->second, [kind](const auto& e) { return e->kind == kind; });
}

std::vector<std::pair<DeviceKind, KernelRegistry::Types>> KernelRegistry::kernels(std::string_view op) const {
  std::vector<std::pair<DeviceKind, Types>> out;
  if (auto at = entries_.find(op); at != entries_.end())
    for (const auto& e : at->second) out.emplace_back(e->kind, e->types);
  return out;
}

}  // namespace troupe
