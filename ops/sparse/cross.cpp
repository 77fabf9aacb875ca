// SPDX-License-Identifier: Apache-2.0
// Crosses of the features of each row, as new features: SparseCross, SparseCrossV2, SparseCrossHashed.
#include <algorithm>
#include <iterator>

#include "ops/sparse/crosses.h"
#include "ops/sparse/input.h"
#include "ops/sparse/register.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

Result<CrossColumn> sparse_column(const SparseInput& x, int64_t rows) {
  if (x.shape.rank() != 2) return invalid_argument("a sparse input of shape {} must be a matrix", x.shape.str());
  if (x.shape[0] != rows) return invalid_argument("a sparse input has {} rows, the first input {}", x.shape[0], rows);
  CrossColumn out{CrossColumn::Kind::kSparse, x.values};
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
  return CrossColumn{CrossColumn::Kind::kDense, &x, {}, {}, x.dim(1)};
}

/// The rows that may have crosses, in order: no more than some input has values, whatever `rows` says.
std::vector<int64_t> crossed_rows(const std::vector<CrossColumn>& columns, int64_t rows) {
  std::vector<int64_t> out;
  const auto sparse = std::ranges::find(columns, CrossColumn::Kind::kSparse, &CrossColumn::kind);
  if (sparse != columns.end()) {
    std::ranges::unique_copy(sparse->rows, std::back_inserter(out));
  } else if (std::ranges::all_of(columns, [](const CrossColumn& c) { return c.width > 0; })) {
    for (int64_t r = 0; r < rows; ++r) out.push_back(r);
  }
  return out;
}

class SparseCross final : public ComputeKernel {
 public:
  explicit SparseCross(const KernelInit& init)
      : inputs_(static_cast<int>(init.attr<int64_t>("N"))), has_separator_(init.op == "SparseCrossV2"),
        salted_(init.op == "SparseCrossHashed"), settings_{init.attrs->get_or("num_buckets", int64_t{0}),
                                                           false,
                                                           {static_cast<uint64_t>(
                                                               init.attrs->get_or("hash_key", int64_t{0}))}},
        out_(init.output_dtypes[1]) {}

  Status compute(KernelContext& c) override {
    int64_t rows = 0;
    TROUPE_ASSIGN(const std::vector<CrossColumn> columns, read(c, rows));
    std::string separator = "_X_";
    if (has_separator_) {
      const Tensor& sep = c.input(c.num_inputs() - 1);
      if (sep.rank() != 0) return invalid_argument("sep must be a scalar, not {}", sep.shape().str());
      separator = *sep.data<std::string>();
    }
    TROUPE_ASSIGN(const Settings settings, salted_ ? read_settings(c) : settings_);
    const std::vector<int64_t> crossed = crossed_rows(columns, rows);
    std::vector<int64_t> counts;  // of crosses, by row of `crossed`
    int64_t total = 0, most = 0;
    for (const int64_t r : crossed) {
      const std::optional<int64_t> crosses = count_crosses(columns, r);
      if (!crosses || __builtin_add_overflow(total, *crosses, &total)) return too_many(r);
      counts.push_back(*crosses);
      most = std::max(most, *crosses);
    }
    TROUPE_ASSIGN(const Shape matrix, Shape::make(std::array{total, int64_t{2}}));
    TROUPE_ASSIGN(Tensor indices, c.allocate(DType::kInt64, matrix));
    TROUPE_ASSIGN(Tensor values, c.allocate(out_, Shape{total}));
    int64_t at = 0, *place = indices.mutable_data<int64_t>();
    for (size_t row = 0; row < crossed.size(); ++row) {
      if (counts[row] == 0) continue;
      int64_t i = 0;
      for_each_cross(columns, crossed[row], [&](const std::vector<int64_t>& chosen) {
        *place++ = crossed[row];
        *place++ = i++;
        if (out_ == DType::kInt64) values.mutable_data<int64_t>()[at++] = hashed(columns, chosen, settings);
        else values.mutable_data<std::string>()[at++] = cross_text(columns, chosen, separator);
      });
    }
    c.set_output(0, std::move(indices));
    c.set_output(1, std::move(values));
    c.set_output(2, Tensor::of<int64_t>({rows, most}));
    return {};
  }

 private:
  /// How crosses become numbers: from a key on, or the strings by a key of two numbers.
  struct Settings {
    int64_t buckets;
    bool strong;
    std::array<uint64_t, 2> key;
  };

  static Result<Settings> read_settings(const KernelContext& c) {
    const int at = c.num_inputs() - kSettings;
    TROUPE_ASSIGN(const int64_t buckets, int_scalar(c.input(at), "num_buckets"));
    const Tensor &strong = c.input(at + 1), &salt = c.input(at + 2);
    if (strong.rank() != 0) return invalid_argument("strong_hash must be a scalar, not {}", strong.shape().str());
    if (salt.elements() != 2) return invalid_argument("salt must be two numbers, not {}", salt.str());
    if (buckets < 0) return invalid_argument("num_buckets must be at least 0, not {}", buckets);
    const auto key = salt.values<int64_t>();
    return Settings{buckets, *strong.data<bool>(), {static_cast<uint64_t>(key[0]), static_cast<uint64_t>(key[1])}};
  }

  int64_t hashed(const std::vector<CrossColumn>& columns, const std::vector<int64_t>& chosen,
                 const Settings& settings) const {
    if (!salted_) return cross_bucket(columns, chosen, settings.key[0], settings.buckets);
    const auto hash = [&](std::string_view bytes) {
      return settings.strong ? sip_hash(bytes, settings.key[0], settings.key[1]) : farm_fingerprint(bytes);
    };
    uint64_t out = 0;
    for (size_t k = 0; k < columns.size(); ++k) {
      const uint64_t feature = hashed_feature(columns[k], chosen[k], settings.strong, hash);
      out = k == 0 ? feature : joined_fingerprints(out, feature);
    }
    return bucket_of(out, settings.buckets);
  }

  /// As TensorFlow has it: of numbers the lower four bytes are hashed, but those of dense inputs stay as they are where
  /// there is no key.
  template <class Hash>
  static uint64_t hashed_feature(const CrossColumn& column, int64_t i, bool strong, const Hash& hash) {
    if (column.values->dtype() == DType::kString) return hash(column.values->data<std::string>()[i]);
    const int64_t number = column.values->data<int64_t>()[i];
    if (column.kind == CrossColumn::Kind::kDense && !strong) return static_cast<uint64_t>(number);
    char bytes[4];
    for (int k = 0; k < 4; ++k) bytes[k] = static_cast<char>(number >> (8 * k));
    return hash({bytes, sizeof(bytes)});
  }

  static Error too_many(int64_t row) { return invalid_argument("row {} has more crosses than an int64 counts", row); }

  /// The inputs as columns of as many rows; sets `rows`.
  Result<std::vector<CrossColumn>> read(const KernelContext& c, int64_t& rows) const {
    std::vector<CrossColumn> out;
    const int dense = c.num_inputs() - 3 * inputs_ - (has_separator_ ? 1 : salted_ ? kSettings : 0);
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

  static constexpr int kSettings = 3;  // inputs: num_buckets, strong_hash, salt
  const int inputs_;                   // sparse ones
  const bool has_separator_, salted_;
  const Settings settings_;
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
  enum class Form { kOld, kJoined, kHashed };
  for (const auto& [form, name] : {std::pair(Form::kOld, "SparseCross"), std::pair(Form::kJoined, "SparseCrossV2"),
                                   std::pair(Form::kHashed, "SparseCrossHashed")}) {
    const bool old = form == Form::kOld;
    OpDef op(name);
    op.input("indices: N * int64").input("values: sparse_types").input("shapes: N * int64");
    op.input("dense_inputs: dense_types");
    if (form == Form::kJoined) op.input("sep: string");
    if (form == Form::kHashed) op.input("num_buckets: int64").input("strong_hash: bool").input("salt: int64");
    op.output("output_indices: int64");
    op.output(old                     ? "output_values: out_type"
              : form == Form::kJoined ? "output_values: string"
                                      : "output_values: int64");
    op.output("output_shape: int64").attr("N: int >= 0");
    if (old) op.attr("hashed_output: bool").attr("num_buckets: int >= 0").attr("hash_key: int");
    op.attr("sparse_types: list({int64, string}) >= 0").attr("dense_types: list({int64, string}) >= 0");
    if (old) op.attr("out_type: {int64, string}").attr("internal_type: {int64, string}");
    const char* const how[] = {
        "As int64 the FarmHash fingerprints of features, or the numbers they are, hashed together from hash_key on, "
        "modulo num_buckets unless that is 0; as strings joined with \"_X_\" between them.",
        "Features are joined as text, `sep` between them.",
        "The hashes of features, of int64 those of the lower four bytes, are hashed together modulo num_buckets unless "
        "that is 0: FarmHash fingerprints, or with strong_hash SipHash by the two numbers of salt. Without strong_hash "
        "dense int64 count as they are."};
    ops.add(op.shape(sparse_cross_shape).doc(what + how[static_cast<int>(form)]),
            not_differentiable("features are not numbers"));
    kernels.add<SparseCross>(name, DeviceKind::kCpu, {});
  }
}

}  // namespace troupe
