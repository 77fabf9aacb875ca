// SPDX-License-Identifier: Apache-2.0
// Tensors given by indices and values, as embeddings take them: SparseToDense, SparseFillEmptyRows and
// RaggedFillEmptyRows and their gradients.
#include <algorithm>

#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"
#include "ops/sparse/register.h"

namespace troupe {
namespace {

/// sparse_indices as a matrix: a scalar is one row of one column, a vector has rows of one column.
Result<Tensor> index_matrix(const Tensor& t, int rank) {
  if (t.rank() > 2) return invalid_argument("sparse_indices of shape {}", t.shape().str());
  const Shape shape = t.rank() == 2 ? t.shape() : Shape{t.elements(), 1};
  if (shape[1] != rank && shape[0] > 0)
    return invalid_argument("sparse_indices of shape {} into {} dimensions", t.shape().str(), rank);
  return t.reshape(shape);
}

class SparseToDense final : public ComputeKernel {
 public:
  explicit SparseToDense(const KernelInit& init) : validate_(init.attr<bool>("validate_indices")) {}
  Status compute(KernelContext& c) override {
    const Tensor &values = c.input(2), &other = c.input(3);
    if (c.input(1).rank() != 1) return invalid_argument("output_shape of shape {}", c.input(1).shape().str());
    TROUPE_ASSIGN(const Shape shape, shape_from(c.input(1), "output_shape"));
    TROUPE_ASSIGN(const Tensor indices, index_matrix(c.input(0), shape.rank()));
    const int64_t n = indices.shape()[0];
    if (other.rank() != 0) return invalid_argument("default_value of shape {}", other.shape().str());
    if (values.rank() > 1 || (values.rank() == 1 && values.elements() != n))
      return invalid_argument("sparse_values of shape {} for {} indices", values.shape().str(), n);
    TROUPE_ASSIGN(const Tensor flat, indices.reshape(Shape{indices.elements()}));
    TROUPE_ASSIGN(const std::vector<int64_t> at, int_values(flat, "sparse_indices"));
    std::vector<int64_t> places;
    for (int64_t i = 0; i < n; ++i) {
      int64_t place = 0;
      for (int d = 0; d < shape.rank(); ++d) {
        const int64_t index = at[i * shape.rank() + d];
        if (index < 0 || index >= shape[d])
          return invalid_argument("index {} at [{},{}] of sparse_indices is not in [0, {})", index, i, d, shape[d]);
        place = place * shape[d] + index;
      }
      if (validate_ && !places.empty() && place <= places.back())
        return invalid_argument("sparse_indices row {} {}", i,
                                place == places.back() ? "is repeated" : "is out of order");
      places.push_back(place);
    }
    TROUPE_ASSIGN(Tensor y, c.allocate(values.dtype(), shape));
    with_storage(values.dtype(), [&]<class S>() {
      S* out = static_cast<S*>(y.mutable_raw());
      const S* in = static_cast<const S*>(values.raw());
      std::fill_n(out, shape.elements(), *static_cast<const S*>(other.raw()));
      for (size_t i = 0; i < places.size(); ++i) out[places[i]] = in[values.rank() == 0 ? 0 : i];
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool validate_;
};

Status sparse_to_dense_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank(3, 0).status());
  if (const auto sizes = c.constant_input(1)) {
    TROUPE_ASSIGN(const Shape shape, shape_from(*sizes, "output_shape"));
    c.set_output(0, shape);
  } else if (const PartialShape& s = c.input(1); s.has_rank() && s[0] >= 0 && s[0] <= kMaxRank) {
    c.set_output(0, PartialShape::of_rank(static_cast<int>(s[0])));
  }
  return {};
}

Status sparse_to_dense_gradient(GradientContext& c) {
  const Output dy = c.dy(0), indices = c.input(0), values = c.input(2);
  if (!dy) return {};
  if (!indices.shape().has_rank() || !values.shape().has_rank())
    return invalid_argument("the gradient needs the known ranks of sparse_indices and sparse_values");
  const Output column = c.constant(Tensor::of<int32_t>({-1, 1}));
  const Output rows = indices.shape().rank() == 2 ? indices : c.op("Reshape", {indices, column});
  const Output taken = c.op("GatherNd", {dy, rows});
  const Output sum = sum_all(c, taken);
  c.set_dx(2, values.shape().rank() == 0 ? sum : taken);
  c.set_dx(3, c.op("Sub", {sum_all(c, dy), sum}));
  return {};
}

/// Rows of a sparse matrix without a value get default_value in their first column. Of a ragged one the row of each
/// value takes the place of indices, and the number of rows that of the shape.
class FillEmptyRows final : public ComputeKernel {
 public:
  explicit FillEmptyRows(const KernelInit& init) : ragged_(init.op == "RaggedFillEmptyRows") {}
  Status compute(KernelContext& c) override {
    const Tensor &values = c.input(1), &other = c.input(3);
    Tensor indices = c.input(0);
    if (ragged_) {
      if (indices.rank() != 1 || c.input(2).rank() != 0)
        return invalid_argument("value_rowids of shape {} and nrows of shape {}", indices.shape().str(),
                                c.input(2).shape().str());
      TROUPE_ASSIGN(indices, indices.reshape(Shape{indices.elements(), 1}));
    }
    TROUPE_ASSIGN(const std::vector<int64_t> sizes, int_values(c.input(2), ragged_ ? "nrows" : "dense_shape"));
    if (indices.rank() != 2 || values.rank() != 1 || indices.shape()[0] != values.elements() || sizes.empty() ||
        indices.shape()[1] != static_cast<int64_t>(sizes.size()))
      return invalid_argument("indices of shape {}, values of shape {} and dense_shape of {} sizes",
                              indices.shape().str(), values.shape().str(), sizes.size());
    if (other.rank() != 0) return invalid_argument("default_value of shape {}", other.shape().str());
    const int64_t rows = sizes[0], n = values.elements(), rank = indices.shape()[1];
    TROUPE_ASSIGN(const Shape row_shape, Shape::make({&rows, 1}));
    TROUPE_ASSIGN(Tensor empty, c.allocate(DType::kBool, row_shape));
    std::fill_n(empty.mutable_data<bool>(), rows, true);
    TROUPE_ASSIGN(Tensor begins, Tensor::zeros(DType::kInt64, Shape{rows + 1}, c.device().allocator));
    int64_t* first = begins.mutable_data<int64_t>();
    const int64_t* at = indices.data<int64_t>();
    for (int64_t i = 0; i < n; ++i) {
      if (at[i * rank] < 0 || at[i * rank] >= rows)
        return invalid_argument("index {} at [{},0] is not in [0, {})", at[i * rank], i, rows);
      empty.mutable_data<bool>()[at[i * rank]] = false;
      ++first[at[i * rank] + 1];
    }
    int64_t total = 0;
    for (int64_t r = 0; r < rows; ++r) {  // first[r]: where row r begins in the result
      const int64_t count = empty.data<bool>()[r] ? 1 : first[r + 1];
      first[r] = total;
      total += count;
    }
    TROUPE_ASSIGN(Tensor filled, Tensor::zeros(DType::kInt64, Shape{total, rank}, c.device().allocator));
    TROUPE_ASSIGN(Tensor out, c.allocate(values.dtype(), Shape{total}));
    TROUPE_ASSIGN(Tensor map, c.allocate(DType::kInt64, Shape{n}));
    int64_t *to = filled.mutable_data<int64_t>(), *place = map.mutable_data<int64_t>();
    for (int64_t r = 0; r < rows; ++r)
      if (empty.data<bool>()[r]) to[first[r] * rank] = r;
    for (int64_t i = 0; i < n; ++i) {
      place[i] = first[at[i * rank]]++;
      std::copy_n(at + i * rank, rank, to + place[i] * rank);
    }
    with_storage(values.dtype(), [&]<class S>() {
      S* y = static_cast<S*>(out.mutable_raw());
      for (int64_t r = 0; r < rows; ++r)
        if (empty.data<bool>()[r]) y[first[r]] = *static_cast<const S*>(other.raw());
      for (int64_t i = 0; i < n; ++i) y[place[i]] = static_cast<const S*>(values.raw())[i];
    });
    if (ragged_) {
      TROUPE_ASSIGN(filled, filled.reshape(Shape{total}));
    }
    c.set_output(0, std::move(filled));
    c.set_output(1, std::move(out));
    c.set_output(2, std::move(empty));
    c.set_output(3, std::move(map));
    return {};
  }

 private:
  const bool ragged_;
};

Status fill_empty_rows_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape indices, c.with_rank(0, 2));
  TROUPE_ASSIGN(const PartialShape values, c.with_rank(1, 1));
  TROUPE_RETURN_IF_ERROR(c.with_rank(2, 1).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank(3, 0).status());
  c.set_output(0, PartialShape{-1, indices.has_rank() ? indices[1] : -1});
  c.set_output(1, PartialShape{-1});
  int64_t rows = -1;
  if (const auto sizes = c.constant_input(2)) {
    TROUPE_ASSIGN(const auto s, int_values(*sizes, "dense_shape"));
    if (s.empty() || s[0] < 0) return invalid_argument("dense_shape {} has no rows", sizes->str());
    rows = s[0];
  }
  c.set_output(2, PartialShape{rows});
  c.set_output(3, PartialShape{values.has_rank() ? values[0] : -1});
  return {};
}

Status fill_ragged_rows_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 1).status());
  TROUPE_ASSIGN(const PartialShape values, c.with_rank(1, 1));
  TROUPE_RETURN_IF_ERROR(c.with_rank(2, 0).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank(3, 0).status());
  c.set_output(0, PartialShape{-1});
  c.set_output(1, PartialShape{-1});
  int64_t rows = -1;
  if (const auto n = c.constant_input(2)) {
    rows = *n->data<int64_t>();
    if (rows < 0) return invalid_argument("nrows must be at least 0, got {}", rows);
  }
  c.set_output(2, PartialShape{rows});
  c.set_output(3, PartialShape{values.has_rank() ? values[0] : -1});
  return {};
}

class FillEmptyRowsGrad final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &map = c.input(0), &g = c.input(1);
    if (map.rank() != 1 || g.rank() != 1)
      return invalid_argument("reverse_index_map of shape {} and grad_values of shape {} must be vectors",
                              map.shape().str(), g.shape().str());
    TROUPE_RETURN_IF_ERROR(check_indices(map.values<int64_t>(), g.elements()));
    TROUPE_ASSIGN(Tensor dx, c.allocate(g.dtype(), map.shape()));
    TROUPE_ASSIGN(Tensor rest, Tensor::make(g.dtype(), Shape{}));
    const std::span<const int64_t> from = map.values<int64_t>();
    std::vector<bool> taken(static_cast<size_t>(g.elements()));
    for (int64_t at : from) taken[at] = true;
    std::vector<int64_t> others;
    for (int64_t i = 0; i < g.elements(); ++i)
      if (!taken[i]) others.push_back(i);
    with_type(g.dtype(), NumberOrComplexTypes{}, [&]<class T>() {
      const T* in = g.data<T>();
      T* out = dx.mutable_data<T>();
      for (int64_t at : from) *out++ = in[at];
      Arithmetic<T> sum(0);
      for (int64_t i : others) sum = wrapping_add(sum, widen(in[i]));
      *rest.mutable_data<T>() = narrow<T>(sum);
    });
    c.set_output(0, std::move(dx));
    c.set_output(1, std::move(rest));
    return {};
  }
};

Gradient fill_empty_rows_gradient(const char* op) {
  return gradient([op](GradientContext& c) -> Status {
    if (!c.dy(1)) return {};
    const auto dx = c.ops(op, {c.output(3), c.dy(1)});
    if (dx.size() < 2) return {};
    c.set_dx(1, dx[0]);
    c.set_dx(3, dx[1]);
    return {};
  });
}

}  // namespace

void register_sparse_to_dense_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("SparseToDense")
              .input("sparse_indices: Tindices")
              .input("output_shape: Tindices")
              .input("sparse_values: T")
              .input("default_value: T")
              .output("dense: T")
              .attr("validate_indices: bool = true")
              .attr("T: type")
              .attr(type_attr("Tindices", IndexTypes{}))
              .shape(sparse_to_dense_shape)
              .doc("A tensor of output_shape with sparse_values at the rows of sparse_indices, one scalar for all or "
                   "a vector, and default_value elsewhere. Error for an index out of range, or, with "
                   "validate_indices, out of order or repeated."),
          gradient(sparse_to_dense_gradient));
  kernels.add<SparseToDense>("SparseToDense", DeviceKind::kCpu, {{"Tindices", IndexTypes::dtypes()}});
  ops.add(OpDef("SparseFillEmptyRows")
              .input("indices: int64")
              .input("values: T")
              .input("dense_shape: int64")
              .input("default_value: T")
              .output("output_indices: int64")
              .output("output_values: T")
              .output("empty_row_indicator: bool")
              .output("reverse_index_map: int64")
              .attr("T: type")
              .shape(fill_empty_rows_shape)
              .doc("A sparse tensor ordered by rows in which each row without a value has default_value at its start; "
                   "which rows those are; and where each value went."),
          fill_empty_rows_gradient("SparseFillEmptyRowsGrad"));
  kernels.add<FillEmptyRows>("SparseFillEmptyRows", DeviceKind::kCpu, {});
  ops.add(OpDef("RaggedFillEmptyRows")
              .input("value_rowids: int64")
              .input("values: T")
              .input("nrows: int64")
              .input("default_value: T")
              .output("output_value_rowids: int64")
              .output("output_values: T")
              .output("empty_row_indicator: bool")
              .output("reverse_index_map: int64")
              .attr("T: type")
              .shape(fill_ragged_rows_shape)
              .doc("A ragged matrix, given by the row of each value, in which each row without a value has "
                   "default_value; which rows those are; and where each value went."),
          fill_empty_rows_gradient("RaggedFillEmptyRowsGrad"));
  kernels.add<FillEmptyRows>("RaggedFillEmptyRows", DeviceKind::kCpu, {});
  for (const char* name : {"SparseFillEmptyRowsGrad", "RaggedFillEmptyRowsGrad"}) {
    ops.add(OpDef(name)
                .input("reverse_index_map: int64")
                .input("grad_values: T")
                .output("d_values: T")
                .output("d_default_value: T")
                .attr(type_attr("T", NumberOrComplexTypes{}))
                .shape([](ShapeContext& c) -> Status {
                  TROUPE_ASSIGN(const PartialShape map, c.with_rank(0, 1));
                  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
                  c.set_output(0, map);
                  c.set_output(1, PartialShape::scalar());
                  return {};
                })
                .doc("The gradients of SparseFillEmptyRows or RaggedFillEmptyRows: the values taken back from where "
                     "they went, and the sum of the others."),
            undefined_gradient());
    kernels.add<FillEmptyRowsGrad>(name, DeviceKind::kCpu, {{"T", NumberOrComplexTypes::dtypes()}});
  }
}

}  // namespace troupe
