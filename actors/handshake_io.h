// SPDX-License-Identifier: Apache-2.0
// Carries a handshake over a connection. Implemented in actors/handshake_io.cpp.
#pragma once
#include <cstdint>

#include "net/handshake.h"
#include "net/transport.h"

namespace troupe {

enum class HandshakeStep {
  kGoesOn,  // wait until the socket is ready for what the handshake wants, or for its deadline
  kStands,  // accepted, and all of its output is written
  kEnds,    // rejected, or accepted and broken before its output was written
};

/// Opens the connection, writes and reads, as far as the socket lets it. Takes no byte behind the handshake out of the
/// transport. `now` in nanoseconds.
HandshakeStep carry_on(net::Transport& transport, net::Handshake& handshake, int64_t now);
/// What poll() is to wait for before the next step.
short events_of(const net::Transport& transport, const net::Handshake& handshake);

/// Takes what came behind a refused handshake, before its socket is closed: one that is closed with bytes in it resets
/// the connection, and the peer might not read the answer. At most 64 KiB.
void drop_input(int fd);

}  // namespace troupe
