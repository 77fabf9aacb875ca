// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 between the processes of a cluster, by OpenSSL. Both sides show certificates of the cluster's own authority,
// which say who they are (net/certificate_name.h). Implemented in net/tls.cpp and net/tls_files.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "net/transport.h"

namespace troupe::net {

/// Paths of PEM files.
struct TlsFiles {
  std::string ca;           // the cluster's authority: nobody else's certificates count
  std::string certificate;  // this process's own
  std::string key;          // without a password, for its owner alone to read
};

/// What connections of one process have in common, from files that may be renewed while it runs. Any thread may use it.
class TlsContext {
 public:
  /// Checks all that a peer would: that the certificate holds now, is the authority's and names `self`, of a client any
  /// client of the cluster. Errors name the file: kNotFound for one that cannot be read; kFailedPrecondition for all
  /// else, with dates and names.
  static Result<std::shared_ptr<const TlsContext>> load(const TlsFiles& files, const CertificateName& self);
  ~TlsContext();

  enum class Side { kDials, kAccepts };
  /// TLS over a socket. Where the files are others than when they were last read, they are read anew first: a
  /// connection has what is there when it begins, and keeps it. Files that load() would refuse are logged, and what was
  /// read before them stays. After so many records a side goes on with another key: far below what one key is good for,
  /// 2^24.5 records (RFC 8446, 5.5).
  std::unique_ptr<Transport> transport(int fd, Side side, uint64_t records_per_key = uint64_t{1} << 22) const;

  class Impl;
  TlsContext(TlsFiles files, CertificateName self, std::shared_ptr<const Impl> impl);

 private:
  const TlsFiles files_;
  const CertificateName self_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Impl> impl_;  // as last read
  mutable std::string refused_;               // the state of the files that were last refused
};

}  // namespace troupe::net
