// SPDX-License-Identifier: Apache-2.0
// Products of row-major matrices on oneDNN and Eigen.
#include "ops/gemm.h"

#include <Eigen/Core>
#ifdef TROUPE_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

namespace troupe {
namespace {

template <class T> using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class T> bool eigen_gemm(const T* a, bool ta, const T* b, bool tb, T* c, int64_t m, int64_t n, int64_t k) {
  const Eigen::Map<const Matrix<T>> x(a, ta ? k : m, ta ? m : k), y(b, tb ? n : k, tb ? k : n);
  Eigen::Map<Matrix<T>> z(c, m, n);
  if (ta && tb) z.noalias() = x.transpose() * y.transpose();
  else if (ta) z.noalias() = x.transpose() * y;
  else if (tb) z.noalias() = x * y.transpose();
  else z.noalias() = x * y;
  return true;
}

}  // namespace

template <class T> bool gemm(const T* a, bool ta, const T* b, bool tb, T* c, int64_t m, int64_t n, int64_t k) {
  if (m == 0 || n == 0) return true;
  if (k == 0) {
    std::fill_n(c, m * n, T(0));
    return true;
  }
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;  // wraps around where the signed type would be undefined
    return eigen_gemm(reinterpret_cast<const U*>(a), ta, reinterpret_cast<const U*>(b), tb, reinterpret_cast<U*>(c), m,
                      n, k);
  }
#ifdef TROUPE_ONEDNN
  if constexpr (std::is_same_v<T, float>)
    return dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0f, a, ta ? m : k, b, tb ? k : n, 0.0f, c, n) ==
           dnnl_success;
#endif
  return eigen_gemm(a, ta, b, tb, c, m, n, k);
}

template bool gemm(const float*, bool, const float*, bool, float*, int64_t, int64_t, int64_t);
template bool gemm(const double*, bool, const double*, bool, double*, int64_t, int64_t, int64_t);
template bool gemm(const int32_t*, bool, const int32_t*, bool, int32_t*, int64_t, int64_t, int64_t);
template bool gemm(const int64_t*, bool, const int64_t*, bool, int64_t*, int64_t, int64_t, int64_t);
template bool gemm(const complex64*, bool, const complex64*, bool, complex64*, int64_t, int64_t, int64_t);

}  // namespace troupe
