// SPDX-License-Identifier: Apache-2.0
// Names, sizes and the two 16-bit floats.
#include "troupe/dtype.h"

#include <array>
#include <bit>
#include <cmath>

#include "base/lower_case.h"

namespace troupe {
namespace {

struct TypeEntry {
  DType dtype;
  std::string_view name;             // ends with a NUL, for to_string
  std::string_view tensorflow_name;  // where it differs
  size_t size;
};

constexpr TypeEntry kEntries[] = {
    {DType::kFloat32, "float32", "float", 4},
    {DType::kFloat64, "float64", "double", 8},
    {DType::kInt32, "int32", "", 4},
    {DType::kUInt8, "uint8", "", 1},
    {DType::kInt16, "int16", "", 2},
    {DType::kInt8, "int8", "", 1},
    {DType::kString, "string", "", sizeof(std::string)},
    {DType::kComplex64, "complex64", "", 8},
    {DType::kInt64, "int64", "", 8},
    {DType::kBool, "bool", "", 1},
    {DType::kBFloat16, "bfloat16", "", 2},
    {DType::kUInt16, "uint16", "", 2},
    {DType::kComplex128, "complex128", "", 16},
    {DType::kFloat16, "float16", "half", 2},
    {DType::kResource, "resource", "", sizeof(ResourceRef)},
    {DType::kVariant, "variant", "", sizeof(TensorListRef)},
    {DType::kUInt32, "uint32", "", 4},
    {DType::kUInt64, "uint64", "", 8},
};

/// Where the entry of each enumerator is, beginning with 1; 0: nowhere.
constexpr auto kPlaces = [] {
  std::array<uint8_t, 32> places{};
  for (size_t i = 0; i < std::size(kEntries); ++i) places[static_cast<size_t>(kEntries[i].dtype)] = uint8_t(i + 1);
  return places;
}();

const TypeEntry* find(DType dtype) {
  const auto i = static_cast<size_t>(dtype);
  return i < kPlaces.size() && kPlaces[i] > 0 ? &kEntries[kPlaces[i] - 1] : nullptr;
}

}  // namespace

size_t size_of(DType dtype) {
  const TypeEntry* e = find(dtype);
  return e ? e->size : 0;
}

const char* to_string(DType dtype) {
  const TypeEntry* e = find(dtype);
  return e ? e->name.data() : "invalid";
}

std::optional<DType> dtype_from_string(std::string_view name) {
  const std::string lower = lower_case(name);
  const std::string_view word = std::string_view(lower).substr(lower.starts_with("dt_") ? 3 : 0);
  for (const TypeEntry& e : kEntries)
    if (word == e.name || (!e.tensorflow_name.empty() && word == e.tensorflow_name)) return e.dtype;
  return std::nullopt;
}

bool is_floating(DType d) {
  return d == DType::kFloat32 || d == DType::kFloat64 || d == DType::kFloat16 || d == DType::kBFloat16;
}

bool is_complex(DType d) { return d == DType::kComplex64 || d == DType::kComplex128; }

bool is_object(DType d) { return d == DType::kString || d == DType::kResource || d == DType::kVariant; }

bool is_integer(DType d) {
  switch (d) {
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64: return true;
    default: return false;
  }
}

bool is_known(DType dtype) { return find(dtype) != nullptr; }

bfloat16::bfloat16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) {
    bits = static_cast<uint16_t>((u >> 16) | 0x40);
  } else {
    bits = static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
  }
}

bfloat16::operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float16::float16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 16) & 0x8000;
  const uint32_t magnitude = u & 0x7fffffff;
  uint32_t half;
  if (magnitude > 0x7f800000) {  // NaN
    half = 0x7e00;
  } else if (magnitude >= 0x477ff000) {  // rounds to infinity
    half = 0x7c00;
  } else if (magnitude < 0x38800000) {  // subnormal or zero: let the adder round to nearest even
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
  } else {
    half = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  }
  bits = static_cast<uint16_t>(sign | half);
}

float16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  float magnitude;
  if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else if (exponent == 31) {
    magnitude = std::bit_cast<float>(0x7f800000u | (mantissa << 13));
  } else {
    magnitude = std::bit_cast<float>(((exponent + 112) << 23) | (mantissa << 13));
  }
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

}  // namespace troupe
