// SPDX-License-Identifier: Apache-2.0
// The stages of datasets that are part of a graph: beside those of dataset_stages.h what TensorFlow's graphs have, with
// its results. Functions are called with the pass, which knows who calls functions of graphs and who cancels.
#pragma once
#include <mutex>

#include "io/dataset_stages.h"
#include "io/saved_parts.h"

namespace troupe {

/// A function of elements. It may wait.
using PassFn = std::function<Result<Element>(const Pass& pass, Element element)>;
using ComponentTypes = std::vector<DType>;
using ComponentShapes = std::vector<PartialShape>;

/// Base of stages whose elements are those of their input.
class PassingStage : public FlowStage {
 public:
  explicit PassingStage(StagePtr input) : input_(std::move(input)) {}
  ComponentTypes dtypes() const final { return input_->dtypes(); }
  ComponentShapes shapes() const final { return input_->shapes(); }
  int64_t size() const final { return input_->size(); }
  bool repeatable() const final { return input_->repeatable(); }

 protected:
  const StagePtr input_;
};

/// Base of stages that are told what their elements are.
class TypedStage : public FlowStage {
 public:
  TypedStage(ComponentTypes dtypes, ComponentShapes shapes) : dtypes_(std::move(dtypes)), shapes_(std::move(shapes)) {}
  ComponentTypes dtypes() const final { return dtypes_; }
  ComponentShapes shapes() const final { return shapes_; }

 protected:
  const ComponentTypes dtypes_;
  const ComponentShapes shapes_;
};

/// One element. Source: TensorDataset.
StagePtr make_single_stage(Element element);
/// Scalars from `start` on, by `step`, as long as they are before `stop`. Of int64, or whatever number `dtype` is.
/// Error: a step of 0, a dtype other than a number's. Source: RangeDataset.
Result<StagePtr> make_range_stage(int64_t start, int64_t stop, int64_t step, DType dtype);

/// Begins a function of an element, which may wait, and gives what waits for it. Source: ParallelMapDataset.
using BeginFn = std::function<BegunCall(const Pass& pass, Element element)>;

/// What `fn` makes of each element, checked against dtypes and shapes. An error costs this element. Source: MapDataset.
StagePtr make_pass_map_stage(StagePtr input, PassFn fn, ComponentTypes dtypes, ComponentShapes shapes);

/// The same in the same order, of up to `calls` elements at once. Source: ParallelMapDataset.
StagePtr make_parallel_map_stage(StagePtr input, BeginFn begin, int64_t calls, ComponentTypes dtypes,
                                 ComponentShapes shapes);
/// The input, of which a thread apart makes up to `ahead` elements before they are asked for; as it is where it never
/// waits. Source: PrefetchDataset.
StagePtr make_prefetch_stage(StagePtr input, int64_t ahead);

/// The elements for which `keep` gives a scalar true. Source: FilterDataset.
StagePtr make_filter_stage(StagePtr input, PassFn keep);
/// The elements before the first for which `keep` gives a scalar false. Source: TakeWhileDataset.
StagePtr make_take_while_stage(StagePtr input, PassFn keep);
/// What `fn` makes of the state, followed by an element: the state for the next one, followed by the result.
/// Source: ScanDataset.
StagePtr make_scan_stage(StagePtr input, Element state, PassFn fn, ComponentTypes dtypes, ComponentShapes shapes);
/// The elements that are no errors; an end of the iterator by kCancelled is one. Source: IgnoreErrorsDataset.
StagePtr make_error_free_stage(StagePtr input);
/// Each element the first time that it comes, compared bit by bit. Error: handles or lists. Source: UniqueDataset.
Result<StagePtr> make_unique_stage(StagePtr input);
/// The elements, whose number is `count`, and an error at the end if they are not so many; -1 and -2 as Dataset::size()
/// has them, of which nothing is checked. Source: AssertCardinalityDataset.
StagePtr make_counted_stage(StagePtr input, int64_t count);

// -- several datasets (join_stages.cpp) -------------------------------------------------------------------------------

/// Element i of each side by side, until one ends. Source: ZipDataset.
StagePtr make_zip_stage(std::vector<StagePtr> inputs);
/// Error: their components have different types. Source: ConcatenateDataset.
Result<StagePtr> make_concatenate_stage(StagePtr first, StagePtr second);
/// The dataset that an element stands for.
using StageOfElementFn = std::function<Result<StagePtr>(const Pass& pass, Element element)>;
/// The elements of the datasets that `fn` makes of the first `cycle` elements, `block` of each in turn; where one ends,
/// the next takes its place. With a cycle of 1, one after the other. Of `parallel` datasets threads apart make elements
/// before it is their turn. Sources: InterleaveDataset, FlatMapDataset, ParallelInterleaveDataset.
StagePtr make_interleave_stage(StagePtr input, StageOfElementFn fn, int64_t cycle, int64_t block, int64_t parallel,
                               ComponentTypes dtypes, ComponentShapes shapes);
/// The next element of the input whose number the selector gives. One that has ended is passed over, or ends it all.
/// Source: DirectedInterleaveDataset.
StagePtr make_directed_stage(StagePtr selector, std::vector<StagePtr> inputs, bool stop_on_empty, ComponentTypes dtypes,
                             ComponentShapes shapes);

// -- several elements (group_stages.cpp) ------------------------------------------------------------------------------

/// These elements.
StagePtr make_list_stage(std::shared_ptr<const std::vector<Element>> elements, ComponentTypes dtypes,
                         ComponentShapes shapes);
/// Makes one element of several.
using GatherFn = std::function<Result<Element>(std::vector<Element> elements)>;
/// What `gather` makes of windows of `size` elements, each `stride` apart; each window begins `shift` elements after
/// the one before. All are at least 1. Source: WindowDataset.
StagePtr make_window_stage(StagePtr input, int64_t size, int64_t shift, int64_t stride, bool drop_remainder,
                           GatherFn gather, ComponentTypes dtypes, ComponentShapes shapes);
/// Batches whose components are padded behind: each dimension to the size in `padded`, or, where that is -1, to the
/// largest of the batch. `values` are scalars, one for each component. Errors: another rank; an element that is larger.
/// Source: PaddedBatchDataset.
StagePtr make_padded_batch_stage(StagePtr input, int64_t size, bool drop_remainder, ComponentShapes padded,
                                 Element values);
/// The rows of the elements in batches of these sizes, one size after another and again from the first on; the last
/// batch may be smaller, unless `drop_remainder`. Source: RebatchDatasetV2.
StagePtr make_rebatch_stage(StagePtr input, std::vector<int64_t> sizes, bool drop_remainder, ComponentTypes dtypes,
                            ComponentShapes shapes);
/// Row i of each component of each element. Errors: scalars, other numbers of rows. Source: UnbatchDataset.
StagePtr make_unbatch_stage(StagePtr input, ComponentTypes dtypes, ComponentShapes shapes);

/// What makes datasets of elements with one key, each an int64 scalar.
struct GroupFns {
  PassFn key, window_size;
  /// The dataset of a key and its elements.
  std::function<Result<StagePtr>(const Pass& pass, Tensor key, std::vector<Element> elements)> reduce;
};
/// The elements of what `fns.reduce` makes of as many elements of one key as `fns.window_size` says, and at the end, by
/// keys, of those that are left. Source: GroupByWindowDataset.
StagePtr make_group_stage(StagePtr input, GroupFns fns, ComponentTypes dtypes, ComponentShapes shapes);

/// What makes one element of those with one key, an int64 scalar.
struct ReducerFns {
  PassFn key;
  PassFn begin;   // of a key: the first state
  PassFn reduce;  // of a state, followed by an element: the next state
  PassFn end;     // of the last state: the element
};
/// One element for each key, by keys, when the input has ended. Source: GroupByReducerDataset.
StagePtr make_reducer_stage(StagePtr input, ReducerFns fns, ComponentTypes dtypes, ComponentShapes shapes);

// -- order and memory (shuffle_stage.cpp, cache_stage.cpp, file_cache_stage.cpp) --------------------------------------

/// A random word of 32 bits, call by call.
using DrawFn = std::function<uint32_t()>;
/// Called once for each pass, by any thread.
using MakeDrawFn = std::function<DrawFn()>;
/// `count` passes (-1: for ever) in another order: the elements are drawn from a buffer of `buffer`, which fills before
/// the first one is drawn, and holds the end of a pass with the beginning of the next. Sources: ShuffleDataset,
/// ShuffleAndRepeatDataset.
StagePtr make_draw_stage(StagePtr input, int64_t buffer, int64_t count, MakeDrawFn make);
/// Of the elements some: each where the float in [0, 1) that its word makes is below `rate`. Source: SamplingDataset.
StagePtr make_sampling_stage(StagePtr input, float rate, MakeDrawFn make);
/// The words as int64 scalars, without end. Source: RandomDataset.
StagePtr make_words_stage(MakeDrawFn make);

/// The elements of the first pass that came to an end.
class ElementCache {
 public:
  using Elements = std::shared_ptr<const std::vector<Element>>;
  /// nullptr until a pass has ended.
  Elements get() const;
  /// The first stay.
  void set(std::vector<Element> elements);

 private:
  mutable std::mutex mutex_;
  Elements elements_;
};
/// The elements of the cache, or, until there are some, of the input, which then go there. Source: CacheDataset.
StagePtr make_cache_stage(StagePtr input, std::shared_ptr<ElementCache> cache);
/// The elements of the cache in the files PREFIX.index and PREFIX.data-..., as TensorFlow writes them, or, where there
/// are none, of the input, which the first pass that comes to its end leaves there. Errors, of next():
/// kFailedPrecondition where another pass is writing them; kInvalidArgument where they have other components than the
/// input, or an element has no place in a file; kDataLoss; those of the system. Source: CacheDataset.
StagePtr make_file_cache_stage(StagePtr input, std::string prefix, FileAccess access);

// -- datasets that functions give -------------------------------------------------------------------------------------

/// The elements of a dataset that a function gave. Error: too many nest.
Result<FlowPtr<Element>> flow_within(const StagePtr& stage, const Pass& pass);

/// The elements, `size` of them as Dataset::size() has it, of a stage that is made when they are asked for first.
/// Source: the factory of OneShotIterator.
using MakeStageFn = std::function<Result<StagePtr>(const Pass& pass)>;
StagePtr make_late_stage(MakeStageFn make, ComponentTypes dtypes, ComponentShapes shapes, int64_t size = -1);

}  // namespace troupe
