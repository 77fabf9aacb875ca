// SPDX-License-Identifier: Apache-2.0
// Copies of variables, whole or by a share of the difference.
#include "troupe/variable_copies.h"

#include <algorithm>

namespace troupe::nn {
namespace {

/// The value of a variable at its home once what the scope waits for is done. (Variables::read gives one that may have
/// been read before.)
Output value_now(const Scope& scope, Variables& variables, const Variable& v) {
  const Scope home = variables.home(scope, v.name);
  return home.op("ReadVariableOp", {variables.handle(scope, v)}, {{"dtype", v.dtype}});
}

/// Calls write(scope, handle, variable, value) for each variable of `to`, and gathers the nodes that it returns.
template <class F>
const Node* for_each_pair(const ScopeAt& scope, const char* who, Variables& to, Variables& from, F write) {
  if (!scope.ok()) return nullptr;
  const auto fail = [&](Error error) {
    error.message = fmt::format("{}: {}", who, error.message);
    scope.fail(std::move(error));
    return nullptr;
  };
  if (to.container() == from.container())
    return fail(
        invalid_argument("both sets of variables are of container '{}', where a name is one variable", to.container()));
  if (to.all().empty()) return fail(invalid_argument("there are no variables in '{}' to write to", to.container()));
  const std::vector<Variable> written = to.all(), read = from.all();
  std::vector<const Node*> done;
  for (const Variable& v : written) {
    const auto same = std::ranges::find(read, v.name, &Variable::name);
    if (same == read.end())
      return fail(invalid_argument("variable '{}' of '{}' is not in '{}'", v.name, to.container(), from.container()));
    if (same->shape != v.shape || same->dtype != v.dtype)
      return fail(invalid_argument("variable '{}' is {}{} in '{}' and {}{} in '{}'", v.name, to_string(v.dtype),
                                   v.shape.str(), to.container(), to_string(same->dtype), same->shape.str(),
                                   from.container()));
    const Scope own = scope.scope(v.name);
    const Output value = value_now(own, from, *same);
    done.push_back(write(to.home(own, v.name), to.handle(own, v), v, value));
    if (!scope.ok()) return nullptr;
  }
  return scope.after(done).named("written").node("NoOp", {});
}

}  // namespace

const Node* copy_variables(const ScopeAt& scope, Variables& to, Variables& from) {
  return for_each_pair(scope.scope("copy"), "copy_variables", to, from,
                       [](const Scope& s, Output handle, const Variable&, Output value) {
                         return s.node("AssignVariableOp", {handle, value});
                       });
}

const Node* follow_variables(const ScopeAt& scope, Variables& to, Variables& from, float share) {
  if (!(share >= 0 && share <= 1)) {
    scope.fail(invalid_argument("follow_variables: the share must be from 0 to 1, got {}", share));
    return nullptr;
  }
  return for_each_pair(scope.scope("follow"), "follow_variables", to, from,
                       [&](const Scope& s, Output handle, const Variable& v, Output value) {
                         if (!is_floating(v.dtype)) return s.node("AssignVariableOp", {handle, value});
                         const Output now = s.op("ReadVariableOp", {handle}, {{"dtype", v.dtype}});
                         const Output by = s.op("Cast", {s.constant(share)}, {{"DstT", v.dtype}});
                         const Output step = s.op("Mul", {s.op("Sub", {value, now}), by});
                         return s.node("AssignAddVariableOp", {handle, step});
                       });
}

}  // namespace troupe::nn
