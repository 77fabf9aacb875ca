// SPDX-License-Identifier: Apache-2.0
// Datasets that begin a pipeline: tensors and ranges of numbers.
#include <algorithm>

#include "ops/data/dataset_op.h"
#include "ops/data/register.h"

namespace troupe {
namespace {

/// The slices of a sparse tensor along its first dimension, each as places, values and shape.
class SparseSlicesFlow final : public Flow<Element> {
 public:
  SparseSlicesFlow(Tensor indices, Tensor values, Tensor shape)
      : indices_(std::move(indices)), values_(std::move(values)), shape_(std::move(shape)) {}
  Result<std::optional<Element>> next() override {
    if (slice_ >= shape_.data<int64_t>()[0]) return std::optional<Element>();
    const int64_t rank = shape_.elements(), begin = at_;
    const int64_t* const places = indices_.data<int64_t>();
    while (at_ < values_.elements() && places[at_ * rank] == slice_) ++at_;
    ++slice_;
    TROUPE_ASSIGN(const Shape form, Shape::make(std::vector<int64_t>{at_ - begin, rank - 1}));
    TROUPE_ASSIGN(Tensor within, Tensor::make(DType::kInt64, form));
    auto* out = within.mutable_data<int64_t>();
    for (int64_t i = begin; i < at_; ++i) out = std::copy_n(places + i * rank + 1, rank - 1, out);
    TROUPE_ASSIGN(Tensor values, values_.slice(begin, at_));
    TROUPE_ASSIGN(Tensor shape, shape_.slice(1, rank));
    return std::optional<Element>({std::move(within), std::move(values), std::move(shape)});
  }

 private:
  const Tensor indices_, values_, shape_;
  int64_t slice_ = 0, at_ = 0;
};

class SparseSlicesStage final : public FlowStage {
 public:
  SparseSlicesStage(Tensor indices, Tensor values, Tensor shape)
      : indices_(std::move(indices)), values_(std::move(values)), shape_(std::move(shape)) {}
  Result<FlowPtr<Element>> flow(const Pass&) const override {
    return FlowPtr<Element>(new SparseSlicesFlow(indices_, values_, shape_));
  }
  ComponentTypes dtypes() const override { return {DType::kInt64, values_.dtype(), DType::kInt64}; }
  ComponentShapes shapes() const override {
    const int64_t rank = shape_.elements() - 1;
    return {{-1, rank}, {-1}, {rank}};
  }
  int64_t size() const override { return std::max<int64_t>(shape_.data<int64_t>()[0], 0); }
  bool may_wait() const override { return false; }

 private:
  const Tensor indices_, values_, shape_;
};

Result<GraphDataset> sparse_slices(const DatasetInputs& in) {
  const Tensor &indices = in.tensor(0), &values = in.tensor(1), &shape = in.tensor(2);
  if (shape.rank() != 1 || shape.elements() < 1 || values.rank() != 1 || indices.rank() != 2 ||
      indices.dim(0) != values.dim(0) || indices.dim(1) != shape.dim(0))
    return invalid_argument("indices {}, values {} and dense_shape {} are not those of a sparse tensor",
                            indices.shape().str(), values.shape().str(), shape.shape().str());
  const int64_t rank = shape.elements();
  for (int64_t i = 0, before = 0; i < values.elements(); ++i) {
    const int64_t at = indices.data<int64_t>()[i * rank];
    if (at < before || at >= shape.data<int64_t>()[0])
      return invalid_argument("indices must ascend in the first dimension, from 0 to below {}: row {} begins with {}",
                              shape.data<int64_t>()[0], i, at);
    before = at;
  }
  for (const Tensor* t : {&indices, &values, &shape}) t->freeze();
  return GraphDataset{std::make_shared<SparseSlicesStage>(indices, values, shape)};
}

}  // namespace

void register_data_source_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_dataset_op(ops, kernels,
                 OpDef("ListDataset")
                     .input("tensors: Tinput_types")
                     .attr("Tinput_types: list(type) >= 1")
                     .doc("Elements of so many of the tensors one after another as there are output_types. Error: "
                          "tensors are left, or are others than these."),
                 plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
                   const Element all = in.tensors(0);
                   const auto n = std::ssize(in.dtypes());
                   if (std::ssize(all) % n != 0)
                     return invalid_argument("{} tensors are no elements of {} components", all.size(), n);
                   auto elements = std::make_shared<std::vector<Element>>();
                   for (auto at = all.begin(); at != all.end(); at += n) {
                     elements->emplace_back(at, at + n);
                     TROUPE_RETURN_IF_ERROR(check_components(elements->back(), in.dtypes(), in.shapes(), "the list"));
                   }
                   return GraphDataset{make_list_stage(std::move(elements), in.dtypes(), in.shapes())};
                 }));
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
                 OpDef("SparseTensorSliceDataset")
                     .input("indices: int64")
                     .input("values: Tvalues")
                     .input("dense_shape: int64")
                     .attr("Tvalues: type")
                     .stateful()
                     .doc("The slices of a sparse tensor along its first dimension, each as indices, values and "
                          "dense_shape. Error: indices whose first column does not ascend."),
                 plan_dataset(sparse_slices), {.types = nullptr, .metadata = false});
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
