// SPDX-License-Identifier: Apache-2.0
// OpenSSL by itself on one end of a socket, for what no TlsContext does: certificates that do not hold, none at all,
// older versions, questions for new keys.
#pragma once
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <memory>
#include <string>

#include <catch2/catch.hpp>

#include "net/tls.h"

namespace troupe::testing {

class RawTls {
 public:
  /// `files`: empty paths for no certificate.
  RawTls(int fd, bool accepts, const net::TlsFiles& files, int most_version = TLS1_3_VERSION)
      : context_(SSL_CTX_new(TLS_method())) {
    if (!files.certificate.empty()) {
      REQUIRE(SSL_CTX_use_certificate_file(context_.get(), files.certificate.c_str(), SSL_FILETYPE_PEM) == 1);
      REQUIRE(SSL_CTX_use_PrivateKey_file(context_.get(), files.key.c_str(), SSL_FILETYPE_PEM) == 1);
    }
    SSL_CTX_set_max_proto_version(context_.get(), most_version);
    if (accepts) SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, [](int, X509_STORE_CTX*) { return 1; });
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), fd);
    if (accepts) SSL_set_accept_state(ssl_.get());
    else SSL_set_connect_state(ssl_.get());
  }

  SSL* ssl() const { return ssl_.get(); }
  /// One step of the handshake. Returns whether it is done.
  bool open() {
    ERR_clear_error();
    return SSL_do_handshake(ssl_.get()) == 1;
  }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  const std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;
};

}  // namespace troupe::testing
