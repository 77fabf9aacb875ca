// SPDX-License-Identifier: Apache-2.0
// How often numbers come, where what is counted or the counts are sparse or ragged: SparseBincount, RaggedBincount,
// DenseCountSparseOutput, SparseCountSparseOutput, RaggedCountSparseOutput.
#include <map>

#include "ops/math/counted.h"
#include "ops/sparse/input.h"
#include "ops/sparse/ragged_input.h"
#include "ops/sparse/register.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

/// The values of a sparse vector in one row, those of a sparse matrix by its rows. Errors: as Counted::all; another
/// rank.
Result<Counted> counted_of(const SparseInput& x, const Tensor& weights) {
  if (x.shape.rank() < 1 || x.shape.rank() > 2)
    return invalid_argument("a sparse tensor of shape {} is neither a vector nor has rows", x.shape.str());
  TROUPE_ASSIGN(Counted out, Counted::all(*x.values, weights));
  if (x.shape.rank() < 2) return out;
  out.rows_apart = true;
  out.rows = x.shape[0];
  for (int64_t i = 0; i < x.size(); ++i) out.row.push_back(x.at(i)[0]);
  return out;
}

/// The values of a ragged tensor of splits and values, inputs 0 and 1, by its rows. Errors: as Counted::all; values
/// that are not a vector, splits that are not theirs.
Result<Counted> counted_rows(const KernelContext& c, const Tensor& weights) {
  TROUPE_ASSIGN(const RaggedInput x, RaggedInput::read(c, 0, 1, 1));
  if (x.values->rank() != 1) return invalid_argument("values must be a vector, not {}", x.values->shape().str());
  TROUPE_ASSIGN(Counted out, Counted::all(*x.values, weights));
  out.rows_apart = true;
  out.rows = x.rows();
  const std::vector<int64_t>& splits = x.splits[0];
  for (int64_t row = 0; row < out.rows; ++row)
    out.row.resize(static_cast<size_t>(splits[static_cast<size_t>(row) + 1]), row);
  return out;
}

class RaggedBincount final : public ComputeKernel {
 public:
  explicit RaggedBincount(const KernelInit& init) : binary_(init.attr<bool>("binary_output")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Counted counted, counted_rows(c, c.input(3)));
    TROUPE_ASSIGN(Tensor y, counted.bins(c, c.input(2), c.input(3).dtype(), binary_));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool binary_;
};

class SparseBincount final : public ComputeKernel {
 public:
  explicit SparseBincount(const KernelInit& init) : binary_(init.attr<bool>("binary_output")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(0), c.input(1), c.input(2)));
    TROUPE_ASSIGN(const Counted counted, counted_of(x, c.input(4)));
    TROUPE_ASSIGN(Tensor y, counted.bins(c, c.input(3), c.input(4).dtype(), binary_));
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
      : sparse_(init.op == "SparseCountSparseOutput"), ragged_(init.op == "RaggedCountSparseOutput"),
        least_(init.attr<int64_t>("minlength")), most_(init.attr<int64_t>("maxlength")),
        binary_(init.attr<bool>("binary_output")) {}
  Status compute(KernelContext& c) override {
    if (ragged_) {
      TROUPE_ASSIGN(const Counted counted, counted_rows(c, c.input(2)));
      return count(c, counted, c.input(2).dtype());
    }
    if (!sparse_) {
      TROUPE_ASSIGN(const Counted counted, Counted::by_row(c.input(0), c.input(1)));
      return count(c, counted, c.input(1).dtype());
    }
    TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(0), c.input(1), c.input(2)));
    TROUPE_ASSIGN(const Counted counted, counted_of(x, c.input(3)));
    return count(c, counted, c.input(3).dtype());
  }

 private:
  Status count(KernelContext& c, const Counted& counted, DType dtype) const {
    Status status;
    with_type(dtype, WeightTypes{}, [&]<class T>() {
      std::map<std::pair<int64_t, int64_t>, T> counts;  // by row and value
      int64_t columns = std::max(least_, int64_t{1});   // of nothing too
      for (size_t i = 0; i < counted.size(); ++i) {
        if (most_ >= 0 && counted.values[i] >= most_) continue;
        T& sum = counts[{counted.row_of(i), counted.values[i]}];
        sum = binary_ ? T(1) : wrapping_add(sum, counted.weight<T>(i));
        columns = std::max(columns, counted.values[i] + 1);
      }
      status = give(c, counted, counts, most_ >= 0 ? most_ : columns);
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

  const bool sparse_, ragged_;
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

Status ragged_bincount_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape splits, c.with_rank(0, 1));
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank(2, 0).status());
  int64_t size = -1;
  if (const auto constant = c.constant_input(2)) {
    TROUPE_ASSIGN(size, count_from(*constant, "size"));
  }
  c.set_output(0, PartialShape{splits.has_rank() && splits[0] > 0 ? splits[0] - 1 : -1, size});
  return {};
}

Status count_shape(ShapeContext& c) {
  int rank = -1;  // of the counts
  if (c.num_inputs() == 2) {
    const PartialShape& x = c.input(0);
    if (x.has_rank() && x.rank() > 2) return invalid_argument("values of shape {} have more than rows", x.str());
    if (x.has_rank()) rank = std::max(x.rank(), 1);
  } else if (c.num_inputs() == 3) {
    for (int i : {0, 1}) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 1).status());
    rank = 2;
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
  ops.add(OpDef("RaggedBincount")
              .input("splits: int64")
              .input("values: Tidx")
              .input("size: Tidx")
              .input("weights: T")
              .output("output: T")
              .attr(type_attr("Tidx", IndexTypes{}))
              .attr(type_attr("T", WeightTypes{}))
              .attr("binary_output: bool = false")
              .shape(ragged_bincount_shape)
              .doc("As SparseBincount of the rows of a ragged tensor."),
          none);
  kernels.add<RaggedBincount>("RaggedBincount", DeviceKind::kCpu, {});
  for (const std::string kind : {"Dense", "Sparse", "Ragged"}) {
    const std::string name = kind + "CountSparseOutput";
    const bool sparse = kind == "Sparse", ragged = kind == "Ragged";
    OpDef op(name);
    if (sparse) op.input("indices: int64");
    if (ragged) op.input("splits: int64");
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
                .doc(std::string("How often each number comes in ") +
                     (ragged   ? "each row of a ragged tensor"
                      : sparse ? "a sparse vector, or in each row of a matrix"
                               : "a vector, or in each row of a matrix") +
                     ", as a sparse tensor of those that come; or the sums of their "
                     "weights unless these are empty; with binary_output ones. Counts are maxlength wide, which larger "
                     "numbers are left out of, or as wide as needed, and at least minlength. Error for a negative "
                     "number."),
            none);
    kernels.add<CountSparseOutput>(name, DeviceKind::kCpu, {});
  }
}

}  // namespace troupe
