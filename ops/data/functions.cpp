// SPDX-License-Identifier: Apache-2.0
// Datasets made by functions of the graph.
#include "ops/data/dataset_op.h"
#include "ops/data/register.h"

namespace troupe {
namespace {

/// What `f` gives of each element, of up to `calls` at once.
StagePtr mapped(StagePtr from, const std::shared_ptr<CarriedFunction>& f, Element captured, int64_t calls,
                const ComponentTypes& dtypes, const ComponentShapes& shapes) {
  if (calls == 1)
    return make_pass_map_stage(std::move(from), CarriedFunction::bind(f, std::move(captured)), dtypes, shapes);
  return make_parallel_map_stage(std::move(from), CarriedFunction::bind_begun(f, std::move(captured)), calls, dtypes,
                                 shapes);
}

/// `parallel`: num_parallel_calls is behind the arguments that the function captured.
PlanDataset map_by(bool parallel) {
  return [parallel](const KernelInit& init) -> Result<MakeDataset> {
    auto f = std::make_shared<CarriedFunction>(init, "f");
    const int end = static_cast<int>(init.input_dtypes.size()) - (parallel ? 1 : 0);
    return MakeDataset([f, end, parallel](const DatasetInputs& in) -> Result<GraphDataset> {
      TROUPE_ASSIGN(const StagePtr from, in.stage());
      int64_t calls = 1;
      if (parallel) {
        TROUPE_ASSIGN(calls, in.parallel_calls(end));
      }
      return GraphDataset{mapped(from, f, in.tensors(1, end), calls, in.dtypes(), in.shapes())};
    });
  };
}

/// A map, then batches: behind the arguments are batch_size, num_parallel_calls and drop_remainder.
Result<MakeDataset> map_and_batch(const KernelInit& init) {
  auto f = std::make_shared<CarriedFunction>(init, "f");
  const int end = static_cast<int>(init.input_dtypes.size()) - 3;
  return MakeDataset([f, end](const DatasetInputs& in) -> Result<GraphDataset> {
    TROUPE_ASSIGN(const StagePtr from, in.stage());
    TROUPE_ASSIGN(const int64_t size, in.integer(end, "batch_size", 1));
    TROUPE_ASSIGN(const int64_t calls, in.parallel_calls(end + 1));
    TROUPE_ASSIGN(const bool drop, in.boolean(end + 2, "drop_remainder"));
    return GraphDataset{make_batch_stage(
        mapped(from, f, in.tensors(1, end), calls, in.dtypes(), ComponentShapes(in.shapes().size())), size, drop)};
  });
}

using MakeSomeOf = StagePtr (*)(StagePtr input, PassFn keep);

/// Some of the elements, by the function `predicate`; `behind`: inputs behind the arguments that it captured.
PlanDataset some_by(MakeSomeOf make, int behind = 0) {
  return [make, behind](const KernelInit& init) -> Result<MakeDataset> {
    auto predicate = std::make_shared<CarriedFunction>(init, "predicate");
    const int end = static_cast<int>(init.input_dtypes.size()) - behind;
    return MakeDataset([predicate, make, end](const DatasetInputs& in) -> Result<GraphDataset> {
      TROUPE_ASSIGN(const StagePtr from, in.stage());
      return GraphDataset{make(from, CarriedFunction::bind(predicate, in.tensors(1, end)))};
    });
  };
}

Result<MakeDataset> scan(const KernelInit& init) {
  auto f = std::make_shared<CarriedFunction>(init, "f");
  const int states = static_cast<int>(init.attr<ComponentTypes>("Tstate").size());
  return MakeDataset([f, states](const DatasetInputs& in) -> Result<GraphDataset> {
    TROUPE_ASSIGN(const StagePtr from, in.stage());
    return GraphDataset{make_scan_stage(from, in.tensors(1, 1 + states),
                                        CarriedFunction::bind(f, in.tensors(1 + states)), in.dtypes(), in.shapes())};
  });
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
                 map_by(false));
  const char* parallel =
      "What the function f, a GraphDef, gives of each element, followed by other_arguments, in the order of the "
      "elements. Up to num_parallel_calls elements are at work at once; -1: twice as many as there are cores. An error "
      "costs one element. Other attributes make no difference.";
  add_dataset_op(ops, kernels,
                 with_function("ParallelMapDataset", "f")
                     .input("num_parallel_calls: int32")
                     .attr("use_inter_op_parallelism: bool = true")
                     .attr("sloppy: bool = false")
                     .attr("preserve_cardinality: bool = false")
                     .doc(parallel),
                 map_by(true));
  add_dataset_op(ops, kernels,
                 with_function("ParallelMapDatasetV2", "f")
                     .input("num_parallel_calls: int64")
                     .attr("use_inter_op_parallelism: bool = true")
                     .attr("deterministic: string = 'default'")
                     .attr("preserve_cardinality: bool = false")
                     .attr("use_unbounded_threadpool: bool = false")
                     .doc(parallel),
                 map_by(true));
  add_dataset_op(ops, kernels,
                 with_function("MapAndBatchDataset", "f")
                     .input("batch_size: int64")
                     .input("num_parallel_calls: int64")
                     .input("drop_remainder: bool")
                     .attr("preserve_cardinality: bool = false")
                     .doc("Batches of batch_size of what the function f gives of each element, followed by "
                          "other_arguments, of up to num_parallel_calls elements at once; a smaller last one unless "
                          "drop_remainder."),
                 map_and_batch);
  add_dataset_op(ops, kernels,
                 with_function("FilterDataset", "predicate")
                     .doc("The elements for which the function predicate, which is called with them, followed by "
                          "other_arguments, gives true."),
                 some_by(make_filter_stage));
  add_dataset_op(ops, kernels,
                 with_function("ParallelFilterDataset", "predicate")
                     .input("num_parallel_calls: int64")
                     .attr("deterministic: string = 'default'")
                     .doc("As FilterDataset, whatever num_parallel_calls and deterministic are."),
                 some_by(make_filter_stage, 1));
  add_dataset_op(ops, kernels,
                 with_function("TakeWhileDataset", "predicate")
                     .doc("The elements before the first for which the function predicate, which is called with them, "
                          "followed by other_arguments, gives false."),
                 some_by(make_take_while_stage));
  add_dataset_op(ops, kernels,
                 OpDef("ScanDataset")
                     .input("input_dataset: variant")
                     .input("initial_state: Tstate")
                     .input("other_arguments: Targuments")
                     .attr("f: string")
                     .attr("Tstate: list(type) >= 1")
                     .attr("Targuments: list(type) >= 0")
                     .attr("preserve_cardinality: bool = false")
                     .attr("use_default_device: bool = true")
                     .doc("What the function f gives, behind the state for the next element, of the state, an element "
                          "and other_arguments. Other attributes make no difference."),
                 scan);
}

}  // namespace troupe
