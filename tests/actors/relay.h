// SPDX-License-Identifier: Apache-2.0
// Relay: a socket between a task and those who dial it, which cuts connections or lets them stand.
#pragma once
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "actors/sockets.h"

namespace troupe {

/// Carries bytes between those who connect to it and another socket, until it cuts them.
class Relay {
 public:
  Relay(const std::string& at, std::string to) : to_(std::move(to)), listeners_(listen(at)) {
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    ended_ = true;
    thread_.join();
  }
  /// All connections, in the middle of whatever they carry.
  void cut() { ++cuts_asked_; }
  int cuts() const { return cuts_; }
  /// All connections of now bring nothing any more and stay open; new ones are as before.
  void freeze() { ++freezes_asked_; }
  int freezes() const { return freezes_; }
  /// From now on a connection that has brought so much to the other socket stands, open.
  void stall_after(uint64_t bytes) { most_ = bytes; }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Pair {
    Descriptor ends[2];
    uint64_t brought = 0;  // to the second
    bool frozen = false;
    bool stands(uint64_t most) const { return frozen || brought > most; }
  };
  static Listeners listen(const std::string& path) {
    net::Address address;
    address.kind = net::Address::Kind::kUnix;
    address.path = path;
    return Listeners::at(address).value();
  }
  void run() {
    std::vector<Pair> pairs;
    while (!ended_) {
      std::vector<pollfd> polled = {{listeners_.sockets()[0].get(), POLLIN, 0}};
      for (const Pair& pair : pairs)
        for (const Descriptor& end : pair.ends) polled.push_back({pair.stands(most_) ? -1 : end.get(), POLLIN, 0});
      poll(polled.data(), polled.size(), 5);
      if (cuts_asked_ != cuts_) pairs.clear(), cuts_ = cuts_asked_.load();
      if (freezes_asked_ != freezes_) {
        for (Pair& pair : pairs) pair.frozen = true;
        freezes_ = freezes_asked_.load();
      }
      std::erase_if(pairs, [&](Pair& pair) { return !pair.stands(most_) && (!carry(pair, 0) || !carry(pair, 1)); });
      while (Descriptor one = accept_next(listeners_.sockets()[0].get())) {
        net::Address address;
        address.kind = net::Address::Kind::kUnix;
        address.path = to_;
        Descriptor other = start_connect(addresses_without_look_up(address).value().value()[0]);
        if (other) pairs.push_back({{std::move(one), std::move(other)}});
      }
    }
  }
  bool carry(Pair& pair, int from) {
    char bytes[16384];
    const ssize_t got = recv(pair.ends[from].get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    bytes_ += static_cast<uint64_t>(got);
    if (from == 0) pair.brought += static_cast<uint64_t>(got);
    for (ssize_t sent = 0; sent < got && !ended_;) {
      const ssize_t some = send(pair.ends[1 - from].get(), bytes + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
      if (some > 0) sent += some;
      else if (errno != EAGAIN) return false;
      else if (cuts_asked_ != cuts_) return true;
    }
    return true;
  }

  const std::string to_;
  const Listeners listeners_;
  std::atomic<bool> ended_ = false;
  std::atomic<int> cuts_asked_ = 0, cuts_ = 0, freezes_asked_ = 0, freezes_ = 0;
  std::atomic<uint64_t> bytes_ = 0, most_ = UINT64_MAX;
  std::thread thread_;
};

}  // namespace troupe
