// SPDX-License-Identifier: Apache-2.0
// What TensorFlow puts where a value is not known to graphs: FakeParam, DeviceIndex.
#include <algorithm>

#include "ops/control/register.h"
#include "troupe/kernel.h"
#include "troupe/op_cost.h"

namespace troupe {
namespace {

class FakeParam final : public ComputeKernel {
 public:
  explicit FakeParam(const KernelInit& init)
      : dtype_(init.output_dtypes[0]), shape_(init.attr<PartialShape>("shape")) {}
  Status compute(KernelContext& c) override {
    std::vector<int64_t> sizes;
    if (shape_.has_rank())
      for (const int64_t d : shape_.dims()) sizes.push_back(std::max<int64_t>(d, 0));
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(dtype_, shape, c.device().allocator));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const DType dtype_;
  const PartialShape shape_;
};

class DeviceIndex final : public ComputeKernel {
 public:
  explicit DeviceIndex(const KernelInit& init) {
    const auto& names = init.attr<std::vector<std::string>>("device_names");
    index_ = static_cast<int32_t>(std::ranges::find(names, "CPU") - names.begin());
  }
  Status compute(KernelContext& c) override {
    c.set_output(0, Tensor::scalar(index_));
    return {};
  }

 private:
  int32_t index_;
};

}  // namespace

void register_stand_in_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("FakeParam")
              .output("output: dtype")
              .attr("dtype: type")
              .attr("shape: shape")
              .doc("Zeros of this shape, where unknown sizes are 0: what a branch gives that only the other one has.")
              .shape([](ShapeContext& c) -> Status {
                c.set_output(0, c.attr<PartialShape>("shape"));
                return {};
              })
              .cost(no_cost),
          not_differentiable("it has no inputs"));
  kernels.add<FakeParam>("FakeParam", DeviceKind::kCpu, {});
  ops.add(OpDef("DeviceIndex")
              .output("index: int32")
              .attr("device_names: list(string)")
              .doc("Which of device_names is CPU; as many as they are where none is.")
              .shape(scalar_shape)
              .cost(no_cost),
          not_differentiable("it has no inputs"));
  kernels.add<DeviceIndex>("DeviceIndex", DeviceKind::kCpu, {});
}

}  // namespace troupe
