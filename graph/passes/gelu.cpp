// SPDX-License-Identifier: Apache-2.0
// Computes with polynomials: each node between x and the result is p(x) + q(x) g, where g is the one Tanh or Erf. So it
// does not matter in which order a graph multiplies, or whether it has x^3 as Pow or as products.
#include "graph/passes/gelu.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe {
namespace {

constexpr size_t kMostParts = 16;  // of 12 or fewer that are written usually

/// Coefficients of 1, x, x^2, x^3.
using Cubic = std::array<double, 4>;

/// plain + curved * g.
struct GeluTerm {
  Cubic plain = {}, curved = {};
};

bool is_zero(const Cubic& p) {
  return std::ranges::all_of(p, [](double c) { return c == 0; });
}
/// nullopt above x^3.
std::optional<Cubic> times(const Cubic& a, const Cubic& b) {
  Cubic out = {};
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < b.size(); ++j) {
      const double c = a[i] * b[j];
      if (c == 0) continue;
      if (i + j >= out.size()) return {};
      out[i + j] += c;
    }
  return out;
}
/// nullopt above x^3 and g.
std::optional<GeluTerm> times(const GeluTerm& a, const GeluTerm& b) {
  if (!is_zero(a.curved) && !is_zero(b.curved)) return {};
  const auto plain = times(a.plain, b.plain), left = times(a.curved, b.plain), right = times(a.plain, b.curved);
  if (!plain || !left || !right) return {};
  GeluTerm out{*plain, {}};
  for (size_t i = 0; i < out.curved.size(); ++i) out.curved[i] = (*left)[i] + (*right)[i];
  return out;
}
GeluTerm plus(GeluTerm a, const GeluTerm& b, double factor) {
  for (size_t i = 0; i < a.plain.size(); ++i) {
    a.plain[i] += factor * b.plain[i];
    a.curved[i] += factor * b.curved[i];
  }
  return a;
}

/// The value of a constant of one element, as far as it does not add dimensions.
std::optional<double> one_number(const StepGraph& step, Output o, const Output& beside) {
  const Tensor* value = step.constant(o);
  if (!value || value->elements() != 1) return {};
  const PartialShape shape = step.shape(beside);
  if (value->rank() > 0 && (!shape.has_rank() || shape.rank() < value->rank())) return {};
  switch (value->dtype()) {
    case DType::kFloat32: return static_cast<double>(value->data<float>()[0]);
    case DType::kFloat64: return value->data<double>()[0];
    case DType::kFloat16: return static_cast<double>(static_cast<float>(value->data<float16>()[0]));
    case DType::kBFloat16: return static_cast<double>(static_cast<float>(value->data<bfloat16>()[0]));
    default: return {};
  }
}

/// How far a coefficient may be off, of its size: constants and one product of two of them are rounded.
double slack(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 8 * 0x1p-23;
    case DType::kFloat64: return 8 * 0x1p-52;
    case DType::kFloat16: return 4 * 0x1p-10;
    default: return 4 * 0x1p-7;
  }
}

class GeluSearch {
 public:
  GeluSearch(const StepGraph& step, Output x) : step_(step), slack_(slack(x.dtype())) { found_.x = x; }

  std::optional<Gelu> from(const Node& last) {
    const auto all = term(last.out());
    if (!all || !curve_ || !near(all->plain, {0, 0.5})) return {};
    Cubic curved = all->curved;
    if (curved[1] < 0)  // the curve is odd
      for (Cubic* c : {&curved, &argument_})
        for (double& v : *c) v = -v;
    if (!near(curved, {0, 0.5})) return {};
    const double root = std::sqrt(2 / M_PI);
    found_.exact = curve_->op().name() != "Tanh";
    if (!near(argument_, found_.exact ? Cubic{0, std::sqrt(0.5)} : Cubic{0, root, 0, root * 0.044715})) return {};
    return std::move(found_);
  }

 private:
  bool near(const Cubic& got, const Cubic& wanted) const {
    for (size_t i = 0; i < got.size(); ++i)
      if (!(std::fabs(got[i] - wanted[i]) <= slack_ * std::fabs(wanted[i]))) return false;
    return true;
  }

  std::optional<GeluTerm> term(Output o) {
    o = step_.now(o);
    if (o == found_.x) return GeluTerm{{0, 1}, {}};
    if (const auto number = one_number(step_, o, found_.x)) return GeluTerm{{*number}, {}};
    const Node& node = *o.node;
    if (const auto known = std::ranges::find(found_.parts, &node); known != found_.parts.end())
      return terms_[static_cast<size_t>(known - found_.parts.begin())];
    // Parts under way count as well, so that no search is long or deep.
    if (++looked_at_ > kMostParts || node.num_outputs() != 1) return {};
    const auto value = of_inputs(node);
    if (!value) return {};
    found_.parts.push_back(&node);
    terms_.push_back(*value);
    return value;
  }

  std::optional<GeluTerm> of_inputs(const Node& node) {
    const std::string& op = node.op().name();
    const auto& in = node.inputs();
    const bool sum = op == "Add" || op == "AddV2", difference = op == "Sub", product = op == "Mul",
               quotient = op == "Div" || op == "RealDiv", power = op == "Pow";
    if (sum || difference || product || quotient || power) {
      const auto a = term(in[0]);
      if (!a) return {};
      const auto b = term(in[1]);
      if (!b) return {};
      if (sum || difference) return plus(*a, *b, sum ? 1 : -1);
      if (product) return times(*a, *b);
      if (!is_number(*b)) return {};
      const double by = b->plain[0];
      if (quotient) return by == 0 ? std::nullopt : times(*a, GeluTerm{{1 / by}, {}});
      if (by != 2 && by != 3) return {};
      const auto square = times(*a, *a);
      return square && by == 3 ? times(*square, *a) : square;
    }
    if (op != "Square" && op != "Neg" && op != "Tanh" && op != "Erf" && op != "Erfc") return {};
    const auto a = term(in[0]);
    if (!a) return {};
    if (op == "Square") return times(*a, *a);
    if (op == "Neg") return plus({}, *a, -1);
    if (curve_ || !is_zero(a->curved)) return {};
    curve_ = &node;
    argument_ = a->plain;
    return op == "Erfc" ? GeluTerm{{1}, {-1}} : GeluTerm{{}, {1}};
  }
  static bool is_number(const GeluTerm& t) {
    return is_zero(t.curved) && t.plain[1] == 0 && t.plain[2] == 0 && t.plain[3] == 0;
  }

  const StepGraph& step_;
  const double slack_;
  Gelu found_ = {};
  std::vector<GeluTerm> terms_;  // of each part
  size_t looked_at_ = 0;
  const Node* curve_ = nullptr;  // the Tanh, Erf or Erfc
  Cubic argument_ = {};          // its argument
};

}  // namespace

std::optional<Gelu> find_gelu(const StepGraph& step, const Node& last) {
  const auto combines = [](const Node& n) {
    const std::string& op = n.op().name();
    return n.inputs().size() == 2 && (op == "Mul" || op == "Add" || op == "AddV2" || op == "Div" || op == "RealDiv");
  };
  if (!combines(last)) return {};
  const DType dtype = last.dtype(0);
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64 && dtype != DType::kFloat16 && dtype != DType::kBFloat16)
    return {};
  // x itself is a factor of the result, so it is not far.
  std::vector<Output> near;
  const auto add = [&](const Output& input) {
    const Output o = step.now(input);
    if (o.dtype() == dtype && !step.constant(o) && std::ranges::find(near, o) == near.end()) near.push_back(o);
  };
  for (const Output& input : last.inputs()) add(input);
  for (size_t i = 0, direct = near.size(); i < direct; ++i)
    if (combines(*near[i].node))
      for (const Output& input : near[i].node->inputs()) add(input);
  for (const Output& x : near)
    if (auto found = GeluSearch(step, x).from(last)) return found;
  return {};
}

}  // namespace troupe
