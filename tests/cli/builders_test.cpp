// SPDX-License-Identifier: Apache-2.0
// The text of the typed builders.
#include "cli/builders.h"

#include <catch2/catch.hpp>

#include "tests/graph/fake_ops.h"

using namespace troupe;
using Catch::Contains;

TEST_CASE("builders have one function for each op, typed by its schema") {
  test::Fixture f;
  f.ops.add(OpDef("_Inner").doc("Not for users.").shape(no_outputs), not_differentiable("it has no outputs"));
  const std::string header = builders_header(f.ops);
  const std::string where = "std::source_location where = std::source_location::current());";
  CHECK_THAT(header, Contains("Output Neg(const Scope& scope, Output x, " + where));
  CHECK_THAT(header, Contains("const Node* NoOp(const Scope& scope, " + where));
  CHECK_THAT(header, Contains("Output AddN(const Scope& scope, const std::vector<Output>& inputs_, " + where));
  CHECK_THAT(header,
             Contains("std::vector<Output> Split(const Scope& scope, Output value, int64_t num_split, " + where));
  CHECK_THAT(header, Contains("PairOutputs Pair(") && Contains("Output a;  // a: T"));
  CHECK_THAT(header, Contains("struct MatMulAttrs {\n  bool transpose_a = false;\n};"));
  CHECK_THAT(header, Contains("Output Const(const Scope& scope, const Tensor& value, DType dtype, "));
  CHECK_THAT(header, Contains("Output Pool(const Scope& scope, Output x, const std::vector<int64_t>& ksize, "
                              "const std::string& padding, const PoolAttrs& attrs = {}, "));
  CHECK_THAT(header, Contains("float alpha = 0.5F;") && Contains("names = {\"a\", \"b\"};"));
  CHECK_THAT(header, Contains("PartialShape shape = PartialShape{2, -1};") && Contains("int64_t big = -9000000000;"));
  CHECK_THAT(header, Contains("/// No gradient: its derivative is zero.") && !Contains("_Inner"));

  const std::string source = builders_source(f.ops);
  CHECK_THAT(source,
             Contains("set.set(\"Tcomponents\", types_of(components));") && Contains("outputs.many(\"num_split\")"));
}
