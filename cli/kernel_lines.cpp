// SPDX-License-Identifier: Apache-2.0
// Kernels of an op as lines of text.
#include "cli/kernel_lines.h"

namespace troupe {

std::vector<std::string> kernel_lines(const KernelRegistry& kernels, std::string_view op) {
  std::vector<std::pair<std::string, std::string>> lines;  // device and attribute, types
  for (const auto& [kind, types] : kernels.kernels(op)) {
    std::string device = kind == DeviceKind::kCpu ? "cpu" : kind == DeviceKind::kCuda ? "gpu" : "sim";
    std::string names;
    for (const auto& [attr, allowed] : types) {
      if (types.size() == 1) device += " " + attr + ":";
      else names += " " + attr + ":";
      for (DType t : allowed) names += std::string(" ") + to_string(t);
    }
    const bool joins = types.size() == 1 && !lines.empty() && lines.back().first == device;
    if (joins) lines.back().second += names;
    else lines.emplace_back(device, names);
  }
  std::vector<std::string> out;
  for (const auto& [device, names] : lines) out.push_back(device + names);
  return out;
}

}  // namespace troupe
