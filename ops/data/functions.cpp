// SPDX-License-Identifier: Apache-2.0
// Datasets made by functions of the graph.
#include "ops/data/dataset_op.h"
#include "ops/data/register.h"

namespace troupe {
namespace {

/// `behind`: inputs behind the arguments that the function captured.
PlanDataset map_by(int behind) {
  return [behind](const KernelInit& init) -> Result<MakeDataset> {
    auto f = std::make_shared<CarriedFunction>(init, "f");
    const int end = static_cast<int>(init.input_dtypes.size()) - behind;
    return MakeDataset([f, end](const DatasetInputs& in) -> Result<GraphDataset> {
      TROUPE_ASSIGN(const GraphDataset from, in.dataset());
      return GraphDataset{
          make_pass_map_stage(from.stage, CarriedFunction::bind(f, in.tensors(1, end)), in.dtypes(), in.shapes())};
    });
  };
}

OpDef with_function(std::string_view name, std::string_view attr) {
  return OpDef(name)
      .input("input_dataset: variant")
      .input("other_arguments: Targuments")
      .attr(fmt::format("{}: string", attr))
      .attr("Targuments: list(type) >= 0");
}

}  // namespace

void register_data_function_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_dataset_op(ops, kernels,
                 with_function("MapDataset", "f")
                     .attr("use_inter_op_parallelism: bool = true")
                     .attr("preserve_cardinality: bool = false")
                     .attr("force_synchronous: bool = false")
                     .doc("What the function f, a GraphDef, gives of each element, followed by other_arguments. An "
                          "error costs one element. Other attributes make no difference."),
                 map_by(0));
}

}  // namespace troupe
