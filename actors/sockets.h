// SPDX-License-Identifier: Apache-2.0
// Sockets for the connector: descriptors that close themselves, addresses of the system, listening and dialing without
// waiting. Implemented in actors/sockets.cpp. All sockets are non-blocking and closed by exec.
#pragma once
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/cluster_spec.h"
#include "net/transport.h"
#include "troupe/error.h"

namespace troupe {

/// Owns a descriptor; -1: none.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

/// A connected socket, and what reads and writes it, which goes first.
struct Connection {
  Descriptor socket = Descriptor();
  std::unique_ptr<net::Transport> transport = {};
};

/// What the system calls `error`: "Connection refused".
std::string system_text(int error);

/// An address as the system takes it.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  uint16_t port() const;  // 0 for UNIX
  /// Whether processes of this machine alone reach it: a UNIX socket's, or loopback.
  bool local() const;
  void set_port(uint16_t port);
  /// As Address::str, with the numbers of the host.
  std::string str() const;
  bool operator==(const SocketAddress& other) const;
};

/// The addresses of a path or of a host written as numbers, at once; none for a host's name, which look_up() finds.
/// Errors: kInvalidArgument for a path that is too long.
Result<std::optional<std::vector<SocketAddress>>> addresses_without_look_up(const net::Address& address);
/// The addresses of any host or path, at least one and at most 8. May wait as long as the system's resolver does.
/// Errors: kNotFound, naming the host.
Result<std::vector<SocketAddress>> look_up(const net::Address& address);

/// The sockets that accept connections at one address, one for each of the addresses that its host has. A UNIX
/// socket's file goes with this, if it is still the one that was made.
class Listeners {
 public:
  Listeners() = default;
  Listeners(Listeners&& other) noexcept { swap(other); }
  Listeners& operator=(Listeners&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Listeners();

  /// May wait for the look-up of a host's name. A UNIX socket's file is replaced when nobody answers there; two
  /// processes that do so for one path at the same time are not kept apart. Errors name the address; kAlreadyExists
  /// when it is in use.
  static Result<Listeners> at(const net::Address& address);

  const std::vector<Descriptor>& sockets() const { return sockets_; }
  /// Where they are bound.
  const std::vector<SocketAddress>& bound() const { return bound_; }
  /// With the port that was got for port 0.
  const net::Address& address() const { return address_; }

 private:
  void swap(Listeners& other);
  Status add(SocketAddress address);

  net::Address address_;
  std::vector<Descriptor> sockets_;
  std::vector<SocketAddress> bound_;
  std::pair<uint64_t, uint64_t> file_;  // of the UNIX socket: its device and number
};

/// The next connection that waits at a listening socket; TCP sends at once. Else a Descriptor of -1, with errno.
Descriptor accept_next(int listener);
/// Whose connection it is, without the port: "10.0.0.7", "[::1]", "a UNIX socket".
std::string host_of_peer(int fd);
/// Begins to connect; the socket is writable once connect_result() is known. Else a Descriptor of -1, with errno.
Descriptor start_connect(const SocketAddress& address);
/// 0 when the connection stands, or errno's value. A socket that the system connected to itself, which it may do to one
/// that dials a free port of its own machine, counts as ECONNREFUSED.
int connect_result(int fd);

}  // namespace troupe
