// SPDX-License-Identifier: Apache-2.0
// Datasets made of another without a function: batches, repetition, parts.
#include "ops/data/dataset_op.h"
#include "ops/data/register.h"

namespace troupe {
namespace {

Result<GraphDataset> reordered(const DatasetInputs& in, Reorder reorder) {
  TROUPE_ASSIGN(const StagePtr from, in.stage());
  return GraphDataset{make_reorder_stage(from, reorder)};
}

PlanDataset batch(int drop_remainder) {
  return plan_dataset([drop_remainder](const DatasetInputs& in) -> Result<GraphDataset> {
    TROUPE_ASSIGN(const StagePtr from, in.stage());
    TROUPE_ASSIGN(const int64_t size, in.integer(1, "batch_size", 1));
    bool drop = false;
    if (drop_remainder > 0) {
      TROUPE_ASSIGN(drop, in.boolean(drop_remainder, "drop_remainder"));
    }
    return GraphDataset{make_batch_stage(from, size, drop)};
  });
}

/// The input as it is.
Result<GraphDataset> as_it_is(const DatasetInputs& in) { return in.dataset(); }

OpDef on_dataset(std::string_view name) { return OpDef(name).input("input_dataset: variant"); }

}  // namespace

void register_data_stage_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_dataset_op(ops, kernels,
                 on_dataset("BatchDataset")
                     .input("batch_size: int64")
                     .doc("Batches of batch_size elements on a new first axis, the last one perhaps smaller."),
                 batch(0));
  add_dataset_op(ops, kernels,
                 on_dataset("BatchDatasetV2")
                     .input("batch_size: int64")
                     .input("drop_remainder: bool")
                     .attr("parallel_copy: bool = false")
                     .doc("Batches of batch_size elements on a new first axis; a smaller last one unless "
                          "drop_remainder. Error: elements of different shapes. parallel_copy makes no difference."),
                 batch(2));
  add_dataset_op(ops, kernels,
                 on_dataset("RepeatDataset")
                     .input("count: int64")
                     .doc("count passes over the dataset; for ever where it is negative."),
                 plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
                   TROUPE_ASSIGN(const int64_t count, in.integer(1, "count"));
                   return reordered(in, {Reorder::Kind::kRepeat, std::max<int64_t>(count, -1)});
                 }));
  add_dataset_op(
      ops, kernels,
      on_dataset("TakeDataset").input("count: int64").doc("The first count elements; all where it is negative."),
      plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
        TROUPE_ASSIGN(const int64_t count, in.integer(1, "count"));
        return reordered(in, {Reorder::Kind::kRange, 0, std::max<int64_t>(count, -1)});
      }));
  add_dataset_op(ops, kernels,
                 on_dataset("SkipDataset")
                     .input("count: int64")
                     .doc("All but the first count elements; none where it is negative."),
                 plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
                   TROUPE_ASSIGN(const int64_t count, in.integer(1, "count"));
                   if (count < 0) return reordered(in, {Reorder::Kind::kRange, 0, 0});
                   return reordered(in, {Reorder::Kind::kRange, count});
                 }));
  add_dataset_op(
      ops, kernels,
      on_dataset("PrefetchDataset")
          .input("buffer_size: int64")
          .attr("slack_period: int = 0")
          .attr("legacy_autotune: bool = true")
          .attr("buffer_size_min: int = 0")
          .doc("The same elements, of which so many are made before they are asked for, by a thread of their "
               "own; 2 for -1. The other attributes make no difference."),
      plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
        TROUPE_ASSIGN(const StagePtr from, in.stage());
        TROUPE_ASSIGN(const int64_t size, in.integer(1, "buffer_size", -1));
        return GraphDataset{from, size < 0 ? 2 : size};
      }));
  add_dataset_op(ops, kernels,
                 on_dataset("ParallelBatchDataset")
                     .input("batch_size: int64")
                     .input("num_parallel_calls: int64")
                     .input("drop_remainder: bool")
                     .attr("parallel_copy: bool = false")
                     .attr("deterministic: string = 'default'")
                     .doc("As BatchDatasetV2; num_parallel_calls, parallel_copy and deterministic make no difference."),
                 batch(3));
  add_dataset_op(ops, kernels,
                 on_dataset("ShardDataset")
                     .input("num_shards: int64")
                     .input("index: int64")
                     .attr("require_non_empty: bool = false")
                     .doc("Every num_shards-th element, from element index on. Error: an index that is not from 0 to "
                          "below num_shards. require_non_empty makes no difference."),
                 plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
                   TROUPE_ASSIGN(const int64_t count, in.integer(1, "num_shards", 1));
                   TROUPE_ASSIGN(const int64_t index, in.integer(2, "index", 0));
                   if (index >= count)
                     return invalid_argument("index must be below num_shards, {}, got {}", count, index);
                   return reordered(in, {Reorder::Kind::kShard, index, -1, count});
                 }));
  add_dataset_op(ops, kernels,
                 on_dataset("AssertCardinalityDataset")
                     .input("cardinality: int64")
                     .doc("The same elements, and an error where there are more or fewer than cardinality; -1 and -2 "
                          "are any number."),
                 plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
                   TROUPE_ASSIGN(const StagePtr from, in.stage());
                   TROUPE_ASSIGN(const int64_t count, in.integer(1, "cardinality"));
                   // Endless is -1 there, and not known -2.
                   return GraphDataset{make_counted_stage(from, count == -1 ? -2 : count < 0 ? -1 : count)};
                 }),
                 {.metadata = false});
  add_dataset_op(ops, kernels, on_dataset("UniqueDataset").doc("Each element the first time that it comes."),
                 plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
                   TROUPE_ASSIGN(const StagePtr from, in.stage());
                   TROUPE_ASSIGN(StagePtr stage, make_unique_stage(from));
                   return GraphDataset{std::move(stage)};
                 }));
  add_dataset_op(ops, kernels,
                 on_dataset("IgnoreErrorsDataset")
                     .attr("log_warning: bool = false")
                     .doc("The elements that are no errors. log_warning makes no difference."),
                 plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
                   TROUPE_ASSIGN(const StagePtr from, in.stage());
                   return GraphDataset{make_error_free_stage(from)};
                 }),
                 {.metadata = false});
  // What tells TensorFlow how to run a pipeline, and changes nothing of its elements.
  const char* passed_on = "The same dataset: what the other inputs and attributes ask for makes no difference here.";
  add_dataset_op(ops, kernels, on_dataset("OptionsDataset").attr("serialized_options: string").doc(passed_on),
                 plan_dataset(as_it_is));
  add_dataset_op(ops, kernels,
                 on_dataset("ModelDataset")
                     .attr("algorithm: int = 0")
                     .attr("cpu_budget: int = 0")
                     .attr("ram_budget: int = 0")
                     .doc(passed_on),
                 plan_dataset(as_it_is), {.metadata = false});
  add_dataset_op(ops, kernels,
                 on_dataset("OptimizeDataset")
                     .input("optimizations: string")
                     .attr("optimization_configs: list(string) = []")
                     .doc(passed_on),
                 plan_dataset(as_it_is), {.metadata = false});
  add_dataset_op(ops, kernels,
                 on_dataset("OptimizeDatasetV2")
                     .input("optimizations_enabled: string")
                     .input("optimizations_disabled: string")
                     .input("optimizations_default: string")
                     .attr("optimization_configs: list(string) = []")
                     .doc(passed_on),
                 plan_dataset(as_it_is), {.metadata = false});
  add_dataset_op(ops, kernels, on_dataset("AssertNextDataset").input("transformations: string").doc(passed_on),
                 plan_dataset(as_it_is), {.metadata = false});
  add_dataset_op(ops, kernels, on_dataset("RewriteDataset").input("rewrite_name: string").doc(passed_on),
                 plan_dataset(as_it_is), {.metadata = false});
  add_dataset_op(ops, kernels, on_dataset("PrivateThreadPoolDataset").input("num_threads: int64").doc(passed_on),
                 plan_dataset(as_it_is), {.metadata = false});
  add_dataset_op(ops, kernels,
                 on_dataset("MaxIntraOpParallelismDataset").input("max_intra_op_parallelism: int64").doc(passed_on),
                 plan_dataset(as_it_is), {.metadata = false});
  add_dataset_op(ops, kernels, on_dataset("FinalizeDataset").attr("has_captured_ref: bool = false").doc(passed_on),
                 plan_dataset(as_it_is), {.metadata = false});
  add_dataset_op(ops, kernels, on_dataset("NonSerializableDataset").doc(passed_on), plan_dataset(as_it_is),
                 {.metadata = false});
}

}  // namespace troupe
