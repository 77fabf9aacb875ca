// SPDX-License-Identifier: Apache-2.0
// Checks of programs and of their shapes.
#include "ops/fused/fused_program.h"

#include "ops/parts/broadcast.h"

namespace troupe {

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
    const int64_t a = operands[2 * j], b = function->unary ? a : operands[2 * j + 1];
    const auto known = static_cast<int64_t>(program.inputs + j);
    if (a < 0 || a >= known || b < 0 || b >= known)
      return invalid_argument("function {} has the operands {} and {}, but {} values before it", j, a, b, known);
    program.steps.push_back({*function, static_cast<size_t>(a), static_cast<size_t>(b)});
  }
  return program;
}

Result<Shape> FusedProgram::shape(const KernelContext& c) const {
  const Shape& first = c.input(0).shape();
  int same = 1;
  while (same < c.num_inputs() && c.input(same).shape() == first) ++same;
  if (same == c.num_inputs()) return first;
  std::vector<Shape> made;
  made.reserve(steps.size());  // pointers into it stay
  std::vector<const Shape*> shapes;
  for (size_t i = 0; i < inputs; ++i) shapes.push_back(&c.input(static_cast<int>(i)).shape());
  for (const FusedStep& step : steps) {
    const Shape &a = *shapes[step.a], &b = *shapes[step.b];
    if (a == b) {
      shapes.push_back(&a);
      continue;
    }
    if (!step.function.broadcasts)
      return invalid_argument("in {}: shapes {} and {} differ", step.function.op, a.str(), b.str());
    auto both = broadcast(a, b);
    if (!both.ok()) return invalid_argument("in {}: {}", step.function.op, both.error().message);
    shapes.push_back(&made.emplace_back(*both));
  }
  return *shapes.back();
}

Result<Tensor> FusedProgram::result(KernelContext& c, const Shape& shape) const {
  for (int i = 0; i < c.num_inputs(); ++i)
    if (c.input(i).unique() && c.input(i).shape() == shape) return c.forward_or_allocate(i, dtype, shape);
  return c.allocate(dtype, shape);
}

}  // namespace troupe
