// SPDX-License-Identifier: Apache-2.0
// Operators: the scope beside an operand, numbers as constants, the op.
#include "troupe/operators.h"

#include <bit>
#include <cmath>
#include <limits>

#include "graph/flow_context.h"
#include "graph/node_place.h"
#include "troupe/scope.h"

namespace troupe {
namespace {

constexpr double kTwoTo63 = 9223372036854775808.0;

bool is_logical(DType dtype) { return dtype == DType::kBool; }

/// The scope of a node that reads both: beside the operand that is further along. Empty where there is none. Faults
/// stick to it.
std::optional<Scope> beside(const char* op, const Output* a, const Output* b, std::source_location where) {
  std::optional<Scope> scope = a && *a ? Scope::beside(*a->node) : std::nullopt;
  std::optional<Scope> other = b && *b ? Scope::beside(*b->node) : std::nullopt;
  for (const Output* operand : {a, b}) {
    if (!operand || *operand) continue;
    if (const auto& there = scope ? scope : other)
      there->fail(Error{Code::kInvalidArgument, "an operand is empty", op}, where);
    return {};
  }
  if (!scope || !other || &scope->graph() != &other->graph()) return scope ? scope : other;
  const FlowContext *left = scope->flow().get(), *right = other->flow().get();
  if (left == right) return NodePlace::depth(*b->node) > NodePlace::depth(*a->node) ? other : scope;
  if (left && left->is_in(right)) return scope;
  if (right && right->is_in(left)) return other;
  scope->fail(Error{Code::kInvalidArgument,
                    fmt::format("{} and {} are in different branches or loops", a->name(), b->name()), op},
              where);
  return {};
}

Output add(const Scope& scope, const char* op, std::vector<Output> inputs, std::source_location where) {
  if (const FlowContext* flow = scope.flow().get(); flow && flow->ended()) {
    scope.fail(Error{Code::kInvalidArgument,
                     fmt::format("{} is in the loop of a gradient, which takes no more nodes", inputs[0].name()), op},
               where);
    return {};
  }
  return scope.op(op, std::move(inputs), {}, where);
}

using OpFor = const char* (*)(DType);

Output combine(OpFor op_for, const Operand& a, const Operand& b) {
  const DType dtype = a.output ? a.output.dtype() : DType::kInvalid;
  const std::optional<Scope> scope = beside(op_for(dtype), &a.output, &b.output, a.where);
  return scope ? add(*scope, op_for(dtype), {a.output, b.output}, a.where) : Output();
}

Output combine(OpFor op_for, const Output& output, const Number& number, bool number_first,
               std::source_location where) {
  const char* op = op_for(output ? output.dtype() : DType::kInvalid);
  const std::optional<Scope> scope = beside(op, &output, nullptr, where);
  if (!scope || !scope->ok()) return {};
  auto value = number.as(output.dtype());
  if (!value.ok()) {
    value.error().op = op;
    value.error().message += fmt::format(", the dtype of {}", output.name());
    scope->fail(std::move(value.error()), where);
    return {};
  }
  const Output constant = scope->constant(std::move(*value), where);
  return number_first ? add(*scope, op, {constant, output}, where) : add(*scope, op, {output, constant}, where);
}

Output combine(OpFor op_for, const Operand& a, const Number& b) { return combine(op_for, a.output, b, false, a.where); }
Output combine(OpFor op_for, const Number& a, const Operand& b) { return combine(op_for, b.output, a, true, b.where); }

Output apply(OpFor op_for, const Operand& x) {
  const char* op = op_for(x.output ? x.output.dtype() : DType::kInvalid);
  const std::optional<Scope> scope = beside(op, &x.output, nullptr, x.where);
  return scope ? add(*scope, op, {x.output}, x.where) : Output();
}

template <class T, class From> std::optional<Tensor> integer(From value) {
  if constexpr (std::is_floating_point_v<From>) {
    // The limits of 64 bits themselves round up as doubles.
    const bool fits = value == std::trunc(value) && value >= static_cast<double>(std::numeric_limits<T>::min()) &&
                      (sizeof(T) < 8 ? value <= static_cast<double>(std::numeric_limits<T>::max())
                                     : value < (std::is_signed_v<T> ? kTwoTo63 : 2 * kTwoTo63));
    if (!fits) return {};
  } else {
    if (!std::in_range<T>(value)) return {};
  }
  return Tensor::scalar(static_cast<T>(value));
}

/// The double that rounds to fewer bits as `value` does: of an integer of more than 53 bits the lowest of them stands
/// for all below.
double sticky(double value) { return value; }
double sticky(uint64_t value) {
  constexpr uint64_t kBelow = 0x7ff;
  if (value >> 53 == 0) return static_cast<double>(value);
  return static_cast<double>((value & ~kBelow) | (value & kBelow ? kBelow + 1 : 0));
}
double sticky(int64_t value) {
  return value < 0 ? -sticky(-static_cast<uint64_t>(value)) : sticky(static_cast<uint64_t>(value));
}

/// The same for a float: of its two neighbours, where it is none itself, a value goes to the odd one.
float odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto as_double = static_cast<double>(nearest);
  if (as_double == value || std::isnan(value) || std::bit_cast<uint32_t>(nearest) % 2 == 1) return nearest;
  return std::nextafter(nearest, as_double < value ? INFINITY : -INFINITY);
}

/// The nearest T, rounded once.
template <class T, class From> std::optional<Tensor> real(From value) {
  const double wide = sticky(value);
  T rounded;
  if constexpr (std::is_same_v<T, float>) rounded = static_cast<float>(wide);
  else rounded = T(odd(wide));
  if (std::isfinite(wide) && !std::isfinite(static_cast<float>(rounded))) return {};
  return Tensor::scalar(rounded);
}

template <class From> std::optional<Tensor> convert(From value, DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return real<float>(value);
    case DType::kFloat64: return Tensor::scalar(static_cast<double>(value));
    case DType::kFloat16: return real<float16>(value);
    case DType::kBFloat16: return real<bfloat16>(value);
    case DType::kInt8: return integer<int8_t>(value);
    case DType::kInt16: return integer<int16_t>(value);
    case DType::kInt32: return integer<int32_t>(value);
    case DType::kInt64: return integer<int64_t>(value);
    case DType::kUInt8: return integer<uint8_t>(value);
    case DType::kUInt16: return integer<uint16_t>(value);
    case DType::kUInt32: return integer<uint32_t>(value);
    case DType::kUInt64: return integer<uint64_t>(value);
    case DType::kBool:
      if (value != From(0) && value != From(1)) return {};
      return Tensor::scalar(value == From(1));
    case DType::kComplex64: {
      const auto part = static_cast<float>(value);
      if (std::isfinite(static_cast<double>(value)) && !std::isfinite(part)) return {};
      return Tensor::scalar(complex64(part));
    }
    case DType::kComplex128: return Tensor::scalar(complex128(static_cast<double>(value)));
    default: return {};
  }
}

/// Nothing where a part is finite and would not be any more.
std::optional<Tensor> in_single(complex128 value) {
  const complex64 narrow(value);
  const auto fits = [](double wide, float part) { return !std::isfinite(wide) || std::isfinite(part); };
  if (!fits(value.real(), narrow.real()) || !fits(value.imag(), narrow.imag())) return {};
  return Tensor::scalar(narrow);
}

const char* add_op(DType) { return "AddV2"; }
const char* sub_op(DType) { return "Sub"; }
const char* mul_op(DType) { return "Mul"; }
const char* div_op(DType dtype) { return is_integer(dtype) ? "TruncateDiv" : "RealDiv"; }
const char* rest_op(DType) { return "TruncateMod"; }
const char* less_op(DType) { return "Less"; }
const char* less_equal_op(DType) { return "LessEqual"; }
const char* greater_op(DType) { return "Greater"; }
const char* greater_equal_op(DType) { return "GreaterEqual"; }
const char* and_op(DType dtype) { return is_logical(dtype) ? "LogicalAnd" : "BitwiseAnd"; }
const char* or_op(DType dtype) { return is_logical(dtype) ? "LogicalOr" : "BitwiseOr"; }
const char* xor_op(DType dtype) { return is_logical(dtype) ? "NotEqual" : "BitwiseXor"; }
const char* neg_op(DType) { return "Neg"; }
const char* not_op(DType dtype) { return is_logical(dtype) ? "LogicalNot" : "Invert"; }

}  // namespace

Result<Tensor> Number::as(DType dtype) const {
  std::optional<Tensor> value;
  std::string text;
  switch (kind_) {
    case Kind::kSigned: value = convert(signed_, dtype), text = fmt::format("{}", signed_); break;
    case Kind::kUnsigned: value = convert(unsigned_, dtype), text = fmt::format("{}", unsigned_); break;
    case Kind::kReal: value = convert(real_, dtype), text = fmt::format("{}", real_); break;
    case Kind::kComplex:
      if (dtype == DType::kComplex128) value = Tensor::scalar(complex128(real_, imaginary_));
      else if (dtype == DType::kComplex64) value = in_single(complex128(real_, imaginary_));
      else if (imaginary_ == 0) value = convert(real_, dtype);
      text = fmt::format("{}{:+}i", real_, imaginary_);
      break;
  }
  if (!value) return invalid_argument("the number {} does not fit {}", text, to_string(dtype));
  return std::move(*value);
}

#define TROUPE_BINARY(symbol, op)                                            \
  Output operator symbol(Operand a, Operand b) { return combine(op, a, b); } \
  Output operator symbol(Operand a, Number b) { return combine(op, a, b); }  \
  Output operator symbol(Number a, Operand b) { return combine(op, a, b); }

TROUPE_BINARY(+, add_op)
TROUPE_BINARY(-, sub_op)
TROUPE_BINARY(*, mul_op)
TROUPE_BINARY(/, div_op)
TROUPE_BINARY(%, rest_op)
TROUPE_BINARY(<, less_op)
TROUPE_BINARY(<=, less_equal_op)
TROUPE_BINARY(>, greater_op)
TROUPE_BINARY(>=, greater_equal_op)
TROUPE_BINARY(&, and_op)
TROUPE_BINARY(|, or_op)
TROUPE_BINARY(^, xor_op)
#undef TROUPE_BINARY

Output operator-(Operand x) { return apply(neg_op, x); }
Output operator~(Operand x) { return apply(not_op, x); }

#define TROUPE_ASSIGNING(symbol)                                                                           \
  Output& operator symbol##=(Output& a, Operand b) { return a = Operand(a, b.where) symbol std::move(b); } \
  Output& operator symbol##=(Output& a, Number b) { return a = Operand(a, b.where) symbol b; }

TROUPE_ASSIGNING(+)
TROUPE_ASSIGNING(-)
TROUPE_ASSIGNING(*)
TROUPE_ASSIGNING(/)
#undef TROUPE_ASSIGNING

}  // namespace troupe
