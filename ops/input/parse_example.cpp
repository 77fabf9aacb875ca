// SPDX-License-Identifier: Apache-2.0
// tf.Example records to tensors: ParseExample, ParseExampleV2, ParseSingleExample.
#include <algorithm>
#include <unordered_map>

#include "ops/input/example_features.h"
#include "ops/input/register.h"
#include "ops/parts/type_dispatch.h"
#include "ops/text/string_numbers.h"

namespace troupe {
namespace {

struct DenseFeature {
  std::string key;
  DType dtype;
  PartialShape shape;  // of one example; the first size may be unknown
  Tensor otherwise;    // for examples without the feature; empty: they are errors

  bool varies() const { return shape.rank() > 0 && shape[0] < 0; }
  /// Values in one step of the first dimension where that varies, else all.
  int64_t stride() const {
    int64_t n = 1;
    for (int d = varies() ? 1 : 0; d < shape.rank(); ++d) n *= shape[d];
    return n;
  }
};

struct Sparse {
  std::string key;
  DType dtype;
};

/// The features of one record by name.
using Features = std::unordered_map<std::string_view, const proto::Feature*>;

/// Records parsed, and the tensors made from them.
class Batch {
 public:
  Status parse(std::span<const std::string> serialized) {
    examples_.resize(serialized.size());
    features_.resize(serialized.size());
    for (size_t i = 0; i < serialized.size(); ++i) {
      if (!examples_[i].ParseFromString(serialized[i]))
        return invalid_argument("record {}: {} bytes are not a tf.Example", i, serialized[i].size());
      for (const proto::FeatureEntry& e : examples_[i].features().feature())
        if (e.value().kind_case() != proto::Feature::KIND_NOT_SET) features_[i][e.key()] = &e.value();
    }
    return {};
  }
  int64_t size() const { return static_cast<int64_t>(examples_.size()); }

  /// The feature of each record, nullptr where it is not there. Error: it has another type somewhere.
  Result<std::vector<const proto::Feature*>> column(const std::string& key, DType dtype) const {
    std::vector<const proto::Feature*> out;
    for (size_t i = 0; i < features_.size(); ++i) {
      const auto at = features_[i].find(key);
      out.push_back(at == features_[i].end() ? nullptr : at->second);
      if (out.back() && dtype_of_feature(*out.back()) != dtype)
        return invalid_argument("record {}: feature '{}' is {}, not {}", i, key,
                                to_string(dtype_of_feature(*out.back())), to_string(dtype));
    }
    return out;
  }

  /// All values of a feature, one record after the other, and how many each has.
  Status gather(const KernelContext& c, const Sparse& feature, Tensor& values, std::vector<int64_t>& counts) const {
    TROUPE_ASSIGN(const auto column, this->column(feature.key, feature.dtype));
    int64_t total = 0;
    for (const proto::Feature* f : column) total += counts.emplace_back(f ? count_of(*f) : 0);
    TROUPE_ASSIGN(values, c.allocate(feature.dtype, Shape{total}));
    int64_t at = 0;
    for (size_t i = 0; i < column.size(); ++i) {
      if (column[i]) copy_values(*column[i], values, at);
      at += counts[i];
    }
    return {};
  }

  /// The feature of all records as [n, ...shape].
  Result<Tensor> dense(const KernelContext& c, const DenseFeature& d) const {
    TROUPE_ASSIGN(const auto column, this->column(d.key, d.dtype));
    const int64_t stride = d.stride();
    int64_t steps = 1;
    if (d.varies()) {
      steps = 0;
      for (const proto::Feature* f : column)
        if (f && stride > 0) steps = std::max(steps, count_of(*f) / stride);
    }
    std::vector<int64_t> sizes = {size()};
    for (int i = 0; i < d.shape.rank(); ++i) sizes.push_back(i == 0 && d.varies() ? steps : d.shape[i]);
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor out, c.allocate(d.dtype, shape));
    const int64_t each = steps * stride;
    for (size_t i = 0; i < column.size(); ++i)
      TROUPE_RETURN_IF_ERROR(set_row(d, column[i], static_cast<int64_t>(i), each, stride, out));
    return out;
  }

 private:
  static Status set_row(const DenseFeature& d, const proto::Feature* f, int64_t row, int64_t each, int64_t stride,
                        Tensor& out) {
    const int64_t n = f ? count_of(*f) : 0, given = d.otherwise.elements();
    if (!d.varies() && !f && given == 0)
      return invalid_argument("record {}: feature '{}' is required but not there", row, d.key);
    if (f && (d.varies() ? stride == 0 || n % stride != 0 : n != each))
      return invalid_argument("record {}: feature '{}' has {} values, its shape is {}", row, d.key, n, d.shape.str());
    if (f) copy_values(*f, out, row * each);
    with_type(d.dtype, TypeList<float, int64_t, std::string>{}, [&]<class T>() {
      T* to = out.mutable_data<T>() + row * each;
      if (d.varies()) std::fill(to + n, to + each, given ? d.otherwise.data<T>()[0] : T());
      else if (!f) std::copy_n(d.otherwise.data<T>(), each, to);
    });
    return {};
  }

  std::vector<proto::Example> examples_;
  std::vector<Features> features_;
};

/// What the three ops share: the types and shapes of features.
class ParseKernel : public ComputeKernel {
 public:
  explicit ParseKernel(const KernelInit& init)
      : sparse_types_(init.attr<std::vector<DType>>("sparse_types")),
        dense_types_(init.attr<std::vector<DType>>("Tdense")),
        dense_shapes_(init.attr<std::vector<PartialShape>>("dense_shapes")) {}

 protected:
  Result<DenseFeature> dense_feature(size_t i, std::string key, const Tensor& otherwise) const {
    DenseFeature d{std::move(key), dense_types_[i], dense_shapes_[i], otherwise};
    bool known = d.shape.has_rank() && d.shape.rank() < kMaxRank;
    std::vector<int64_t> sizes = {1};
    for (int k = 0; known && k < d.shape.rank(); ++k) {
      known = k == 0 || d.shape[k] >= 0;
      sizes.push_back(k == 0 && d.varies() ? 1 : d.shape[k]);
    }
    if (!known) return invalid_argument("dense feature '{}' has shape {}", d.key, d.shape.str());
    TROUPE_RETURN_IF_ERROR(Shape::make(sizes));  // so many elements can be counted
    const int64_t n = otherwise.elements();
    if (n > 0 && n != (d.varies() ? 1 : d.stride()))
      return invalid_argument("the default of dense feature '{}' has shape {}, the feature {}", d.key,
                              otherwise.shape().str(), d.shape.str());
    return d;
  }
  const std::vector<DType> sparse_types_, dense_types_;
  const std::vector<PartialShape> dense_shapes_;
};

/// One string of a vector of keys, or of scalars one after another.
struct Keys {
  std::vector<std::string> names;
  Status add(const Tensor& t) {
    if (t.dtype() != DType::kString) return invalid_argument("keys must be strings, not {}", t.str());
    for (const std::string& s : t.values<std::string>()) names.push_back(s);
    return {};
  }
  Status expect(const char* kind, size_t n) const {
    if (names.size() == n) return {};
    return invalid_argument("{} {} keys for {} types", names.size(), kind, n);
  }
};

/// Sets the three outputs of sparse feature i of `all`; of a single record without the dimension of records.
Status set_sparse(KernelContext& c, const Batch& batch, const Sparse& feature, int i, int all, bool single) {
  Tensor values;
  std::vector<int64_t> counts;
  TROUPE_RETURN_IF_ERROR(batch.gather(c, feature, values, counts));
  TROUPE_ASSIGN(Tensor indices, c.allocate(DType::kInt64, Shape{values.elements(), single ? 1 : 2}));
  int64_t *out = indices.mutable_data<int64_t>(), most = 0;
  for (size_t row = 0; row < counts.size(); ++row) {
    most = std::max(most, counts[row]);
    for (int64_t k = 0; k < counts[row]; ++k) {
      if (!single) *out++ = static_cast<int64_t>(row);
      *out++ = k;
    }
  }
  c.set_output(i, std::move(indices));
  c.set_output(all + i, std::move(values));
  c.set_output(2 * all + i, single ? Tensor::of<int64_t>({most}) : Tensor::of<int64_t>({batch.size(), most}));
  return {};
}

Status set_dense(KernelContext& c, const Batch& batch, const DenseFeature& d, int output, bool single) {
  TROUPE_ASSIGN(Tensor values, batch.dense(c, d));
  if (single) {
    Shape shape = values.shape();
    shape.erase(0);
    TROUPE_ASSIGN(values, values.reshape(shape));
  }
  c.set_output(output, std::move(values));
  return {};
}

class ParseBatch final : public ParseKernel {
 public:
  explicit ParseBatch(const KernelInit& init) : ParseKernel(init), v2_(init.op == "ParseExampleV2") {
    if (!v2_) return;
    ragged_types_ = init.attr<std::vector<DType>>("ragged_value_types");
    split_types_ = init.attr<std::vector<DType>>("ragged_split_types");
  }
  Status compute(KernelContext& c) override {
    const Tensor& serialized = c.input(0);
    if (serialized.rank() > 1 || (!v2_ && serialized.rank() == 0))
      return invalid_argument("serialized must be a vector, not {}", serialized.shape().str());
    const bool single = serialized.rank() == 0;
    Keys keys[3];  // sparse, dense, ragged
    int next = 2;
    for (int kind = 0; kind < (v2_ ? 3 : 2); ++kind) {
      const size_t tensors = v2_ ? 1 : kind == 0 ? sparse_types_.size() : dense_types_.size();
      for (size_t k = 0; k < tensors; ++k) TROUPE_RETURN_IF_ERROR(keys[kind].add(c.input(next++)));
    }
    TROUPE_RETURN_IF_ERROR(keys[0].expect("sparse", sparse_types_.size()));
    TROUPE_RETURN_IF_ERROR(keys[1].expect("dense", dense_types_.size()));
    TROUPE_RETURN_IF_ERROR(keys[2].expect("ragged", ragged_types_.size()));
    Batch batch;
    TROUPE_RETURN_IF_ERROR(batch.parse(serialized.values<std::string>()));
    const auto sparse = static_cast<int>(sparse_types_.size()), dense = static_cast<int>(dense_types_.size());
    for (int i = 0; i < sparse; ++i)
      TROUPE_RETURN_IF_ERROR(set_sparse(c, batch, {keys[0].names[i], sparse_types_[i]}, i, sparse, single));
    for (int i = 0; i < dense; ++i) {
      TROUPE_ASSIGN(const DenseFeature d, dense_feature(static_cast<size_t>(i), keys[1].names[i], c.input(next + i)));
      TROUPE_RETURN_IF_ERROR(set_dense(c, batch, d, 3 * sparse + i, single));
    }
    const auto ragged = static_cast<int>(ragged_types_.size()), first = 3 * sparse + dense;
    for (int i = 0; i < ragged; ++i)
      TROUPE_RETURN_IF_ERROR(
          set_ragged(c, batch, {keys[2].names[i], ragged_types_[i]}, split_types_[i], first + i, first + ragged + i));
    return {};
  }

 private:
  static Status set_ragged(KernelContext& c, const Batch& batch, const Sparse& feature, DType split_type, int value_at,
                           int split_at) {
    Tensor values;
    std::vector<int64_t> counts;
    TROUPE_RETURN_IF_ERROR(batch.gather(c, feature, values, counts));
    TROUPE_ASSIGN(Tensor splits, c.allocate(split_type, Shape{batch.size() + 1}));
    with_type(split_type, IndexTypes{}, [&]<class I>() {
      I* out = splits.mutable_data<I>();
      *out = 0;
      for (const int64_t n : counts) out[1] = static_cast<I>(out[0] + n), ++out;
    });
    c.set_output(value_at, std::move(values));
    c.set_output(split_at, std::move(splits));
    return {};
  }

  const bool v2_;
  std::vector<DType> ragged_types_, split_types_;
};

class ParseSingle final : public ParseKernel {
 public:
  explicit ParseSingle(const KernelInit& init)
      : ParseKernel(init), sparse_keys_(init.attr<std::vector<std::string>>("sparse_keys")),
        dense_keys_(init.attr<std::vector<std::string>>("dense_keys")) {}
  Status compute(KernelContext& c) override {
    if (c.input(0).rank() != 0)
      return invalid_argument("serialized must be a scalar, not {}", c.input(0).shape().str());
    Batch batch;
    TROUPE_RETURN_IF_ERROR(batch.parse(c.input(0).values<std::string>()));
    const auto sparse = static_cast<int>(sparse_types_.size());
    for (int i = 0; i < sparse; ++i)
      TROUPE_RETURN_IF_ERROR(set_sparse(c, batch, {sparse_keys_[i], sparse_types_[i]}, i, sparse, true));
    for (size_t i = 0; i < dense_types_.size(); ++i) {
      TROUPE_ASSIGN(const DenseFeature d, dense_feature(i, dense_keys_[i], c.input(static_cast<int>(i) + 1)));
      TROUPE_RETURN_IF_ERROR(set_dense(c, batch, d, 3 * sparse + static_cast<int>(i), true));
    }
    return {};
  }

 private:
  const std::vector<std::string> sparse_keys_, dense_keys_;
};

/// What one record gives where `serialized` is a scalar, else what a batch does.
Status parse_shape(ShapeContext& c) {
  const auto& types = c.attr<std::vector<DType>>("Tdense");
  const auto& shapes = c.attr<std::vector<PartialShape>>("dense_shapes");
  const auto sparse = static_cast<int>(c.attr<std::vector<DType>>("sparse_types").size());
  if (shapes.size() != types.size())
    return invalid_argument("{} dense_shapes for {} dense types", shapes.size(), types.size());
  for (const char* attr : {"Nsparse", "num_sparse", "Ndense"})
    if (const auto* n = c.attrs().get<int64_t>(attr);
        n && *n != (attr[1] == 'd' ? static_cast<int64_t>(types.size()) : sparse))
      return invalid_argument("{} = {} does not agree with the types", attr, *n);
  const bool known = c.input(0).has_rank(), single = known && c.input(0).rank() == 0;
  const int64_t n = c.input(0).rank() == 1 ? c.input(0)[0] : -1, axes = !known ? -1 : single ? 1 : 2;
  for (int i = 0; i < sparse; ++i) {
    c.set_output(i, {-1, axes});
    c.set_output(sparse + i, {-1});
    c.set_output(2 * sparse + i, {axes});
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!known || !shapes[i].has_rank() || shapes[i].rank() >= kMaxRank) continue;
    PartialShape shape = PartialShape::scalar();
    if (!single) shape.push_back(n);
    for (const int64_t d : shapes[i].dims()) shape.push_back(d);
    c.set_output(3 * sparse + static_cast<int>(i), shape);
  }
  if (const auto* ragged = c.attrs().get<std::vector<DType>>("ragged_value_types")) {
    const auto* splits = c.attrs().get<std::vector<DType>>("ragged_split_types");
    if (splits->size() != ragged->size())
      return invalid_argument("{} ragged_split_types for {} ragged_value_types", splits->size(), ragged->size());
    const int first = 3 * sparse + static_cast<int>(shapes.size());
    for (int i = 0; i < static_cast<int>(ragged->size()); ++i) {
      c.set_output(first + i, {-1});
      c.set_output(first + static_cast<int>(ragged->size()) + i, {n < 0 ? -1 : n + 1});
    }
  }
  return {};
}

}  // namespace

void register_parse_example_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const char* reason = "records are strings";
  const char* types = ": list({float32, int64, string}) >= 0";
  const auto sparse = [](OpDef& op, const char* number) {
    op.output(std::string("sparse_indices: ") + number + " * int64")
        .output("sparse_values: sparse_types")
        .output(std::string("sparse_shapes: ") + number + " * int64")
        .output("dense_values: Tdense");
  };
  const auto attrs = [&](OpDef& op) {
    op.attr(std::string("sparse_types") + types)
        .attr(std::string("Tdense") + types)
        .attr("dense_shapes: list(shape) >= 0");
  };
  const char* doc_end =
      " A sparse feature gives all its values as a sparse tensor. A dense one has a shape in every record, of which "
      "the "
      "first size may vary; a record without it gets the default, which is an error when it is empty.";
  OpDef v1("ParseExample");
  v1.input("serialized: string")
      .input("names: string")
      .input("sparse_keys: Nsparse * string")
      .input("dense_keys: Ndense * string")
      .input("dense_defaults: Tdense");
  sparse(v1, "Nsparse");
  v1.attr("Nsparse: int >= 0").attr("Ndense: int >= 0");
  attrs(v1);
  ops.add(v1.shape(parse_shape).doc(std::string("The features of a batch of tf.Example records.") + doc_end),
          not_differentiable(reason));
  kernels.add<ParseBatch>("ParseExample", DeviceKind::kCpu, {});

  OpDef v2("ParseExampleV2");
  v2.input("serialized: string")
      .input("names: string")
      .input("sparse_keys: string")
      .input("dense_keys: string")
      .input("ragged_keys: string")
      .input("dense_defaults: Tdense");
  sparse(v2, "num_sparse");
  v2.output("ragged_values: ragged_value_types").output("ragged_row_splits: ragged_split_types");
  v2.attr("num_sparse: int >= 0")
      .attr(std::string("ragged_value_types") + types)
      .attr("ragged_split_types: list({int32, int64}) >= 0");
  attrs(v2);
  ops.add(v2.shape(parse_shape)
              .doc(std::string("The features of a batch of tf.Example records, or of one, a scalar; ragged ones as "
                               "values and where each record's begin.") +
                   doc_end),
          not_differentiable(reason));
  kernels.add<ParseBatch>("ParseExampleV2", DeviceKind::kCpu, {});

  OpDef single("ParseSingleExample");
  single.input("serialized: string").input("dense_defaults: Tdense");
  sparse(single, "num_sparse");
  single.attr("num_sparse: int >= 0").attr("sparse_keys: list(string) >= 0").attr("dense_keys: list(string) >= 0");
  attrs(single);
  ops.add(
      single
          .shape([](ShapeContext& c) -> Status {
            if (c.attr<std::vector<std::string>>("sparse_keys").size() !=
                    c.attr<std::vector<DType>>("sparse_types").size() ||
                c.attr<std::vector<std::string>>("dense_keys").size() != c.attr<std::vector<DType>>("Tdense").size())
              return invalid_argument("there must be a key for each type");
            TROUPE_RETURN_IF_ERROR(c.with_rank(0, 0).status());
            return parse_shape(c);
          })
          .doc(std::string("The features of one tf.Example record.") + doc_end),
      not_differentiable(reason));
  kernels.add<ParseSingle>("ParseSingleExample", DeviceKind::kCpu, {});
}

}  // namespace troupe
