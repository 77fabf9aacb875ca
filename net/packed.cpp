// SPDX-License-Identifier: Apache-2.0
// The form is written from the outermost tensor inwards: 0 for a plain one, else 1, its shape, and of each element
// whether there is a list, and that list's dtype, shape, limit and elements.
#include "net/packed.h"

#include "net/wire.h"
#include "troupe/tensor_list.h"

namespace troupe::net {
namespace {

Status write(const Tensor& tensor, int depth, WireWriter& form, std::vector<Tensor>& out) {
  if (!tensor.defined() || tensor.dtype() != DType::kVariant) {
    form.u8(0);
    out.push_back(tensor);
    return {};
  }
  if (depth == kMostNestedLists) return invalid_argument("lists are within {} lists, which is too deep", depth);
  form.u8(1);
  form.shape(tensor.shape());
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const TensorListRef& list = tensor.data<TensorListRef>()[i];
    form.boolean(list != nullptr);
    if (!list) continue;
    form.dtype(list->dtype);
    form.shape(list->shape);
    form.i64(list->most);
    form.u32(static_cast<uint32_t>(list->elements.size()));
    for (const Tensor& element : list->elements) TROUPE_RETURN_IF_ERROR(write(element, depth + 1, form, out));
  }
  return {};
}

Result<Tensor> read(WireReader& form, int depth, std::vector<Tensor>& tensors, size_t& next) {
  const auto wrong = [](const char* what) { return make_error(Code::kDataLoss, "the form of a tensor {}", what); };
  const uint8_t kind = form.u8();
  if (kind > 1) return wrong("has a kind that it knows nothing of");
  if (kind == 0) {
    if (next == tensors.size()) return wrong("asks for more tensors than there are");
    return std::move(tensors[next++]);
  }
  if (depth == kMostNestedLists) return wrong("has lists within too many lists");
  const PartialShape shape = form.shape();
  if (!form.ok() || !shape.fully_known()) return wrong("has no shape");
  const auto elements = Shape::make(shape.dims());
  if (!elements.ok() || static_cast<uint64_t>(elements->elements()) > form.left()) return wrong("ends early");
  TROUPE_ASSIGN(Tensor out, Tensor::make(DType::kVariant, *elements));
  auto* lists = out.mutable_data<TensorListRef>();
  for (int64_t i = 0; i < out.elements(); ++i) {
    if (!form.boolean()) continue;
    auto list = std::make_shared<TensorList>();
    list->dtype = form.dtype();
    list->shape = form.shape();
    list->most = form.i64();
    const uint32_t count = form.u32();
    if (!form.ok() || count > form.left()) return wrong("ends early");
    for (uint32_t k = 0; k < count; ++k) {
      TROUPE_ASSIGN(Tensor element, read(form, depth + 1, tensors, next));
      list->elements.push_back(std::move(element));
    }
    lists[i] = std::move(list);
  }
  return out;
}

}  // namespace

Result<Packed> pack(Tensor tensor) {
  Packed out;
  if (!tensor.defined() || tensor.dtype() != DType::kVariant) {
    out.tensors.push_back(std::move(tensor));
    return out;
  }
  WireWriter form;
  TROUPE_RETURN_IF_ERROR(write(tensor, 0, form, out.tensors));
  out.form = form.take();
  return out;
}

Result<Tensor> unpack(std::string_view form, std::vector<Tensor> tensors) {
  if (form.empty()) {
    if (tensors.size() == 1) return std::move(tensors[0]);
    return make_error(Code::kDataLoss, "{} tensors where one is expected", tensors.size());
  }
  WireReader reader(form);
  size_t next = 0;
  TROUPE_ASSIGN(Tensor out, read(reader, 0, tensors, next));
  TROUPE_RETURN_IF_ERROR(reader.finish());
  if (next != tensors.size())
    return make_error(Code::kDataLoss, "{} tensors came, of which {} have a place", tensors.size(), next);
  return out;
}

}  // namespace troupe::net
