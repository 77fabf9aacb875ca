// SPDX-License-Identifier: Apache-2.0
// Asks each file that rewrites a GraphDef what it makes of an op.
#include "graph/graph_def/imported_forms.h"

#include "graph/graph_def/composed_ops.h"
#include "graph/graph_def/functions.h"
#include "graph/graph_def/named_resources.h"
#include "graph/graph_def/parsing_datasets.h"
#include "graph/graph_def/reference_variables.h"
#include "graph/graph_def/renamed_ops.h"

namespace troupe {

std::string imported_form(const std::string& op, const OpRegistry& ops) {
  if (ops.find(op)) return "";
  for (std::string form : {form_of_call(op), std::string(form_of_parsing(op)), std::string(form_of_composed(op, ops)),
                           newer_form(op, ops), form_with_handle(op, ops), form_without_references(op, ops)})
    if (!form.empty()) return form;
  return "";
}

std::string_view instead_of(std::string_view op) {
  if (op == "PyFunc" || op == "PyFuncStateless" || op == "EagerPyFunc" || op == "GeneratorDataset")
    return "calls a function of a Python program, which is not here: put a node of an op of your own "
           "(docs/adding_an_op.md) or an actor_call (troupe/embed.h) in its place";
  if (op == "XlaCallModule")
    return "holds a program of StableHLO, as jax2tf writes it, which XLA alone runs: export the model as ops of "
           "TensorFlow";
  if (op == "CreateSummaryDbWriter")
    return "writes to an SQLite database: CreateSummaryFileWriter writes event files, which TensorBoard reads";
  return "";
}

std::set<std::string> ops_in_file(std::string_view bytes) {
  proto::GraphDef def;
  std::set<std::string> out;
  if (!def.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return out;
  for (const proto::NodeDef& node : def.node()) out.insert(node.op());
  for (const auto& function : def.library().function())
    for (const proto::NodeDef& node : function.node_def()) out.insert(node.op());
  return out;
}

std::map<std::string, std::string> imported_forms(const OpRegistry& ops) {
  std::set<std::string> names = {// those whose names do not follow from the names of what they become
                                 "Assign",
                                 "AssignAdd",
                                 "AssignSub",
                                 "IsVariableInitialized",
                                 "Variable",
                                 "VariableV2",
                                 "TemporaryVariable",
                                 "DestroyTemporaryVariable",
                                 "RefEnter",
                                 "RefExit",
                                 "RefIdentity",
                                 "RefMerge",
                                 "RefNextIteration",
                                 "RefSwitch",
                                 "Case",
                                 "If",
                                 "ParseExampleDataset",
                                 "ParseExampleDatasetV2",
                                 "PartitionedCall",
                                 "StatefulPartitionedCall",
                                 "StatelessCase",
                                 "StatelessIf",
                                 "StatelessWhile",
                                 "While",
                                 "AddManySparseToTensorsMap",
                                 "AddSparseToTensorsMap",
                                 "TakeManySparseFromTensorsMap",
                                 "BatchNormWithGlobalNormalization",
                                 "BatchFunction",
                                 "BiasAddV1",
                                 "ApproxTopK",
                                 "Copy",
                                 "CopyHost",
                                 "DebugIdentity",
                                 "DebugIdentityV2",
                                 "DebugIdentityV3",
                                 "DeepCopy",
                                 "XlaOptimizationBarrier",
                                 "XlaSharding",
                                 "CheckNumericsV2",
                                 "FusedBatchNormV2",
                                 "FusedPadConv2D",
                                 "FusedResizeAndPadConv2D",
                                 "ParseSequenceExample",
                                 "Conv",
                                 "SelfAdjointEig",
                                 "TensorArrayPack",
                                 "TensorArrayUnpack",
                                 "InitializeTableFromDataset",
                                 "Snapshot",
                                 "AnonymousHashTable",
                                 "AnonymousMutableHashTable",
                                 "AnonymousMutableHashTableOfTensors",
                                 "AnonymousMutableDenseHashTable",
                                 "FusedBatchNormGradV2",
                                 "Stage",
                                 "StageClear",
                                 "StagePeek",
                                 "StageSize",
                                 "SymbolicGradient",
                                 "Unstage",
                                 "MakeIterator",
                                 "MutexAcquire",
                                 "MutexRelease",
                                 "PlaceholderV2"};
  for (const char* name :
       {"AssertNext", "DenseToSparseBatch", "DirectedInterleave", "GroupByReducer", "GroupByWindow", "IgnoreErrors",
        "MapAndBatch", "MaxIntraOpParallelism", "NonSerializable", "ParallelInterleave", "ParseExample",
        "PrivateThreadPool", "Random", "Sampling", "Scan", "TakeWhile", "Unbatch", "Unique"})
    names.insert(fmt::format("Experimental{}Dataset", name));
  for (const char* name : {"Stage", "Unstage", "UnstageNoKey", "Peek", "Size", "IncompleteSize", "Clear"})
    for (const char* map : {"Map", "OrderedMap"}) names.insert(fmt::format("{}{}", map, name));
  constexpr std::string_view kHandle = "Resource";
  for (const auto& [name, op] : ops.all()) {
    names.insert("Batch" + name);
    if (name.ends_with("V2") || name.ends_with("V3")) names.insert(name.substr(0, name.size() - 2));
    if (name.starts_with("TensorArray") && name.ends_with("V3")) names.insert(name.substr(0, name.size() - 1) + "2");
    if (name.starts_with(kHandle)) names.insert(name.substr(kHandle.size()));
  }
  std::map<std::string, std::string> out;
  for (const std::string& name : names)
    if (std::string form = imported_form(name, ops); !form.empty()) out.emplace(name, std::move(form));
  return out;
}

}  // namespace troupe
