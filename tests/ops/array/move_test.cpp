// SPDX-License-Identifier: Apache-2.0
// Ops that move elements: gradients beside inputs that have none, larger shapes on threads, and bad input.
#include "tests/ops/check_op.h"
#include "tests/ops/op_case.h"

namespace troupe::testing {
namespace {

Attrs named(const char* attr, const char* value) { return {{attr, std::string(value)}}; }

}  // namespace

TEST_CASE("diagonals have gradients in every alignment", "[moves]") {
  for (const char* align : {"LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"}) {
    const Attrs attrs = named("align", align);
    check_gradients("MatrixDiagV3", {ramp({2, 4, 4}), I({-1, 2}), I(4), I(5), D(0)}, attrs);
    check_gradients("MatrixDiagPartV3", {ramp({2, 3, 4}), I({-2, 1}), D(0)}, attrs);
    check_gradients("MatrixSetDiagV3", {ramp({2, 3, 4}), ramp({2, 4, 3}), I({-2, 1})}, attrs, {0, 1});
  }
  check_gradients("MatrixDiagV2", {ramp({3}), I({1}), I(-1), I(-1), D(0)});
  check_gradients("MatrixDiagPartV2", {ramp({3, 4}), I({0, 1}), D(0)});
}

TEST_CASE("large mirrors, blocks and bands are the same on two threads", "[moves]") {
  const Tensor x = ramp32({2, 64, 130, 8});
  const auto same = [](const std::string& op, const std::vector<Tensor>& inputs, Attrs attrs = {}) {
    const auto one = apply(op, inputs, attrs, 0, 1), two = apply(op, inputs, attrs, 0, 2);
    INFO(op);
    REQUIRE((one.ok() && two.ok()));
    CHECK(one->identical(*two));
  };
  const Tensor pads = I({0, 0, 3, 2, 0, 4, 1, 1}, {4, 2});
  same("MirrorPad", {x, pads}, named("mode", "REFLECT"));
  same("SpaceToBatchND", {x, I({2, 5}), I({0, 0, 0, 0}, {2, 2})});
  same("SpaceToDepth", {x}, {{"block_size", int64_t{2}}});
  same("MatrixBandPart", {x, L(3), L(2)});
  same("MatrixDiagPart", {x});
  same("Roll", {x, I({7, 9}), I({1, 2})});
  same("Einsum", {x, x}, named("equation", "abcd,abed->abce"));
}

TEST_CASE("a tensor that is updated by itself keeps its values", "[moves]") {
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const Output x = scope.op("Neg", {scope.constant(D({-1, -2, -3}))});
  const Output y = scope.op("TensorScatterUpdate", {x, scope.constant(I({1, 2, 0}, {3, 1})), x});
  const Output z = scope.op("MatrixSetDiag", {scope.op("Neg", {scope.constant(kMatrix)}), scope.constant(D({9, 9}))});
  const auto got = Evaluator().run({y, z});
  REQUIRE(got.ok());
  CHECK((*got)[0].identical(D({3, 1, 2})));
  CHECK((*got)[1].identical(D({9, -2, -3, -4, 9, -6}, {2, 3})));
}

TEST_CASE("mirrors, orders and rolls refuse what does not fit", "[moves][bad_input]") {
  check_always_fails("MirrorPad", {kMatrix, I({2, 0, 0, 0}, {2, 2})}, "mirror more than the 1 places",
                     named("mode", "REFLECT"));
  check_always_fails("MirrorPad", {kMatrix, I({0, 0, 4, 0}, {2, 2})}, "dimension 1", named("mode", "SYMMETRIC"));
  check_always_fails("MirrorPadGrad", {kMatrix, I({2, 2, 0, 0}, {2, 2})}, "paddings 2 and 2 of dimension 0 of [2,3]",
                     named("mode", "SYMMETRIC"));
  check_always_fails("Reverse", {kMatrix, B({true})}, "rank 2");
  check_always_fails("ReverseV2", {kMatrix, I({1, -1})}, "named twice");
  const auto along = [](int64_t s, int64_t b) { return Attrs{{"seq_dim", s}, {"batch_dim", b}}; };
  CHECK_FALSE(apply("ReverseSequence", {kMatrix, L({4, 1})}, along(1, 0)).ok());
  CHECK_FALSE(apply("ReverseSequence", {kMatrix, L({-1, 1})}, along(1, 0)).ok());
  check_always_fails("ReverseSequence", {kMatrix, L({1})}, "1 seq_lengths", along(1, 0));
  check_always_fails("ReverseSequence", {kMatrix, L({1, 1})}, "both 0", along(0, 0));
  check_always_fails("ReverseSequence", {kMatrix, L({1, 1})}, "axis 2", along(2, 0));
  check_always_fails("Roll", {kMatrix, I(1), I(2)}, "axis 2");
  check_always_fails("Roll", {kMatrix, I({1, 2}), I(0)}, "vectors of one size");
  check_always_fails("Roll", {D(1), I(1), I(0)}, "");
}

TEST_CASE("blocks refuse sizes that do not divide", "[moves][bad_input]") {
  const Tensor image = ramp({1, 3, 4, 3});
  const Attrs two = {{"block_size", int64_t{2}}};
  check_always_fails("SpaceToBatchND", {kMatrix, I({2}), I({0, 0}, {1, 2})}, "does not divide into blocks of 2");
  check_always_fails("SpaceToBatchND", {kMatrix, I({0}), I({0, 0}, {1, 2})}, "block size 0");
  check_always_fails("SpaceToBatchND", {kMatrix, I({1, 1}), I({0, 0, 0, 0}, {2, 2})}, "2 block sizes");
  check_always_fails("SpaceToBatchND", {kMatrix, L({INT64_MAX}), L({0, INT64_MAX}, {1, 2})}, "is not a size");
  check_always_fails("BatchToSpaceND", {kMatrix, I({3}), I({0, 0}, {1, 2})}, "a batch of 2");
  check_always_fails("BatchToSpaceND", {kMatrix, I({2}), I({5, 2}, {1, 2})}, "crops 5 and 2");
  check_always_fails("SpaceToDepth", {image}, "does not divide", two);
  check_always_fails("DepthToSpace", {image}, "3 channels", two);
  check_always_fails("DepthToSpace", {kMatrix}, "rank 4", two);
}

TEST_CASE("diagonals and bands refuse what is outside the matrix", "[moves][bad_input]") {
  check_always_fails("MatrixDiagPartV3", {kMatrix, I(3), D(0)}, "diagonal 3 is outside matrices [2,3]");
  check_always_fails("MatrixDiagPartV3", {kMatrix, I({1, 0}), D(0)}, "1 is above 0");
  check_always_fails("MatrixDiagPartV3", {kMatrix, I({0, 1, 2}), D(0)}, "not 3");
  check_always_fails("MatrixDiagV3", {D({1, 2}), I(0), I(1), I(2), D(0)}, "do not fit matrices [1,2]");
  check_always_fails("MatrixDiagV3", {D({1, 2}), I({0, 1}), I(-1), I(-1), D(0)}, "rank 2");
  check_always_fails("MatrixSetDiag", {kMatrix, D({1, 2, 3})}, "must have shape [2]");
  CHECK_FALSE(apply("MatrixBandPart", {kMatrix, L(3), L(0)}).ok());
  check_always_fails("MatrixBandPart", {D({1}), L(0), L(0)}, "[1]");
  check_always_fails("DiagPart", {kMatrix}, "differ");
  check_always_fails("Diag", {D(1)}, "rank 1 to 8");
}

TEST_CASE("indices into several dimensions are checked and named", "[moves][bad_input]") {
  const auto at_run = [](const std::string& op, const std::vector<Tensor>& inputs, const std::string& words) {
    const auto r = apply(op, inputs);
    INFO(op);
    REQUIRE_FALSE(r.ok());
    CHECK_THAT(r.error().message, Catch::Contains(words));
  };
  at_run("GatherNd", {kMatrix, I({0, 1, 1, 3}, {2, 2})}, "indices [1,3] of row 1 do not index into shape [2,3]");
  at_run("TensorScatterAdd", {kMatrix, I({-1}, {1, 1}), D({1, 1, 1}, {1, 3})}, "index -1 is not in [0, 2)");
  at_run("UnravelIndex", {I({6}), I({2, 3})}, "index 6 at position 0");
  check_always_fails("GatherNd", {kMatrix, I({0, 0, 0})}, "indices of shape [3] into [2,3]");
  check_always_fails("ScatterNd", {I({0}, {1, 1}), D({1, 2}), I({3})}, "updates must have shape [1], not [2]");
  check_always_fails("TensorScatterSub", {kMatrix, I({0}, {1, 1}), D({1})}, "updates must have shape [1,3]");
}

TEST_CASE("equations are checked", "[moves][bad_input]") {
  const auto fails = [](const std::vector<Tensor>& inputs, const char* equation, const char* words) {
    check_always_fails("Einsum", inputs, words, named("equation", equation));
  };
  fails({kMatrix, kMatrix}, "ab,bc->ac", "size 2 where another has 3");
  fails({kMatrix}, "ab", "must have one '->'");
  fails({kMatrix}, "ab->abc", "'c' of the result");
  fails({kMatrix}, "ab,b->a", "for 2 operands, not 1");
  fails({kMatrix}, "...a->a", "must have an ellipsis");
  fails({kMatrix}, "abc->a", "does not fit the subscripts 'abc'");
  fails({kMatrix}, "a1->a", "'1'");
  fails({kMatrix, kMatrix, kMatrix}, "ab,ab,ab->a", "3 operands");
}

TEST_CASE("ranges of rounding are checked", "[moves][bad_input]") {
  const Tensor x = F({1, 2}, {2});
  check_always_fails("FakeQuantWithMinMaxArgs", {x}, "num_bits must be from 2 to 16, not 17",
                     {{"num_bits", int64_t{17}}});
  CHECK_FALSE(apply("FakeQuantWithMinMaxArgs", {x}, {{"min", 1.f}, {"max", 1.f}}).ok());
  check_always_fails("FakeQuantWithMinMaxVarsPerChannel", {x, F({0}, {1}), F({1}, {1})}, "do not fit inputs [2]");
  CHECK_FALSE(apply("FakeQuantWithMinMaxVars", {x, F({2}, {}), F({1}, {})}).ok());
  check_always_fails("QuantizeAndDequantizeV2", {x, F({0}, {}), F({1}, {})}, "num_bits", {{"num_bits", int64_t{0}}});
  CHECK_FALSE(apply("QuantizeAndDequantizeV2", {x, F({2}, {}), F({1}, {})}, {{"range_given", true}}).ok());
}

}  // namespace troupe::testing
