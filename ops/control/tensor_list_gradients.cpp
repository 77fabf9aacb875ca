// SPDX-License-Identifier: Apache-2.0
#include "ops/control/tensor_list_gradients.h"

#include "troupe/graph.h"
#include "troupe/scope.h"

namespace troupe {
namespace {

DType element_dtype(const GradientContext& c) { return *c.node().attrs().get<DType>("element_dtype"); }

Output shape_of_elements(GradientContext& c, Output list) {
  return c.op("TensorListElementShape", {list}, {{"shape_type", DType::kInt32}});
}

/// The shape of one row of `rows`.
Output shape_of_rows(GradientContext& c, Output rows) {
  const Output all = c.op("Shape", {rows});
  return c.op("Slice", {all, c.constant(Tensor::of<int32_t>({1})), c.constant(Tensor::of<int32_t>({-1}))});
}

Output int32(GradientContext& c, int32_t value) { return c.constant(Tensor::scalar(value)); }

/// Of the rows that were scattered from input `rows`, with the indices in the input after.
void gather_rows(GradientContext& c, int rows) {
  c.set_dx(rows, c.op("TensorListGather", {c.dy(0), c.input(rows + 1), shape_of_rows(c, c.input(rows))},
                      {{"element_dtype", element_dtype(c)}}));
}

}  // namespace

Status list_push_back_gradient(GradientContext& c) {
  const std::vector<Output> parts =
      c.ops("TensorListPopBack", {c.dy(0), c.op("Shape", {c.input(1)})}, {{"element_dtype", element_dtype(c)}});
  if (parts.empty()) return {};
  c.set_dx(0, parts[0]);
  c.set_dx(1, parts[1]);
  return {};
}

Status list_pop_back_gradient(GradientContext& c) {
  const Attrs type{{"element_dtype", element_dtype(c)}};
  const Output list = c.dy(0) ? c.dy(0)
                              : c.op("TensorListReserve",
                                     {c.op("Shape", {c.output(1)}), c.op("TensorListLength", {c.output(0)})}, type);
  c.set_dx(0, c.op("TensorListPushBack", {list, c.dy(1) ? c.dy(1) : c.op("ZerosLike", {c.output(1)})}));
  return {};
}

Status list_get_item_gradient(GradientContext& c) {
  const Output list =
      c.op("TensorListReserve", {shape_of_elements(c, c.input(0)), c.op("TensorListLength", {c.input(0)})},
           {{"element_dtype", element_dtype(c)}});
  c.set_dx(0, c.op("TensorListSetItem", {list, c.input(1), c.dy(0)}));
  return {};
}

Status list_set_item_gradient(GradientContext& c) {
  c.set_dx(0, c.op("TensorListSetItem", {c.dy(0), c.input(1), c.op("ZerosLike", {c.input(2)})}));
  c.set_dx(2, c.op("TensorListGetItem", {c.dy(0), c.input(1), c.op("Shape", {c.input(2)})},
                   {{"element_dtype", element_dtype(c)}}));
  return {};
}

Status list_stack_gradient(GradientContext& c) {
  c.set_dx(0, c.op("TensorListFromTensor", {c.dy(0), shape_of_elements(c, c.input(0))}));
  return {};
}

Status list_from_tensor_gradient(GradientContext& c) {
  c.set_dx(0, c.op("TensorListStack", {c.dy(0), shape_of_rows(c, c.input(0))}, {{"element_dtype", element_dtype(c)}}));
  return {};
}

Status list_concat_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, c.op("TensorListSplit", {c.dy(0), shape_of_elements(c, c.input(0)), c.output(1)}));
  return {};
}

Status list_split_gradient(GradientContext& c) {
  const Output rest = shape_of_rows(c, c.input(0));
  const Output shape =
      c.op("ConcatV2", {c.constant(Tensor::of<int32_t>({-1})), rest, int32(c, 0)}, {{"N", int64_t{2}}});
  c.set_dx(0, c.op("TensorListConcatV2", {c.dy(0), shape, c.input(2)}, {{"element_dtype", element_dtype(c)}}));
  return {};
}

Status list_gather_gradient(GradientContext& c) {
  c.set_dx(0, c.op("TensorListScatterV2",
                   {c.dy(0), c.input(1), shape_of_elements(c, c.input(0)), c.op("TensorListLength", {c.input(0)})}));
  return {};
}

Status list_scatter_gradient(GradientContext& c) {
  gather_rows(c, 0);
  return {};
}

Status list_scatter_into_gradient(GradientContext& c) {
  gather_rows(c, 1);
  c.set_dx(0, c.op("TensorListScatterIntoExistingList", {c.dy(0), c.op("ZerosLike", {c.input(1)}), c.input(2)}));
  return {};
}

Status list_resize_gradient(GradientContext& c) {
  c.set_dx(0, c.op("TensorListResize", {c.dy(0), c.op("TensorListLength", {c.input(0)})}));
  return {};
}

}  // namespace troupe
