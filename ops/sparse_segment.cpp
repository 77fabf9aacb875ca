// SPDX-License-Identifier: Apache-2.0
// Rows picked by index and reduced by segment, as embeddings of bags of words need: SparseSegmentSum, -Mean, -SqrtN,
// those with a given number of segments, and the Grad ops of them.
#include <algorithm>
#include <cmath>

#include "devices/parallel.h"
#include "ops/all.h"
#include "ops/gradient_math.h"
#include "ops/index_tensors.h"
#include "ops/type_dispatch.h"
#include "ops/wrapping.h"

namespace troupe {
namespace {

/// What the sum of n rows is divided by.
enum class Divisor { kOne, kCount, kRootOfCount };

/// Indices and segment ids, checked: as many of both, ids ascending from 0.
struct Picks {
  std::vector<int64_t> indices, ids;

  static Result<Picks> read(const Tensor& indices, const Tensor& ids) {
    if (indices.rank() != 1 || ids.rank() != 1 || indices.shape() != ids.shape())
      return invalid_argument("indices {} and segment_ids {} must be vectors of one length", indices.shape().str(),
                              ids.shape().str());
    Picks p;
    TROUPE_ASSIGN(p.indices, int_values(indices, "indices"));
    TROUPE_ASSIGN(p.ids, int_values(ids, "segment_ids"));
    for (size_t i = 0; i < p.ids.size(); ++i)
      if (p.ids[i] < 0 || (i > 0 && p.ids[i] < p.ids[i - 1]))
        return invalid_argument("segment ids must ascend from 0 or more; at position {} there is {}", i, p.ids[i]);
    return p;
  }
  Status check(int64_t rows, int64_t segments) const {
    TROUPE_RETURN_IF_ERROR(check_indices(std::span(indices), rows));
    if (!ids.empty() && ids.back() >= segments)
      return invalid_argument("segment id {} is not below the {} segments", ids.back(), segments);
    return {};
  }
  /// For each segment what its sum is multiplied by.
  std::vector<double> factors(int64_t segments, Divisor divisor) const {
    std::vector<double> out(static_cast<size_t>(segments), 0.0);
    for (int64_t id : ids) ++out[id];
    for (double& f : out)
      f = f == 0 || divisor == Divisor::kOne ? 1 : divisor == Divisor::kCount ? 1 / f : 1 / std::sqrt(f);
    return out;
  }
};

/// out[to[i]] += in[from[i]] * factor(i), rows of `inner` elements; `out` is zeros. Threads take columns.
template <class T, class Factor>
void add_rows(const T* in, std::span<const int64_t> from, T* out, std::span<const int64_t> to, int64_t rows,
              int64_t inner, int threads, Factor&& factor) {
  using A = Arithmetic<T>;
  const auto n = static_cast<int64_t>(from.size());
  parallel_for(threads, inner, std::max<int64_t>(kCheapGrain / std::max<int64_t>(n, 1), 16),
               [&](int64_t begin, int64_t end) {
                 const int64_t width = end - begin;
                 std::vector<A> wide(is_half<T> ? static_cast<size_t>(rows * width) : 0);
                 for (int64_t i = 0; i < n; ++i) {
                   const T* x = in + from[i] * inner + begin;
                   const A f = factor(i);
                   A* y;
                   if constexpr (is_half<T>) y = wide.data() + to[i] * width;
                   else y = out + to[i] * inner + begin;
                   for (int64_t k = 0; k < width; ++k) y[k] = wrapping_add(y[k], wrapping_multiply(A(widen(x[k])), f));
                 }
                 if constexpr (is_half<T>)
                   for (int64_t r = 0; r < rows; ++r)
                     for (int64_t k = 0; k < width; ++k) out[r * inner + begin + k] = narrow<T>(wide[r * width + k]);
               });
}

template <class Types> class SparseSegment final : public ComputeKernel {
 public:
  explicit SparseSegment(Divisor divisor) : divisor_(divisor) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() == 0) return invalid_argument("data must have rows");
    TROUPE_ASSIGN(const Picks picks, Picks::read(c.input(1), c.input(2)));
    int64_t segments = picks.ids.empty() ? 0 : picks.ids.back() + 1;
    if (c.num_inputs() == 4) {
      TROUPE_ASSIGN(segments, int_scalar(c.input(3), "num_segments"));
      if (segments < 0) return invalid_argument("{} segments", segments);
    }
    TROUPE_RETURN_IF_ERROR(picks.check(x.shape()[0], segments));
    std::vector<int64_t> sizes(x.shape().begin(), x.shape().end());
    sizes[0] = segments;
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(x.dtype(), shape, c.device().allocator));
    const std::vector<double> factors = picks.factors(segments, divisor_);
    if (y.elements() > 0)
      with_type(x.dtype(), Types{}, [&]<class T>() {
        using A = Arithmetic<T>;
        add_rows<T>(x.data<T>(), picks.indices, y.mutable_data<T>(), picks.ids, segments, y.elements() / segments,
                    c.threads(), [&](int64_t i) { return static_cast<A>(factors[picks.ids[i]]); });
      });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Divisor divisor_;
};

/// The gradient by data; with `unique`, only the rows that were picked, and which they are.
class SparseSegmentGrad final : public ComputeKernel {
 public:
  SparseSegmentGrad(Divisor divisor, bool unique) : divisor_(divisor), unique_(unique) {}
  Status compute(KernelContext& c) override {
    const Tensor& g = c.input(0);
    if (g.rank() == 0) return invalid_argument("grad must have rows");
    TROUPE_ASSIGN(Picks picks, Picks::read(c.input(1), c.input(2)));
    TROUPE_ASSIGN(int64_t rows, int_scalar(c.input(3), "output_dim0"));
    if (rows < 0) return invalid_argument("{} rows", rows);
    TROUPE_RETURN_IF_ERROR(picks.check(rows, g.shape()[0]));
    if (unique_) {
      std::vector<int64_t> sorted = picks.indices;
      std::ranges::sort(sorted);
      sorted.erase(std::ranges::unique(sorted).begin(), sorted.end());
      for (int64_t& i : picks.indices) i = std::ranges::lower_bound(sorted, i) - sorted.begin();
      rows = static_cast<int64_t>(sorted.size());
      TROUPE_ASSIGN(Tensor indices, int_tensor(c.input(1).dtype(), sorted, Shape{rows}));
      c.set_output(1, std::move(indices));
    }
    std::vector<int64_t> sizes(g.shape().begin(), g.shape().end());
    sizes[0] = rows;
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(g.dtype(), shape, c.device().allocator));
    const std::vector<double> factors = picks.factors(g.shape()[0], divisor_);
    if (y.elements() > 0)
      with_type(g.dtype(), FloatTypes{}, [&]<class T>() {
        using A = Arithmetic<T>;
        add_rows<T>(g.data<T>(), picks.ids, y.mutable_data<T>(), picks.indices, rows, y.elements() / rows, c.threads(),
                    [&](int64_t i) { return static_cast<A>(factors[picks.ids[i]]); });
      });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Divisor divisor_;
  const bool unique_;
};

/// Inputs 1 and 2 are vectors of one length, input 0 has rows; output 0 is `rows` of these.
Status rows_shape(ShapeContext& c, int64_t rows) {
  TROUPE_ASSIGN(PartialShape x, c.with_rank_at_least(0, 1));
  TROUPE_ASSIGN(const PartialShape indices, c.with_rank(1, 1));
  TROUPE_ASSIGN(const PartialShape ids, c.with_rank(2, 1));
  TROUPE_RETURN_IF_ERROR(PartialShape::merge(indices, ids).status());
  if (!x.has_rank()) return {};
  x.set(0, rows);
  c.set_output(0, x);
  return {};
}

Status sparse_segment_shape(ShapeContext& c) {
  int64_t rows = -1;
  if (c.num_inputs() == 4) {
    TROUPE_RETURN_IF_ERROR(c.with_rank(3, 0).status());
    if (const auto n = c.constant_input(3)) {
      TROUPE_ASSIGN(rows, int_scalar(*n, "num_segments"));
      if (rows < 0) return invalid_argument("{} segments", rows);
    }
  } else if (const auto constant = c.constant_input(2)) {
    TROUPE_ASSIGN(const auto values, int_values(*constant, "segment_ids"));
    if (!values.empty() && values.back() < 0) return invalid_argument("segment id {}", values.back());
    rows = values.empty() ? 0 : values.back() + 1;
  }
  return rows_shape(c, rows);
}

Status sparse_segment_grad_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(3, 0).status());
  if (c.num_outputs() == 2) {
    c.set_output(1, PartialShape{-1});
    return rows_shape(c, -1);
  }
  int64_t rows = -1;
  if (const auto n = c.constant_input(3)) {
    TROUPE_ASSIGN(rows, int_scalar(*n, "output_dim0"));
    if (rows < 0) return invalid_argument("{} rows", rows);
  }
  return rows_shape(c, rows);
}

Gradient by_data(const std::string& grad_op) {
  return gradient([grad_op](GradientContext& c) -> Status {
    const Output x = c.input(0);
    if (!c.dy(0)) return {};
    Output rows;
    if (x.shape().has_rank() && x.shape()[0] >= 0 && x.shape()[0] <= INT32_MAX) {
      rows = c.constant(Tensor::scalar<int32_t>(static_cast<int32_t>(x.shape()[0])));
    } else {
      const Output zero = c.constant(Tensor::scalar<int32_t>(0));
      rows = c.op("GatherV2", {c.op("Shape", {x}), zero, zero});
    }
    c.set_dx(0, c.op(grad_op, {c.dy(0), c.input(1), c.input(2), rows}));
    return {};
  });
}

const char* const kIndexAttrs[] = {"Tidx", "Tsegmentids"};

template <class... T>
void add_forward(OpRegistry& ops, KernelRegistry& kernels, const std::string& base, Divisor divisor, const char* what,
                 TypeList<T...> types) {
  for (const bool counted : {false, true}) {
    const std::string name = base + (counted ? "WithNumSegments" : "");
    OpDef op(name);
    op.input("data: T").input("indices: Tidx").input("segment_ids: Tsegmentids");
    if (counted) op.input("num_segments: Tnumsegments");
    op.output("output: T").attr(type_attr("T", types));
    for (const char* attr : kIndexAttrs) op.attr(type_attr(attr, IndexTypes{}, "int32"));
    if (counted) op.attr(type_attr("Tnumsegments", IndexTypes{}, "int32"));
    op.attr("sparse_gradient: bool = false").shape(sparse_segment_shape);
    op.doc(std::string("Row i is ") + what +
           " of the rows of data at those indices whose segment id is i, and 0 if there is none. Error for an index "
           "out of range, or ids that do not ascend.");
    ops.add(std::move(op), by_data(base + "Grad"));
    kernels.add(name, DeviceKind::kCpu, {{"T", TypeList<T...>::dtypes()}},
                [divisor](const KernelInit&) -> Result<std::unique_ptr<Kernel>> {
                  return std::unique_ptr<Kernel>(new SparseSegment<TypeList<T...>>(divisor));
                });
  }
}

void add_grad(OpRegistry& ops, KernelRegistry& kernels, const std::string& base, Divisor divisor) {
  for (const bool unique : {false, true}) {
    const std::string name = base + (unique ? "GradV2" : "Grad");
    OpDef op(name);
    op.input("grad: T").input("indices: Tidx").input("segment_ids: Tsegmentids");
    op.input(unique ? "dense_output_dim0: int32" : "output_dim0: int32").output("output: T");
    if (unique) op.output("sorted_unique_indices: Tidx");
    op.attr(type_attr("T", FloatTypes{}));
    for (const char* attr : kIndexAttrs) op.attr(type_attr(attr, IndexTypes{}, "int32"));
    op.shape(sparse_segment_grad_shape)
        .doc("The gradient of " + base + " by data" +
             (unique ? ": the rows that were picked, and which rows of data these are."
                     : ", which has output_dim0 rows."));
    ops.add(std::move(op), not_differentiable("TensorFlow defines none"));
    kernels.add(name, DeviceKind::kCpu, {}, [=](const KernelInit&) -> Result<std::unique_ptr<Kernel>> {
      return std::unique_ptr<Kernel>(new SparseSegmentGrad(divisor, unique));
    });
  }
}

}  // namespace

void register_sparse_segment_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_forward(ops, kernels, "SparseSegmentSum", Divisor::kOne, "the sum", NumberTypes{});
  add_forward(ops, kernels, "SparseSegmentMean", Divisor::kCount, "the mean", FloatTypes{});
  add_forward(ops, kernels, "SparseSegmentSqrtN", Divisor::kRootOfCount,
              "the sum, over the square root of their number,", FloatTypes{});
  add_grad(ops, kernels, "SparseSegmentSum", Divisor::kOne);
  add_grad(ops, kernels, "SparseSegmentMean", Divisor::kCount);
  add_grad(ops, kernels, "SparseSegmentSqrtN", Divisor::kRootOfCount);
}

}  // namespace troupe
