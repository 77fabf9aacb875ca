// SPDX-License-Identifier: Apache-2.0
// Operators on outputs: their values and gradients, where their nodes go, and whose line a fault names.
#include "troupe/operators.h"

#include <malloc.h>
#include <pthread.h>

#include <limits>

#include "tests/engine/fixtures.h"
#include "tests/repeats.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"

namespace troupe {
namespace {

struct Two : TestEngine {
  Two() : TestEngine({1, 1}) {}
  const Output x = placeholder(DType::kFloat32, {}, "x"), y = placeholder(DType::kFloat32, {}, "y");
  float at(Output z, float a = 7, float b = 2) { return number(value({{x, f(a)}, {y, f(b)}}, z)); }
  bool holds(Output z, float a = 7, float b = 2) { return value({{x, f(a)}, {y, f(b)}}, z).data<bool>()[0]; }
};

/// Calls `f` on a thread with a stack of 1 MiB, which is too small for what recurs along a chain of nodes.
template <class F> void on_small_stack(F f) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, size_t{1} << 20) == 0);
  const auto call = [](void* f) -> void* {
    (*static_cast<F*>(f))();
    return nullptr;
  };
  pthread_t thread;
  REQUIRE(pthread_create(&thread, &attributes, call, &f) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  pthread_attr_destroy(&attributes);
}

size_t bytes_in_use() {
  const struct mallinfo2 info = ::mallinfo2();  // under a sanitizer all 0
  return info.uordblks + info.hblkhd;
}

TEST_CASE("operators compute", "[operators]") {
  Two t;
  const Output x = t.x, y = t.y;
  CHECK(t.at(x + y) == 9);
  CHECK(t.at(x - y) == 5);
  CHECK(t.at(x * y) == 14);
  CHECK(t.at(x / y) == 3.5f);
  CHECK(t.at(x % y) == 1);
  CHECK(t.at(-x) == -7);
  CHECK(t.at(0.5f * x + y) == 5.5f);
  CHECK(t.at(1 - x) == -6);
  CHECK(t.at(14 / x) == 2);
  CHECK(t.at(x * 2u - 1) == 13);
  CHECK(t.at(x * 0.5 + int64_t{3}) == 6.5f);
  CHECK(t.at(2 * (x - y) / (x + 3)) == 1);
  CHECK(t.holds(x > y));
  CHECK(t.holds(x > 0));
  CHECK(t.holds(x >= 7));
  CHECK_FALSE(t.holds(x < y));
  CHECK_FALSE(t.holds(0 > x));
  CHECK(t.holds(2 <= y));
  CHECK(t.holds((x > 0) & (y < 3)));
  CHECK(t.holds((x < 0) | (y < 3)));
  CHECK(t.holds((x < 0) ^ (y < 3)));
  CHECK(t.holds(~(x < 0)));
  CHECK(t.holds((x < 0) | true));
  Output z = x;
  z += y;
  z *= 2;
  z -= 3.f;
  z /= y;
  CHECK(t.at(z) == 7.5f);
  // What C++ says of outputs stays.
  CHECK(x == x);
  CHECK(x != y);
  CHECK(!Output());
  CHECK((x && y));
}

TEST_CASE("operators on integers are those of C++", "[operators]") {
  TestEngine t;
  const Output x = t.placeholder(DType::kInt32, {});
  const auto at = [&](Output z, int v) { return t.value({{x, Tensor::scalar(v)}}, z).data<int32_t>()[0]; };
  CHECK(at(x / 2, -7) == -7 / 2);
  CHECK(at(x % 3, -7) == -7 % 3);
  CHECK(at(x & 6, 13) == (13 & 6));
  CHECK(at(x | 6, 13) == (13 | 6));
  CHECK(at(x ^ 6, 13) == (13 ^ 6));
  CHECK(at(~x, 13) == ~13);
  CHECK(at(x * 2.0, 13) == 26);
}

TEST_CASE("every numeric dtype takes numbers", "[operators]") {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt8,
                            DType::kInt16, DType::kInt32, DType::kInt64, DType::kUInt8, DType::kUInt16, DType::kUInt32,
                            DType::kUInt64, DType::kComplex64, DType::kComplex128}) {
    INFO(to_string(dtype));
    TestEngine t;
    const Output x = t.placeholder(dtype, {});
    const Output y = (x + 1) * 3 - 2;
    REQUIRE(t.scope.ok());
    CHECK(y.dtype() == dtype);
    const Tensor four = Number(4).as(dtype).value();
    CHECK(t.value({{x, four}}, y).identical(Number(13).as(dtype).value()));
  }
}

TEST_CASE("a number that does not fit its dtype is a fault", "[operators]") {
  const auto fits = [](Number n, DType dtype) { return n.as(dtype).ok(); };
  CHECK_FALSE(fits(0.5, DType::kInt32));
  CHECK(fits(2.0, DType::kInt32));
  CHECK_FALSE(fits(300, DType::kUInt8));
  CHECK(fits(255, DType::kUInt8));
  CHECK_FALSE(fits(-1, DType::kUInt64));
  CHECK(fits(std::numeric_limits<uint64_t>::max(), DType::kUInt64));
  CHECK_FALSE(fits(std::numeric_limits<uint64_t>::max(), DType::kInt64));
  CHECK(fits(std::numeric_limits<int64_t>::min(), DType::kInt64));
  CHECK_FALSE(fits(9223372036854775808.0, DType::kInt64));
  CHECK_FALSE(fits(18446744073709551616.0, DType::kUInt64));
  CHECK_FALSE(fits(std::numeric_limits<double>::quiet_NaN(), DType::kInt32));
  CHECK_FALSE(fits(1e30, DType::kFloat16));
  CHECK_FALSE(fits(1e300, DType::kFloat32));
  CHECK_FALSE(fits(1e300, DType::kComplex64));
  CHECK(fits(0.1, DType::kFloat16));
  CHECK(fits(std::numeric_limits<float>::infinity(), DType::kFloat16));
  CHECK(fits(true, DType::kBool));
  CHECK(fits(1, DType::kBool));
  CHECK_FALSE(fits(2, DType::kBool));
  CHECK_FALSE(fits(1, DType::kString));
  CHECK_FALSE(fits(complex64(1, 2), DType::kFloat32));
  CHECK(fits(complex64(1, 2), DType::kComplex64));
  CHECK(fits(1e300, DType::kComplex128));
  CHECK_FALSE(fits(complex128(1e300, 2), DType::kComplex64));
  CHECK(Number(complex128(1, 0.1)).as(DType::kComplex128)->identical(Tensor::scalar(complex128(1, 0.1))));
  CHECK(fits(float16(2.f), DType::kInt8));
  CHECK(Number(bfloat16(0.5f)).as(DType::kFloat64)->identical(Tensor::scalar(0.5)));

  TestEngine t;
  const Output x = t.placeholder(DType::kInt32, {});
  const Output y = x + 0.5;
  const int line = __LINE__ - 1;
  CHECK_FALSE(y);
  REQUIRE_FALSE(t.scope.ok());
  const Error error = t.scope.status().error();
  INFO(error.str());
  CHECK(error.message ==
        fmt::format("operators_test.cpp:{}: the number 0.5 does not fit int32, the dtype of x:0", line));
  CHECK(error.op == "AddV2");
}

TEST_CASE("a fault names the caller's line and sticks", "[operators]") {
  {
    TestEngine t;
    const Output x = t.placeholder(DType::kFloat32, {2}, "x"), y = t.placeholder(DType::kFloat32, {3}, "y");
    const Output z = x - y;
    const std::string line = fmt::format("operators_test.cpp:{}: ", __LINE__ - 1);
    CHECK_FALSE(z);
    const std::string first = t.scope.status().error().message;
    CHECK(first.starts_with(line));
    // What follows is empty and keeps the first error.
    CHECK_FALSE(z + x);
    CHECK_FALSE(1 + z);
    CHECK_FALSE(-z);
    CHECK_FALSE(x + x);
    CHECK(t.scope.status().error().message == first);
    CHECK(t.session->run(x).error().message == first);
  }
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {});
  CHECK_FALSE(Output() + Output());
  CHECK_FALSE(Output() * 2);
  CHECK_FALSE(-Output());
  CHECK(t.scope.ok());
  const Output none = x > Output();
  const std::string line = fmt::format("operators_test.cpp:{}: ", __LINE__ - 1);
  CHECK_FALSE(none);
  REQUIRE_FALSE(t.scope.ok());
  CHECK(t.scope.status().error().message == line + "an operand is empty");

  TestEngine other;
  const Output far = other.placeholder(DType::kFloat32, {});
  CHECK_FALSE(far + x);
  CHECK(other.scope.status().error().message.find("of another graph") != std::string::npos);
}

TEST_CASE("a node goes beside its operand", "[operators]") {
  Two t;
  const Scope inner = t.scope.scope("layer").device("/cpu:1");
  const Output h = inner.named("h").op("Square", {t.x});
  const Output sum = h + t.y, product = t.y * h, scaled = 0.5f * h;
  CHECK(sum.node->name() == "layer/AddV2");
  CHECK(sum.node->device() == "/cpu:1");
  CHECK(product.node->name() == "layer/Mul");  // beside the one that is further along
  CHECK(product.node->device() == "/cpu:1");
  CHECK((t.x + t.y).node->device().empty());
  CHECK(scaled.node->device() == "/cpu:1");
  CHECK(scaled.node->inputs()[0].node->name() == "layer/Const");
  CHECK(scaled.node->inputs()[0].node->device() == "/cpu:1");
  CHECK(t.at(sum + product + scaled) == 49 + 2 + 98 + 24.5f);

  const Output near = t.scope.colocate(h.node).named("near").op("Neg", {t.x});
  const auto* classes = (near + 1).node->attrs().get<std::vector<std::string>>("_class");
  REQUIRE(classes);
  CHECK(*classes == std::vector<std::string>{"loc:@layer/h"});
  const Output small = t.scope.compress_transfers().op("Neg", {t.x});
  CHECK(transfer_compression(*(small * 2).node) == TransferCompression::kBFloat16);

  // Of a graph without a scope too.
  Graph graph(t.engine->ops());
  auto added = graph.add({"Placeholder", "deep/p", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}}});
  REQUIRE(added.ok());
  const Output twice = (*added)->out() * 2;
  REQUIRE(twice);
  CHECK(twice.node->name() == "deep/Mul");
  CHECK_FALSE((*added)->out() + Output());
  CHECK(graph.status().error().message.find("an operand is empty") != std::string::npos);
}

TEST_CASE("a node goes beside the operand that is further along", "[operators]") {
  Two t;
  const Scope first = t.scope.device("/cpu:0"), second = t.scope.device("/cpu:1");
  const Output x = first.op("Square", {t.x});
  const Output fx = second.op("Neg", {x});
  CHECK((x + fx).node->device() == "/cpu:1");
  CHECK((fx + x).node->device() == "/cpu:1");
  // What is made later is not further along.
  const Output late = first.op("Square", {t.y});
  CHECK((late * fx).node->device() == "/cpu:1");
  // Of two that are as far the left one.
  const Output other = second.op("Square", {t.y});
  CHECK((other + x).node->device() == "/cpu:1");
  CHECK((x + other).node->device() == "/cpu:0");
  // The value of a variable is as near as a feed and a constant.
  const Output handle = second.op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}});
  const Output w = second.op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat32}});
  const Output fed = first.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}});
  CHECK((fed * w).node->device() == "/cpu:0");
  CHECK((w * x).node->device() == "/cpu:0");
  CHECK((second.constant(2.f) * x).node->device() == "/cpu:0");
  CHECK(t.scope.ok());
}

TEST_CASE("the scope may be gone, the graph holds what operators need", "[operators]") {
  TestEngine t;
  Graph graph(t.engine->ops());
  const auto make = [&] {
    const Scope scope(graph);
    return scope.scope("a").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}});
  };
  const Output x = make();
  const Output y = x + 1;
  REQUIRE(y);
  Session session(*t.engine, graph);
  auto result = session.run({{x, f(2)}}, y);
  REQUIRE(result.ok());
  CHECK(number((*result)[0]) == 3);
}

TEST_CASE("in a branch operators go into it", "[operators]") {
  Two t;
  const Output p = t.placeholder(DType::kBool, {}, "p");
  Output leaked, left, right;
  const auto chosen = cond(
      t.scope, p,
      [&](const Scope& s) {
        left = s.op("Identity", {t.x});
        leaked = 2 * left + t.y;  // y is brought in
        const auto inner = cond(
            s, t.y > 0, [&](const Scope& in) { return std::vector{in.op("Identity", {leaked}) * t.y}; },
            [&](const Scope&) { return std::vector{-leaked}; });
        return std::vector{inner[0] + 1};
      },
      [&](const Scope& s) {
        right = s.op("Identity", {t.y});
        return std::vector{t.x - right};  // the right one is the inner one
      });
  REQUIRE(t.scope.ok());
  CHECK(leaked.node->name().starts_with("cond/then/"));
  const auto at = [&](bool taken, float x, float y) {
    return number(t.value({{p, Tensor::scalar(taken)}, {t.x, f(x)}, {t.y, f(y)}}, chosen[0]));
  };
  CHECK(at(true, 3, 2) == (2 * 3 + 2) * 2 + 1);
  CHECK(at(true, 3, -2) == -(2 * 3 - 2) + 1);
  CHECK(at(false, 3, 2) == 1);
  // Nodes of the branch not taken do not run.
  auto dead = t.session->run({{p, Tensor::scalar(false)}, {t.x, f(1)}, {t.y, f(1)}}, leaked);
  REQUIRE_FALSE(dead.ok());
  CHECK(dead.error().message.find("is dead") != std::string::npos);

  const Output none = left + right;
  const std::string line = fmt::format("operators_test.cpp:{}: ", __LINE__ - 1);
  CHECK_FALSE(none);
  REQUIRE_FALSE(t.scope.ok());
  CHECK(t.scope.status().error().message.starts_with(line));
  CHECK(t.scope.status().error().message.find("different branches or loops") != std::string::npos);
}

TEST_CASE("in the body of a loop operators go into it", "[operators]") {
  for (const char* device : {"", "/cpu:1"}) {
    Two t;
    const Output n = t.placeholder(DType::kInt32, {}, "n");
    const auto ends = while_loop(
        *device ? t.scope.device(device) : t.scope, {t.scope.constant(0), t.x},
        [&](const Scope&, const std::vector<Output>& v) { return v[0] < n; },
        [&](const Scope&, const std::vector<Output>& v) {
          return std::vector{v[0] + 1, 0.5f * v[1] + t.y};
        });
    REQUIRE(t.scope.ok());
    const Output last = ends[1] * 2;
    CHECK(last.node->name().starts_with("while/Mul"));
    auto dx = gradients(t.scope, {last}, {t.x, t.y});
    REQUIRE(dx.ok());
    auto result = t.session->run({{t.x, f(8)}, {t.y, f(1)}, {n, Tensor::scalar(3)}}, {last, (*dx)[0], (*dx)[1]});
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    CHECK(number((*result)[0]) == 2 * (1 + 0.5f + 0.25f + 1));
    CHECK(number((*result)[1]) == 2 * 0.125f);
    CHECK(number((*result)[2]) == 2 * 1.75f);
  }
}

TEST_CASE("a loop in a branch in a loop takes operators", "[operators]") {
  Two t;
  const auto outer = while_loop(
      t.scope, {t.scope.constant(0), t.x}, [](const Scope&, const std::vector<Output>& v) { return v[0] < 4; },
      [&](const Scope& s, const std::vector<Output>& v) {
        const auto chosen = cond(
            s, (v[0] % 2) > 0, [&](const Scope&) { return std::vector{v[1] + t.y}; },
            [&](const Scope& b) {
              const auto inner = while_loop(
                  b, {b.constant(0), b.op("Identity", {v[1]})},
                  [](const Scope&, const std::vector<Output>& w) { return w[0] < 2; },
                  [&](const Scope&, const std::vector<Output>& w) {
                    return std::vector{w[0] + 1, w[1] * t.y};
                  });
              return std::vector{inner[1] - 1};
            });
        return std::vector{v[0] + 1, chosen[0]};
      });
  REQUIRE(t.scope.ok());
  float want = 7;
  for (int i = 0; i < 4; ++i) want = i % 2 ? want + 2 : want * 4 - 1;
  CHECK(t.at(outer[1]) == want);
}

TEST_CASE("gradients flow through operators", "[operators]") {
  Two t;
  const Output z = (t.x * t.y - t.x / t.y) * 2 + -t.y;
  auto d = gradients(t.scope, {z}, {t.x, t.y});
  REQUIRE(d.ok());
  CHECK(t.at((*d)[0]) == 2 * (2 - 0.5f));
  CHECK(t.at((*d)[1]) == 2 * (7 + 7.f / 4) - 1);
  // On what a gradient is made of.
  CHECK(t.at((*d)[0] * (*d)[0]) == 9);
}

TEST_CASE("a node in the loop of a gradient takes no operators", "[operators]") {
  Two t;
  const auto ends = while_loop(
      t.scope, {t.scope.constant(0), t.x}, [](const Scope&, const std::vector<Output>& v) { return v[0] < 2; },
      [&](const Scope&, const std::vector<Output>& v) {
        return std::vector{v[0] + 1, v[1] * v[1]};
      });
  const int before = t.graph.size();
  REQUIRE(gradients(t.scope, {ends[1]}, {t.x}).ok());
  int tried = 0;
  for (int i = before, end = t.graph.size(); i < end; ++i) {
    const Node& node = t.graph.node(i);
    if (node.num_outputs() == 0 || node.dtype(0) != DType::kFloat32) continue;
    ++tried;
    (void)(node.out() + t.y);  // a node or a fault, never a crash
  }
  CHECK(tried > 0);
}

TEST_CASE("operators build a chain of 1,000,000 nodes, in 1.5 KB each, and it goes without recursion", "[operators]") {
  constexpr auto kNodes = static_cast<int>(1'000'000 / kSlowness);
  const TestEngine t;
  Status status;
  int nodes = 0;
  size_t bytes = 0;
  on_small_stack([&] {
    Graph graph(t.engine->ops());
    const Scope scope(graph);
    const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::scalar()}});
    const size_t before = bytes_in_use();
    Output y = x;
    for (int i = 0; i < kNodes; i += 4) {
      y = -(x + y) * x;
      y -= x;
    }
    bytes = bytes_in_use() - before;
    nodes = static_cast<int>(graph.size());
    status = scope.status();
  });
  INFO((status.ok() ? "" : status.error().str()));
  CHECK(status.ok());
  CHECK(nodes == kNodes + 1);
  CHECK(bytes / kNodes < 1536);
}

}  // namespace
}  // namespace troupe
