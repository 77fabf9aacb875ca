// SPDX-License-Identifier: Apache-2.0
// Rows of ragged tensors: RaggedRange, RaggedGather, RaggedTensorToSparse.
#include <algorithm>
#include <cmath>

#include "ops/parts/arithmetic.h"
#include "ops/parts/type_dispatch.h"
#include "ops/sparse/ragged_input.h"
#include "ops/sparse/register.h"
#include "troupe/graph.h"
#include "troupe/scope.h"

namespace troupe {
namespace {

/// Splits of `rows` rows, whose lengths `next()` gives in their order. Error: the last is beyond the dtype.
template <class Next> Result<Tensor> make_splits(const KernelContext& c, DType dtype, int64_t rows, Next next) {
  const int64_t sizes[] = {rows + 1};
  TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
  TROUPE_ASSIGN(Tensor out, c.allocate(dtype, shape));
  int64_t at = 0;
  bool fits = true;
  with_type(dtype, IndexTypes{}, [&]<class T>() {
    T* split = out.mutable_data<T>();
    *split++ = 0;
    for (int64_t row = 0; row < rows && fits; ++row) {
      fits = !__builtin_add_overflow(at, next(), &at) && at <= std::numeric_limits<T>::max();
      *split++ = static_cast<T>(at);
    }
  });
  if (!fits) return invalid_argument("the rows have more values than {} splits can count", to_string(dtype));
  return out;
}

// -- ranges -----------------------------------------------------------------------------------------------------------

using RaggedRangeTypes = TypeList<bfloat16, float, double, int32_t, int64_t>;

/// How many steps lead from start to before limit; -1 where that is not a number.
template <class T> int64_t steps(T start_, T limit_, T delta_) {
  const auto start = widen(start_), limit = widen(limit_), delta = widen(delta_);
  if (delta > 0 ? start >= limit : start <= limit) return 0;
  if constexpr (std::is_integral_v<T>) {
    const auto size = [](auto a, auto b) { return static_cast<uint64_t>(a) - static_cast<uint64_t>(b); };
    const uint64_t distance = delta > 0 ? size(limit, start) : size(start, limit);
    const uint64_t step = delta > 0 ? static_cast<uint64_t>(delta) : size(0, delta);
    const uint64_t n = (distance - 1) / step + 1;
    return n > static_cast<uint64_t>(INT64_MAX) ? -1 : static_cast<int64_t>(n);
  } else {
    const T distance = narrow<T>(limit - start);
    const double n = std::ceil(std::abs(static_cast<double>(widen(narrow<T>(widen(distance) / delta)))));
    return n < 9e18 ? static_cast<int64_t>(n) : -1;  // NaN too
  }
}

template <class T> class RaggedRange final : public ComputeKernel {
 public:
  explicit RaggedRange(const KernelInit& init) : splits_(init.attr<DType>("Tsplits")) {}
  Status compute(KernelContext& c) override {
    int64_t rows = -1;
    for (int i = 0; i < 3; ++i) {
      const Shape& shape = c.input(i).shape();
      if (shape.rank() > 1) return invalid_argument("{} must be scalars or vectors, not {}", kNames[i], shape.str());
      if (shape.rank() == 0) continue;
      if (rows >= 0 && shape[0] != rows)
        return invalid_argument("{} are {}, where others are {}", kNames[i], shape[0], rows);
      rows = shape[0];
    }
    if (rows < 0) rows = 1;
    int64_t total = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const T start = at(c, 0, row), limit = at(c, 1, row), delta = at(c, 2, row);
      if (widen(delta) == 0) return invalid_argument("delta is 0 at position {}", row);
      const int64_t n = steps(start, limit, delta);
      if (n < 0 || __builtin_add_overflow(total, n, &total))
        return invalid_argument("there are too many steps of {} from {} to {} at position {}",
                                static_cast<double>(widen(delta)), static_cast<double>(widen(start)),
                                static_cast<double>(widen(limit)), row);
    }
    int64_t row = 0;
    TROUPE_ASSIGN(Tensor splits, make_splits(c, splits_, rows, [&] {
                    const int64_t i = row++;
                    return steps(at(c, 0, i), at(c, 1, i), at(c, 2, i));
                  }));
    const int64_t sizes[] = {total};
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor values, c.allocate(dtype_of<T>, shape));
    T* out = values.mutable_data<T>();
    for (row = 0; row < rows; ++row) {
      T value = at(c, 0, row);
      const T delta = at(c, 2, row);
      for (int64_t n = steps(value, at(c, 1, row), delta); n > 0; --n) {
        *out++ = value;
        if (n > 1) value = narrow<T>(widen(value) + widen(delta));
      }
    }
    c.set_output(0, std::move(splits));
    c.set_output(1, std::move(values));
    return {};
  }

 private:
  static constexpr const char* kNames[] = {"starts", "limits", "deltas"};
  static T at(const KernelContext& c, int i, int64_t row) {
    return c.input(i).template data<T>()[c.input(i).rank() == 0 ? 0 : row];
  }
  const DType splits_;
};

Status ragged_range_shape(ShapeContext& c) {
  int64_t rows = 1;
  for (int i = 0; i < 3; ++i) {
    const PartialShape& shape = c.input(i);
    if (!shape.has_rank()) rows = rows == 1 ? -1 : rows;
    else if (shape.rank() > 1) return invalid_argument("input {} must be a scalar or a vector, not {}", i, shape.str());
    else if (shape.rank() == 1) rows = shape[0];
  }
  c.set_output(0, PartialShape{rows < 0 ? -1 : rows + 1});
  c.set_output(1, PartialShape{-1});
  return {};
}

// -- gathers ----------------------------------------------------------------------------------------------------------

class RaggedGather final : public ComputeKernel {
 public:
  explicit RaggedGather(const KernelInit& init)
      : rank_(static_cast<int>(init.attr<int64_t>("PARAMS_RAGGED_RANK"))),
        out_rank_(static_cast<int>(init.attr<int64_t>("OUTPUT_RAGGED_RANK"))), splits_(init.attr<DType>("Tsplits")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const RaggedInput params, RaggedInput::read(c, 0, rank_, rank_));
    const Tensor& indices = c.input(rank_ + 1);
    TROUPE_RETURN_IF_ERROR(check_rank(indices.rank(), rank_, out_rank_));
    int64_t before = 1;
    for (int d = 1; d < indices.rank(); ++d) {
      if (__builtin_mul_overflow(before, indices.dim(d - 1), &before))
        return invalid_argument("indices of shape {} are rows too many to count", indices.shape().str());
      TROUPE_ASSIGN(Tensor splits, make_splits(c, splits_, before, [&] { return indices.dim(d); }));
      c.set_output(d - 1, std::move(splits));
    }
    TROUPE_ASSIGN(const Tensor flat, indices.reshape(Shape{indices.elements()}));
    TROUPE_ASSIGN(const std::vector<int64_t> rows, int_values(flat, "indices"));
    TROUPE_RETURN_IF_ERROR(check_indices(std::span<const int64_t>(rows), params.rows()));
    std::vector<std::pair<int64_t, int64_t>> ranges;  // of rows, or values, wanted of a level
    for (const int64_t row : rows) ranges.emplace_back(row, row + 1);
    for (int level = 0; level < rank_; ++level) {
      const std::vector<int64_t>& given = params.splits[static_cast<size_t>(level)];
      TROUPE_ASSIGN(const int64_t wanted, size_of(ranges));
      size_t range = 0;
      int64_t row = ranges.empty() ? 0 : ranges[0].first;
      TROUPE_ASSIGN(Tensor splits, make_splits(c, splits_, wanted, [&] {
                      while (row == ranges[range].second) row = ranges[++range].first;
                      const auto i = static_cast<size_t>(row++);
                      return given[i + 1] - given[i];
                    }));
      c.set_output(indices.rank() - 1 + level, std::move(splits));
      for (auto& [begin, end] : ranges) {
        begin = given[static_cast<size_t>(begin)];
        end = given[static_cast<size_t>(end)];
      }
    }
    std::vector<int64_t> sizes(params.values->shape().dims().begin(), params.values->shape().dims().end());
    TROUPE_ASSIGN(sizes[0], size_of(ranges));
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor values, c.allocate(params.values->dtype(), shape));
    const int64_t inner = sizes_product(params.values->shape(), 1, params.values->rank());
    with_storage(values.dtype(), [&]<class S>() {
      const auto* from = static_cast<const S*>(params.values->raw());
      auto* to = static_cast<S*>(values.mutable_raw());
      for (const auto& [begin, end] : ranges) to = std::copy(from + begin * inner, from + end * inner, to);
    });
    c.set_output(out_rank_, std::move(values));
    return {};
  }

  static Status check_rank(int indices, int rank, int out_rank) {
    if (indices < 1) return invalid_argument("indices must have at least one dimension");
    if (out_rank != rank + indices - 1)
      return invalid_argument("OUTPUT_RAGGED_RANK is {}; {} ragged dimensions by indices of rank {} give {}", out_rank,
                              rank, indices, rank + indices - 1);
    return {};
  }

 private:
  static Result<int64_t> size_of(const std::vector<std::pair<int64_t, int64_t>>& ranges) {
    int64_t out = 0;
    for (const auto& [begin, end] : ranges)
      if (__builtin_add_overflow(out, end - begin, &out)) return invalid_argument("the rows are too many to count");
    return out;
  }

  const int rank_, out_rank_;
  const DType splits_;
};

Status ragged_gather_shape(ShapeContext& c) {
  const auto rank = static_cast<int>(c.attr<int64_t>("PARAMS_RAGGED_RANK"));
  const auto out_rank = static_cast<int>(c.attr<int64_t>("OUTPUT_RAGGED_RANK"));
  const PartialShape& indices = c.input(rank + 1);
  if (indices.has_rank()) TROUPE_RETURN_IF_ERROR(RaggedGather::check_rank(indices.rank(), rank, out_rank));
  for (int i = 0; i < rank; ++i) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 1).status());
  for (int i = 0; i < out_rank; ++i) c.set_output(i, PartialShape{-1});
  PartialShape values = c.input(rank);
  if (!values.has_rank()) return {};
  if (values.rank() == 0) return invalid_argument("the values of a ragged tensor must not be a scalar");
  values.set(0, -1);
  c.set_output(out_rank, std::move(values));
  return {};
}

/// The values' gradient has that of a result's value where it came from.
Status ragged_gather_gradient(GradientContext& c) {
  const Attrs& attrs = c.node().attrs();
  const auto rank = static_cast<int>(*attrs.get<int64_t>("PARAMS_RAGGED_RANK"));
  const Output dy = c.dy(static_cast<int>(*attrs.get<int64_t>("OUTPUT_RAGGED_RANK")));
  if (!dy) return {};
  const auto one = [&](DType dtype) {
    return c.constant(dtype == DType::kInt32 ? Tensor::scalar<int32_t>(1) : Tensor::scalar<int64_t>(1));
  };
  const auto vector = [&](int32_t v) { return c.constant(Tensor::of<int32_t>({v})); };
  const Output values = c.input(rank), axis = c.constant(Tensor::scalar<int32_t>(0));
  Output splits = c.input(0);  // of the outermost rows among the values
  for (int i = 1; i < rank; ++i) splits = c.op("GatherV2", {c.input(i), splits, axis});
  const Output rows = c.op("Reshape", {c.input(rank + 1), vector(-1)});
  const Output next = c.op("AddV2", {rows, one(rows.dtype())});
  const Output places = c.ops(
      "RaggedRange",
      {c.op("GatherV2", {splits, rows, axis}), c.op("GatherV2", {splits, next, axis}), one(splits.dtype())}, {})[1];
  const Output count = c.op("Squeeze", {c.op("Slice", {c.op("Shape", {values}), vector(0), vector(1)})});
  c.set_dx(rank, c.op("UnsortedSegmentSum", {dy, places, count}));
  return {};
}

// -- sparse tensors ---------------------------------------------------------------------------------------------------

class RaggedToSparse final : public ComputeKernel {
 public:
  explicit RaggedToSparse(const KernelInit& init) : rank_(static_cast<int>(init.attr<int64_t>("RAGGED_RANK"))) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const RaggedInput x, RaggedInput::read(c, 0, rank_, rank_));
    const Tensor& values = *x.values;
    std::vector<int64_t> sizes = {x.rows()};
    for (const std::vector<int64_t>& level : x.splits) {
      int64_t longest = 0;
      for (size_t row = 0; row + 1 < level.size(); ++row) longest = std::max(longest, level[row + 1] - level[row]);
      sizes.push_back(longest);
    }
    for (int d = 1; d < values.rank(); ++d) sizes.push_back(values.dim(d));
    const auto rank = std::ssize(sizes);
    const int64_t place_sizes[] = {values.elements(), rank};
    TROUPE_ASSIGN(const Shape place_shape, Shape::make(place_sizes));
    TROUPE_ASSIGN(Tensor indices, c.allocate(DType::kInt64, place_shape));
    int64_t* place = indices.mutable_data<int64_t>();
    const int64_t inner = sizes_product(values.shape(), 1, values.rank());
    std::vector<size_t> rows(x.splits.size(), 0);  // of each level the row that the value is in
    for (int64_t i = 0; i < values.elements(); ++i, place += rank) {
      int64_t rest = i % inner, at = i / inner;
      for (int64_t d = rank - 1; d > rank_; --d) {
        place[d] = rest % sizes[static_cast<size_t>(d)];
        rest /= sizes[static_cast<size_t>(d)];
      }
      for (size_t level = x.splits.size(); level > 0; --level) {
        size_t& row = rows[level - 1];
        while (x.splits[level - 1][row + 1] <= at) ++row;
        place[level] = at - x.splits[level - 1][row];
        at = static_cast<int64_t>(row);
      }
      place[0] = at;
    }
    TROUPE_ASSIGN(Tensor flat, values.reshape(Shape{values.elements()}));
    c.set_output(0, std::move(indices));
    c.set_output(1, std::move(flat));
    c.set_output(2, Tensor::of<int64_t>(std::span<const int64_t>(sizes), Shape{rank}));
    return {};
  }

 private:
  const int rank_;
};

Status ragged_to_sparse_shape(ShapeContext& c) {
  const auto rank = static_cast<int>(c.attr<int64_t>("RAGGED_RANK"));
  for (int i = 0; i < rank; ++i) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 1).status());
  const PartialShape& values = c.input(rank);
  if (values.has_rank() && values.rank() == 0)
    return invalid_argument("the values of a ragged tensor must not be a scalar");
  const int64_t dense_rank = values.has_rank() ? rank + values.rank() : -1;
  c.set_output(0, PartialShape{-1, dense_rank});
  c.set_output(1, PartialShape{-1});
  c.set_output(2, PartialShape{dense_rank});
  return {};
}

Status ragged_to_sparse_gradient(GradientContext& c) {
  const auto rank = static_cast<int>(*c.node().attrs().get<int64_t>("RAGGED_RANK"));
  if (c.dy(1)) c.set_dx(rank, c.op("Reshape", {c.dy(1), c.op("Shape", {c.input(rank)})}));
  return {};
}

}  // namespace

void register_ragged_row_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(
      OpDef("RaggedRange")
          .input("starts: T")
          .input("limits: T")
          .input("deltas: T")
          .output("rt_nested_splits: Tsplits")
          .output("rt_dense_values: T")
          .attr(type_attr("T", RaggedRangeTypes{}, "int32"))
          .attr("Tsplits: {int32, int64} = int64")
          .shape(ragged_range_shape)
          .doc("Rows of numbers from a start in steps of a delta to before a limit, as the splits and the values of "
               "a ragged tensor. Scalars are for every row. Error for a delta of 0."),
      not_differentiable("TensorFlow gives it none"));
  add_cpu_kernels<RaggedRange>(kernels, "RaggedRange", RaggedRangeTypes{});
  ops.add(OpDef("RaggedGather")
              .input("params_nested_splits: PARAMS_RAGGED_RANK * Tsplits")
              .input("params_dense_values: Tvalues")
              .input("indices: Tindices")
              .output("output_nested_splits: OUTPUT_RAGGED_RANK * Tsplits")
              .output("output_dense_values: Tvalues")
              .attr("Tvalues: type")
              .attr("Tindices: {int32, int64}")
              .attr("Tsplits: {int32, int64} = int64")
              .attr("PARAMS_RAGGED_RANK: int >= 1")
              .attr("OUTPUT_RAGGED_RANK: int >= 0")
              .shape(ragged_gather_shape)
              .doc("The rows of a ragged tensor that indices name, as a ragged tensor whose outer dimensions are those "
                   "of the indices. Errors: an index out of range, splits that are not those of the values."),
          gradient(ragged_gather_gradient));
  kernels.add<RaggedGather>("RaggedGather", DeviceKind::kCpu, {});
  ops.add(OpDef("RaggedTensorToSparse")
              .input("rt_nested_splits: RAGGED_RANK * Tsplits")
              .input("rt_dense_values: T")
              .output("sparse_indices: int64")
              .output("sparse_values: T")
              .output("sparse_dense_shape: int64")
              .attr("RAGGED_RANK: int >= 1")
              .attr("T: type")
              .attr("Tsplits: {int32, int64} = int64")
              .shape(ragged_to_sparse_shape)
              .doc("A ragged tensor as a sparse one, as wide as the longest rows. Error for splits that are not those "
                   "of the values."),
          gradient(ragged_to_sparse_gradient));
  kernels.add<RaggedToSparse>("RaggedTensorToSparse", DeviceKind::kCpu, {});
}

}  // namespace troupe
