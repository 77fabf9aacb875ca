// SPDX-License-Identifier: Apache-2.0
// Strings joined and taken apart: StringJoin, ReduceJoin, UnsortedSegmentJoin, StringSplit, StringSplitV2.
#include <algorithm>

#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/text/register.h"
#include "ops/text/string_map.h"

namespace troupe {
namespace {

class StringJoin final : public ComputeKernel {
 public:
  explicit StringJoin(const KernelInit& init) : separator_(init.attr<std::string>("separator")) {}
  Status compute(KernelContext& c) override {
    Shape shape;
    for (int i = 0; i < c.num_inputs(); ++i) {
      const Shape& s = c.input(i).shape();
      if (shape.rank() == 0) shape = s;
      if (s.rank() > 0 && !(s == shape))
        return invalid_argument("tensors of shapes {} and {} do not join", shape.str(), s.str());
    }
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kString, shape));
    for (int64_t e = 0; e < y.elements(); ++e) {
      std::string& out = y.mutable_data<std::string>()[e];
      for (int i = 0; i < c.num_inputs(); ++i) {
        const Tensor& x = c.input(i);
        if (i > 0) out += separator_;
        out += x.data<std::string>()[x.rank() == 0 ? 0 : e];
      }
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const std::string separator_;
};

Status join_shape(ShapeContext& c) {
  PartialShape shape = PartialShape::scalar();
  for (int i = 0; i < c.num_inputs(); ++i) {
    const PartialShape& s = c.input(i);
    if (!s.has_rank()) return {};
    if (s.rank() == 0) continue;
    if (shape.rank() == 0) {
      shape = s;
    } else {
      TROUPE_ASSIGN(shape, PartialShape::merge(shape, s));
    }
  }
  c.set_output(0, shape);
  return {};
}

// -- ReduceJoin -------------------------------------------------------------------------------------------------------

/// Axes as given, in their order, each in [0, rank). Errors: out of range, twice.
Result<std::vector<int>> join_axes(const Tensor& indices, int rank) {
  TROUPE_ASSIGN(const std::vector<int64_t> given, int_values(indices, "reduction_indices"));
  std::vector<int> axes;
  for (const int64_t g : given) {
    TROUPE_ASSIGN(const int axis, axis_from(g, rank));
    if (std::ranges::find(axes, axis) != axes.end()) return invalid_argument("axis {} is given twice", axis);
    axes.push_back(axis);
  }
  return axes;
}

PartialShape without_axes(const PartialShape& shape, const std::vector<int>& axes, bool keep) {
  PartialShape out = PartialShape::scalar();
  for (int d = 0; d < shape.rank(); ++d) {
    if (std::ranges::find(axes, d) == axes.end()) out.push_back(shape[d]);
    else if (keep) out.push_back(1);
  }
  return out;
}

/// The first axis given varies fastest within a string.
class ReduceJoin final : public ComputeKernel {
 public:
  explicit ReduceJoin(const KernelInit& init)
      : keep_(init.attr<bool>("keep_dims")), separator_(init.attr<std::string>("separator")) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const std::vector<int> joined, join_axes(c.input(1), x.rank()));
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kString, without_axes(x.shape(), joined, keep_).shape()));
    std::vector<int> kept;
    for (int d = x.rank() - 1; d >= 0; --d)
      if (std::ranges::find(joined, d) == joined.end()) kept.push_back(d);
    int64_t parts = 1;
    for (const int d : joined) parts *= x.dim(d);
    for (int64_t e = 0; e < y.elements(); ++e) {
      std::string& out = y.mutable_data<std::string>()[e];
      const int64_t base = offset(x.shape(), kept, e);
      for (int64_t p = 0; p < parts; ++p) {
        if (p > 0) out += separator_;
        out += x.data<std::string>()[base + offset(x.shape(), joined, p)];
      }
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  /// Where in a tensor element `i` of those that only `axes` count lies, the first of them fastest.
  static int64_t offset(const Shape& shape, const std::vector<int>& axes, int64_t i) {
    int64_t out = 0;
    for (const int axis : axes) {
      int64_t stride = 1;
      for (int d = axis + 1; d < shape.rank(); ++d) stride *= shape[d];
      out += i % shape[axis] * stride;
      i /= shape[axis];
    }
    return out;
  }
  const bool keep_;
  const std::string separator_;
};

Status reduce_join_shape(ShapeContext& c) {
  const auto indices = c.constant_input(1);
  if (!c.input(0).has_rank() || !indices) return {};
  TROUPE_ASSIGN(const std::vector<int> axes, join_axes(*indices, c.input(0).rank()));
  c.set_output(0, without_axes(c.input(0), axes, c.attr<bool>("keep_dims")));
  return {};
}

// -- UnsortedSegmentJoin ----------------------------------------------------------------------------------------------

class SegmentJoin final : public ComputeKernel {
 public:
  explicit SegmentJoin(const KernelInit& init) : separator_(init.attr<std::string>("separator")) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &ids = c.input(1);
    TROUPE_ASSIGN(const int64_t segments, count_from(c.input(2), "num_segments"));
    TROUPE_ASSIGN(const PartialShape shape, slices_shape(x.shape(), ids.shape(), segments, "segment_ids"));
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kString, shape.shape()));
    const int64_t inner = ids.elements() > 0 ? x.elements() / ids.elements() : 0;
    Status status;
    with_type(ids.dtype(), IndexTypes{}, [&]<class I>() {
      for (int64_t i = 0; i < ids.elements() && status.ok(); ++i) {
        const auto id = static_cast<int64_t>(ids.data<I>()[i]);
        if (id < 0 || id >= segments) {
          status = invalid_argument("segment id {} at position {} is not in [0, {})", id, i, segments);
          break;
        }
        for (int64_t k = 0; k < inner; ++k) {
          std::string& out = y.mutable_data<std::string>()[id * inner + k];
          if (!out.empty()) out += separator_;
          out += x.data<std::string>()[i * inner + k];
        }
      }
    });
    TROUPE_RETURN_IF_ERROR(status);
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const std::string separator_;
};

Status segment_join_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(2, 0));
  int64_t segments = -1;
  if (const auto constant = c.constant_input(2)) {
    TROUPE_ASSIGN(segments, count_from(*constant, "num_segments"));
  }
  TROUPE_ASSIGN(const PartialShape shape, slices_shape(c.input(0), c.input(1), segments, "segment_ids"));
  c.set_output(0, shape);
  return {};
}

// -- splitting --------------------------------------------------------------------------------------------------------

using StringPieces = std::vector<std::string>;

/// At each of the bytes of `delimiters`; into bytes when there are none. Of an empty string there are no pieces.
void split_at_bytes(const std::string& s, const std::string& delimiters, bool skip_empty, StringPieces& out) {
  if (delimiters.empty()) {
    for (const char c : s) out.emplace_back(1, c);
    return;
  }
  for (size_t begin = 0; begin <= s.size() && !s.empty();) {
    const size_t end = std::min(s.size(), s.find_first_of(delimiters, begin));
    if (end > begin || !skip_empty) out.push_back(s.substr(begin, end - begin));
    begin = end + 1;
  }
}

/// As Python's str.split: at each `separator`, or at runs of white space when it is empty; at most `most` times. But
/// after so many pieces there is one of what is left, be it nothing, and `most` 0 leaves white space where it is.
void split_as_python(const std::string& s, const std::string& separator, int64_t most, StringPieces& out) {
  if (!separator.empty()) {
    size_t begin = 0;
    for (size_t end; most-- != 0 && (end = s.find(separator, begin)) != std::string::npos;
         begin = end + separator.size())
      out.push_back(s.substr(begin, end - begin));
    out.push_back(s.substr(begin));
    return;
  }
  if (most == 0) return out.push_back(s);
  constexpr const char* kSpace = " \t\n\v\f\r";
  for (size_t begin = s.find_first_not_of(kSpace); begin != std::string::npos;) {
    const size_t end = std::min(s.size(), s.find_first_of(kSpace, begin));
    out.push_back(s.substr(begin, end - begin));
    begin = s.find_first_not_of(kSpace, end);
    if (--most == 0) return out.push_back(begin == std::string::npos ? std::string() : s.substr(begin));
  }
}

class StringSplit final : public ComputeKernel {
 public:
  explicit StringSplit(const KernelInit& init)
      : v2_(init.op == "StringSplitV2"), skip_empty_(init.attrs->get_or<bool>("skip_empty", true)),
        most_(init.attrs->get_or<int64_t>("maxsplit", -1)) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &separator = c.input(1);
    if (x.rank() != 1 || separator.rank() != 0)
      return invalid_argument("a vector and a scalar are wanted, not {} and {}", x.shape().str(),
                              separator.shape().str());
    StringPieces pieces;
    std::vector<int64_t> counts;
    for (const std::string& s : x.values<std::string>()) {
      const size_t before = pieces.size();
      if (v2_) split_as_python(s, separator.data<std::string>()[0], most_ < 0 ? -1 : most_, pieces);
      else split_at_bytes(s, separator.data<std::string>()[0], skip_empty_, pieces);
      counts.push_back(static_cast<int64_t>(pieces.size() - before));
    }
    const auto n = static_cast<int64_t>(pieces.size());
    TROUPE_ASSIGN(Tensor indices, c.allocate(DType::kInt64, Shape{n, 2}));
    TROUPE_ASSIGN(Tensor values, c.allocate(DType::kString, Shape{n}));
    int64_t* at = indices.mutable_data<int64_t>();
    for (int64_t row = 0; row < x.elements(); ++row)
      for (int64_t k = 0; k < counts[static_cast<size_t>(row)]; ++k) *at++ = row, *at++ = k;
    std::ranges::move(pieces, values.mutable_data<std::string>());
    c.set_output(0, std::move(indices));
    c.set_output(1, std::move(values));
    c.set_output(2, Tensor::of<int64_t>({x.elements(), counts.empty() ? 0 : *std::ranges::max_element(counts)}));
    return {};
  }

 private:
  const bool v2_, skip_empty_;
  const int64_t most_;
};

Status string_split_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 1));
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0));
  c.set_output(0, {-1, 2});
  c.set_output(1, {-1});
  c.set_output(2, {2});
  return {};
}

}  // namespace

void register_string_part_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto add = [&](OpDef op) { ops.add(std::move(op), not_differentiable(kNoGradientOfStrings)); };
  const auto cpu = DeviceKind::kCpu;
  const char* separator = "separator: string = ''";
  add(OpDef("StringJoin")
          .input("inputs: N * string")
          .output("output: string")
          .attr("N: int >= 0")
          .attr(separator)
          .shape(join_shape)
          .doc("Strings at the same place of the inputs joined, `separator` between them. Scalars go with every place; "
               "the other inputs have one shape."));
  kernels.add<StringJoin>("StringJoin", cpu, {});
  add(OpDef("ReduceJoin")
          .input("inputs: string")
          .input("reduction_indices: int32")
          .output("output: string")
          .attr("keep_dims: bool = false")
          .attr(separator)
          .shape(reduce_join_shape)
          .doc("Strings along the axes `reduction_indices` joined, `separator` between them; the first axis given "
               "varies "
               "fastest. Without axes nothing is joined."));
  kernels.add<ReduceJoin>("ReduceJoin", cpu, {});
  add(OpDef("UnsortedSegmentJoin")
          .input("inputs: string")
          .input("segment_ids: Tindices")
          .input("num_segments: Tnumsegments")
          .output("output: string")
          .attr(separator)
          .attr(type_attr("Tindices", IndexTypes{}))
          .attr(type_attr("Tnumsegments", IndexTypes{}, "int32"))
          .shape(segment_join_shape)
          .doc("Strings of each segment joined in their order, `separator` after what is not empty. `segment_ids` have "
               "the first "
               "dimensions of `inputs`."));
  kernels.add<SegmentJoin>("UnsortedSegmentJoin", cpu, {});
  const auto sparse = [](const char* name, const char* delimiter) {
    OpDef op(name);
    op.input("input: string").input(delimiter);
    return op.output("indices: int64").output("values: string").output("shape: int64").shape(string_split_shape);
  };
  add(sparse("StringSplit", "delimiter: string")
          .attr("skip_empty: bool = true")
          .doc("The pieces of each string between bytes of `delimiter`, or each byte when it is empty, as a sparse "
               "matrix: row i has those of string i."));
  add(sparse("StringSplitV2", "sep: string")
          .attr("maxsplit: int = -1")
          .doc("The pieces of each string between occurrences of `sep`, or runs of white space when it is empty, split "
               "at most `maxsplit` times, as a sparse matrix: row i has those of string i."));
  kernels.add<StringSplit>("StringSplit", cpu, {});
  kernels.add<StringSplit>("StringSplitV2", cpu, {});
}

}  // namespace troupe
