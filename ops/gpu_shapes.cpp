// SPDX-License-Identifier: Apache-2.0
// Arithmetic of shapes beside a GPU. Shapes, sizes and counters of loops are int32, few, and wanted at the host, which
// knows them: on a GPU they would go up, be computed there and come back, and the host would wait for all that the GPU
// had to do before. So these ops of int32 are computed by the CPU's kernels, in the host's memory, as in TensorFlow.
// Those of int64 are not, as there: ids and labels of batches are int64, and belong to the GPU. Nor are Cast, OneHot,
// Equal, Fill and others that lead from integers to data.
#include <array>

#include "devices/host_arguments.h"
#include "graph/passes/keep_at_host.h"
#include "ops/array/register.h"
#include "ops/gpu_kernels.h"
#include "ops/math/register.h"
#include "ops/parts/moves.h"

namespace troupe {
namespace {

/// The CPU's kernel of the same op, on inputs that are in the host's memory.
class AtHost final : public ComputeKernel {
 public:
  AtHost(std::unique_ptr<ComputeKernel> kernel, std::shared_ptr<const DeviceInfo> host)
      : kernel_(std::move(kernel)), host_(std::move(host)) {}
  bool shareable() const override { return kernel_->shareable(); }

  Status compute(KernelContext& c) override {
    const auto count = static_cast<size_t>(c.num_inputs() + c.num_outputs());
    constexpr size_t kFew = 8;
    if (count <= kFew) {
      std::array<Tensor, kFew> values;
      std::array<uint32_t, kFew> slots{};
      std::array<int32_t, kFew> uses{};
      return compute(c, values.data(), slots.data(), uses.data());
    }
    std::vector<Tensor> values(count);
    std::vector<uint32_t> slots(count);
    std::vector<int32_t> uses(count);
    return compute(c, values.data(), slots.data(), uses.data());
  }

 private:
  Status compute(KernelContext& c, Tensor* values, uint32_t* slots, int32_t* uses) {
    const int inputs = c.num_inputs(), outputs = c.num_outputs();
    for (int i = 0; i < inputs; ++i) {
      values[i] = c.input(i);
      slots[i] = static_cast<uint32_t>(i);
      uses[i] = 2;  // this one and the executor's: nothing is written in place
    }
    KernelContext here(values, uses, slots, inputs, static_cast<uint32_t>(inputs), outputs, *host_, c.step(),
                       c.random_step());
    TROUPE_RETURN_IF_ERROR(kernel_->compute(here));
    for (int i = 0; i < outputs; ++i) c.set_output(i, std::move(values[inputs + i]));
    return {};
  }

  const std::unique_ptr<ComputeKernel> kernel_;
  const std::shared_ptr<const DeviceInfo> host_;
};

/// The CPU's kernels of the families that the ops below are of.
std::shared_ptr<const KernelRegistry> kernels_of_cpus() {
  OpRegistry ops;
  auto kernels = std::make_shared<KernelRegistry>();
  register_concat_ops(ops, *kernels);
  register_const_ops(ops, *kernels);
  register_gather_ops(ops, *kernels);
  register_partition_ops(ops, *kernels);
  register_reshape_ops(ops, *kernels);
  register_slice_ops(ops, *kernels);
  register_math_binary_ops(ops, *kernels);
  register_math_unary_ops(ops, *kernels);
  register_reduction_ops(ops, *kernels);
  register_select_ops(ops, *kernels);
  return kernels;
}

}  // namespace

void register_shapes_gpu(KernelRegistry& kernels) {
  auto host = std::make_shared<DeviceInfo>();
  host->name = "host";
  host->allocator = system_allocator();
  const auto make = [cpu = kernels_of_cpus(), host = std::shared_ptr<const DeviceInfo>(std::move(host))](
                        const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
    TROUPE_ASSIGN(std::unique_ptr<Kernel> kernel, cpu->make(init, DeviceKind::kCpu));
    auto* const computes = dynamic_cast<ComputeKernel*>(kernel.get());
    if (!computes) return make_error(Code::kInternal, "its kernel on CPUs does not compute");
    (void)kernel.release();
    return std::unique_ptr<ComputeKernel>(new AtHost(std::unique_ptr<ComputeKernel>(computes), host));
  };
  const auto add = [&](const char* attr, std::initializer_list<const char*> ops) {
    for (const char* op : ops)
      kernels.add(op, DeviceKind::kCuda, KernelRegistry::Types{{attr, {DType::kInt32}}}, make,
                  {{kEveryArgument}, {kEveryArgument}});
  };
  add("T", {"Identity", "StopGradient", "PreventGradient", "EnsureShape"});
  add("dtype", {"PlaceholderWithDefault"});
  add("T", {"Reshape", "ExpandDims", "Squeeze", "Slice", "StridedSlice", "Concat", "ConcatV2", "Pack", "Unpack",
            "Split", "SplitV", "Tile", "DynamicPartition", "DynamicStitch", "ParallelDynamicStitch"});
  add("shape_type", {"ConcatOffset"});
  add("Tparams", {"Gather", "GatherV2"});
  add("T", {"Add", "AddV2", "AddN", "Sub", "Mul", "FloorDiv", "FloorMod", "Maximum", "Minimum"});
  add("T", {"Less", "LessEqual", "Greater", "GreaterEqual"});  // of counters: they say whether a loop goes on
  add("T", {"Select", "SelectV2"});
  add("T", {"Sum", "Prod", "Max", "Min"});
  // Of bool where all inputs are at the host, as a pass finds (HostLogic).
  for (const char* op : {"LogicalAnd", "LogicalOr", "LogicalNot"})
    kernels.add(op, DeviceKind::kCuda, KernelRegistry::Types{{kAtHostAttr, {DType::kBool}}}, make,
                {{kEveryArgument}, {kEveryArgument}});
}

}  // namespace troupe
