// SPDX-License-Identifier: Apache-2.0
// TLS between two ends of a socket: what lanes carry over it, who is let in, what breaks it, and the files that it
// begins with.
#include "net/tls.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <thread>

#include "net/lane.h"
#include "tests/net/frames.h"
#include "tests/net/keys.h"
#include "tests/net/raw_tls.h"
#include "tests/net/sockets.h"
#include "tests/repeats.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;
using net::Lane;
using net::TlsContext;
using net::TlsFiles;
using net::Transport;
using Side = TlsContext::Side;

namespace {

void never_block(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

/// Both ends of a connection of worker 0, which dials, and worker 1.
struct Ends {
  explicit Ends(TestKeys& keys, bool tcp = false, uint64_t records_per_key = 1 << 20) : sockets(tcp) {
    never_block(sockets.a), never_block(sockets.b);
    dialer = keys.context(task_named("worker", 0))->transport(sockets.a, Side::kDials, records_per_key);
    acceptor = keys.context(task_named("worker", 1))->transport(sockets.b, Side::kAccepts, records_per_key);
  }
  void open() {
    for (bool a = false, b = false; !a || !b;) {
      const auto one = dialer->open();
      REQUIRE(one.ok());
      a = *one;
      if (a) REQUIRE(dialer->write({}).ok());  // its last message waits for company
      const auto other = acceptor->open();
      REQUIRE(other.ok());
      b = *other;
    }
  }
  SocketPair sockets;
  std::unique_ptr<Transport> dialer, acceptor;
};

/// What a side says in the end; empty: it is open, or waits.
std::string fault(Transport& transport) {
  const auto opened = transport.open();
  if (!opened.ok()) return opened.error().message;
  if (!*opened) return {};
  (void)transport.write({});
  char byte;
  const iovec piece = {&byte, 1};
  const auto got = transport.read({&piece, 1});
  return got.ok() ? "" : got.error().message;
}

/// What both sides say when the one that speaks last has said it.
std::pair<std::string, std::string> faults(Transport& dialer, Transport& acceptor) {
  std::pair<std::string, std::string> out;
  for (int i = 0; i < 20; ++i) {
    if (out.first.empty()) out.first = fault(dialer);
    if (out.second.empty()) out.second = fault(acceptor);
  }
  return out;
}
/// The same of our side, when the other is OpenSSL by itself.
std::string fault_with(Transport& ours, RawTls& raw) {
  for (int i = 0; i < 20; ++i) {
    raw.open();
    if (auto out = fault(ours); !out.empty()) return out;
  }
  return {};
}

size_t write_text(Transport& to, std::string_view text) {
  const iovec piece = {const_cast<char*>(text.data()), text.size()};
  const auto written = to.write({&piece, 1});
  REQUIRE(written.ok());
  return written->value_or(0);
}
std::string read_text(Transport& from, size_t most) {
  std::string out(most, '\0');
  const iovec piece = {out.data(), most};
  const auto got = from.read({&piece, 1});
  REQUIRE(got.ok());
  out.resize(got->value_or(0));
  return out;
}

}  // namespace

TEST_CASE("both sides learn whom the other's certificate names") {
  TestKeys keys;
  Ends ends(keys);
  CHECK(ends.dialer->peer() == nullptr);
  ends.open();
  REQUIRE(ends.dialer->peer());
  REQUIRE(ends.acceptor->peer());
  CHECK(*ends.dialer->peer() == task_named("worker", 1));
  CHECK(*ends.acceptor->peer() == task_named("worker", 0));
}

TEST_CASE("lanes over TLS carry random frames bit for bit, also when keys change") {
  TestKeys keys;
  for (const bool tcp : {false, true})
    for (const uint64_t records_per_key : {uint64_t{3}, uint64_t{1} << 20}) {
      Ends ends(keys, tcp, records_per_key);
      ends.open();
      Lane a(std::move(ends.dialer)), b(std::move(ends.acceptor));
      std::mt19937 random(7);
      std::vector<Frame> frames, got_a, got_b;
      for (int i = 0; i < repeats(200); ++i) {
        frames.push_back(random_frame(random));
        if (i % 40 == 0) frames.back().tensors.push_back(random_tensor(DType::kInt64, {200'000}, random));
        a.add(encoded(frames.back()), i + 1), b.add(encoded(frames.back()), i + 1);
      }
      const auto into = [](std::vector<Frame>& out) {
        return [&out](ReceivedFrame frame) {
          out.push_back(std::move(frame.frame));
          return Status();
        };
      };
      while (got_a.size() < frames.size() || got_b.size() < frames.size()) {
        REQUIRE(a.write().ok());
        REQUIRE(b.write().ok());
        REQUIRE(a.read(into(got_a), 100'000).ok());
        REQUIRE(b.read(into(got_b), 100'000).ok());
      }
      for (size_t i = 0; i < frames.size(); ++i) {
        REQUIRE(same(got_a[i], frames[i]));
        REQUIRE(same(got_b[i], frames[i]));
      }
      CHECK(a.counters().bytes_out == b.counters().bytes_in);
      CHECK(a.unwritten() == 0);
    }
}

TEST_CASE("two threads read and write one side at once") {
  TestKeys keys;
  Ends ends(keys, true);
  ends.open();
  Lane a(std::move(ends.dialer)), b(std::move(ends.acceptor));
  std::mt19937 random(3);
  const Frame frame = {FrameType::kTensor, "both ways", {random_tensor(DType::kUInt8, {3 << 20}, random)}};
  constexpr int kFrames = 12;
  const auto write = [&](Lane& lane) {
    for (int i = 1; i <= kFrames; ++i) {
      lane.add(encoded(frame), static_cast<uint64_t>(i));
      while (lane.write().value() > 0) await(lane.fd(), POLLOUT);
    }
  };
  std::atomic<int> right = 0;
  const auto read = [&](Lane& lane) {
    for (int count = 0; count < kFrames;) {
      const auto got = lane.read([&](ReceivedFrame received) {
        right += same(received.frame, frame);
        ++count;
        return Status();
      });
      TROUPE_CHECK(got.ok());
      if (got->bytes == 0) await(lane.fd(), POLLIN);
    }
  };
  std::thread one([&] { write(a); }), two([&] { write(b); }), three([&] { read(a); });
  read(b);
  for (std::thread* thread : {&one, &two, &three}) thread->join();
  CHECK(right == 2 * kFrames);
}

TEST_CASE("what has left the socket and was not asked for is pending") {
  TestKeys keys;
  Ends ends(keys);
  ends.open();
  CHECK_FALSE(ends.acceptor->pending());
  CHECK(write_text(*ends.dialer, "handshake, then more") == 20);
  CHECK(write_text(*ends.dialer, "!") == 1);
  CHECK(read_text(*ends.acceptor, 9) == "handshake");
  CHECK(ends.acceptor->pending());
  pollfd entry = {ends.sockets.b, POLLIN, 0};
  CHECK(poll(&entry, 1, 0) == 0);
  CHECK(read_text(*ends.acceptor, 100) == ", then more!");
  CHECK(read_text(*ends.acceptor, 100).empty());
  CHECK_FALSE(ends.acceptor->pending());
}

TEST_CASE("a full socket is not waited for, and takes the rest later") {
  TestKeys keys;
  Ends ends(keys);
  ends.open();
  const std::string text(1 << 20, 'x');
  size_t written = 0;
  for (size_t some; (some = write_text(*ends.dialer, text)) > 0;) written += some;
  CHECK(ends.dialer->unsent() > 0);
  CHECK(ends.dialer->unsent() < 400'000);
  CHECK(ends.dialer->blocked());
  size_t got = 0;
  for (int idle = 0; idle < 2;) {
    const size_t some = read_text(*ends.acceptor, 1 << 20).size();
    got += some;
    idle = some == 0 ? idle + 1 : 0;
    CHECK(write_text(*ends.dialer, {}) == 0);
  }
  CHECK(got == written);
  CHECK(ends.dialer->unsent() == 0);
}

TEST_CASE("what was sent before the end still arrives, then the end is told, and a broken pipe is no signal") {
  TestKeys keys;
  for (const bool in_order : {true, false}) {
    Ends ends(keys);
    ends.open();
    CHECK(write_text(*ends.dialer, "last words") == 10);
    if (in_order) ends.dialer.reset();
    ends.sockets.close_a();
    CHECK(read_text(*ends.acceptor, 100) == "last words");
    CHECK(read_text(*ends.acceptor, 100).empty());
    char byte;
    const iovec piece = {&byte, 1};
    const auto end = ends.acceptor->read({&piece, 1});
    REQUIRE(end.ok());
    CHECK(*end == std::optional<size_t>(0));
    const auto broken = ends.acceptor->write({&piece, 1});
    REQUIRE_FALSE(broken.ok());
    CHECK(broken.error().code == Code::kInternal);
    CHECK_THAT(broken.error().message, Contains("Broken pipe"));
  }
}

TEST_CASE("a changed, a repeated and a lost byte on the way end the connection") {
  TestKeys keys;
  for (const std::string how : {"changed", "repeated", "lost"}) {
    CAPTURE(how);
    Ends ends(keys);
    ends.open();
    // What the dialer sends is taken off its socket's other end, and put back otherwise.
    CHECK(write_text(*ends.dialer, "a message") == 9);
    char bytes[4096];
    const ssize_t got = recv(ends.sockets.b, bytes, sizeof bytes, 0);
    REQUIRE(got > 9);
    std::string sent(bytes, static_cast<size_t>(got));
    if (how == "changed") sent[sent.size() - 3] ^= 1;
    if (how == "repeated") sent += sent;
    if (how == "lost") sent.erase(5, 1), sent[4] -= 1;
    REQUIRE(send(ends.sockets.a, sent.data(), sent.size(), 0) == static_cast<ssize_t>(sent.size()));
    if (how == "repeated") CHECK(read_text(*ends.acceptor, 100) == "a message");
    char byte;
    const iovec piece = {&byte, 1};
    for (int i = 0; i < 2; ++i) {
      const auto fault = ends.acceptor->read({&piece, 1});
      REQUIRE_FALSE(fault.ok());
      CHECK(fault.error().code == Code::kFailedPrecondition);
      CHECK_THAT(fault.error().message, Contains("what came is not what was sent"));
    }
  }
}

TEST_CASE("certificates of another authority are refused, and both sides say so") {
  TestKeys keys, others;
  SocketPair sockets;
  never_block(sockets.a), never_block(sockets.b);
  const auto dialer = others.context(task_named("worker", 0))->transport(sockets.a, Side::kDials);
  const auto acceptor = keys.context(task_named("worker", 1))->transport(sockets.b, Side::kAccepts);
  const auto [a, b] = faults(*dialer, *acceptor);
  CHECK_THAT(a, Contains("its certificate troupe://mine/job:worker/task:1 is not of this cluster's authority"));
  CHECK_THAT(b, Contains("the peer does not know the authority of this side's certificate"));
}

TEST_CASE("certificates whose time is over, or has not come, are refused with the date by either side") {
  TestKeys keys;
  struct Case {
    net::Validity validity;
    std::string ours, alert;
  };
  for (const Case& c :
       {Case{around_now(7200, -3600), "has expired at 2", "finds that this side's certificate has expired"},
        Case{around_now(-3600, 7200), "is not valid before 2", "finds this side's certificate bad, or not valid yet"}})
    for (const bool ours_accepts : {true, false}) {
      CAPTURE(c.ours, ours_accepts);
      SocketPair sockets;
      never_block(sockets.a), never_block(sockets.b);
      RawTls raw(sockets.a, !ours_accepts, keys.files(task_named("worker", 0), c.validity));
      const auto ours =
          keys.context(task_named("worker", 1))->transport(sockets.b, ours_accepts ? Side::kAccepts : Side::kDials);
      CHECK_THAT(fault_with(*ours, raw), Contains("troupe://mine/job:worker/task:0 " + c.ours) && Contains(" UTC"));
    }
}

TEST_CASE("no certificate, one without a name, one of a web server and an older TLS are refused") {
  TestKeys keys;
  const auto refused = [&](const TlsFiles& files, int version = TLS1_3_VERSION) {
    SocketPair sockets;
    never_block(sockets.a), never_block(sockets.b);
    RawTls raw(sockets.a, false, files, version);
    const auto ours = keys.context(task_named("worker", 1))->transport(sockets.b, Side::kAccepts);
    return fault_with(*ours, raw);
  };
  CHECK_THAT(refused({}), Contains("did not return a certificate"));
  CHECK_THAT(refused({}, TLS1_2_VERSION), Contains("does not speak TLS 1.3 as it should (unsupported protocol)"));
  // The authority's own: right in all but that it names nobody.
  TlsFiles own{keys.file("ca.pem"), keys.write("ca.pem", keys.authority.certificate),
               keys.write("ca.key", keys.authority.key)};
  CHECK_FALSE(refused(own).empty());
}

TEST_CASE("a peer that asks for new keys without end, and reads nothing, costs no memory") {
  TestKeys keys;
  SocketPair sockets;
  never_block(sockets.b);
  never_block(sockets.a);
  RawTls raw(sockets.a, false, keys.files(task_named("worker", 0)));
  const auto ours = keys.context(task_named("worker", 1))->transport(sockets.b, Side::kAccepts);
  for (int i = 0; i < 20 && !(raw.open() && ours->open().value()); ++i) CHECK(fault(*ours).empty());
  REQUIRE(ours->open().value());
  char byte;
  const iovec piece = {&byte, 1};
  bool goes_on = true;
  for (int i = 0; i < repeats(100'000) && goes_on; ++i) {
    SSL_key_update(raw.ssl(), SSL_KEY_UPDATE_REQUESTED);
    SSL_do_handshake(raw.ssl());
    goes_on = ours->read({&piece, 1}).ok();
    CHECK(ours->unsent() <= 1 << 20);
  }
}

TEST_CASE("one who talks no TLS, either way round, is told apart") {
  TestKeys keys;
  const std::string hello = "TRPE" + std::string(44, '\0');
  for (const bool ours_accepts : {true, false}) {
    SocketPair sockets;
    never_block(sockets.a);
    const auto ours =
        keys.context(task_named("worker", 1))->transport(sockets.a, ours_accepts ? Side::kAccepts : Side::kDials);
    CHECK(fault(*ours).empty());
    REQUIRE(send(sockets.b, hello.data(), hello.size(), 0) == static_cast<ssize_t>(hello.size()));
    CHECK_THAT(fault(*ours), Contains(ours_accepts ? "the dialer talks no TLS" : "it talks no TLS"));
    CHECK(ours->open().error().code == Code::kFailedPrecondition);
    if (!ours_accepts) continue;
    // It is told so in its own tongue.
    CHECK(write_text(*ours, "REFUSED") == 7);
    char answer[100];
    const ssize_t got = recv(sockets.b, answer, sizeof answer, 0);
    REQUIRE(got >= 7);
    CHECK(std::string(answer + got - 7, 7) == "REFUSED");
  }
}

TEST_CASE("garbage on either side ends the handshake") {
  TestKeys keys;
  std::mt19937 random(11);
  for (int i = 0; i < repeats(300); ++i) {
    SocketPair sockets;
    never_block(sockets.a);
    const auto ours =
        keys.context(task_named("worker", 1))->transport(sockets.a, i % 2 ? Side::kAccepts : Side::kDials);
    std::string bytes(1 + random() % 600, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 3)
      bytes.replace(0, std::min<size_t>(bytes.size(), 3),
                    std::string("\x16\x03\x01", std::min<size_t>(bytes.size(), 3)));
    REQUIRE(send(sockets.b, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
    sockets.close_b();
    std::string why;
    for (int turn = 0; turn < 3 && why.empty(); ++turn) why = fault(*ours);
    CHECK_FALSE(why.empty());
    CHECK(ours->peer() == nullptr);
  }
}

TEST_CASE("files that are no good are named, with what is wrong") {
  TestKeys keys, others;
  const auto self = task_named("worker", 0);
  const auto error = [&](const TlsFiles& files, const net::CertificateName& name) {
    const auto loaded = TlsContext::load(files, name);
    REQUIRE_FALSE(loaded.ok());
    return loaded.error();
  };
  const auto with = [](TlsFiles files, std::string TlsFiles::*which, const std::string& path) {
    files.*which = path;
    return files;
  };
  const TlsFiles good = keys.files(self);
  REQUIRE(TlsContext::load(good, self).ok());
  REQUIRE(TlsContext::load(keys.files(client_named("alice")), client_named()).ok());

  for (const auto which : {&TlsFiles::ca, &TlsFiles::certificate, &TlsFiles::key}) {
    const Error missing = error(with(good, which, "/no/such.pem"), self);
    CHECK(missing.code == Code::kNotFound);
    CHECK_THAT(missing.message, Contains("'/no/such.pem': No such file"));
    CHECK_THAT(error(with(good, which, keys.path()), self).message, Contains("Is a directory") || Contains("mode"));
    const std::string empty = keys.write("empty.pem", "");
    chmod(empty.c_str(), 0600);
    CHECK_THAT(error(with(good, which, empty), self).message, Contains("empty.pem") && Contains("in PEM"));
    const std::string cut = keys.write("cut.pem", TemporaryDirectory::read(good.*which).substr(0, 100));
    chmod(cut.c_str(), 0600);
    CHECK_THAT(error(with(good, which, cut), self).message, Contains("cut.pem") && Contains("in PEM"));
    const std::string endless = keys.write("endless.pem", std::string(2 << 20, 'x'));
    chmod(endless.c_str(), 0600);
    CHECK_THAT(error(with(good, which, endless), self).message, Contains("endless.pem") && Contains("more than"));
  }
  CHECK_THAT(error(with(good, &TlsFiles::ca, good.certificate), self).message,
             Contains("which is not a certificate of an authority"));
  CHECK_THAT(error(with(good, &TlsFiles::ca, others.files(self).ca), self).message,
             Contains(good.certificate) && Contains("is not of this cluster's authority"));
  CHECK_THAT(error(with(good, &TlsFiles::key, keys.files(self).key), self).message,
             Contains("is not the key of the certificate in"));
  const std::string folder = std::filesystem::path(good.key).parent_path();
  CHECK_THAT(error(with(good, &TlsFiles::key, folder), self).message, Contains(folder) && Contains("Is a directory"));
  for (const mode_t mode : {0640, 0604, 0620, 0644}) {
    const TlsFiles open_key = keys.files(self);
    chmod(open_key.key.c_str(), mode);
    CHECK_THAT(error(open_key, self).message, Contains(open_key.key) && Contains("others may read or change"));
  }
  CHECK_THAT(error(keys.files(self, around_now(7200, -60)), self).message, Contains("has expired at 2"));
  CHECK_THAT(error(keys.files(self, around_now(-60, 7200)), self).message, Contains("is not valid before 2"));
  CHECK_THAT(error(keys.files(task_named("worker", 1)), self).message,
             Contains("is that of troupe://mine/job:worker/task:1, and this is troupe://mine/job:worker/task:0"));
  CHECK_THAT(error(keys.files(task_named("worker", 0, "other")), self).message, Contains("troupe://other/"));
  CHECK_THAT(error(keys.files(client_named()), self).message, Contains("that of troupe://mine/client, and"));
  CHECK_THAT(error(good, client_named()).message, Contains("and this is troupe://mine/client"));
  // Encrypted, as `openssl genpkey -aes256` writes it: nobody is asked for the password.
  const std::string locked = keys.write("locked.key",
                                        "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
                                        "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAi2v1BvCxJ5xAICCAAw\n"
                                        "-----END ENCRYPTED PRIVATE KEY-----\n");
  chmod(locked.c_str(), 0600);
  CHECK_THAT(error(with(good, &TlsFiles::key, locked), self).message, Contains("locked.key"));
}

TEST_CASE("files that are renewed are what later connections have, and bad ones change nothing") {
  TestKeys keys;
  const TlsFiles files = keys.files(client_named("alice"));
  const auto context = TlsContext::load(files, client_named());
  REQUIRE(context.ok());
  const auto put = [&](const TlsFiles& from) {
    for (const auto which : {&TlsFiles::certificate, &TlsFiles::key})
      std::filesystem::rename(from.*which, files.*which);
  };
  struct Pair {
    Pair(TestKeys& keys, const TlsContext& of) {
      never_block(sockets.a), never_block(sockets.b);
      dialer = of.transport(sockets.a, Side::kDials);
      acceptor = keys.context(task_named("worker", 1))->transport(sockets.b, Side::kAccepts);
      const auto [one, other] = faults(*dialer, *acceptor);
      INFO(one << "; " << other);
      CHECK((one.empty() && other.empty()));
      if (acceptor->peer()) client = acceptor->peer()->client;
    }
    SocketPair sockets;
    std::unique_ptr<Transport> dialer, acceptor;
    std::string client;
  };
  const Pair first(keys, **context);
  CHECK(first.client == "alice");
  put(keys.files(client_named("bob")));
  const Pair second(keys, **context);
  CHECK(second.client == "bob");
  CHECK(write_text(*first.dialer, "still here") == 10);  // a connection keeps what it began with
  CHECK(read_text(*first.acceptor, 10) == "still here");

  SECTION("of another cluster") { put(keys.files({"other", {}, "carol"})); }
  SECTION("expired") { put(keys.files(client_named("carol"), around_now(7200, -60))); }
  SECTION("a certificate whose key has not come yet") {
    std::filesystem::rename(keys.files(client_named("carol")).certificate, files.certificate);
  }
  SECTION("a key that others may read") {
    put(keys.files(client_named("carol")));
    chmod(files.key.c_str(), 0644);
  }
  SECTION("no files") { std::filesystem::remove(files.certificate); }
  SECTION("a pipe that nobody writes to") {
    std::filesystem::remove(files.certificate);
    REQUIRE(mkfifo(files.certificate.c_str(), 0600) == 0);
  }
  CHECK(Pair(keys, **context).client == "bob");
  CHECK(Pair(keys, **context).client == "bob");
  put(keys.files(client_named("dave")));
  CHECK(Pair(keys, **context).client == "dave");
}
