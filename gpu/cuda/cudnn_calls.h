// SPDX-License-Identifier: Apache-2.0
// cuDNN's functions, looked up in the library at run time, and its descriptors.
#pragma once
#include <cudnn_graph.h>

#include <span>
#include <utility>
#include <vector>

#include "troupe/error.h"

namespace troupe::gpu {

/// The functions that are called.
struct Cudnn {
#define TROUPE_CUDNN(F)            \
  F(cudnnBackendCreateDescriptor)  \
  F(cudnnBackendDestroyDescriptor) \
  F(cudnnBackendExecute)           \
  F(cudnnBackendFinalize)          \
  F(cudnnBackendGetAttribute)      \
  F(cudnnBackendSetAttribute)      \
  F(cudnnCreate)                   \
  F(cudnnDestroy)                  \
  F(cudnnGetErrorString)           \
  F(cudnnGetLastErrorString)       \
  F(cudnnSetStream)
#define TROUPE_DECLARE(name) decltype(&::name) name = nullptr;
  TROUPE_CUDNN(TROUPE_DECLARE)
#undef TROUPE_DECLARE

  /// Errors: kUnavailable naming the library that is not there, or what it lacks. Never closed: threads of its own may
  /// still run.
  Status load();
  /// kResourceExhausted without memory, kUnimplemented for what it does not support, else kInternal; with what cuDNN
  /// says about it.
  Status check(cudnnStatus_t status, const char* call) const;
};

/// A descriptor of cuDNN's graphs: attributes are set, then it is made final. Not thread-safe.
class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  CudnnDescriptor(const Cudnn& library, cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept { swap(other); }
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    swap(other);
    return *this;
  }
  ~CudnnDescriptor();

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::span<const T> values) {
    set_bytes(name, type, static_cast<int64_t>(values.size()), values.data());
  }
  template <class T> void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set_bytes(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, std::span<const int64_t> values) {
    set<int64_t>(name, CUDNN_TYPE_INT64, values);
  }
  void set(cudnnBackendAttributeName_t name, int64_t value) { set(name, CUDNN_TYPE_INT64, value); }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.descriptor_);
  }
  /// Errors: the first of what went before, or its own.
  Status finalize();

  /// An attribute of one value.
  template <class T> Result<T> get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
    T value{};
    int64_t count = 0;
    TROUPE_RETURN_IF_ERROR(library_->check(
        library_->cudnnBackendGetAttribute(descriptor_, name, type, 1, &count, &value), "cudnnBackendGetAttribute"));
    return value;
  }
  /// An attribute of up to `most` values.
  template <class T>
  Result<std::vector<T>> get_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                 int64_t most) const {
    std::vector<T> values(static_cast<size_t>(most));
    int64_t count = 0;
    TROUPE_RETURN_IF_ERROR(
        library_->check(library_->cudnnBackendGetAttribute(descriptor_, name, type, most, &count, values.data()),
                        "cudnnBackendGetAttribute"));
    values.resize(static_cast<size_t>(std::min(std::max<int64_t>(count, 0), most)));
    return values;
  }
  /// An attribute of descriptors of a type; at most `most` of them.
  Result<std::vector<CudnnDescriptor>> get_descriptors(cudnnBackendAttributeName_t name,
                                                       cudnnBackendDescriptorType_t type, int64_t most) const;
  cudnnBackendDescriptor_t raw() const { return descriptor_; }

 private:
  void set_bytes(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values);
  void swap(CudnnDescriptor& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(status_, other.status_);
  }

  const Cudnn* library_ = nullptr;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
  Status status_;
};

}  // namespace troupe::gpu
