// SPDX-License-Identifier: Apache-2.0
// OpenSSL's objects as owned values, and its errors as text. Only net/ includes OpenSSL.
// Implemented in net/openssl.cpp.
#pragma once
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/certificate_name.h"

namespace troupe::net {

/// Calls one of OpenSSL's functions.
template <auto f> struct FreedBy {
  template <class T> void operator()(T* object) const { f(object); }
};
using BioPtr = std::unique_ptr<BIO, FreedBy<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, FreedBy<X509_free>>;

/// To be called before anything else of OpenSSL's: it is not to clean up in exit() what other threads may still use.
void begin_openssl();
/// What the oldest error of this thread's queue says; empties the queue. "unknown" where there is none.
std::string openssl_text();

/// All certificates of a PEM text; none where it has none, or one that cannot be read.
std::vector<X509Ptr> read_certificates(std::string_view pem);
/// "2026-11-25 08:44:50 UTC".
std::string date_of(const ASN1_TIME* time);
/// The only name of a cluster in a certificate. Errors: kFailedPrecondition: it has none, or several.
Result<CertificateName> name_in(const X509* certificate);
/// For messages: its name, else its subject.
std::string shown(const X509* certificate);

}  // namespace troupe::net
