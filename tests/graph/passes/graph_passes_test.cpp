// SPDX-License-Identifier: Apache-2.0
// Lists of graph passes by name.
#include "troupe/graph_passes.h"

#include <catch2/catch.hpp>

using namespace troupe;

namespace {

/// The names of those that are on.
std::string on(const GraphPasses& passes) {
  std::string out;
  for (const GraphPass& pass : kGraphPasses)
    if (passes.*pass.on) out += std::string(pass.name) + ",";
  return out;
}

}  // namespace

TEST_CASE("each graph pass is switched on by its name, alone and in a list, in any order") {
  for (const GraphPass& pass : kGraphPasses) {
    const auto alone = GraphPasses::parse(pass.name);
    REQUIRE(alone.ok());
    CHECK(on(*alone) == std::string(pass.name) + ",");
    const auto twice = GraphPasses::parse(std::string(pass.name) + ",fuse_elementwise," + std::string(pass.name));
    REQUIRE(twice.ok());
    CHECK((*twice).*pass.on);
    CHECK(twice->fuse_elementwise);
  }
  CHECK(on(*GraphPasses::parse("default")) == on(GraphPasses()));
  CHECK(on(*GraphPasses::parse("all")) == on(GraphPasses::all()));
  CHECK(on(*GraphPasses::parse("none")).empty());
}

TEST_CASE("any other text is an error that tells the names there are") {
  for (const std::string_view bad :
       {"", ",", " ", "fold_constants,", ",fold_constants", "fold_constants merge_common", "Fold_constants",
        "fold_constants, merge_common", "all,none", "fold_constants,all", "fold", "fold_constants\n"}) {
    const auto parsed = GraphPasses::parse(bad);
    INFO("'" << bad << "'");
    REQUIRE_FALSE(parsed.ok());
    CHECK(parsed.error().code == Code::kInvalidArgument);
    for (const GraphPass& pass : kGraphPasses)
      CHECK_THAT(parsed.error().message, Catch::Contains(std::string(pass.name)));
  }
}
