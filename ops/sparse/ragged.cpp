// SPDX-License-Identifier: Apache-2.0
// RaggedTensorToTensor: rows of different lengths as a tensor, with a default value behind the shorter ones.
#include <algorithm>

#include "ops/parts/broadcast.h"
#include "ops/parts/element_list.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/sparse/register.h"

namespace troupe {
namespace {

constexpr int kShape = 0, kValues = 1, kDefault = 2, kPartitions = 3;  // inputs

/// What row_partition_types say of the partitions.
struct PartitionTypes {
  bool counted = false;          // the first is the number of rows
  std::vector<bool> are_splits;  // of the others: where rows begin and end, or else the row of each value
  int ragged() const { return static_cast<int>(are_splits.size()); }

  /// Errors: another number than that of the partitions; words that are not known, or not where they stand.
  static Result<PartitionTypes> parse(const std::vector<std::string>& words, int64_t partitions) {
    if (std::ssize(words) != partitions)
      return invalid_argument("row_partition_types must be as many as the partitions, {}, got {}", partitions,
                              words.size());
    PartitionTypes out;
    for (size_t i = 0; i < words.size(); ++i) {
      const bool splits = words[i] == "ROW_SPLITS", ids = words[i] == "VALUE_ROWIDS";
      if (i == 0 && words[i] == "FIRST_DIM_SIZE") out.counted = true;
      else if (splits || (ids && out.counted)) out.are_splits.push_back(splits);
      else
        return invalid_argument(
            "row_partition_types must be FIRST_DIM_SIZE, VALUE_ROWIDS, ... or ROW_SPLITS, ..., got "
            "\"{}\" at position {}",
            words[i], i);
    }
    return out;
  }
};

/// The row of each value of a partition of `rows` rows, of which there may be `most`. Errors: rows that are out of
/// range or fall.
Result<std::vector<int64_t>> rows_of_values(const Tensor& partition, bool are_splits, int64_t rows, int64_t most) {
  if (partition.rank() != 1)
    return invalid_argument("a partition must be a vector, but has shape {}", partition.shape().str());
  TROUPE_ASSIGN(const std::vector<int64_t> given, int_values(partition, "row_partition_tensors"));
  if (!are_splits) {
    for (size_t i = 0; i < given.size(); ++i)
      if (given[i] < (i > 0 ? given[i - 1] : 0) || given[i] >= rows)
        return invalid_argument("row ids must not fall and be in [0, {}), got {} at position {}", rows, given[i], i);
    return given;
  }
  if (given.empty() || std::ssize(given) != rows + 1 || given[0] != 0)
    return invalid_argument("splits of {} rows must be {} numbers from 0 on, got {}", rows, rows + 1, partition.str());
  std::vector<int64_t> out;
  for (size_t row = 0; row + 1 < given.size(); ++row) {
    if (given[row + 1] < given[row] || given[row + 1] > most)
      return invalid_argument("splits must not fall and be at most {}, got {} at position {}", most, given[row + 1],
                              row + 1);
    out.resize(static_cast<size_t>(given[row + 1]), static_cast<int64_t>(row));
  }
  return out;
}

/// The place of each value within its row.
std::vector<int64_t> columns_in_rows(const std::vector<int64_t>& rows) {
  std::vector<int64_t> out(rows.size(), 0);
  for (size_t i = 1; i < rows.size(); ++i)
    if (rows[i] == rows[i - 1]) out[i] = out[i - 1] + 1;
  return out;
}

/// The shape of the result as far as `shape` and that of the values say. Error: they do not fit one another.
Result<PartialShape> dense_shape(PartialShape shape, const PartialShape& values, int ragged) {
  if (!values.has_rank()) return shape;
  if (values.rank() == 0) return invalid_argument("values must have at least one dimension");
  if (values.rank() + ragged > kMaxRank)
    return invalid_argument("values {} with {} ragged dimensions have more than {}", values.str(), ragged, kMaxRank);
  PartialShape inner = PartialShape::scalar();
  for (int d = 0; d <= ragged; ++d) inner.push_back(-1);
  for (int d = 1; d < values.rank(); ++d) inner.push_back(values[d]);
  if (!shape.compatible(inner))
    return invalid_argument("shape {} does not fit values {} with {} ragged dimensions", shape.str(), values.str(),
                            ragged);
  return PartialShape::merge(shape, inner);
}

class RaggedToTensor final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    TROUPE_ASSIGN(PartitionTypes types,
                  PartitionTypes::parse(init.attr<std::vector<std::string>>("row_partition_types"),
                                        init.attr<int64_t>("num_row_partition_tensors")));
    return std::unique_ptr<ComputeKernel>(new RaggedToTensor(std::move(types)));
  }

  Status compute(KernelContext& c) override {
    const Tensor& values = c.input(kValues);
    TROUPE_ASSIGN(PartialShape partial, partial_shape_from(c.input(kShape)));
    TROUPE_ASSIGN(partial, dense_shape(std::move(partial), values.shape(), types_.ragged()));
    const Tensor& first = c.input(kPartitions);
    int64_t rows = first.elements() - 1;
    if (types_.counted) {
      TROUPE_ASSIGN(rows, count_from(first, "the number of rows"));
    }
    std::vector<int64_t> sizes(partial.dims().begin(), partial.dims().end());
    if (sizes[0] < 0) sizes[0] = rows;
    std::vector<std::vector<int64_t>> parents, columns;
    int64_t nodes = rows;
    for (int level = 1; level <= types_.ragged(); ++level) {
      const auto at = static_cast<size_t>(level);
      const int input = kPartitions + level - (types_.counted ? 0 : 1);
      const int64_t most = level == types_.ragged() ? values.dim(0)
                           : types_.are_splits[at]  ? c.input(input + 1).elements() - 1
                                                    : INT32_MAX;
      TROUPE_ASSIGN(parents.emplace_back(), rows_of_values(c.input(input), types_.are_splits[at - 1], nodes, most));
      columns.push_back(columns_in_rows(parents.back()));
      nodes = std::ssize(parents.back());
      int64_t& size = sizes[at];
      if (size < 0) size = columns.back().empty() ? 0 : *std::ranges::max_element(columns.back()) + 1;
    }
    if (nodes != values.dim(0))
      return invalid_argument("the partitions are of {} values, but there are {}", nodes, values.dim(0));
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor y, c.allocate(values.dtype(), shape));
    TROUPE_ASSIGN(const Shape element, Shape::make(std::span(sizes).subspan(static_cast<size_t>(types_.ragged()) + 1)));
    const Tensor& missing = c.input(kDefault);
    TROUPE_ASSIGN(const Broadcast plan, plan_broadcast(element, missing.shape()));
    if (!(plan.shape == element))
      return invalid_argument("default_value {} does not broadcast to a value, {}", missing.shape().str(),
                              element.str());
    with_storage(values.dtype(), [&]<class S>() {
      const auto* from = static_cast<const S*>(values.raw());
      auto* to = static_cast<S*>(y.mutable_raw());
      const int64_t n = element.elements(), places = n > 0 ? y.elements() / n : 0;
      std::vector<S> filler(static_cast<size_t>(n));
      for_each_run(plan, 1, kCheapGrain, [&](int64_t out, const auto& in, int64_t run) {
        for (int64_t i = 0; i < run; ++i)
          filler[static_cast<size_t>(out + i)] =
              static_cast<const S*>(missing.raw())[in[1] + i * plan.stride[1][plan.rank - 1]];
      });
      for (int64_t i = 0; i < places; ++i) std::ranges::copy(filler, to + i * n);
      for (int64_t i = 0; i < nodes; ++i)
        if (const int64_t at = place(i, parents, columns, sizes); at >= 0) std::copy_n(from + i * n, n, to + at * n);
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  explicit RaggedToTensor(PartitionTypes types) : types_(std::move(types)) {}

  /// Where among the values of the result value i comes; -1 where it is cut off.
  static int64_t place(int64_t i, const std::vector<std::vector<int64_t>>& parents,
                       const std::vector<std::vector<int64_t>>& columns, const std::vector<int64_t>& sizes) {
    int64_t out = 0, stride = 1;
    for (size_t level = parents.size(); level > 0; --level) {
      const int64_t column = columns[level - 1][static_cast<size_t>(i)];
      if (column >= sizes[level]) return -1;
      out += column * stride;
      stride *= sizes[level];
      i = parents[level - 1][static_cast<size_t>(i)];
    }
    return i < sizes[0] ? out + i * stride : -1;
  }

  const PartitionTypes types_;
};

Status ragged_to_tensor_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartitionTypes types,
                PartitionTypes::parse(c.attr<std::vector<std::string>>("row_partition_types"),
                                      c.attr<int64_t>("num_row_partition_tensors")));
  PartialShape shape;
  if (const auto constant = c.constant_input(kShape)) {
    TROUPE_ASSIGN(shape, partial_shape_from(*constant));
  }
  TROUPE_ASSIGN(shape, dense_shape(std::move(shape), c.input(kValues), types.ragged()));
  c.set_output(0, std::move(shape));
  return {};
}

/// The numbers of the values, laid out as the values are with -1 for none, are segments of the gradient: the sum of
/// each is the gradient of its value, and the default value has that of the rest.
Status ragged_to_tensor_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output values = c.input(kValues), dy = c.dy(0);
  const Attrs& attrs = c.node().attrs();
  TROUPE_ASSIGN(const PartitionTypes types,
                PartitionTypes::parse(*attrs.get<std::vector<std::string>>("row_partition_types"),
                                      *attrs.get<int64_t>("num_row_partition_tensors")));
  const auto scalar = [&](int32_t v) { return c.constant(Tensor::scalar(v)); };
  const auto vector = [&](int32_t v) { return c.constant(Tensor::of<int32_t>({v})); };
  const auto slice = [&](Output x, int32_t begin, int32_t size) {
    return c.op("Slice", {x, vector(begin), vector(size)});
  };
  const Output count = c.op("Squeeze", {slice(c.op("Shape", {values}), 0, 1)});
  const Output outer = slice(c.op("Shape", {dy}), 0, types.ragged() + 1);
  std::vector<Output> inputs = {outer, c.op("Range", {scalar(0), count, scalar(1)}), scalar(-1)};
  for (int i = kPartitions; i < c.num_inputs(); ++i) inputs.push_back(c.input(i));
  Attrs numbers;
  for (const char* name : {"row_partition_types", "num_row_partition_tensors"}) numbers.set(name, *attrs.find(name));
  const Output ids = c.op("RaggedTensorToTensor", inputs, numbers);
  c.set_dx(kValues, c.op("UnsortedSegmentSum", {dy, ids, count}));
  const Output none = c.op("Sub", {scalar(-1), ids});  // 0 where there is no value, else below 0
  const Output rest = c.op("UnsortedSegmentSum", {dy, none, scalar(1)});
  const Output one = c.op("Squeeze", {rest}, {{"squeeze_dims", std::vector<int64_t>{0}}});
  c.set_dx(kDefault, sum_to(c, one, c.input(kDefault), one));
  return {};
}

}  // namespace

void register_ragged_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("RaggedTensorToTensor")
              .input("shape: Tshape")
              .input("values: T")
              .input("default_value: T")
              .input("row_partition_tensors: num_row_partition_tensors * Tindex")
              .output("result: T")
              .attr("T: type")
              .attr("Tindex: {int64, int32}")
              .attr("Tshape: {int64, int32}")
              .attr("num_row_partition_tensors: int >= 1")
              .attr("row_partition_types: list(string)")
              .shape(ragged_to_tensor_shape)
              .doc("A ragged tensor as a tensor of `shape`, in which -1 stands for as much as the longest row needs; "
                   "what is longer is cut off, and `default_value` fills up what is shorter. The partitions say how "
                   "values are rows of rows: ROW_SPLITS, where rows begin and the last one ends, or FIRST_DIM_SIZE, "
                   "the number of rows, and VALUE_ROWIDS, the row of each value. Fails for partitions that do not fit "
                   "one another."),
          gradient(ragged_to_tensor_gradient));
  kernels.add("RaggedTensorToTensor", DeviceKind::kCpu, {}, RaggedToTensor::make);
}

}  // namespace troupe
