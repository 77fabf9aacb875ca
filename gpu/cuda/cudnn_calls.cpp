// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/cudnn_calls.h"

#include <string>

#include "gpu/cuda/shared_library.h"

namespace troupe::gpu {

Status Cudnn::load() {
  TROUPE_ASSIGN(SharedLibrary library, SharedLibrary::open("cuDNN", "libcudnn.so." + std::to_string(CUDNN_MAJOR)));
#define TROUPE_FIND(name) library.find(#name, name);
  TROUPE_CUDNN(TROUPE_FIND)
#undef TROUPE_FIND
  return library.found_all();
}

Status Cudnn::check(cudnnStatus_t status, const char* call) const {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  const bool memory = status == CUDNN_STATUS_ALLOC_FAILED ||
                      status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  const Code code = memory                                                        ? Code::kResourceExhausted
                    : CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED ? Code::kUnimplemented
                                                                                  : Code::kInternal;
  char more[256] = "";
  cudnnGetLastErrorString(more, sizeof more);
  return make_error(code, "{}: {}{}{}", call, cudnnGetErrorString(status), *more ? ": " : "", more);
}

CudnnDescriptor::CudnnDescriptor(const Cudnn& library, cudnnBackendDescriptorType_t type) : library_(&library) {
  status_ = library.check(library.cudnnBackendCreateDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_) library_->cudnnBackendDestroyDescriptor(descriptor_);
}

void CudnnDescriptor::set_bytes(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                                const void* values) {
  if (status_.ok())
    status_ = library_->check(library_->cudnnBackendSetAttribute(descriptor_, name, type, count, values),
                              "cudnnBackendSetAttribute");
}

Status CudnnDescriptor::finalize() {
  TROUPE_RETURN_IF_ERROR(std::move(status_));
  return library_->check(library_->cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize");
}

Result<std::vector<CudnnDescriptor>> CudnnDescriptor::get_descriptors(cudnnBackendAttributeName_t name,
                                                                      cudnnBackendDescriptorType_t type,
                                                                      int64_t most) const {
  std::vector<CudnnDescriptor> out;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < most; ++i) {
    CudnnDescriptor d(*library_, type);
    TROUPE_RETURN_IF_ERROR(std::move(d.status_));
    raw.push_back(d.descriptor_);
    out.push_back(std::move(d));
  }
  int64_t count = 0;
  TROUPE_RETURN_IF_ERROR(library_->check(
      library_->cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, raw.data()),
      "cudnnBackendGetAttribute"));
  out.resize(static_cast<size_t>(std::min(std::max<int64_t>(count, 0), most)));
  return out;
}

}  // namespace troupe::gpu
