// SPDX-License-Identifier: Apache-2.0
// The little constant propagation that shape functions need.
#include "graph/constant_value.h"

#include <algorithm>

namespace troupe {
namespace {

/// Chains longer than this are not shape arithmetic, nor is what takes more looks at nodes: a few nodes that read one
/// another several times have billions of ways to their constants.
constexpr int kLongestChain = 16, kMostLooks = 1024;

std::optional<Tensor> integers(const std::vector<int64_t>& values, const Shape& shape, DType dtype) {
  if (dtype == DType::kInt64) return Tensor::of<int64_t>(values, shape);
  if (dtype != DType::kInt32) return {};
  for (int64_t v : values)
    if (v != static_cast<int32_t>(v)) return {};
  return Tensor::of<int32_t>(std::vector<int32_t>(values.begin(), values.end()), shape);
}

std::optional<std::vector<int64_t>> as_integers(const Tensor& t) {
  if (t.dtype() == DType::kInt64) return std::vector<int64_t>(t.values<int64_t>().begin(), t.values<int64_t>().end());
  if (t.dtype() == DType::kInt32) return std::vector<int64_t>(t.values<int32_t>().begin(), t.values<int32_t>().end());
  return {};
}

/// Whether every output has the value of input 0, where it has one.
bool passes_on(const Node& node) {
  const std::string& op = node.op().name();
  return op == "Identity" || op == "Switch" || (op == "Enter" && node.attrs().get_or<bool>("is_constant", false));
}

std::optional<Tensor> value_of(Output output, int steps, int& looks);

/// One element, or a run of elements, of a constant vector: what takes a size out of a Shape.
std::optional<Tensor> strided_slice(const Node& node, int steps, int& looks) {
  std::vector<int64_t> parts[4];  // the vector, begin, end, stride
  for (int i = 0; i < 4; ++i) {
    const std::optional<Tensor> value = value_of(node.inputs()[i], steps - 1, looks);
    const auto numbers = value && value->rank() == 1 ? as_integers(*value) : std::nullopt;
    if (!numbers || (i > 0 && numbers->size() != 1)) return {};
    parts[i] = *numbers;
  }
  const auto mask = [&](const char* name) { return node.attrs().get_or<int64_t>(name, 0) & 1; };
  if (parts[3][0] != 1 || mask("ellipsis_mask") || mask("new_axis_mask")) return {};
  const auto n = static_cast<int64_t>(parts[0].size());
  const auto place = [n](int64_t at) { return at < 0 ? at + n : at; };
  const int64_t begin = mask("begin_mask") ? 0 : place(parts[1][0]);
  if (mask("shrink_axis_mask")) {
    if (begin < 0 || begin >= n) return {};
    return integers({parts[0][begin]}, {}, node.dtype(0));
  }
  const int64_t first = std::clamp<int64_t>(begin, 0, n);
  const int64_t end = std::clamp<int64_t>(mask("end_mask") ? n : place(parts[2][0]), first, n);
  return integers({parts[0].begin() + first, parts[0].begin() + end}, Shape{end - first}, node.dtype(0));
}

std::optional<Tensor> value_of(Output output, int steps, int& looks) {
  if (--looks < 0) return {};
  const Node& node = *output.node;
  const std::string& op = node.op().name();
  if (op == "Const") {
    const Tensor* value = node.attrs().get<Tensor>("value");
    return value ? std::optional(*value) : std::nullopt;
  }
  if (steps == 0 || node.inputs().empty()) return {};
  const Output first = node.inputs()[0];
  if (passes_on(node)) return value_of(first, steps - 1, looks);
  const DType dtype = node.dtype(0);
  if (op == "Rank" && first.shape().has_rank()) return integers({first.shape().rank()}, {}, dtype);
  if (op == "Shape" && first.shape().fully_known()) {
    const auto dims = first.shape().dims();
    return integers({dims.begin(), dims.end()}, Shape{static_cast<int64_t>(dims.size())}, dtype);
  }
  if (op == "Size" && first.shape().fully_known()) return integers({first.shape().shape().elements()}, {}, dtype);
  if (op == "Cast") {
    const std::optional<Tensor> value = value_of(first, steps - 1, looks);
    const auto values = value ? as_integers(*value) : std::nullopt;
    return values ? integers(*values, value->shape(), dtype) : std::nullopt;
  }
  if (op == "StridedSlice" && node.inputs().size() == 4) return strided_slice(node, steps, looks);
  if (op == "Pack" && node.inputs().size() <= kMaxRank) {
    std::vector<int64_t> all;
    for (const Output& input : node.inputs()) {
      const std::optional<Tensor> value = input.shape().rank() == 0 ? value_of(input, steps - 1, looks) : std::nullopt;
      const auto one = value ? as_integers(*value) : std::nullopt;
      if (!one || one->size() != 1) return {};
      all.push_back((*one)[0]);
    }
    return integers(all, Shape{static_cast<int64_t>(all.size())}, dtype);
  }
  return {};
}

}  // namespace

std::optional<Tensor> constant_value(Output output) {
  int looks = kMostLooks;
  return value_of(output, kLongestChain, looks);
}

Output passed_on(Output output) {
  while (passes_on(*output.node) && !output.node->inputs().empty()) output = output.node->inputs()[0];
  return output;
}

}  // namespace troupe
