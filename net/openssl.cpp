// SPDX-License-Identifier: Apache-2.0
#include "net/openssl.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <ctime>

#include "base/printable.h"

namespace troupe::net {
namespace {

/// Those that a cluster gives, of all its alternative names.
std::vector<CertificateName> names_in(const X509* certificate) {
  std::vector<CertificateName> out;
  using Names = std::unique_ptr<GENERAL_NAMES, FreedBy<GENERAL_NAMES_free>>;
  const Names names(static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    const std::string_view text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                                static_cast<size_t>(ASN1_STRING_length(uri)));
    if (auto parsed = CertificateName::parse(text); parsed.ok()) out.push_back(std::move(*parsed));
  }
  return out;
}

}  // namespace

void begin_openssl() { OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr); }

std::string openssl_text() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  const char* const text = ERR_reason_error_string(error);
  return text ? text : "unknown";
}

std::vector<X509Ptr> read_certificates(std::string_view pem) {
  std::vector<X509Ptr> out;
  ERR_clear_error();
  const BioPtr from(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  while (X509* const one = PEM_read_bio_X509(from.get(), nullptr, nullptr, nullptr)) out.emplace_back(one);
  // It ends with "no start line"; anything else is a certificate that cannot be read.
  const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!ended) out.clear();
  return out;
}

std::string date_of(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return "an unknown date";
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

Result<CertificateName> name_in(const X509* certificate) {
  auto found = names_in(certificate);
  if (found.size() != 1)
    return make_error(Code::kFailedPrecondition,
                      "the certificate {} must have one name troupe://CLUSTER/..., and has {}", shown(certificate),
                      found.size());
  return std::move(found[0]);
}

std::string shown(const X509* certificate) {
  if (const auto names = names_in(certificate); names.size() == 1) return names[0].uri();
  char subject[256] = "?";
  X509_NAME_oneline(X509_get_subject_name(certificate), subject, sizeof subject);
  return in_quotes(subject);
}

}  // namespace troupe::net
