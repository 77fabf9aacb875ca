// SPDX-License-Identifier: Apache-2.0
// Reference variables, TensorFlow's older form, rewritten to handles while a graph is read.
//
//   v = VariableV2                      v/handle = VarHandleOp          v = ReadVariableOp(v/handle)
//   r = Identity(v, ^c)                 r = ReadVariableOp(v/handle, ^c)
//   a = AssignAdd(v, x)                 a/update = AssignAddVariableOp(v/handle, x)
//                                       a = ReadVariableOp(v/handle, ^a/update)
//   y = Mul(a, x)                       y/read = ReadVariableOp(v/handle, ^a/update, ^x)     y = Mul(y/read, x)
//
// TensorFlow takes the value of a reference when the node that wants it runs; so does the read that stands for it: it
// waits for what that node waits for. The same holds of an identity of the reference (r above), but only for nodes that
// come after an update that the identity does not come after, in a branch or a loop too; the others take the identity's
// value. Names that were there still are, and their outputs are values, so that any of them may be fetched.
#pragma once
#include <string>
#include <string_view>

#include "graph/graph_def/graph.pb.h"
#include "troupe/op.h"

namespace troupe {

/// What an op on references becomes, as text; empty where it stays.
std::string form_without_references(const std::string& op, const OpRegistry& ops);

/// Rewrites `def`: VariableV2, Variable, TemporaryVariable and DestroyTemporaryVariable; Assign, AssignAdd, AssignSub,
/// CountUpTo, IsVariableInitialized, Scatter..., Apply..., SparseApply..., StridedSliceAssign; RefSwitch, RefMerge and
/// their kin, through which references become handles. A variable is called as its node, below `prefix` (empty or with
/// '/' at its end). Ops that `ops` has, and those that have no form for handles there, stay as they are. Errors:
/// kInvalidArgument for an op on a reference whose input is none.
Status rewrite_reference_variables(proto::GraphDef& def, const OpRegistry& ops, std::string_view prefix);

}  // namespace troupe
