// SPDX-License-Identifier: Apache-2.0
// Sums of products: which become one product, and which stay.
#include "graph/passes/sum_products.h"

#include "tests/graph/passes/pass_fixture.h"
#include "troupe/gradients.h"

using namespace troupe;

namespace {

struct SumFixture : test::PassFixture {
  std::string summed(Output fetch, std::vector<Output> fed = {}) {
    return after(only(&GraphPasses::sum_products), fetch, std::move(fed));
  }
  Output product(Output a, Output b, bool transpose_a = true, bool transpose_b = false) {
    return s.op("MatMul", {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
  }
  Output sum(std::vector<Output> parts) { return s.op("AddN", std::move(parts)); }
  Output a = placeholder("a", {4, 16}), b = placeholder("b", {4, 32});
  Output c = placeholder("c", {-1, 16}), d = placeholder("d", {-1, 32});
};

}  // namespace

TEST_CASE("products that only a sum reads become one") {
  SumFixture f;
  CHECK(f.summed(f.sum({f.product(f.a, f.b), f.product(f.a, f.b)})) ==
        "MatMul(ConcatV2(a, a, int32[] 0), ConcatV2(b, b, int32[] 0))");
  const Output x = f.placeholder("x", {16, 3}), y = f.placeholder("y", {32, 3});
  CHECK(f.summed(f.sum({f.product(x, y, false, true), f.product(x, y, false, true)})) ==
        "MatMul(ConcatV2(x, x, int32[] 1), ConcatV2(y, y, int32[] 1))");
}

TEST_CASE("a weight that every step uses gets its gradient from one product") {
  SumFixture f;
  const Output w = f.placeholder("w", {200, 200});
  Output state = f.placeholder("h", {-1, 200});
  for (int step = 0; step < 3; ++step) state = f.s.op("Tanh", {f.s.op("MatMul", {state, w})});
  const auto dw = gradients(f.s, {state}, {w});
  REQUIRE(dw.ok());
  CHECK(f.summed((*dw)[0]).starts_with("MatMul(ConcatV2("));
}

TEST_CASE("other parts of a sum stay parts of it") {
  SumFixture f;
  const Output z = f.placeholder("z", {16, 32});
  const Output turned = f.product(f.placeholder("t", {16, 4}), f.b, false);
  CHECK(f.summed(f.sum({f.product(f.a, f.b), z, f.product(f.a, f.b), turned})) ==
        "AddN(MatMul(ConcatV2(a, a, int32[] 0), ConcatV2(b, b, int32[] 0)), z, MatMul(t, b))");
}

TEST_CASE("sums of products stay where one product would be more work, or is not the same") {
  SumFixture f;
  const auto same = [&](Output sum, std::vector<Output> fed = {}) {
    return f.summed(sum, std::move(fed)).starts_with("AddN(");
  };
  const Output wide = f.placeholder("wide", {100, 16}), too = f.placeholder("too", {100, 32});
  CHECK(same(f.sum({f.product(wide, too), f.product(wide, too)})));
  CHECK(same(f.sum({f.product(f.c, f.d), f.product(f.c, f.d)})));  // of unknown size, so rather large
  const Output read = f.product(f.a, f.b);
  CHECK(f.summed(f.s.op("Mul", {f.sum({read, read}), read})) == "Mul(AddN(MatMul(a, b), MatMul(a, b)), MatMul(a, b))");
  const Output fed = f.product(f.a, f.b);
  CHECK(same(f.sum({fed, f.product(f.a, f.b)}), {fed}));
  const Scope there = f.s.device("/cpu:1");
  CHECK(same(f.sum({there.op("MatMul", {f.a, f.b}, {{"transpose_a", true}}), f.product(f.a, f.b)})));
  const Output late = f.s.after({f.a}).op("MatMul", {f.a, f.b}, {{"transpose_a", true}});
  CHECK(same(f.sum({late, f.product(f.a, f.b)})));
  const Output big = f.placeholder("big", {-1, 512}), rows = f.placeholder("rows", {-1, 2048});
  CHECK_FALSE(same(f.sum({f.product(big, rows), f.product(big, rows)})));
}
