// SPDX-License-Identifier: Apache-2.0
// Crosses of the features of each row, as new features: SparseCross, SparseCrossV2.
#include <algorithm>
#include <iterator>
#include <limits>

#include "ops/sparse/input.h"
#include "ops/sparse/register.h"
#include "ops/text/string_hash.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

/// The features of one input, by row: those of a sparse matrix in the order of its indices, or all of a dense one.
struct CrossColumn {
  /// Places of values, from begin to before end.
  struct Places {
    int64_t begin, end;
  };
  const Tensor* values;
  bool sparse;
  std::vector<int64_t> rows;  // of the values of a sparse matrix, sorted
  int64_t width;              // of a dense one

  Places at(int64_t row) const {
    if (!sparse) return {row * width, (row + 1) * width};
    const auto found = std::ranges::equal_range(rows, row);
    return {found.begin() - rows.begin(), found.end() - rows.begin()};
  }
};

Result<CrossColumn> sparse_column(const SparseInput& x, int64_t rows) {
  if (x.shape.rank() != 2) return invalid_argument("a sparse input of shape {} must be a matrix", x.shape.str());
  if (x.shape[0] != rows) return invalid_argument("a sparse input has {} rows, the first input {}", x.shape[0], rows);
  CrossColumn out{x.values, true, {}, 0};
  for (int64_t i = 0; i < x.size(); ++i) {
    if (i > 0 && x.at(i)[0] < x.at(i - 1)[0])
      return invalid_argument("indices[{}] is of row {}, the one before of row {}: they must be sorted", i, x.at(i)[0],
                              x.at(i - 1)[0]);
    out.rows.push_back(x.at(i)[0]);
  }
  return out;
}

Result<CrossColumn> dense_column(const Tensor& x, int64_t rows) {
  if (x.rank() != 2) return invalid_argument("a dense input of shape {} must be a matrix", x.shape().str());
  if (x.dim(0) != rows) return invalid_argument("a dense input has {} rows, the first input {}", x.dim(0), rows);
  return CrossColumn{&x, false, {}, x.dim(1)};
}

/// The rows that may have crosses, in order: no more than some input has values, whatever `rows` says.
std::vector<int64_t> crossed_rows(const std::vector<CrossColumn>& columns, int64_t rows) {
  std::vector<int64_t> out;
  const auto sparse = std::ranges::find(columns, true, &CrossColumn::sparse);
  if (sparse != columns.end()) {
    std::ranges::unique_copy(sparse->rows, std::back_inserter(out));
  } else if (std::ranges::all_of(columns, [](const CrossColumn& c) { return c.width > 0; })) {
    for (int64_t r = 0; r < rows; ++r) out.push_back(r);
  }
  return out;
}

uint64_t feature_number(const Tensor& values, int64_t i) {
  return values.dtype() == DType::kString ? farm_fingerprint(values.data<std::string>()[i])
                                          : static_cast<uint64_t>(values.data<int64_t>()[i]);
}

/// The fingerprint of two fingerprints, as TensorFlow joins them.
uint64_t joined_hash(uint64_t a, uint64_t b) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995;
  const auto mix = [](uint64_t x) { return x ^ (x >> 47); };
  uint64_t out = (a ^ kMul ^ (mix(b * kMul) * kMul)) * kMul;
  out = mix(out) * kMul;
  return mix(out);
}

class SparseCross final : public ComputeKernel {
 public:
  explicit SparseCross(const KernelInit& init)
      : inputs_(static_cast<int>(init.attr<int64_t>("N"))), has_separator_(init.op == "SparseCrossV2"),
        buckets_(init.attrs->get_or("num_buckets", int64_t{0})),
        key_(static_cast<uint64_t>(init.attrs->get_or("hash_key", int64_t{0}))), out_(init.output_dtypes[1]) {}

  Status compute(KernelContext& c) override {
    int64_t rows = 0;
    TROUPE_ASSIGN(const std::vector<CrossColumn> columns, read(c, rows));
    std::string separator = "_X_";
    if (has_separator_) {
      const Tensor& sep = c.input(c.num_inputs() - 1);
      if (sep.rank() != 0) return invalid_argument("sep must be a scalar, not {}", sep.shape().str());
      separator = *sep.data<std::string>();
    }
    const std::vector<int64_t> crossed = crossed_rows(columns, rows);
    std::vector<int64_t> counts;  // of crosses, by row of `crossed`
    int64_t total = 0, most = 0;
    for (const int64_t r : crossed) {
      int64_t crosses = 1;
      for (const CrossColumn& column : columns) {
        const auto [begin, end] = column.at(r);
        if (__builtin_mul_overflow(crosses, end - begin, &crosses)) return too_many(r);
      }
      if (__builtin_add_overflow(total, crosses, &total)) return too_many(r);
      counts.push_back(crosses);
      most = std::max(most, crosses);
    }
    TROUPE_ASSIGN(const Shape matrix, Shape::make(std::array{total, int64_t{2}}));
    TROUPE_ASSIGN(Tensor indices, c.allocate(DType::kInt64, matrix));
    TROUPE_ASSIGN(Tensor values, c.allocate(out_, Shape{total}));
    int64_t at = 0, *place = indices.mutable_data<int64_t>();
    std::vector<int64_t> chosen(columns.size());  // by column: which of its values; the last one goes round first
    std::vector<CrossColumn::Places> places(columns.size());
    for (size_t row = 0; row < crossed.size(); ++row) {
      for (size_t k = 0; k < columns.size(); ++k) {
        places[k] = columns[k].at(crossed[row]);
        chosen[k] = places[k].begin;
      }
      for (int64_t i = 0; i < counts[row]; ++i, ++at) {
        *place++ = crossed[row];
        *place++ = i;
        if (out_ == DType::kInt64) values.mutable_data<int64_t>()[at] = bucket(columns, chosen);
        else values.mutable_data<std::string>()[at] = text(columns, chosen, separator);
        for (size_t k = columns.size(); k-- > 0 && ++chosen[k] == places[k].end;) chosen[k] = places[k].begin;
      }
    }
    c.set_output(0, std::move(indices));
    c.set_output(1, std::move(values));
    c.set_output(2, Tensor::of<int64_t>({rows, most}));
    return {};
  }

 private:
  static Error too_many(int64_t row) { return invalid_argument("row {} has more crosses than an int64 counts", row); }

  /// The inputs as columns of as many rows; sets `rows`.
  Result<std::vector<CrossColumn>> read(const KernelContext& c, int64_t& rows) const {
    std::vector<CrossColumn> out;
    const int dense = c.num_inputs() - 3 * inputs_ - (has_separator_ ? 1 : 0);
    rows = -1;
    for (int i = 0; i < inputs_; ++i) {
      TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(i), c.input(inputs_ + i), c.input(2 * inputs_ + i)));
      if (rows < 0 && x.shape.rank() > 0) rows = x.shape[0];
      TROUPE_ASSIGN(CrossColumn column, sparse_column(x, rows));
      out.push_back(std::move(column));
    }
    for (int i = 0; i < dense; ++i) {
      const Tensor& x = c.input(3 * inputs_ + i);
      if (rows < 0 && x.rank() > 0) rows = x.dim(0);
      TROUPE_ASSIGN(CrossColumn column, dense_column(x, rows));
      out.push_back(std::move(column));
    }
    rows = std::max<int64_t>(rows, 0);  // -1: there is no input
    return out;
  }

  int64_t bucket(const std::vector<CrossColumn>& columns, const std::vector<int64_t>& chosen) const {
    uint64_t hash = key_;
    for (size_t k = 0; k < columns.size(); ++k) hash = joined_hash(hash, feature_number(*columns[k].values, chosen[k]));
    return static_cast<int64_t>(hash % (buckets_ > 0 ? static_cast<uint64_t>(buckets_)
                                                     : static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
  }

  std::string text(const std::vector<CrossColumn>& columns, const std::vector<int64_t>& chosen,
                   const std::string& separator) const {
    std::string out;
    for (size_t k = 0; k < columns.size(); ++k) {
      const Tensor& values = *columns[k].values;
      if (k > 0) out += separator;
      if (values.dtype() == DType::kString) out += values.data<std::string>()[chosen[k]];
      else out += std::to_string(values.data<int64_t>()[chosen[k]]);
    }
    return out;
  }

  const int inputs_;  // sparse ones
  const bool has_separator_;
  const int64_t buckets_;
  const uint64_t key_;
  const DType out_;
};

Status sparse_cross_shape(ShapeContext& c) {
  const auto n = static_cast<int>(c.attr<int64_t>("N"));
  if (const auto types = c.attr<std::vector<DType>>("sparse_types").size(); types != static_cast<size_t>(n))
    return invalid_argument("sparse_types has {} types for N = {} sparse inputs", types, n);
  for (int i = 0; i < n; ++i) TROUPE_RETURN_IF_ERROR(sparse_shapes(c, i, n + i, 2 * n + i).status());
  c.set_output(0, PartialShape{-1, 2});
  c.set_output(1, PartialShape{-1});
  c.set_output(2, PartialShape{2});
  return {};
}

}  // namespace

void register_sparse_cross_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string what =
      "The crosses of each row: every choice of one feature of each input, the sparse matrices first, the last input's "
      "going round first. ";
  for (const bool v2 : {false, true}) {
    OpDef op(v2 ? "SparseCrossV2" : "SparseCross");
    op.input("indices: N * int64").input("values: sparse_types").input("shapes: N * int64");
    op.input("dense_inputs: dense_types");
    if (v2) op.input("sep: string");
    op.output("output_indices: int64").output(v2 ? "output_values: string" : "output_values: out_type");
    op.output("output_shape: int64").attr("N: int >= 0");
    if (!v2) op.attr("hashed_output: bool").attr("num_buckets: int >= 0").attr("hash_key: int");
    op.attr("sparse_types: list({int64, string}) >= 0").attr("dense_types: list({int64, string}) >= 0");
    if (!v2) op.attr("out_type: {int64, string}").attr("internal_type: {int64, string}");
    const std::string name = op.name();
    ops.add(op.shape(sparse_cross_shape)
                .doc(what + (v2 ? "Features are joined as text, `sep` between them."
                                : "As int64 the FarmHash fingerprints of features, or the numbers they are, hashed "
                                  "together from hash_key on, modulo num_buckets unless that is 0; as strings joined "
                                  "with \"_X_\" between them.")),
            not_differentiable("features are not numbers"));
    kernels.add<SparseCross>(name, DeviceKind::kCpu, {});
  }
}

}  // namespace troupe
