// SPDX-License-Identifier: Apache-2.0
// How near does a lane come to the socket below it? Two threads of one process send tensors over loopback TCP, by plain
// send() and recv() of the same bytes, by lanes and by lanes with TLS, in turns: one way as fast as it goes, and to and
// fro. Prints one Markdown table.
#include <CLI/CLI.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "net/certificates.h"
#include "net/lane.h"
#include "net/tls.h"
#include "programs/program.h"
#include "troupe/tensor.h"

using namespace troupe;

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Two ends of a TCP connection over loopback.
class Connection {
 public:
  Connection() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    bind(listener, any, size);
    listen(listener, 1);
    getsockname(listener, any, &size);
    ends_[0] = socket(AF_INET, SOCK_STREAM, 0);
    connect(ends_[0], any, size);
    ends_[1] = accept(listener, nullptr, nullptr);
    close(listener);
    const int on = 1;
    for (const int fd : ends_) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~Connection() {
    for (const int fd : ends_) close(fd);
  }
  Connection(const Connection&) = delete;
  int operator[](int i) const { return ends_[i]; }

 private:
  int ends_[2];
};

/// What one side of a connection can do, by plain calls or by a lane.
class End {
 public:
  virtual ~End() = default;
  virtual void send(int count) = 0;     // tensors of the size that is measured
  virtual void receive(int count) = 0;  // as many
};

class PlainEnd final : public End {
 public:
  PlainEnd(int fd, size_t bytes) : fd_(fd), buffer_(bytes) {}
  void send(int count) override {
    for (int i = 0; i < count; ++i)
      for (size_t at = 0; at < buffer_.size();)
        at += static_cast<size_t>(::send(fd_, buffer_.data() + at, buffer_.size() - at, MSG_NOSIGNAL));
  }
  void receive(int count) override {
    for (int i = 0; i < count; ++i)
      for (size_t at = 0; at < buffer_.size();)
        at += static_cast<size_t>(recv(fd_, buffer_.data() + at, buffer_.size() - at, 0));
  }

 private:
  const int fd_;
  std::vector<char> buffer_;
};

class LaneEnd : public End {
 public:
  LaneEnd(int fd, size_t bytes) : LaneEnd(net::make_plain_transport(fd), bytes) {}
  LaneEnd(std::unique_ptr<net::Transport> transport, size_t bytes)
      : lane_(std::move(transport), {.allocator = make_caching_allocator()}) {
    const Tensor tensor = Tensor::zeros(DType::kUInt8, {static_cast<int64_t>(bytes)}).value();
    frame_ = net::EncodedFrame::make({net::FrameType::kTensor, std::string(20, 'b'), {tensor}}).value();
  }
  void send(int count) override {
    for (int i = 0; i < count;) {
      for (; i < count && lane_.unwritten() < (8 << 20); ++i) lane_.add(frame_, ++sequence_);
      while (lane_.write().value() > 0) await(POLLOUT);
    }
  }
  void receive(int count) override {
    for (received_ -= count; received_ < 0;) {
      const auto take = [&](net::ReceivedFrame) {
        ++received_;
        return Status();
      };
      if (lane_.read(take).value().bytes == 0) await(POLLIN);
    }
  }

 private:
  void await(short events) {
    pollfd entry = {lane_.fd(), events, 0};
    poll(&entry, 1, -1);
  }
  net::Lane lane_;
  net::FrameRef frame_;
  uint64_t sequence_ = 0;
  int received_ = 0;
};

/// Contexts of two tasks of a cluster, by certificates in files that are gone again.
struct Tls {
  static Result<Tls> make() {
    std::string folder = (std::filesystem::temp_directory_path() / "bench_lanes_XXXXXX").string();
    if (!mkdtemp(folder.data())) return make_error(Code::kInternal, "no folder {}", folder);
    const auto write = [&](const char* name, const std::string& text) {
      const std::string path = folder + "/" + name;
      std::ofstream(path) << text;
      chmod(path.c_str(), 0600);
      return path;
    };
    const net::Validity validity = {0, int64_t{1} << 32};
    TROUPE_ASSIGN(const net::KeyPair authority, net::make_authority("bench", validity));
    Tls out;
    for (int i = 0; i < 2; ++i) {
      const net::CertificateName name = {"bench", net::TaskId{"worker", i}};
      TROUPE_ASSIGN(const net::KeyPair own, net::issue_certificate(authority, name, validity));
      auto loaded = net::TlsContext::load(
          {write("ca", authority.certificate), write("certificate", own.certificate), write("key", own.key)}, name);
      if (!loaded.ok()) return loaded.error();
      out.contexts[i] = std::move(*loaded);
    }
    std::filesystem::remove_all(folder);
    return out;
  }
  std::shared_ptr<const net::TlsContext> contexts[2];
};

class TlsEnd final : public LaneEnd {
 public:
  /// Both ends are open when both have been asked.
  TlsEnd(const Tls& tls, int i, int fd, size_t bytes)
      : LaneEnd(opened(tls.contexts[i]->transport(
                    fd, i == 0 ? net::TlsContext::Side::kDials : net::TlsContext::Side::kAccepts)),
                bytes) {}

 private:
  static std::unique_ptr<net::Transport> opened(std::unique_ptr<net::Transport> transport) {
    fcntl(transport->fd(), F_SETFL, fcntl(transport->fd(), F_GETFL) | O_NONBLOCK);
    while (!transport->open().value()) {
      pollfd entry = {transport->fd(), POLLIN, 0};
      poll(&entry, 1, -1);
    }
    (void)transport->write({});
    return transport;
  }
};

struct Speeds {
  std::vector<double> gigabytes, microseconds;  // a second one way; there and back
};

using MakeEnd = std::function<std::unique_ptr<End>(int i, int fd)>;

/// Both measurements with ends of one kind.
void measure_once(const MakeEnd& make, size_t bytes, int count, int trips, Speeds& speeds) {
  const Connection connection;
  std::atomic<bool> stands = false;
  std::unique_ptr<End> b;  // stays until all is read: its end is told
  std::thread other([&] {
    b = make(1, connection[1]);
    stands = true;
    b->receive(count);
    b->send(1);
    for (int i = 0; i < trips; ++i) b->receive(1), b->send(1);
  });
  const auto a = make(0, connection[0]);
  while (!stands) std::this_thread::yield();
  auto begin = Clock::now();
  a->send(count);
  a->receive(1);
  speeds.gigabytes.push_back(static_cast<double>(bytes) * count / seconds_since(begin) / 1e9);
  begin = Clock::now();
  for (int i = 0; i < trips; ++i) a->send(1), a->receive(1);
  speeds.microseconds.push_back(seconds_since(begin) / trips * 1e6);
  other.join();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<int64_t>(values.size() / 2));
  return values[values.size() / 2];
}

Status measure(int rounds, int mebibytes) {
  TROUPE_ASSIGN(const Tls tls, Tls::make());
  programs::print(
      "| a tensor of | TCP, GB/s | lane, GB/s | with TLS, GB/s | lane / TCP | TLS / TCP | TCP, there and back, us | "
      "lane, us | with TLS, us | lane / TCP | TLS / TCP |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const size_t kib : {4, 64, 256, 1024, 16384}) {
    const size_t bytes = kib << 10;
    const int count =
        std::min(40'000, std::max<int>(4, static_cast<int>((static_cast<size_t>(mebibytes) << 20) / bytes)));
    const int trips = std::clamp(count, 4, 500);
    const MakeEnd kinds[3] = {
        [&](int, int fd) { return std::make_unique<PlainEnd>(fd, bytes); },
        [&](int, int fd) { return std::make_unique<LaneEnd>(fd, bytes); },
        [&](int i, int fd) { return std::make_unique<TlsEnd>(tls, i, fd, bytes); },
    };
    Speeds speeds[3];
    for (int i = 0; i < rounds; ++i)
      for (int kind = 0; kind < 3; ++kind) measure_once(kinds[kind], bytes, count, trips, speeds[kind]);
    double fast[3], quick[3];
    for (int kind = 0; kind < 3; ++kind)
      fast[kind] = median(speeds[kind].gigabytes), quick[kind] = median(speeds[kind].microseconds);
    programs::print(
        "| {} KiB | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.1f} | {:.1f} | {:.1f} | {:.2f} | {:.2f} |\n", kib,
        fast[0], fast[1], fast[2], fast[1] / fast[0], fast[2] / fast[0], quick[0], quick[1], quick[2],
        quick[1] / quick[0], quick[2] / quick[0]);
    TROUPE_RETURN_IF_ERROR(programs::flush());
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Sends tensors over loopback TCP, by plain calls, by lanes and by lanes with TLS in turns; prints a Markdown "
      "table of medians.");
  int rounds = 7, mebibytes = 512;
  app.add_option("--rounds", rounds, "Rounds of each size")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--mebibytes", mebibytes, "Sent one way in each")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  return programs::run(app, argc, argv, [&] { return measure(rounds, mebibytes); });
}
