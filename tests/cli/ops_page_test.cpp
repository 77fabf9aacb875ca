// SPDX-License-Identifier: Apache-2.0
// The text of the table of ops.
#include "cli/ops_page.h"

#include <catch2/catch.hpp>

#include "tests/graph/fake_ops.h"

using namespace troupe;
using Catch::Contains;

TEST_CASE("the table of ops has a row for each") {
  test::Fixture f;
  const std::string page = ops_page(
      f.ops, [](std::string_view op) { return op == "Neg" ? "cpu T: float32|int32" : "none"; },
      [](std::string_view op) { return op == "Neg" ? "minus" : ""; });
  CHECK_THAT(page, Contains("| `Neg` | Minus x. | x: T | y: T | `T: type {float32, float64, int32}` | "
                            "cpu T: float32\\|int32 | yes | minus |"));
  CHECK_THAT(page, Contains("none: its derivative is zero") && Contains("A handle. Stateful."));
}
