// SPDX-License-Identifier: Apache-2.0
// Functions of a GraphDef's library, put in where they are called while a graph is read: calls become the nodes of the
// function; If and Case become Switch and Merge, While becomes Enter, Merge, Switch, NextIteration and Exit.
//
//   y = While(x, cond=c, body=b)    y/enter_0 = Enter(x)    y/merge_0 = Merge(y/enter_0, y/next_0)
//                                   y/cond/... , y/loop_cond = LoopCond(c's value)
//                                   y/switch_0 = Switch(y/merge_0, y/loop_cond)    y/value_0 = Identity(y/switch_0:1)
//                                   y/body/... , y/next_0 = NextIteration(b's value)
//                                   y/exit_0 = Exit(y/switch_0)    y = IdentityN(y/exit_0)
//
// A function that another node names, as a MapDataset does, becomes a graph of its own which the node carries, for
// whoever runs it to call (tensor/function_caller.h).
//
// The node of the call stays under its name with its outputs (IdentityN; NoOp where there are none), and runs after
// everything that the function says must run.
#pragma once
#include <string>
#include <string_view>

#include "graph/graph_def/graph.pb.h"
#include "troupe/op.h"

namespace troupe {

/// What is left of a SymbolicGradient, for whoever adds the nodes to a graph, since gradients are nodes of a graph: an
/// op whose inputs are the function's values, its arguments, and the gradients by the values, so many of each as the
/// attributes `values` and `arguments` say; its outputs are the gradients by the arguments.
inline constexpr std::string_view kFunctionGradient = "_FunctionGradient";

/// The attribute of a node that carries functions which says the container of the resources in these that name none.
inline constexpr std::string_view kContainerOfFunctions = "_container";

/// What a call of a function by an op becomes, as text; empty where the op is none that calls.
std::string form_of_call(std::string_view op);

/// Puts in every function that a node calls, also those that functions call: PartitionedCall, StatefulPartitionedCall,
/// BatchFunction, a node named as a function; If, StatelessIf, Case, StatelessCase, While, StatelessWhile,
/// SymbolicGradient; nodes of ops that `ops` has call nothing. Takes the library out.
/// Errors name the call: kNotFound for a function or an output of a node that is not there; kInvalidArgument for
/// another number of inputs or outputs than the function has, a function that calls itself, or calls within more than
/// 64 calls; kResourceExhausted for calls that would become more than 1,000,000 nodes or 1 GiB, before memory is taken
/// for them; kUnimplemented for arguments that are lists; kNotFound for an op that is not known in a function that a
/// node carries.
Status put_in_functions(proto::GraphDef& def, const OpRegistry& ops);

}  // namespace troupe
