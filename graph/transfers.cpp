// SPDX-License-Identifier: Apache-2.0
// The attribute that says how a node's outputs travel.
#include "troupe/transfers.h"

#include "troupe/graph.h"

namespace troupe {

std::string_view to_string(TransferCompression compression) {
  return compression == TransferCompression::kBFloat16 ? "bfloat16" : "off";
}

std::optional<TransferCompression> transfer_compression(const Node& node) {
  const auto* text = node.attrs().get<std::string>(kTransferAttr);
  if (!text) return {};
  for (const auto compression : {TransferCompression::kOff, TransferCompression::kBFloat16})
    if (*text == to_string(compression)) return compression;
  return {};
}

}  // namespace troupe
