// SPDX-License-Identifier: Apache-2.0
// tf.SequenceExample records to tensors: ParseSequenceExampleV2 of a batch or of one, ParseSingleSequenceExample. Such
// a record has features of the whole, its context, and lists of features, one for each step of a sequence.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "ops/input/example_features.h"
#include "ops/input/register.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

using Types = std::vector<DType>;
using Shapes = std::vector<PartialShape>;

/// The types and shapes of features by kind; the second version alone has ragged ones.
struct Kinds {
  Types context_sparse, context_dense, context_ragged, context_splits;
  Types list_sparse, list_dense, list_ragged, list_splits;
  Shapes context_shapes, list_shapes;

  explicit Kinds(const Attrs& a)
      : context_sparse(a.get_or("context_sparse_types", Types())), context_dense(a.get_or("Tcontext_dense", Types())),
        context_ragged(a.get_or("context_ragged_value_types", Types())),
        context_splits(a.get_or("context_ragged_split_types", Types())),
        list_sparse(a.get_or("feature_list_sparse_types", Types())),
        list_dense(a.get_or("feature_list_dense_types", Types())),
        list_ragged(a.get_or("feature_list_ragged_value_types", Types())),
        list_splits(a.get_or("feature_list_ragged_split_types", Types())),
        context_shapes(a.get_or("context_dense_shapes", Shapes())),
        list_shapes(a.get_or("feature_list_dense_shapes", Shapes())) {}

  /// Errors: counts that do not agree, shapes of dense features that are not known.
  Status check(const Attrs& a) const {
    const std::pair<const char*, size_t> counts[] = {{"Ncontext_sparse", context_sparse.size()},
                                                     {"Ncontext_dense", context_dense.size()},
                                                     {"Nfeature_list_sparse", list_sparse.size()},
                                                     {"Nfeature_list_dense", list_dense.size()}};
    for (const auto& [name, types] : counts)
      if (const auto* n = a.get<int64_t>(name); n && *n != static_cast<int64_t>(types))
        return invalid_argument("{} = {} for {} types", name, *n, types);
    if (context_shapes.size() != context_dense.size() || list_shapes.size() != list_dense.size())
      return invalid_argument("{} and {} shapes for {} and {} dense types", context_shapes.size(), list_shapes.size(),
                              context_dense.size(), list_dense.size());
    if (context_splits.size() != context_ragged.size() || list_splits.size() != list_ragged.size())
      return invalid_argument("{} and {} types of splits for {} and {} of ragged values", context_splits.size(),
                              list_splits.size(), context_ragged.size(), list_ragged.size());
    for (const Shapes* shapes : {&context_shapes, &list_shapes})
      for (const PartialShape& s : *shapes)
        if (!s.fully_known() || s.rank() > kMaxRank - 2)
          return invalid_argument("shape {} of a dense feature is not known, or of too many dimensions", s.str());
    return {};
  }
};

struct SequenceRecord {
  proto::SequenceExample message;
  std::unordered_map<std::string_view, const proto::Feature*> context;
  std::unordered_map<std::string_view, const proto::FeatureList*> lists;

  Status parse(const std::string& bytes, size_t i) {
    if (!message.ParseFromString(bytes))
      return invalid_argument("record {}: {} bytes are not a tf.SequenceExample", i, bytes.size());
    for (const proto::FeatureEntry& e : message.context().feature())
      if (e.value().kind_case() != proto::Feature::KIND_NOT_SET) context[e.key()] = &e.value();
    for (const proto::FeatureListEntry& e : message.feature_lists().feature_list()) lists[e.key()] = &e.value();
    return {};
  }
};

Error wrong_type(size_t record, const char* what, const std::string& key, const proto::Feature& f, DType wanted) {
  return invalid_argument("record {}: {} '{}' is {}, not {}", record, what, key, to_string(dtype_of_feature(f)),
                          to_string(wanted));
}

/// A kind of features over all records: for each record its steps, one for a feature of the context. Null: nothing.
struct FeatureColumn {
  std::string key;
  DType dtype;
  std::vector<std::vector<const proto::Feature*>> records;

  static Result<FeatureColumn> context(const std::vector<SequenceRecord>& all, const std::string& key, DType dtype) {
    FeatureColumn out{key, dtype, {}};
    for (size_t i = 0; i < all.size(); ++i) {
      const auto found = all[i].context.find(key);
      const proto::Feature* f = found == all[i].context.end() ? nullptr : found->second;
      if (f && dtype_of_feature(*f) != dtype) return wrong_type(i, "context feature", key, *f, dtype);
      out.records.push_back({f});
    }
    return out;
  }
  /// Errors: with `dense` also a record without the list, unless it `may_miss`.
  static Result<FeatureColumn> list(const std::vector<SequenceRecord>& all, const std::string& key, DType dtype,
                                    bool dense, bool may_miss) {
    FeatureColumn out{key, dtype, {}};
    for (size_t i = 0; i < all.size(); ++i) {
      auto& steps = out.records.emplace_back();
      const auto found = all[i].lists.find(key);
      if (found == all[i].lists.end()) {
        if (dense && !may_miss)
          return invalid_argument("record {}: feature list '{}' is required but not there", i, key);
        continue;
      }
      for (const proto::Feature& f : found->second->feature()) {
        const bool none = f.kind_case() == proto::Feature::KIND_NOT_SET;
        if (dtype_of_feature(f) != dtype && !(none && !dense)) return wrong_type(i, "feature list", key, f, dtype);
        steps.push_back(none ? nullptr : &f);
      }
    }
    return out;
  }

  static int64_t count(const proto::Feature* f) { return f ? count_of(*f) : 0; }

  /// All values, one after the other.
  Result<Tensor> values(const KernelContext& c) const {
    int64_t total = 0;
    for (const auto& steps : records)
      for (const proto::Feature* f : steps) total += count(f);
    TROUPE_ASSIGN(Tensor out, c.allocate(dtype, Shape{total}));
    int64_t at = 0;
    for (const auto& steps : records)
      for (const proto::Feature* f : steps) {
        if (count(f) > 0) copy_values(*f, out, at);
        at += count(f);
      }
    return out;
  }
};

/// A vector of numbers as integers of this type.
Result<Tensor> numbers_from(const KernelContext& c, const std::vector<int64_t>& numbers, DType dtype) {
  TROUPE_ASSIGN(Tensor out, c.allocate(dtype, Shape{static_cast<int64_t>(numbers.size())}));
  with_type(dtype, IndexTypes{}, [&]<class I>() {
    std::ranges::transform(numbers, out.mutable_data<I>(), [](int64_t n) { return static_cast<I>(n); });
  });
  return out;
}

/// Sets outputs one after the other, as many groups as there are features of a kind.
class SequenceOutputs {
 public:
  SequenceOutputs(KernelContext& c, bool batched, bool is_list) : c_(c), batched_(batched), is_list_(is_list) {}

  /// i, i + n and i + 2n: a sparse tensor by record (of a batch), step (of a list) and place.
  Status sparse(const FeatureColumn& column, int i, int n) const {
    TROUPE_ASSIGN(Tensor values, column.values(c_));
    const int64_t rank = 1 + int64_t{is_list_} + int64_t{batched_};
    TROUPE_ASSIGN(Tensor indices, c_.allocate(DType::kInt64, Shape{values.elements(), rank}));
    int64_t *to = indices.mutable_data<int64_t>(), steps = 0, most = 0;
    for (size_t r = 0; r < column.records.size(); ++r) {
      steps = std::max(steps, static_cast<int64_t>(column.records[r].size()));
      for (size_t step = 0; step < column.records[r].size(); ++step) {
        const int64_t n_here = FeatureColumn::count(column.records[r][step]);
        most = std::max(most, n_here);
        for (int64_t k = 0; k < n_here; ++k) {
          if (batched_) *to++ = static_cast<int64_t>(r);
          if (is_list_) *to++ = static_cast<int64_t>(step);
          *to++ = k;
        }
      }
    }
    std::vector<int64_t> shape;
    if (batched_) shape.push_back(static_cast<int64_t>(column.records.size()));
    if (is_list_) shape.push_back(steps);
    shape.push_back(most);
    c_.set_output(i, std::move(indices));
    c_.set_output(i + n, std::move(values));
    c_.set_output(i + 2 * n, Tensor::of<int64_t>(std::span<const int64_t>(shape)));
    return {};
  }

  /// i and `splits`: all values, and where those of each record begin; for a list instead the steps of each record,
  /// and at `inner` the values of each step. Of a single record there are no splits by record.
  Status ragged(const FeatureColumn& column, int i, int splits, int inner, DType type) const {
    TROUPE_ASSIGN(Tensor values, column.values(c_));
    std::vector<int64_t> by_record = {0}, by_step = {0};
    for (const auto& steps : column.records) {
      for (const proto::Feature* f : steps) by_step.push_back(by_step.back() + FeatureColumn::count(f));
      by_record.push_back(is_list_ ? static_cast<int64_t>(by_step.size()) - 1 : by_step.back());
    }
    TROUPE_ASSIGN(Tensor outer,
                  batched_ ? numbers_from(c_, by_record, type) : Tensor::zeros(type, Shape{}, c_.device().allocator));
    c_.set_output(i, std::move(values));
    c_.set_output(splits, std::move(outer));
    if (!is_list_) return {};
    TROUPE_ASSIGN(Tensor steps, numbers_from(c_, by_step, type));
    c_.set_output(inner, std::move(steps));
    return {};
  }

  /// i: [records (of a batch), ...shape]; a record without the feature gets the default.
  Status dense(const FeatureColumn& column, int i, const Shape& shape, const Tensor& otherwise) const {
    if (otherwise.elements() > 0 && otherwise.shape() != shape)
      return invalid_argument("the default of context feature '{}' has shape {}, the feature {}", column.key,
                              otherwise.shape().str(), shape.str());
    TROUPE_ASSIGN(const Shape all, whole(column, {}, shape));
    TROUPE_ASSIGN(Tensor y, c_.allocate(column.dtype, all));
    const int64_t each = shape.elements();
    for (size_t r = 0; r < column.records.size(); ++r) {
      const proto::Feature* f = column.records[r][0];
      const int64_t at = static_cast<int64_t>(r) * each;
      if (f) {
        TROUPE_RETURN_IF_ERROR(fits(column, r, f, shape));
        copy_values(*f, y, at);
      } else if (otherwise.elements() == 0) {
        return invalid_argument("record {}: context feature '{}' is required but not there", r, column.key);
      } else {
        with_storage(column.dtype, [&]<class S>() {
          std::copy_n(static_cast<const S*>(otherwise.raw()), each, static_cast<S*>(y.mutable_raw()) + at);
        });
      }
    }
    c_.set_output(i, std::move(y));
    return {};
  }

  /// i: [records (of a batch), steps, ...shape], zeros where a record has fewer; `lengths`, where not negative: how
  /// many each has.
  Status dense_list(const FeatureColumn& column, int i, int lengths, const Shape& shape) const {
    std::vector<int64_t> counts;
    for (const auto& steps : column.records) counts.push_back(static_cast<int64_t>(steps.size()));
    const int64_t most = counts.empty() ? 0 : *std::ranges::max_element(counts), each = shape.elements();
    TROUPE_ASSIGN(const Shape all, whole(column, most, shape));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(column.dtype, all, c_.device().allocator));
    for (size_t r = 0; r < column.records.size(); ++r)
      for (size_t step = 0; step < column.records[r].size(); ++step) {
        const proto::Feature* f = column.records[r][step];
        TROUPE_RETURN_IF_ERROR(fits(column, r, f, shape));
        copy_values(*f, y, (static_cast<int64_t>(r) * most + static_cast<int64_t>(step)) * each);
      }
    c_.set_output(i, std::move(y));
    if (lengths < 0) return {};
    TROUPE_ASSIGN(Tensor n, numbers_from(c_, counts, DType::kInt64));
    if (!batched_) {
      TROUPE_ASSIGN(n, n.reshape(Shape{}));
    }
    c_.set_output(lengths, std::move(n));
    return {};
  }

 private:
  static Status fits(const FeatureColumn& column, size_t record, const proto::Feature* f, const Shape& shape) {
    if (FeatureColumn::count(f) == shape.elements()) return {};
    return invalid_argument("record {}: '{}' has {} values, its shape is {}", record, column.key,
                            FeatureColumn::count(f), shape.str());
  }
  Result<Shape> whole(const FeatureColumn& column, std::optional<int64_t> steps, const Shape& shape) const {
    std::vector<int64_t> sizes;
    if (batched_) sizes.push_back(static_cast<int64_t>(column.records.size()));
    if (steps) sizes.push_back(*steps);
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    return Shape::make(sizes);
  }

  KernelContext& c_;
  const bool batched_, is_list_;
};

class ParseSequence final : public ComputeKernel {
 public:
  explicit ParseSequence(const KernelInit& init)
      : attrs_(*init.attrs), kinds_(*init.attrs), v2_(init.op == "ParseSequenceExampleV2") {}

  Status compute(KernelContext& c) override {
    TROUPE_RETURN_IF_ERROR(kinds_.check(attrs_));
    const Tensor& serialized = c.input(0);
    const bool batched = serialized.rank() == 1;
    if (serialized.rank() > 1 || (batched && !v2_))
      return invalid_argument("serialized must be a scalar{}, not {}", v2_ ? " or a vector" : "",
                              serialized.shape().str());
    std::vector<SequenceRecord> records(static_cast<size_t>(serialized.elements()));
    for (size_t i = 0; i < records.size(); ++i)
      TROUPE_RETURN_IF_ERROR(records[i].parse(serialized.data<std::string>()[i], i));
    int next = 2;
    const Types* types[] = {&kinds_.context_sparse, &kinds_.context_dense, &kinds_.context_ragged,
                            &kinds_.list_sparse,    &kinds_.list_dense,    &kinds_.list_ragged};
    std::vector<std::string> keys[6];
    for (int kind = 0; kind < 6; ++kind) {
      if (!v2_ && kind % 3 == 2) continue;
      TROUPE_ASSIGN(keys[kind], read_keys(c, types[kind]->size(), next));
    }
    const int defaults = v2_ ? next + 1 : next;
    // Which lists of dense features may be missing: a flag for each, or a list of their keys.
    std::vector<bool> may_miss;
    for (size_t i = 0; i < keys[4].size(); ++i) {
      if (v2_ && c.input(next).elements() != static_cast<int64_t>(keys[4].size()))
        return invalid_argument("feature_list_dense_missing_assumed_empty has {} values for {} lists",
                                c.input(next).elements(), keys[4].size());
      may_miss.push_back(v2_ ? c.input(next).data<bool>()[i]
                             : std::ranges::count(c.input(1).values<std::string>(), keys[4][i]) > 0);
    }
    return set_outputs(c, records, keys, may_miss, defaults, batched);
  }

 private:
  /// A vector of keys or, in the first version, as many scalars, from input `next` on.
  Result<std::vector<std::string>> read_keys(const KernelContext& c, size_t count, int& next) const {
    std::vector<std::string> out;
    for (size_t inputs = v2_ ? 1 : count; inputs > 0; --inputs, ++next)
      for (const std::string& s : c.input(next).values<std::string>()) out.push_back(s);
    if (out.size() != count) return invalid_argument("{} keys for {} types", out.size(), count);
    return out;
  }

  Status set_outputs(KernelContext& c, const std::vector<SequenceRecord>& records,
                     const std::vector<std::string> (&keys)[6], const std::vector<bool>& may_miss, int defaults,
                     bool batched) const {
    const auto n = [](const Types& t) { return static_cast<int>(t.size()); };
    const SequenceOutputs context(c, batched, false), list(c, batched, true);
    int at = 0;
    for (int i = 0; i < n(kinds_.context_sparse); ++i) {
      TROUPE_ASSIGN(const FeatureColumn column, FeatureColumn::context(records, keys[0][i], kinds_.context_sparse[i]));
      TROUPE_RETURN_IF_ERROR(context.sparse(column, at + i, n(kinds_.context_sparse)));
    }
    at += 3 * n(kinds_.context_sparse);
    for (int i = 0; i < n(kinds_.context_dense); ++i, ++at) {
      TROUPE_ASSIGN(const FeatureColumn column, FeatureColumn::context(records, keys[1][i], kinds_.context_dense[i]));
      TROUPE_RETURN_IF_ERROR(context.dense(column, at, kinds_.context_shapes[i].shape(), c.input(defaults + i)));
    }
    for (int i = 0, m = n(kinds_.context_ragged); i < m; ++i) {
      TROUPE_ASSIGN(const FeatureColumn column, FeatureColumn::context(records, keys[2][i], kinds_.context_ragged[i]));
      TROUPE_RETURN_IF_ERROR(context.ragged(column, at + i, at + m + i, -1, kinds_.context_splits[i]));
    }
    at += 2 * n(kinds_.context_ragged);
    for (int i = 0; i < n(kinds_.list_sparse); ++i) {
      TROUPE_ASSIGN(const FeatureColumn column,
                    FeatureColumn::list(records, keys[3][i], kinds_.list_sparse[i], false, true));
      TROUPE_RETURN_IF_ERROR(list.sparse(column, at + i, n(kinds_.list_sparse)));
    }
    at += 3 * n(kinds_.list_sparse);
    for (int i = 0, m = n(kinds_.list_dense); i < m; ++i) {
      TROUPE_ASSIGN(const FeatureColumn column,
                    FeatureColumn::list(records, keys[4][i], kinds_.list_dense[i], true, may_miss[i]));
      TROUPE_RETURN_IF_ERROR(list.dense_list(column, at + i, v2_ ? at + m + i : -1, kinds_.list_shapes[i].shape()));
    }
    at += (v2_ ? 2 : 1) * n(kinds_.list_dense);
    for (int i = 0, m = n(kinds_.list_ragged); i < m; ++i) {
      TROUPE_ASSIGN(const FeatureColumn column,
                    FeatureColumn::list(records, keys[5][i], kinds_.list_ragged[i], false, true));
      TROUPE_RETURN_IF_ERROR(list.ragged(column, at + i, at + m + i, at + 2 * m + i, kinds_.list_splits[i]));
    }
    return {};
  }

  const Attrs attrs_;
  const Kinds kinds_;
  const bool v2_;
};

Status parse_sequence_shape(ShapeContext& c) {
  const Kinds k(c.attrs());
  TROUPE_RETURN_IF_ERROR(k.check(c.attrs()));
  const bool v2 = c.attrs().has("context_ragged_value_types");
  const PartialShape& serialized = c.input(0);
  if (serialized.has_rank() && serialized.rank() > (v2 ? 1 : 0))
    return invalid_argument("serialized must be a scalar{}, not {}", v2 ? " or a vector" : "", serialized.str());
  if (!serialized.has_rank() && v2) return {};
  const bool batched = serialized.has_rank() && serialized.rank() == 1;
  const int64_t n = batched ? serialized[0] : 1;
  PartialShape records = PartialShape::scalar(), splits = PartialShape::scalar();
  if (batched) {
    records.push_back(n);
    splits.push_back(n < 0 ? -1 : n + 1);
  }
  int at = 0;
  const auto sparse = [&](size_t count, int64_t axes) {
    const auto m = static_cast<int>(count);
    for (int i = at; i < at + m; ++i) {
      c.set_output(i, {-1, axes});
      c.set_output(i + m, {-1});
      c.set_output(i + 2 * m, {axes});
    }
    at += 3 * m;
  };
  const auto each = [&](size_t count, const PartialShape& shape) {
    for (size_t i = 0; i < count; ++i) c.set_output(at++, shape);
  };
  const auto dense = [&](const Shapes& shapes, bool is_list) {
    for (const PartialShape& s : shapes) {
      PartialShape shape = records;
      if (is_list) shape.push_back(-1);
      for (int64_t d : s.dims()) shape.push_back(d);
      c.set_output(at++, std::move(shape));
    }
  };
  sparse(k.context_sparse.size(), batched ? 2 : 1);
  dense(k.context_shapes, false);
  each(k.context_ragged.size(), {-1});
  each(k.context_ragged.size(), splits);
  sparse(k.list_sparse.size(), batched ? 3 : 2);
  dense(k.list_shapes, true);
  if (v2) each(k.list_dense.size(), records);
  each(k.list_ragged.size(), {-1});
  each(k.list_ragged.size(), splits);
  each(k.list_ragged.size(), {-1});
  return {};
}

const char* const kDenseTypes = ": list({float32, int64, string}) >= 0 = []";

/// Outputs and attributes of context features or of lists.
void add_features(OpDef& op, const std::string& kind, bool v2) {
  const bool context = kind == "context";
  const std::string dense = context ? "Tcontext_dense" : "feature_list_dense_types";
  op.output(fmt::format("{}_sparse_indices: N{}_sparse * int64", kind, kind));
  op.output(fmt::format("{}_sparse_values: {}_sparse_types", kind, kind));
  op.output(fmt::format("{}_sparse_shapes: N{}_sparse * int64", kind, kind));
  op.output(fmt::format("{}_dense_values: {}", kind, dense));
  op.attr(fmt::format("N{}_sparse: int >= 0 = 0", kind)).attr(fmt::format("{}_sparse_types{}", kind, kDenseTypes));
  if (!v2 || !context) op.attr(fmt::format("N{}_dense: int >= 0 = 0", kind));
  op.attr(dense + kDenseTypes).attr(fmt::format("{}_dense_shapes: list(shape) >= 0 = []", kind));
  if (!v2) return;
  if (!context) op.output("feature_list_dense_lengths: Nfeature_list_dense * int64");
  op.output(fmt::format("{}_ragged_values: {}_ragged_value_types", kind, kind));
  for (const char* splits : context ? std::vector{"row"} : std::vector{"outer", "inner"})
    op.output(fmt::format("{}_ragged_{}_splits: {}_ragged_split_types", kind, splits, kind));
  op.attr(fmt::format("{}_ragged_value_types{}", kind, kDenseTypes));
  op.attr(fmt::format("{}_ragged_split_types: list({{int32, int64}}) >= 0 = []", kind));
}

}  // namespace

void register_parse_sequence_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string what =
      "of its context and, for each step, those of its lists. Sparse features give all their values, dense ones have a "
      "shape in the record or in every step. A dense feature of the context that is not there gets the default, which "
      "is "
      "an error when it is empty; a dense list that is not there is an error unless it may be missing.";
  OpDef single("ParseSingleSequenceExample");
  single.input("serialized: string").input("feature_list_dense_missing_assumed_empty: string");
  for (const char* kind : {"context_sparse", "context_dense", "feature_list_sparse", "feature_list_dense"})
    single.input(fmt::format("{}_keys: N{} * string", kind, kind));
  single.input("context_dense_defaults: Tcontext_dense").input("debug_name: string");
  OpDef v2("ParseSequenceExampleV2");
  v2.input("serialized: string").input("debug_name: string");
  for (const char* kind : {"context", "feature_list"})
    for (const char* form : {"sparse", "dense", "ragged"}) v2.input(fmt::format("{}_{}_keys: string", kind, form));
  v2.input("feature_list_dense_missing_assumed_empty: bool").input("context_dense_defaults: Tcontext_dense");
  for (const char* kind : {"context", "feature_list"}) {
    add_features(single, kind, false);
    add_features(v2, kind, true);
  }
  const char* reason = "records are strings";
  ops.add(single.shape(parse_sequence_shape).doc("The features of one tf.SequenceExample record: those " + what),
          not_differentiable(reason));
  ops.add(
      v2.shape(parse_sequence_shape)
          .doc("The features of a batch of tf.SequenceExample records, or of one, a scalar: for each those " + what +
               " Zeros fill up dense lists of fewer steps; ragged features give values and where those of each "
               "record and step begin."),
      not_differentiable(reason));
  for (const char* op : {"ParseSingleSequenceExample", "ParseSequenceExampleV2"})
    kernels.add<ParseSequence>(op, DeviceKind::kCpu, {});
}

}  // namespace troupe
