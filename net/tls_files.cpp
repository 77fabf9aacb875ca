// SPDX-License-Identifier: Apache-2.0
// A process's certificate and key from files, checked before anybody connects by them.
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/printable.h"
#include "net/tls_context.h"

namespace troupe::net {
namespace {

constexpr size_t kMostFileBytes = size_t{1} << 20;

/// A file of PEM that may be open.
class PemFile {
 public:
  explicit PemFile(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) error_ = errno;
  }
  ~PemFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  PemFile(const PemFile&) = delete;

  Result<std::string> read() {
    struct stat file = {};
    if (fd_ >= 0 && fstat(fd_, &file) == 0 && !S_ISREG(file.st_mode) && !S_ISDIR(file.st_mode))
      return bad(path_, "is not a regular file");  // a pipe may never give anything
    std::string out(kMostFileBytes + 1, '\0');
    size_t size = 0;
    while (error_ == 0 && size < out.size()) {
      const ssize_t got = ::read(fd_, out.data() + size, out.size() - size);
      if (got == 0) break;
      if (got > 0) size += static_cast<size_t>(got);
      else if (errno != EINTR) error_ = errno;
    }
    char text[128];
    if (error_ != 0)
      return make_error(Code::kNotFound, "cannot read the file {}: {}", in_quotes(path_),
                        strerror_r(error_, text, sizeof text));
    if (size > kMostFileBytes) return bad(path_, fmt::format("has more than {} bytes", kMostFileBytes));
    out.resize(size);
    return out;
  }
  /// Errors: others than its owner may read or change it. Its group may read what is root's, as that of a container is.
  Status check_private() const {
    struct stat file = {};
    if (fd_ < 0 || fstat(fd_, &file) != 0 || S_ISDIR(file.st_mode)) return {};  // which read() tells
    const mode_t others = file.st_uid == 0 && geteuid() != 0 ? 027 : 077;
    if ((file.st_mode & others) == 0) return {};
    return bad(path_, fmt::format("is a key that others may read or change (mode {:04o}): chmod 600 it",
                                  file.st_mode & 07777));
  }
  static Error bad(const std::string& path, const std::string& what) {
    return make_error(Code::kFailedPrecondition, "the file {} {}", in_quotes(path), what);
  }

 private:
  const std::string path_;
  const int fd_;
  int error_ = 0;
};

Result<std::vector<X509Ptr>> certificates_of(const std::string& path) {
  TROUPE_ASSIGN(const std::string pem, PemFile(path).read());
  auto out = read_certificates(pem);
  if (out.empty()) return PemFile::bad(path, "has no certificate in PEM");
  return out;
}

Result<KeyPtr> key_of(const std::string& path) {
  PemFile file(path);
  TROUPE_RETURN_IF_ERROR(file.check_private());
  TROUPE_ASSIGN(std::string pem, file.read());
  const BioPtr from(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  bool asked = false;
  KeyPtr key(PEM_read_bio_PrivateKey(
      from.get(), nullptr,
      [](char*, int, int, void* asked) {
        *static_cast<bool*>(asked) = true;
        return -1;
      },
      &asked));
  ERR_clear_error();
  OPENSSL_cleanse(pem.data(), pem.size());
  if (key) return key;
  return PemFile::bad(path,
                      asked ? "is a key with a password, which nobody can be asked for" : "has no private key in PEM");
}

}  // namespace

std::string fault_of_certificate(X509_STORE_CTX* store) {
  const X509* certificate = X509_STORE_CTX_get_current_cert(store);
  const int error = X509_STORE_CTX_get_error(store);
  std::string what;
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      what = fmt::format("has expired at {}", date_of(X509_get0_notAfter(certificate)));
      break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
      what = fmt::format("is not valid before {}", date_of(X509_get0_notBefore(certificate)));
      break;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      certificate = X509_STORE_CTX_get0_cert(store);  // not its issuer, of whom checking begins
      what = "is not of this cluster's authority";
      break;
    default: what = fmt::format("is not accepted: {}", X509_verify_cert_error_string(error));
  }
  return certificate ? fmt::format("{} {}", shown(certificate), what) : what;
}

std::string state_of(const TlsFiles& files) {
  std::string out;
  for (const std::string* path : {&files.ca, &files.certificate, &files.key}) {
    struct stat file = {};
    if (::stat(path->c_str(), &file) != 0) out += "none;";
    else
      out += fmt::format("{} {} {} {}.{} {}.{};", file.st_dev, file.st_ino, file.st_size, file.st_mtim.tv_sec,
                         file.st_mtim.tv_nsec, file.st_ctim.tv_sec, file.st_ctim.tv_nsec);
  }
  return out;
}

Result<std::shared_ptr<const TlsContext::Impl>> TlsContext::Impl::read(const TlsFiles& files,
                                                                       const CertificateName& self) {
  TROUPE_ASSIGN(auto impl, Impl::make());
  impl->state = state_of(files);
  SSL_CTX* const context = impl->context.get();
  const auto openssl = [] { return make_error(Code::kInternal, "OpenSSL takes no certificate: {}", openssl_text()); };

  TROUPE_ASSIGN(const auto authorities, certificates_of(files.ca));
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  for (const X509Ptr& one : authorities) {
    if (X509_check_ca(one.get()) != 1)
      return PemFile::bad(files.ca,
                          fmt::format("has {}, which is not a certificate of an authority", shown(one.get())));
    if (X509_STORE_add_cert(store, one.get()) != 1) return openssl();
  }

  TROUPE_ASSIGN(const auto chain, certificates_of(files.certificate));
  X509* const own = chain[0].get();
  using Checked = std::unique_ptr<X509_STORE_CTX, FreedBy<X509_STORE_CTX_free>>;
  const Checked checked(X509_STORE_CTX_new());
  if (!checked || X509_STORE_CTX_init(checked.get(), store, own, nullptr) != 1) return openssl();
  if (X509_verify_cert(checked.get()) != 1)
    return PemFile::bad(files.certificate,
                        "has a certificate that nobody takes: " + fault_of_certificate(checked.get()));
  const auto name = name_in(own);
  if (!name.ok()) return PemFile::bad(files.certificate, "is not for this: " + name.error().message);
  CertificateName due = self;
  if (!due.task) due.client = name->client;
  if (*name != due)
    return PemFile::bad(files.certificate, fmt::format("is that of {}, and this is {}", name->uri(), due.uri()));

  TROUPE_ASSIGN(const KeyPtr key, key_of(files.key));
  if (X509_check_private_key(own, key.get()) != 1) {
    ERR_clear_error();
    return PemFile::bad(files.key,
                        fmt::format("is not the key of the certificate in {}", in_quotes(files.certificate)));
  }
  if (SSL_CTX_use_certificate(context, own) != 1 || SSL_CTX_use_PrivateKey(context, key.get()) != 1) return openssl();
  return std::shared_ptr<const Impl>(std::move(impl));
}

Result<std::shared_ptr<const TlsContext>> TlsContext::load(const TlsFiles& files, const CertificateName& self) {
  TROUPE_ASSIGN(auto impl, Impl::read(files, self));
  return std::shared_ptr<const TlsContext>(std::make_shared<TlsContext>(files, self, std::move(impl)));
}

}  // namespace troupe::net
