// SPDX-License-Identifier: Apache-2.0
// TransferCompression: how tensors travel from one device to another. Asked for by Scope::compress_transfers and
// SessionOptions. Implemented in graph/transfers.cpp; plan/planner_transfers.cpp does it.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "troupe/export.h"

namespace TROUPE_API troupe {

class Node;

/// What becomes of a float32 tensor that crosses from one device to another; tensors of other types, fed and fetched
/// values never change.
/// Source: TensorFlow white paper, section 5.5, lossy compression.
enum class TransferCompression : uint8_t {
  kOff,
  kBFloat16,  // travels as bfloat16: of 24 bits of precision the lower 16 are cut off, not rounded; half the bytes
};

/// The attribute of nodes that says so of their outputs: "off" or "bfloat16".
inline constexpr std::string_view kTransferAttr = "_transfers";

/// What the attribute of `node` says; empty: nothing, and the session decides.
std::optional<TransferCompression> transfer_compression(const Node& node);
/// "off" or "bfloat16".
std::string_view to_string(TransferCompression compression);

}  // namespace troupe
