// SPDX-License-Identifier: Apache-2.0
// Softmax, LogSoftmax and the cross-entropies of softmax with their gradients.
#include "ops/nn/softmax.h"

#include "devices/parallel.h"
#include "ops/nn/register.h"
#include "ops/parts/fast_math.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/lanes.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {

Status check_logits(const Shape& logits) {
  if (logits.rank() < 1) return invalid_argument("logits must have rank 1 or more, but are a scalar");
  return {};
}

Result<Shape> cross_entropy_shape(const Shape& logits, const Shape& labels) {
  if (logits.rank() != 2 || labels.rank() != 2)
    return invalid_argument("logits {} and labels {} must be matrices", logits.str(), labels.str());
  return broadcast(logits, labels);
}

Status check_sparse_labels(const Shape& labels, const Shape& logits) {
  if (logits.rank() != 2 || labels.rank() != 1 || labels[0] != logits[0])
    return invalid_argument("labels {} do not fit logits {}", labels.str(), logits.str());
  return {};
}

namespace {

/// Subtracts from each row of n of `count` elements its largest.
template <class A> [[gnu::always_inline]] inline void shift_rows(A* e, int64_t count, int64_t n) {
  for (A* end = e + count; e < end; e += n) {
    const A largest = largest_of(e, n);
    for (int64_t i = 0; i < n; ++i) e[i] -= largest;
  }
}
TROUPE_SIMD_CLONES void shift(float* e, int64_t count, int64_t n) { shift_rows(e, count, n); }
void shift(double* e, int64_t count, int64_t n) { shift_rows(e, count, n); }

/// e[i] = exp(e[i]).
TROUPE_SIMD_CLONES void exp_all(float* e, int64_t count) {
  for (int64_t i = 0; i < count; ++i) e[i] = fast_math::exp(e[i]);
}
void exp_all(double* e, int64_t count) {
  for (int64_t i = 0; i < count; ++i) e[i] = std::exp(e[i]);
}

template <class A> [[gnu::always_inline]] inline A sum_row(const A* e, int64_t n) {
  return sum_of<A>(n, [=](int64_t i) { return e[i]; });
}

/// Divides each row of n of `count` elements by its sum.
template <class A> [[gnu::always_inline]] inline void scale_rows(A* e, int64_t count, int64_t n) {
  for (A* end = e + count; e < end; e += n) {
    const A factor = 1 / sum_row(e, n);
    for (int64_t i = 0; i < n; ++i) e[i] *= factor;
  }
}
TROUPE_SIMD_CLONES void scale(float* e, int64_t count, int64_t n) { scale_rows(e, count, n); }
void scale(double* e, int64_t count, int64_t n) { scale_rows(e, count, n); }

/// e[i] = exp(x[i] - max x); returns the logarithm of their sum and sets `sum`. `shifted`, if any, gets x[i] - max x.
template <class T, class A> A exponentials(const T* x, int64_t stride, int64_t n, A* e, A* shifted, A& sum) {
  for (int64_t i = 0; i < n; ++i) e[i] = widen(x[i * stride]);
  shift(e, n, n);
  if (shifted) std::copy_n(e, n, shifted);
  exp_all(e, n);
  sum = sum_row(e, n);
  return std::log(sum);
}

/// Rows of a thread's share: about kDearGrain exponentials.
int64_t row_grain(int64_t n) { return 1 + kDearGrain / std::max<int64_t>(n, 1); }

Status softmax_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank_at_least(0, 1));
  return unchanged_shape(c);
}

template <class T> void log_softmax_rows(const T* in, T* out, int64_t rows, int64_t n) {
  using A = Arithmetic<T>;
  std::vector<A> e(n), shifted(n);
  for (int64_t r = 0; r < rows; ++r, in += n, out += n) {
    A sum;
    const A log_sum = exponentials(in, 1, n, e.data(), shifted.data(), sum);
    for (int64_t i = 0; i < n; ++i) out[i] = narrow<T>(shifted[i] - log_sum);
  }
}

/// Takes as many rows at a time as the first cache holds: one loop takes the exponentials of them all, so short rows
/// fill registers as long ones do.
template <class T> void softmax_rows(const T* in, T* out, int64_t rows, int64_t n) {
  using A = Arithmetic<T>;
  constexpr int64_t kBlock = 2048;
  const int64_t block = std::max<int64_t>(kBlock / n, 1) * n;
  std::vector<A> wide(std::is_same_v<T, A> ? 0 : std::min(block, rows * n));
  for (int64_t left = rows * n; left > 0; left -= block, in += block, out += block) {
    const int64_t count = std::min(block, left);
    A* e;
    if constexpr (std::is_same_v<T, A>) e = out;
    else e = wide.data();
    for (int64_t i = 0; i < count; ++i) e[i] = widen(in[i]);
    shift(e, count, n);
    exp_all(e, count);
    scale(e, count, n);
    if constexpr (!std::is_same_v<T, A>)
      for (int64_t i = 0; i < count; ++i) out[i] = narrow<T>(e[i]);
  }
}

class SoftmaxKernel final : public ComputeKernel {
 public:
  explicit SoftmaxKernel(const KernelInit& init) : log_(init.op == "LogSoftmax") {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_RETURN_IF_ERROR(check_logits(x.shape()));
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, x.dtype(), x.shape()));
    const int64_t n = x.dim(-1), rows = n == 0 ? 0 : x.elements() / n;
    parallel_for(c.threads(), rows, row_grain(n), [&](int64_t begin, int64_t end) {
      with_type(x.dtype(), FloatTypes{}, [&]<class T>() {
        const auto rows_of = log_ ? log_softmax_rows<T> : softmax_rows<T>;
        rows_of(x.data<T>() + begin * n, y.mutable_data<T>() + begin * n, end - begin, n);
      });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool log_;
};

Output sum_last(GradientContext& c, Output x) {
  const int64_t last[] = {-1};
  return c.op("Sum", {x, int_vector(c, last)}, Attrs{{"keep_dims", true}});
}
Output softmax_backward(GradientContext& c, Output y, Output dy) {
  return c.op("Mul", {c.op("Sub", {dy, sum_last(c, c.op("Mul", {dy, y}))}), y});
}
Status softmax_gradient(GradientContext& c) {
  c.set_dx(0, softmax_backward(c, c.output(0), c.dy(0)));
  return {};
}
Status log_softmax_gradient(GradientContext& c) {
  const Output dy = c.dy(0);
  c.set_dx(0, c.op("Sub", {dy, c.op("Mul", {c.op("Exp", {c.output(0)}), sum_last(c, dy)})}));
  return {};
}

Status xent_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape logits, c.with_rank(0, 2));
  TROUPE_ASSIGN(const PartialShape labels, c.with_rank(1, 2));
  TROUPE_ASSIGN(const PartialShape both, broadcast(logits, labels));
  c.set_output(0, {both[0]});
  c.set_output(1, both);
  return {};
}

/// A matrix that broadcasts: how far apart its rows and columns are.
struct BroadcastMatrix {
  const void* data;
  int64_t row, column;
  explicit BroadcastMatrix(const Tensor& t)
      : data(t.raw()), row(t.dim(0) == 1 ? 0 : t.dim(1)), column(t.dim(1) == 1 ? 0 : 1) {}
};

template <class T>
void xent_rows(BroadcastMatrix x, BroadcastMatrix labels, T* loss, T* back, int64_t begin, int64_t end, int64_t n) {
  using A = Arithmetic<T>;
  std::vector<A> e(n), shifted(n);
  for (int64_t r = begin; r < end; ++r) {
    A sum, total = 0;
    const T* label_row = static_cast<const T*>(labels.data) + r * labels.row;
    const A log_sum =
        exponentials(static_cast<const T*>(x.data) + r * x.row, x.column, n, e.data(), shifted.data(), sum);
    for (int64_t i = 0; i < n; ++i) {
      const A label = widen(label_row[i * labels.column]);
      if (label != A(0)) total += label * (log_sum - shifted[i]);
      back[r * n + i] = narrow<T>(e[i] / sum - label);
    }
    loss[r] = narrow<T>(total);
  }
}

class Xent final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &labels = c.input(1);
    TROUPE_ASSIGN(const Shape shape, cross_entropy_shape(x.shape(), labels.shape()));
    TROUPE_ASSIGN(Tensor loss, c.allocate(x.dtype(), {shape[0]}));
    TROUPE_ASSIGN(Tensor back, c.forward_or_allocate(0, x.dtype(), shape));
    parallel_for(c.threads(), shape[0], row_grain(shape[1]), [&](int64_t begin, int64_t end) {
      with_type(x.dtype(), FloatTypes{}, [&]<class T>() {
        xent_rows(BroadcastMatrix(x), BroadcastMatrix(labels), loss.mutable_data<T>(), back.mutable_data<T>(), begin,
                  end, shape[1]);
      });
    });
    c.set_output(0, std::move(loss));
    c.set_output(1, std::move(back));
    return {};
  }
};

/// The gradient by logits: of the loss, and of the backpropagated gradient where something depends on that.
Output xent_logits_gradient(GradientContext& c) {
  Output d;
  if (c.dy(0)) d = c.op("Mul", {c.op("ExpandDims", {c.dy(0), c.constant(Tensor::scalar<int32_t>(-1))}), c.output(1)});
  if (!c.dy(1)) return d;
  const Output second = softmax_backward(c, c.op("Softmax", {c.input(0)}), c.dy(1));
  return d ? c.op("AddV2", {d, second}) : second;
}

Status xent_gradient(GradientContext& c) {
  const Output logits = c.input(0), labels = c.input(1);
  c.set_dx(0, sum_to(c, xent_logits_gradient(c), logits, labels));
  Output d;
  if (c.dy(0))
    d = c.op("Mul", {c.op("ExpandDims", {c.dy(0), c.constant(Tensor::scalar<int32_t>(-1))}),
                     c.op("Neg", {c.op("LogSoftmax", {logits})})});
  if (c.dy(1)) d = d ? c.op("Sub", {d, c.dy(1)}) : c.op("Neg", {c.dy(1)});
  c.set_dx(1, sum_to(c, d, labels, logits));
  return {};
}

Status sparse_xent_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape logits, c.with_rank(0, 2));
  TROUPE_ASSIGN(const PartialShape labels, c.with_rank(1, 1));
  if (logits[0] >= 0 && labels[0] >= 0 && logits[0] != labels[0])
    return invalid_argument("{} labels for {} rows of logits {}", labels[0], logits[0], logits.str());
  if (logits[0] < 0) logits.set(0, labels[0]);
  c.set_output(0, {logits[0]});
  c.set_output(1, logits);
  return {};
}

template <class T>
void sparse_xent_rows(const T* x, const int64_t* label, T* loss, T* back, int64_t begin, int64_t end, int64_t n) {
  using A = Arithmetic<T>;
  std::vector<A> e(n), shifted(n);
  for (int64_t r = begin; r < end; ++r) {
    A sum;
    const A log_sum = exponentials(x + r * n, 1, n, e.data(), shifted.data(), sum);
    const int64_t at = label[r];
    loss[r] = narrow<T>(log_sum - shifted[at]);
    for (int64_t i = 0; i < n; ++i) back[r * n + i] = narrow<T>(e[i] / sum - (i == at ? A(1) : A(0)));
  }
}

class SparseXent final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &labels = c.input(1);
    TROUPE_RETURN_IF_ERROR(check_sparse_labels(labels.shape(), x.shape()));
    const int64_t rows = x.dim(0), n = x.dim(1);
    TROUPE_ASSIGN(const auto label, int_values(labels, "labels"));
    for (int64_t r = 0; r < rows; ++r)
      if (label[r] < 0 || label[r] >= n)
        return invalid_argument("label {} of row {} is not in [0, {})", label[r], r, n);
    TROUPE_ASSIGN(Tensor loss, c.allocate(x.dtype(), {rows}));
    TROUPE_ASSIGN(Tensor back, c.forward_or_allocate(0, x.dtype(), x.shape()));
    parallel_for(c.threads(), rows, row_grain(n), [&](int64_t begin, int64_t end) {
      with_type(x.dtype(), FloatTypes{}, [&]<class T>() {
        sparse_xent_rows(x.data<T>(), label.data(), loss.mutable_data<T>(), back.mutable_data<T>(), begin, end, n);
      });
    });
    c.set_output(0, std::move(loss));
    c.set_output(1, std::move(back));
    return {};
  }
};

Status sparse_xent_gradient(GradientContext& c) {
  c.set_dx(0, xent_logits_gradient(c));
  return {};
}

}  // namespace

void register_softmax_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const FloatTypes types;
  ops.add(OpDef("Softmax")
              .input("logits: T")
              .output("softmax: T")
              .attr(type_attr("T", types))
              .shape(softmax_shape)
              .doc("exp(logits), scaled so that each row along the last dimension sums to 1. A scalar is an error."),
          gradient(softmax_gradient));
  ops.add(OpDef("LogSoftmax")
              .input("logits: T")
              .output("logsoftmax: T")
              .attr(type_attr("T", types))
              .shape(softmax_shape)
              .doc("The logarithm of Softmax, computed without overflow. A scalar is an error."),
          gradient(log_softmax_gradient));
  ops.add(OpDef("SoftmaxCrossEntropyWithLogits")
              .input("features: T")
              .input("labels: T")
              .output("loss: T")
              .output("backprop: T")
              .attr(type_attr("T", types))
              .shape(xent_shape)
              .doc("For each row of the matrix features the cross-entropy between its softmax and the distribution "
                   "in the row of labels; backprop is its gradient by features. The shapes broadcast."),
          gradient(xent_gradient));
  ops.add(OpDef("SparseSoftmaxCrossEntropyWithLogits")
              .input("features: T")
              .input("labels: Tlabels")
              .output("loss: T")
              .output("backprop: T")
              .attr(type_attr("T", types))
              .attr("Tlabels: {int32, int64} = int64")
              .shape(sparse_xent_shape)
              .doc("For each row of the matrix features the cross-entropy between its softmax and the class in labels; "
                   "backprop is its gradient by features. A label that is not a column is an error."),
          gradient(sparse_xent_gradient));
  const KernelRegistry::Types served = {{"T", FloatTypes::dtypes()}};
  for (const char* op : {"Softmax", "LogSoftmax"}) kernels.add<SoftmaxKernel>(op, DeviceKind::kCpu, served);
  kernels.add<Xent>("SoftmaxCrossEntropyWithLogits", DeviceKind::kCpu, served);
  for (DType label : IndexTypes::dtypes())
    for (DType t : FloatTypes::dtypes())
      kernels.add<SparseXent>("SparseSoftmaxCrossEntropyWithLogits", DeviceKind::kCpu,
                              {{"T", {t}}, {"Tlabels", {label}}});
}

}  // namespace troupe
