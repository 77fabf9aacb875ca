// SPDX-License-Identifier: Apache-2.0
#include "actors/reach.h"

#include <algorithm>

#include "base/printable.h"

namespace troupe {
namespace {

/// Whether an address says that it is of this machine alone.
bool says_local(const net::Address& address) {
  if (address.kind == net::Address::Kind::kUnix || address.host == "localhost") return true;
  const auto numbers = addresses_without_look_up(address);
  return numbers.ok() && *numbers && std::ranges::all_of(**numbers, &SocketAddress::local);
}

}  // namespace

std::optional<std::string> why_not_reached(const net::ClusterSpec& cluster, const net::TaskId& task,
                                           const Listeners& listeners) {
  const net::Address* const own = cluster.find(task);
  if (!own || says_local(*own) || listeners.bound().empty()) return {};
  if (!std::ranges::all_of(listeners.bound(), &SocketAddress::local)) return {};
  for (const net::TaskId& other : cluster.tasks()) {
    const net::Address address = *cluster.find(other);
    if (says_local(address) || address.host == own->host) continue;
    const std::string at = listeners.bound()[0].str();
    return fmt::format(
        "{} listens on loopback alone, which no other machine reaches, such as that of {} at {}: on this machine {} is "
        "{}. Give the name the machine's own address in /etc/hosts, or write that address into the cluster's list",
        task.str(), other.str(), address.str(), in_quotes(own->host), at.substr(0, at.rfind(':')));
  }
  return {};
}

}  // namespace troupe
