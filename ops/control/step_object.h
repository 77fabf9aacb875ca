// SPDX-License-Identifier: Apache-2.0
// Objects that live within a step: the stacks and tensor arrays of TensorFlow's loops. The tensor of the handle owns
// its object, which is gone with the last such tensor, at the latest when the step ends. Kernels of several devices may
// use one at once, so each has a mutex, held for the time of one operation on elements.
#pragma once
#include <memory>
#include <mutex>
#include <string>

#include "troupe/resource.h"

namespace troupe {

/// A handle of a T; T::kKind names what it is.
template <class T> struct StepHandle final : ResourceHandle { std::shared_ptr<T> object; };

template <class T> Tensor step_handle(std::shared_ptr<T> object) {
  auto handle = std::make_shared<StepHandle<T>>();
  handle->type = T::kKind;
  handle->object = std::move(object);
  return Tensor::scalar<ResourceRef>(std::move(handle));
}

/// The object of a handle. Error: the handle is of something else.
template <class T> Result<std::shared_ptr<T>> step_object(const Tensor& t) {
  if (t.dtype() == DType::kResource && t.elements() == 1)
    if (const ResourceRef& ref = t.data<ResourceRef>()[0]; ref && ref->type == T::kKind)
      return static_cast<const StepHandle<T>*>(ref.get())->object;
  return invalid_argument("{} is not a handle of a {}", t.str(), T::kKind);
}

}  // namespace troupe
