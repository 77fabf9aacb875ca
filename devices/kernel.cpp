// SPDX-License-Identifier: Apache-2.0
// The kernel registry.
#include "troupe/kernel.h"

#include <algorithm>
#include <stdexcept>

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

bool serves(const KernelRegistry::Types& types, const Attrs& attrs) {
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

void KernelContext::no_such(const char* what, int i, int count) {
  throw std::out_of_range(fmt::format("the kernel asked for {} {} of {}", what, i, count));
}

void KernelRegistry::add(std::string_view op, DeviceKind kind, Types types, KernelFactory factory) {
  entries_[std::string(op)].push_back({kind, std::move(types), std::move(factory), checked_});
}

void KernelRegistry::add(std::string_view op, DeviceKind kind, std::string_view attr, DType dtype,
                         KernelFactory factory) {
  add(op, kind, Types{{std::string(attr), {dtype}}}, std::move(factory));
}

Result<std::unique_ptr<Kernel>> KernelRegistry::made_by(const Entry& entry, const KernelInit& init) {
  auto kernel = guarded([&] { return entry.factory(init); });
  if (kernel.ok() && !*kernel) return make_error(Code::kInternal, "the factory of its kernel made none");
  if (kernel.ok()) (*kernel)->checked = entry.checked;
  return kernel;
}

Result<std::unique_ptr<Kernel>> KernelRegistry::make(const KernelInit& init, DeviceKind kind) const {
  std::string there;
  if (auto at = entries_.find(init.op); at != entries_.end()) {
    for (const Entry& e : at->second) {
      if (e.kind == kind && serves(e.types, *init.attrs)) return made_by(e, init);
      there += fmt::format("{}{}: {}", there.empty() ? "" : " | ", name_of(e.kind), describe(e.types));
    }
  }
  std::string asked;
  for (const auto& [name, value] : *init.attrs)
    if (const DType* dtype = std::get_if<DType>(&value)) asked += fmt::format(" {}={}", name, to_string(*dtype));
  return make_error(Code::kUnimplemented, "no kernel on {} for{}; there are: {}", name_of(kind),
                    asked.empty() ? " it" : asked, there.empty() ? "none" : there);
}

bool KernelRegistry::has(std::string_view op, DeviceKind kind) const {
  auto at = entries_.find(op);
  return at != entries_.end() && std::ranges::any_of(at->second, [kind](const Entry& e) { return e.kind == kind; });
}

std::vector<std::pair<DeviceKind, KernelRegistry::Types>> KernelRegistry::kernels(std::string_view op) const {
  std::vector<std::pair<DeviceKind, Types>> out;
  if (auto at = entries_.find(op); at != entries_.end())
    for (const Entry& e : at->second) out.emplace_back(e.kind, e.types);
  return out;
}

}  // namespace troupe
