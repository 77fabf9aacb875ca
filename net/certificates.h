// SPDX-License-Identifier: Apache-2.0
// Makes the certificates of a cluster: an authority (CA), and what it issues for tasks and clients.
// Implemented in net/certificates.cpp.
#pragma once
#include <cstdint>
#include <string>

#include "net/certificate_name.h"

namespace troupe::net {

/// PEM. Who has the key is whom the certificate names: keep it from others.
struct KeyPair {
  std::string certificate, key;
};

/// From when to when a certificate holds, in seconds since 1970 (UTC).
struct Validity {
  int64_t from = 0, to = 0;
};

/// A new authority for a cluster, with a key of the curve P-256. Errors: kInvalidArgument for a name that is none, or
/// times the wrong way round; what OpenSSL says.
Result<KeyPair> make_authority(const std::string& cluster, Validity validity);

/// A new key, P-256, and its certificate for both sides of a connection, signed by `authority`; its serial number is
/// random. It ends with the authority, if that is sooner. Errors: as above; kInvalidArgument for an authority that
/// cannot be read, or whose key does not match.
Result<KeyPair> issue_certificate(const KeyPair& authority, const CertificateName& name, Validity validity);

/// What a certificate says. Errors: kInvalidArgument: it cannot be read.
Result<Validity> validity_of(const std::string& certificate);

/// Whether `kept` is what `authority` has issued for `name`, at whatever time. Errors, to be read behind whose it is:
/// kFailedPrecondition for another's certificate, another authority, or a key that is not the certificate's.
Status check_issued(const std::string& authority, const KeyPair& kept, const CertificateName& name);

}  // namespace troupe::net
