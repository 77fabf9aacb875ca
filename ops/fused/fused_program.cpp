// SPDX-License-Identifier: Apache-2.0
// Checks of programs and of their shapes.
#include "ops/fused/fused_program.h"

#include <algorithm>

#include "ops/parts/broadcast.h"

namespace troupe {
namespace {

bool of_one(FusedKind kind) { return kind == FusedKind::kUnary || kind == FusedKind::kReduce; }

/// Of what `step` makes of values of these shapes.
Result<Shape> shape_of(const FusedStep& step, const Shape& a, const Shape& b) {
  const auto fault = [&](const std::string& why) { return invalid_argument("in {}: {}", step.function.op, why); };
  if (step.function.kind == FusedKind::kReduce) {
    if (a.rank() == 0) return fault("a scalar has no last dimension");
    Shape shape = a;
    shape.set(a.rank() - 1, 1);
    return shape;
  }
  if (a == b) return a;
  if (!step.function.broadcasts) return fault(fmt::format("shapes {} and {} differ", a.str(), b.str()));
  auto both = broadcast(a, b);
  if (!both.ok()) return fault(both.error().message);
  if (step.function.kind == FusedKind::kSpread && *both != b)
    return fault(fmt::format("{} does not broadcast to {}", a.str(), b.str()));
  return *both;
}

}  // namespace

Result<FusedProgram> FusedProgram::parse(const KernelInit& init,
                                         const std::function<std::optional<FusedFunction>(std::string_view op)>& find) {
  FusedProgram program{.dtype = init.attr<DType>("T"), .inputs = static_cast<size_t>(init.attr<int64_t>("N"))};
  const auto& ops = init.attr<std::vector<std::string>>("ops");
  const auto& operands = init.attr<std::vector<int64_t>>("operands");
  if (ops.empty() || program.inputs > kMostFused || ops.size() > kMostFused || operands.size() != 2 * ops.size())
    return invalid_argument(
        "{} operands for {} functions of {} inputs; of each there may be {}, and two operands are "
        "needed for a function",
        operands.size(), ops.size(), program.inputs, kMostFused);
  for (size_t j = 0; j < ops.size(); ++j) {
    const auto function = find(ops[j]);
    if (!function) return invalid_argument("'{}' of {} cannot be fused", ops[j], to_string(program.dtype));
    const int64_t a = operands[2 * j], b = of_one(function->kind) ? a : operands[2 * j + 1];
    const auto known = static_cast<int64_t>(program.inputs + j);
    if (a < 0 || a >= known || b < 0 || b >= known)
      return invalid_argument("function {} has the operands {} and {}, but {} values before it", j, a, b, known);
    program.steps.push_back({*function, static_cast<size_t>(a), static_cast<size_t>(b)});
  }
  return program;
}

bool FusedProgram::by_rows() const {
  return std::ranges::any_of(steps, [](const FusedStep& s) { return s.by_rows(); });
}

Result<std::vector<Shape>> FusedProgram::shapes(const KernelContext& c) const {
  std::vector<Shape> shapes;
  shapes.reserve(inputs + steps.size());
  for (size_t i = 0; i < inputs; ++i) shapes.push_back(c.input(static_cast<int>(i)).shape());
  for (const FusedStep& step : steps) {
    TROUPE_ASSIGN(Shape shape, shape_of(step, shapes[step.a], shapes[step.b]));
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

Result<Shape> FusedProgram::shape(const KernelContext& c) const {
  const Shape& first = c.input(0).shape();
  int same = 1;
  while (same < c.num_inputs() && c.input(same).shape() == first) ++same;
  if (same == c.num_inputs() && !by_rows()) return first;
  TROUPE_ASSIGN(std::vector<Shape> all, shapes(c));
  return std::move(all.back());
}

Result<Tensor> FusedProgram::result(KernelContext& c, const Shape& shape) const {
  for (int i = 0; i < c.num_inputs(); ++i)
    if (c.input(i).unique() && c.input(i).shape() == shape) return c.forward_or_allocate(i, dtype, shape);
  return c.allocate(dtype, shape);
}

}  // namespace troupe
