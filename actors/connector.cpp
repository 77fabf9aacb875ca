// SPDX-License-Identifier: Apache-2.0
// The thread polls its errands (an eventfd), the listening sockets, the accepted connections whose handshake is not
// done and the dials that have a socket. What polls as ready is marked at its owner, then served: errands and callbacks
// may change what there is, but never the list that is walked through.
#include "actors/connector.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "actors/errands.h"
#include "actors/handshake_io.h"
#include "actors/sockets.h"
#include "base/check.h"
#include "base/printable.h"
#include "base/steady_clock.h"
#include "troupe/guarded.h"

namespace troupe {
namespace {

/// kNotFound: the machine is there, and nobody listens. No other fault has that code.
Code code_of(int error) { return error == ECONNREFUSED || error == ENOENT ? Code::kNotFound : Code::kInternal; }

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kFirstRetry = 20 * kMillisecond, kLastRetry = 1000 * kMillisecond;
constexpr int64_t kAcceptPause = 100 * kMillisecond;
constexpr int64_t kNever = INT64_MAX;
constexpr int kAcceptsInTurn = 64;  // of one listening socket before others are served

/// Whether trying again may help: unless the fault is this process's own, another one may come to listen there.
bool may_change(const net::Rejected& why) {
  switch (why.code) {
    case net::Refusal::kSelf:
    case net::Refusal::kWrongWay:
    case net::Refusal::kOldIncarnation: return false;
    case net::Refusal::kBadHello: return !why.by_peer;
    default: return true;
  }
}

/// Whether the right process refuses, and not another one at an address of its host.
bool is_by_the_right_one(const net::Rejected& why) {
  switch (why.code) {
    case net::Refusal::kWrongWay:
    case net::Refusal::kOldIncarnation:
    case net::Refusal::kBusy: return true;
    default: return false;
  }
}

}  // namespace

class Connector::Impl {
 public:
  Impl(ConnectorOptions options, Listeners listeners)
      : options_(std::move(options)), listeners_(std::move(listeners)), listener_ready_(listeners_.sockets().size()),
        errands_(std::make_shared<Errands>()) {}
  ~Impl() {
    if (!thread_.joinable()) return;
    TROUPE_CHECK(thread_.get_id() != std::this_thread::get_id());
    errands_->end();
    thread_.join();
    errands_->close();
  }

  Status start() {
    if (!errands_->can_wake())
      return make_error(Code::kResourceExhausted, "the connector gets no eventfd: {}", system_text(errno));
    return guarded_call([this] { thread_ = std::thread([this] { run(); }); });
  }

  // Any thread.
  template <class F> void ask(F errand) { errands_->add(std::move(errand)); }
  const net::Address& address() const { return listeners_.address(); }
  const Listeners& listeners() const { return listeners_; }
  Counters counters() const {
    const std::lock_guard lock(counters_mutex_);
    return counters_;
  }

  // The connector's thread.
  void dial(const net::TaskId& to, const net::Address& address, uint32_t lane, net::Incarnation known,
            uint64_t received, uint64_t epoch);
  void hurry(const net::TaskId& to) {
    for (auto& [key, dial] : dials_)
      if (key.first == to && dial.state == Dial::State::kWaits) dial.at = steady_ns(), dial.delay = kFirstRetry;
  }
  void cancel(const net::TaskId& to) {
    std::erase_if(dials_, [&](const auto& dial) { return dial.first.first == to; });
  }
  net::PeerBook& book() { return book_; }

 private:
  struct Incoming {
    Incoming(Descriptor socket, const Impl& impl)
        : connection(impl.connection(std::move(socket), net::TlsContext::Side::kAccepts)),
          handshake(impl.options_.identity, impl.book_, impl.options_.sessions, steady_ns()) {}
    Connection connection;
    net::Acceptor handshake;
    bool ready = true;
  };
  using Incomings = std::list<Incoming>;  // the oldest first

  struct Dial {
    enum class State { kWaits, kLooksUp, kConnects, kShakesHands };
    net::Address address = {};
    net::Incarnation known = {};
    uint64_t received = 0, epoch = 0;
    State state = State::kWaits;
    uint64_t attempt = 0;         // the number of this one among all dials'
    int64_t delay = kFirstRetry;  // after the next failure
    int64_t at = 0;               // when it is tried, or given up
    std::vector<SocketAddress> addresses = {};
    size_t next = 0;                    // of them
    std::string faults = {};            // of those before
    Code code = Code::kInternal;        // of all, where they agree
    std::optional<Error> refusal = {};  // of one before that is there
    bool refusal_may_change = false;
    Connection connection = {};
    std::unique_ptr<net::Dialer> handshake = {};
    bool ready = false;
  };
  using Dials = std::map<std::pair<net::TaskId, uint32_t>, Dial>;
  class LookUp;

  Connection connection(Descriptor socket, net::TlsContext::Side side) const {
    const int fd = socket.get();
    return {std::move(socket), options_.tls ? options_.tls->transport(fd, side) : net::make_plain_transport(fd)};
  }
  void run();
  void wait();
  int64_t next_event(int64_t now) const;
  void run_errands();

  void accept_from(int listener);
  void drop_oldest();
  void serve(Incomings::iterator incoming);

  void serve(Dials::iterator dial);
  void look_up_or_connect(Dials::iterator dial);
  void connect_next(Dials::iterator dial);
  void connect_failed(Dials::iterator dial, Code code, const std::string& why);
  void shake_hands(Dials::iterator dial);
  void fail(Dials::iterator dial, const Error& why, bool again);

  void count(uint64_t Counters::*which, int by = 1) {
    const std::lock_guard lock(counters_mutex_);
    counters_.*which += static_cast<uint64_t>(by);
  }

  const ConnectorOptions options_;
  const Listeners listeners_;
  std::vector<bool> listener_ready_;
  int64_t accept_again_ = 0;
  Incomings incoming_;
  Dials dials_;
  uint64_t attempts_ = 0;
  net::PeerBook book_;
  std::vector<pollfd> polled_;
  const std::shared_ptr<Errands> errands_;
  mutable std::mutex counters_mutex_;
  Counters counters_;
  std::thread thread_;
};

/// A job that looks up the host of a dial. It answers in any case, even when it is destroyed without being run.
class Connector::Impl::LookUp {
 public:
  LookUp(Impl& impl, Dials::iterator dial)
      : impl_(&impl), errands_(impl.errands_), key_(dial->first), attempt_(dial->second.attempt),
        address_(dial->second.address) {}
  ~LookUp() {
    if (!answered_) answer(make_error(Code::kCancelled, "nobody has looked up host {}", in_quotes(address_.host)));
  }
  void run() {
    answer(guarded([this] { return look_up(address_); }));
  }

 private:
  void answer(Result<std::vector<SocketAddress>> found) {
    answered_ = true;
    errands_->add([impl = impl_, key = key_, attempt = attempt_, found = std::move(found)]() mutable {
      const auto dial = impl->dials_.find(key);
      if (dial == impl->dials_.end() || dial->second.attempt != attempt) return;  // it was replaced, or ended
      if (dial->second.state != Dial::State::kLooksUp) return;
      if (!found.ok()) {
        // Who knows names may be away as long as the network is: the peer may be there all the same.
        Error why = std::move(found.error());
        if (why.code == Code::kNotFound) why.code = Code::kUnavailable;
        return impl->fail(dial, why, true);
      }
      dial->second.addresses = std::move(*found);
      impl->connect_next(dial);
    });
  }

  Impl* const impl_;  // there is one as long as errands are run
  const std::shared_ptr<Errands> errands_;
  const Dials::key_type key_;
  const uint64_t attempt_;
  const net::Address address_;
  bool answered_ = false;
};

// --- the thread ---

void Connector::Impl::run() {
  while (!errands_->ended()) {
    wait();
    run_errands();
    for (auto at = incoming_.begin(); at != incoming_.end();) serve(at++);
    for (size_t i = 0; i < listener_ready_.size(); ++i)
      if (listener_ready_[i]) accept_from(listeners_.sockets()[i].get());
    for (auto at = dials_.begin(); at != dials_.end();) serve(at++);
  }
}

/// Waits until there is something to do, and marks what is ready.
void Connector::Impl::wait() {
  const int64_t now = steady_ns();
  const bool accepts = now >= accept_again_;
  polled_.assign(1, {errands_->fd(), POLLIN, 0});
  if (accepts)
    for (const Descriptor& socket : listeners_.sockets()) polled_.push_back({socket.get(), POLLIN, 0});
  for (const Incoming& one : incoming_)
    polled_.push_back({one.connection.socket.get(), events_of(*one.connection.transport, one.handshake), 0});
  for (const auto& [key, dial] : dials_)
    if (const Connection& c = dial.connection; c.socket)
      polled_.push_back(
          {c.socket.get(), dial.handshake ? events_of(*c.transport, *dial.handshake) : short{POLLOUT}, 0});

  const int64_t next = next_event(now);
  const int64_t wait_ms =
      next == kNever ? -1 : std::clamp<int64_t>((next - now + kMillisecond - 1) / kMillisecond, 0, 3'600'000);
  if (poll(polled_.data(), polled_.size(), static_cast<int>(wait_ms)) < 0) {
    for (pollfd& one : polled_) one.revents = 0;
    // The system has no memory for so many: look at the deadlines from time to time.
    if (errno != EINTR) poll(polled_.data(), 1, kAcceptPause / kMillisecond);
  }

  auto at = polled_.begin() + 1;
  for (size_t i = 0; i < listener_ready_.size(); ++i) listener_ready_[i] = accepts && (at++)->revents != 0;
  for (Incoming& one : incoming_) one.ready = (at++)->revents != 0;
  for (auto& [key, dial] : dials_) dial.ready = dial.connection.socket && (at++)->revents != 0;
}

int64_t Connector::Impl::next_event(int64_t now) const {
  int64_t next = now < accept_again_ ? accept_again_ : kNever;
  for (const Incoming& one : incoming_) next = std::min(next, one.handshake.deadline());
  for (const auto& [key, dial] : dials_) next = std::min(next, dial.at);
  return next;
}

void Connector::Impl::run_errands() {
  for (const auto& errand : errands_->take()) errand();
}

// --- those who dial this side ---

void Connector::Impl::accept_from(int listener) {
  bool crowded = false;
  for (int i = 0; i < kAcceptsInTurn && !crowded; ++i) {
    Descriptor socket = accept_next(listener);
    if (!socket && (errno == EMFILE || errno == ENFILE)) {
      // The system says so when nobody waits, too: only of the first call poll() has said that somebody does.
      if (i > 0) return;
      crowded = true;
      if (!incoming_.empty()) {
        drop_oldest();
        socket = accept_next(listener);
      }
    }
    if (!socket) {
      if (errno == EAGAIN) return;
      if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
      accept_again_ = steady_ns() + kAcceptPause;
      count(&Counters::pauses);
      return;
    }
    while (incoming_.size() >= std::max<size_t>(options_.most_handshakes, 1)) drop_oldest();
    incoming_.emplace_back(std::move(socket), *this);
    count(&Counters::handshakes);
    serve(std::prev(incoming_.end()));
  }
}

void Connector::Impl::drop_oldest() {
  count(&Counters::dropped);
  count(&Counters::handshakes, -1);
  incoming_.pop_front();
}

void Connector::Impl::serve(Incomings::iterator incoming) {
  const int64_t now = steady_ns();
  net::Acceptor& handshake = incoming->handshake;
  if (!incoming->ready && now < handshake.deadline()) return;
  run_errands();  // what was remembered by now counts
  const auto step = carry_on(*incoming->connection.transport, handshake, now);
  if (step == HandshakeStep::kGoesOn) return;
  const net::Rejected* rejected = handshake.rejected();
  if (step == HandshakeStep::kStands) {
    count(&Counters::accepted);
  } else if (now >= handshake.deadline()) {
    count(&Counters::timed_out);
  } else if (!rejected || rejected->by_peer) {
    count(&Counters::broken);
  } else {
    drop_input(incoming->connection.socket.get());
    count(&Counters::refused);
    if (options_.refused) options_.refused(host_of_peer(incoming->connection.socket.get()), *rejected);
  }
  count(&Counters::handshakes, -1);
  const std::optional<net::Accepted> accepted =
      step == HandshakeStep::kStands ? std::optional(*handshake.accepted()) : std::nullopt;
  Connection connection = std::move(incoming->connection);
  incoming_.erase(incoming);
  if (!accepted) return;
  book_.remember(accepted->peer, accepted->incarnation);
  options_.up(*accepted, std::move(connection));
}

// --- those whom this side dials ---

void Connector::Impl::dial(const net::TaskId& to, const net::Address& address, uint32_t lane, net::Incarnation known,
                           uint64_t received, uint64_t epoch) {
  const auto [at, is_new] = dials_.insert_or_assign({to, lane}, Dial());
  at->second.address = address;
  at->second.known = known;
  at->second.received = received;
  at->second.epoch = epoch;
  look_up_or_connect(at);
}

void Connector::Impl::serve(Dials::iterator at) {
  Dial& dial = at->second;
  const bool late = steady_ns() >= dial.at;
  if (!dial.ready && !late) return;
  switch (dial.state) {
    case Dial::State::kWaits: return look_up_or_connect(at);
    case Dial::State::kLooksUp: return;
    case Dial::State::kConnects:
      if (!dial.ready)
        return connect_failed(at, Code::kDeadlineExceeded,
                              fmt::format("no connection within {} ms", options_.connect_limit.count() / kMillisecond));
      if (const int error = connect_result(dial.connection.socket.get()))
        return connect_failed(at, code_of(error), system_text(error));
      dial.handshake = std::make_unique<net::Dialer>(options_.identity, at->first.first, at->first.second, dial.known,
                                                     dial.received, steady_ns(), dial.epoch);
      dial.state = Dial::State::kShakesHands;
      dial.at = dial.handshake->deadline();
      return shake_hands(at);
    case Dial::State::kShakesHands: return shake_hands(at);
  }
}

void Connector::Impl::look_up_or_connect(Dials::iterator at) {
  Dial& dial = at->second;
  dial.attempt = ++attempts_;
  dial.next = 0;
  dial.faults.clear();
  dial.refusal.reset();
  dial.refusal_may_change = false;
  auto known = addresses_without_look_up(dial.address);
  if (!known.ok()) return fail(at, known.error(), false);
  if (*known) {
    dial.addresses = std::move(**known);
    return connect_next(at);
  }
  dial.state = Dial::State::kLooksUp;
  dial.at = kNever;  // the resolver has limits of its own
  const auto job = std::make_shared<LookUp>(*this, at);
  const Status started = options_.run_job([job] { job->run(); });
  if (!started.ok()) fail(at, started.error(), true);
}

void Connector::Impl::connect_next(Dials::iterator at) {
  Dial& dial = at->second;
  if (dial.next == dial.addresses.size()) {
    if (!dial.refusal) return fail(at, make_error(dial.code, "no connection: {}", dial.faults), true);
    const Error why = std::move(*dial.refusal);
    if (dial.faults.empty()) return fail(at, why, dial.refusal_may_change);
    // The right one may come at an address where nobody is now.
    return fail(at, make_error(Code::kUnavailable, "{}; no connection: {}", why.message, dial.faults), true);
  }
  Descriptor socket = start_connect(dial.addresses[dial.next++]);
  if (!socket) return connect_failed(at, code_of(errno), system_text(errno));
  dial.connection = connection(std::move(socket), net::TlsContext::Side::kDials);
  dial.state = Dial::State::kConnects;
  dial.at = steady_ns() + options_.connect_limit.count();
  dial.ready = false;
}

void Connector::Impl::connect_failed(Dials::iterator at, Code code, const std::string& why) {
  Dial& dial = at->second;
  // Of several addresses it may be at the one that did not answer.
  dial.code = dial.faults.empty() || code == dial.code ? code : Code::kInternal;
  if (!dial.faults.empty()) dial.faults += ", ";
  if (dial.addresses.size() > 1) dial.faults += dial.addresses[dial.next - 1].str() + ": ";
  dial.faults += why;
  connect_next(at);
}

void Connector::Impl::shake_hands(Dials::iterator at) {
  Dial& dial = at->second;
  const auto step = carry_on(*dial.connection.transport, *dial.handshake, steady_ns());
  if (step == HandshakeStep::kGoesOn) return;
  if (step == HandshakeStep::kStands) {
    const net::Accepted accepted = *dial.handshake->accepted();
    Connection connection = std::move(dial.connection);
    dials_.erase(at);
    count(&Counters::dialed);
    return options_.up(accepted, std::move(connection));
  }
  const net::Rejected* rejected = dial.handshake->rejected();
  const bool again = !rejected || may_change(*rejected);
  Error why = rejected ? rejected->error(at->first.first)
                       : make_error(Code::kInternal, "the connection broke within the handshake");
  if (rejected && is_by_the_right_one(*rejected)) return fail(at, why, again);
  // Of several addresses another may be that of the right one.
  if (dial.addresses.size() > 1) why.message = dial.addresses[dial.next - 1].str() + ": " + why.message;
  if (!dial.refusal || (again && !dial.refusal_may_change)) dial.refusal = std::move(why);
  dial.refusal_may_change = dial.refusal_may_change || again;
  dial.handshake.reset();
  connect_next(at);
}

void Connector::Impl::fail(Dials::iterator at, const Error& why, bool again) {
  const auto [to, lane] = at->first;
  Dial& dial = at->second;
  Error error = why;
  error.message = fmt::format("dialing {} at {}: {}", to.str(), dial.address.str(), why.message);
  dial.connection = {};
  dial.handshake.reset();
  dial.state = Dial::State::kWaits;
  dial.at = steady_ns() + dial.delay;
  dial.delay = std::min(2 * dial.delay, kLastRetry);
  if (!again) dials_.erase(at);
  count(&Counters::failed_tries);
  options_.failed(to, lane, error, again);
}

// --- what others call ---

Result<std::unique_ptr<Connector>> Connector::start(ConnectorOptions options) {
  TROUPE_CHECK(options.run_job && options.up && options.failed && (options.sessions || !options.listen));
  return guarded([&]() -> Result<std::unique_ptr<Connector>> {
    Listeners listeners;
    if (options.listen) {
      TROUPE_ASSIGN(listeners, Listeners::at(*options.listen));
    }
    auto impl = std::make_unique<Impl>(std::move(options), std::move(listeners));
    TROUPE_RETURN_IF_ERROR(impl->start());
    return std::unique_ptr<Connector>(new Connector(std::move(impl)));
  });
}

Connector::Connector(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Connector::~Connector() = default;

void Connector::dial(const net::TaskId& to, const net::Address& address, uint32_t lane, net::Incarnation known,
                     uint64_t received, uint64_t epoch) {
  impl_->ask([=, impl = impl_.get()] { impl->dial(to, address, lane, known, received, epoch); });
}

void Connector::hurry(const net::TaskId& to) {
  impl_->ask([=, impl = impl_.get()] { impl->hurry(to); });
}

void Connector::cancel(const net::TaskId& to) {
  impl_->ask([=, impl = impl_.get()] { impl->cancel(to); });
}

void Connector::remember(const net::TaskId& task, const net::Incarnation& incarnation) {
  impl_->ask([=, impl = impl_.get()] { impl->book().remember(task, incarnation); });
}

void Connector::forget(const net::TaskId& task) {
  impl_->ask([=, impl = impl_.get()] { impl->book().forget(task); });
}

const Listeners& Connector::listeners() const { return impl_->listeners(); }

net::Address Connector::address() const { return impl_->address(); }
Connector::Counters Connector::counters() const { return impl_->counters(); }

}  // namespace troupe
