// SPDX-License-Identifier: Apache-2.0
// Rows picked by index and reduced by segment, as embeddings of bags of words need: SparseSegmentSum, -Mean, -SqrtN,
// those with a given number of segments, and the Grad ops of them.
#include <algorithm>
#include <cmath>

#include "ops/math/segment_ids.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/sparse/add_rows.h"
#include "ops/sparse/register.h"

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
    TROUPE_ASSIGN(p.ids, segment_ids(ids, true));
    return p;
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

template <class Types> class SparseSegment final : public ComputeKernel {
 public:
  explicit SparseSegment(Divisor divisor) : divisor_(divisor) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() == 0) return invalid_argument("data must have rows");
    TROUPE_ASSIGN(const Picks picks, Picks::read(c.input(1), c.input(2)));
    TROUPE_RETURN_IF_ERROR(check_indices<int64_t>(picks.indices, x.shape()[0]));
    TROUPE_ASSIGN(const int64_t segments, segment_count(picks.ids, c.num_inputs() == 4 ? &c.input(3) : nullptr));
    std::vector<int64_t> sizes(x.shape().begin(), x.shape().end());
    sizes[0] = segments;
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(x.dtype(), shape, c.device().allocator));
    if (y.elements() > 0) {
      const std::vector<double> factors = picks.factors(segments, divisor_);
      with_type(x.dtype(), Types{}, [&]<class T>() {
        using A = Arithmetic<T>;
        add_rows<T>(x.data<T>(), picks.indices, y.mutable_data<T>(), picks.ids, segments, y.elements() / segments,
                    c.threads(), [&](int64_t i) { return static_cast<A>(factors[picks.ids[i]]); });
      });
    }
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
    TROUPE_ASSIGN(int64_t rows, count_from(c.input(3), "output_dim0"));
    TROUPE_RETURN_IF_ERROR(check_indices<int64_t>(picks.indices, rows));
    TROUPE_RETURN_IF_ERROR(check_indices<int64_t>(picks.ids, g.shape()[0]));
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
    if (y.elements() > 0) {
      const std::vector<double> factors = picks.factors(g.shape()[0], divisor_);
      with_type(g.dtype(), FloatTypes{}, [&]<class T>() {
        using A = Arithmetic<T>;
        add_rows<T>(g.data<T>(), picks.ids, y.mutable_data<T>(), picks.indices, rows, y.elements() / rows, c.threads(),
                    [&](int64_t i) { return static_cast<A>(factors[picks.ids[i]]); });
      });
    }
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
  TROUPE_ASSIGN(const int64_t rows, inferred_segment_count(c, 2, 3));
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
    TROUPE_ASSIGN(rows, count_from(*n, "output_dim0"));
  }
  return rows_shape(c, rows);
}

Output rows_of(GradientContext& c, Output x) {
  if (x.shape().has_rank() && x.shape()[0] >= 0 && x.shape()[0] <= INT32_MAX)
    return c.constant(Tensor::scalar<int32_t>(static_cast<int32_t>(x.shape()[0])));
  const Output zero = c.constant(Tensor::scalar<int32_t>(0));
  return c.op("GatherV2", {c.op("Shape", {x}), zero, zero});
}

/// The gradient by data, or of that by the rows: the one op's is the other.
Gradient by_rows(const std::string& op) {
  return gradient([op](GradientContext& c) -> Status {
    if (c.dy(0)) c.set_dx(0, c.op(op, {c.dy(0), c.input(1), c.input(2), rows_of(c, c.input(0))}));
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
    ops.add(std::move(op), by_rows(base + "Grad"));
    kernels.add(name, DeviceKind::kCpu, {{"T", TypeList<T...>::dtypes()}},
                [divisor](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
                  return std::unique_ptr<ComputeKernel>(new SparseSegment<TypeList<T...>>(divisor));
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
    ops.add(std::move(op), unique ? undefined_gradient() : by_rows(base + "WithNumSegments"));
    kernels.add(name, DeviceKind::kCpu, {}, [=](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
      return std::unique_ptr<ComputeKernel>(new SparseSegmentGrad(divisor, unique));
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
