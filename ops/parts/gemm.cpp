// SPDX-License-Identifier: Apache-2.0
// Products of row-major matrices on oneDNN and Eigen.
#include "ops/parts/gemm.h"

#include <omp.h>

#include <Eigen/Core>
#include <atomic>
#include <complex>
#include <cstring>
#include <new>

#include "base/memory_available.h"
#include "devices/parallel.h"
#include "ops/parts/instruction_sets.h"
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

/// Where element [i,j] of an operand is.
struct Distances {
  int64_t row, column;
};

// Of the blocks of a and b that are laid out at a time, and in the caches meanwhile.
constexpr int64_t kDepth = 256, kHeight = 64, kWidth = 64;
constexpr int64_t kRoom = (kHeight + kWidth) * kDepth;  // numbers of such blocks
constexpr int64_t kFewProducts = 8192;                  // for which laying out does not pay

/// c[4,n] += the product of packed panels, `depth` times 4 numbers of a and n of b.
template <class T, class V>
[[gnu::always_inline]] inline void multiply_panels(const T* a, const T* b, int64_t depth, T* c, int64_t row_of_c,
                                                   int64_t rows, int64_t columns) {
  constexpr int64_t kWide = sizeof(V) / sizeof(T), kColumns = 2 * kWide;
  V sums[4][2] = {};
  for (int64_t p = 0; p < depth; ++p, a += 4, b += kColumns) {
    V left, right;
    std::memcpy(&left, b, sizeof(V));
    std::memcpy(&right, b + kWide, sizeof(V));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      sums[i][0] += a[i] * left;
      sums[i][1] += a[i] * right;
    }
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) c[i * row_of_c + j] += sums[i][j / kWide][j % kWide];
}

/// c[m,n] += a b for columns [begin, end) of b and c, at most kWidth, with room for kRoom numbers; V is a vector of T.
template <class T, class V>
[[gnu::always_inline]] inline void packed_gemm_body(const T* a, Distances sa, const T* b, Distances sb, T* c, int64_t m,
                                                    int64_t n, int64_t k, int64_t begin, int64_t end, T* room) {
  constexpr int64_t kColumns = 2 * sizeof(V) / sizeof(T);
  const int64_t panels = (end - begin + kColumns - 1) / kColumns;
  T *const of_a = room, *const of_b = room + kHeight * kDepth;
  for (int64_t from = 0; from < k; from += kDepth) {
    const int64_t depth = std::min(kDepth, k - from);
    T* to = of_b;
    for (int64_t j = begin; j < end; j += kColumns)
      for (int64_t p = from; p < from + depth; ++p)
        for (int64_t q = j; q < j + kColumns; ++q) *to++ = q < end ? b[p * sb.row + q * sb.column] : T(0);
    for (int64_t top = 0; top < m; top += kHeight) {
      const int64_t height = std::min(kHeight, m - top);
      to = of_a;
      for (int64_t i = top; i < top + height; i += 4)
        for (int64_t p = from; p < from + depth; ++p)
          for (int64_t q = i; q < i + 4; ++q) *to++ = q < m ? a[q * sa.row + p * sa.column] : T(0);
      for (int64_t j = 0; j < panels; ++j)
        for (int64_t i = 0; i < height; i += 4) {
          const int64_t column = begin + j * kColumns;
          multiply_panels<T, V>(of_a + i * depth, of_b + j * kColumns * depth, depth, c + (top + i) * n + column, n,
                                std::min<int64_t>(4, height - i), std::min(kColumns, end - column));
        }
    }
  }
}
#define TROUPE_PACKED_GEMM(name, target)                                                                            \
  template <class T, class V>                                                                                       \
  target [[gnu::flatten]] void name(const T* a, Distances sa, const T* b, Distances sb, T* c, int64_t m, int64_t n, \
                                    int64_t k, int64_t begin, int64_t end, T* room) {                               \
    packed_gemm_body<T, V>(a, sa, b, sb, c, m, n, k, begin, end, room);                                             \
  }
TROUPE_PACKED_GEMM(packed_gemm_plain, )
TROUPE_PACKED_GEMM(packed_gemm_avx2, TROUPE_AVX2_AND_FMA)
TROUPE_PACKED_GEMM(packed_gemm_avx512, TROUPE_AVX512)
#undef TROUPE_PACKED_GEMM

template <class T, size_t bytes> struct VectorOf { typedef T Type __attribute__((vector_size(bytes))); };

/// c[m,n] += op(a) op(b).
template <class T> void packed_gemm(const T* a, bool ta, const T* b, bool tb, T* c, int64_t m, int64_t n, int64_t k) {
  auto* const some = has_avx512()         ? packed_gemm_avx512<T, typename VectorOf<T, 64>::Type>
                     : has_avx2_and_fma() ? packed_gemm_avx2<T, typename VectorOf<T, 32>::Type>
                                          : packed_gemm_plain<T, typename VectorOf<T, 16>::Type>;
  const Distances sa = ta ? Distances{1, m} : Distances{k, 1}, sb = tb ? Distances{1, k} : Distances{n, 1};
  const int64_t parts = (n + kWidth - 1) / kWidth;
  const int threads =
      m * n * k < 2 * kGemmGrain ? 1 : static_cast<int>(std::min<int64_t>(omp_get_max_threads(), parts));
  std::vector<T> rooms(static_cast<size_t>(threads * kRoom));
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t i = 0; i < parts; ++i)
    some(a, sa, b, sb, c, m, n, k, i * kWidth, std::min(n, (i + 1) * kWidth),
         rooms.data() + omp_get_thread_num() * kRoom);
}

/// By four products of real and imaginary parts.
template <class R>
bool complex_gemm(const std::complex<R>* a, bool ta, const std::complex<R>* b, bool tb, std::complex<R>* c, int64_t m,
                  int64_t n, int64_t k) {
  std::vector<R> parts(static_cast<size_t>(3 * m * k + 2 * k * n + 2 * m * n));
  R *const ar = parts.data(), *const ai = ar + m * k, *const minus = ai + m * k, *const br = minus + m * k,
           *const bi = br + k * n, *const cr = bi + k * n, *const ci = cr + m * n;
  for (int64_t i = 0; i < m * k; ++i) {
    ar[i] = a[i].real();
    ai[i] = a[i].imag();
    minus[i] = -a[i].imag();
  }
  for (int64_t i = 0; i < k * n; ++i) {
    br[i] = b[i].real();
    bi[i] = b[i].imag();
  }
  const auto add = [&](const R* x, const R* y, R* z) {
    if constexpr (std::is_same_v<R, float>) return gemm_add(x, ta, y, tb, z, m, n, k);
    else return packed_gemm(x, ta, y, tb, z, m, n, k), true;
  };
  const bool ok = add(ar, br, cr) && add(minus, bi, cr) && add(ar, bi, ci) && add(ai, br, ci);
  for (int64_t i = 0; i < m * n; ++i) c[i] = {cr[i], ci[i]};
  return ok;
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
    using U = std::make_unsigned_t<T>;                 // wraps around where the signed type would be undefined
    if (sizeof(T) == 4 && m * n * k > kFewProducts) {  // vectors of 64-bit integers cannot be multiplied
      std::fill_n(c, m * n, T(0));
      packed_gemm(reinterpret_cast<const U*>(a), ta, reinterpret_cast<const U*>(b), tb, reinterpret_cast<U*>(c), m, n,
                  k);
      return true;
    }
    integer_gemm(reinterpret_cast<const U*>(a), ta, reinterpret_cast<const U*>(b), tb, reinterpret_cast<U*>(c), m, n,
                 k);
    return true;
  }
#ifdef TROUPE_ONEDNN
  else if constexpr (std::is_same_v<T, float>) {
    return onednn_gemm(a, ta, b, tb, c, m, n, k, 0);
  }
#endif
  else if constexpr (std::is_same_v<T, double>) {
    if (m < 4 || n < 4 || m * n * k <= kFewProducts) return eigen_gemm(a, ta, b, tb, c, m, n, k);
    std::fill_n(c, m * n, T(0));
    packed_gemm(a, ta, b, tb, c, m, n, k);
    return true;
  } else {
    if constexpr (is_complex_type<T>)
      if (m >= 4 && n >= 4 && m * n * k > kFewProducts) return complex_gemm(a, ta, b, tb, c, m, n, k);
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
