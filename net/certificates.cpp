// SPDX-License-Identifier: Apache-2.0
#include "net/certificates.h"

#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <ctime>

#include "net/openssl.h"

namespace troupe::net {
namespace {

Error cannot(const char* what) { return make_error(Code::kInternal, "OpenSSL cannot {}: {}", what, openssl_text()); }

std::string text_of(BIO* memory) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory, &bytes);
  return {bytes, static_cast<size_t>(size)};
}

/// 159 random bits: positive, and at most 20 bytes (RFC 5280).
bool set_serial(X509* certificate) {
  const std::unique_ptr<BIGNUM, FreedBy<BN_free>> number(BN_new());
  return number && BN_rand(number.get(), 159, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate));
}

bool add_extension(X509* certificate, X509* issuer, int which, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, FreedBy<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, which, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

/// A certificate without extensions, and its key. `subject` is cut at the 64 letters that a common name may have.
Status begin(X509Ptr& certificate, KeyPtr& key, const std::string& subject, Validity validity) {
  begin_openssl();
  ERR_clear_error();
  if (validity.from >= validity.to)
    return invalid_argument("a certificate must end after it begins, got {} and {}", validity.from, validity.to);
  key.reset(EVP_EC_gen("P-256"));
  if (!key) return cannot("make a key");
  certificate.reset(X509_new());
  if (!certificate) return cannot("make a certificate");
  const auto from = static_cast<time_t>(validity.from), to = static_cast<time_t>(validity.to);
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  const auto* const letters = reinterpret_cast<const unsigned char*>(subject.data());
  const int size = static_cast<int>(std::min<size_t>(subject.size(), 64));
  if (X509_set_version(certificate.get(), X509_VERSION_3) != 1 || !set_serial(certificate.get()) ||
      !ASN1_TIME_set(X509_getm_notBefore(certificate.get()), from) ||
      !ASN1_TIME_set(X509_getm_notAfter(certificate.get()), to) || X509_set_pubkey(certificate.get(), key.get()) != 1 ||
      X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_ASC, letters, size, -1, 0) != 1)
    return cannot("fill in a certificate");
  return {};
}

Result<KeyPair> end(X509* certificate, EVP_PKEY* key, EVP_PKEY* signer) {
  if (X509_sign(certificate, signer, EVP_sha256()) == 0) return cannot("sign a certificate");
  const BioPtr public_part(BIO_new(BIO_s_mem())), private_part(BIO_new(BIO_s_secmem()));
  if (PEM_write_bio_X509(public_part.get(), certificate) != 1 ||
      PEM_write_bio_PKCS8PrivateKey(private_part.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return cannot("write a certificate");
  return KeyPair{text_of(public_part.get()), text_of(private_part.get())};
}

/// Without a password; null where it cannot be read.
KeyPtr private_key(const std::string& pem) {
  const BioPtr from(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  return KeyPtr(PEM_read_bio_PrivateKey(
      from.get(), nullptr, [](char*, int, int, void*) { return 0; }, nullptr));
}

int64_t seconds_of(const ASN1_TIME* time) {
  std::tm parts = {};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? static_cast<int64_t>(timegm(&parts)) : 0;
}

}  // namespace

Result<KeyPair> make_authority(const std::string& cluster, Validity validity) {
  TROUPE_RETURN_IF_ERROR(CertificateName({cluster, {}}).check());
  X509Ptr certificate;
  KeyPtr key;
  TROUPE_RETURN_IF_ERROR(begin(certificate, key, "CA of " + cluster, validity));
  X509* const made = certificate.get();
  if (X509_set_issuer_name(made, X509_get_subject_name(made)) != 1 ||
      !add_extension(made, made, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !add_extension(made, made, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !add_extension(made, made, NID_subject_key_identifier, "hash"))
    return cannot("fill in a certificate");
  return end(made, key.get(), key.get());
}

Result<KeyPair> issue_certificate(const KeyPair& authority, const CertificateName& name, Validity validity) {
  TROUPE_RETURN_IF_ERROR(name.check());
  begin_openssl();
  const auto issuers = read_certificates(authority.certificate);
  const KeyPtr signer = private_key(authority.key);
  if (issuers.empty()) return invalid_argument("the authority's certificate cannot be read");
  if (!signer) return invalid_argument("the authority's key cannot be read: {}", openssl_text());
  X509* const issuer = issuers[0].get();
  if (X509_check_private_key(issuer, signer.get()) != 1)
    return invalid_argument("the authority's key is not that of its certificate {}", shown(issuer));
  validity.to = std::min(validity.to, seconds_of(X509_get0_notAfter(issuer)));
  if (validity.from >= validity.to)
    return invalid_argument("the authority {} ends at {}", shown(issuer), date_of(X509_get0_notAfter(issuer)));
  X509Ptr certificate;
  KeyPtr key;
  const std::string subject = name.task ? name.task->str() : name.client.empty() ? "client" : "client " + name.client;
  TROUPE_RETURN_IF_ERROR(begin(certificate, key, subject, validity));
  X509* const made = certificate.get();
  if (X509_set_issuer_name(made, X509_get_subject_name(issuer)) != 1 ||
      !add_extension(made, issuer, NID_basic_constraints, "critical,CA:FALSE") ||
      !add_extension(made, issuer, NID_key_usage, "critical,digitalSignature") ||
      !add_extension(made, issuer, NID_ext_key_usage, "serverAuth,clientAuth") ||
      !add_extension(made, issuer, NID_subject_key_identifier, "hash") ||
      !add_extension(made, issuer, NID_authority_key_identifier, "keyid:always") ||
      !add_extension(made, issuer, NID_subject_alt_name, "URI:" + name.uri()))
    return cannot("fill in a certificate");
  return end(made, key.get(), signer.get());
}

Result<Validity> validity_of(const std::string& certificate) {
  begin_openssl();
  const auto all = read_certificates(certificate);
  if (all.empty()) return invalid_argument("the certificate cannot be read");
  return Validity{seconds_of(X509_get0_notBefore(all[0].get())), seconds_of(X509_get0_notAfter(all[0].get()))};
}

Status check_issued(const std::string& authority, const KeyPair& kept, const CertificateName& name) {
  begin_openssl();
  const auto bad = [](const std::string& what) { return make_error(Code::kFailedPrecondition, "{}", what); };
  const auto issuers = read_certificates(authority), own = read_certificates(kept.certificate);
  if (issuers.empty()) return bad("has an authority that cannot be read");
  if (own.empty()) return bad("has a certificate that cannot be read");
  const auto named = name_in(own[0].get());
  if (!named.ok()) return bad("has a certificate of another kind: " + named.error().message);
  if (*named != name) return bad(fmt::format("has the certificate of {}, not of {}", named->uri(), name.uri()));
  const auto has_signed = [&](const X509Ptr& issuer) {
    return X509_verify(own[0].get(), X509_get0_pubkey(issuer.get())) == 1;
  };
  if (std::ranges::none_of(issuers, has_signed)) return bad("has a certificate of another authority");
  const KeyPtr key = private_key(kept.key);
  if (!key || X509_check_private_key(own[0].get(), key.get()) != 1) return bad("has no key of its certificate");
  ERR_clear_error();
  return {};
}

}  // namespace troupe::net
