// SPDX-License-Identifier: Apache-2.0
// Blas: matrix products on GPUs, with what may follow them at once. There are two: cuBLASLt (gpu/cublas.h), and a fake
// on the host (gpu/fake/fake_blas.h). Implemented in gpu/blas.cpp.
#pragma once
#include "gpu/compute.h"
#include "troupe/dtype.h"

namespace troupe::gpu {

enum class Activation {
  kNone,
  kRelu,
  kGelu,  // by tanh: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
};

/// Sums that a product makes by the way, of what it has at hand.
enum class SumsOf {
  kNone,
  kResult,  // n: over the rows of c; only with `mask` or `gelu_of`
  kA,       // m: over the k elements of each row of op(a); without bias, activation, mask and gelu_of
  kB,       // n: over the k elements of each column of op(b); likewise
};

/// c = activation(alpha op(a) op(b) + beta c + bias), row-major and dense, where op transposes when ta or tb: a is
/// [m,k], or [k,m] with ta; b is [k,n], or [n,k] with tb; c is [m,n]. All in the card's memory; sizes are above 0.
struct Product {
  DType dtype = DType::kFloat32;  // of all: float32, float64, float16 or bfloat16; 16-bit floats add up as float32
  int64_t m = 0, n = 0, k = 0;
  bool ta = false, tb = false;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  /// So many products: those of c lie one behind the other, those of a and b so many elements apart (0: one for all).
  int64_t batch = 1;
  int64_t a_step = 0, b_step = 0;
  double alpha = 1, beta = 0;

  const void* bias = nullptr;  // n elements, added to each row; not with `mask` or `gelu_of`
  Activation activation = Activation::kNone;
  /// If not null, Blas::mask_bytes() of memory with a bit for each element of c, which becomes 0 where that is 0: the
  /// derivative of Relu. Row after row, each in whole 16 bytes, the first element in the lowest bit of the first byte.
  /// Without bias and activation; `batch` is 1.
  const void* mask = nullptr;
  /// If not null, m n elements x: each of c is multiplied by the derivative of Activation::kGelu at its x. Without
  /// bias, activation and mask; `batch` is 1.
  const void* gelu_of = nullptr;

  SumsOf sums = SumsOf::kNone;
  void* sums_to = nullptr;  // as many elements as `sums` says; `batch` is 1
};

/// Thread-safe.
class Blas {
 public:
  virtual ~Blas() = default;
  /// Puts the product into the device's stream. Errors: kUnimplemented for types that it has none of; those of the
  /// library and of memory for it to work in.
  virtual Status multiply(const Compute& gpu, const Product& product) = 0;
  /// Bytes of the mask of a product [m,n].
  static int64_t mask_bytes(int64_t m, int64_t n) { return m * ((n + 127) / 128 * 16); }
};

/// A product as libraries have it whose matrices are column-major: the transposed result [columns, rows] = op(left)
/// op(right), where left is of what was b. Leading sizes are in elements.
struct ColumnMajorProduct {
  int64_t m, n, k;  // the result is [m,n], as that library counts: m is the row-major n
  bool transpose_left, transpose_right;
  const void *left, *right;
  int64_t left_rows, left_columns, right_rows, right_columns;  // as they lie in memory; the rows are the leading size
  int64_t left_step, right_step, result_step;
};
ColumnMajorProduct column_major(const Product& product);

}  // namespace troupe::gpu
