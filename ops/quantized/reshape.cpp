// SPDX-License-Identifier: Apache-2.0
// Other shapes of integers that stand for numbers: QuantizedReshape.
#include "ops/array/reshape.h"
#include "ops/parts/type_dispatch.h"
#include "ops/quantized/range.h"
#include "ops/quantized/register.h"

namespace troupe {
namespace {

/// Reshape of integers that stand for numbers of a range, which stays.
class QuantizedReshape final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const CodeRange range, range_at(c, 2));
    set_range(c, 1, range);
    TROUPE_ASSIGN(const PartialShape shape, reshaped(c.input(1), c.input(0).shape()));
    TROUPE_ASSIGN(Tensor y, c.input(0).reshape(shape.shape()));
    c.set_output(0, std::move(y));
    return {};
  }
};

Status quantized_reshape_shape(ShapeContext& c) {
  set_range_shape(c);
  return reshape_shape(c);
}

}  // namespace

void register_quantized_reshape_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("QuantizedReshape")
              .input("tensor: T")
              .input("shape: Tshape")
              .input("input_min: float32")
              .input("input_max: float32")
              .output("output: T")
              .output("output_min: float32")
              .output("output_max: float32")
              .attr("T: {uint8, int32}")
              .attr(type_attr("Tshape", IndexTypes{}, "int32"))
              .shape(quantized_reshape_shape)
              .doc("Reshape of integers that stand for the numbers of a range, which stays."),
          not_differentiable(kQuantized));
  kernels.add<QuantizedReshape>("QuantizedReshape", DeviceKind::kCpu, {});
}

}  // namespace troupe
