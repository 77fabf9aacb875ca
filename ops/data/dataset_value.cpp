// SPDX-License-Identifier: Apache-2.0
// A dataset is a list of one handle, so that a variant holds it as it holds lists.
#include "ops/data/dataset_value.h"

#include "io/graph_stages.h"
#include "troupe/resource.h"
#include "troupe/tensor_list.h"

namespace troupe {
namespace {

struct DatasetHandle final : ResourceHandle {
  GraphDataset dataset;
};

constexpr const char* kDatasetType = "dataset";

}  // namespace

Tensor dataset_tensor(GraphDataset dataset) {
  auto handle = std::make_shared<DatasetHandle>();
  handle->type = kDatasetType;
  handle->dataset = std::move(dataset);
  TensorList list;
  list.dtype = DType::kResource;
  list.elements.push_back(Tensor::scalar<ResourceRef>(std::move(handle)));
  return list_tensor(std::move(list));
}

StagePtr stage_within(GraphDataset dataset) { return make_prefetch_stage(std::move(dataset.stage), dataset.ahead); }

Result<GraphDataset> dataset_of(const Tensor& t, const char* what) {
  if (t.dtype() == DType::kVariant && t.elements() == 1)
    if (const TensorListRef& list = *t.data<TensorListRef>(); list && list->elements.size() == 1)
      if (const Tensor& in = list->elements[0]; in.defined() && in.dtype() == DType::kResource && in.elements() == 1)
        if (const ResourceRef& ref = *in.data<ResourceRef>(); ref && ref->type == kDatasetType)
          return static_cast<const DatasetHandle*>(ref.get())->dataset;
  return invalid_argument("{} must be a dataset, not {}", what, t.str());
}

}  // namespace troupe
