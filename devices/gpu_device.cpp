// SPDX-License-Identifier: Apache-2.0
#include "devices/gpu_device.h"

#include "devices/run_kernel.h"
#include "troupe/guarded.h"

namespace troupe {
namespace {

/// Times what is put into the compute stream; copies are timed in their own.
class GpuTimer final : public WorkTimer {
 public:
  explicit GpuTimer(gpu::LogicalDevice& gpu) : stream_(gpu.compute().stream), work_(gpu.timed_events()) {}
  void begin() override { work_.begin(stream_); }
  void end() override { work_.end(stream_); }
  std::optional<double> ns() const override { return in_ns(work_.us()); }
  std::optional<double> ns_after(const WorkTimer& first) const override {
    return in_ns(work_.us_after(static_cast<const GpuTimer&>(first).work_));
  }
  static gpu::TimedWork* work_of(WorkTimer* timer) { return timer ? &static_cast<GpuTimer*>(timer)->work_ : nullptr; }

 private:
  static std::optional<double> in_ns(std::optional<double> us) { return us ? std::optional(*us * 1000) : std::nullopt; }
  gpu::Stream& stream_;
  gpu::TimedWork work_;
};

}  // namespace

Result<Ran> GpuDevice::run(const Node&, ComputeKernel* kernel, KernelContext& context, std::span<const Tensor>) {
  if (!kernel) return Ran{.asks = true};
  Status status = run_kernel(*kernel, context);
  gpu_.compute().stream.uses({});  // what comes next is not this kernel's
  TROUPE_RETURN_IF_ERROR(std::move(status));
  return Ran{};
}

Result<Tensor> GpuDevice::copy_in(const Tensor& value, WorkTimer* timer) {
  return gpu_.copy_in(value, GpuTimer::work_of(timer));
}

void GpuDevice::copy_in_later(const Tensor& value, const RequestTag& tag, std::shared_ptr<WorkTimer> timer) {
  staging_.post([this, value, tag, timer = std::move(timer)] {
    auto there = guarded([&] { return copy_in(value, timer.get()); });
    ResourceAnswer answer{tag, make_error(Code::kInternal, "")};
    if (there.ok()) answer.outputs = std::vector<Tensor>{std::move(*there)};
    else answer.outputs = std::move(there.error());
    answer.timer = timer;
    answer_(std::move(answer));
  });
}

Status GpuDevice::copy_out(const Tensor& value, const RequestTag& tag, WorkTimer* timer) {
  return gpu_.copy_out(
      value,
      [this, tag](Result<Tensor> here) {
        if (here.ok()) answer_({tag, std::vector<Tensor>{std::move(*here)}});
        else answer_({tag, std::move(here.error())});
      },
      GpuTimer::work_of(timer));
}

std::shared_ptr<WorkTimer> GpuDevice::timer() { return std::make_shared<GpuTimer>(gpu_); }

Status GpuDevice::mark(const RequestTag& tag) {
  gpu_.mark([this, tag](Status status) {
    if (status.ok()) answer_({tag, std::vector<Tensor>()});
    else answer_({tag, std::move(status.error())});
  });
  return {};
}

}  // namespace troupe
