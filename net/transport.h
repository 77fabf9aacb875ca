// SPDX-License-Identifier: Apache-2.0
// Transport: the bytes of one connected, non-blocking stream socket, as they are or encrypted (net/tls.h).
// Implemented in net/transport.cpp.
#pragma once
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "net/certificate_name.h"
#include "troupe/error.h"

namespace troupe::net {

/// Nothing waits. One thread may read while another one writes; each of the two is for one thread at a time. The socket
/// stays its owner's, who closes it after the transport.
class Transport {
 public:
  /// Bytes that were moved; 0: the peer has closed the connection; none: not now, call again when the socket is ready.
  /// Errors: kInternal when the connection is gone; kFailedPrecondition when the peer breaks the rules of TLS.
  using Moved = Result<std::optional<size_t>>;

  explicit Transport(int fd) : fd_(fd) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;

  int fd() const { return fd_; }

  /// Carries on what comes before the first byte of either side. True: it is done. False: wait for bytes to read, and
  /// for room to write when some are unsent(). Errors: those of Moved; kFailedPrecondition names what is wrong with the
  /// peer.
  virtual Result<bool> open() { return true; }
  /// Whom the peer's certificate names; nullptr: none was asked for, or it is not open. Lives as long as this.
  virtual const CertificateName* peer() const { return nullptr; }

  /// As readv and writev.
  virtual Moved read(std::span<const iovec> pieces) = 0;
  virtual Moved write(std::span<const iovec> pieces) = 0;
  /// Whether read() may have something although the socket has nothing to read. For the thread that reads.
  virtual bool pending() const { return false; }
  /// Bytes that write() took and the socket did not: write nothing to send them. Any thread.
  virtual size_t unsent() const { return 0; }
  /// Whether the socket took less than was written last. For the thread that writes.
  virtual bool blocked() const { return unsent() > 0; }

 private:
  const int fd_;
};

/// The bytes as they are.
std::unique_ptr<Transport> make_plain_transport(int fd);

/// A connection that broke while reading or writing, by errno's value.
Error broken_connection(const char* doing, int error);

}  // namespace troupe::net
