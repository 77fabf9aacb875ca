// SPDX-License-Identifier: Apache-2.0
// Datasets made of several, or of those that a function gives: side by side, one after the other, in turns.
#include <algorithm>

#include "base/threads_available.h"
#include "ops/data/dataset_op.h"
#include "ops/data/register.h"

namespace troupe {
namespace {

/// A cycle_length or num_parallel_calls that is left to us.
constexpr int64_t kAutotune = -1;

Result<std::vector<StagePtr>> stages_of(const DatasetInputs& in, int begin) {
  std::vector<StagePtr> out;
  for (const Tensor& t : in.tensors(begin)) {
    TROUPE_ASSIGN(GraphDataset dataset, dataset_of(t, "each of the datasets"));
    out.push_back(stage_within(std::move(dataset)));
  }
  return out;
}

/// Of which of the datasets in turn elements are made ahead: none, all, or as many as the last input says.
enum class Ahead { kNone, kAll, kByInput };

/// In turns, by the function `f`; `behind` inputs are behind the arguments that it captured, of which the first two are
/// cycle_length and block_length. None: one after the other.
PlanDataset interleave(int behind, Ahead ahead = Ahead::kNone) {
  return [behind, ahead](const KernelInit& init) -> Result<MakeDataset> {
    auto f = std::make_shared<CarriedFunction>(init, "f");
    const int end = static_cast<int>(init.input_dtypes.size()) - behind;
    return MakeDataset([f, end, behind, ahead](const DatasetInputs& in) -> Result<GraphDataset> {
      TROUPE_ASSIGN(const StagePtr from, in.stage());
      int64_t cycle = 1, block = 1, parallel = 0;
      if (behind > 0) {
        TROUPE_ASSIGN(cycle, in.integer(end, "cycle_length"));
        if (cycle == kAutotune) cycle = count_cores_available();
        if (cycle < 1) return invalid_argument("cycle_length must be at least 1, got {}", cycle);
        TROUPE_ASSIGN(block, in.integer(end + 1, "block_length", 1));
      }
      if (ahead == Ahead::kAll) parallel = std::min<int64_t>(cycle, 16);
      if (ahead == Ahead::kByInput) {
        TROUPE_ASSIGN(parallel, in.parallel_calls(end + behind - 1));
      }
      return GraphDataset{make_interleave_stage(from, CarriedFunction::bind_stage(f, in.tensors(1, end)), cycle, block,
                                                parallel, in.dtypes(), in.shapes())};
    });
  };
}

}  // namespace

void register_data_join_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_dataset_op(ops, kernels,
                 OpDef("ZipDataset")
                     .input("input_datasets: N * variant")
                     .attr("N: int >= 1")
                     .doc("Element i of each dataset side by side, until one of them ends."),
                 plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
                   TROUPE_ASSIGN(std::vector<StagePtr> stages, stages_of(in, 0));
                   return GraphDataset{make_zip_stage(std::move(stages))};
                 }));
  add_dataset_op(ops, kernels,
                 OpDef("ConcatenateDataset")
                     .input("input_dataset: variant")
                     .input("another_dataset: variant")
                     .doc("The elements of one dataset, then those of the other. Error: of other types."),
                 plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
                   TROUPE_ASSIGN(const std::vector<StagePtr> stages, stages_of(in, 0));
                   TROUPE_ASSIGN(StagePtr stage, make_concatenate_stage(stages[0], stages[1]));
                   return GraphDataset{std::move(stage)};
                 }));
  add_dataset_op(
      ops, kernels,
      OpDef("DirectedInterleaveDataset")
          .input("selector_input_dataset: variant")
          .input("data_input_datasets: N * variant")
          .attr("N: int >= 1")
          .attr("stop_on_empty_dataset: bool = false")
          .doc("The next element of the dataset whose number the selector gives, an int64 scalar. One that "
               "has ended is passed over, or ends the whole where stop_on_empty_dataset."),
      [](const KernelInit& init) -> Result<MakeDataset> {
        const bool stop = init.attr<bool>("stop_on_empty_dataset");
        return MakeDataset([stop](const DatasetInputs& in) -> Result<GraphDataset> {
          TROUPE_ASSIGN(const StagePtr selector, in.stage());
          TROUPE_ASSIGN(std::vector<StagePtr> stages, stages_of(in, 1));
          return GraphDataset{make_directed_stage(selector, std::move(stages), stop, in.dtypes(), in.shapes())};
        });
      },
      {.metadata = false});
  add_dataset_op(ops, kernels,
                 with_function("FlatMapDataset", "f")
                     .doc("The elements of the datasets that the function f gives of each element, followed by "
                          "other_arguments, one dataset after the other."),
                 interleave(0));
  const auto cycle = [](OpDef def) { return def.input("cycle_length: int64").input("block_length: int64"); };
  const std::string doc =
      "The elements of the datasets that the function f gives of the first cycle_length elements, each followed by "
      "other_arguments, block_length of each in turn; where one ends, the next takes its place. A cycle_length of -1 "
      "is as many as there are cores.";
  const std::string same = doc +
                           " Always in this order, but elements are made before it is their turn, of "
                           "num_parallel_calls datasets at once where there is this input; the others and the "
                           "attributes make no difference.";
  add_dataset_op(ops, kernels, cycle(with_function("InterleaveDataset", "f")).doc(doc), interleave(2));
  add_dataset_op(ops, kernels,
                 cycle(with_function("ParallelInterleaveDataset", "f"))
                     .input("sloppy: bool")
                     .input("buffer_output_elements: int64")
                     .input("prefetch_input_elements: int64")
                     .doc(same),
                 interleave(5, Ahead::kAll));
  add_dataset_op(ops, kernels,
                 cycle(with_function("ParallelInterleaveDatasetV2", "f"))
                     .input("num_parallel_calls: int64")
                     .attr("sloppy: bool = false")
                     .doc(same),
                 interleave(3, Ahead::kByInput));
  add_dataset_op(ops, kernels,
                 cycle(with_function("ParallelInterleaveDatasetV3", "f"))
                     .input("num_parallel_calls: int64")
                     .attr("deterministic: string = 'default'")
                     .doc(same),
                 interleave(3, Ahead::kByInput));
  add_dataset_op(ops, kernels,
                 cycle(with_function("ParallelInterleaveDatasetV4", "f"))
                     .input("buffer_output_elements: int64")
                     .input("prefetch_input_elements: int64")
                     .input("num_parallel_calls: int64")
                     .attr("deterministic: string = 'default'")
                     .doc(same),
                 interleave(5, Ahead::kByInput));
  add_dataset_op(ops, kernels,
                 cycle(with_function("LegacyParallelInterleaveDatasetV2", "f"))
                     .input("buffer_output_elements: int64")
                     .input("prefetch_input_elements: int64")
                     .attr("deterministic: string = 'default'")
                     .doc(same),
                 interleave(4, Ahead::kAll));
}

}  // namespace troupe
