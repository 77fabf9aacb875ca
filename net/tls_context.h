// SPDX-License-Identifier: Apache-2.0
// What a TlsContext holds: for net/tls.cpp and net/tls_files.cpp, which implement it.
#pragma once
#include "net/openssl.h"
#include "net/tls.h"

namespace troupe::net {

class TlsContext::Impl {
 public:
  using Context = std::unique_ptr<SSL_CTX, FreedBy<SSL_CTX_free>>;
  using Method = std::unique_ptr<BIO_METHOD, FreedBy<BIO_meth_free>>;

  /// Errors: those of TlsContext::load.
  static Result<std::shared_ptr<const Impl>> read(const TlsFiles& files, const CertificateName& self);
  /// Without certificates. Errors: what OpenSSL says.
  static Result<std::unique_ptr<Impl>> make();

  std::string state;  // of the files, when reading began
  Context context;
  Method method;  // of the BIOs between OpenSSL and a transport's buffers
};

/// Differs when one of the files has been written to or replaced.
std::string state_of(const TlsFiles& files);

/// What is wrong with the certificate at which checking stopped: "'/CN=worker' has expired at 2026-11-25 08:44:50 UTC".
std::string fault_of_certificate(X509_STORE_CTX* store);

}  // namespace troupe::net
