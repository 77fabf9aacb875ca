// SPDX-License-Identifier: Apache-2.0
// Ops on references to queues and their kin are read as their forms for handles; others stay.
#include "graph/old_names.h"

#include <catch2/catch.hpp>

#include "ops/all.h"

using namespace troupe;

TEST_CASE("ops of older graphs get the names of those on handles") {
  OpRegistry ops;
  KernelRegistry kernels;
  register_all_ops(ops, kernels);
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
}
