// SPDX-License-Identifier: Apache-2.0
#include "devices/device.h"

namespace troupe {
namespace {

Error not_done(const DeviceInfo& device, const char* what) {
  return make_error(Code::kInternal, "{} {}", device.name, what);
}

}  // namespace

Result<Ran> Device::run(const Node&, ComputeKernel*, KernelContext&, std::span<const Tensor>) {
  return not_done(info, "calls its kernels directly");
}

Error Device::reason(Error error) { return error; }

bool Device::holds(const Tensor&) const { return false; }

Result<Tensor> Device::copy_in(const Tensor&, WorkTimer*) { return not_done(info, "has no memory of its own"); }

bool Device::copies_in_later(const Tensor&) const { return false; }

void Device::copy_in_later(const Tensor&, const RequestTag&, std::shared_ptr<WorkTimer>) {}

Status Device::copy_out(const Tensor&, const RequestTag&, WorkTimer*) {
  return not_done(info, "has no memory of its own");
}

Status Device::mark(const RequestTag&) { return not_done(info, "has done what it has run"); }

std::shared_ptr<WorkTimer> Device::timer() { return nullptr; }

}  // namespace troupe
