// SPDX-License-Identifier: Apache-2.0
#include "ops/data/dataset_op.h"

#include <algorithm>

#include "base/threads_available.h"
#include "ops/text/string_map.h"
#include "troupe/op_cost.h"

namespace troupe {
namespace {

class DatasetKernel final : public ComputeKernel {
 public:
  DatasetKernel(MakeDataset make, ComponentTypes dtypes, ComponentShapes shapes)
      : make_(std::move(make)), dtypes_(std::move(dtypes)), shapes_(std::move(shapes)) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(GraphDataset made, make_(DatasetInputs(c, dtypes_, shapes_)));
    c.set_output(0, dataset_tensor(std::move(made)));
    return {};
  }

 private:
  const MakeDataset make_;
  const ComponentTypes dtypes_;
  const ComponentShapes shapes_;
};

}  // namespace

Element DatasetInputs::tensors(int begin, int end) const {
  Element out;
  for (int i = begin; i < (end < 0 ? context_.num_inputs() : end); ++i) out.push_back(tensor(i));
  return out;
}

Result<StagePtr> DatasetInputs::stage(int i, const char* what) const {
  TROUPE_ASSIGN(GraphDataset dataset, dataset_of(context_.input(i), what));
  return stage_within(std::move(dataset));
}

Result<int64_t> DatasetInputs::integer(int i, const char* what, int64_t least) const {
  const Tensor& t = tensor(i);
  if (t.elements() != 1) return invalid_argument("{} must be a scalar, not {}", what, t.str());
  const int64_t value = t.dtype() == DType::kInt32 ? t.data<int32_t>()[0] : t.data<int64_t>()[0];
  if (value < least) return invalid_argument("{} must be at least {}, got {}", what, least, value);
  return value;
}

Result<bool> DatasetInputs::boolean(int i, const char* what) const {
  const Tensor& t = tensor(i);
  if (t.elements() != 1) return invalid_argument("{} must be a scalar, not {}", what, t.str());
  return t.data<bool>()[0];
}

Result<int64_t> DatasetInputs::parallel_calls(int i) const {
  TROUPE_ASSIGN(const int64_t calls, integer(i, "num_parallel_calls"));
  if (calls == -1) return std::clamp<int64_t>(2 * int64_t{count_cores_available()}, 4, 16);
  if (calls < 1) return invalid_argument("num_parallel_calls must be at least 1, or -1, got {}", calls);
  return calls;
}

Result<std::string> DatasetInputs::string(int i, const char* what) const { return one_string(tensor(i), what); }

OpDef with_function(std::string_view name, std::string_view attr) {
  return OpDef(name)
      .input("input_dataset: variant")
      .input("other_arguments: Targuments")
      .attr(fmt::format("{}: string", attr))
      .attr("Targuments: list(type) >= 0");
}

void add_dataset_op(OpRegistry& ops, KernelRegistry& kernels, OpDef def, PlanDataset plan, DatasetSchema schema) {
  const std::string name = def.name();
  def.output("handle: variant");
  if (schema.types && !def.find_attr(schema.types)) def.attr(fmt::format("{}: list(type) >= 1", schema.types));
  if (schema.types) def.attr("output_shapes: list(shape) >= 1");
  if (schema.metadata) def.attr("metadata: string = ''");
  def.shape(scalar_shape).cost(no_cost);
  ops.add(def, not_differentiable("a dataset is not a number"));
  kernels.add(
      name, DeviceKind::kCpu, {},
      [plan = std::move(plan), types = schema.types](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
        TROUPE_ASSIGN(MakeDataset make, plan(init));
        ComponentTypes dtypes{DType::kString};
        ComponentShapes shapes{PartialShape::scalar()};
        if (types) {
          dtypes = init.attr<ComponentTypes>(types);
          shapes = init.attr<ComponentShapes>("output_shapes");
        }
        if (dtypes.size() != shapes.size())
          return invalid_argument("{} has {} types but output_shapes {}", types, dtypes.size(), shapes.size());
        return std::unique_ptr<ComputeKernel>(new DatasetKernel(std::move(make), std::move(dtypes), std::move(shapes)));
      });
}

}  // namespace troupe
