// SPDX-License-Identifier: Apache-2.0
// ByteReader over zlib's gzFile, which passes plain files through.
#include "io/byte_reader.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "io/file_system.h"

namespace troupe {
namespace {

/// As long as one lives, the calling thread is not interrupted: zlib takes a read() that a handler of the program's has
/// ended for a fault, and drops what it had read before. Signals that nobody handles do what they do.
class Uninterrupted {
 public:
  Uninterrupted() {
    sigset_t handled;
    sigemptyset(&handled);
    for (int signal = 1; signal <= SIGRTMAX; ++signal)
      if (interrupts(signal)) sigaddset(&handled, signal);
    pthread_sigmask(SIG_BLOCK, &handled, &before_);
  }
  ~Uninterrupted() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Uninterrupted(const Uninterrupted&) = delete;

 private:
  static bool interrupts(int signal) {
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
      if (signal == fault) return false;
    struct sigaction action = {};
    if (::sigaction(signal, nullptr, &action) != 0 || (action.sa_flags & SA_RESTART)) return false;
    return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
  }

  sigset_t before_;
};

}  // namespace

void ByteReader::Closer::operator()(void* file) const { gzclose_r(static_cast<gzFile>(file)); }

Result<ByteReader> ByteReader::open(const std::string& path, Kinds kinds) {
  TROUPE_ASSIGN(const int fd, open_for_reading(path, kinds == Kinds::kStreamsToo));
  struct stat info;
  const bool known = ::fstat(fd, &info) == 0;
  errno = 0;
  gzFile file = known ? gzdopen(fd, "rbe") : nullptr;
  if (!file) {
    const int fault = errno ? errno : ENOMEM;
    ::close(fd);
    return system_error("cannot open", path, fault);
  }
  gzbuffer(file, 1 << 17);
  return ByteReader(path, file, S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : kNoLength);
}

Result<size_t> ByteReader::read(void* out, size_t bytes) {
  auto* file = static_cast<gzFile>(file_.get());
  std::optional<Uninterrupted> uninterrupted;
  if (length_ == kNoLength) uninterrupted.emplace();  // a read() of a file does not wait
  size_t done = 0;
  while (done < bytes) {
    const auto piece = static_cast<unsigned>(std::min<size_t>(bytes - done, 1u << 30));
    const int n = gzread(file, static_cast<char*>(out) + done, piece);
    int code = Z_OK;
    const char* word = gzerror(file, &code);
    if (code == Z_ERRNO) return system_error("cannot read", path_, errno);
    if (n > 0) {  // also where the stream is known to be cut off behind it
      done += static_cast<size_t>(n);
      continue;
    }
    const bool failed = n < 0 || (code != Z_OK && code != Z_STREAM_END);
    if (failed && done > 0) break;  // the next call says it
    if (failed)
      return make_error(Code::kDataLoss, "'{}': {} gzip stream after {} bytes of data: {}", path_,
                        code == Z_BUF_ERROR ? "truncated" : "broken", static_cast<int64_t>(gztell(file)), word);
    break;
  }
  return done;
}

bool ByteReader::compressed() const { return gzdirect(static_cast<gzFile>(file_.get())) == 0; }

uint64_t ByteReader::most_bytes() const { return compressed() && length_ != kNoLength ? length_ * 1032 : length_; }

}  // namespace troupe
