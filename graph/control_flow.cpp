// SPDX-License-Identifier: Apache-2.0
// Branches are Switch and Merge around what both sides bring in; a loop is Enter, Merge, Switch and NextIteration for
// each of its values.
#include "troupe/control_flow.h"

#include "graph/loop_builder.h"

namespace troupe {
namespace {

const char* plural(size_t n) { return n == 1 ? "" : "s"; }

/// One side of a cond: its outputs, brought in where they are from outside.
std::vector<Output> build_branch(const Scope& scope, Output predicate, bool side, const BranchFn& fn) {
  const Output pivot_switch = scope.named("switch_pred").op("Switch", {predicate, predicate});
  if (!pivot_switch) return {};
  const Node* pivot = scope.named("pivot").node("Identity", {{pivot_switch.node, side}});
  if (!pivot) return {};
  auto context = std::make_shared<FlowContext>(scope.flow(), pivot, [scope, predicate, side](Output outside) -> Output {
    const Node* node = scope.named("switch").node("Switch", {outside, predicate});
    return node ? node->out(side) : Output{};
  });
  context->add(pivot);
  std::vector<Output> outputs = fn(scope.within(context).told_at_each_line());
  for (Output& out : outputs)
    if (out) out = context->inside(out);
  return outputs;
}

PartialShape row_shape(const PartialShape& shape) {
  PartialShape row = shape.has_rank() ? PartialShape::scalar() : PartialShape::unknown();
  for (int i = 1; i < shape.rank(); ++i) row.push_back(shape[i]);
  return row;
}

Output first_size(const Scope& scope, Output t) {
  if (t.shape().has_rank() && t.shape()[0] >= 0) return scope.constant(static_cast<int32_t>(t.shape()[0]));
  const auto at = [&](int32_t i) { return scope.constant(Tensor::of<int32_t>({i})); };
  return scope.op("StridedSlice", {scope.op("Shape", {t}), at(0), at(1), at(1)}, {{"shrink_axis_mask", int64_t{1}}});
}

std::vector<Output> build_loop(const Scope& scope, const std::vector<Output>& init, const LoopPredicate& predicate,
                               const LoopBody& body, const WhileOptions& options) {
  if (!scope.ok()) return {};
  const auto fail = [&](Error error) -> std::vector<Output> {
    scope.fail(std::move(error));
    return {};
  };
  if (init.empty()) return fail(invalid_argument("a loop needs a value"));
  if (options.parallel_iterations < 1)
    return fail(invalid_argument("parallel_iterations = {} must be at least 1", options.parallel_iterations));
  if (!options.shapes.empty() && options.shapes.size() != init.size())
    return fail(invalid_argument("{} shapes for {} values of a loop", options.shapes.size(), init.size()));
  // Loops are told apart by their scopes' names.
  const std::string name = options.name.empty() ? WhileOptions().name : options.name;
  LoopBuilder loop(scope.scope(name), options.parallel_iterations);
  const Scope& inside = loop.inside();
  std::vector<Output> merges;
  for (size_t i = 0; i < init.size(); ++i) {
    if (!init[i]) return fail(invalid_argument("value {} that a loop begins with is empty", i));
    merges.push_back(loop.open(init[i], options.shapes.empty() ? init[i].shape() : options.shapes[i]));
    if (!merges.back()) return {};
  }
  loop.set_pivot(merges[0].node);
  const Output proceed = predicate(inside.scope("cond"), merges);
  if (!scope.ok()) return {};
  if (!proceed || proceed.dtype() != DType::kBool)
    return fail(invalid_argument("the predicate of a loop must be a bool, not {}",
                                 proceed ? to_string(proceed.dtype()) : "empty"));
  loop.set_condition(proceed);
  std::vector<LoopValue> values;
  std::vector<Output> seen, exits;
  for (const Output& merge : merges) {
    values.push_back(loop.split(merge));
    seen.push_back(values.back().value);
    exits.push_back(values.back().exit);
  }
  if (!scope.ok()) return {};
  loop.set_pivot(seen[0].node);
  const std::vector<Output> results = body(inside.scope("body"), seen);
  if (!scope.ok()) return {};
  if (results.size() != init.size())
    return fail(invalid_argument("the body of a loop gives {} value{} for {}", results.size(), plural(results.size()),
                                 init.size()));
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i]) return fail(invalid_argument("value {} that the body of a loop gives is empty", i));
    loop.close(values[i], results[i]);
  }
  if (!scope.ok()) return {};
  return exits;
}

}  // namespace

std::vector<Output> cond(const ScopeAt& scope, Output predicate, const BranchFn& then, const BranchFn& otherwise) {
  if (!scope.ok()) return {};
  const Scope s = scope.scope("cond");
  if (!then || !otherwise) {
    scope.fail(invalid_argument("a branch of a cond is an empty function: the one for {}", then ? "false" : "true"));
    return {};
  }
  if (!predicate) {
    scope.fail(invalid_argument("the predicate of a cond is empty"));
    return {};
  }
  if (scope.flow()) predicate = scope.flow()->inside(predicate);
  const std::vector<Output> second = build_branch(s.scope("else"), predicate, false, otherwise);
  const std::vector<Output> first = build_branch(s.scope("then"), predicate, true, then);
  if (!s.ok()) return {};
  if (first.size() != second.size()) {
    scope.fail(invalid_argument("one branch of a cond gives {} output{}, the other {}", first.size(),
                                plural(first.size()), second.size()));
    return {};
  }
  std::vector<Output> merged;
  for (size_t i = 0; i < first.size(); ++i) {
    if (!first[i] || !second[i] || first[i].dtype() != second[i].dtype()) {
      scope.fail(invalid_argument("output {} of a cond is {} in one branch and {} in the other", i,
                                  first[i] ? to_string(first[i].dtype()) : "empty",
                                  second[i] ? to_string(second[i].dtype()) : "empty"));
      return {};
    }
    merged.push_back(s.named("merge").op("Merge", {second[i], first[i]}));
  }
  return merged;
}

std::vector<Output> while_loop(const ScopeAt& scope, const std::vector<Output>& init, const LoopPredicate& predicate,
                               const LoopBody& body, WhileOptions options) {
  if (!predicate || !body) {
    scope.fail(invalid_argument("the {} of a loop is an empty function", predicate ? "body" : "predicate"));
    return {};
  }
  return build_loop(
      scope, init, [&](const Scope& s, const std::vector<Output>& v) { return predicate(s.told_at_each_line(), v); },
      [&](const Scope& s, const std::vector<Output>& v) { return body(s.told_at_each_line(), v); }, options);
}

std::vector<Output> scan(const ScopeAt& scope, const std::vector<Output>& tensors, const std::vector<Output>& init,
                         const ScanBody& body, WhileOptions options) {
  if (!scope.ok()) return {};
  const auto fail = [&](Error error) -> std::vector<Output> {
    scope.fail(std::move(error));
    return {};
  };
  if (!body) return fail(invalid_argument("the body of a scan is an empty function"));
  if (tensors.empty() || init.empty()) return fail(invalid_argument("a scan needs a tensor and a value"));
  for (const Output& t : tensors)
    if (!t || t.shape().rank() == 0)
      return fail(invalid_argument("{} has no rows to scan", t ? t.name() : "an empty output"));
  if (const PartialShape& shape = tensors[0].shape(); shape.has_rank() && shape[0] > INT32_MAX)
    return fail(invalid_argument("{} has {} rows, more than a scan counts", tensors[0].name(), shape[0]));
  if (!options.shapes.empty() && options.shapes.size() != init.size())
    return fail(invalid_argument("{} shapes for {} values of a scan", options.shapes.size(), init.size()));

  const Scope outer = scope.scope(options.name + "_lists");
  const Output rows = first_size(outer, tensors[0]);
  std::vector<Output> from, shapes;
  for (const Output& t : tensors) {
    shapes.push_back(size_vector(outer, row_shape(t.shape())));
    from.push_back(outer.op("TensorListFromTensor", {t, shapes.back()}));
  }
  // Carried: the index, the state, and for each value of it the list of what it was.
  std::vector<Output> carried = {outer.constant<int32_t>(0)}, kept_shapes;
  carried.insert(carried.end(), init.begin(), init.end());
  std::vector<PartialShape> promised = {PartialShape::scalar()};
  for (size_t i = 0; i < init.size(); ++i) {
    if (!init[i]) return fail(invalid_argument("value {} that a scan begins with is empty", i));
    promised.push_back(options.shapes.empty() ? init[i].shape() : options.shapes[i]);
    kept_shapes.push_back(size_vector(outer, promised.back()));
  }
  for (size_t i = 0; i < init.size(); ++i) {
    carried.push_back(outer.op("TensorListReserve", {kept_shapes[i], rows}, {{"element_dtype", init[i].dtype()}}));
    promised.push_back(PartialShape::scalar());
  }
  if (!scope.ok()) return {};
  options.shapes = promised;
  const auto values = static_cast<ptrdiff_t>(init.size());
  const std::vector<Output> ended = build_loop(
      scope, carried,
      [&](const Scope& s, const std::vector<Output>& v) {
        return s.op("Less", {v[0], rows});
      },
      [&](const Scope& s, const std::vector<Output>& v) -> std::vector<Output> {
        std::vector<Output> items;
        for (size_t i = 0; i < from.size(); ++i)
          items.push_back(
              s.op("TensorListGetItem", {from[i], v[0], shapes[i]}, {{"element_dtype", tensors[i].dtype()}}));
        std::vector<Output> next = {s.op("AddV2", {v[0], s.constant<int32_t>(1)})};
        const std::vector<Output> state = body(s.told_at_each_line(), {v.begin() + 1, v.begin() + 1 + values}, items);
        // Said here: the loop counts more values than the caller's.
        if (s.ok() && state.size() != init.size())
          s.fail(invalid_argument("the body of a scan gives {} value{} for {}", state.size(), plural(state.size()),
                                  init.size()));
        for (size_t i = 0; i < state.size() && s.ok(); ++i)
          if (!state[i]) s.fail(invalid_argument("value {} that the body of a scan gives is empty", i));
        if (!s.ok()) return {};
        next.insert(next.end(), state.begin(), state.end());
        for (size_t i = 0; i < init.size(); ++i)
          next.push_back(s.op("TensorListSetItem", {v[1 + init.size() + i], v[0], state[i]}));
        return next;
      },
      options);
  const PartialShape& scanned = tensors[0].shape();
  const int64_t known_rows = scanned.has_rank() ? scanned[0] : -1;
  std::vector<Output> out;
  for (size_t i = 0; i < init.size() && !ended.empty(); ++i)
    out.push_back(outer.op("TensorListStack", {ended[1 + init.size() + i], kept_shapes[i]},
                           {{"element_dtype", init[i].dtype()}, {"num_elements", known_rows}}));
  return out;
}

bool in_loop(const Scope& scope) { return scope.flow() && scope.flow()->in_loop(); }

}  // namespace troupe
