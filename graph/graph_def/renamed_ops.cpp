// SPDX-License-Identifier: Apache-2.0
// From names of ops on references to names of ops on handles, and from old versions to new ones.
#include "graph/graph_def/renamed_ops.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "graph/graph_def/node_def.h"

namespace troupe {
namespace {

/// The batch norm of graphs before FusedBatchNorm.
constexpr std::string_view kGlobalNormalization = "BatchNormWithGlobalNormalization";

/// Before the names of ops that make a table, or an iterator, which has no name.
constexpr std::string_view kAnonymous = "Anonymous";

/// Whether an op of this name, or of an other that begins or ends so, is one of those.
bool is_old(std::string_view op) {
  static constexpr std::string_view kStarts[] = {"Queue", "Reader", "LookupTable", "InitializeTable"};
  static constexpr std::string_view kEnds[] = {"Queue", "Reader", "HashTable", "HashTableOfTensors"};
  return std::ranges::any_of(kStarts, [&](auto part) { return op.starts_with(part); }) ||
         std::ranges::any_of(kEnds, [&](auto part) { return op.ends_with(part); });
}

/// Whether an op takes batches, as "Batch" before its name once said.
bool takes_batches(std::string_view op) {
  static constexpr std::string_view kOps[] = {"Cholesky",
                                              "CholeskyGrad",
                                              "FFT",
                                              "FFT2D",
                                              "FFT3D",
                                              "IFFT",
                                              "IFFT2D",
                                              "IFFT3D",
                                              "MatrixBandPart",
                                              "MatrixDeterminant",
                                              "MatrixDiag",
                                              "MatrixDiagPart",
                                              "MatrixInverse",
                                              "MatrixSetDiag",
                                              "MatrixSolve",
                                              "MatrixSolveLs",
                                              "MatrixTriangularSolve",
                                              "SelfAdjointEigV2",
                                              "Svd"};
  return std::ranges::find(kOps, op) != std::end(kOps);
}

std::string newer_name(const std::string& op) {
  if (op.starts_with("Batch") && takes_batches(op.substr(5))) return op.substr(5);
  if (op.starts_with("Experimental")) return op.substr(12);  // datasets, before they were there to stay
  if (op.starts_with("TensorArray")) return (op.ends_with("V2") ? op.substr(0, op.size() - 2) : op) + "V3";
  // What watches or moves a value, and what a compiler would make of it.
  static constexpr std::string_view kSame[] = {
      "Copy", "CopyHost", "DebugIdentity", "DebugIdentityV2", "DebugIdentityV3", "DeepCopy", "Snapshot", "XlaSharding"};
  if (std::ranges::find(kSame, op) != std::end(kSame)) return "Identity";
  if (op == "XlaOptimizationBarrier") return "IdentityN";
  if (op == "ApproxTopK") return "TopK";  // which is as exact as asked and more
  // A table of a node alone: that of its name, which the steps share, as a SavedModel wants it.
  if (op.starts_with(kAnonymous) && is_old(op)) return op.substr(kAnonymous.size()) + "V2";
  if (op == "PlaceholderV2") return "Placeholder";
  if (op.starts_with("Accumulator") || op == "ConditionalAccumulator") return "Resource" + op;
  if (op == "MutableDenseHashTable") return "";  // its other form has one input more
  if (op == "LookupTableRemove") return "";      // there was none
  if (op == "FusedBatchNorm" || op == "FusedBatchNormV2") return "FusedBatchNormV3";
  if (op == "FusedBatchNormGrad" || op == "FusedBatchNormGradV2") return "FusedBatchNormGradV3";
  if (op == kGlobalNormalization) return "FusedBatchNormV3";
  if (op == "StackPush" || op == "StackPop" || op == "StackClose") return op + "V2";
  if (op == "BiasAddV1") return "BiasAdd";
  if (op == "CheckNumericsV2") return "CheckNumerics";  // another message
  if (op == "MutexAcquire") return "MutexLock";         // as the white paper's table 1 calls it
  if (op == "MutexRelease") return "ConsumeMutexLock";
  return is_old(op) ? op + "V2" : "";
}

/// What the third version of FusedBatchNorm takes more: a type of its vectors, and in the gradient a reserve space,
/// which has no effect.
void take_third_version(proto::NodeDef& node) {
  const auto* type = find_attr(node, "T");
  if (type && !find_attr(node, "U")) set_attr(node, "U").set_type(type->type());
  const int data = static_cast<int>(std::ranges::find_if(node.input(), is_control) - node.input().begin());
  if (node.op() != "FusedBatchNormGradV3" || data != 5) return;
  node.add_input(node.input(4));
  std::rotate(node.mutable_input()->begin() + 5, node.mutable_input()->end() - 1, node.mutable_input()->end());
}

/// From [t, mean, variance, beta, gamma] to FusedBatchNormV3 [t, gamma, beta, mean, variance]. Returns the node that
/// takes the place of gamma where that is not used. Types other than float32 stay: vectors of FusedBatchNormV3 are it.
std::optional<proto::NodeDef> take_fused_norm(proto::NodeDef& node) {
  const auto* type = find_attr(node, "T");
  if (!type || type->type() != proto::DT_FLOAT) return {};
  const auto *epsilon = find_attr(node, "variance_epsilon"), *scaled = find_attr(node, "scale_after_normalization");
  const float least = epsilon ? epsilon->f() : 0;
  const bool scales = !scaled || scaled->b();
  node.set_op("FusedBatchNormV3");
  node.clear_attr();
  for (const char* name : {"T", "U"}) set_attr(node, name).set_type(proto::DT_FLOAT);
  set_attr(node, "epsilon").set_f(least);
  set_attr(node, "is_training").set_b(false);
  auto& in = *node.mutable_input();
  if (in.size() < 5 || is_control(in[4])) return {};            // the import says so
  std::rotate(in.begin() + 1, in.begin() + 3, in.begin() + 5);  // beta, gamma, mean, variance
  std::swap(in[1], in[2]);
  if (scales) return {};
  proto::NodeDef ones;
  ones.set_name(fmt::format("{}/{}/ones", node.name(), kGlobalNormalization));
  ones.set_op("OnesLike");
  ones.set_device(node.device());
  ones.add_input(in[4]);
  set_attr(ones, "T").set_type(proto::DT_FLOAT);
  in[1] = ones.name();
  return ones;
}

/// Attributes that the node's new op does not have, and that change nothing.
void drop_unknown_attrs(proto::NodeDef& node, const OpDef& op) {
  auto& attrs = *node.mutable_attr();
  attrs.erase(std::remove_if(attrs.begin(), attrs.end(),
                             [&](const auto& e) { return !e.key().starts_with('_') && !op.find_attr(e.key()); }),
              attrs.end());
}

/// Whether an ApproxTopK asks for the largest along the last dimension, as TopK does.
bool is_top_k(const proto::NodeDef& node) {
  const auto *dimension = find_attr(node, "reduction_dimension"), *largest = find_attr(node, "is_max_k");
  return (!dimension || dimension->i() == -1) && (!largest || largest->b());
}

}  // namespace

std::string newer_form(const std::string& op, const OpRegistry& ops) {
  const std::string name = newer_name(op);
  return ops.find(name) ? name : "";
}

std::optional<OpDef> outputs_of_old_op(const std::string& op, const OpRegistry& ops) {
  const auto outputs = [&](std::initializer_list<std::string_view> texts) {
    OpDef out(op);
    for (const std::string_view text : texts) out.output(text);
    return out;
  };
  if (op == "FusedBatchNormGrad" || op == "FusedBatchNormGradV2")
    return outputs(
        {"x_backprop: T", "scale_backprop: T", "offset_backprop: T", "reserve_space_3: T", "reserve_space_4: T"});
  if (op == "MapUnstageNoKey" || op == "OrderedMapUnstageNoKey") return outputs({"key: int64", "values: dtypes"});
  if (op == "TakeManySparseFromTensorsMap")
    return outputs({"sparse_indices: int64", "sparse_values: dtype", "sparse_shape: int64"});
  if (op == "ParseSequenceExample")
    return outputs({"context_sparse_indices: Ncontext_sparse * int64", "context_sparse_values: context_sparse_types",
                    "context_sparse_shapes: Ncontext_sparse * int64", "context_dense_values: Tcontext_dense",
                    "feature_list_sparse_indices: Nfeature_list_sparse * int64",
                    "feature_list_sparse_values: feature_list_sparse_types",
                    "feature_list_sparse_shapes: Nfeature_list_sparse * int64",
                    "feature_list_dense_values: feature_list_dense_types",
                    "feature_list_dense_lengths: Nfeature_list_dense * int64"});
  const OpDef* newer = ops.find(newer_form(op, ops));
  return newer ? std::optional(*newer) : std::nullopt;
}

void rename_old_ops(proto::GraphDef& def, const OpRegistry& ops) {
  std::vector<proto::NodeDef> added;
  for (proto::NodeDef& node : *def.mutable_node()) {
    if (ops.find(node.op())) continue;
    const std::string form = newer_form(node.op(), ops);
    if (form.empty() || (node.op() == "ApproxTopK" && !is_top_k(node))) continue;
    if (node.op() == kGlobalNormalization) {
      if (auto ones = take_fused_norm(node)) added.push_back(std::move(*ones));
      continue;
    }
    node.set_op(form);
    if (form.starts_with("Identity") || form == "TopK") drop_unknown_attrs(node, *ops.find(form));
    if (form.starts_with("FusedBatchNorm")) take_third_version(node);
  }
  for (proto::NodeDef& node : added) *def.add_node() = std::move(node);
}

}  // namespace troupe
