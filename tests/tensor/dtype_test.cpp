// SPDX-License-Identifier: Apache-2.0
// Dtypes, and the two 16-bit floats against all of their 65536 values and the ties between them.
#include "troupe/dtype.h"

#include <Eigen/Core>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

using namespace troupe;

namespace {

/// The value of a binary16, from its definition.
double value_of_half(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

template <class H> void check_rounding(uint16_t lower, double a, double b) {
  // Between neighbours a < b, whose bits are `lower` and `lower` + 1: nearest wins, a tie goes to the even one.
  const auto middle = static_cast<float>((a + b) / 2);
  const uint16_t even = lower % 2 == 0 ? lower : lower + 1;
  for (float sign : {1.f, -1.f}) {
    const uint16_t minus = sign < 0 ? 0x8000 : 0;
    REQUIRE(H(sign * middle).bits == (even | minus));
    REQUIRE(H(sign * std::nextafter(middle, 0.f)).bits == (lower | minus));
    REQUIRE(H(sign * std::nextafter(middle, INFINITY)).bits == ((lower + 1) | minus));
  }
}

}  // namespace

TEST_CASE("every float16 becomes its float and returns") {
  for (uint32_t i = 0; i < 65536; ++i) {
    float16 h;
    h.bits = static_cast<uint16_t>(i);
    const auto f = static_cast<float>(h);
    const double expected = value_of_half(h.bits);
    if (std::isnan(expected)) {
      REQUIRE(std::isnan(f));
      REQUIRE(std::isnan(static_cast<float>(float16(f))));
    } else {
      REQUIRE(std::bit_cast<uint32_t>(f) == std::bit_cast<uint32_t>(static_cast<float>(expected)));
      REQUIRE(float16(f).bits == h.bits);
    }
  }
}

TEST_CASE("float16 rounds to nearest, ties to even, between all neighbours") {
  for (uint16_t i = 0; i < 0x7bff; ++i) check_rounding<float16>(i, value_of_half(i), value_of_half(i + 1));
  check_rounding<float16>(0x7bff, 65504, 65536);  // beyond the largest lies infinity
  CHECK(float16(1e30f).bits == 0x7c00);
  CHECK(float16(-INFINITY).bits == 0xfc00);
  CHECK(float16(-0.f).bits == 0x8000);
  CHECK(float16(std::numeric_limits<float>::denorm_min()).bits == 0);
}

TEST_CASE("every bfloat16 becomes its float and returns; rounding is to nearest even") {
  for (uint32_t i = 0; i < 65536; ++i) {
    bfloat16 b;
    b.bits = static_cast<uint16_t>(i);
    const auto f = static_cast<float>(b);
    REQUIRE(std::bit_cast<uint32_t>(f) == i << 16);
    if (std::isnan(f)) REQUIRE(std::isnan(static_cast<float>(bfloat16(f))));
    else REQUIRE(bfloat16(f).bits == b.bits);
  }
  for (uint32_t i = 0; i < 0x7f7f; ++i)
    check_rounding<bfloat16>(static_cast<uint16_t>(i), std::bit_cast<float>(i << 16),
                             std::bit_cast<float>((i + 1) << 16));
  CHECK(bfloat16(std::numeric_limits<float>::max()).bits == 0x7f80);
  // A NaN whose payload lies in the lower half must not become infinity.
  CHECK(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0x7f800001u)))));
  CHECK(std::isnan(static_cast<float>(float16(std::bit_cast<float>(0x7f800001u)))));
}

TEST_CASE("names, TensorFlow's names and sizes of all dtypes") {
  int known = 0;
  for (int d = -128; d < 128; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (!is_known(dtype)) {
      CHECK(size_of(dtype) == 0);
      CHECK(std::string(to_string(dtype)) == "invalid");
      continue;
    }
    ++known;
    CHECK(size_of(dtype) > 0);
    CHECK(dtype_from_string(to_string(dtype)) == dtype);
  }
  CHECK(known == 18);
  CHECK(dtype_from_string("DT_FLOAT") == DType::kFloat32);
  CHECK(dtype_from_string("half") == DType::kFloat16);
  CHECK(dtype_from_string("double") == DType::kFloat64);
  CHECK(dtype_from_string("DT_INT64") == DType::kInt64);
  CHECK(!dtype_from_string(""));
  CHECK(!dtype_from_string("invalid"));
  CHECK(!dtype_from_string("float8"));
  CHECK(size_of(DType::kComplex64) == 8);
  CHECK(size_of(DType::kComplex128) == 16);
  CHECK(is_floating(DType::kBFloat16));
  CHECK(!is_floating(DType::kComplex64));
  CHECK((is_complex(DType::kComplex64) && is_complex(DType::kComplex128)));
  CHECK(!is_complex(DType::kFloat64));
  CHECK(is_integer(DType::kUInt64));
  CHECK(!is_integer(DType::kBool));
}

TEST_CASE("each dtype has TensorFlow's number and name, and the size of its C++ type") {
  struct Known {
    DType dtype;
    int number;
    const char* name;
    size_t size;
  };
  const Known all[] = {{dtype_of<float>, 1, "DT_FLOAT", 4},
                       {dtype_of<double>, 2, "DT_DOUBLE", 8},
                       {dtype_of<int32_t>, 3, "DT_INT32", 4},
                       {dtype_of<uint8_t>, 4, "DT_UINT8", 1},
                       {dtype_of<int16_t>, 5, "DT_INT16", 2},
                       {dtype_of<int8_t>, 6, "DT_INT8", 1},
                       {dtype_of<std::string>, 7, "DT_STRING", sizeof(std::string)},
                       {dtype_of<complex64>, 8, "DT_COMPLEX64", 8},
                       {dtype_of<int64_t>, 9, "DT_INT64", 8},
                       {dtype_of<bool>, 10, "DT_BOOL", sizeof(bool)},
                       {dtype_of<bfloat16>, 14, "DT_BFLOAT16", 2},
                       {dtype_of<uint16_t>, 17, "DT_UINT16", 2},
                       {dtype_of<complex128>, 18, "DT_COMPLEX128", 16},
                       {dtype_of<float16>, 19, "DT_HALF", 2},
                       {dtype_of<ResourceRef>, 20, "DT_RESOURCE", sizeof(ResourceRef)},
                       {dtype_of<TensorListRef>, 21, "DT_VARIANT", sizeof(TensorListRef)},
                       {dtype_of<uint32_t>, 22, "DT_UINT32", 4},
                       {dtype_of<uint64_t>, 23, "DT_UINT64", 8}};
  for (const Known& k : all) {
    CHECK(static_cast<int>(k.dtype) == k.number);
    CHECK(dtype_from_string(k.name) == k.dtype);
    CHECK(size_of(k.dtype) == k.size);
    CHECK(is_object(k.dtype) == (k.number == 7 || k.number == 20 || k.number == 21));
    CHECK(is_floating(k.dtype) == (k.number == 1 || k.number == 2 || k.number == 14 || k.number == 19));
  }
  CHECK(dtype_of<char> == DType::kInvalid);
  CHECK(dtype_of<const float> == DType::kInvalid);
  for (const char* none : {"DT_INVALID", "DT_FLOAT_REF", "DT_DT_FLOAT", " float", "float ", "DT_", "DT_COMPLEX256"})
    CHECK_FALSE(dtype_from_string(none));
}

TEST_CASE("16-bit floats lie in memory as Eigen's do") {
  static_assert(sizeof(float16) == sizeof(Eigen::half) && sizeof(bfloat16) == sizeof(Eigen::bfloat16));
  for (const float f : {0.F, -0.F, 1.F, -2.5F, 65504.F, 1e-7F, INFINITY}) {
    CHECK(std::bit_cast<Eigen::half>(float16(f)) == Eigen::half(f));
    CHECK(std::bit_cast<Eigen::bfloat16>(bfloat16(f)) == Eigen::bfloat16(f));
  }
}
