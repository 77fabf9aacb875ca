// SPDX-License-Identifier: Apache-2.0
// Tensors that cross devices as bfloat16: which do, and what arrives.
#include "troupe/transfers.h"

#include <bit>

#include "tests/engine/fixtures.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"
#include "troupe/graph_def.h"

using namespace troupe;

namespace {

constexpr auto kBFloat16 = TransferCompression::kBFloat16;

/// The upper 16 bits.
float truncated(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u); }

Tensor truncated(const Tensor& x) {
  Tensor out = *x.clone();
  for (int64_t i = 0; i < out.elements(); ++i) out.mutable_data<float>()[i] = truncated(x.data<float>()[i]);
  return out;
}

struct Transfers : TestEngine {
  explicit Transfers(TransferCompression compression, std::vector<int> threads = {1, 1})
      : TestEngine(std::move(threads)) {
    session = std::make_unique<Session>(
        *engine, graph, SessionOptions{.passes = GraphPasses::none(), .compress_transfers = compression});
  }
  Scope here = scope.device("/cpu:0"), there = scope.device("/cpu:1");
  const Tensor numbers = Tensor::of<float>({3.14159265f, -2.71828f, 1e-30f, 1.00390625f, -65537, 0}, {2, 3});
};

}  // namespace

TEST_CASE("float32 tensors that cross devices are cut to bfloat16 on request, and only there") {
  for (const auto compression : {TransferCompression::kOff, kBFloat16}) {
    Transfers t(compression);
    const Output x = t.placeholder(DType::kFloat32, {2, 3});
    const Output made = t.here.op("Neg", {x}), local = t.here.op("Neg", {made});
    const Output crossed = t.there.op("Neg", {made}), fed = t.there.op("Neg", {x});
    const auto result = t.session->run({{x, t.numbers}}, {made, local, crossed, fed, x});
    REQUIRE(result.ok());
    CHECK((*result)[1].identical(t.numbers));
    CHECK((*result)[2].identical(compression == kBFloat16 ? truncated(t.numbers) : t.numbers));
    CHECK((*result)[3].identical((*result)[0]));  // what is fed or fetched is as it is
    CHECK((*result)[4].identical(t.numbers));
  }
}

TEST_CASE("other types cross as they are") {
  Transfers t(kBFloat16);
  const double pi = 3.14159265358979;
  const Output x = t.placeholder(DType::kFloat64, {}), i = t.placeholder(DType::kInt32, {}, "i"),
               b = t.placeholder(DType::kBool, {}, "b"), s = t.placeholder(DType::kString, {}, "s");
  const auto cross = [&](Output o) { return t.there.op("Identity", {t.here.op("Identity", {o})}); };
  const auto result = t.session->run({{x, Tensor::scalar(pi)},
                                      {i, Tensor::scalar(1234567891)},
                                      {b, Tensor::scalar(true)},
                                      {s, Tensor::scalar<std::string>("text")}},
                                     {cross(x), cross(i), cross(b), cross(s)});
  REQUIRE(result.ok());
  CHECK((*result)[0].identical(Tensor::scalar(pi)));
  CHECK((*result)[1].identical(Tensor::scalar(1234567891)));
  CHECK((*result)[2].identical(Tensor::scalar(true)));
  CHECK((*result)[3].identical(Tensor::scalar<std::string>("text")));
}

TEST_CASE("a scope decides for its nodes, also through a GraphDef and through passes") {
  for (const auto compression : {TransferCompression::kOff, kBFloat16}) {
    Transfers t(compression);
    const auto other = compression == kBFloat16 ? TransferCompression::kOff : kBFloat16;
    const Output x = t.placeholder(DType::kFloat32, {2, 3});
    const Output as_session = t.there.op("Abs", {t.here.op("Neg", {x})});
    const Output as_scope = t.there.op("Abs", {t.here.compress_transfers(other).op("Neg", {x})});
    const Output square = t.there.op("Abs", {t.here.compress_transfers(other).op("Pow", {x, t.here.constant(2.f)})});
    const Output local = t.here.op("Abs", {t.here.op("Mul", {x, x})});
    Graph copy(t.engine->ops());
    REQUIRE(from_graph_def(to_graph_def(t.graph), copy).ok());
    Session session(*t.engine, copy, {.compress_transfers = compression});
    const auto result =
        session.run({{x.name(), t.numbers}}, {as_session.name(), as_scope.name(), square.name(), local.name()});
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    CHECK((*result)[0].identical((*result)[1]) == false);
    const Tensor& exact = (*result)[compression == kBFloat16 ? 1 : 0];
    CHECK((*result)[compression == kBFloat16 ? 0 : 1].identical(truncated(exact)));
    CHECK((*result)[2].identical(other == kBFloat16 ? truncated((*result)[3]) : (*result)[3]));
  }
}

TEST_CASE("gradients flow through what is cut, and are cut on their own way") {
  Transfers t(TransferCompression::kOff);
  const Scope here = t.here.compress_transfers(), there = t.there.compress_transfers();
  const Output x = t.placeholder(DType::kFloat32, {});
  const float a = 1.2345678f, b = 2.7182818f, value = 3.1415927f;
  const Output h = here.op("Mul", {x, here.constant(a)});
  const Output y = there.op("Mul", {h, there.constant(b)});
  const auto dx = gradients(t.scope, {y}, {x});
  REQUIRE(dx.ok());
  const auto result = t.session->run({{x, Tensor::scalar(value)}}, {y, (*dx)[0]});
  REQUIRE(result.ok());
  CHECK((*result)[0].data<float>()[0] == truncated(value * a) * b);
  CHECK((*result)[1].data<float>()[0] == truncated(b) * a);
}

TEST_CASE("what is dead crosses as dead, and what one device cuts serves all") {
  Transfers t(kBFloat16, {1, 1, 1});
  const Scope third = t.scope.device("/cpu:2");
  const Output x = t.placeholder(DType::kFloat32, {});
  const Output twice = t.here.op("AddV2", {x, x});
  const Output y = cond(
      t.here, t.here.op("Less", {x, t.here.constant(0.f)}),
      [&](const Scope& s) { return std::vector<Output>{s.device("/cpu:1").op("Neg", {twice})}; },
      [&](const Scope& s) { return std::vector<Output>{s.device("/cpu:2").op("Square", {twice})}; })[0];
  const Output a = t.there.op("Identity", {twice}), b = third.op("Identity", {twice});
  for (const float value : {1.2345678f, -1.2345678f}) {
    const auto result = t.session->run({{x, Tensor::scalar(value)}}, {y, a, b});
    REQUIRE(result.ok());
    const float cut = truncated(value + value);
    CHECK((*result)[0].data<float>()[0] == truncated(value < 0 ? -cut : cut * cut));
    CHECK((*result)[1].data<float>()[0] == cut);
    CHECK((*result)[2].data<float>()[0] == cut);
  }
}
