// SPDX-License-Identifier: Apache-2.0
// What ops of imported graphs become.
#include "graph/graph_def/imported_forms.h"

#include "graph/graph_def/graph.pb.h"
#include "tests/graph/passes/pass_fixture.h"

using namespace troupe;

TEST_CASE("older ops and ops on references and functions say what they become") {
  const test::RealOps f;
  const auto form = [&](const char* op) { return imported_form(op, f.ops); };
  CHECK(form("VariableV2") == "VarHandleOp, ReadVariableOp");
  CHECK(form("AssignAdd") == "AssignAddVariableOp, ReadVariableOp");
  CHECK(form("SparseApplyAdagrad") == "ResourceSparseApplyAdagrad, ReadVariableOp");
  CHECK(form("CountUpTo") == "ResourceCountUpTo");
  CHECK(form("RefSwitch") == "Switch");
  CHECK(form("QueueDequeueMany") == "QueueDequeueManyV2");
  CHECK(form("AccumulatorTakeGradient") == "ResourceAccumulatorTakeGradient");
  CHECK(form("BatchCholesky") == "Cholesky");
  CHECK(form("StatefulPartitionedCall") == "the nodes of its function, IdentityN");
  CHECK_THAT(form("StatelessIf"), Catch::Contains("Switch, Merge"));
  CHECK_THAT(form("AddSparseToTensorsMap"), Catch::Contains("_SparseTensorsMapInsert"));
  for (const char* op :
       {"MatMul", "NoSuchOp", "", "QueueOfNobody", "State", "Stateless", "StatefulIf", "StatelessPartitionedCall"})
    CHECK(form(op).empty());
}

TEST_CASE("what ops become are ops that there are") {
  const test::RealOps f;
  const auto forms = imported_forms(f.ops);
  for (const char* op : {"Variable",
                         "Assign",
                         "ApplyMomentum",
                         "SparseApplyFtrl",
                         "ScatterNdAdd",
                         "FIFOQueue",
                         "ReaderRead",
                         "HashTable",
                         "ConditionalAccumulator",
                         "MutexAcquire",
                         "Case",
                         "While",
                         "FusedBatchNorm",
                         "FusedBatchNormGradV2",
                         "BatchMatrixInverse",
                         "BatchFFT",
                         "Conv",
                         "Stack",
                         "TensorArrayPack",
                         "SelfAdjointEig",
                         "Conv3DBackpropInput"})
    CHECK(forms.contains(op));
  for (const auto& [op, form] : forms) {
    INFO(op << ": " << form);
    CHECK_FALSE(f.ops.find(op));
    std::string_view rest = form;
    while (!rest.empty()) {
      const std::string_view part = rest.substr(0, rest.find(", "));
      rest.remove_prefix(std::min(rest.size(), part.size() + 2));
      if (!part.starts_with("the nodes")) CHECK(f.ops.find(part));
    }
  }
}

TEST_CASE("the ops of a file are those that were written, also in functions") {
  proto::GraphDef def;
  def.add_node()->set_op("Assign");
  def.mutable_library()->add_function()->add_node_def()->set_op("Mul");
  CHECK(ops_in_file(def.SerializeAsString()) == std::set<std::string>{"Assign", "Mul"});
  CHECK(ops_in_file("\xff\xff").empty());
}
