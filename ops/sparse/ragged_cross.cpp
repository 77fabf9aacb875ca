// SPDX-License-Identifier: Apache-2.0
// RaggedCross: crosses of the features of ragged, sparse and dense matrices, as a ragged matrix.
#include "ops/parts/index_tensors.h"
#include "ops/sparse/crosses.h"
#include "ops/sparse/input.h"
#include "ops/sparse/register.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

class RaggedCross final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    auto out = std::unique_ptr<RaggedCross>(new RaggedCross(init));
    const std::string& order = out->order_;
    const auto has = [&](char kind, int n) { return std::ranges::count(order, kind) == n; };
    if (!has('R', out->ragged_) || !has('S', out->sparse_) || !has('D', out->dense_) ||
        std::ssize(order) != out->ragged_ + out->sparse_ + out->dense_)
      return invalid_argument("input_order must have {} R, {} S and {} D, got \"{}\"", out->ragged_, out->sparse_,
                              out->dense_, order);
    return std::unique_ptr<ComputeKernel>(std::move(out));
  }

  Status compute(KernelContext& c) override {
    int64_t rows = -1;
    std::vector<CrossColumn> columns;
    for (int at[3] = {0, 0, 0}; const char kind : order_) {
      auto column = kind == 'R' ? ragged(c, at[0]++) : kind == 'S' ? sparse(c, at[1]++) : dense(c, at[2]++);
      if (!column.ok()) return std::move(column.error());
      auto [count, read] = std::move(*column);
      if (rows >= 0 && count != rows) return invalid_argument("an input has {} rows, the first input {}", count, rows);
      rows = count;
      columns.push_back(std::move(read));
    }
    rows = std::max<int64_t>(rows, 0);  // -1: there is no input
    TROUPE_ASSIGN(const Shape many, Shape::make(std::array{rows + 1}));
    TROUPE_ASSIGN(Tensor splits, c.allocate(splits_, many));
    int64_t total = 0;
    for (int64_t r = 0;; ++r) {
      if (splits_ == DType::kInt64) splits.mutable_data<int64_t>()[r] = total;
      else splits.mutable_data<int32_t>()[r] = static_cast<int32_t>(total);
      if (r == rows) break;
      const std::optional<int64_t> crosses = columns.empty() ? 0 : count_crosses(columns, r);
      if (!crosses || __builtin_add_overflow(total, *crosses, &total) ||
          (splits_ == DType::kInt32 && total > INT32_MAX))
        return invalid_argument("row {} has more crosses than an {} counts", r, to_string(splits_));
    }
    TROUPE_ASSIGN(Tensor values, c.allocate(out_, Shape{total}));
    int64_t at = 0;
    for (int64_t r = 0; r < rows; ++r) {
      if (columns.empty() || *count_crosses(columns, r) == 0) continue;
      for_each_cross(columns, r, [&](const std::vector<int64_t>& chosen) {
        if (out_ == DType::kInt64) values.mutable_data<int64_t>()[at++] = cross_bucket(columns, chosen, key_, buckets_);
        else values.mutable_data<std::string>()[at++] = cross_text(columns, chosen, "_X_");
      });
    }
    c.set_output(0, std::move(values));
    c.set_output(1, std::move(splits));
    return {};
  }

 private:
  using Read = Result<std::pair<int64_t, CrossColumn>>;  // with the number of rows

  explicit RaggedCross(const KernelInit& init)
      : ragged_(static_cast<int>(init.attr<std::vector<DType>>("ragged_values_types").size())),
        sparse_(static_cast<int>(init.attr<int64_t>("Nsparse"))),
        dense_(static_cast<int>(init.attr<std::vector<DType>>("dense_types").size())),
        order_(init.attr<std::string>("input_order")), buckets_(init.attr<int64_t>("num_buckets")),
        key_(static_cast<uint64_t>(init.attr<int64_t>("hash_key"))), out_(init.output_dtypes[0]),
        splits_(init.output_dtypes[1]) {}

  Read ragged(const KernelContext& c, int i) const {
    const Tensor &values = c.input(i), &splits = c.input(ragged_ + i);
    if (values.rank() != 1) return invalid_argument("ragged values must be vectors, not {}", values.shape().str());
    CrossColumn out{CrossColumn::Kind::kRagged, &values};
    TROUPE_ASSIGN(out.splits, int_values(splits, "splits"));
    if (splits.rank() != 1 || out.splits.empty() || out.splits[0] != 0 || out.splits.back() != values.elements() ||
        !std::ranges::is_sorted(out.splits))
      return invalid_argument("splits of {} values must not fall from 0 to their number, got {}", values.elements(),
                              splits.str());
    return std::pair(std::ssize(out.splits) - 1, std::move(out));
  }

  Read sparse(const KernelContext& c, int i) const {
    const int first = 2 * ragged_;
    TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(first + i), c.input(first + sparse_ + i),
                                                         c.input(first + 2 * sparse_ + i)));
    if (x.shape.rank() != 2) return invalid_argument("a sparse input of shape {} must be a matrix", x.shape.str());
    CrossColumn out{CrossColumn::Kind::kSparse, x.values};
    for (int64_t v = 0; v < x.size(); ++v) out.rows.push_back(x.at(v)[0]);
    if (!std::ranges::is_sorted(out.rows)) return invalid_argument("the rows of a sparse input must not fall");
    return std::pair(x.shape[0], std::move(out));
  }

  Read dense(const KernelContext& c, int i) const {
    const Tensor& x = c.input(2 * ragged_ + 3 * sparse_ + i);
    if (x.rank() != 2) return invalid_argument("a dense input of shape {} must be a matrix", x.shape().str());
    return std::pair(x.dim(0), CrossColumn{CrossColumn::Kind::kDense, &x, {}, {}, x.dim(1)});
  }

  const int ragged_, sparse_, dense_;
  const std::string order_;
  const int64_t buckets_;
  const uint64_t key_;
  const DType out_, splits_;
};

Status ragged_cross_shape(ShapeContext& c) {
  c.set_output(0, PartialShape{-1});
  const auto ragged = static_cast<int>(c.attr<std::vector<DType>>("ragged_values_types").size());
  if (const auto splits = c.attr<std::vector<DType>>("ragged_splits_types").size();
      splits != static_cast<size_t>(ragged))
    return invalid_argument("ragged_splits_types has {} types for {} ragged inputs", splits, ragged);
  const auto sparse = static_cast<int>(c.attr<int64_t>("Nsparse"));
  if (const auto types = c.attr<std::vector<DType>>("sparse_values_types").size(); types != static_cast<size_t>(sparse))
    return invalid_argument("sparse_values_types has {} types for Nsparse = {}", types, sparse);
  c.set_output(1, PartialShape{-1});
  return {};
}

}  // namespace

void register_ragged_cross_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("RaggedCross")
              .input("ragged_values: ragged_values_types")
              .input("ragged_row_splits: ragged_splits_types")
              .input("sparse_indices: Nsparse * int64")
              .input("sparse_values: sparse_values_types")
              .input("sparse_shape: Nsparse * int64")
              .input("dense_inputs: dense_types")
              .output("output_values: out_values_type")
              .output("output_row_splits: out_row_splits_type")
              .attr("Nsparse: int >= 0")
              .attr("input_order: string")
              .attr("hashed_output: bool")
              .attr("num_buckets: int >= 0")
              .attr("hash_key: int")
              .attr("ragged_values_types: list({int64, string}) >= 0")
              .attr("ragged_splits_types: list({int32, int64}) >= 0")
              .attr("sparse_values_types: list({int64, string}) >= 0")
              .attr("dense_types: list({int64, string}) >= 0")
              .attr("out_values_type: {int64, string}")
              .attr("out_row_splits_type: {int32, int64}")
              .shape(ragged_cross_shape)
              .doc("The crosses of each row: every choice of one feature of each input, the last input's going round "
                   "first. input_order says which input is next: R, S or D, for ragged, sparse and dense matrices. As "
                   "int64 the hashes of their fingerprints from hash_key on, modulo num_buckets unless that is 0; as "
                   "strings the features with \"_X_\" between them. Error: inputs of different numbers of rows."),
          not_differentiable("features are not numbers"));
  kernels.add("RaggedCross", DeviceKind::kCpu, {}, RaggedCross::make);
}

}  // namespace troupe
