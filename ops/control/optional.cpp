// SPDX-License-Identifier: Apache-2.0
// Values that may be there or not: Optional... TensorFlow's gradients of branches keep values in them. Here each is a
// list of its components; one without a value is an empty list.
#include "ops/control/register.h"
#include "ops/parts/element_list.h"
#include "troupe/graph.h"
#include "troupe/scope.h"

namespace troupe {
namespace {

class FromValue final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TensorList list;
    for (int i = 0; i < c.num_inputs(); ++i) list.elements.push_back(c.input(i));
    c.set_output(0, list_tensor(std::move(list)));
    return {};
  }
};

class HasValue final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const TensorList* list, list_of(c.input(0)));
    c.set_output(0, Tensor::scalar(!list->elements.empty()));
    return {};
  }
};

class GetValue final : public ComputeKernel {
 public:
  explicit GetValue(const KernelInit& init) : dtypes_(init.output_dtypes) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const TensorList* list, list_of(c.input(0)));
    if (list->elements.empty()) return invalid_argument("the optional has no value");
    if (list->elements.size() != dtypes_.size())
      return invalid_argument("an optional of {} components, where {} are expected", list->elements.size(),
                              dtypes_.size());
    for (size_t i = 0; i < dtypes_.size(); ++i) {
      if (list->elements[i].dtype() != dtypes_[i])
        return invalid_argument("component {} is {}, where {} is expected", i, to_string(list->elements[i].dtype()),
                                to_string(dtypes_[i]));
      c.set_output(static_cast<int>(i), list->elements[i]);
    }
    return {};
  }

 private:
  const std::vector<DType> dtypes_;
};

Status get_shapes(ShapeContext& c) {
  const auto& shapes = c.attr<std::vector<PartialShape>>("output_shapes");
  for (int i = 0; i < c.num_outputs() && i < static_cast<int>(shapes.size()); ++i)
    c.set_output(i, shapes[static_cast<size_t>(i)]);
  return {};
}

Status from_value_gradient(GradientContext& c) {
  const Attrs& attrs = c.node().attrs();
  std::vector<PartialShape> shapes;
  for (int i = 0; i < c.num_inputs(); ++i) shapes.push_back(c.input(i).shape());
  const std::vector<Output> values =
      c.ops("OptionalGetValue", {c.dy(0)},
            {{"output_types", *attrs.get<std::vector<DType>>("Toutput_types")}, {"output_shapes", shapes}});
  for (size_t i = 0; i < values.size(); ++i) c.set_dx(static_cast<int>(i), values[i]);
  return {};
}

Status get_value_gradient(GradientContext& c) {
  std::vector<Output> dys;
  for (int i = 0; i < c.node().num_outputs(); ++i) dys.push_back(c.dy(i) ? c.dy(i) : c.op("ZerosLike", {c.output(i)}));
  c.set_dx(0, c.op("OptionalFromValue", dys));
  return {};
}

}  // namespace

void register_optional_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("OptionalFromValue")
              .input("components: Toutput_types")
              .output("optional: variant")
              .attr("Toutput_types: list(type) >= 1")
              .shape(scalar_shape)
              .doc("An optional that has these components."),
          gradient(from_value_gradient));
  ops.add(OpDef("OptionalNone").output("optional: variant").shape(scalar_shape).doc("An optional without a value."),
          not_differentiable("it holds nothing"));
  ops.add(OpDef("OptionalHasValue")
              .input("optional: variant")
              .output("has_value: bool")
              .shape(scalar_shape)
              .doc("Whether there is a value."),
          not_differentiable("a predicate is not continuous"));
  ops.add(OpDef("OptionalGetValue")
              .input("optional: variant")
              .output("components: output_types")
              .attr("output_types: list(type) >= 1")
              .attr("output_shapes: list(shape) >= 1")
              .shape(get_shapes)
              .doc("The components; an error where there is no value."),
          gradient(get_value_gradient));
  kernels.add<FromValue>("OptionalFromValue", DeviceKind::kCpu, {});
  kernels.add<FromValue>("OptionalNone", DeviceKind::kCpu, {});
  kernels.add<HasValue>("OptionalHasValue", DeviceKind::kCpu, {});
  kernels.add<GetValue>("OptionalGetValue", DeviceKind::kCpu, {});
}

}  // namespace troupe
