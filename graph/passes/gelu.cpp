// SPDX-License-Identifier: Apache-2.0
// Computes with polynomials: each node between x and the result is a polynomial in x and in g, where g is the one Tanh
// or Erf; those of a gradient have exp(-x^2 / 2) too, and dy as a factor. So it does not matter in which order a graph
// multiplies, or whether it has x^3 as Pow or as products.
#include "graph/passes/gelu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace troupe {
namespace {

constexpr size_t kMostParts = 16;           // of 12 or fewer that are written usually
constexpr size_t kMostGradientParts = 112;  // of 65 where sizes are not known, else 28
constexpr size_t kMostNear = 96;            // nodes behind the last one of a gradient among which dy is looked for

/// Coefficients of 1, x, x^2, x^3.
using Cubic = std::array<double, 4>;

/// What a polynomial in x is multiplied by: 1, g, g^2, exp(-x^2 / 2).
enum GeluFactor : size_t { kOne, kCurve, kSquare, kBell, kFactors };

/// The sum of by[f] f for each factor; all of it times dy, if `of_dy`.
struct GeluTerm {
  std::array<Cubic, kFactors> by = {};
  bool of_dy = false;
};

GeluTerm number(double value) { return {.by = {Cubic{value}}}; }

bool is_zero(const Cubic& p) {
  return std::ranges::all_of(p, [](double c) { return c == 0; });
}
/// Whether no factor but this one is there.
bool is_of(const GeluTerm& t, GeluFactor factor) {
  for (size_t f = 0; f < kFactors; ++f)
    if (f != factor && !is_zero(t.by[f])) return false;
  return true;
}
bool is_number(const GeluTerm& t) {
  const Cubic& p = t.by[kOne];
  return is_of(t, kOne) && !t.of_dy && p[1] == 0 && p[2] == 0 && p[3] == 0;
}
/// Adds a b to `to`; false above x^3.
bool add_product(Cubic& to, const Cubic& a, const Cubic& b) {
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < b.size(); ++j) {
      const double c = a[i] * b[j];
      if (c == 0) continue;
      if (i + j >= to.size()) return false;
      to[i + j] += c;
    }
  return true;
}
/// nullopt above x^3, g^2 and dy.
std::optional<GeluTerm> times(const GeluTerm& a, const GeluTerm& b) {
  if (a.of_dy && b.of_dy) return {};
  GeluTerm out{.of_dy = a.of_dy || b.of_dy};
  for (size_t i = 0; i < kFactors; ++i)
    for (size_t j = 0; j < kFactors; ++j) {
      if (is_zero(a.by[i]) || is_zero(b.by[j])) continue;
      if (i != kOne && j != kOne && (i != kCurve || j != kCurve)) return {};
      if (!add_product(out.by[i + j], a.by[i], b.by[j])) return {};
    }
  return out;
}
/// nullopt where dy is a factor of one alone.
std::optional<GeluTerm> plus(GeluTerm a, const GeluTerm& b, double factor) {
  if (a.of_dy != b.of_dy) return {};
  for (size_t f = 0; f < kFactors; ++f)
    for (size_t i = 0; i < a.by[f].size(); ++i) a.by[f][i] += factor * b.by[f][i];
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

bool is_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}
bool adds_two(const std::string& op) { return op == "Add" || op == "AddV2"; }
bool divides_two(const std::string& op) { return op == "Div" || op == "RealDiv"; }
bool is_gelu_curve(const std::string& op) { return op == "Tanh" || op == "Erf" || op == "Erfc"; }

/// Finds what nodes are in terms of x, and of dy if there is one.
class GeluSearch {
 public:
  GeluSearch(const StepGraph& step, Output x, Output dy = {})
      : step_(step), x_(x), dy_(dy), most_parts_(dy ? kMostGradientParts : kMostParts), slack_(slack(x.dtype())) {}

  std::optional<Gelu> gelu(const Node& last) {
    auto all = term(last.out());
    if (!all || !curve_ || !turn(all->by[kCurve][1] < 0, *all)) return {};
    if (!near(all->by[kOne], {0, 0.5}) || !near(all->by[kCurve], {0, 0.5})) return {};
    if (!is_zero(all->by[kSquare]) || !is_zero(all->by[kBell])) return {};
    return Gelu{exact(), x_, std::move(parts_)};
  }

  std::optional<GeluGradient> gradient(const Node& last) {
    auto all = term(last.out());
    if (!all || !all->of_dy || !curve_ || !turn(all->by[kCurve][0] < 0, *all)) return {};
    // gelu' by tanh: (1 + g) / 2 + x / 2 (1 - g^2) u', where u is the argument of g.
    const double root = std::sqrt(2 / M_PI), first = exact() ? 0 : 0.5 * root, third = 3 * 0.044715 * first;
    if (!near(all->by[kOne], {0.5, first, 0, third}) || !near(all->by[kCurve], {0.5})) return {};
    if (!near(all->by[kSquare], {0, -first, 0, -third})) return {};
    if (!near(all->by[kBell], {0, exact() ? std::sqrt(0.5) * std::numbers::inv_sqrtpi : 0})) return {};
    GeluGradient found{exact(), dy_, x_, {}, {}};
    for (size_t i = 0; i < parts_.size(); ++i) (terms_[i].of_dy ? found.parts : found.kept).push_back(parts_[i]);
    found.parts.insert(found.parts.end(), sums_.begin(), sums_.end());
    return found;
  }

  /// Whether it is of x, and of no dy, which the search has not.
  bool is_of_x(const Output& o) {
    const auto found = term(o);
    return found && !is_number(*found);
  }
  /// Whether the argument of a curve is that of GELU.
  bool is_argument(const Node& curve) {
    const auto found = term(curve.inputs()[0]);
    curve_ = &curve;
    if (!found || !is_of(*found, kOne)) return false;
    argument_ = found->by[kOne];
    GeluTerm none;
    return turn(false, none) || turn(true, none);
  }

 private:
  bool exact() const { return curve_->op().name() != "Tanh"; }
  bool near(const Cubic& got, const Cubic& wanted) const {
    for (size_t i = 0; i < got.size(); ++i)
      if (!(std::fabs(got[i] - wanted[i]) <= slack_ * std::fabs(wanted[i]))) return false;
    return true;
  }
  /// Whether the curve's argument is that of GELU. The curve is odd: if `negative`, its argument and what it is
  /// multiplied by in `all` change their sign first.
  bool turn(bool negative, GeluTerm& all) {
    if (negative)
      for (Cubic* c : {&all.by[kCurve], &argument_})
        for (double& v : *c) v = -v;
    const double root = std::sqrt(2 / M_PI);
    return near(argument_, exact() ? Cubic{0, std::sqrt(0.5)} : Cubic{0, root, 0, root * 0.044715});
  }

  std::optional<GeluTerm> term(Output o) {
    o = step_.now(o);
    if (o == x_) return GeluTerm{.by = {Cubic{0, 1}}};
    if (dy_ && o == dy_) return GeluTerm{.by = {Cubic{1}}, .of_dy = true};
    if (const auto value = one_number(step_, o, x_)) return number(*value);
    const Node& node = *o.node;
    if (const auto known = std::ranges::find(parts_, &node); known != parts_.end())
      return terms_[static_cast<size_t>(known - parts_.begin())];
    // Parts under way count as well, so that no search is long or deep.
    if (++looked_at_ > most_parts_ || node.num_outputs() != 1) return {};
    const auto value = of_inputs(node);
    if (!value) return {};
    parts_.push_back(&node);
    terms_.push_back(*value);
    return value;
  }

  std::optional<GeluTerm> of_inputs(const Node& node) {
    const std::string& op = node.op().name();
    const auto& in = node.inputs();
    if (op == "AddN") {
      auto all = term(in[0]);
      for (size_t i = 1; i < in.size() && all; ++i) {
        const auto next = term(in[i]);
        all = next ? plus(*all, *next, 1) : std::nullopt;
      }
      return all;
    }
    if (dy_ && op == "Reshape") return of_unbroadcast(node);
    const bool sum = adds_two(op), difference = op == "Sub", product = op == "Mul", quotient = divides_two(op),
               power = op == "Pow", slope = op == "TanhGrad";
    if (sum || difference || product || quotient || power || slope) {
      const auto a = term(in[0]);
      if (!a) return {};
      const auto b = term(in[1]);
      if (!b) return {};
      if (sum || difference) return plus(*a, *b, sum ? 1 : -1);
      if (product) return times(*a, *b);
      if (slope) {
        const auto squared = times(*a, *a);
        const auto derivative = squared ? plus(number(1), *squared, -1) : std::nullopt;
        return derivative ? times(*derivative, *b) : std::nullopt;
      }
      if (!is_number(*b)) return {};
      const double by = b->by[kOne][0];
      if (quotient) return by == 0 ? std::nullopt : times(*a, number(1 / by));
      if (by != 2 && by != 3) return {};
      const auto square = times(*a, *a);
      return square && by == 3 ? times(*square, *a) : square;
    }
    const bool bell = dy_ && op == "Exp";
    if (op != "Square" && op != "Neg" && !bell && !is_gelu_curve(op)) return {};
    const auto a = term(in[0]);
    if (!a) return {};
    if (op == "Square") return times(*a, *a);
    if (op == "Neg") return times(*a, number(-1));
    if (!is_of(*a, kOne) || a->of_dy) return {};
    GeluTerm out;
    if (bell) {
      if (!near(a->by[kOne], {0, 0, -0.5})) return {};
      out.by[kBell] = {1};
      return out;
    }
    if (curve_) return {};
    curve_ = &node;
    argument_ = a->by[kOne];
    out.by[kCurve] = {op == "Erfc" ? -1.0 : 1.0};
    if (op == "Erfc") out.by[kOne] = {1};
    return out;
  }

  /// Reshape(Sum(d, axes), s) and Reshape(d, s) are d, where s is the shape of x or of what has it too, and axes are
  /// those along which something of that shape was repeated beside something of that shape, or a number.
  std::optional<GeluTerm> of_unbroadcast(const Node& reshape) {
    const Node& sum = *step_.now(reshape.inputs()[0]).node;
    if (!is_shape_of_x(reshape.inputs()[1])) return {};
    if (sum.op().name() != "Sum") return term(reshape.inputs()[0]);
    const Output axes = step_.now(sum.inputs()[1]);
    if (axes.node->op().name() != "BroadcastGradientArgs" || !axes.node->control_inputs().empty()) return {};
    const auto& shapes = axes.node->inputs();
    const auto of = static_cast<size_t>(axes.port);
    if (!is_shape_of_x(shapes[of]) || !(is_shape_of_x(shapes[1 - of]) || is_scalar_shape(shapes[1 - of]))) return {};
    const auto summed = term(sum.inputs()[0]);
    if (summed && summed->of_dy && std::ranges::find(sums_, &sum) == sums_.end()) sums_.push_back(&sum);
    return summed && summed->of_dy ? summed : std::nullopt;
  }
  /// Of what `o` is the shape, if it is one.
  std::optional<GeluTerm> of_shape(const Output& o) {
    const Node& shape = *step_.now(o).node;
    return shape.op().name() == "Shape" && shape.control_inputs().empty() ? term(shape.inputs()[0]) : std::nullopt;
  }
  bool is_shape_of_x(const Output& o) {
    const auto of = of_shape(o);
    return of && !is_number(*of) && !of->of_dy;
  }
  bool is_scalar_shape(const Output& o) {
    if (const Tensor* value = step_.constant(o)) return value->elements() == 0;
    const auto of = of_shape(o);
    return of && is_number(*of);
  }

  const StepGraph& step_;
  const Output x_, dy_;
  const size_t most_parts_;
  const double slack_;
  std::vector<const Node*> parts_;
  std::vector<GeluTerm> terms_;    // of each part
  std::vector<const Node*> sums_;  // Sums that add up nothing, each before a Reshape
  size_t looked_at_ = 0;
  const Node* curve_ = nullptr;  // the Tanh, Erf or Erfc
  Cubic argument_ = {};          // its argument
};

/// What nodes read that read one another up to `from`, the nearest first: what is of its type, and no constant.
std::vector<Output> behind(const StepGraph& step, const Node& from, size_t most) {
  std::vector<Output> found;
  const auto add_inputs = [&](const Node& node) {
    for (const Output& input : node.inputs()) {
      const Output o = step.now(input);
      if (o.dtype() == from.dtype(0) && found.size() < most && !step.constant(o) &&
          std::ranges::find(found, o) == found.end())
        found.push_back(o);
    }
  };
  add_inputs(from);
  for (size_t i = 0; i < found.size(); ++i) add_inputs(*found[i].node);
  return found;
}

/// What dy may be, where `last` ends the gradient of a GELU of x: it is multiplied by something of x or by Tanh's
/// derivative, perhaps after numbers.
std::vector<Output> possible_dys(const StepGraph& step, const std::vector<Output>& near, const Output& x) {
  std::vector<Output> found;
  for (const Output& product : near) {
    const std::string& op = product.node->op().name();
    if (op != "Mul" && op != "TanhGrad") continue;
    for (const size_t i : {0, 1}) {
      Output dy = step.now(product.node->inputs()[i]);
      if (step.constant(dy) || !GeluSearch(step, x).is_of_x(product.node->inputs()[1 - i])) continue;
      for (size_t more = kMostParts; more > 0 && std::ranges::find(found, dy) == found.end(); --more) {
        found.push_back(dy);
        const std::string& by = dy.node->op().name();
        const auto& in = dy.node->inputs();
        if (by == "Reshape" || by == "Sum") dy = step.now(in[0]);
        else if ((by == "Mul" || divides_two(by)) && step.constant(in[1])) dy = step.now(in[0]);
        else if (by == "Mul" && step.constant(in[0])) dy = step.now(in[1]);
        else break;
      }
    }
  }
  std::erase_if(found, [&](const Output& dy) {
    const PartialShape a = step.shape(dy), b = step.shape(x);
    return !a.has_rank() || !b.has_rank() || !std::ranges::equal(a.dims(), b.dims()) || GeluSearch(step, x).is_of_x(dy);
  });
  return found;
}

}  // namespace

std::optional<Gelu> find_gelu(const StepGraph& step, const Node& last) {
  const auto combines = [](const Node& n) {
    const std::string& op = n.op().name();
    return n.inputs().size() == 2 && (op == "Mul" || adds_two(op) || divides_two(op));
  };
  if (!combines(last)) return {};
  const DType dtype = last.dtype(0);
  if (!is_float(dtype)) return {};
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
    if (auto found = GeluSearch(step, x).gelu(last)) return found;
  return {};
}

std::optional<GeluGradient> find_gelu_gradient(const StepGraph& step, const Node& last) {
  if ((last.op().name() != "AddN" && !adds_two(last.op().name())) || !is_float(last.dtype(0))) return {};
  const std::vector<Output> near = behind(step, last, kMostNear);
  for (const Output& curve : near) {
    if (!is_gelu_curve(curve.node->op().name())) continue;
    for (const Output& x : behind(step, *curve.node, kMostParts)) {
      if (!GeluSearch(step, x).is_argument(*curve.node)) continue;
      for (const Output& dy : possible_dys(step, near, x))
        if (auto found = GeluSearch(step, x, dy).gradient(last)) return found;
    }
  }
  return {};
}

}  // namespace troupe
