// SPDX-License-Identifier: Apache-2.0
// Lists of element types, the text of type attributes made from them, and registration of kernels type by type.
// Implemented in ops/parts/type_dispatch.cpp.
#pragma once
#include <span>
#include <string>
#include <type_traits>

#include "ops/parts/arithmetic.h"
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

template <class... T> struct TypeList {
  static std::vector<DType> dtypes() { return {dtype_of<T>...}; }
};

using FloatTypes = TypeList<float, double, float16, bfloat16>;
using FullFloatTypes = TypeList<float, double>;
using FloatOrComplexTypes = TypeList<float, double, float16, bfloat16, complex64, complex128>;
using ComplexTypes = TypeList<complex64, complex128>;
using IntegerTypes = TypeList<int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t, uint32_t, uint64_t>;
using IndexTypes = TypeList<int32_t, int64_t>;
using NumberTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                             uint32_t, uint64_t>;
using NumberOrComplexTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t,
                                      uint16_t, uint32_t, uint64_t, complex64, complex128>;

/// "T: {float32, float64}" for OpDef::attr.
std::string type_attr(std::string_view name, std::span<const DType> types, std::string_view fallback = "");
template <class... T> std::string type_attr(std::string_view name, TypeList<T...>, std::string_view fallback = "") {
  static constexpr DType kTypes[] = {dtype_of<T>...};
  return type_attr(name, kTypes, fallback);
}

/// complex64 for float32 and complex64, complex128 for float64 and complex128.
inline DType complex_of(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kComplex128 ? DType::kComplex128 : DType::kComplex64;
}
/// float32 for complex64, float64 for complex128; another type itself.
inline DType real_of(DType dtype) {
  return dtype == DType::kComplex64 ? DType::kFloat32 : dtype == DType::kComplex128 ? DType::kFloat64 : dtype;
}

/// Registers a CPU kernel K<T> for every T of the list, chosen by the type attribute `attr`.
template <template <class> class K, class... T>
void add_cpu_kernels(KernelRegistry& kernels, std::string_view op, TypeList<T...>, const char* attr = "T") {
  (kernels.add(op, DeviceKind::kCpu, attr, dtype_of<T>, KernelFactory::of<K<T>>()), ...);
}

/// Calls f.template operator()<T>() for the T of the list that `dtype` names; false when it names none of them.
template <class... T, class F> bool with_type(DType dtype, TypeList<T...>, F&& f) {
  return ((dtype == dtype_of<T> ? (f.template operator()<T>(), true) : false) || ...);
}

/// As many bits as a complex128 has.
struct TwoWords {
  uint64_t first = 0, second = 0;
  bool operator==(const TwoWords&) const = default;
};

/// Calls f.template operator()<S>() with an S of the same size and copying as elements of `dtype`: for
/// kernels that only move elements.
template <class F> void with_storage(DType dtype, F&& f) {
  if (dtype == DType::kString) return f.template operator()<std::string>();
  if (dtype == DType::kResource) return f.template operator()<ResourceRef>();
  if (dtype == DType::kVariant) return f.template operator()<TensorListRef>();
  switch (size_of(dtype)) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    case 16: return f.template operator()<TwoWords>();
    default: return f.template operator()<uint64_t>();
  }
}

/// Calls f.template operator()<T>() with the floating or complex T of `dtype`, or with the unsigned integer of the
/// size of an integer `dtype`: sums, differences and products have the same bits whether signed or not.
template <class F> void with_wrapping(DType dtype, F&& f) {
  if (with_type(dtype, FloatOrComplexTypes{}, f)) return;
  switch (size_of(dtype)) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    default: return f.template operator()<uint64_t>();
  }
}

/// Elements below which a loop of cheap operations is not worth a second thread.
inline constexpr int64_t kCheapGrain = 32768;
/// The same for operations of about ten nanoseconds.
inline constexpr int64_t kDearGrain = 2048;

}  // namespace troupe
