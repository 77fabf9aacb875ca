// SPDX-License-Identifier: Apache-2.0
// The stages of datasets that are part of a graph: beside those of dataset_stages.h what TensorFlow's graphs have, with
// its results. Functions are called with the pass, which knows who calls functions of graphs and who cancels.
#pragma once
#include "io/dataset_stages.h"

namespace troupe {

/// A function of elements. It may wait.
using PassFn = std::function<Result<Element>(const Pass& pass, Element element)>;
using ElementTypes = std::vector<DType>;
using ElementShapes = std::vector<PartialShape>;

/// One element. Source: TensorDataset.
StagePtr make_single_stage(Element element);
/// Scalars from `start` on, by `step`, as long as they are before `stop`. Of int64, or whatever number `dtype` is.
/// Error: a step of 0, a dtype that is no number. Source: RangeDataset.
Result<StagePtr> make_range_stage(int64_t start, int64_t stop, int64_t step, DType dtype);

/// What `fn` makes of each element, checked against dtypes and shapes. An error costs this element. Source: MapDataset.
StagePtr make_pass_map_stage(StagePtr input, PassFn fn, ElementTypes dtypes, ElementShapes shapes);

/// The elements of a dataset that a function gave. Error: too many nest.
Result<FlowPtr<Element>> flow_within(const StagePtr& stage, const Pass& pass);

/// The elements of a stage that is made when they are asked for first. Source: the factory of OneShotIterator.
using MakeStageFn = std::function<Result<StagePtr>(const Pass& pass)>;
StagePtr make_late_stage(MakeStageFn make, ElementTypes dtypes, ElementShapes shapes);

}  // namespace troupe
