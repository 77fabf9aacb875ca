// SPDX-License-Identifier: Apache-2.0
// Element types of tensors. Values and names are TensorFlow's (types.proto). Implemented in tensor/dtype.cpp.
#pragma once
#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "troupe/export.h"

namespace TROUPE_API troupe {

/// Element type; the numbers are those of TensorFlow's DataType, so that GraphDef needs no table.
enum class DType : int8_t {
  kInvalid = 0,
  kFloat32 = 1,
  kFloat64 = 2,
  kInt32 = 3,
  kUInt8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kString = 7,
  kComplex64 = 8,
  kInt64 = 9,
  kBool = 10,
  kBFloat16 = 14,
  kUInt16 = 17,
  kComplex128 = 18,
  kFloat16 = 19,
  kResource = 20,
  kVariant = 21,  // a list of tensors
  kUInt32 = 22,
  kUInt64 = 23,
};

/// bfloat16: the upper half of a float32, rounded to nearest even. Same layout as Eigen::bfloat16.
struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(float value);
  explicit operator float() const;
  bool operator==(const bfloat16&) const = default;
};

/// IEEE 754 binary16. Same layout as Eigen::half.
struct float16 {
  uint16_t bits = 0;
  float16() = default;
  explicit float16(float value);
  explicit operator float() const;
  bool operator==(const float16&) const = default;
};

using complex64 = std::complex<float>;
using complex128 = std::complex<double>;

/// Names what a kResource element refers to; see troupe/resource.h.
class ResourceHandle;
using ResourceRef = std::shared_ptr<const ResourceHandle>;

/// What a kVariant element refers to; see troupe/tensor_list.h. Empty: no list.
struct TensorList;
using TensorListRef = std::shared_ptr<TensorList>;

/// Bytes of one element in memory (of an object: the size of its C++ type).
size_t size_of(DType dtype);
/// "float32"; "invalid" for a value that is none of ours.
const char* to_string(DType dtype);
/// From to_string's name, or TensorFlow's ("float", "DT_FLOAT", "double", "half").
std::optional<DType> dtype_from_string(std::string_view name);
bool is_floating(DType dtype);  // float16, bfloat16, float32, float64
bool is_integer(DType dtype);   // signed and unsigned, not bool
bool is_complex(DType dtype);   // complex64, complex128
bool is_known(DType dtype);     // one of the enumerators but kInvalid
bool is_object(DType dtype);    // kString, kResource, kVariant: elements that are constructed and destroyed

/// The DType of a C++ type: dtype_of<float>.
template <class T> inline constexpr DType dtype_of = DType::kInvalid;
template <> inline constexpr DType dtype_of<float> = DType::kFloat32;
template <> inline constexpr DType dtype_of<double> = DType::kFloat64;
template <> inline constexpr DType dtype_of<int32_t> = DType::kInt32;
template <> inline constexpr DType dtype_of<uint8_t> = DType::kUInt8;
template <> inline constexpr DType dtype_of<int16_t> = DType::kInt16;
template <> inline constexpr DType dtype_of<int8_t> = DType::kInt8;
template <> inline constexpr DType dtype_of<std::string> = DType::kString;
template <> inline constexpr DType dtype_of<complex64> = DType::kComplex64;
template <> inline constexpr DType dtype_of<complex128> = DType::kComplex128;
template <> inline constexpr DType dtype_of<int64_t> = DType::kInt64;
template <> inline constexpr DType dtype_of<bool> = DType::kBool;
template <> inline constexpr DType dtype_of<bfloat16> = DType::kBFloat16;
template <> inline constexpr DType dtype_of<uint16_t> = DType::kUInt16;
template <> inline constexpr DType dtype_of<float16> = DType::kFloat16;
template <> inline constexpr DType dtype_of<ResourceRef> = DType::kResource;
template <> inline constexpr DType dtype_of<TensorListRef> = DType::kVariant;
template <> inline constexpr DType dtype_of<uint32_t> = DType::kUInt32;
template <> inline constexpr DType dtype_of<uint64_t> = DType::kUInt64;

}  // namespace troupe
