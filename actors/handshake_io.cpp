// SPDX-License-Identifier: Apache-2.0
#include "actors/handshake_io.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

namespace troupe {
namespace {

/// Whether the connection is gone; else the peer breaks the rules of TLS, which the handshake is told.
bool is_gone(const Error& error, net::Handshake& handshake) {
  if (error.code == Code::kInternal) return true;
  handshake.refuse(error.message);
  return false;
}

/// Returns whether the connection stands, as far as that is known now.
bool open(net::Transport& transport, net::Handshake& handshake) {
  const auto opened = transport.open();
  if (!opened.ok()) {
    if (is_gone(opened.error(), handshake)) handshake.closed();
    return false;
  }
  if (const auto* const name = transport.peer()) handshake.certified(*name);
  return *opened;
}

/// Returns whether the connection lives, as far as writing shows.
bool write_output(net::Transport& transport, net::Handshake& handshake) {
  while (!handshake.output().empty() || transport.unsent() > 0) {
    const auto output = handshake.output();
    const iovec piece = {const_cast<char*>(output.data()), output.size()};
    const auto sent = transport.write({&piece, output.empty() ? 0u : 1u});
    if (!sent.ok()) return false;
    if (!*sent) return true;
    handshake.consumed(**sent);
  }
  return true;
}

/// Reads the handshake's bytes, and none behind them.
void read_input(net::Transport& transport, net::Handshake& handshake, int64_t now) {
  char buffer[net::kLongestHandshake];
  while (!handshake.done()) {
    const iovec piece = {buffer, std::min(handshake.wanted(), sizeof buffer)};
    const auto got = transport.read({&piece, 1});
    if (got.ok() && !*got) return;
    if (got.ok() && **got > 0) handshake.feed({buffer, **got}, now);
    else if (got.ok() || is_gone(got.error(), handshake)) handshake.closed();
  }
}

}  // namespace

HandshakeStep carry_on(net::Transport& transport, net::Handshake& handshake, int64_t now) {
  handshake.tick(now);
  const bool is_open = open(transport, handshake);
  bool alive = write_output(transport, handshake);
  if (is_open) read_input(transport, handshake, now);
  if (alive) alive = write_output(transport, handshake);
  if (!alive) handshake.closed();
  if (!handshake.done()) return HandshakeStep::kGoesOn;
  if (!handshake.accepted() || !alive) return HandshakeStep::kEnds;
  if (handshake.output().empty() && transport.unsent() == 0) return HandshakeStep::kStands;
  return now < handshake.deadline() ? HandshakeStep::kGoesOn : HandshakeStep::kEnds;
}

short events_of(const net::Transport& transport, const net::Handshake& handshake) {
  return static_cast<short>((handshake.wanted() > 0 ? POLLIN : 0) | (transport.blocked() ? POLLOUT : 0));
}

void drop_input(int fd) {
  char buffer[4096];
  for (int i = 0; i < 16 && recv(fd, buffer, sizeof buffer, 0) > 0; ++i) {
  }
}

}  // namespace troupe
