// SPDX-License-Identifier: Apache-2.0
// Datasets whose elements are made of several, or are parts of one: padded batches, windows, rows, groups by key.
#include <algorithm>

#include "base/join.h"
#include "ops/data/dataset_op.h"
#include "ops/data/register.h"
#include "ops/parts/element_list.h"
#include "ops/parts/index_tensors.h"
#include "troupe/tensor_list.h"

namespace troupe {
namespace {

PlanDataset padded_batch(bool drops) {
  return [drops](const KernelInit& init) -> Result<MakeDataset> {
    const auto n = static_cast<int>(init.attr<int64_t>("N"));
    return MakeDataset([n, drops](const DatasetInputs& in) -> Result<GraphDataset> {
      TROUPE_ASSIGN(const StagePtr from, in.stage());
      TROUPE_ASSIGN(const int64_t size, in.integer(1, "batch_size", 1));
      ComponentShapes padded;
      for (const Tensor& t : in.tensors(2, 2 + n)) {
        if (t.rank() != 1) return invalid_argument("padded_shapes must be vectors, got {}", t.str());
        TROUPE_ASSIGN(PartialShape shape, partial_shape_from(t));
        padded.push_back(std::move(shape));
      }
      Element values = in.tensors(2 + n, 2 + 2 * n);
      if (std::ssize(values) != n || in.dtypes().size() != values.size())
        return invalid_argument("{} padded_shapes and {} padding_values, of {} types", n, values.size(),
                                in.dtypes().size());
      for (const Tensor& t : values)
        if (t.rank() != 0) return invalid_argument("padding_values must be scalars, got {}", t.str());
      bool drop = false;
      if (drops) {
        TROUPE_ASSIGN(drop, in.boolean(2 + 2 * n, "drop_remainder"));
      }
      return GraphDataset{make_padded_batch_stage(from, size, drop, std::move(padded), std::move(values))};
    });
  };
}

OpDef padded_op(std::string_view name) {
  return OpDef(name)
      .input("input_dataset: variant")
      .input("batch_size: int64")
      .input("padded_shapes: N * int64")
      .input("padding_values: Toutput_types")
      .attr("N: int >= 1");
}

/// For each component a dataset of what it is in the elements.
Result<Element> datasets_of(std::vector<Element> elements, const ComponentTypes& dtypes,
                            const ComponentShapes& shapes) {
  Element out;
  for (size_t c = 0; c < dtypes.size(); ++c) {
    auto column = std::make_shared<std::vector<Element>>();
    for (Element& element : elements) {
      if (element.size() != dtypes.size())
        return invalid_argument("an element of {} components, where {} are expected", element.size(), dtypes.size());
      column->push_back({std::move(element[c])});
    }
    out.push_back(dataset_tensor({make_list_stage(std::move(column), {dtypes[c]}, {shapes[c]})}));
  }
  return out;
}

Result<GraphDataset> windows(const DatasetInputs& in) {
  TROUPE_ASSIGN(const StagePtr from, in.stage());
  TROUPE_ASSIGN(const int64_t size, in.integer(1, "size", 1));
  TROUPE_ASSIGN(const int64_t shift, in.integer(2, "shift", 1));
  TROUPE_ASSIGN(const int64_t stride, in.integer(3, "stride", 1));
  TROUPE_ASSIGN(const bool drop, in.boolean(4, "drop_remainder"));
  const auto gather = [dtypes = from->dtypes(), shapes = from->shapes()](std::vector<Element> elements) {
    return datasets_of(std::move(elements), dtypes, shapes);
  };
  return GraphDataset{make_window_stage(from, size, shift, stride, drop, gather, in.dtypes(), in.shapes())};
}

Result<GraphDataset> rebatched(const DatasetInputs& in) {
  TROUPE_ASSIGN(const StagePtr from, in.stage());
  TROUPE_ASSIGN(std::vector<int64_t> sizes, int_values(in.tensor(1), "batch_sizes"));
  TROUPE_ASSIGN(const bool drop, in.boolean(2, "drop_remainder"));
  if (sizes.empty() || std::ranges::min(sizes) < 1)
    return invalid_argument("batch_sizes must be at least 1, got {}", in.tensor(1).str());
  return GraphDataset{make_rebatch_stage(from, std::move(sizes), drop, in.dtypes(), in.shapes())};
}

/// Rows of one rank as a sparse tensor, as SerializeSparse gives it to lists. `row`: what each may take at most; -1: as
/// much as the largest.
Result<Element> sparse_rows(const std::vector<Element>& rows, const std::vector<int64_t>& row) {
  std::vector<int64_t> sizes = {std::ssize(rows)};
  sizes.insert(sizes.end(), row.begin(), row.end());
  int64_t count = 0;
  for (const Element& element : rows) {
    if (element.size() != 1) return invalid_argument("elements must have one component, not {}", element.size());
    const Tensor& t = element[0];
    bool fits = t.rank() == std::ssize(row) && t.dtype() == rows[0][0].dtype();
    for (int d = 0; fits && d < t.rank(); ++d) {
      const auto at = static_cast<size_t>(d);
      fits = row[at] < 0 || t.dim(d) <= row[at];
      if (row[at] < 0) sizes[at + 1] = std::max(sizes[at + 1], t.dim(d));
    }
    if (!fits) return invalid_argument("element {} does not fit in row_shape [{}]", t.shape().str(), join(row));
    count += t.elements();
  }
  const auto rank = std::ssize(sizes);
  TROUPE_ASSIGN(const Shape form, Shape::make(std::vector<int64_t>{count, rank}));
  TROUPE_ASSIGN(Tensor indices, Tensor::make(DType::kInt64, form));
  TROUPE_ASSIGN(Tensor values, Tensor::make(rows[0][0].dtype(), Shape{count}));
  int64_t *place = indices.mutable_data<int64_t>(), at = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    const Tensor& t = rows[r][0];
    copy_elements(t.dtype(), t.raw(),
                  static_cast<char*>(values.mutable_raw()) + at * static_cast<int64_t>(size_of(t.dtype())),
                  t.elements());
    at += t.elements();
    for (int64_t i = 0; i < t.elements(); ++i, place += rank) {
      int64_t rest = i;
      for (int d = t.rank() - 1; d >= 0; --d) {
        place[d + 1] = rest % t.dim(d);
        rest /= t.dim(d);
      }
      place[0] = static_cast<int64_t>(r);
    }
  }
  const Tensor shape = Tensor::of<int64_t>(std::span<const int64_t>(sizes), Shape{rank});
  TROUPE_ASSIGN(Tensor out, Tensor::make(DType::kVariant, Shape{3}));
  TensorListRef* part = out.mutable_data<TensorListRef>();
  for (const Tensor& t : {indices, values, shape})
    *part++ = std::make_shared<TensorList>(TensorList{t.dtype(), PartialShape(t.shape()), -1, {t}});
  return Element{std::move(out)};
}

Result<GraphDataset> dense_to_sparse(const DatasetInputs& in) {
  TROUPE_ASSIGN(const StagePtr from, in.stage());
  TROUPE_ASSIGN(const int64_t size, in.integer(1, "batch_size", 1));
  TROUPE_ASSIGN(std::vector<int64_t> row, int_values(in.tensor(2), "row_shape"));
  const auto gather = [row = std::move(row)](const std::vector<Element>& rows) { return sparse_rows(rows, row); };
  return GraphDataset{make_window_stage(from, size, size, 1, false, gather, {DType::kVariant}, {PartialShape{3}})};
}

Result<MakeDataset> group_by_reducer(const KernelInit& init) {
  std::vector<std::shared_ptr<CarriedFunction>> functions;
  std::vector<int> begins = {1};
  for (const char* name : {"key_func", "init_func", "reduce_func", "finalize_func"}) {
    functions.push_back(std::make_shared<CarriedFunction>(init, name));
    const auto& captured = init.attr<ComponentTypes>(fmt::format("T{}_other_arguments", name));
    begins.push_back(begins.back() + static_cast<int>(captured.size()));
  }
  return MakeDataset([=](const DatasetInputs& in) -> Result<GraphDataset> {
    TROUPE_ASSIGN(const StagePtr from, in.stage());
    const auto bound = [&](size_t i) {
      return CarriedFunction::bind(functions[i], in.tensors(begins[i], begins[i + 1]));
    };
    return GraphDataset{make_reducer_stage(from, {bound(0), bound(1), bound(2), bound(3)}, in.dtypes(), in.shapes())};
  });
}

Result<MakeDataset> group_by_window(const KernelInit& init) {
  auto key = std::make_shared<CarriedFunction>(init, "key_func");
  auto reduce = std::make_shared<CarriedFunction>(init, "reduce_func");
  auto size = std::make_shared<CarriedFunction>(init, "window_size_func");
  const int of_key = 1 + static_cast<int>(init.attr<ComponentTypes>("Tkey_func_other_arguments").size());
  const int of_reduce = of_key + static_cast<int>(init.attr<ComponentTypes>("Treduce_func_other_arguments").size());
  return MakeDataset([=](const DatasetInputs& in) -> Result<GraphDataset> {
    TROUPE_ASSIGN(const StagePtr from, in.stage());
    GroupFns fns;
    fns.key = CarriedFunction::bind(key, in.tensors(1, of_key));
    fns.window_size = CarriedFunction::bind(size, in.tensors(of_reduce));
    fns.reduce = [by = CarriedFunction::bind_stage(reduce, in.tensors(of_key, of_reduce)), dtypes = from->dtypes(),
                  shapes = from->shapes()](const Pass& pass, Tensor of, std::vector<Element> elements) {
      auto list = std::make_shared<const std::vector<Element>>(std::move(elements));
      return by(pass, {std::move(of), dataset_tensor({make_list_stage(std::move(list), dtypes, shapes)})});
    };
    return GraphDataset{make_group_stage(from, std::move(fns), in.dtypes(), in.shapes())};
  });
}

}  // namespace

void register_data_group_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string padded =
      "Batches of batch_size elements on a new first axis. Each component is padded behind with its padding value to "
      "its padded shape, in which -1 is the largest size in the batch. Errors: an element of another rank, or larger.";
  add_dataset_op(ops, kernels, padded_op("PaddedBatchDataset").doc(padded), padded_batch(false), {"Toutput_types"});
  add_dataset_op(ops, kernels,
                 padded_op("PaddedBatchDatasetV2")
                     .input("drop_remainder: bool")
                     .attr("parallel_copy: bool = false")
                     .doc(padded + " parallel_copy makes no difference."),
                 padded_batch(true), {"Toutput_types"});
  add_dataset_op(ops, kernels,
                 OpDef("WindowDataset")
                     .input("input_dataset: variant")
                     .input("size: int64")
                     .input("shift: int64")
                     .input("stride: int64")
                     .input("drop_remainder: bool")
                     .doc("Windows of size elements, stride apart, each shift elements after the one before: for each "
                          "component a dataset of it. Those at the end may be smaller, unless drop_remainder."),
                 plan_dataset(windows));
  add_dataset_op(ops, kernels,
                 OpDef("UnbatchDataset")
                     .input("input_dataset: variant")
                     .doc("Row i of each component of each element. Errors: scalars; components of other numbers of "
                          "rows."),
                 plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
                   TROUPE_ASSIGN(const StagePtr from, in.stage());
                   return GraphDataset{make_unbatch_stage(from, in.dtypes(), in.shapes())};
                 }));
  add_dataset_op(ops, kernels,
                 OpDef("RebatchDatasetV2")
                     .input("input_dataset: variant")
                     .input("batch_sizes: int64")
                     .input("drop_remainder: bool")
                     .doc("The rows of the elements in batches of batch_sizes, one size after another and again from "
                          "the first on; a smaller last one unless drop_remainder. Error: a size below 1."),
                 plan_dataset(rebatched), {.metadata = false});
  add_dataset_op(ops, kernels,
                 OpDef("DenseToSparseBatchDataset")
                     .input("input_dataset: variant")
                     .input("batch_size: int64")
                     .input("row_shape: int64")
                     .doc("Batches of batch_size elements of one component as sparse tensors, packed as "
                          "SerializeSparse packs them. row_shape is the most that an element may take; -1 as much as "
                          "the largest in the batch. Error: an element of another rank, or larger."),
                 plan_dataset(dense_to_sparse), {.metadata = false});
  OpDef reducer = OpDef("GroupByReducerDataset").input("input_dataset: variant");
  for (const char* name : {"key_func", "init_func", "reduce_func", "finalize_func"})
    reducer.input(fmt::format("{0}_other_arguments: T{0}_other_arguments", name))
        .attr(fmt::format("{}: string", name))
        .attr(fmt::format("T{}_other_arguments: list(type) >= 0", name));
  reducer.doc(
      "For each key, by keys, what finalize_func gives of the state after the last element: init_func gives the first "
      "state of a key, which is an int64 scalar of key_func, and reduce_func the next one of a state and an element.");
  add_dataset_op(ops, kernels, std::move(reducer), group_by_reducer, {.metadata = false});
  OpDef group = OpDef("GroupByWindowDataset").input("input_dataset: variant");
  for (const char* name : {"key_func", "reduce_func", "window_size_func"})
    group.input(fmt::format("{0}_other_arguments: T{0}_other_arguments", name))
        .attr(fmt::format("{}: string", name))
        .attr(fmt::format("T{}_other_arguments: list(type) >= 0", name));
  group.doc(
      "The elements of the datasets that reduce_func gives of a key and a dataset of elements with this key by "
      "key_func: as many as window_size_func gives of the key, and at the end, by keys, of those that are left. "
      "Keys are int64.");
  add_dataset_op(ops, kernels, std::move(group), group_by_window);
}

}  // namespace troupe
