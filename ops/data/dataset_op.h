// SPDX-License-Identifier: Apache-2.0
// What the ops that make datasets share: schema, kernel, and how inputs are read.
#pragma once
#include <functional>

#include "ops/data/carried_function.h"
#include "ops/data/dataset_value.h"
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// The inputs and attributes of a node that makes a dataset.
class DatasetInputs {
 public:
  DatasetInputs(const KernelContext& context, const ComponentTypes& dtypes, const ComponentShapes& shapes)
      : context_(context), dtypes_(dtypes), shapes_(shapes) {}

  const Tensor& tensor(int i) const { return context_.input(i); }
  /// Inputs `begin` to `end` (-1: all).
  Element tensors(int begin, int end = -1) const;
  Result<GraphDataset> dataset(int i = 0) const { return dataset_of(context_.input(i)); }
  /// The stage of that dataset, for another one behind it.
  Result<StagePtr> stage(int i = 0, const char* what = "input_dataset") const;
  /// Errors: it is not a scalar, `what` names it; it is below `least`.
  Result<int64_t> integer(int i, const char* what, int64_t least = INT64_MIN) const;
  Result<bool> boolean(int i, const char* what) const;
  /// A num_parallel_calls: -1 is twice as many as there are cores, from 4 to 16.
  Result<int64_t> parallel_calls(int i) const;
  Result<std::string> string(int i, const char* what) const;
  /// What the node says of the dataset's elements.
  const ComponentTypes& dtypes() const { return dtypes_; }
  const ComponentShapes& shapes() const { return shapes_; }

 private:
  const KernelContext& context_;
  const ComponentTypes& dtypes_;
  const ComponentShapes& shapes_;
};

/// Makes the dataset of a node, by any thread.
using MakeDataset = std::function<Result<GraphDataset>(const DatasetInputs& in)>;
/// Looks at a node's attributes once, when its kernel is made.
using PlanDataset = std::function<Result<MakeDataset>(const KernelInit& init)>;

/// What a schema has beside what its op has for itself.
struct DatasetSchema {
  const char* types = "output_types";  // the attribute for the elements' types; none: neither types nor shapes
  bool metadata = true;
};

/// Adds an op which makes a dataset to `def`, which has its inputs and the attributes of its own,
/// and schema.types where that allows fewer types.
void add_dataset_op(OpRegistry& ops, KernelRegistry& kernels, OpDef def, PlanDataset plan, DatasetSchema schema = {});

/// The same for one that needs no attributes.
inline PlanDataset plan_dataset(MakeDataset make) {
  return [make = std::move(make)](const KernelInit&) -> Result<MakeDataset> { return make; };
}

/// An op whose input_dataset goes through the function in the attribute `attr`, which takes other_arguments too.
OpDef with_function(std::string_view name, std::string_view attr);

}  // namespace troupe
