// SPDX-License-Identifier: Apache-2.0
// The work of TensorList... A list changes in place where nobody else sees it.
#include <algorithm>

#include "ops/control/register.h"
#include "ops/parts/element_list.h"
#include "ops/parts/index_tensors.h"

namespace troupe {
namespace {

/// A list that a kernel may change, and the tensor that holds it.
struct Changing {
  Tensor tensor;
  TensorList* list = nullptr;
};

/// The list of input 0, itself where this node is the last that sees it, else a copy.
Result<Changing> changing(KernelContext& c) {
  const Tensor& in = c.input(0);
  TROUPE_RETURN_IF_ERROR(list_of(in));
  TROUPE_ASSIGN(Tensor out, c.forward_or_allocate(0, DType::kVariant, Shape{}));
  TensorListRef& held = out.mutable_data<TensorListRef>()[0];
  if (!out.shares_buffer(in)) held = in.data<TensorListRef>()[0];
  if (held.use_count() > 1) held = std::make_shared<TensorList>(*held);
  TensorList* list = held.get();
  return Changing{std::move(out), list};
}

Result<const TensorList*> input_list(const KernelContext& c, DType dtype) {
  TROUPE_ASSIGN(const TensorList* list, list_of(c.input(0)));
  if (list->dtype != dtype)
    return invalid_argument("a list of {}, where {} is expected", to_string(list->dtype), to_string(dtype));
  return list;
}

Status check_element(const TensorList& list, const Tensor& element) {
  if (element.dtype() != list.dtype || !list.shape.compatible(PartialShape(element.shape())))
    return invalid_argument("an element {}{} does not go into a list of {}{}", to_string(element.dtype()),
                            element.shape().str(), to_string(list.dtype), list.shape.str());
  return {};
}

/// An element, or zeros where it was never set.
Result<Tensor> element_or_zeros(const KernelContext& c, const TensorList& list, const Tensor& element,
                                const PartialShape& asked) {
  TROUPE_ASSIGN(const PartialShape shape, PartialShape::merge(list.shape, asked));
  if (element.defined()) {
    if (!shape.compatible(PartialShape(element.shape())))
      return invalid_argument("the element has shape {}, not {}", element.shape().str(), shape.str());
    return element;
  }
  if (!shape.fully_known())
    return invalid_argument("the element was never set, and its shape {} is not known", shape.str());
  return Tensor::zeros(list.dtype, shape.shape(), c.device().allocator);
}

Result<int64_t> index_into(const Tensor& index, size_t elements) {
  TROUPE_ASSIGN(const int64_t i, int_scalar(index, "index"));
  if (i < 0 || i >= static_cast<int64_t>(elements))
    return invalid_argument("index {} into a list of {} elements", i, elements);
  return i;
}

/// What every op here is made from: the work as a function, and the dtype of elements.
using Work = Status (*)(KernelContext&, DType);
class ListKernel final : public ComputeKernel {
 public:
  ListKernel(Work work, const KernelInit& init)
      : work_(work), dtype_(init.attrs->get_or<DType>("element_dtype", DType::kInvalid)) {}
  Status compute(KernelContext& c) override { return work_(c, dtype_); }
  bool shareable() const override { return true; }

 private:
  const Work work_;
  const DType dtype_;
};

Status put(KernelContext& c, TensorList list) {
  c.set_output(0, list_tensor(std::move(list)));
  return {};
}

Status put(KernelContext& c, int i, Result<Tensor> value) {
  if (!value.ok()) return std::move(value.error());
  c.set_output(i, std::move(*value));
  return {};
}

// -- making -----------------------------------------------------------------------------------------------------------

Status empty_list(KernelContext& c, DType dtype) {
  TROUPE_ASSIGN(const PartialShape shape, partial_shape_from(c.input(0)));
  TROUPE_ASSIGN(const int64_t most, int_scalar(c.input(1), "max_num_elements"));
  return put(c, TensorList{dtype, shape, most, {}});
}

Status reserve(KernelContext& c, DType dtype) {
  TROUPE_ASSIGN(const PartialShape shape, partial_shape_from(c.input(0)));
  TROUPE_ASSIGN(const int64_t n, count_from(c.input(1), "num_elements"));
  TensorList list{dtype, shape, -1, {}};
  TROUPE_RETURN_IF_ERROR(resize_elements(c, list.elements, n));
  return put(c, std::move(list));
}

Status from_tensor(KernelContext& c, DType dtype) {
  TROUPE_ASSIGN(PartialShape shape, partial_shape_from(c.input(1)));
  TROUPE_ASSIGN(std::vector<Tensor> elements, unstack_elements(c.input(0)));
  TROUPE_ASSIGN(shape, common_shape(elements, shape));
  return put(c, TensorList{dtype, shape, -1, std::move(elements)});
}

Status split(KernelContext& c, DType dtype) {
  TROUPE_ASSIGN(const PartialShape shape, partial_shape_from(c.input(1)));
  TROUPE_ASSIGN(const std::vector<int64_t> lengths, int_values(c.input(2), "lengths"));
  TROUPE_ASSIGN(std::vector<Tensor> elements, part_elements(c.input(0), lengths));
  TensorList list{dtype, shape, -1, std::move(elements)};
  for (const Tensor& element : list.elements) TROUPE_RETURN_IF_ERROR(check_element(list, element));
  return put(c, std::move(list));
}

/// Sets the elements at `indices` to the rows of `rows`.
Status scatter_rows(TensorList& list, const Tensor& rows, const Tensor& indices, bool grow) {
  TROUPE_ASSIGN(const std::vector<int64_t> at, int_values(indices, "indices"));
  TROUPE_ASSIGN(std::vector<Tensor> elements, unstack_elements(rows));
  if (at.size() != elements.size()) return invalid_argument("{} indices for {} rows", at.size(), elements.size());
  for (size_t i = 0; i < at.size(); ++i) {
    if (at[i] < 0 || (!grow && at[i] >= static_cast<int64_t>(list.elements.size())))
      return invalid_argument("index {} into a list of {} elements", at[i], list.elements.size());
    TROUPE_RETURN_IF_ERROR(check_element(list, elements[i]));
  }
  // Only now, when nothing can go wrong any more.
  for (size_t i = 0; i < at.size(); ++i) {
    const auto index = static_cast<size_t>(at[i]);
    if (index >= list.elements.size()) list.elements.resize(index + 1);
    list.elements[index] = std::move(elements[i]);
  }
  return {};
}

Status scatter(KernelContext& c, DType dtype) {
  TROUPE_ASSIGN(const PartialShape shape, partial_shape_from(c.input(2)));
  TensorList list{dtype, shape, -1, {}};
  bool grow = true;
  if (c.num_inputs() > 3) {
    TROUPE_ASSIGN(const int64_t n, int_scalar(c.input(3), "num_elements"));
    grow = n < 0;
    if (!grow) TROUPE_RETURN_IF_ERROR(resize_elements(c, list.elements, n));
  } else if (c.input(0).rank() > 0 && c.input(1).elements() > 0 && c.input(1).elements() == c.input(0).dim(0)) {
    TROUPE_ASSIGN(const std::vector<int64_t> at, int_values(c.input(1), "indices"));
    const int64_t most = *std::ranges::max_element(at);
    if (most > c.input(0).dim(0) * 1000 + 1'000'000)
      return make_error(Code::kResourceExhausted, "index {} would make a list of as many elements", most);
  }
  TROUPE_RETURN_IF_ERROR(scatter_rows(list, c.input(0), c.input(1), grow));
  return put(c, std::move(list));
}

Status scatter_into(KernelContext& c, DType) {
  TROUPE_ASSIGN(Changing out, changing(c));
  TROUPE_RETURN_IF_ERROR(scatter_rows(*out.list, c.input(1), c.input(2), false));
  c.set_output(0, std::move(out.tensor));
  return {};
}

// -- changing ---------------------------------------------------------------------------------------------------------

Status push_back(KernelContext& c, DType) {
  TROUPE_ASSIGN(const TensorList* seen, list_of(c.input(0)));
  TROUPE_RETURN_IF_ERROR(check_element(*seen, c.input(1)));
  if (seen->most >= 0 && static_cast<int64_t>(seen->elements.size()) >= seen->most)
    return invalid_argument("the list has its {} elements already", seen->most);
  TROUPE_ASSIGN(Changing out, changing(c));
  out.list->elements.push_back(c.input(1));
  c.set_output(0, std::move(out.tensor));
  return {};
}

Status pop_back(KernelContext& c, DType dtype) {
  TROUPE_ASSIGN(const TensorList* seen, input_list(c, dtype));
  if (seen->elements.empty()) return invalid_argument("the list is empty");
  TROUPE_ASSIGN(const PartialShape shape, partial_shape_from(c.input(1)));
  TROUPE_ASSIGN(Tensor last, element_or_zeros(c, *seen, seen->elements.back(), shape));
  TROUPE_ASSIGN(Changing out, changing(c));
  out.list->elements.pop_back();
  c.set_output(0, std::move(out.tensor));
  c.set_output(1, std::move(last));
  return {};
}

class SetItem final : public ComputeKernel {
 public:
  explicit SetItem(const KernelInit& init) : grow_(init.attr<bool>("resize_if_index_out_of_bounds")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const TensorList* seen, list_of(c.input(0)));
    TROUPE_RETURN_IF_ERROR(check_element(*seen, c.input(2)));
    TROUPE_ASSIGN(const int64_t i, int_scalar(c.input(1), "index"));
    const auto size = static_cast<int64_t>(seen->elements.size());
    if (i < 0 || (!grow_ && i >= size)) return invalid_argument("index {} into a list of {} elements", i, size);
    TROUPE_ASSIGN(Changing out, changing(c));
    if (i >= size) TROUPE_RETURN_IF_ERROR(resize_elements(c, out.list->elements, i + 1));
    out.list->elements[static_cast<size_t>(i)] = c.input(2);
    c.set_output(0, std::move(out.tensor));
    return {};
  }

 private:
  const bool grow_;
};

Status resize(KernelContext& c, DType) {
  TROUPE_ASSIGN(const int64_t n, count_from(c.input(1), "size"));
  TROUPE_ASSIGN(Changing out, changing(c));
  TROUPE_RETURN_IF_ERROR(resize_elements(c, out.list->elements, n));
  c.set_output(0, std::move(out.tensor));
  return {};
}

Status concat_lists(KernelContext& c, DType dtype) {
  TROUPE_RETURN_IF_ERROR(input_list(c, dtype));
  TROUPE_ASSIGN(const TensorList* second, list_of(c.input(1)));
  const std::vector<Tensor> more = second->elements;  // the two may be one
  for (const Tensor& t : more)
    if (t.defined() && t.dtype() != dtype)
      return invalid_argument("a list of {} after one of {}", to_string(t.dtype()), to_string(dtype));
  TROUPE_ASSIGN(Changing out, changing(c));
  TROUPE_ASSIGN(out.list->shape, common_shape(more, out.list->shape));
  out.list->elements.insert(out.list->elements.end(), more.begin(), more.end());
  c.set_output(0, std::move(out.tensor));
  return {};
}

// -- reading ----------------------------------------------------------------------------------------------------------

Status length(KernelContext& c, DType) {
  TROUPE_ASSIGN(const TensorList* list, list_of(c.input(0)));
  c.set_output(0, Tensor::scalar(static_cast<int32_t>(list->elements.size())));
  return {};
}

class ElementShape final : public ComputeKernel {
 public:
  explicit ElementShape(const KernelInit& init) : dtype_(init.attr<DType>("shape_type")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const TensorList* list, list_of(c.input(0)));
    constexpr int64_t kUnknown[] = {-1};
    const PartialShape& s = list->shape;
    return put(c, 0, s.has_rank() ? int_tensor(dtype_, s.dims(), Shape{s.rank()}) : int_tensor(dtype_, kUnknown, {}));
  }

 private:
  const DType dtype_;
};

Status get_item(KernelContext& c, DType dtype) {
  TROUPE_ASSIGN(const TensorList* list, input_list(c, dtype));
  TROUPE_ASSIGN(const int64_t i, index_into(c.input(1), list->elements.size()));
  TROUPE_ASSIGN(const PartialShape shape, partial_shape_from(c.input(2)));
  return put(c, 0, element_or_zeros(c, *list, list->elements[static_cast<size_t>(i)], shape));
}

class TensorListStack final : public ComputeKernel {
 public:
  explicit TensorListStack(const KernelInit& init)
      : dtype_(init.attr<DType>("element_dtype")), elements_(init.attr<int64_t>("num_elements")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const TensorList* list, input_list(c, dtype_));
    const auto n = static_cast<int64_t>(list->elements.size());
    if (elements_ >= 0 && n != elements_) return invalid_argument("the list has {} elements, not {}", n, elements_);
    TROUPE_ASSIGN(const PartialShape asked, partial_shape_from(c.input(1)));
    TROUPE_ASSIGN(const PartialShape shape, PartialShape::merge(list->shape, asked));
    return put(c, 0, stack_elements(c, list->elements, dtype_, shape));
  }

 private:
  const DType dtype_;
  const int64_t elements_;
};

Status gather(KernelContext& c, DType dtype) {
  TROUPE_ASSIGN(const TensorList* list, input_list(c, dtype));
  TROUPE_ASSIGN(const std::vector<int64_t> indices, int_values(c.input(1), "indices"));
  TROUPE_ASSIGN(const PartialShape asked, partial_shape_from(c.input(2)));
  TROUPE_ASSIGN(const PartialShape shape, PartialShape::merge(list->shape, asked));
  std::vector<Tensor> elements;
  for (const int64_t i : indices) {
    if (i < 0 || i >= static_cast<int64_t>(list->elements.size()))
      return invalid_argument("index {} into a list of {} elements", i, list->elements.size());
    elements.push_back(list->elements[static_cast<size_t>(i)]);
  }
  return put(c, 0, stack_elements(c, elements, dtype, shape));
}

/// The shape of the elements is an attribute (TensorListConcat), or input 1.
class TensorListConcat final : public ComputeKernel {
 public:
  explicit TensorListConcat(const KernelInit& init)
      : dtype_(init.attr<DType>("element_dtype")),
        shape_(init.attrs->get_or<PartialShape>("element_shape", PartialShape::unknown())) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const TensorList* list, input_list(c, dtype_));
    PartialShape asked = shape_;
    if (c.num_inputs() > 1) {
      TROUPE_ASSIGN(asked, partial_shape_from(c.input(1)));
    }
    if (asked.has_rank() && asked.rank() > 0 && c.num_inputs() == 1) asked.set(0, -1);
    TROUPE_ASSIGN(const PartialShape shape, PartialShape::merge(list->shape, asked));
    std::vector<int64_t> leading;  // of elements that were never set
    if (c.num_inputs() > 2) {
      TROUPE_ASSIGN(leading, int_values(c.input(2), "leading_dims"));
    }
    TROUPE_ASSIGN(Joined joined, join_elements(c, list->elements, dtype_, shape, leading));
    c.set_output(0, std::move(joined.tensor));
    return put(c, 1, int_tensor(DType::kInt64, joined.lengths, Shape{static_cast<int64_t>(joined.lengths.size())}));
  }

 private:
  const DType dtype_;
  const PartialShape shape_;
};

}  // namespace

void register_tensor_list_kernels(KernelRegistry& kernels) {
  const std::pair<const char*, Work> works[] = {
      {"EmptyTensorList", empty_list},
      {"TensorListReserve", reserve},
      {"TensorListFromTensor", from_tensor},
      {"TensorListSplit", split},
      {"TensorListScatter", scatter},
      {"TensorListScatterV2", scatter},
      {"TensorListScatterIntoExistingList", scatter_into},
      {"TensorListPushBack", push_back},
      {"TensorListPopBack", pop_back},
      {"TensorListResize", resize},
      {"TensorListConcatLists", concat_lists},
      {"TensorListLength", length},
      {"TensorListGetItem", get_item},
      {"TensorListGather", gather},
  };
  for (const auto& [op, work] : works)
    kernels.add(op, DeviceKind::kCpu, {},
                [work = work](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                  return std::unique_ptr<ComputeKernel>(new ListKernel(work, init));
                });
  for (const char* op : {"TensorListConcat", "TensorListConcatV2"})
    kernels.add<TensorListConcat>(op, DeviceKind::kCpu, {});
  kernels.add<SetItem>("TensorListSetItem", DeviceKind::kCpu, {});
  kernels.add<TensorListStack>("TensorListStack", DeviceKind::kCpu, {});
  kernels.add<ElementShape>("TensorListElementShape", DeviceKind::kCpu, {});
}

}  // namespace troupe
