// SPDX-License-Identifier: Apache-2.0
// Connected sockets for tests: a socketpair, or TCP over loopback.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"

namespace troupe::testing {

/// Two connected sockets, closed with this.
struct SocketPair {
  int a = -1, b = -1;
  explicit SocketPair(bool tcp = false) {
    if (!tcp) {
      int both[2];
      TROUPE_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0);
      a = both[0], b = both[1];
      return;
    }
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    TROUPE_CHECK(bind(listener, any, size) == 0 && listen(listener, 1) == 0 && getsockname(listener, any, &size) == 0);
    a = socket(AF_INET, SOCK_STREAM, 0);
    TROUPE_CHECK(connect(a, any, size) == 0);
    b = accept(listener, nullptr, nullptr);
    TROUPE_CHECK(b >= 0);
    close(listener);
  }
  ~SocketPair() { close_a(), close_b(); }
  SocketPair(const SocketPair&) = delete;
  void close_a() { close_one(a); }
  void close_b() { close_one(b); }

 private:
  static void close_one(int& fd) {
    if (fd >= 0) close(std::exchange(fd, -1));
  }
};

/// Waits until the socket can be read or written, 10 s at most.
inline void await(int fd, short events) {
  pollfd entry = {fd, events, 0};
  TROUPE_CHECK(poll(&entry, 1, 10'000) == 1);
}

}  // namespace troupe::testing
