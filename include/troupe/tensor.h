// SPDX-License-Identifier: Apache-2.0
// Tensor: dtype, shape and a shared, reference-counted buffer. Implemented in tensor/tensor.cpp.
//
// Ownership: copying a Tensor shares its buffer. A buffer is immutable once published, that is, once a second
// Tensor may refer to it; whoever made it may write through mutable_data() before that. What was fed to a step, fetched
// from one, put into a graph, a dataset or a snapshot is frozen: writing to it afterwards writes a copy, unless no
// other Tensor is left on the buffer. Counting is atomic, so tensors pass freely between threads and actors.
#pragma once
#include <atomic>
#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "troupe/allocator.h"
#include "troupe/dtype.h"
#include "troupe/error.h"
#include "troupe/export.h"
#include "troupe/shape.h"

namespace TROUPE_API troupe {

/// A block of memory with a reference count. Made by Tensor only.
class Buffer {
 public:
  /// Header and `bytes` of data in one allocation; the data start at kAlignment. Where the allocator's memory is not
  /// the host's, the header is apart. nullptr when memory is refused.
  static Buffer* make(const std::shared_ptr<Allocator>& allocator, size_t bytes, DType dtype, int64_t elements);
  void* data() { return apart_ ? apart_ : reinterpret_cast<char*>(this) + kAlignment; }
  size_t bytes() const { return bytes_; }
  void ref() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void unref() {
    if (refs_.load(std::memory_order_acquire) == 1 || refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }
  bool unique() const { return refs_.load(std::memory_order_acquire) == 1; }
  bool frozen() const { return frozen_.load(std::memory_order_relaxed); }
  void set_frozen(bool frozen) { frozen_.store(frozen, std::memory_order_relaxed); }

 private:
  Buffer() = default;
  void destroy();
  void destroy_elements();
  std::atomic<int32_t> refs_{1};
  DType dtype_ = DType::kInvalid;
  std::atomic<bool> frozen_{false};
  int64_t elements_ = 0;  // constructed objects, for dtypes that need destruction
  size_t bytes_ = 0;
  Allocator* allocator_ = nullptr;
  void* apart_ = nullptr;   // the data, where they do not follow the header
  Buffer* next_ = nullptr;  // of the lists that wait to be destroyed
};

/// A dense, row-major array of one dtype. An empty Tensor (default) has dtype kInvalid and no buffer.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other) : buffer_(other.buffer_), data_(other.data_), kind_(other.kind_), shape_(other.shape_) {
    if (buffer_) buffer_->ref();
  }
  Tensor(Tensor&& other) noexcept
      : buffer_(std::exchange(other.buffer_, nullptr)), data_(std::exchange(other.data_, nullptr)),
        kind_(std::exchange(other.kind_, Kind{})), shape_(other.shape_) {}
  Tensor& operator=(const Tensor& other) { return *this = Tensor(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    if (this != &other) {
      Buffer* const before = buffer_;
      shape_ = other.shape_;
      kind_ = std::exchange(other.kind_, Kind{});
      buffer_ = std::exchange(other.buffer_, nullptr);
      data_ = std::exchange(other.data_, nullptr);
      if (before) before->unref();  // last: `other` may be an element of a list in there
    }
    return *this;
  }
  ~Tensor() {
    if (buffer_) buffer_->unref();
  }

  /// An uninitialised tensor (strings and resources are default-constructed).
  /// Errors: kResourceExhausted with the bytes asked, in use and the limit; kInvalidArgument for kInvalid.
  static Result<Tensor> make(DType dtype, const Shape& shape,
                             const std::shared_ptr<Allocator>& allocator = system_allocator());
  /// All bytes zero (empty strings).
  static Result<Tensor> zeros(DType dtype, const Shape& shape,
                              const std::shared_ptr<Allocator>& allocator = system_allocator());
  /// A scalar in system memory.
  template <class T> static Tensor scalar(T value);
  /// A vector, or any `shape` of as many elements, in system memory: Tensor::of<float>({1, 2, 3}).
  template <class T> static Tensor of(std::initializer_list<T> values) {
    return of<T>(std::span(values.begin(), values.size()));
  }
  template <class T> static Tensor of(std::span<const T> values) {
    return of<T>(values, Shape{static_cast<int64_t>(values.size())});
  }
  template <class T> static Tensor of(std::initializer_list<T> values, const Shape& shape) {
    return of<T>(std::span(values.begin(), values.size()), shape);
  }
  /// Aborts when shape.elements() differs from the count of values, or memory runs out.
  template <class T> static Tensor of(std::span<const T> values, const Shape& shape);

  bool defined() const { return kind_.dtype != DType::kInvalid; }
  /// Lets go of the buffer: becomes an empty Tensor.
  void reset() {
    if (buffer_) std::exchange(buffer_, nullptr)->unref();
    data_ = nullptr;
    kind_ = Kind{};
    shape_.clear();
  }
  DType dtype() const { return kind_.dtype; }
  Space space() const { return kind_.space; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t dim(int i) const { return shape_.dim(i); }
  int64_t elements() const { return shape_.elements(); }
  /// elements() * size_of(dtype()).
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(dtype()); }

  /// The elements; T must be the dtype's C++ type, and the tensor in the host's memory (both checked).
  template <class T> const T* data() const {
    expect(dtype_of<T>);
    return static_cast<const T*>(data_);
  }
  /// The elements to be written. Of a frozen tensor that others share, this Tensor gets a copy of its own first
  /// (std::bad_alloc without memory). A pointer from before the tensor was frozen must not be written through any more.
  template <class T> T* mutable_data() {
    expect(dtype_of<T>);
    thaw();
    return static_cast<T*>(data_);
  }
  template <class T> std::span<const T> values() const { return {data<T>(), static_cast<size_t>(elements())}; }
  /// Their bytes, in the host's memory (checked).
  const void* raw() const {
    expect_host();
    return data_;
  }
  void* mutable_raw() {
    expect_host();
    thaw();
    return data_;
  }
  /// Where the elements are, in whatever memory: for kernels of GPUs and for copies.
  const void* address() const { return data_; }
  /// The same to write to. In a GPU's memory a frozen tensor that others share cannot be (std::logic_error).
  void* mutable_address() {
    thaw();
    return data_;
  }
  /// Asks the cache for what a host's kernel reads first, and for the count of references.
  void prefetch() const {
    __builtin_prefetch(data_);
    __builtin_prefetch(buffer_, 1);
  }

  /// From now on, writing through any Tensor on this buffer writes a copy, unless that is the only one. Engines freeze
  /// what crosses between them and their callers, so that no caller changes a variable or the input of a running step.
  void freeze() const {
    if (buffer_) buffer_->set_frozen(true);
  }

  /// Whether this is the only Tensor on the buffer, so that it may be written in place.
  bool unique() const { return buffer_ && buffer_->unique(); }
  bool shares_buffer(const Tensor& other) const { return buffer_ && buffer_ == other.buffer_; }

  /// A view with another shape of as many elements. Errors: kInvalidArgument for another count, a negative size, or an
  /// undefined tensor.
  Result<Tensor> reshape(const Shape& shape) const;
  /// A view of the same bytes as elements of another dtype. Errors: kInvalidArgument for objects, an undefined tensor,
  /// a shape of more or fewer bytes, and bytes that begin where the dtype may not.
  Result<Tensor> bitcast(DType dtype, const Shape& shape) const;
  /// A view of rows [begin, end) of the first dimension. Errors: kInvalidArgument for rows that are not there, a scalar
  /// or an undefined tensor.
  Result<Tensor> slice(int64_t begin, int64_t end) const;
  /// A copy in host memory of its own; of an undefined tensor another. Errors: kResourceExhausted, as make(); kInternal
  /// for one in a GPU's memory.
  Result<Tensor> clone(const std::shared_ptr<Allocator>& allocator = system_allocator()) const;

  /// Same dtype, shape and elements, bit for bit (strings by value). In a GPU's memory: the very same elements.
  bool identical(const Tensor& other) const;
  /// "float32[2,3] [[1, 2, 3], [4, ...]]": at most `limit` elements.
  std::string str(int limit = 12) const;

 private:
  struct Kind {  // compared as one
    DType dtype = DType::kInvalid;
    Space space = Space::kHost;
  };
  void expect(DType dtype) const {
    if (std::bit_cast<uint16_t>(Kind{dtype, Space::kHost}) != std::bit_cast<uint16_t>(kind_)) [[unlikely]]
      wrong_type(dtype);
  }
  void expect_host() const {
    if (space() != Space::kHost) [[unlikely]]
      wrong_type(dtype());
  }
  [[noreturn]] void wrong_type(DType asked) const;
  void thaw() {
    if (buffer_ && buffer_->frozen()) [[unlikely]]
      unshare();
  }
  void unshare();

  Buffer* buffer_ = nullptr;
  void* data_ = nullptr;
  Kind kind_;
  Shape shape_;
};

/// Copies `count` elements; objects by value. `to` holds constructed elements that do not overlap `from`.
void copy_elements(DType dtype, const void* from, void* to, int64_t count);

template <class T> Tensor Tensor::scalar(T value) { return of<T>(std::span<const T>(&value, 1), Shape{}); }

template <class T> Tensor Tensor::of(std::span<const T> values, const Shape& shape) {
  if (const auto n = static_cast<int64_t>(values.size()); n != shape.elements())
    detail::abort_with(invalid_argument("{} values for shape {}", values.size(), shape.str()));
  auto made = make(dtype_of<T>, shape);
  if (!made.ok()) detail::abort_with(made.error());
  T* out = made->template mutable_data<T>();
  for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
  return std::move(made).value();
}

}  // namespace troupe
