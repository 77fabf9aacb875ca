// SPDX-License-Identifier: Apache-2.0
// Certificates for tests: an authority of the cluster "mine", what it issues, and contexts of TLS from it.
#pragma once
#include <sys/stat.h>

#include <chrono>
#include <memory>
#include <string>

#include <catch2/catch.hpp>

#include "net/certificates.h"
#include "net/tls.h"
#include "tests/io/temporary_directory.h"

namespace troupe::testing {

/// From so many seconds ago to so many from now.
inline net::Validity around_now(int64_t before = 3600, int64_t after = 86'400) {
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return {now - before, now + after};
}

inline net::CertificateName task_named(const std::string& job, int number, const std::string& cluster = "mine") {
  return {cluster, net::TaskId{job, number}};
}
inline net::CertificateName client_named(const std::string& name = {}) { return {"mine", {}, name}; }

class TestKeys : public TemporaryDirectory {
 public:
  explicit TestKeys(net::Validity validity = around_now(864'000, 864'000))
      : authority(net::make_authority("mine", validity).value()) {}

  /// Writes a certificate and its key.
  net::TlsFiles files(const net::CertificateName& name, net::Validity validity = around_now()) {
    const auto made = net::issue_certificate(authority, name, validity).value();
    const std::string to = std::to_string(written_++);
    net::TlsFiles out{write("ca.pem", authority.certificate), write(to + ".pem", made.certificate),
                      write(to + ".key", made.key)};
    CHECK(chmod(out.key.c_str(), 0600) == 0);
    return out;
  }
  std::shared_ptr<const net::TlsContext> context(const net::CertificateName& name) {
    auto out = net::TlsContext::load(files(name), name);
    INFO((out.ok() ? "" : out.error().str()));
    REQUIRE(out.ok());
    return *out;
  }
  /// With a certificate that holds no longer, or not yet: load() refuses such, as it stands.
  const net::KeyPair authority;

 private:
  int written_ = 0;
};

}  // namespace troupe::testing
