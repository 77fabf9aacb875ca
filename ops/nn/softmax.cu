// SPDX-License-Identifier: Apache-2.0
// Softmax, LogSoftmax and cross-entropies of softmax on GPUs: a row of threads for each row of logits. A label that is
// not a column, which is an error on CPUs, makes the loss of its row and the gradient NaN: a GPU has no way to say so.
#include "ops/nn/softmax.h"

#include <limits>

#include "gpu/warp.cuh"
#include "ops/nn/register.h"
#include "ops/parts/fast_math.h"
#include "ops/parts/gpu_elementwise.h"
#include "ops/parts/type_dispatch.h"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

template <class A> __device__ inline A exponential(A x) {
  if constexpr (std::is_same_v<A, float>) return fast_math::exp(x);
  else return std::exp(x);
}

/// The largest of a row of logits and the sum of their exponentials behind it.
template <class A> struct RowSum { A largest, sum; };
template <class A, class T> __device__ inline RowSum<A> sum_row(const T* x, int64_t stride, int64_t n) {
  RowSum<A> row{-std::numeric_limits<A>::infinity(), A(0)};
  const auto larger = [](A a, A b) { return a < b ? b : a; };
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) row.largest = larger(row.largest, widen(x[i * stride]));
  row.largest = reduce_row(row.largest, -std::numeric_limits<A>::infinity(), larger);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) row.sum += exponential(widen(x[i * stride]) - row.largest);
  row.sum = reduce_row(row.sum, A(0), [](A a, A b) { return a + b; });
  return row;
}

template <class T> __global__ void softmax_rows(T* out, const T* in, int64_t rows, int64_t n, bool log) {
  using A = Arithmetic<T>;
  for_each_row(rows, [&](int64_t r) {
    const T* const x = in + r * n;
    T* const y = out + r * n;
    const RowSum<A> row = sum_row<A>(x, 1, n);
    const A log_sum = std::log(row.sum);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const A shifted = widen(x[i]) - row.largest;
      y[i] = narrow<T>(log ? shifted - log_sum : exponential(shifted) / row.sum);
    }
  });
}

/// A matrix that broadcasts: how far apart its rows and columns are.
template <class T> struct Matrix {
  const T* at;
  int64_t row, column;
  explicit Matrix(const Tensor& t)
      : at(static_cast<const T*>(t.address())), row(t.dim(0) == 1 ? 0 : t.dim(1)), column(t.dim(1) == 1 ? 0 : 1) {}
};

/// `back` may be the memory of the logits: a thread writes what it alone still reads.
template <class T>
__global__ void cross_entropy_rows(T* loss, T* back, Matrix<T> logits, Matrix<T> labels, int64_t rows, int64_t n) {
  using A = Arithmetic<T>;
  for_each_row(rows, [&](int64_t r) {
    const T* const x = logits.at + r * logits.row;
    const RowSum<A> row = sum_row<A>(x, logits.column, n);
    const A log_sum = std::log(row.sum);
    A total = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const A label = widen(labels.at[r * labels.row + i * labels.column]);
      const A shifted = widen(x[i * logits.column]) - row.largest;
      if (label != A(0)) total += label * (log_sum - shifted);
      back[r * n + i] = narrow<T>(exponential(shifted) / row.sum - label);
    }
    total = reduce_row(total, A(0), [](A a, A b) { return a + b; });
    if (threadIdx.x == 0) loss[r] = narrow<T>(total);
  });
}

template <class T, class I>
__global__ void sparse_cross_entropy_rows(T* loss, T* back, const T* logits, const I* labels, int64_t rows, int64_t n) {
  using A = Arithmetic<T>;
  for_each_row(rows, [&](int64_t r) {
    const T* const x = logits + r * n;
    const int64_t label = labels[r];
    const bool known = label >= 0 && label < n;
    // Read before the sum is known to all, since `back` may be the memory of the logits.
    const A of_label = known ? widen(x[label]) : A(0);
    const RowSum<A> row = sum_row<A>(x, 1, n);
    const A nan = std::numeric_limits<A>::quiet_NaN();
    if (threadIdx.x == 0) loss[r] = narrow<T>(known ? std::log(row.sum) - (of_label - row.largest) : nan);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const A p = exponential(widen(x[i]) - row.largest) / row.sum;
      back[r * n + i] = narrow<T>(known ? p - (i == label ? A(1) : A(0)) : nan);
    }
  });
}

template <class T> class GpuSoftmax final : public ComputeKernel {
 public:
  explicit GpuSoftmax(const KernelInit& init) : log_(init.op == "LogSoftmax") {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_RETURN_IF_ERROR(check_logits(x.shape()));
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, dtype_of<T>, x.shape()));
    if (x.elements() > 0) {
      declare_uses(c, {&y});
      const gpu::Compute& gpu = *c.device().gpu;
      const int64_t n = x.dim(-1), rows = x.elements() / n;
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, softmax_rows<T>, row_blocks(gpu.card, rows, n), row_threads(n),
                                           0, static_cast<T*>(y.mutable_address()), static_cast<const T*>(x.address()),
                                           rows, n, log_));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool log_;
};

template <class T> class GpuCrossEntropy final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &labels = c.input(1);
    TROUPE_ASSIGN(const Shape shape, cross_entropy_shape(x.shape(), labels.shape()));
    const Matrix<T> logits(x);  // before their buffer is taken
    TROUPE_ASSIGN(Tensor loss, c.allocate(dtype_of<T>, {shape[0]}));
    TROUPE_ASSIGN(Tensor back, c.forward_or_allocate(0, dtype_of<T>, shape));
    if (const int64_t rows = shape[0], n = shape[1]; rows > 0) {
      declare_uses(c, {&loss, &back});
      const gpu::Compute& gpu = *c.device().gpu;
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, cross_entropy_rows<T>, row_blocks(gpu.card, rows, n),
                                           row_threads(n), 0, static_cast<T*>(loss.mutable_address()),
                                           static_cast<T*>(back.mutable_address()), logits, Matrix<T>(labels), rows,
                                           n));
    }
    c.set_output(0, std::move(loss));
    c.set_output(1, std::move(back));
    return {};
  }
};

template <class T, class I> class GpuSparseCrossEntropy final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &labels = c.input(1);
    TROUPE_RETURN_IF_ERROR(check_sparse_labels(labels.shape(), x.shape()));
    const int64_t rows = x.dim(0), n = x.dim(1);
    TROUPE_ASSIGN(Tensor loss, c.allocate(dtype_of<T>, {rows}));
    TROUPE_ASSIGN(Tensor back, c.forward_or_allocate(0, dtype_of<T>, x.shape()));
    if (rows > 0) {
      declare_uses(c, {&loss, &back});
      const gpu::Compute& gpu = *c.device().gpu;
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, (sparse_cross_entropy_rows<T, I>), row_blocks(gpu.card, rows, n),
                                           row_threads(n), 0, static_cast<T*>(loss.mutable_address()),
                                           static_cast<T*>(back.mutable_address()), static_cast<const T*>(x.address()),
                                           static_cast<const I*>(labels.address()), rows, n));
    }
    c.set_output(0, std::move(loss));
    c.set_output(1, std::move(back));
    return {};
  }
};

template <class... T> void add_kernels(KernelRegistry& kernels, TypeList<T...>) {
  const char* const sparse = "SparseSoftmaxCrossEntropyWithLogits";
  const auto types = [](DType t, DType labels) { return KernelRegistry::Types{{"T", {t}}, {"Tlabels", {labels}}}; };
  for (const char* op : {"Softmax", "LogSoftmax"})
    (kernels.add(op, DeviceKind::kCuda, "T", dtype_of<T>, KernelFactory::of<GpuSoftmax<T>>()), ...);
  (kernels.add("SoftmaxCrossEntropyWithLogits", DeviceKind::kCuda, "T", dtype_of<T>,
               KernelFactory::of<GpuCrossEntropy<T>>()),
   ...);
  (kernels.add<GpuSparseCrossEntropy<T, int32_t>>(sparse, DeviceKind::kCuda, types(dtype_of<T>, DType::kInt32)), ...);
  (kernels.add<GpuSparseCrossEntropy<T, int64_t>>(sparse, DeviceKind::kCuda, types(dtype_of<T>, DType::kInt64)), ...);
}

}  // namespace

void register_softmax_gpu(KernelRegistry& kernels) { add_kernels(kernels, FloatTypes{}); }

}  // namespace troupe::TROUPE_GPU_VARIANT
