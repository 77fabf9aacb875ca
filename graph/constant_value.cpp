// SPDX-License-Identifier: Apache-2.0
// The little constant propagation that shape functions need.
#include "graph/constant_value.h"

#include <algorithm>

namespace troupe {
namespace {

/// Chains longer than this are not shape arithmetic, nor is what takes more looks at nodes: a few nodes that read one
/// another several times have billions of ways to their constants.
constexpr int kLongestChain = 16, kMostLooks = 1024;
/// A shape needs no more.
constexpr int64_t kMostNumbers = 64;

/// Whether every output has the value of input 0, where it has one.
bool passes_on(const Node& node) {
  const std::string& op = node.op().name();
  return op == "Identity" || op == "Switch" || (op == "Enter" && node.attrs().get_or<bool>("is_constant", false));
}

/// Elements of a scalar or vector of integers, as far as they are known.
struct Numbers {
  std::vector<std::optional<int64_t>> values = {};
  bool scalar = false;

  bool complete() const {
    return std::ranges::all_of(values, [](const auto& v) { return v.has_value(); });
  }
  bool any() const {
    return std::ranges::any_of(values, [](const auto& v) { return v.has_value(); });
  }
};

std::optional<Tensor> tensor_of(const Numbers& numbers, DType dtype) {
  if (!numbers.complete()) return {};
  std::vector<int64_t> values;
  for (const auto& v : numbers.values) values.push_back(*v);
  const Shape shape = numbers.scalar ? Shape{} : Shape{static_cast<int64_t>(values.size())};
  if (dtype == DType::kInt64) return Tensor::of<int64_t>(values, shape);
  return Tensor::of<int32_t>(std::vector<int32_t>(values.begin(), values.end()), shape);
}

bool fits(const Numbers& numbers, DType dtype) {
  return dtype == DType::kInt64 ||
         std::ranges::all_of(numbers.values, [](const auto& v) { return !v || *v == static_cast<int32_t>(*v); });
}

std::optional<Numbers> numbers_of(const Tensor& t) {
  if (t.rank() > 1 || t.elements() > kMostNumbers) return {};
  Numbers out{{}, t.rank() == 0};
  if (t.dtype() == DType::kInt64) out.values.assign(t.values<int64_t>().begin(), t.values<int64_t>().end());
  else if (t.dtype() == DType::kInt32) out.values.assign(t.values<int32_t>().begin(), t.values<int32_t>().end());
  else return {};
  return out;
}

/// The numbers of a node's output. Each function of an op says nothing where it knows nothing.
class Numbering {
 public:
  std::optional<Numbers> of(Output output, int steps) {
    const PartialShape& shape = output.shape();
    const DType dtype = output.dtype();
    if ((dtype != DType::kInt32 && dtype != DType::kInt64) || !shape.has_rank() || shape.rank() > 1) return {};
    if (steps > 0 && --looks_ >= 0)
      if (auto known = known_of(output, steps); known && fits(*known, dtype)) return known;
    if (shape.rank() == 0) return Numbers{{std::nullopt}, true};
    if (shape[0] < 0 || shape[0] > kMostNumbers) return {};
    return Numbers{std::vector<std::optional<int64_t>>(static_cast<size_t>(shape[0]))};
  }

 private:
  std::optional<Numbers> known_of(Output output, int steps) {
    const Node& node = *output.node;
    const std::string& op = node.op().name();
    if (op == "Const") {
      const Tensor* value = node.attrs().get<Tensor>("value");
      return value ? numbers_of(*value) : std::nullopt;
    }
    const auto& in = node.inputs();
    if (in.empty()) return {};
    if (passes_on(node) || op == "Cast") return of(in[0], steps - 1);
    const PartialShape& first = in[0].shape();
    if (op == "Shape") return sizes(first);
    if (op == "Rank" && first.has_rank()) return Numbers{{first.rank()}, true};
    if (op == "Size" && first.fully_known()) return Numbers{{first.shape().elements()}, true};
    if (op == "StridedSlice" && in.size() == 4) return strided_slice(node, steps);
    if (op == "Pack" || op == "ConcatV2") return joined(node, steps);
    if (op == "GatherV2" && in.size() == 3) return gathered(node, steps);
    if (op == "ExpandDims" && first.rank() == 0) {
      auto number = of(in[0], steps - 1);
      if (number) number->scalar = false;
      return number;
    }
    if (op == "Prod" && first.rank() == 1 && output.shape().rank() == 0) return product(in[0], steps);
    if (in.size() == 2 && output.shape().rank() == 0) return combined(node, steps);
    return {};
  }

  static std::optional<Numbers> sizes(const PartialShape& shape) {
    if (!shape.has_rank()) return {};
    Numbers out;
    for (int i = 0; i < shape.rank(); ++i) out.values.push_back(shape[i] < 0 ? std::nullopt : std::optional(shape[i]));
    return out;
  }

  /// One element, or a run of elements, of a vector: what takes a size out of a Shape.
  std::optional<Numbers> strided_slice(const Node& node, int steps) {
    const auto from = of(node.inputs()[0], steps - 1);
    if (!from || from->scalar) return {};
    int64_t parts[3];  // begin, end, stride
    for (size_t i = 0; i < 3; ++i) {
      const auto numbers = of(node.inputs()[i + 1], steps - 1);
      if (!numbers || numbers->scalar || numbers->values.size() != 1 || !numbers->values[0]) return {};
      parts[i] = *numbers->values[0];
    }
    const auto mask = [&](const char* name) { return node.attrs().get_or<int64_t>(name, 0) & 1; };
    if (parts[2] != 1 || mask("ellipsis_mask") || mask("new_axis_mask")) return {};
    const auto n = static_cast<int64_t>(from->values.size());
    const auto place = [n](int64_t at) { return at < 0 ? at + n : at; };
    const int64_t begin = mask("begin_mask") ? 0 : place(parts[0]);
    if (mask("shrink_axis_mask")) {
      if (begin < 0 || begin >= n) return {};
      return Numbers{{from->values[static_cast<size_t>(begin)]}, true};
    }
    const int64_t first = std::clamp<int64_t>(begin, 0, n);
    const int64_t end = std::clamp<int64_t>(mask("end_mask") ? n : place(parts[1]), first, n);
    return Numbers{{from->values.begin() + first, from->values.begin() + end}};
  }

  /// Scalars of a Pack, vectors of a ConcatV2.
  std::optional<Numbers> joined(const Node& node, int steps) {
    const bool scalars = node.op().name() == "Pack";
    const size_t n = node.inputs().size() - (scalars ? 0 : 1);
    if (n > kMostNumbers) return {};
    Numbers out;
    for (size_t i = 0; i < n; ++i) {
      const auto part = of(node.inputs()[i], steps - 1);
      if (!part || part->scalar != scalars || out.values.size() + part->values.size() > kMostNumbers) return {};
      out.values.insert(out.values.end(), part->values.begin(), part->values.end());
    }
    return out;
  }

  std::optional<Numbers> gathered(const Node& node, int steps) {
    const auto from = of(node.inputs()[0], steps - 1), at = of(node.inputs()[1], steps - 1);
    if (!from || from->scalar || !at || !at->complete() || node.attrs().get_or<int64_t>("batch_dims", 0) != 0)
      return {};
    Numbers out{{}, at->scalar};
    for (const auto& i : at->values) {
      if (*i < 0 || *i >= static_cast<int64_t>(from->values.size())) return {};
      out.values.push_back(from->values[static_cast<size_t>(*i)]);
    }
    return out;
  }

  std::optional<Numbers> product(Output vector, int steps) {
    const auto numbers = of(vector, steps - 1);
    if (!numbers || !numbers->complete()) return {};
    int64_t all = 1;
    for (const auto& v : numbers->values)
      if (__builtin_mul_overflow(all, *v, &all)) return {};
    return Numbers{{all}, true};
  }

  /// Of two numbers.
  std::optional<Numbers> combined(const Node& node, int steps) {
    const std::string& op = node.op().name();
    const bool sum = op == "AddV2" || op == "Add", difference = op == "Sub", product = op == "Mul",
               quotient = op == "FloorDiv";
    if (!sum && !difference && !product && !quotient) return {};
    const auto a = of(node.inputs()[0], steps - 1), b = of(node.inputs()[1], steps - 1);
    if (!a || !b || !a->complete() || !b->complete() || !a->scalar || !b->scalar) return {};
    const int64_t x = *a->values[0], y = *b->values[0];
    int64_t out = 0;
    if (quotient) {
      if (x < 0 || y <= 0) return {};
      return Numbers{{x / y}, true};
    }
    const bool overflows = sum          ? __builtin_add_overflow(x, y, &out)
                           : difference ? __builtin_sub_overflow(x, y, &out)
                                        : __builtin_mul_overflow(x, y, &out);
    return overflows ? std::nullopt : std::optional(Numbers{{out}, true});
  }

  int looks_ = kMostLooks;
};

/// The integers of `t` as others; none where they do not fit.
std::optional<Tensor> cast(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype) return t;
  if (t.dtype() == DType::kInt32 && dtype == DType::kInt64) {
    const auto values = t.values<int32_t>();
    return Tensor::of<int64_t>(std::vector<int64_t>(values.begin(), values.end()), t.shape());
  }
  if (t.dtype() != DType::kInt64 || dtype != DType::kInt32) return {};
  std::vector<int32_t> narrow;
  for (const int64_t v : t.values<int64_t>()) {
    narrow.push_back(static_cast<int32_t>(v));
    if (narrow.back() != v) return {};
  }
  return Tensor::of<int32_t>(narrow, t.shape());
}

/// Of any type and rank, through what passes it on, and Cast of integers.
std::optional<Tensor> whole_constant(Output output, int steps = kLongestChain) {
  const Node& node = *output.node;
  if (node.op().name() == "Const") {
    const Tensor* value = node.attrs().get<Tensor>("value");
    return value ? std::optional(*value) : std::nullopt;
  }
  if (steps == 0 || node.inputs().empty()) return {};
  if (passes_on(node)) return whole_constant(node.inputs()[0], steps - 1);
  if (node.op().name() != "Cast") return {};
  const auto from = whole_constant(node.inputs()[0], steps - 1);
  return from ? cast(*from, node.dtype(0)) : std::nullopt;
}

}  // namespace

std::optional<Tensor> constant_value(Output output) {
  if (auto whole = whole_constant(output)) return whole;
  const auto numbers = Numbering().of(output, kLongestChain);
  return numbers ? tensor_of(*numbers, output.dtype()) : std::nullopt;
}

PartialShape known_sizes(Output output) {
  const auto numbers = Numbering().of(output, kLongestChain);
  if (!numbers || numbers->scalar || numbers->values.size() > kMaxRank) return PartialShape::unknown();
  PartialShape shape = PartialShape::of_rank(static_cast<int>(numbers->values.size()));
  for (int i = 0; i < shape.rank(); ++i)
    if (const auto& size = numbers->values[static_cast<size_t>(i)]; size && *size >= 0) shape.set(i, *size);
  return shape;
}

bool is_partly_known(Output output) {
  if (whole_constant(output)) return true;
  const auto numbers = Numbering().of(output, kLongestChain);
  return numbers && numbers->any();
}

Output passed_on(Output output) {
  while (passes_on(*output.node) && !output.node->inputs().empty()) output = output.node->inputs()[0];
  return output;
}

}  // namespace troupe
