// SPDX-License-Identifier: Apache-2.0
#include "net/handshake.h"

#include <algorithm>

#include "base/check.h"
#include "base/printable.h"

namespace troupe::net {
namespace {

constexpr size_t kMostLives = 64;
/// What a connection of TLS begins with: a record of its handshake (RFC 8446, 5.1).
constexpr std::string_view kTlsMagic = "\x16\x03";
const FrameLimits kHandshakeLimits = {kLongestHandshake - FrameHeader::kBytes, 0, 0};

}  // namespace

Error Rejected::error(const TaskId& peer) const {
  const Code as = code == Refusal::kLate        ? Code::kDeadlineExceeded
                  : code == Refusal::kClosing   ? Code::kCancelled
                  : code == Refusal::kNotTroupe ? Code::kUnavailable
                  : code == Refusal::kBusy      ? Code::kAlreadyExists
                                                : Code::kFailedPrecondition;
  return make_error(as, "{} {} ({}): {}", peer.str(), by_peer ? "refused the connection" : "was refused a connection",
                    to_string(code), reason);
}

PeerBook::Judgement PeerBook::judge(const TaskId& task, const Incarnation& incarnation) const {
  const auto at = lives_.find(task);
  if (at == lives_.end()) return Judgement::kNew;
  if (at->second.back() == incarnation) return Judgement::kCurrent;
  return std::ranges::find(at->second, incarnation) == at->second.end() ? Judgement::kNew : Judgement::kPast;
}

void PeerBook::remember(const TaskId& task, const Incarnation& incarnation) {
  auto& lives = lives_[task];
  std::erase(lives, incarnation);
  if (lives.size() == kMostLives) lives.erase(lives.begin());
  lives.push_back(incarnation);
}

Incarnation PeerBook::current(const TaskId& task) const {
  const auto at = lives_.find(task);
  return at == lives_.end() ? Incarnation() : at->second.back();
}

// --- what both sides have in common ---

Handshake::Handshake(Identity self, int64_t now) : self_(std::move(self)), deadline_(now + self_.deadline_ns) {}

size_t Handshake::wanted() const {
  if (done()) return 0;
  return (header_ ? header_->body : FrameHeader::kBytes) - input_.size();
}

size_t Handshake::feed(std::string_view bytes, int64_t now) {
  size_t taken = 0;
  tick(now);
  while (!done() && taken < bytes.size()) {
    const std::string_view some = bytes.substr(taken, wanted());
    taken += some.size();
    input_ += some;
    on_input();
  }
  return taken;
}

void Handshake::on_input() {
  if (!header_) {
    const std::string_view begin = std::string_view(input_).substr(0, FrameHeader::kMagic.size());
    if (begin.starts_with(kTlsMagic))
      return refuse(fmt::format("the dialer talks TLS, and {} does not", self_.task.str()));
    if (!FrameHeader::kMagic.starts_with(begin) && !kTlsMagic.starts_with(begin))
      return reject(Refusal::kNotTroupe, fmt::format("the first bytes are {}, not those of a frame", in_quotes(begin)));
    if (input_.size() < FrameHeader::kBytes) return;
    const auto decoded = FrameHeader::decode(
        std::span<const char, FrameHeader::kBytes>(input_.data(), FrameHeader::kBytes), kHandshakeLimits);
    if (!decoded.ok()) return reject(Refusal::kBadHello, decoded.error().message);
    header_ = *decoded;
    input_.clear();
  }
  if (input_.size() == header_->body) on_frame(header_->type, input_);
}

void Handshake::tick(int64_t now) {
  if (done() || now < deadline_) return;
  reject(Refusal::kLate,
         fmt::format("no handshake within {} ms: {} of {} bytes of its {}", self_.deadline_ns / 1'000'000,
                     input_.size(), input_.size() + wanted(), header_ ? "body" : "header"));
}

void Handshake::closed() {
  if (!done()) outcome_ = Rejected{Refusal::kClosing, "the connection was closed within the handshake", true};
}

void Handshake::certified(const CertificateName& name) {
  if (done() || certificate_) return;
  certificate_ = name;
  on_certified();
}

bool Handshake::is_certified(const TaskId& peer, PeerRole role) {
  if (!certificate_) return true;
  const CertificateName& is = *certificate_;
  CertificateName due{self_.cluster.name(), {}};
  if (role == PeerRole::kTask) due.task = peer;
  else due.client = is.client;
  if (is == due) return true;
  refuse(fmt::format("{} shows the certificate of {}", peer.str(), is.uri()));
  return false;
}

void Handshake::refuse(const std::string& why) {
  if (!done()) reject(Refusal::kTls, why);
}

void Handshake::reject(Refusal code, std::string reason, bool by_peer) {
  Rejected rejected{code, printable(reason), by_peer};
  on_reject(rejected);
  outcome_ = std::move(rejected);
}

void Handshake::send(FrameType type, std::string body) {
  FrameHeader header;
  header.type = type;
  header.body = static_cast<uint32_t>(body.size());
  const auto bytes = header.encode();
  output_.append(bytes.data(), bytes.size());
  output_ += body;
}

// --- the side that dials ---

Dialer::Dialer(Identity self, TaskId to, uint32_t lane, Incarnation known, uint64_t received, int64_t now,
               uint64_t epoch)
    : Handshake(std::move(self), now), to_(std::move(to)), lane_(lane), known_(known), epoch_(epoch) {
  Hello hello;
  hello.lowest = self_.lowest, hello.highest = self_.highest;
  hello.cluster = self_.cluster.name();
  hello.from = self_.task, hello.to = to_;
  hello.role = self_.role;
  hello.incarnation = self_.incarnation, hello.known = known;
  hello.lane = lane;
  hello.received = known ? received : 0;
  hello.epoch = epoch;
  send(FrameType::kHello, encode(hello));
}

void Dialer::on_certified() { (void)is_certified(to_, PeerRole::kTask); }

void Dialer::on_frame(FrameType type, std::string_view body) {
  if (type == FrameType::kRefused) {
    const auto refused = decode<Refused>(body);
    if (!refused.ok()) return reject(Refusal::kBadHello, refused.error().message);
    return reject(refused->code, refused->reason, true);
  }
  if (type != FrameType::kWelcome) return reject(Refusal::kBadHello, to_string(type) + " where a WELCOME is due");
  const auto welcome = decode<Welcome>(body);
  if (!welcome.ok()) return reject(Refusal::kBadHello, welcome.error().message);
  if (welcome->version < self_.lowest || welcome->version > self_.highest)
    return reject(Refusal::kVersion,
                  fmt::format("it chose version {} of {} to {}", welcome->version, self_.lowest, self_.highest));
  if (welcome->from != to_)
    return reject(Refusal::kNotMe, fmt::format("{} answers where {} was dialed", welcome->from.str(), to_.str()));
  if (!welcome->incarnation || welcome->incarnation == self_.incarnation)
    return reject(Refusal::kSelf, fmt::format("its incarnation is {}", welcome->incarnation.str()));
  const bool nothing_sent = !welcome->resumed || !known_;
  if ((welcome->resumed && known_ && welcome->incarnation != known_) || (nothing_sent && welcome->received > 0))
    return reject(Refusal::kBadHello, fmt::format("it resumes at {} a life that it is not", welcome->received));
  accept({to_, PeerRole::kTask, welcome->incarnation, welcome->version, lane_, welcome->resumed, welcome->received,
          epoch_});
}

// --- the side that accepts ---

Acceptor::Acceptor(Identity self, const PeerBook& book, Sessions sessions, int64_t now)
    : Handshake(std::move(self), now), book_(book), sessions_(std::move(sessions)) {}

void Acceptor::on_reject(const Rejected& rejected) {
  // What is not Troupe could not read it.
  if (rejected.code == Refusal::kNotTroupe) return;
  send(FrameType::kRefused, encode(Refused{rejected.code, rejected.reason.substr(0, kLongestHandshake / 2)}));
}

std::optional<Rejected> Acceptor::fault(const Hello& hello) const {
  const auto because = [](Refusal code, std::string reason) { return Rejected{code, std::move(reason), false}; };
  if (hello.lowest > hello.highest)
    return because(Refusal::kBadHello, fmt::format("versions from {} to {}", hello.lowest, hello.highest));
  if (hello.highest < self_.lowest || hello.lowest > self_.highest)
    return because(Refusal::kVersion,
                   fmt::format("{} speaks versions {} to {}, {} speaks {} to {}", hello.from.str(), hello.lowest,
                               hello.highest, self_.task.str(), self_.lowest, self_.highest));
  if (hello.cluster != self_.cluster.name())
    return because(Refusal::kCluster,
                   fmt::format("{} is of cluster {}, {} of {}", hello.from.str(), in_quotes(hello.cluster),
                               self_.task.str(), in_quotes(self_.cluster.name())));
  if (hello.from == self_.task || hello.incarnation == self_.incarnation)
    return because(Refusal::kSelf,
                   fmt::format("{} dialed itself, or another process is {} too", hello.from.str(), self_.task.str()));
  if (hello.to != self_.task)
    return because(Refusal::kNotMe, fmt::format("{} was dialed, this is {}", hello.to.str(), self_.task.str()));
  if (!hello.incarnation) return because(Refusal::kBadHello, hello.from.str() + " has no incarnation");
  if (hello.lane >= kMostLanes)
    return because(Refusal::kBadHello, fmt::format("lane {}, they are below {}", hello.lane, kMostLanes));
  if (hello.role == PeerRole::kClient) {
    if (hello.from.job != kClientJob)
      return because(Refusal::kUnknownTask,
                     fmt::format("{} says it is a client, whose job is '{}'", hello.from.str(), kClientJob));
  } else {
    const auto address = self_.cluster.address(hello.from);
    if (!address.ok()) return because(Refusal::kUnknownTask, address.error().message);
    if (hello.from > self_.task)
      return because(Refusal::kWrongWay, fmt::format("{} waits for {} to dial: of two tasks the lower one does",
                                                     hello.from.str(), self_.task.str()));
  }
  if (book_.judge(hello.from, hello.incarnation) == PeerBook::Judgement::kPast)
    return because(Refusal::kOldIncarnation, fmt::format("{} of incarnation {} was followed by {}", hello.from.str(),
                                                         hello.incarnation.str(), book_.current(hello.from).str()));
  return {};
}

void Acceptor::on_frame(FrameType type, std::string_view body) {
  if (type != FrameType::kHello) return reject(Refusal::kBadHello, to_string(type) + " where a HELLO is due");
  const auto hello = decode<Hello>(body);
  if (!hello.ok()) return reject(Refusal::kBadHello, hello.error().message);
  if (!is_certified(hello->from, hello->role)) return;
  if (const auto why = fault(*hello)) return reject(why->code, why->reason);
  const auto session = sessions_(*hello);
  if (!session.ok())
    return reject(session.error().code == Code::kAlreadyExists ? Refusal::kBusy : Refusal::kClosing,
                  session.error().message);
  std::optional<uint64_t> received;
  if (book_.judge(hello->from, hello->incarnation) == PeerBook::Judgement::kCurrent) received = *session;
  const bool same_lives = hello->known == self_.incarnation;
  // A dialer that never saw a WELCOME has sent nothing, so what this side has sent may go again from the start.
  const bool unseen = !hello->known && received == 0;
  Welcome welcome;
  welcome.version = std::min(hello->highest, self_.highest);
  welcome.from = self_.task;
  welcome.incarnation = self_.incarnation;
  welcome.resumed = received && (same_lives || unseen);
  welcome.received = welcome.resumed ? *received : 0;
  send(FrameType::kWelcome, encode(welcome));
  accept({hello->from, hello->role, hello->incarnation, welcome.version, hello->lane, welcome.resumed,
          welcome.resumed ? hello->received : 0, hello->epoch});
}

}  // namespace troupe::net
