// SPDX-License-Identifier: Apache-2.0
// Ops on references to queues and their kin are read as their forms for handles; others stay.
#include "graph/graph_def/renamed_ops.h"

#include <catch2/catch.hpp>

#include "graph/graph_def/node_def.h"
#include "tests/op_library.h"

using namespace troupe;

TEST_CASE("ops of older graphs get the names of those on handles") {
  const auto& [ops, kernels] = *testing::op_library();
  const auto renamed = [&](const char* op) {
    proto::GraphDef def;
    def.add_node()->set_op(op);
    rename_old_ops(def, ops);
    return def.node(0).op();
  };
  for (const char* op : {"FIFOQueue",
                         "RandomShuffleQueue",
                         "PaddingFIFOQueue",
                         "PriorityQueue",
                         "QueueEnqueueMany",
                         "QueueDequeueUpTo",
                         "QueueClose",
                         "QueueSize",
                         "TextLineReader",
                         "FixedLengthRecordReader",
                         "TFRecordReader",
                         "WholeFileReader",
                         "IdentityReader",
                         "ReaderRead",
                         "ReaderReadUpTo",
                         "ReaderNumRecordsProduced",
                         "ReaderNumWorkUnitsCompleted",
                         "ReaderReset",
                         "HashTable",
                         "MutableHashTable",
                         "MutableHashTableOfTensors",
                         "LookupTableFind",
                         "LookupTableSize",
                         "InitializeTable",
                         "InitializeTableFromTextFile"})
    CHECK(renamed(op) == std::string(op) + "V2");
  for (const char* op : {"ConditionalAccumulator", "AccumulatorApplyGradient", "AccumulatorTakeGradient",
                         "AccumulatorSetGlobalStep", "AccumulatorNumAccumulated"})
    CHECK(renamed(op) == std::string("Resource") + op);
  for (const char* op :
       {"MatMul", "MutableDenseHashTable", "Barrier", "SparseConditionalAccumulator", "QueueOfNobody", "FIFOQueueV2"})
    CHECK(renamed(op) == op);
  CHECK(renamed("BiasAddV1") == "BiasAdd");
  CHECK(renamed("PlaceholderV2") == "Placeholder");
  CHECK(renamed("ExperimentalScanDataset") == "ScanDataset");
  CHECK(renamed("ExperimentalSqlDataset") == "ExperimentalSqlDataset");
  for (const char* op : {"MatrixInverse", "MatrixDeterminant", "MatrixSolve", "MatrixSolveLs", "MatrixTriangularSolve",
                         "MatrixBandPart", "MatrixDiag", "MatrixDiagPart", "MatrixSetDiag", "Cholesky", "CholeskyGrad",
                         "SelfAdjointEigV2", "Svd", "FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D"})
    CHECK(renamed((std::string("Batch") + op).c_str()) == op);
  CHECK(renamed("BatchMatMul") == "BatchMatMul");
  CHECK(renamed("BatchSelfAdjointEig") == "BatchSelfAdjointEig");
}

TEST_CASE("what only watches a value becomes Identity, without what else it says") {
  const auto& [ops, kernels] = *testing::op_library();
  for (const char* op : {"Copy", "DebugIdentityV2", "DeepCopy", "XlaSharding", "XlaOptimizationBarrier"}) {
    proto::GraphDef def;
    proto::NodeDef& node = *def.add_node();
    node.set_op(op);
    set_attr(node, "T").set_type(proto::DT_FLOAT);
    set_attr(node, "tensor_name").set_s("x");
    set_attr(node, "_class").set_s("loc");
    rename_old_ops(def, ops);
    CHECK(node.op().starts_with("Identity"));
    CHECK(find_attr(node, "T"));
    CHECK(find_attr(node, "_class"));
    CHECK_FALSE(find_attr(node, "tensor_name"));
  }
}

TEST_CASE("ApproxTopK is TopK where it asks for the largest along the last dimension") {
  const auto& [ops, kernels] = *testing::op_library();
  for (const auto& [dimension, largest] : {std::pair(-1, true), std::pair(0, true), std::pair(-1, false)}) {
    proto::GraphDef def;
    proto::NodeDef& node = *def.add_node();
    node.set_op("ApproxTopK");
    set_attr(node, "k").set_i(3);
    set_attr(node, "reduction_dimension").set_i(dimension);
    set_attr(node, "is_max_k").set_b(largest);
    rename_old_ops(def, ops);
    const bool is_top_k = dimension == -1 && largest;
    CHECK(node.op() == (is_top_k ? "TopK" : "ApproxTopK"));
    CHECK(node.attr_size() == (is_top_k ? 1 : 3));
  }
}

TEST_CASE("tensor arrays of older graphs get their later names") {
  const auto& [ops, kernels] = *testing::op_library();
  for (const auto& [op, form] :
       {std::pair("TensorArray", "TensorArrayV3"), std::pair("TensorArrayV2", "TensorArrayV3"),
        std::pair("TensorArrayWriteV2", "TensorArrayWriteV3"), std::pair("TensorArrayGradV2", "TensorArrayGradV3"),
        std::pair("TensorArrayPack", "TensorArrayPack")}) {
    proto::GraphDef def;
    def.add_node()->set_op(op);
    rename_old_ops(def, ops);
    CHECK(def.node(0).op() == form);
  }
}

TEST_CASE("tables without a name get that of their node") {
  const auto& [ops, kernels] = *testing::op_library();
  for (const auto& [op, form] :
       {std::pair("AnonymousHashTable", "HashTableV2"), std::pair("AnonymousMutableHashTable", "MutableHashTableV2"),
        std::pair("AnonymousMutableHashTableOfTensors", "MutableHashTableOfTensorsV2"),
        std::pair("AnonymousMutableDenseHashTable", "MutableDenseHashTableV2"),
        std::pair("AnonymousIterator", "AnonymousIterator")}) {
    proto::GraphDef def;
    def.add_node()->set_op(op);
    rename_old_ops(def, ops);
    CHECK(def.node(0).op() == form);
  }
}

TEST_CASE("mutexes have the white paper's names too") {
  const auto& [ops, kernels] = *testing::op_library();
  for (const auto& [op, form] :
       {std::pair("MutexAcquire", "MutexLock"), std::pair("MutexRelease", "ConsumeMutexLock")}) {
    proto::GraphDef def;
    def.add_node()->set_op(op);
    rename_old_ops(def, ops);
    CHECK(def.node(0).op() == form);
    CHECK(ops.find(form));
  }
}

TEST_CASE("older versions of FusedBatchNorm become the third") {
  const auto& [ops, kernels] = *testing::op_library();
  proto::GraphDef def;
  const auto add = [&](const char* op, std::initializer_list<const char*> inputs) {
    proto::NodeDef& node = *def.add_node();
    node.set_op(op);
    for (const char* input : inputs) node.add_input(input);
    proto::AttrEntry& type = *node.add_attr();
    type.set_key("T");
    type.mutable_value()->set_type(proto::DT_FLOAT);
  };
  add("FusedBatchNorm", {"x", "scale", "offset", "mean", "variance", "^c"});
  add("FusedBatchNormGrad", {"g", "x", "scale", "mean", "variance", "^c", "^d"});
  rename_old_ops(def, ops);
  CHECK(def.node(0).op() == "FusedBatchNormV3");
  CHECK(def.node(0).input_size() == 6);
  CHECK(def.node(1).op() == "FusedBatchNormGradV3");
  const std::vector<std::string> inputs(def.node(1).input().begin(), def.node(1).input().end());
  CHECK(inputs == std::vector<std::string>{"g", "x", "scale", "mean", "variance", "variance", "^c", "^d"});
  for (const proto::NodeDef& node : def.node()) {
    CHECK(node.attr_size() == 2);
    CHECK(node.attr(1).key() == "U");
    CHECK(node.attr(1).value().type() == proto::DT_FLOAT);
  }
}

TEST_CASE("the batch norm of the first graphs becomes FusedBatchNorm's") {
  const auto& [ops, kernels] = *testing::op_library();
  for (const bool scaled : {true, false}) {
    proto::GraphDef def;
    proto::NodeDef& node = *def.add_node();
    node.set_name("n");
    node.set_op("BatchNormWithGlobalNormalization");
    for (const char* input : {"t", "m", "v", "beta", "gamma", "^c"}) node.add_input(input);
    set_attr(node, "T").set_type(proto::DT_FLOAT);
    set_attr(node, "variance_epsilon").set_f(0.5f);
    set_attr(node, "scale_after_normalization").set_b(scaled);
    rename_old_ops(def, ops);
    CHECK(def.node(0).op() == "FusedBatchNormV3");
    CHECK(find_attr(def.node(0), "epsilon")->f() == 0.5f);
    CHECK_FALSE(find_attr(def.node(0), "is_training")->b());
    const std::string scale = scaled ? "gamma" : "n/BatchNormWithGlobalNormalization/ones";
    const std::vector<std::string> inputs(def.node(0).input().begin(), def.node(0).input().end());
    CHECK(inputs == std::vector<std::string>{"t", scale, "beta", "m", "v", "^c"});
    REQUIRE(def.node_size() == (scaled ? 1 : 2));
    if (!scaled) CHECK(def.node(1).input(0) == "v");
  }
}

TEST_CASE("a batch norm of the first graphs that lacks inputs stays one that import refuses", "[bad_input]") {
  const auto& [ops, kernels] = *testing::op_library();
  proto::GraphDef def;
  proto::NodeDef& node = *def.add_node();
  node.set_op("BatchNormWithGlobalNormalization");
  for (const char* input : {"t", "m", "^c"}) node.add_input(input);
  set_attr(node, "T").set_type(proto::DT_FLOAT);
  rename_old_ops(def, ops);
  CHECK(def.node(0).input_size() == 3);
}
