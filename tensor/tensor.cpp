// SPDX-License-Identifier: Apache-2.0
// Buffers, tensors, views and printing.
#include "troupe/tensor.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "base/printable.h"

namespace troupe {

static_assert(sizeof(Buffer) <= kAlignment, "data follow the header at kAlignment");

const char* to_string(Space space) { return space == Space::kHost ? "the host's memory" : "a GPU's memory"; }

namespace {

/// Calls f.template operator()<T>() where elements are objects of class T; whether they are.
template <class F> bool with_objects(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kString: f.template operator()<std::string>(); return true;
    case DType::kResource: f.template operator()<ResourceRef>(); return true;
    case DType::kVariant: f.template operator()<TensorListRef>(); return true;
    default: return false;
  }
}

}  // namespace

void copy_elements(DType dtype, const void* from, void* to, int64_t count) {
  const bool objects =
      with_objects(dtype, [&]<class T>() { std::copy_n(static_cast<const T*>(from), count, static_cast<T*>(to)); });
  if (!objects && count > 0) std::memcpy(to, from, static_cast<size_t>(count) * size_of(dtype));
}

Buffer* Buffer::make(const std::shared_ptr<Allocator>& allocator, size_t bytes, DType dtype, int64_t elements) {
  const bool apart = allocator->space() != Space::kHost;
  void* memory = allocator->allocate(apart ? bytes : bytes + kAlignment);
  if (!memory) return nullptr;
  Buffer* buffer = nullptr;
  if (apart) [[unlikely]] {
    buffer = new (std::nothrow) Buffer();
    if (!buffer) return allocator->deallocate(memory, bytes), nullptr;
    buffer->apart_ = memory;
  } else {
    buffer = new (memory) Buffer();
  }
  buffer->dtype_ = dtype;
  buffer->elements_ = elements;
  buffer->bytes_ = bytes;
  buffer->allocator_ = allocator.get();
  with_objects(dtype,
               [&]<class T>() { std::uninitialized_default_construct_n(static_cast<T*>(buffer->data()), elements); });
  return buffer;
}

void Buffer::destroy() {
  if (dtype_ != DType::kVariant) return destroy_elements();
  // Lists within lists go one after the other, so that they may be nested as deep as they like.
  static thread_local Buffer* waiting = nullptr;
  static thread_local bool at_work = false;
  next_ = std::exchange(waiting, this);
  if (std::exchange(at_work, true)) return;
  while (waiting) {
    Buffer* const first = std::exchange(waiting, waiting->next_);
    first->destroy_elements();
  }
  at_work = false;
}

void Buffer::destroy_elements() {
  with_objects(dtype_, [&]<class T>() { std::destroy_n(static_cast<T*>(data()), elements_); });
  Allocator* const allocator = allocator_;
  if (apart_) [[unlikely]] {
    allocator->deallocate(apart_, bytes_);
    delete this;
    return;
  }
  const size_t bytes = bytes_ + kAlignment;
  this->~Buffer();
  allocator->deallocate(this, bytes);
}

Result<Tensor> Tensor::make(DType dtype, const Shape& shape, const std::shared_ptr<Allocator>& allocator) {
  if (!is_known(dtype)) return invalid_argument("a tensor needs a dtype");
  Tensor t;
  auto limit = static_cast<int64_t>(size_of(dtype));
  bool fits = true;
  for (const int64_t size : shape)
    fits &= size >= 0 && !__builtin_mul_overflow(limit, std::max<int64_t>(size, 1), &limit);
  if (!fits)
    if (auto sound = Shape::make(shape.dims()); !sound.ok()) return std::move(sound.error());
  if (is_object(dtype) && allocator->space() != Space::kHost)
    return make_error(Code::kInternal, "tensors of {} are in the host's memory alone", to_string(dtype));
  const int64_t elements = shape.elements();
  const size_t bytes = static_cast<size_t>(elements) * size_of(dtype);
  t.buffer_ = Buffer::make(allocator, bytes, dtype, elements);
  if (!t.buffer_) {
    const AllocatorStats s = allocator->stats();
    return make_error(Code::kResourceExhausted, "no memory for {} bytes of {}{}: {} in use, limit {}", bytes,
                      to_string(dtype), shape.str(), s.in_use, s.limit > 0 ? std::to_string(s.limit) : "none");
  }
  t.kind_ = {dtype, allocator->space()};
  t.shape_ = shape;
  t.data_ = t.buffer_->data();
  return t;
}

Result<Tensor> Tensor::zeros(DType dtype, const Shape& shape, const std::shared_ptr<Allocator>& allocator) {
  if (allocator->space() != Space::kHost)
    return make_error(Code::kInternal, "no tensor of zeros in {}", to_string(allocator->space()));
  TROUPE_ASSIGN(Tensor t, make(dtype, shape, allocator));
  if (!is_object(dtype)) std::memset(t.data_, 0, t.bytes());
  return t;
}

Result<Tensor> Tensor::reshape(const Shape& shape) const {
  if (!defined()) return invalid_argument("an undefined tensor cannot take shape {}", shape.str());
  int64_t count = 1;
  bool sound = true;
  for (const int64_t size : shape) sound &= size >= 0 && !__builtin_mul_overflow(count, size, &count);
  if (!sound || count != elements())
    return invalid_argument("{} has {} elements, {} would have {}", shape_.str(), elements(), shape.str(),
                            sound ? std::to_string(count) : "no count of its own");
  Tensor t = *this;
  t.shape_ = shape;
  return t;
}

Result<Tensor> Tensor::bitcast(DType dtype, const Shape& shape) const {
  if (!defined() || is_object(this->dtype()) || !is_known(dtype) || is_object(dtype))
    return invalid_argument("{} cannot be read as {}", to_string(this->dtype()), to_string(dtype));
  TROUPE_RETURN_IF_ERROR(Shape::make(shape.dims()));
  if (static_cast<size_t>(shape.elements()) * size_of(dtype) != bytes())
    return invalid_argument("{} bytes are not {}{}", bytes(), to_string(dtype), shape.str());
  if (reinterpret_cast<uintptr_t>(data_) % size_of(dtype) != 0)
    return invalid_argument("a view of {} may not begin within an element", to_string(dtype));
  Tensor t = *this;
  t.kind_.dtype = dtype;
  t.shape_ = shape;
  return t;
}

Result<Tensor> Tensor::slice(int64_t begin, int64_t end) const {
  if (!defined() || rank() == 0 || begin < 0 || end < begin || end > shape_[0])
    return invalid_argument("rows [{}, {}) of a tensor of shape {}", begin, end, shape_.str());
  Tensor t = *this;
  const int64_t row = shape_[0] > 0 ? elements() / shape_[0] : 0;
  t.shape_.set(0, end - begin);
  t.data_ = static_cast<char*>(data_) + static_cast<size_t>(begin * row) * size_of(dtype());
  return t;
}

Result<Tensor> Tensor::clone(const std::shared_ptr<Allocator>& allocator) const {
  if (!defined()) return Tensor();
  if (space() != Space::kHost || allocator->space() != Space::kHost)
    return make_error(Code::kInternal, "{}{} in {} cannot be copied to {} by the host", to_string(dtype()),
                      shape_.str(), to_string(space()), to_string(allocator->space()));
  TROUPE_ASSIGN(Tensor t, make(dtype(), shape_, allocator));
  copy_elements(dtype(), data_, t.data_, elements());
  return t;
}

void Tensor::unshare() {
  if (buffer_->unique()) return buffer_->set_frozen(false);
  if (space() != Space::kHost) throw std::logic_error("a shared tensor in the memory of a GPU was written");
  auto copy = clone();
  if (!copy.ok()) throw std::bad_alloc();
  *this = std::move(*copy);
}

bool Tensor::identical(const Tensor& other) const {
  if (dtype() != other.dtype() || !(shape_ == other.shape_)) return false;
  if (!defined() || elements() == 0) return true;
  if (data_ == other.data_) return true;
  if (space() != Space::kHost || other.space() != Space::kHost) return false;
  bool same = false;
  const bool objects =
      with_objects(dtype(), [&]<class T>() { same = std::ranges::equal(values<T>(), other.values<T>()); });
  return objects ? same : std::memcmp(data_, other.data_, bytes()) == 0;
}

namespace {

std::string in_parts(complex128 c) { return fmt::format("{:.6g}{:+.6g}i", c.real(), c.imag()); }

std::string element_string(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::kFloat32: return fmt::format("{:.6g}", t.data<float>()[i]);
    case DType::kFloat64: return fmt::format("{:.6g}", t.data<double>()[i]);
    case DType::kFloat16: return fmt::format("{:.4g}", static_cast<float>(t.data<float16>()[i]));
    case DType::kBFloat16: return fmt::format("{:.4g}", static_cast<float>(t.data<bfloat16>()[i]));
    case DType::kComplex64: return in_parts(t.data<complex64>()[i]);
    case DType::kComplex128: return in_parts(t.data<complex128>()[i]);
    case DType::kInt8: return std::to_string(t.data<int8_t>()[i]);
    case DType::kInt16: return std::to_string(t.data<int16_t>()[i]);
    case DType::kInt32: return std::to_string(t.data<int32_t>()[i]);
    case DType::kInt64: return std::to_string(t.data<int64_t>()[i]);
    case DType::kUInt8: return std::to_string(t.data<uint8_t>()[i]);
    case DType::kUInt16: return std::to_string(t.data<uint16_t>()[i]);
    case DType::kUInt32: return std::to_string(t.data<uint32_t>()[i]);
    case DType::kUInt64: return std::to_string(t.data<uint64_t>()[i]);
    case DType::kBool: return t.data<bool>()[i] ? "true" : "false";
    case DType::kString: return in_quotes(t.data<std::string>()[i], '"');
    case DType::kResource: return "<resource>";
    case DType::kVariant: return "<list>";
    case DType::kInvalid: break;
  }
  return "?";
}

/// Prints dimension `d` onwards, starting at element `at`; `left` elements may still be printed.
void print(const Tensor& t, int d, int64_t at, int& left, std::string& out) {
  if (d == t.rank()) {
    out += left-- > 0 ? element_string(t, at) : "...";
    return;
  }
  int64_t stride = 1;
  for (int i = d + 1; i < t.rank(); ++i) stride *= t.dim(i);
  out += "[";
  for (int64_t i = 0; i < t.shape()[d]; ++i) {
    if (i) out += ", ";
    if (left <= 0) {
      out += "...";
      break;
    }
    print(t, d + 1, at + i * stride, left, out);
  }
  out += "]";
}

}  // namespace

std::string Tensor::str(int limit) const {
  if (!defined()) return "<undefined>";
  std::string out = fmt::format("{}{} ", to_string(dtype()), shape_.str());
  if (space() != Space::kHost) return out + "in " + to_string(space());
  int left = std::max(limit, 0);
  if (elements() == 0) out += "[]";
  else print(*this, 0, 0, left, out);
  return out;
}

void Tensor::wrong_type(DType asked) const {
  if (space() != Space::kHost)
    detail::abort_with(make_error(Code::kInternal, "a tensor of {} in {} was read by the host", to_string(dtype()),
                                  to_string(space())));
  detail::abort_with(invalid_argument("a tensor of {} was read as {}", to_string(dtype()), to_string(asked)));
}

}  // namespace troupe
