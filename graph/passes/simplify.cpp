// SPDX-License-Identifier: Apache-2.0
// The rules of simplification, by op.
#include "graph/passes/simplify.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace troupe {
namespace {

/// The bytes of `value` in `dtype`; none for types without arithmetic, and for complex numbers, whose products with 1
/// are not exact at infinities.
std::optional<std::array<char, 8>> bytes_of_number(DType dtype, double value) {
  std::array<char, 8> out{};
  const auto set = [&](auto v) { std::memcpy(out.data(), &v, sizeof v); };
  switch (dtype) {
    case DType::kFloat32: set(static_cast<float>(value)); break;
    case DType::kFloat64: set(value); break;
    case DType::kFloat16: set(float16(static_cast<float>(value))); break;
    case DType::kBFloat16: set(bfloat16(static_cast<float>(value))); break;
    case DType::kBool: set(value != 0); break;
    default:
      if (!is_integer(dtype)) return {};
      set(static_cast<int64_t>(value));  // little-endian: the first bytes are the narrow types'
  }
  return out;
}

/// Whether o is a constant of which every element is `value`, bit for bit.
bool filled_with(const StepGraph& step, Output o, double value) {
  constexpr int64_t kMostLookedAt = 4096;
  const Tensor* t = step.constant(o);
  if (!t || t->elements() == 0 || t->elements() > kMostLookedAt) return false;
  const auto bytes = bytes_of_number(t->dtype(), value);
  if (!bytes) return false;
  const size_t size = size_of(t->dtype());
  const auto* at = static_cast<const char*>(t->raw());
  for (int64_t i = 0; i < t->elements(); ++i, at += size)
    if (std::memcmp(at, bytes->data(), size) != 0) return false;
  return true;
}

/// A constant vector or scalar of integers.
std::optional<std::vector<int64_t>> integers(const StepGraph& step, Output o) {
  const Tensor* t = step.constant(o);
  if (!t || t->rank() > 2) return {};
  if (t->dtype() == DType::kInt32)
    return std::vector<int64_t>(t->values<int32_t>().begin(), t->values<int32_t>().end());
  if (t->dtype() == DType::kInt64)
    return std::vector<int64_t>(t->values<int64_t>().begin(), t->values<int64_t>().end());
  return {};
}

bool same_shape(const StepGraph& step, Output a, Output b) {
  const PartialShape shape = step.shape(a);
  return shape.fully_known() && shape == step.shape(b);
}

/// `x` if `other`, every element of it `value`, leaves it as it is: it must not make the result's shape larger.
Output unless_larger(const StepGraph& step, const Node& node, Output x, Output other, double value) {
  if (!filled_with(step, other, value)) return {};
  return step.constant(other)->rank() == 0 || same_shape(step, x, node.out()) ? x : Output();
}

/// Rules for f(x, value) = x, and where f is symmetric for f(value, x) = x.
template <int kValue, bool kNegative, bool kSymmetric> Output neutral(StepGraph& step, const Node& node) {
  const Output a = node.inputs()[0], b = node.inputs()[1];
  const double value = kNegative ? -static_cast<double>(kValue) : kValue;
  if (const Output x = unless_larger(step, node, a, b, value)) return x;
  return kSymmetric ? unless_larger(step, node, b, a, value) : Output();
}
constexpr Simplification::Rule kOneBesides = neutral<1, false, true>, kOneAfter = neutral<1, false, false>;
constexpr Simplification::Rule kZeroAfter = neutral<0, false, false>, kZeroBesides = neutral<0, false, true>;
constexpr Simplification::Rule kNegativeZeroBesides = neutral<0, true, true>;

Output first_input(StepGraph&, const Node& node) { return node.inputs()[0]; }

/// The input where its shape is known to be what the node promises.
Output first_if_it_fits(StepGraph& step, const Node& node) {
  const Output x = node.inputs()[0];
  const PartialShape &promised = node.shape(0), given = step.shape(x);
  if (!promised.has_rank()) return x;
  if (given.rank() != promised.rank()) return {};
  for (int i = 0; i < promised.rank(); ++i)
    if (promised[i] >= 0 && given[i] != promised[i]) return {};
  return x;
}

/// Whether all inputs but the first are constants, so that none is waited for.
bool rest_constant(const StepGraph& step, const Node& node) {
  return std::ranges::all_of(std::span(node.inputs()).subspan(1), [&](const Output& o) { return step.constant(o); });
}

Output sole_input(StepGraph&, const Node& node) { return node.inputs().size() == 1 ? node.inputs()[0] : Output(); }

/// Of one value and an axis that it has.
Output concat(StepGraph& step, const Node& node) {
  if (node.inputs().size() != 2) return {};
  const auto axis = integers(step, node.inputs()[1]);
  const PartialShape shape = step.shape(node.inputs()[0]);
  if (!axis || axis->size() != 1 || !shape.has_rank()) return {};
  return (*axis)[0] >= -shape.rank() && (*axis)[0] < shape.rank() ? node.inputs()[0] : Output();
}

/// The node that makes the node's input 0, where it is of this op and may be looked through; else nullptr.
const Node* made_by(const StepGraph& step, const Node& node, std::string_view op) {
  const Output x = step.now(node.inputs()[0]);
  const bool through = x.node->op().name() == op && x.node->control_inputs().empty() && !step.is_fed(*x.node);
  return through ? x.node : nullptr;
}

/// f(f(x)) = x.
Output twice(StepGraph& step, const Node& node) {
  const Node* inner = made_by(step, node, node.op().name());
  return inner ? inner->inputs()[0] : Output();
}

/// Whether every value of `from` is one of `to`.
bool holds(DType from, DType to) {
  const auto bits = [](DType t) { return static_cast<int>(size_of(t)) * 8; };
  const auto is_unsigned = [](DType t) {
    return t == DType::kUInt8 || t == DType::kUInt16 || t == DType::kUInt32 || t == DType::kUInt64;
  };
  if (from == DType::kBool) return is_integer(to) || is_floating(to);
  if (is_floating(from)) return is_floating(to) && bits(to) > bits(from);
  if (!is_integer(from)) return false;
  const int digits = bits(from) - (is_unsigned(from) ? 0 : 1);
  if (is_integer(to))
    return is_unsigned(from) ? bits(to) - (is_unsigned(to) ? 0 : 1) >= digits
                             : !is_unsigned(to) && bits(to) >= bits(from);
  return (to == DType::kFloat32 && digits <= 24) || (to == DType::kFloat64 && digits <= 53);
}

Output cast(StepGraph& step, const Node& node) {
  if (node.inputs()[0].dtype() == node.dtype(0)) return node.inputs()[0];
  const Node* inner = made_by(step, node, "Cast");
  if (!inner) return {};
  const Output x = inner->inputs()[0];
  return x.dtype() == node.dtype(0) && holds(x.dtype(), inner->dtype(0)) ? x : Output();
}

std::optional<std::vector<int64_t>> permutation(const StepGraph& step, const Node& node) {
  auto p = integers(step, node.inputs()[1]);
  if (!p) return {};
  std::vector<bool> seen(p->size());
  for (int64_t& axis : *p) {
    if (axis < 0) axis += static_cast<int64_t>(p->size());
    if (axis < 0 || axis >= static_cast<int64_t>(p->size()) || seen[static_cast<size_t>(axis)]) return {};
    seen[static_cast<size_t>(axis)] = true;
  }
  return p;
}

Output transpose(StepGraph& step, const Node& node) {
  auto p = permutation(step, node);
  if (!p || step.shape(node.inputs()[0]).rank() != static_cast<int>(p->size())) return {};
  Output x = node.inputs()[0];
  const Node* inner = made_by(step, node, "Transpose");
  if (inner) {
    const auto first = permutation(step, *inner);
    if (!first || first->size() != p->size()) return {};
    for (int64_t& axis : *p) axis = (*first)[static_cast<size_t>(axis)];
    x = inner->inputs()[0];
  }
  if (std::ranges::is_sorted(*p)) return x;
  if (!inner) return {};
  std::vector<int32_t> axes(p->begin(), p->end());
  auto both = step.add_constant(Tensor::of<int32_t>(std::span<const int32_t>(axes)), node);
  return both.ok() ? step.add_like(node, "Transpose", {x, *both}) : Output();
}

/// Reshape, ExpandDims and Squeeze: nothing where the shape stays, and of two only the last. That the first fits is
/// known only where the shape of its input is.
Output reshape(StepGraph& step, const Node& node) {
  const Output x = node.inputs()[0];
  if (!rest_constant(step, node)) return {};
  if (same_shape(step, x, node.out())) return x;
  const Node* inner = nullptr;
  for (const char* op : {"Reshape", "ExpandDims", "Squeeze"})
    if (!inner) inner = made_by(step, node, op);
  if (!inner || !rest_constant(step, *inner)) return {};
  const PartialShape from = step.shape(inner->inputs()[0]);
  // Without elements a size that is left open may depend on the shape between.
  if (!from.fully_known() || from.shape().elements() == 0) return {};
  if (same_shape(step, inner->inputs()[0], node.out())) return inner->inputs()[0];
  if (node.op().name() != "Reshape") return {};
  return step.add_like(node, "Reshape", {inner->inputs()[0], node.inputs()[1]});
}

/// Pad, Tile, BroadcastTo, Slice: x where the result has x's shape.
Output same_size(StepGraph& step, const Node& node) {
  return rest_constant(step, node) && same_shape(step, node.inputs()[0], node.out()) ? node.inputs()[0] : Output();
}

/// Division by one of integers only: of floats, these two round.
Output whole_quotient(StepGraph& step, const Node& node) {
  return is_integer(node.dtype(0)) ? kOneAfter(step, node) : Output();
}

Output reduce_nothing(StepGraph& step, const Node& node) {
  const Tensor* axes = step.constant(node.inputs()[1]);
  return axes && axes->elements() == 0 ? node.inputs()[0] : Output();
}

Output power(StepGraph& step, const Node& node) {
  if (const Output x = kOneAfter(step, node)) return x;
  if (node.dtype(0) != DType::kFloat32 && node.dtype(0) != DType::kFloat64) return {};
  const Output base = node.inputs()[0];
  const auto exponent = [&](double value) {
    return static_cast<bool>(unless_larger(step, node, base, node.inputs()[1], value));
  };
  if (exponent(2)) return step.add_like(node, "Square", {base});
  if (exponent(-1)) return step.add_like(node, "Reciprocal", {base});
  if (!exponent(3)) return {};
  const Output square = step.add_like(node, "Square", {base});
  return square ? step.add_like(node, "Mul", {square, base}) : Output();
}

struct NamedRule {
  const char* op;
  Simplification::Rule rule;
};
constexpr NamedRule kRules[] = {
    {"Identity", first_input},
    {"LoopCond", first_if_it_fits},
    {"StopGradient", first_input},
    {"PreventGradient", first_input},
    {"Snapshot", first_input},
    {"PlaceholderWithDefault", first_if_it_fits},
    {"AddN", sole_input},
    {"IdentityN", sole_input},
    {"ConcatV2", concat},
    {"Mul", kOneBesides},
    {"Div", kOneAfter},
    {"RealDiv", kOneAfter},
    {"TruncateDiv", whole_quotient},
    {"FloorDiv", whole_quotient},
    {"Sub", kZeroAfter},
    {"Add", kNegativeZeroBesides},
    {"AddV2", kNegativeZeroBesides},
    {"LogicalAnd", kOneBesides},
    {"LogicalOr", kZeroBesides},
    {"Pow", power},
    {"Neg", twice},
    {"LogicalNot", twice},
    {"Cast", cast},
    {"Transpose", transpose},
    {"Reshape", reshape},
    {"ExpandDims", reshape},
    {"Squeeze", reshape},
    {"Pad", same_size},
    {"PadV2", same_size},
    {"MirrorPad", same_size},
    {"Tile", same_size},
    {"BroadcastTo", same_size},
    {"Slice", same_size},
    {"Sum", reduce_nothing},
    {"Mean", reduce_nothing},
    {"Prod", reduce_nothing},
    {"Max", reduce_nothing},
    {"Min", reduce_nothing},
    {"All", reduce_nothing},
    {"Any", reduce_nothing},
};

}  // namespace

Simplification::Simplification(StepGraph& step) : step_(step) {
  for (const NamedRule& named : kRules)
    if (const OpDef* op = step.ops().find(named.op)) rules_.emplace(op, named.rule);
}

bool Simplification::visit(const Node& node) {
  if (node.inputs().empty() || !node.control_inputs().empty() || step_.is_fed(node)) return false;
  const auto rule = rules_.find(&node.op());
  if (rule == rules_.end()) return false;
  const Output by = rule->second(step_, node);
  if (!by) return false;
  step_.replace(node, {&by, 1});
  return true;
}

}  // namespace troupe
