// SPDX-License-Identifier: Apache-2.0
// Datasets that begin a pipeline: tensors and ranges of numbers.
#include "ops/data/dataset_op.h"
#include "ops/data/register.h"

namespace troupe {

void register_data_source_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_dataset_op(ops, kernels,
                 OpDef("TensorDataset")
                     .input("components: Toutput_types")
                     .stateful()
                     .doc("A dataset of one element, the components."),
                 plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
                   return GraphDataset{make_single_stage(in.tensors(0))};
                 }),
                 {"Toutput_types"});
  add_dataset_op(ops, kernels,
                 OpDef("TensorSliceDataset")
                     .input("components: Toutput_types")
                     .attr("is_files: bool = false")
                     .attr("replicate_on_split: bool = false")
                     .stateful()
                     .doc("A dataset whose element i is row i of each component. Error: components without rows, or "
                          "of different numbers of them. is_files and replicate_on_split make no difference."),
                 plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
                   Element components = in.tensors(0);
                   for (size_t i = 0; i < components.size(); ++i) {
                     const Tensor& t = components[i];
                     if (t.rank() == 0) return invalid_argument("component {} is a scalar, which has no rows", i);
                     if (t.dim(0) != components[0].dim(0))
                       return invalid_argument("components 0 and {} have {} and {} rows", i, components[0].dim(0),
                                               t.dim(0));
                   }
                   return GraphDataset{make_rows_stage(std::move(components))};
                 }),
                 {"Toutput_types"});
  add_dataset_op(ops, kernels,
                 OpDef("RangeDataset")
                     .input("start: int64")
                     .input("stop: int64")
                     .input("step: int64")
                     .attr("replicate_on_split: bool = false")
                     .stateful()
                     .doc("The numbers from start on, by step, as long as they are before stop, as scalars of the type "
                          "in output_types. Error: a step of 0. replicate_on_split makes no difference."),
                 plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
                   TROUPE_ASSIGN(const int64_t start, in.integer(0, "start"));
                   TROUPE_ASSIGN(const int64_t stop, in.integer(1, "stop"));
                   TROUPE_ASSIGN(const int64_t step, in.integer(2, "step"));
                   TROUPE_ASSIGN(StagePtr stage, make_range_stage(start, stop, step, in.dtypes()[0]));
                   return GraphDataset{std::move(stage)};
                 }));
}

}  // namespace troupe
