// SPDX-License-Identifier: Apache-2.0
// OpenSSL reads from and writes to two buffers, which this side fills and empties by plain calls: many records by one
// call, no signal for a broken pipe, and encrypting never waits for the socket. What is received is decrypted into the
// caller's memory.
#include "net/tls.h"

#include <openssl/err.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/log.h"
#include "base/printable.h"
#include "net/frame.h"
#include "net/tls_context.h"

namespace troupe::net {
namespace {

constexpr size_t kRecordBytes = 16384;                                         // the most that one holds
constexpr size_t kLeastInput = size_t{1} << 14, kMostInput = size_t{1} << 18;  // of the buffer, which grows
constexpr size_t kOutputBytes = size_t{1} << 18;  // encrypted; with so many nothing is added before some are sent
constexpr size_t kMostOutput = size_t{1} << 20;   // answers to a peer that sends without reading
constexpr size_t kMostOfOneRead = size_t{1} << 18;

/// What the peer's alert means, in words.
std::string text_of_alert(int alert) {
  switch (alert) {
    case SSL_AD_UNKNOWN_CA: return "the peer does not know the authority of this side's certificate";
    case SSL_AD_CERTIFICATE_EXPIRED: return "the peer finds that this side's certificate has expired";
    case SSL_AD_BAD_CERTIFICATE: return "the peer finds this side's certificate bad, or not valid yet";
    case SSL_AD_CERTIFICATE_REQUIRED: return "the peer asks for a certificate";
    case SSL_AD_PROTOCOL_VERSION: return "the peer does not speak TLS 1.3";
    default: return fmt::format("the peer ends TLS: {}", SSL_alert_desc_string_long(alert));
  }
}

class TlsTransport final : public Transport {
 public:
  TlsTransport(std::shared_ptr<const TlsContext::Impl> impl, int fd, TlsContext::Side side, uint64_t records_per_key)
      : Transport(fd), impl_(std::move(impl)), accepts_(side == TlsContext::Side::kAccepts),
        records_per_key_(records_per_key), ssl_(SSL_new(impl_->context.get())), input_(kLeastInput) {
    BIO* const bio = BIO_new(impl_->method.get());
    if (!ssl_ || !bio) {
      BIO_free(bio);
      fault_ = make_error(Code::kInternal, "OpenSSL makes no connection: {}", openssl_text());
      return;
    }
    BIO_set_data(bio, this);
    SSL_set_bio(ssl_.get(), bio, bio);
    SSL_set_app_data(ssl_.get(), this);
    if (accepts_) SSL_set_accept_state(ssl_.get());
    else SSL_set_connect_state(ssl_.get());
  }

  ~TlsTransport() override {
    if (!open_ || !fault_.ok()) return;
    ERR_clear_error();
    SSL_shutdown(ssl_.get());  // says that nothing is missing
    flush();
    ERR_clear_error();
  }

  Result<bool> open() override;
  const CertificateName* peer() const override { return peer_ ? &*peer_ : nullptr; }
  Moved read(std::span<const iovec> pieces) override;
  Moved write(std::span<const iovec> pieces) override;
  bool pending() const override { return pending_; }
  size_t unsent() const override {
    const std::lock_guard guard(mutex_);
    return output_.size() - sent_;
  }

  // OpenSSL calls these.
  int give(char* to, size_t most);
  int take(const char* from, size_t bytes);
  bool input_ended() const { return ended_; }
  void reject(std::string why) { rejected_ = std::move(why); }

 private:
  using Ssl = std::unique_ptr<SSL, FreedBy<SSL_free>>;

  Moved read_some(iovec piece);
  Status encrypt(const char* from, size_t bytes);
  /// Sends what output_ has. Returns whether all of it is sent; not after write_fault_.
  bool flush();
  Moved write_plain(std::span<const iovec> pieces);
  /// Why a call of OpenSSL's failed that does not want more input.
  Error why(int ssl_error);

  const std::shared_ptr<const TlsContext::Impl> impl_;
  const bool accepts_;
  const uint64_t records_per_key_;
  mutable std::mutex mutex_;  // guards the rest, but for what the reading thread has alone
  const Ssl ssl_;
  bool open_ = false;
  std::optional<CertificateName> peer_;
  std::string rejected_;  // what is wrong with the peer's certificate
  Status fault_;          // for good, of both directions
  Status write_fault_;    // of the socket: what has come can still be read
  // Input as it came. `first_` has the bytes that it begins with.
  std::vector<char> input_;
  size_t at_ = 0, end_ = 0;
  std::string first_;
  bool asks_ = true;    // the socket may have more
  bool ended_ = false;  // by the peer
  int socket_error_ = 0;
  // Output, encrypted.
  std::string output_;
  size_t sent_ = 0;
  uint64_t records_ = 0;
  char staged_[kRecordBytes];
  // The reading thread's own.
  bool pending_ = false;
};

// --- between OpenSSL and the socket ---

int TlsTransport::give(char* to, size_t most) {
  while (at_ == end_) {
    if (!asks_) return -1;
    if (end_ == input_.size() && end_ < kMostInput) input_.resize(2 * end_);
    const ssize_t got = recv(fd(), input_.data(), input_.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      asks_ = false;
    } else if (got <= 0) {
      asks_ = false;
      ended_ = true;
      socket_error_ = got < 0 ? errno : 0;
      return 0;
    } else {
      at_ = 0;
      end_ = static_cast<size_t>(got);
      asks_ = end_ == input_.size();  // less came than there was room for: nothing is left
      if (first_.size() < FrameHeader::kMagic.size())
        first_.append(input_.data(), std::min(end_, FrameHeader::kMagic.size() - first_.size()));
    }
  }
  const size_t some = std::min(most, end_ - at_);
  std::memcpy(to, input_.data() + at_, some);
  at_ += some;
  return static_cast<int>(some);
}

int TlsTransport::take(const char* from, size_t bytes) {
  if (output_.size() - sent_ + bytes > kMostOutput) return -1;
  output_.append(from, bytes);
  return static_cast<int>(bytes);
}

bool TlsTransport::flush() {
  while (sent_ < output_.size()) {
    if (!write_fault_.ok()) return false;
    const ssize_t sent = send(fd(), output_.data() + sent_, output_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) sent_ += static_cast<size_t>(sent);
    else if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    else if (errno != EINTR) write_fault_ = broken_connection("writing", errno);
  }
  output_.clear();
  sent_ = 0;
  return true;
}

// --- what OpenSSL finds ---

Error TlsTransport::why(int ssl_error) {
  const unsigned long error = ERR_peek_error();
  const int reason = ERR_GET_REASON(error);
  const std::string text = openssl_text();
  if (ended_) {
    if (socket_error_ != 0) return broken_connection("reading", socket_error_);
    return make_error(Code::kInternal, "the peer closed the connection");
  }
  const auto wrong = [](const auto& what) { return make_error(Code::kFailedPrecondition, "{}", what); };
  if (!open_ && first_ == FrameHeader::kMagic)
    return wrong(accepts_ ? "the dialer talks no TLS, which is needed here (--tls)"
                          : "it talks no TLS, which this side needs");
  if (!rejected_.empty()) return wrong(rejected_);
  if (ssl_error == SSL_ERROR_SSL && ERR_GET_LIB(error) == ERR_LIB_SSL && reason > SSL_AD_REASON_OFFSET)
    return wrong(text_of_alert(reason - SSL_AD_REASON_OFFSET));
  if (!open_) return wrong(fmt::format("it does not speak TLS 1.3 as it should ({})", text));
  return wrong(fmt::format("what came is not what was sent ({})", text));
}

Result<bool> TlsTransport::open() {
  const std::lock_guard guard(mutex_);
  if (!fault_.ok()) return fault_;
  if (open_) return true;
  asks_ = true;
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_.get());
  if (done == 1) {
    // The last bytes of a side that dials go out with what it writes first: one who is refused has said all by then,
    // and reads why.
    auto name = name_in(SSL_get0_peer_certificate(ssl_.get()));
    if (!name.ok()) {
      fault_ = name.error();
      return fault_;
    }
    peer_ = std::move(*name);
    open_ = true;
    return true;
  }
  const int error = SSL_get_error(ssl_.get(), done);
  if (error != SSL_ERROR_WANT_READ) fault_ = why(error);
  flush();  // an alert, if it failed
  if (!fault_.ok()) return fault_;
  if (!write_fault_.ok()) return write_fault_;
  return false;
}

// --- reading ---

Transport::Moved TlsTransport::read(std::span<const iovec> pieces) {
  size_t total = 0;
  for (const iovec& piece : pieces) {
    for (size_t done = 0; done < piece.iov_len;) {
      const std::lock_guard guard(mutex_);
      auto got = read_some({static_cast<char*>(piece.iov_base) + done, piece.iov_len - done});
      // What is behind the last record, its end or a fault, is for the next call, as soon as it comes.
      pending_ = got.ok() ? got->has_value() : total > 0;
      if (total > 0 && (!got.ok() || !*got || **got == 0)) return std::optional(total);
      if (!got.ok() || !*got || **got == 0) return got;
      done += **got;
      total += **got;
      if (total >= kMostOfOneRead) return std::optional(total);
    }
  }
  return std::optional(total);
}

Transport::Moved TlsTransport::read_some(iovec piece) {
  if (!fault_.ok()) return fault_;
  asks_ = true;
  ERR_clear_error();
  size_t got = 0;
  const int done = SSL_read_ex(ssl_.get(), piece.iov_base, piece.iov_len, &got);
  if (done == 1) return std::optional(got);
  const int error = SSL_get_error(ssl_.get(), done);
  // OpenSSL may have answered, to be told of another key for one. What does not go now does with what is written next.
  flush();
  if (error == SSL_ERROR_WANT_READ) return std::optional<size_t>();
  if (error == SSL_ERROR_ZERO_RETURN && socket_error_ == 0) return std::optional<size_t>(0);
  fault_ = why(error);
  return fault_;
}

// --- writing ---

Status TlsTransport::encrypt(const char* from, size_t bytes) {
  if (++records_ % records_per_key_ == 0) SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
  ERR_clear_error();
  size_t written = 0;
  const int done = SSL_write_ex(ssl_.get(), from, bytes, &written);
  if (done == 1) return {};
  fault_ = why(SSL_get_error(ssl_.get(), done));
  return fault_;
}

Transport::Moved TlsTransport::write(std::span<const iovec> pieces) {
  const std::lock_guard guard(mutex_);
  if (!fault_.ok() && accepts_ && !open_ && first_ == FrameHeader::kMagic) return write_plain(pieces);
  if (!fault_.ok()) return fault_;
  if (!open_) return std::optional<size_t>();
  size_t total = 0;
  auto piece = pieces.begin();
  size_t at = 0;  // of it
  for (bool blocked = false; !blocked;) {
    while (piece != pieces.end() && output_.size() - sent_ < kOutputBytes) {
      if (piece->iov_len - at >= kRecordBytes) {
        TROUPE_RETURN_IF_ERROR(encrypt(static_cast<const char*>(piece->iov_base) + at, kRecordBytes));
        at += kRecordBytes;
        total += kRecordBytes;
      } else {
        // Small pieces share a record.
        size_t staged = 0;
        for (; piece != pieces.end() && staged < kRecordBytes; ++piece, at = 0) {
          const size_t some = std::min(piece->iov_len - at, kRecordBytes - staged);
          if (some > 0) std::memcpy(staged_ + staged, static_cast<const char*>(piece->iov_base) + at, some);
          staged += some;
          at += some;
          if (at < piece->iov_len) break;
        }
        if (staged > 0) TROUPE_RETURN_IF_ERROR(encrypt(staged_, staged));
        total += staged;
      }
      if (piece != pieces.end() && at == piece->iov_len) ++piece, at = 0;
    }
    blocked = !flush() || piece == pieces.end();
    if (!write_fault_.ok()) return write_fault_;
  }
  if (total == 0 && output_.size() > sent_) return std::optional<size_t>();
  return std::optional(total);
}

/// To one who dials without TLS, and is told so.
Transport::Moved TlsTransport::write_plain(std::span<const iovec> pieces) {
  return make_plain_transport(fd())->write(pieces);
}

// --- OpenSSL's side ---

TlsTransport& of(BIO* bio) { return *static_cast<TlsTransport*>(BIO_get_data(bio)); }

int read_bio(BIO* bio, char* to, int most) {
  BIO_clear_retry_flags(bio);
  const int got = of(bio).give(to, static_cast<size_t>(std::max(most, 0)));
  if (got < 0) BIO_set_retry_read(bio);
  return got;
}
int write_bio(BIO* bio, const char* from, int bytes) {
  BIO_clear_retry_flags(bio);
  return of(bio).take(from, static_cast<size_t>(std::max(bytes, 0)));
}
long control_bio(BIO* bio, int what, long, void*) {
  if (what == BIO_CTRL_EOF) return of(bio).input_ended();
  return what == BIO_CTRL_FLUSH;
}
int create_bio(BIO* bio) {
  BIO_set_init(bio, 1);
  return 1;
}

/// Keeps what is wrong with a peer's certificate, for the message.
int verified(int fine, X509_STORE_CTX* store) {
  if (fine) return fine;
  auto* const ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto* const transport = static_cast<TlsTransport*>(SSL_get_app_data(ssl));
  transport->reject("its certificate " + fault_of_certificate(store));
  return fine;
}

}  // namespace

Result<std::unique_ptr<TlsContext::Impl>> TlsContext::Impl::make() {
  begin_openssl();
  ERR_clear_error();
  auto out = std::make_unique<Impl>();
  out->context.reset(SSL_CTX_new(TLS_method()));
  out->method.reset(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "Troupe"));
  SSL_CTX* const context = out->context.get();
  BIO_METHOD* const method = out->method.get();
  if (!context || !method || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      BIO_meth_set_read(method, read_bio) != 1 || BIO_meth_set_write(method, write_bio) != 1 ||
      BIO_meth_set_ctrl(method, control_bio) != 1 || BIO_meth_set_create(method, create_bio) != 1 ||
      SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256") !=
          1)
    return make_error(Code::kInternal, "OpenSSL makes no context for TLS: {}", openssl_text());
  // Each connection shows its certificates: nothing is resumed.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, verified);
  return out;
}

TlsContext::TlsContext(TlsFiles files, CertificateName self, std::shared_ptr<const Impl> impl)
    : files_(std::move(files)), self_(std::move(self)), impl_(std::move(impl)) {}
TlsContext::~TlsContext() = default;

std::unique_ptr<Transport> TlsContext::transport(int fd, Side side, uint64_t records_per_key) const {
  const std::lock_guard guard(mutex_);
  if (std::string state = state_of(files_); state != impl_->state && state != refused_) {
    if (auto read = Impl::read(files_, self_); read.ok()) {
      impl_ = std::move(*read);
      log_info("connections of {} have the certificate in {} from now on", self_.uri(), in_quotes(files_.certificate));
    } else {
      refused_ = std::move(state);
      log_warning("the files of TLS have changed, and those read before stay in use: {}", read.error().message);
    }
  }
  return std::make_unique<TlsTransport>(impl_, fd, side, records_per_key);
}

}  // namespace troupe::net
