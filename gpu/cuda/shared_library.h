// SPDX-License-Identifier: Apache-2.0
// A library of NVIDIA's that is opened at run time, so that programs start without it.
#pragma once
#include <dlfcn.h>

#include <string>

#include "troupe/error.h"

namespace troupe::gpu {

/// It is never closed: threads of its own may still run.
class SharedLibrary {
 public:
  /// `what` is its name in errors: "cuDNN". Error: kUnavailable with what the system says.
  static Result<SharedLibrary> open(std::string what, std::string file) {
    void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle) return SharedLibrary(std::move(what), std::move(file), handle);
    const char* const why = dlerror();
    return make_error(Code::kUnavailable, "{}: {}", what, why ? why : file.c_str());
  }
  /// Sets a pointer to the function of that name.
  template <class Function> void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (!function) missing_ = name;
  }
  /// The same of a function that older versions lack: then it is null, and no fault.
  template <class Function> void find_newer(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
  }
  /// Error: kUnavailable naming a function that was looked for and is not there.
  Status found_all() const {
    if (!missing_) return {};
    return make_error(Code::kUnavailable, "{}: {} lacks {}", what_, file_, missing_);
  }

 private:
  SharedLibrary(std::string what, std::string file, void* handle)
      : what_(std::move(what)), file_(std::move(file)), handle_(handle) {}

  std::string what_, file_;
  void* handle_;
  const char* missing_ = nullptr;
};

}  // namespace troupe::gpu
