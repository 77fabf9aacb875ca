// SPDX-License-Identifier: Apache-2.0
// Whether the other machines of a cluster can reach a task where it listens.
#pragma once
#include <optional>
#include <string>

#include "actors/sockets.h"

namespace troupe {

/// What is wrong, and what to do, where a task's host name means this machine's loopback, as Debian's /etc/hosts has it
/// for a machine's own name, while the cluster has tasks on other hosts. None where that is as the list says: there is
/// no other host, or the task's is loopback by its name or number.
std::optional<std::string> why_not_reached(const net::ClusterSpec& cluster, const net::TaskId& task,
                                           const Listeners& listeners);

}  // namespace troupe
