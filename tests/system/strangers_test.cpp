// SPDX-License-Identifier: Apache-2.0
// Strangers at the address of a worker process: those who say nothing, half a HELLO, garbage, or frames of absurd
// length. They are dropped, cost nothing that lasts, and keep no client out.
#include <fstream>
#include <random>

#include <arpa/inet.h>
#include <sys/socket.h>

#include "net/frame.h"
#include "net/handshake.h"
#include "tests/repeats.h"
#include "tests/system/cluster.h"

namespace troupe::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::minutes;

/// A connection that a test reads and writes as it likes.
class Stranger {
 public:
  Stranger(const std::string& host, uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    REQUIRE(::inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1);
    REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  Stranger(Stranger&& other) : fd_(std::exchange(other.fd_, -1)) {}
  ~Stranger() {
    if (fd_ >= 0) ::close(fd_);
  }
  /// The worker may close it before all is written.
  void write(const std::string& bytes) { (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// Whether so many bytes come within a minute.
  bool reads(size_t bytes) {
    std::string piece(bytes, '\0');
    timeval most = {60, 0};
    REQUIRE(::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) == 0);
    return ::recv(fd_, piece.data(), bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }
  /// Reads on; whether the worker closes it within a minute.
  bool is_closed() {
    const auto until = Clock::now() + minutes(1);
    for (char piece[4096];;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
      pollfd entry = {fd_, POLLIN, 0};
      if (left <= 0 || ::poll(&entry, 1, static_cast<int>(left)) != 1) return false;
      if (::recv(fd_, piece, sizeof piece, 0) <= 0) return true;
    }
  }

 private:
  int fd_;
};

/// A worker over TCP.
struct TcpWorker {
  TcpWorker() {
    json = fmt::format(R"({{"cluster": {{"worker": ["{}:{}"]}}}})", host, kPort);
    folder.write("g.pbtxt", R"(
      node { name: 'one' op: 'Const' device: '/job:worker/task:0/cpu:0' attr { key: 'dtype' value { type: DT_FLOAT } }
             attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1.5 } } } }
      node { name: 'y' op: 'Neg' input: 'one' device: '/job:worker/task:0/cpu:0'
             attr { key: 'T' value { type: DT_FLOAT } } })");
    program = std::make_unique<Program>(
        kTroupePath, std::vector<std::string>{"worker", "--cluster", json, "--job", "worker", "--task", "0"});
    REQUIRE(program->read_for(minutes(1), " listens at "));
  }
  Stranger meet() const { return {host, kPort}; }
  void check_serves() {
    const Ended ended = run({"run", folder.file("g.pbtxt"), "--cluster", json, "--fetch", "y"});
    INFO(ended.err << program->err());
    CHECK(ended.status == 0);
    CHECK(ended.out == "y float32[] -1.5\n");
  }
  /// A HELLO of a client that may come, another one each time.
  std::string hello() {
    net::Identity self;
    self.cluster = net::ClusterSpec::parse(json).value();
    self.task = {std::string(net::kClientJob), 7};
    self.role = net::PeerRole::kClient;
    self.incarnation = {1, ++clients};
    return std::string(net::Dialer(self, net::TaskId{"worker", 0}, 0, {}, 0, 0).output());
  }
  size_t descriptors() const {
    const std::filesystem::directory_iterator all("/proc/" + std::to_string(program->pid()) + "/fd");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }
  /// Whether it comes to have so many within a minute.
  bool comes_to_have(size_t count) {
    const auto until = Clock::now() + minutes(1);
    while (descriptors() != count) {
      if (Clock::now() > until) return false;
      program->read_for(std::chrono::milliseconds(10));
    }
    return true;
  }
  /// Of /proc/PID/status, in KiB: VmRSS is the memory that it has, VmHWM the most that it ever had.
  int64_t kib(const std::string& field) const {
    std::ifstream in("/proc/" + std::to_string(program->pid()) + "/status");
    for (std::string name; in >> name; in.ignore(1000, '\n'))
      if (int64_t out = 0; name == field + ":" && in >> out) return out;
    FAIL("no " << field);
    return -1;
  }

  static constexpr uint16_t kPort = 4711;
  const TemporaryDirectory folder;
  const std::string host = own_loopback();
  std::string json;
  uint64_t clients = 0;
  std::unique_ptr<Program> program;
};

/// How much more memory a worker may have afterwards; sanitizers keep what was freed for a while.
constexpr int64_t kMostKib = (kSlowness > 1 ? 128 : 8) * 1024;

std::string frame_header(net::FrameType type, uint32_t body, uint32_t tensors = 0, uint64_t payload = 0,
                         uint64_t sequence = 0) {
  net::FrameHeader out;
  out.type = type;
  out.body = body;
  out.tensors = tensors;
  out.table = tensors * 12;
  out.payload = payload;
  out.sequence = sequence;
  const auto bytes = out.encode();
  return {bytes.data(), bytes.size()};
}

}  // namespace

TEST_CASE("strangers: who says nothing or half a HELLO is dropped after 5 s, keeps nobody out and leaves nothing") {
  TcpWorker worker;
  const std::string hello = worker.hello();
  const size_t at_first = worker.descriptors();
  worker.check_serves();
  const auto crowd = [&](size_t silent, size_t half) {
    std::vector<Stranger> out;
    std::vector<Clock::time_point> begun;
    for (size_t i = 0; i < silent + half; ++i) {
      begun.push_back(Clock::now());
      out.push_back(worker.meet());
      if (i >= silent) out.back().write(hello.substr(0, 1 + i % (hello.size() - 1)));
    }
    worker.check_serves();
    for (size_t i = 0; i < out.size(); ++i) {
      INFO("stranger " << i);
      REQUIRE(out[i].is_closed());
      CHECK(Clock::now() - begun[i] >= std::chrono::nanoseconds(net::kHandshakeDeadlineNs));
    }
  };
  crowd(10, 10);  // whatever a worker takes once it has by now
  REQUIRE(worker.comes_to_have(at_first));
  const int64_t kib_before = worker.kib("VmRSS");
  crowd(100, 100);
  CHECK(worker.comes_to_have(at_first));
  CHECK(worker.kib("VmRSS") <= kib_before + kMostKib);
  worker.check_serves();
  worker.program->signal(SIGTERM);
  CHECK(worker.program->wait() == 0);
}

TEST_CASE("strangers: garbage and frames of absurd length close the connection, and the worker serves on") {
  TcpWorker worker;
  const size_t at_first = worker.descriptors();
  worker.check_serves();
  const int64_t kib_before = worker.kib("VmHWM");
  const std::string hello = worker.hello();
  std::mt19937 random(7);
  std::string noise(100'000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  std::vector<std::string> first = {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", std::string(100'000, '\0'), noise,
                                    hello.substr(0, 20) + noise};
  for (const uint32_t body : {4097u, 1u << 26, UINT32_MAX}) first.push_back(frame_header(net::FrameType::kHello, body));
  first.push_back(frame_header(net::FrameType::kHello, 100, 1, UINT64_MAX));
  first.push_back(frame_header(net::FrameType::kTensor, 100, 1, UINT64_MAX, 1));
  for (size_t i = 0; i < first.size(); ++i) {
    INFO("case " << i);
    Stranger stranger = worker.meet();
    stranger.write(first[i]);
    CHECK(stranger.is_closed());
  }
  worker.check_serves();

  // The same from one who has said who he is.
  for (const std::string& frame : {noise, frame_header(net::FrameType::kRun, UINT32_MAX, 0, 0, 1),
                                   frame_header(net::FrameType::kRun, 8, 1, UINT64_MAX, 1),
                                   frame_header(net::FrameType::kRun, 8, UINT32_MAX / 12, 8, 1)}) {
    Stranger client = worker.meet();
    client.write(worker.hello());
    REQUIRE(client.reads(net::FrameHeader::kBytes));
    client.write(frame);
    CHECK(client.is_closed());
  }
  worker.check_serves();
  CHECK(worker.comes_to_have(at_first));
  CHECK(worker.kib("VmHWM") <= kib_before + kMostKib);
  worker.program->signal(SIGTERM);
  CHECK(worker.program->wait() == 0);
}

}  // namespace troupe::testing
