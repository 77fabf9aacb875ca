// SPDX-License-Identifier: Apache-2.0
#include "net/transport.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace troupe::net {
namespace {

class PlainTransport final : public Transport {
 public:
  using Transport::Transport;

  Moved read(std::span<const iovec> pieces) override {
    for (;;) {
      const ssize_t got = readv(fd(), pieces.data(), static_cast<int>(pieces.size()));
      if (got >= 0) return std::optional(static_cast<size_t>(got));
      if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<size_t>();
      if (errno != EINTR) return broken_connection("reading", errno);
    }
  }

  Moved write(std::span<const iovec> pieces) override {
    msghdr message = {};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    for (;;) {
      const ssize_t sent = sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      blocked_ = sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
      if (sent >= 0) return std::optional(static_cast<size_t>(sent));
      if (blocked_) return std::optional<size_t>();
      if (errno != EINTR) return broken_connection("writing", errno);
    }
  }
  bool blocked() const override { return blocked_; }

 private:
  bool blocked_ = false;
};

}  // namespace

std::unique_ptr<Transport> make_plain_transport(int fd) { return std::make_unique<PlainTransport>(fd); }

Error broken_connection(const char* doing, int error) {
  char text[128];
  return make_error(Code::kInternal, "the connection broke while {}: {}", doing, strerror_r(error, text, sizeof text));
}

}  // namespace troupe::net
