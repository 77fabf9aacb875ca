// SPDX-License-Identifier: Apache-2.0
// A system of actors with CAF's network in it.
#pragma once
#include <caf/all.hpp>
#include <caf/io/all.hpp>

namespace troupe::testing {

struct MiddlemanConfig : caf::actor_system_config {
  MiddlemanConfig() { load<caf::io::middleman>(); }
};

}  // namespace troupe::testing
