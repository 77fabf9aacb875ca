// SPDX-License-Identifier: Apache-2.0
// How many changes make one sequence another: EditDistance, the measure of what CTC decodes.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "ops/nn/register.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

using SymbolTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                             uint32_t, uint64_t, bool, complex64, complex128, std::string>;

/// The sequences of a sparse tensor along its last dimension, by their place among all.
struct SymbolSequences {
  std::vector<int64_t> sizes;
  std::map<int64_t, std::vector<int64_t>> symbols;  // where among the values they are

  /// From inputs first .. first + 2. Errors: shapes that do not fit.
  static Result<SymbolSequences> read(const KernelContext& c, int first) {
    SymbolSequences out;
    const Tensor &indices = c.input(first), &values = c.input(first + 1);
    TROUPE_ASSIGN(out.sizes, int_values(c.input(first + 2), "the shape of sequences"));
    TROUPE_RETURN_IF_ERROR(Shape::make(out.sizes).status());
    if (out.sizes.empty() || indices.rank() != 2 || indices.dim(1) != static_cast<int64_t>(out.sizes.size()) ||
        values.rank() != 1 || values.dim(0) != indices.dim(0))
      return invalid_argument("indices of shape {} and values of shape {} in {} dimensions", indices.shape().str(),
                              values.shape().str(), out.sizes.size());
    return out;
  }
  /// Parts the values by the sequence that each is of. Errors: an index out of range.
  Status part(const Tensor& indices, const Shape& groups) {
    for (int64_t i = 0; i < indices.dim(0); ++i) {
      const int64_t* at = indices.data<int64_t>() + i * indices.dim(1);
      int64_t group = 0;
      for (size_t d = 0; d < sizes.size(); ++d) {
        if (at[d] < 0 || at[d] >= sizes[d])
          return invalid_argument("index {} at [{},{}] is not in [0, {})", at[d], i, d, sizes[d]);
        if (d + 1 < sizes.size()) group = group * groups[static_cast<int>(d)] + at[d];
      }
      symbols[group].push_back(i);
    }
    return {};
  }
};

/// The dimensions before the last, each as large as the larger of the two.
Result<Shape> groups_of(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  if (a.size() != b.size() || a.empty())
    return invalid_argument("hypotheses have {} dimensions and truths {}", a.size(), b.size());
  std::vector<int64_t> out;
  for (size_t d = 0; d + 1 < a.size(); ++d) out.push_back(std::max(a[d], b[d]));
  return Shape::make(out);
}

/// Insertions, removals and replacements that make the symbols a of x those of y at b (Levenshtein).
template <class T>
int64_t distance(const T* x, const std::vector<int64_t>& a, const T* y, const std::vector<int64_t>& b) {
  const auto same = [](const T& p, const T& q) {
    if constexpr (is_half<T>) return widen(p) == widen(q);
    else return p == q;
  };
  std::vector<int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), int64_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t before = row[0]++;  // of the row before, a column to the left
    for (size_t j = 0; j < b.size(); ++j) {
      const int64_t replaced = before + (same(x[a[i]], y[b[j]]) ? 0 : 1);
      before = row[j + 1];
      row[j + 1] = std::min({replaced, before + 1, row[j] + 1});
    }
  }
  return row.back();
}

class EditDistance final : public ComputeKernel {
 public:
  explicit EditDistance(const KernelInit& init) : normalize_(init.attr<bool>("normalize")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(auto guesses, SymbolSequences::read(c, 0));
    TROUPE_ASSIGN(auto truths, SymbolSequences::read(c, 3));
    TROUPE_ASSIGN(const Shape groups, groups_of(guesses.sizes, truths.sizes));
    TROUPE_RETURN_IF_ERROR(guesses.part(c.input(0), groups));
    TROUPE_RETURN_IF_ERROR(truths.part(c.input(3), groups));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(DType::kFloat32, groups, c.device().allocator));
    float* out = y.mutable_data<float>();
    for (const auto& [group, guess] : guesses.symbols)
      if (!truths.symbols.contains(group))
        out[group] = normalize_ ? std::numeric_limits<float>::infinity() : static_cast<float>(guess.size());
    for (const auto& [group, truth] : truths.symbols) {
      const auto guess = guesses.symbols.find(group);
      int64_t changes = static_cast<int64_t>(truth.size());
      if (guess != guesses.symbols.end())
        with_type(c.input(1).dtype(), SymbolTypes{}, [&, &symbols = truth]<class T>() {
          changes = distance(c.input(1).data<T>(), guess->second, c.input(4).data<T>(), symbols);
        });
      out[group] = static_cast<float>(changes) / (normalize_ ? static_cast<float>(truth.size()) : 1.f);
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool normalize_;
};

Status edit_distance_shape(ShapeContext& c) {
  for (int i : {0, 3}) {
    TROUPE_RETURN_IF_ERROR(c.with_rank(i, 2).status());
    TROUPE_RETURN_IF_ERROR(c.with_rank(i + 1, 1).status());
    TROUPE_RETURN_IF_ERROR(c.with_rank(i + 2, 1).status());
  }
  const auto a = c.constant_input(2), b = c.constant_input(5);
  if (a && b) {
    TROUPE_ASSIGN(const auto guesses, int_values(*a, "hypothesis_shape"));
    TROUPE_ASSIGN(const auto truths, int_values(*b, "truth_shape"));
    TROUPE_ASSIGN(const Shape groups, groups_of(guesses, truths));
    c.set_output(0, groups);
    return {};
  }
  for (int i : {2, 5})
    if (const PartialShape& s = c.input(i); s.has_rank() && s[0] > 0 && s[0] <= kMaxRank)
      c.set_output(0, PartialShape::of_rank(static_cast<int>(s[0]) - 1));
  return {};
}

}  // namespace

void register_edit_distance_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("EditDistance")
              .input("hypothesis_indices: int64")
              .input("hypothesis_values: T")
              .input("hypothesis_shape: int64")
              .input("truth_indices: int64")
              .input("truth_values: T")
              .input("truth_shape: int64")
              .output("output: float32")
              .attr("normalize: bool = true")
              .attr("T: type")
              .shape(edit_distance_shape)
              .doc("How many insertions, removals and replacements make one sequence of symbols, along the last "
                   "dimension of a sparse tensor, another; divided by the length of the truth where `normalize`, so "
                   "that without a truth it is infinite. Error for an index out of range."),
          not_differentiable("it counts"));
  kernels.add<EditDistance>("EditDistance", DeviceKind::kCpu, {{"T", SymbolTypes::dtypes()}});
}

}  // namespace troupe
