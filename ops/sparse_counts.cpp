// SPDX-License-Identifier: Apache-2.0
// How often numbers come, where what is counted or the counts are sparse: SparseBincount, DenseCountSparseOutput,
// SparseCountSparseOutput.
#include <map>

#include "ops/sparse_input.h"
#include "ops/sparse_parts.h"
#include "ops/wrapping.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

using WeightTypes = TypeList<int32_t, int64_t, float, double>;

/// What is counted: numbers, each of a row and with a weight of 1 or its own.
struct Counted {
  bool rows_apart = false;  // else there is one row, which results do not name
  int64_t rows = 1;
  std::vector<int64_t> values, row;
  const Tensor* weights = nullptr;

  size_t size() const { return values.size(); }
  template <class T> T weight(size_t i) const { return weights ? weights->data<T>()[i] : T(1); }

  static Result<Counted> dense(const Tensor& x, const Tensor& weights) {
    if (x.rank() > 2) return invalid_argument("values of shape {} have more than rows", x.shape().str());
    TROUPE_ASSIGN(Counted out, make(x, weights, x.rank() == 2, x.rank() == 2 ? x.dim(0) : 1));
    for (size_t i = 0; i < out.size(); ++i) out.row.push_back(out.rows_apart ? static_cast<int64_t>(i) / x.dim(1) : 0);
    return out;
  }
  static Result<Counted> sparse(const SparseInput& x, const Tensor& weights) {
    if (x.shape.rank() < 1 || x.shape.rank() > 2)
      return invalid_argument("a sparse tensor of shape {} is neither a vector nor has rows", x.shape.str());
    TROUPE_ASSIGN(Counted out, make(*x.values, weights, x.shape.rank() == 2, x.shape.rank() == 2 ? x.shape[0] : 1));
    for (size_t i = 0; i < out.size(); ++i) out.row.push_back(out.rows_apart ? x.at(static_cast<int64_t>(i))[0] : 0);
    return out;
  }

 private:
  static Result<Counted> make(const Tensor& x, const Tensor& weights, bool rows_apart, int64_t rows) {
    if (weights.elements() > 0 && weights.shape() != x.shape())
      return invalid_argument("weights of shape {} for values of shape {}", weights.shape().str(), x.shape().str());
    Counted out{rows_apart, rows, {}, {}, weights.elements() > 0 ? &weights : nullptr};
    TROUPE_ASSIGN(const Tensor flat, x.reshape(Shape{x.elements()}));
    TROUPE_ASSIGN(out.values, int_values(flat, "values"));
    for (size_t i = 0; i < out.size(); ++i)
      if (out.values[i] < 0) return invalid_argument("value {} at position {} is negative", out.values[i], i);
    return out;
  }
};

class SparseBincount final : public ComputeKernel {
 public:
  explicit SparseBincount(const KernelInit& init) : binary_(init.attr<bool>("binary_output")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(0), c.input(1), c.input(2)));
    if (c.input(3).rank() != 0) return invalid_argument("size must be a scalar, not {}", c.input(3).shape().str());
    TROUPE_ASSIGN(const int64_t size, count_from(c.input(3), "size"));
    TROUPE_ASSIGN(const Counted counted, Counted::sparse(x, c.input(4)));
    const int64_t sizes[] = {counted.rows, size};
    TROUPE_ASSIGN(const Shape shape, Shape::make(std::span(sizes).subspan(counted.rows_apart ? 0 : 1)));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(c.input(4).dtype(), shape, c.device().allocator));
    with_type(y.dtype(), WeightTypes{}, [&]<class T>() {
      T* bins = y.mutable_data<T>();
      for (size_t i = 0; i < counted.size(); ++i) {
        if (counted.values[i] >= size) continue;
        T& bin = bins[counted.row[i] * size + counted.values[i]];
        bin = binary_ ? T(1) : wrapping_add(bin, counted.weight<T>(i));
      }
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool binary_;
};

/// Counts as a sparse tensor of those that come.
class CountSparseOutput final : public ComputeKernel {
 public:
  explicit CountSparseOutput(const KernelInit& init)
      : sparse_(init.op == "SparseCountSparseOutput"), least_(init.attr<int64_t>("minlength")),
        most_(init.attr<int64_t>("maxlength")), binary_(init.attr<bool>("binary_output")) {}
  Status compute(KernelContext& c) override {
    if (!sparse_) {
      TROUPE_ASSIGN(const Counted counted, Counted::dense(c.input(0), c.input(1)));
      return count(c, counted, c.input(1).dtype());
    }
    TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(0), c.input(1), c.input(2)));
    TROUPE_ASSIGN(const Counted counted, Counted::sparse(x, c.input(3)));
    return count(c, counted, c.input(3).dtype());
  }

 private:
  Status count(KernelContext& c, const Counted& counted, DType dtype) const {
    Status status;
    with_type(dtype, WeightTypes{}, [&]<class T>() {
      std::map<std::pair<int64_t, int64_t>, T> counts;  // by row and value
      int64_t largest = 0;
      for (size_t i = 0; i < counted.size(); ++i) {
        if (most_ >= 0 && counted.values[i] >= most_) continue;
        T& sum = counts[{counted.row[i], counted.values[i]}];
        sum = binary_ ? T(1) : wrapping_add(sum, counted.weight<T>(i));
        largest = std::max(largest, counted.values[i] + 1);
      }
      status = give(c, counted, counts, most_ >= 0 ? most_ : std::max(largest, least_));
    });
    return status;
  }

  template <class T>
  Status give(KernelContext& c, const Counted& counted, const std::map<std::pair<int64_t, int64_t>, T>& counts,
              int64_t columns) const {
    const auto n = static_cast<int64_t>(counts.size());
    TROUPE_ASSIGN(Tensor indices, c.allocate(DType::kInt64, Shape{n, counted.rows_apart ? 2 : 1}));
    TROUPE_ASSIGN(Tensor values, c.allocate(dtype_of<T>, Shape{n}));
    int64_t* index = indices.mutable_data<int64_t>();
    T* value = values.mutable_data<T>();
    for (const auto& [place, sum] : counts) {
      if (counted.rows_apart) *index++ = place.first;
      *index++ = place.second;
      *value++ = sum;
    }
    c.set_output(0, std::move(indices));
    c.set_output(1, std::move(values));
    c.set_output(2, counted.rows_apart ? Tensor::of<int64_t>({counted.rows, columns}) : Tensor::of<int64_t>({columns}));
    return {};
  }

  const bool sparse_;
  const int64_t least_, most_;
  const bool binary_;
};

Status sparse_bincount_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape places, sparse_shapes(c, 0, 1, 2));
  TROUPE_RETURN_IF_ERROR(c.with_rank(3, 0).status());
  int64_t size = -1, rows = -1;
  if (const auto constant = c.constant_input(3)) {
    TROUPE_ASSIGN(size, count_from(*constant, "size"));
  }
  if (const auto sizes = c.constant_input(2)) {
    TROUPE_ASSIGN(const Shape shape, shape_from(*sizes, "dense_shape"));
    if (shape.rank() == 2) rows = shape[0];
  }
  if (places[1] == 1) c.set_output(0, PartialShape{size});
  if (places[1] == 2) c.set_output(0, PartialShape{rows, size});
  return {};
}

Status count_shape(ShapeContext& c) {
  int rank = -1;  // of the counts
  if (c.num_inputs() == 2) {
    const PartialShape& x = c.input(0);
    if (x.has_rank() && x.rank() > 2) return invalid_argument("values of shape {} have more than rows", x.str());
    if (x.has_rank()) rank = std::max(x.rank(), 1);
  } else {
    TROUPE_ASSIGN(const PartialShape places, sparse_shapes(c, 0, 1, 2));
    rank = static_cast<int>(places[1]);
  }
  c.set_output(0, PartialShape{-1, rank});
  c.set_output(1, PartialShape{-1});
  c.set_output(2, PartialShape{rank});
  return {};
}

}  // namespace

void register_sparse_count_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const Gradient none = not_differentiable("it counts");
  ops.add(OpDef("SparseBincount")
              .input("indices: int64")
              .input("values: Tidx")
              .input("dense_shape: int64")
              .input("size: Tidx")
              .input("weights: T")
              .output("output: T")
              .attr(type_attr("Tidx", IndexTypes{}))
              .attr(type_attr("T", WeightTypes{}))
              .attr("binary_output: bool = false")
              .shape(sparse_bincount_shape)
              .doc("For each number below size how often it comes among the values of a sparse vector, or of each row "
                   "of a sparse matrix, or the sum of its weights unless these are empty; with binary_output only "
                   "whether it comes. Error for a negative number."),
          none);
  kernels.add<SparseBincount>("SparseBincount", DeviceKind::kCpu, {});
  for (const bool sparse : {false, true}) {
    const std::string name = sparse ? "SparseCountSparseOutput" : "DenseCountSparseOutput";
    OpDef op(name);
    if (sparse) op.input("indices: int64");
    op.input("values: T");
    if (sparse) op.input("dense_shape: int64");
    ops.add(op.input("weights: output_type")
                .output("output_indices: int64")
                .output("output_values: output_type")
                .output("output_dense_shape: int64")
                .attr(type_attr("T", IndexTypes{}))
                .attr("minlength: int >= -1 = -1")
                .attr("maxlength: int >= -1 = -1")
                .attr("binary_output: bool")
                .attr(type_attr("output_type", WeightTypes{}))
                .shape(count_shape)
                .doc(std::string("How often each number comes in ") + (sparse ? "a sparse " : "a ") +
                     "vector, or in each row of a matrix, as a sparse tensor of those that come; or the sums of their "
                     "weights unless these are empty; with binary_output ones. Counts are maxlength wide, which larger "
                     "numbers are left out of, or as wide as needed, and at least minlength. Error for a negative "
                     "number."),
            none);
    kernels.add<CountSparseOutput>(name, DeviceKind::kCpu, {});
  }
}

}  // namespace troupe
