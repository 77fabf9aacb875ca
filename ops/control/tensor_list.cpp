// SPDX-License-Identifier: Apache-2.0
// Lists of tensors as values: the schemas of TensorList...
#include "ops/control/register.h"
#include "ops/control/tensor_list_gradients.h"
#include "ops/parts/element_list.h"

namespace troupe {
namespace {

/// The shape that input i, an element_shape, tells.
PartialShape told_shape(const ShapeContext& c, int i) {
  const auto value = c.constant_input(i);
  if (!value) return PartialShape::unknown();
  auto shape = partial_shape_from(*value);
  return shape.ok() ? *shape : PartialShape::unknown();
}

PartialShape rows_of(const PartialShape& element, int64_t rows) {
  if (!element.has_rank() || element.rank() == kMaxRank) return PartialShape::unknown();
  std::vector<int64_t> sizes(element.dims().begin(), element.dims().end());
  sizes.insert(sizes.begin(), rows);
  auto shape = PartialShape::make(sizes);
  return shape.ok() ? *shape : PartialShape::unknown();
}

template <int port, int from> Status element_shape_fn(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape::scalar());
  c.set_output(port, told_shape(c, from));
  return {};
}

Status list_stack_shape(ShapeContext& c) {
  c.set_output(0, rows_of(told_shape(c, 1), c.attr<int64_t>("num_elements")));
  return {};
}

Status list_gather_shape(ShapeContext& c) {
  const PartialShape& indices = c.input(1);
  c.set_output(0, rows_of(told_shape(c, 2), indices.has_rank() && indices.rank() == 1 ? indices[0] : -1));
  return {};
}

Status list_concat_shape(ShapeContext& c) {
  PartialShape shape = c.num_inputs() > 1 ? told_shape(c, 1) : c.attr<PartialShape>("element_shape");
  if (shape.has_rank() && shape.rank() > 0) shape.set(0, -1);
  c.set_output(0, shape);
  c.set_output(1, PartialShape{-1});
  return {};
}

const char* const kType = "element_dtype: type";
const char* const kShapeType = "shape_type: {int32, int64} = int32";

}  // namespace

void register_tensor_list_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto makes = [](const char* name) { return OpDef(name).output("handle: variant").attr(kType); };
  const auto changes = [](const char* name) {
    return OpDef(name).input("input_handle: variant").output("output_handle: variant");
  };
  const Gradient none = not_differentiable("its list holds no values");
  const Gradient sizes = not_differentiable("sizes are not continuous");

  ops.add(makes("EmptyTensorList")
              .input("element_shape: shape_type")
              .input("max_num_elements: int32")
              .attr(kShapeType)
              .shape(scalar_shape)
              .doc("An empty list for tensors of element_shape (sizes may be -1; a scalar -1: any rank), at most "
                   "max_num_elements where that is not negative."),
          none);
  ops.add(makes("TensorListReserve")
              .input("element_shape: shape_type")
              .input("num_elements: int32")
              .attr(kShapeType)
              .shape(scalar_shape)
              .doc("A list of num_elements elements that are not set yet; read before, they are zeros."),
          none);
  ops.add(OpDef("TensorListFromTensor")
              .input("tensor: element_dtype")
              .input("element_shape: shape_type")
              .output("output_handle: variant")
              .attr(kType)
              .attr(kShapeType)
              .shape(scalar_shape)
              .doc("The rows of a tensor as a list."),
          gradient(list_from_tensor_gradient));
  ops.add(OpDef("TensorListSplit")
              .input("tensor: element_dtype")
              .input("element_shape: shape_type")
              .input("lengths: int64")
              .output("output_handle: variant")
              .attr(kType)
              .attr(kShapeType)
              .shape(scalar_shape)
              .doc("Consecutive rows of a tensor, as many as lengths say, as a list."),
          gradient(list_split_gradient));
  for (const char* name : {"TensorListScatter", "TensorListScatterV2"}) {
    OpDef op(name);
    op.input("tensor: element_dtype").input("indices: int32").input("element_shape: shape_type");
    if (op.name() == "TensorListScatterV2") op.input("num_elements: int32");
    ops.add(op.output("output_handle: variant")
                .attr(kType)
                .attr(kShapeType)
                .shape(scalar_shape)
                .doc("A list with the rows of a tensor at indices; of num_elements elements, or as many as it takes."),
            gradient(list_scatter_gradient));
  }
  ops.add(changes("TensorListScatterIntoExistingList")
              .input("tensor: element_dtype")
              .input("indices: int32")
              .attr(kType)
              .shape(scalar_shape)
              .doc("The list with the rows of a tensor put in at indices."),
          gradient(list_scatter_into_gradient));
  ops.add(changes("TensorListPushBack")
              .input("tensor: element_dtype")
              .attr(kType)
              .shape(scalar_shape)
              .doc("The list with a tensor added at its end."),
          gradient(list_push_back_gradient));
  ops.add(changes("TensorListPopBack")
              .input("element_shape: int32")
              .output("tensor: element_dtype")
              .attr(kType)
              .shape(element_shape_fn<1, 1>)
              .doc("The list without its last element, and that element."),
          gradient(list_pop_back_gradient));
  ops.add(changes("TensorListSetItem")
              .input("index: int32")
              .input("item: element_dtype")
              .attr(kType)
              .attr("resize_if_index_out_of_bounds: bool = false")
              .shape(scalar_shape)
              .doc("The list with element index replaced."),
          gradient(list_set_item_gradient));
  ops.add(changes("TensorListResize")
              .input("size: int32")
              .shape(scalar_shape)
              .doc("The list cut, or with elements that are not set added at its end, so that it has size elements."),
          gradient(list_resize_gradient));
  ops.add(OpDef("TensorListConcatLists")
              .input("input_a: variant")
              .input("input_b: variant")
              .output("output: variant")
              .attr(kType)
              .shape(scalar_shape)
              .doc("The elements of two lists, one after the other."),
          not_differentiable("TensorFlow has none"));
  ops.add(OpDef("TensorListLength")
              .input("input_handle: variant")
              .output("length: int32")
              .shape(scalar_shape)
              .doc("The number of elements."),
          sizes);
  ops.add(OpDef("TensorListElementShape")
              .input("input_handle: variant")
              .output("element_shape: shape_type")
              .attr("shape_type: {int32, int64} = int32")
              .shape(unknown_shape)
              .doc("The shape of every element, with -1 for sizes that are not known; a scalar -1 for any rank."),
          sizes);
  ops.add(OpDef("TensorListGetItem")
              .input("input_handle: variant")
              .input("index: int32")
              .input("element_shape: Tshape")
              .output("item: element_dtype")
              .attr(kType)
              .attr("Tshape: {int32, int64} = int32")
              .shape(element_shape_fn<0, 2>)
              .doc("Element index; zeros where it was not set."),
          gradient(list_get_item_gradient));
  ops.add(OpDef("TensorListStack")
              .input("input_handle: variant")
              .input("element_shape: int32")
              .output("tensor: element_dtype")
              .attr(kType)
              .attr("num_elements: int = -1")
              .shape(list_stack_shape)
              .doc("All elements as the rows of one tensor."),
          gradient(list_stack_gradient));
  ops.add(OpDef("TensorListGather")
              .input("input_handle: variant")
              .input("indices: int32")
              .input("element_shape: int32")
              .output("values: element_dtype")
              .attr(kType)
              .shape(list_gather_shape)
              .doc("The elements at indices as the rows of one tensor."),
          gradient(list_gather_gradient));
  ops.add(OpDef("TensorListConcat")
              .input("input_handle: variant")
              .output("tensor: element_dtype")
              .output("lengths: int64")
              .attr(kType)
              .attr("element_shape: shape = <unknown>")
              .shape(list_concat_shape)
              .doc("All elements one after another along their first dimension, and the length of each."),
          gradient(list_concat_gradient));
  ops.add(OpDef("TensorListConcatV2")
              .input("input_handle: variant")
              .input("element_shape: shape_type")
              .input("leading_dims: int64")
              .output("tensor: element_dtype")
              .output("lengths: int64")
              .attr(kType)
              .attr(kShapeType)
              .shape(list_concat_shape)
              .doc("All elements one after another along their first dimension, and the length of each."),
          gradient(list_concat_gradient));
}

}  // namespace troupe
