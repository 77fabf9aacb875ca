// SPDX-License-Identifier: Apache-2.0
#include "actors/reach.h"

#include <catch2/catch.hpp>

namespace troupe {
namespace {

/// Of the first of two workers at those hosts, where its own means `bound`.
std::optional<std::string> said(const std::string& own, const std::string& other, const std::string& bound) {
  const auto cluster =
      net::ClusterSpec::parse(fmt::format(R"({{"cluster": {{"worker": ["{}:4000", "{}:4001"]}}}})", own, other));
  REQUIRE(cluster.ok());
  net::Address address;
  address.host = bound;
  const auto listeners = Listeners::at(address);
  REQUIRE(listeners.ok());
  return why_not_reached(*cluster, {"worker", 0}, *listeners);
}

TEST_CASE("a task whose host's name means loopback is told that other hosts do not reach it") {
  const auto why = said("machine-a", "machine-b", "127.0.1.1");
  REQUIRE(why);
  CHECK_THAT(*why, Catch::Contains("/job:worker/task:0 ") && Catch::Contains("'machine-a' is 127.0.1.1.") &&
                       Catch::Contains("/job:worker/task:1 at machine-b:4001") && Catch::Contains("/etc/hosts"));
  CHECK(said("machine-a", "10.0.0.2", "127.0.0.1"));
}

TEST_CASE("a task that listens where its list says is told nothing") {
  CHECK_FALSE(said("machine-a", "machine-b", "0.0.0.0"));    // another machine's address
  CHECK_FALSE(said("machine-a", "machine-a", "127.0.1.1"));  // one machine
  CHECK_FALSE(said("machine-a", "localhost", "127.0.1.1"));
  CHECK_FALSE(said("localhost", "machine-b", "127.0.0.1"));  // a tunnel, perhaps
  CHECK_FALSE(said("127.0.0.2", "machine-b", "127.0.0.2"));
  CHECK_FALSE(why_not_reached(net::ClusterSpec(), {"worker", 0}, Listeners()));
}

TEST_CASE("addresses of this machine alone are those of loopback and paths") {
  const auto local = [](const std::string& text) {
    const auto address = net::Address::parse(text);
    REQUIRE(address.ok());
    return addresses_without_look_up(*address).value().value()[0].local();
  };
  for (const char* const text : {"127.0.0.1:1", "127.255.0.3:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:/run/socket"})
    CHECK(local(text));
  for (const char* const text :
       {"0.0.0.0:1", "128.0.0.1:1", "10.0.0.1:1", "[::]:1", "[::ffff:10.0.0.1]:1", "[fe80::1]:1"})
    CHECK_FALSE(local(text));
}

}  // namespace
}  // namespace troupe
