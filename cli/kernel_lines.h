// SPDX-License-Identifier: Apache-2.0
// Where an op runs, as people read it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "troupe/kernel.h"

namespace troupe {

/// "cpu T: float32 float64": one line for each kernel of an op, those that differ in one type alone joined.
std::vector<std::string> kernel_lines(const KernelRegistry& kernels, std::string_view op);

}  // namespace troupe
