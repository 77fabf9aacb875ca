// SPDX-License-Identifier: Apache-2.0
// From names of ops on references to names of ops on handles, and from old versions to new ones.
#include "graph/old_names.h"

#include <algorithm>

#include "graph/node_def.h"

namespace troupe {
namespace {

/// Whether an op of this name, or of an other that begins or ends so, is one of those.
bool is_old(std::string_view op) {
  static constexpr std::string_view kStarts[] = {"Queue", "Reader", "LookupTable", "InitializeTable"};
  static constexpr std::string_view kEnds[] = {"Queue", "Reader", "HashTable", "HashTableOfTensors"};
  return std::ranges::any_of(kStarts, [&](auto part) { return op.starts_with(part); }) ||
         std::ranges::any_of(kEnds, [&](auto part) { return op.ends_with(part); });
}

/// Whether an op that begins so takes batches, as "Batch" before its name once said.
bool takes_batches(std::string_view op) {
  static constexpr std::string_view kStarts[] = {"Matrix", "Cholesky", "SelfAdjointEigV2", "Svd", "FFT", "IFFT"};
  return std::ranges::any_of(kStarts, [&](auto part) { return op.starts_with(part); });
}

std::string newer_form(const std::string& op) {
  if (op.starts_with("Batch") && takes_batches(op.substr(5))) return op.substr(5);
  if (op == "PlaceholderV2") return "Placeholder";
  if (op.starts_with("Accumulator") || op == "ConditionalAccumulator") return "Resource" + op;
  if (op == "MutableDenseHashTable") return "";  // its other form has one input more
  if (op == "FusedBatchNorm" || op == "FusedBatchNormV2") return "FusedBatchNormV3";
  if (op == "FusedBatchNormGrad" || op == "FusedBatchNormGradV2") return "FusedBatchNormGradV3";
  if (op == "BiasAddV1") return "BiasAdd";
  if (op == "MutexAcquire") return "MutexLock";  // as the white paper's table 1 calls it
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

}  // namespace

void rename_old_ops(proto::GraphDef& def, const OpRegistry& ops) {
  for (proto::NodeDef& node : *def.mutable_node()) {
    if (ops.find(node.op())) continue;
    const std::string form = newer_form(node.op());
    if (!ops.find(form)) continue;
    node.set_op(form);
    if (form.starts_with("FusedBatchNorm")) take_third_version(node);
  }
}

}  // namespace troupe
