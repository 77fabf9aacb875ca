// SPDX-License-Identifier: Apache-2.0
// One set of variables that follows another: target networks, moving averages of weights. Implemented in
// nn/variable_copies.cpp.
//
//   nn::Variables online("online"), target("target");
//   Output q = network(s.scope("online"), online, states), next = network(s.scope("target"), target, next_states);
//   ... const Node* train = nn::minimize(s, online, optimizer, loss);
//   const Node* follow = nn::follow_variables(s.after({train}), target, online, 0.005f);   // after each update
//   const Node* copy = nn::copy_variables(s, target, online);                              // once, and now and then
#pragma once
#include "troupe/export.h"
#include "troupe/nn.h"

namespace TROUPE_API troupe {
namespace nn {

/// Adds what gives each variable of `to` the value of the variable of the same name in `from`; returns the node to run,
/// after the initial values are assigned. The two are of one graph and of two containers; `from` may have more, such as
/// an optimizer's slots and the global step. What the scope waits for is done before a value is read, so on
/// scope.after({train}) each value is one with that update; without it, and beside a training step, values may be of
/// before and after an update. Each variable is read at its home and written at that of its copy. Errors: one container
/// for both; no variables in `to`; a variable that `from` has not, or has in another shape or dtype (both are named).
const Node* copy_variables(const ScopeAt& scope, Variables& to, Variables& from);

/// The same for to + share * (from - to), which with a share of 1 - decay is an exponential moving average. Variables
/// that are not floating are copied. Error, too: a share outside of [0, 1].
const Node* follow_variables(const ScopeAt& scope, Variables& to, Variables& from, float share);

}  // namespace nn
}  // namespace troupe
