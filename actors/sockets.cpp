// SPDX-License-Identifier: Apache-2.0
#include "actors/sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "base/printable.h"
#include "base/system_code.h"

namespace troupe {
namespace {

using net::Address;

constexpr size_t kMostAddresses = 8;  // of one host

Error cannot_listen(const Address& address, int error) {
  return make_error(code_of_system_error(error), "cannot listen at {}: {}", address.str(), system_text(error));
}

Result<SocketAddress> unix_address(const std::string& path) {
  SocketAddress out;
  auto& un = reinterpret_cast<sockaddr_un&>(out.storage);
  if (path.empty() || path.size() >= sizeof un.sun_path)
    return invalid_argument("the path of a UNIX socket must have 1 to {} bytes, '{}' has {}", sizeof un.sun_path - 1,
                            path, path.size());
  un.sun_family = AF_UNIX;
  std::ranges::copy(path, un.sun_path);
  out.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  return out;
}

/// getaddrinfo. Returns its error, 0 for none.
int find_addresses(const Address& address, int flags, std::vector<SocketAddress>& out) {
  addrinfo hints = {}, *first = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  if (const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &first))
    return error;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(first, freeaddrinfo);
  for (const addrinfo* at = first; at && out.size() < kMostAddresses; at = at->ai_next) {
    if (at->ai_family != AF_INET && at->ai_family != AF_INET6) continue;
    SocketAddress one;
    std::memcpy(&one.storage, at->ai_addr, at->ai_addrlen);
    one.size = at->ai_addrlen;
    if (std::ranges::find(out, one) == out.end()) out.push_back(one);
  }
  return out.empty() ? EAI_NONAME : 0;
}

/// Whether it is one of IPv4, as those of IPv6 are written.
bool is_mapped(const SocketAddress& address) {
  return address.family() == AF_INET6 &&
         IN6_IS_ADDR_V4MAPPED(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr);
}

Descriptor new_socket(int family) { return Descriptor(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

void set_option(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

/// 0, or errno's value.
int bind_to(int fd, const SocketAddress& address) { return bind(fd, address.get(), address.size) == 0 ? 0 : errno; }

/// Removes the file of a UNIX socket where nobody listens any more. Returns whether the path is free now.
bool remove_stale(const SocketAddress& address, const std::string& path) {
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) return errno == ENOENT;
  if (!S_ISSOCK(file.st_mode)) return false;
  const Descriptor probe = new_socket(AF_UNIX);
  if (!probe || connect(probe.get(), address.get(), address.size) == 0 || errno != ECONNREFUSED) return false;
  return unlink(path.c_str()) == 0;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

std::string system_text(int error) {
  char text[128];
  return strerror_r(error, text, sizeof text);
}

// --- addresses ---

uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return 0;
}

bool SocketAddress::local() const {
  if (family() == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  if (family() != AF_INET6) return true;
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr[12] == IN_LOOPBACKNET);
}

void SocketAddress::set_port(uint16_t port) {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
}

std::string SocketAddress::str() const {
  if (family() == AF_UNIX) return fmt::format("unix:{}", reinterpret_cast<const sockaddr_un&>(storage).sun_path);
  char host[NI_MAXHOST] = "?";
  getnameinfo(get(), size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return family() == AF_INET6 ? fmt::format("[{}]:{}", host, port()) : fmt::format("{}:{}", host, port());
}

bool SocketAddress::operator==(const SocketAddress& other) const {
  return size == other.size && std::memcmp(&storage, &other.storage, size) == 0;
}

Result<std::optional<std::vector<SocketAddress>>> addresses_without_look_up(const Address& address) {
  std::vector<SocketAddress> out;
  if (address.kind == Address::Kind::kUnix) {
    TROUPE_ASSIGN(SocketAddress one, unix_address(address.path));
    out.push_back(one);
  } else if (find_addresses(address, AI_NUMERICHOST, out) != 0) {
    return std::optional<std::vector<SocketAddress>>();
  }
  return std::optional(std::move(out));
}

Result<std::vector<SocketAddress>> look_up(const Address& address) {
  TROUPE_ASSIGN(auto known, addresses_without_look_up(address));
  if (known) return std::move(*known);
  std::vector<SocketAddress> out;
  if (const int error = find_addresses(address, 0, out))
    return make_error(Code::kNotFound, "no address of host {} of {} is known: {}", in_quotes(address.host),
                      address.str(), error == EAI_SYSTEM ? system_text(errno) : gai_strerror(error));
  return out;
}

// --- listening ---

Listeners::~Listeners() {
  struct stat file;
  if (address_.kind == Address::Kind::kUnix && !sockets_.empty() && lstat(address_.path.c_str(), &file) == 0 &&
      file_ == std::pair<uint64_t, uint64_t>(file.st_dev, file.st_ino))
    unlink(address_.path.c_str());
}

void Listeners::swap(Listeners& other) {
  std::swap(address_, other.address_);
  std::swap(sockets_, other.sockets_);
  std::swap(bound_, other.bound_);
  std::swap(file_, other.file_);
}

Result<Listeners> Listeners::at(const Address& address) {
  TROUPE_ASSIGN(const auto addresses, look_up(address));
  Listeners out;
  out.address_ = address;
  Status first_fault;
  for (const SocketAddress& one : addresses) {
    auto added = out.add(one);
    if (added.ok()) continue;
    // A name may stand for addresses that this machine does not have now, such as those of IPv6. One that is in use is
    // another process's, which callers could take for this one.
    if (added.error().code == Code::kAlreadyExists) return std::move(added).failure();
    if (first_fault.ok()) first_fault = std::move(added);
  }
  if (out.sockets_.empty()) return std::move(first_fault).failure();
  return out;
}

Status Listeners::add(SocketAddress address) {
  Descriptor fd = new_socket(address.family());
  if (!fd) return cannot_listen(address_, errno);
  address.set_port(address_.port);
  if (address.family() != AF_UNIX) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // "[::]" alone takes IPv4 too, and "[::ffff:10.0.0.1]" nothing else; beside an IPv4 socket of the same host one must
  // not.
  if (address.family() == AF_INET6)
    set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, address_.host != "::" && !is_mapped(address));
  int error = bind_to(fd.get(), address);
  if (error == EADDRINUSE && address.family() == AF_UNIX && remove_stale(address, address_.path))
    error = bind_to(fd.get(), address);
  if (error != 0) return cannot_listen(address_, error);
  if (address.family() == AF_UNIX) {
    struct stat file = {};
    lstat(address_.path.c_str(), &file);
    file_ = {file.st_dev, file.st_ino};
  }
  if (listen(fd.get(), SOMAXCONN) != 0) return cannot_listen(address_, errno);
  if (address.family() != AF_UNIX) {
    if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0)
      return cannot_listen(address_, errno);
    address_.port = address.port();
  }
  sockets_.push_back(std::move(fd));
  bound_.push_back(address);
  return {};
}

Descriptor accept_next(int listener) {
  Descriptor out(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (out) set_option(out.get(), IPPROTO_TCP, TCP_NODELAY, 1);  // refused for a UNIX socket, and not needed
  return out;
}

std::string host_of_peer(int fd) {
  SocketAddress peer;
  peer.size = sizeof peer.storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &peer.size) != 0) return "somebody who has gone";
  if (peer.family() == AF_UNIX) return "a UNIX socket";
  const std::string text = peer.str();
  return text.substr(0, text.rfind(':'));
}

// --- dialing ---

Descriptor start_connect(const SocketAddress& address) {
  Descriptor out = new_socket(address.family());
  if (!out) return out;
  if (address.family() != AF_UNIX) set_option(out.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (connect(out.get(), address.get(), address.size) == 0 || errno == EINPROGRESS || errno == EINTR) return out;
  const int error = errno;
  out = Descriptor();
  errno = error;
  return out;
}

int connect_result(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  if (error != 0) return error;
  SocketAddress here, there;
  here.size = there.size = sizeof here.storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&there.storage), &there.size) != 0) return errno;
  getsockname(fd, reinterpret_cast<sockaddr*>(&here.storage), &here.size);
  return here.family() != AF_UNIX && here == there ? ECONNREFUSED : 0;
}

}  // namespace troupe
