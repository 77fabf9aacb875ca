// SPDX-License-Identifier: Apache-2.0
// Products of row-major matrices on oneDNN and Eigen.
#include "ops/parts/gemm.h"

#include <Eigen/Core>
#include <atomic>
#include <new>

#include "base/memory_available.h"
#include "devices/parallel.h"
#ifdef TROUPE_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

namespace troupe {
namespace {

/// Products below this many multiplications are not worth a second thread.
constexpr int64_t kGemmGrain = 65536;

template <class T> using EigenMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class T> bool eigen_gemm(const T* a, bool ta, const T* b, bool tb, T* c, int64_t m, int64_t n, int64_t k) {
  // Transposed copies in place of code for each of four cases, which takes long to compile.
  using Map = Eigen::Map<const EigenMatrix<T>>;
  EigenMatrix<T> x, y;
  if (ta) x = Map(a, k, m).transpose();
  if (tb) y = Map(b, n, k).transpose();
  Eigen::Map<EigenMatrix<T>>(c, m, n).noalias() = Map(ta ? x.data() : a, m, k) * Map(tb ? y.data() : b, k, n);
  return true;
}

/// Integers are rare and wrap around, row of b by row of b.
template <class T> void integer_gemm(const T* a, bool ta, const T* b, bool tb, T* c, int64_t m, int64_t n, int64_t k) {
  std::vector<T> copy;
  if (tb) {
    copy.resize(static_cast<size_t>(n * k));
    for (int64_t j = 0; j < n; ++j)
      for (int64_t p = 0; p < k; ++p) copy[static_cast<size_t>(p * n + j)] = b[j * k + p];
    b = copy.data();
  }
  std::fill_n(c, m * n, T(0));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; ++p) {
      const T factor = ta ? a[p * m + i] : a[i * k + p];
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += factor * b[p * n + j];
    }
}

#ifdef TROUPE_ONEDNN
/// Distances between the rows of matrices, in elements.
struct RowDistances {
  int64_t a, b, c;
};

/// c = factor * op(a) op(b) + before * c.
bool onednn_gemm(const float* a, bool ta, const float* b, bool tb, float* c, int64_t m, int64_t n, int64_t k,
                 float before, float factor, const RowDistances& rows) {
  // The first product of a kind makes its code, and where there is no memory for that, oneDNN crashes.
  static std::atomic<uint32_t> made{0};
  constexpr size_t kRoomForCode = size_t{64} << 20;
  const uint32_t kind = 1u << (int{ta} | int{tb} << 1 | int{before != 0} << 2 | int{m == 1} << 3 | int{n == 1} << 4);
  const bool known = made.load(std::memory_order_relaxed) & kind;
  if (!known && !memory_available(kRoomForCode)) throw std::bad_alloc();
  const bool done = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, factor, a, rows.a, b, rows.b, before, c,
                               rows.c) == dnnl_success;
  if (!known && done) made.fetch_or(kind, std::memory_order_relaxed);
  return done;
}
bool onednn_gemm(const float* a, bool ta, const float* b, bool tb, float* c, int64_t m, int64_t n, int64_t k,
                 float before) {
  return onednn_gemm(a, ta, b, tb, c, m, n, k, before, 1, {ta ? m : k, tb ? k : n, n});
}
#endif

}  // namespace

template <class T> bool gemm(const T* a, bool ta, const T* b, bool tb, T* c, int64_t m, int64_t n, int64_t k) {
  if (m == 0 || n == 0) return true;
  if (k == 0) {
    std::fill_n(c, m * n, T(0));
    return true;
  }
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;  // wraps around where the signed type would be undefined
    integer_gemm(reinterpret_cast<const U*>(a), ta, reinterpret_cast<const U*>(b), tb, reinterpret_cast<U*>(c), m, n,
                 k);
    return true;
  }
#ifdef TROUPE_ONEDNN
  else if constexpr (std::is_same_v<T, float>) {
    return onednn_gemm(a, ta, b, tb, c, m, n, k, 0);
  }
#endif
  else {
    return eigen_gemm(a, ta, b, tb, c, m, n, k);
  }
}

bool gemm_add(const float* a, bool ta, const float* b, bool tb, float* c, int64_t m, int64_t n, int64_t k) {
  if (m == 0 || n == 0 || k == 0) return true;
#ifdef TROUPE_ONEDNN
  return onednn_gemm(a, ta, b, tb, c, m, n, k, 1);
#else
  EigenMatrix<float> product(m, n);
  if (!eigen_gemm(a, ta, b, tb, product.data(), m, n, k)) return false;
  Eigen::Map<EigenMatrix<float>>(c, m, n) += product;
  return true;
#endif
}

bool gemm_strided(const GemmSizes& sizes, float factor, const float* a, int64_t row_of_a, const float* b, bool tb,
                  int64_t row_of_b, float* c, int64_t row_of_c) {
  const auto [m, n, k] = sizes;
  if (m == 0 || n == 0) return true;
  if (k == 0) {
    for (int64_t i = 0; i < m; ++i) std::fill_n(c + i * row_of_c, n, 0.0f);
    return true;
  }
#ifdef TROUPE_ONEDNN
  return onednn_gemm(a, false, b, tb, c, m, n, k, 0, factor, {row_of_a, row_of_b, row_of_c});
#else
  using Rows = Eigen::OuterStride<>;
  using Map = Eigen::Map<const EigenMatrix<float>, 0, Rows>;
  EigenMatrix<float> y;
  if (tb) y = Map(b, n, k, Rows(row_of_b)).transpose();
  else y = Map(b, k, n, Rows(row_of_b));
  Eigen::Map<EigenMatrix<float>, 0, Rows>(c, m, n, Rows(row_of_c)).noalias() =
      factor * (Map(a, m, k, Rows(row_of_a)) * y);
  return true;
#endif
}

template <class T>
bool gemm_batch(int threads, const T* a, bool ta, const std::vector<int64_t>& xs, const T* b, bool tb,
                const std::vector<int64_t>& ys, T* c, int64_t m, int64_t n, int64_t k) {
  const auto count = static_cast<int64_t>(xs.size());
  std::atomic<bool> ok{true};
  const auto some = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (!gemm(a + xs[i] * m * k, ta, b + ys[i] * k * n, tb, c + i * m * n, m, n, k)) ok = false;
  };
  if (count < threads) some(0, count);
  else parallel_for(threads, count, 1 + kGemmGrain / std::max<int64_t>(m * n * k, 1), some);
  return ok;
}

Result<Tensor> converted(const KernelContext& c, const Tensor& x, DType to) {
  if (x.dtype() == to) return x;
  TROUPE_ASSIGN(Tensor y, c.allocate(to, x.shape()));
  with_type(x.dtype(), OperandTypes{}, [&]<class From>() {
    with_type(to, TypeList<float, int32_t, float16, bfloat16, int16_t>{}, [&]<class To>() {
      if constexpr (!is_complex_type<From>) {
        const From* in = x.data<From>();
        To* out = y.mutable_data<To>();
        parallel_for(c.threads(), x.elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) out[i] = narrow<To>(static_cast<Arithmetic<To>>(widen(in[i])));
        });
      }
    });
  });
  return y;
}

template bool gemm(const float*, bool, const float*, bool, float*, int64_t, int64_t, int64_t);
template bool gemm(const double*, bool, const double*, bool, double*, int64_t, int64_t, int64_t);
template bool gemm(const int32_t*, bool, const int32_t*, bool, int32_t*, int64_t, int64_t, int64_t);
template bool gemm(const int64_t*, bool, const int64_t*, bool, int64_t*, int64_t, int64_t, int64_t);
template bool gemm(const complex64*, bool, const complex64*, bool, complex64*, int64_t, int64_t, int64_t);
template bool gemm(const complex128*, bool, const complex128*, bool, complex128*, int64_t, int64_t, int64_t);
template bool gemm_batch(int, const float*, bool, const std::vector<int64_t>&, const float*, bool,
                         const std::vector<int64_t>&, float*, int64_t, int64_t, int64_t);
template bool gemm_batch(int, const double*, bool, const std::vector<int64_t>&, const double*, bool,
                         const std::vector<int64_t>&, double*, int64_t, int64_t, int64_t);
template bool gemm_batch(int, const int32_t*, bool, const std::vector<int64_t>&, const int32_t*, bool,
                         const std::vector<int64_t>&, int32_t*, int64_t, int64_t, int64_t);
template bool gemm_batch(int, const int64_t*, bool, const std::vector<int64_t>&, const int64_t*, bool,
                         const std::vector<int64_t>&, int64_t*, int64_t, int64_t, int64_t);
template bool gemm_batch(int, const complex64*, bool, const std::vector<int64_t>&, const complex64*, bool,
                         const std::vector<int64_t>&, complex64*, int64_t, int64_t, int64_t);
template bool gemm_batch(int, const complex128*, bool, const std::vector<int64_t>&, const complex128*, bool,
                         const std::vector<int64_t>&, complex128*, int64_t, int64_t, int64_t);

}  // namespace troupe
