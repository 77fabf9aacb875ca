// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 between the processes of a cluster, by OpenSSL. Both sides show certificates of the cluster's own authority,
// which say who they are (net/certificate_name.h). Implemented in net/tls.cpp and net/tls_files.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "net/transport.h"

namespace troupe::net {

/// Paths of PEM files.
struct TlsFiles {
  std::string ca;           // the cluster's authority: nobody else's certificates count
  std::string certificate;  // this process's own
  std::string key;          // without a password, for its owner alone to read
};

/// What connections of one process have in common: read once, at its start. Any thread may use it.
class TlsContext : public std::enable_shared_from_this<TlsContext> {
 public:
  /// Checks all that a peer would: that the certificate holds now, is the authority's and names `self`, of a client any
  /// client of the cluster. Errors name the file: kNotFound for one that cannot be read; kFailedPrecondition for all
  /// else, with dates and names.
  static Result<std::shared_ptr<const TlsContext>> load(const TlsFiles& files, const CertificateName& self);
  ~TlsContext();

  enum class Side { kDials, kAccepts };
  /// TLS over a socket. After so many records a side goes on with another key: far below what one key is good for,
  /// 2^24.5 records (RFC 8446, 5.5).
  std::unique_ptr<Transport> transport(int fd, Side side, uint64_t records_per_key = uint64_t{1} << 22) const;

  class Impl;
  explicit TlsContext(std::unique_ptr<Impl> impl);

 private:
  const std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::net
