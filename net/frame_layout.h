// SPDX-License-Identifier: Apache-2.0
// Numbers of a frame's layout that its writer and its reader share. docs/wire_protocol.md draws it.
#pragma once
#include <cstddef>

#include "net/frame.h"

namespace troupe::net {

/// Where in the header its CRC-32 is, of all bytes before.
inline constexpr size_t kChecksumAt = FrameHeader::kBytes - 4;

}  // namespace troupe::net
