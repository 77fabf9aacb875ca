// SPDX-License-Identifier: Apache-2.0
// Rows of a tensor reduced by segment. Sorted ids: SegmentSum, -Mean, -Prod, -Max, -Min and those with a given number
// of segments; ids in any order: UnsortedSegmentSum, -Prod, -Max, -Min.
#include <algorithm>
#include <limits>

#include "devices/parallel.h"
#include "ops/math/register.h"
#include "ops/math/segment_ids.h"
#include "ops/parts/gpu_elementwise.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/scatter.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"

namespace troupe {
namespace {

struct SegmentSum {
  template <class A> static A join(A a, A b) { return wrapping_add(a, b); }
};
struct SegmentProduct {
  template <class A> static A join(A a, A b) { return wrapping_multiply(a, b); }
};
/// Of Max and Min, NaN comes through where it is the last of its segment, as in TensorFlow.
struct SegmentMax {
  template <class A> static A join(A a, A b) { return a > b ? a : b; }
};
struct SegmentMin {
  template <class A> static A join(A a, A b) { return a < b ? a : b; }
};

/// What a segment without rows gives.
enum class EmptySegment { kZero, kOne, kLowest, kHighest };

template <class T> T empty_value(EmptySegment empty) {
  if (empty == EmptySegment::kZero || empty == EmptySegment::kOne)
    return narrow<T>(Arithmetic<T>(static_cast<float>(empty == EmptySegment::kOne)));
  if constexpr (is_half<T>) {
    T largest;
    largest.bits = std::is_same_v<T, float16> ? 0x7BFF : 0x7F7F;
    return empty == EmptySegment::kHighest ? largest : narrow<T>(-widen(largest));
  } else if constexpr (!is_complex_type<T>) {
    return empty == EmptySegment::kHighest ? std::numeric_limits<T>::max() : std::numeric_limits<T>::lowest();
  }
  return T();
}

/// A sum over how many it is of; of integers truncated.
template <class A> A segment_quotient(A sum, int64_t count) {
  if constexpr (std::is_integral_v<A> && std::is_signed_v<A>) return static_cast<A>(int64_t{sum} / count);
  else if constexpr (std::is_integral_v<A>) return static_cast<A>(uint64_t{sum} / static_cast<uint64_t>(count));
  else return sum / static_cast<A>(count);
}

enum class SegmentHow { kSum, kProduct, kMax, kMin };

struct SegmentRule {
  const char* op;
  SegmentHow how;
  EmptySegment empty;
  bool mean = false;
};

/// Joins rows of `width` elements, `stride` apart, to those of `out` that ids name, `out_stride` apart and of
/// arithmetic types; ids below 0 are dropped. The first row of a segment is copied.
using JoinRows = void (*)(const void* in, int64_t stride, std::span<const int64_t> ids, void* out, int64_t out_stride,
                          int64_t width, std::vector<bool>& begun);

template <class T> [[gnu::noinline]] void begin_row(const T* from, Arithmetic<T>* to, int64_t width) {
  for (int64_t k = 0; k < width; ++k) to[k] = widen(from[k]);
}

template <class F, class T>
void join_rows(const void* in, int64_t stride, std::span<const int64_t> ids, void* out, int64_t out_stride,
               int64_t width, std::vector<bool>& begun) {
  using A = Arithmetic<T>;
  const T* from = static_cast<const T*>(in);
  for (const int64_t id : ids) {
    if (id >= 0) {
      A* to = static_cast<A*>(out) + id * out_stride;
      if (begun[id])
        for (int64_t k = 0; k < width; ++k) to[k] = F::join(to[k], A(widen(from[k])));
      else begin_row(from, to, width);
      begun[id] = true;
    }
    from += stride;
  }
}

JoinRows join_of(SegmentHow how, DType dtype) {
  JoinRows join = nullptr;
  switch (how) {
    case SegmentHow::kSum: with_wrapping(dtype, [&]<class T>() { join = join_rows<SegmentSum, T>; }); break;
    case SegmentHow::kProduct: with_wrapping(dtype, [&]<class T>() { join = join_rows<SegmentProduct, T>; }); break;
    case SegmentHow::kMax: with_type(dtype, NumberTypes{}, [&]<class T>() { join = join_rows<SegmentMax, T>; }); break;
    case SegmentHow::kMin: with_type(dtype, NumberTypes{}, [&]<class T>() { join = join_rows<SegmentMin, T>; }); break;
  }
  return join;
}

/// Reduces `width` columns of rows of `inner` elements.
template <class T>
void reduce_segments(const T* in, std::span<const int64_t> ids, T* out, std::span<const int64_t> counts, int64_t inner,
                     int64_t width, const SegmentRule& rule, JoinRows join) {
  using A = Arithmetic<T>;
  const auto rows = static_cast<int64_t>(counts.size()), stride = is_half<T> ? width : inner;
  std::vector<A> wide(is_half<T> ? static_cast<size_t>(rows * width) : 0);
  std::vector<bool> begun(static_cast<size_t>(rows));
  A* sums = wide.data();
  if constexpr (!is_half<T>) sums = out;
  join(in, inner, ids, sums, stride, width, begun);
  for (int64_t r = 0; r < rows; ++r) {
    T* to = out + r * inner;
    const A* sum = sums + r * stride;
    if (counts[r] == 0) {
      std::fill_n(to, width, empty_value<T>(rule.empty));
    } else if (rule.mean) {
      for (int64_t k = 0; k < width; ++k) to[k] = narrow<T>(segment_quotient<A>(sum[k], counts[r]));
    } else if constexpr (is_half<T>) {
      for (int64_t k = 0; k < width; ++k) to[k] = narrow<T>(sum[k]);
    }
  }
}

class Segment final : public ComputeKernel {
 public:
  Segment(const SegmentRule& rule, bool sorted) : rule_(rule), sorted_(sorted) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &given = c.input(1);
    TROUPE_ASSIGN(const std::vector<int64_t> ids, segment_ids(given, sorted_));
    TROUPE_ASSIGN(const int64_t rows, segment_count(ids, c.num_inputs() == 3 ? &c.input(2) : nullptr));
    TROUPE_ASSIGN(const PartialShape shape, slices_shape(x.shape(), given.shape(), rows, "segment_ids"));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape.shape()));
    if (y.elements() > 0) {
      std::vector<int64_t> counts(static_cast<size_t>(rows));
      for (int64_t id : ids)
        if (id >= 0) ++counts[id];
      const JoinRows join = join_of(rule_.how, x.dtype());
      const int64_t inner = y.elements() / rows, n = std::max<int64_t>(static_cast<int64_t>(ids.size()), 1);
      // Threads take columns, so that each result is made in the order of the rows.
      parallel_for(c.threads(), inner, std::max<int64_t>(kCheapGrain / n, 16), [&](int64_t begin, int64_t end) {
        with_type(x.dtype(), NumberOrComplexTypes{}, [&]<class T>() {
          reduce_segments(x.data<T>() + begin, ids, y.mutable_data<T>() + begin, counts, inner, end - begin, rule_,
                          join);
        });
      });
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const SegmentRule rule_;
  const bool sorted_;
};

/// UnsortedSegmentSum on a GPU. Ids that are out of range are dropped, those below 0 as on CPUs.
class GpuSegmentSum final : public ComputeKernel {
 public:
  explicit GpuSegmentSum(LaunchScatter launch) : launch_(launch) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &ids = c.input(1);
    TROUPE_ASSIGN(const int64_t rows, segment_count({}, &c.input(2)));
    TROUPE_ASSIGN(const PartialShape shape, slices_shape(x.shape(), ids.shape(), rows, "segment_ids"));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape.shape()));
    const int64_t width = rows > 0 ? y.elements() / rows : 0;
    TROUPE_RETURN_IF_ERROR(launch_({*c.device().gpu, ScatterHow::kAdd, y, ids, x, {&rows, 1}, ids.elements(), width}));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const LaunchScatter launch_;
};

Status segment_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const int64_t rows, inferred_segment_count(c, 1, 2));
  TROUPE_ASSIGN(const PartialShape out, slices_shape(c.input(0), c.input(1), rows, "segment_ids"));
  c.set_output(0, out);
  return {};
}

Status sorted_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank_at_least(0, 1).status());
  return segment_shape(c);
}

// --- gradients ---

/// What gradients do with rows of segments.
class Rows {
 public:
  explicit Rows(GradientContext& c)
      : c_(c), ids_(int32_or_int64(c, c.input(1))), sorted_(c.node().op().name().starts_with("Segment")) {}

  /// For each row of data the row of its segment; for a dropped one that of segment 0.
  Output of_segment(Output rows) const {
    const Output ids = sorted_ ? ids_ : c_.op("Maximum", {ids_, scalar_like(c_, ids_.dtype(), 0)});
    return c_.op("GatherV2", {rows, ids, c_.constant(Tensor::scalar<int32_t>(0))});
  }
  /// The same op, or that of another name with as many inputs.
  Output reduce(const std::string& what, Output data) const {
    std::vector<Output> inputs = {data, ids_};
    if (c_.num_inputs() == 3) inputs.push_back(c_.input(2));
    const bool v2 = sorted_ && c_.num_inputs() == 3;
    return c_.op((sorted_ && !v2 ? "Segment" : "UnsortedSegment") + what, inputs);
  }
  /// Sets the gradient of data, 0 in dropped rows.
  Status set(Output dx) const {
    if (sorted_) {
      c_.set_dx(0, dx);
      return {};
    }
    Output kept = c_.op("GreaterEqual", {ids_, scalar_like(c_, ids_.dtype(), 0)});
    const Output x = c_.input(0), zero = c_.constant(Tensor::scalar<int32_t>(0));
    if (x.shape().has_rank() && ids_.shape().has_rank()) {
      for (int i = ids_.shape().rank(); i < x.shape().rank(); ++i)
        kept = c_.op("ExpandDims", {kept, c_.constant(Tensor::scalar<int32_t>(-1))});
    } else {
      const Output inner = c_.op("Sub", {c_.op("Rank", {x}), c_.op("Rank", {ids_})});
      const Output ones = c_.op("Fill", {c_.op("ExpandDims", {inner, zero}), c_.constant(Tensor::scalar<int32_t>(1))});
      kept = c_.op("Reshape", {kept, c_.op("ConcatV2", {c_.op("Shape", {ids_}), ones, zero})});
    }
    c_.set_dx(0, c_.op("SelectV2", {kept, dx, scalar_like(c_, dx.dtype(), 0)}));
    return {};
  }

 private:
  GradientContext& c_;
  const Output ids_;
  const bool sorted_;
};

Status segment_sum_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Rows rows(c);
  return rows.set(rows.of_segment(c.dy(0)));
}

Status segment_mean_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Rows rows(c);
  const Output counts = rows.reduce("Sum", c.op("OnesLike", {c.input(0)}));
  return rows.set(rows.of_segment(c.op("DivNoNan", {c.dy(0), counts})));
}

/// Shared among the rows that hold the extreme.
Status segment_extreme_gradient(GradientContext& c) {
  const Output dy = c.dy(0), x = c.input(0);
  if (!dy) return {};
  const Rows rows(c);
  const Output hit = c.op("Equal", {x, rows.of_segment(c.output(0))});
  const Output hits = rows.reduce("Sum", c.op("Cast", {hit}, {{"DstT", x.dtype()}}));
  const Output share = rows.of_segment(c.op("DivNoNan", {dy, hits}));
  return rows.set(c.op("SelectV2", {hit, share, scalar_like(c, dy.dtype(), 0)}));
}

/// The product of the others, also where one of the factors is 0; nothing where more are.
Status segment_product_gradient(GradientContext& c) {
  const Output x = c.input(0);
  if (!c.dy(0)) return {};
  const Rows rows(c);
  const Output zero = scalar_like(c, x.dtype(), 0), one = scalar_like(c, x.dtype(), 1);
  const Output is_zero = c.op("Equal", {x, zero});
  const Output zeros = rows.of_segment(rows.reduce("Sum", c.op("Cast", {is_zero}, {{"DstT", x.dtype()}})));
  const Output safe = c.op("SelectV2", {is_zero, one, x});
  const Output product = rows.of_segment(rows.reduce("Prod", safe));
  const Output at_zero = c.op("SelectV2", {c.op("Equal", {zeros, one}), product, zero});
  const Output elsewhere = c.op("SelectV2", {c.op("Equal", {zeros, zero}), c.op("RealDiv", {product, safe}), zero});
  const Output others = conj(c, c.op("SelectV2", {is_zero, at_zero, elsewhere}));
  return rows.set(c.op("Mul", {rows.of_segment(c.dy(0)), others}));
}

void add(OpRegistry& ops, KernelRegistry& kernels, const SegmentRule& rule, const std::vector<DType>& types,
         const char* what, Status (*by)(GradientContext&)) {
  const std::string name = rule.op;
  const bool sorted = name.starts_with("Segment"), counted = !sorted || name.ends_with("V2");
  OpDef op(name);
  op.input("data: T").input("segment_ids: Tindices");
  if (counted) op.input("num_segments: Tnumsegments");
  op.output("output: T").attr(type_attr("T", types));
  const bool narrow = name == "UnsortedSegmentSum";
  op.attr(narrow ? type_attr("Tindices", TypeList<int16_t, int32_t, int64_t>{}) : type_attr("Tindices", IndexTypes{}));
  if (counted) op.attr(type_attr("Tnumsegments", IndexTypes{}, "int32"));
  op.shape(sorted ? sorted_shape : segment_shape).cost(reduction_cost);
  const char* empty = rule.empty == EmptySegment::kZero     ? "0"
                      : rule.empty == EmptySegment::kOne    ? "1"
                      : rule.empty == EmptySegment::kLowest ? "the lowest number"
                                                            : "the highest number";
  op.doc(fmt::format("Row i is {} of the rows of data whose segment id is i, {} if there is none. {}", what, empty,
                     sorted ? "Ids that do not ascend are an error."
                            : "Negative ids are dropped; error for an id beyond num_segments."));
  ops.add(std::move(op), gradient(by));
  kernels.add(name, DeviceKind::kCpu, {{"T", types}},
              [rule, sorted](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
                return std::unique_ptr<ComputeKernel>(new Segment(rule, sorted));
              });
}

}  // namespace

void register_segment_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::vector<DType> all = NumberOrComplexTypes::dtypes(), numbers = NumberTypes::dtypes();
  for (const char* op : {"SegmentSum", "SegmentSumV2", "UnsortedSegmentSum"})
    add(ops, kernels, {op, SegmentHow::kSum, EmptySegment::kZero}, all, "the sum", segment_sum_gradient);
  add(ops, kernels, {"SegmentMean", SegmentHow::kSum, EmptySegment::kZero, true}, all, "the mean",
      segment_mean_gradient);
  for (const char* op : {"SegmentProd", "SegmentProdV2", "UnsortedSegmentProd"})
    add(ops, kernels, {op, SegmentHow::kProduct, EmptySegment::kOne}, all, "the product", segment_product_gradient);
  add(ops, kernels, {"SegmentMax", SegmentHow::kMax, EmptySegment::kZero}, numbers, "the largest",
      segment_extreme_gradient);
  add(ops, kernels, {"SegmentMin", SegmentHow::kMin, EmptySegment::kZero}, numbers, "the smallest",
      segment_extreme_gradient);
  for (const char* op : {"SegmentMaxV2", "UnsortedSegmentMax"})
    add(ops, kernels, {op, SegmentHow::kMax, EmptySegment::kLowest}, numbers, "the largest", segment_extreme_gradient);
  for (const char* op : {"SegmentMinV2", "UnsortedSegmentMin"})
    add(ops, kernels, {op, SegmentHow::kMin, EmptySegment::kHighest}, numbers, "the smallest",
        segment_extreme_gradient);
}

void register_segment_gpu(KernelRegistry& kernels, LaunchScatter launch) {
  kernels.add("UnsortedSegmentSum", DeviceKind::kCuda, {{"T", gpu_numbers()}},
              [launch](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
                return std::unique_ptr<ComputeKernel>(new GpuSegmentSum(launch));
              },
              {{2}, {}});
}

}  // namespace troupe
