// SPDX-License-Identifier: Apache-2.0
// Random numbers and tensors.
#include "tests/fuzz/op_values.h"

#include <cmath>
#include <limits>

#include "ops/parts/type_dispatch.h"

namespace troupe::fuzz {
namespace {

/// Calls f with a value of the C++ type of a dtype of numbers; false for other dtypes.
template <class F> bool with_number(DType dtype, F f) {
  switch (dtype) {
    case DType::kFloat32: f(float{}); return true;
    case DType::kFloat64: f(double{}); return true;
    case DType::kFloat16: f(float16{}); return true;
    case DType::kBFloat16: f(bfloat16{}); return true;
    case DType::kInt8: f(int8_t{}); return true;
    case DType::kInt16: f(int16_t{}); return true;
    case DType::kInt32: f(int32_t{}); return true;
    case DType::kInt64: f(int64_t{}); return true;
    case DType::kUInt8: f(uint8_t{}); return true;
    case DType::kUInt16: f(uint16_t{}); return true;
    case DType::kUInt32: f(uint32_t{}); return true;
    case DType::kUInt64: f(uint64_t{}); return true;
    case DType::kBool: f(bool{}); return true;
    case DType::kComplex64: f(complex64{}); return true;
    case DType::kComplex128: f(complex128{}); return true;
    default: return false;
  }
}

template <class T> T number(double v) {
  if constexpr (std::is_same_v<T, bool>) return v != 0;
  else if constexpr (std::is_integral_v<T>) {
    if (!(v > static_cast<double>(std::numeric_limits<T>::min()))) return std::numeric_limits<T>::min();
    if (v >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    return static_cast<T>(v);
  } else if constexpr (is_complex_type<T> || std::is_same_v<T, double>) return T(v);
  else {
    const double most = std::numeric_limits<float>::max();
    return T(std::isfinite(v) ? static_cast<float>(std::clamp(v, -most, most)) : static_cast<float>(v));
  }
}

double extreme(Rng& rng, bool real) {
  static const std::vector<double> reals = {NAN,          INFINITY,      -INFINITY, -0.0,  1e-45, 5e-324,
                                            3.4028235e38, -3.4028235e38, 1e308,     65504, -1,    1e-300,
                                            1e10,         -1e10,         0,         88.8};
  static const std::vector<double> integers = {
      -9.3e18,    9.3e18, -1,  -2,  -2147483648.0, 0,      2147483647,
      4294967295, -128,   127, 255, 32767,         -32768, 4611686018427387904.0};
  return rng.one_of(real ? reals : integers);
}

std::string any_string(Rng& rng) {
  static const std::vector<std::string> words = {"",
                                                 "a",
                                                 "b",
                                                 "abc",
                                                 "12",
                                                 "-3",
                                                 "0.5",
                                                 "1e400",
                                                 "a,b,c",
                                                 "x y  z",
                                                 "\xff\xfe",
                                                 std::string("\0z", 2),
                                                 "n",
                                                 "\n",
                                                 "%s,",
                                                 "é€𝄞",
                                                 "\xf0\x9f",
                                                 "nan",
                                                 std::string(300, 'q'),
                                                 "9223372036854775808",
                                                 "a\"b,\"",
                                                 "YWJj",
                                                 "[0-9]+"};
  return rng.one_of(words);
}

}  // namespace

int64_t Rng::between(int64_t low, int64_t high) {
  if (high <= low) return low;
  return low + static_cast<int64_t>(engine_() % (static_cast<uint64_t>(high - low) + 1));
}

double Rng::real(double low, double high) {
  return low + (high - low) * (static_cast<double>(engine_() >> 11) / 9007199254740992.0);
}

int64_t any_size(Rng& rng) {
  static const std::vector<int64_t> sizes = {0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 5, 8};
  return rng.one_of(sizes);
}

void set_number(Tensor& t, int64_t i, double v) {
  if (t.dtype() == DType::kString) t.mutable_data<std::string>()[i] = fmt::format("{}", v);
  with_number(t.dtype(), [&](auto zero) { t.mutable_data<decltype(zero)>()[i] = number<decltype(zero)>(v); });
}

Tensor any_tensor(Rng& rng, DType dtype, const Shape& shape) {
  Tensor t = *Tensor::zeros(dtype, shape);
  if (dtype == DType::kString) {
    for (int64_t i = 0; i < t.elements(); ++i) t.mutable_data<std::string>()[i] = any_string(rng);
    return t;
  }
  const bool real = is_floating(dtype) || is_complex(dtype);
  const auto style = rng.between(0, 9);
  for (int64_t i = 0; i < t.elements(); ++i) {
    double v = real ? rng.real(-1, 1) : static_cast<double>(rng.between(0, 3));
    if (style <= 1) v = static_cast<double>(rng.between(-3, 3));
    if (style == 2)
      v = real ? std::exp(rng.real(-60, 60)) * (rng.percent(50) ? 1 : -1) : static_cast<double>(rng.between(0, 100));
    set_number(t, i, v);
    with_type(dtype, ComplexTypes{},
              [&]<class T>() { t.mutable_data<T>()[i] += T(0, static_cast<Real<T>>(rng.real(-1, 1))); });
  }
  if (style == 3) make_extreme(rng, t);
  return t;
}

void make_extreme(Rng& rng, Tensor& t) {
  if (t.elements() == 0) return;
  const bool real = is_floating(t.dtype()) || is_complex(t.dtype());
  for (int64_t n = rng.between(1, 3); n > 0; --n)
    if (t.dtype() != DType::kString) set_number(t, rng.between(0, t.elements() - 1), extreme(rng, real));
    else t.mutable_data<std::string>()[rng.between(0, t.elements() - 1)] = any_string(rng);
}

const std::vector<DType>& value_dtypes() {
  static const std::vector<DType> dtypes = {DType::kFloat32, DType::kFloat64,   DType::kFloat16,    DType::kBFloat16,
                                            DType::kInt8,    DType::kInt16,     DType::kInt32,      DType::kInt64,
                                            DType::kUInt8,   DType::kUInt16,    DType::kUInt32,     DType::kUInt64,
                                            DType::kBool,    DType::kComplex64, DType::kComplex128, DType::kString};
  return dtypes;
}

bool agree(const Tensor& a, const Tensor& b, bool close) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  if (a.dtype() == DType::kResource || a.dtype() == DType::kVariant || a.identical(b)) return true;
  const auto same = [&](double x, double y) {
    if (x == y || (std::isnan(x) && std::isnan(y))) return true;
    const double tolerance = a.dtype() == DType::kFloat64 || a.dtype() == DType::kComplex128 ? 1e-9
                             : a.dtype() == DType::kFloat32                                  ? 1e-3
                                                                                             : 5e-2;
    return close && std::fabs(x - y) <= tolerance * (1 + std::max(std::fabs(x), std::fabs(y)));
  };
  bool all = a.dtype() != DType::kString;
  with_number(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < a.elements() && all; ++i) {
      const T x = a.data<T>()[i], y = b.data<T>()[i];
      if constexpr (is_complex_type<T>) all = same(x.real(), y.real()) && same(x.imag(), y.imag());
      else if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
        all = same(static_cast<float>(x), static_cast<float>(y));
      else if constexpr (std::is_floating_point_v<T>) all = same(x, y);
      else all = x == y;
    }
  });
  return all;
}

}  // namespace troupe::fuzz
