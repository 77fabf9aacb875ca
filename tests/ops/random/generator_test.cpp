// SPDX-License-Identifier: Apache-2.0
// Generators whose state is a variable: what they draw is what their stateless forms draw of that key and counter. That
// these are TensorFlow's numbers is what the golden cases generators and generator_ops check.
#include <catch2/catch.hpp>

#include "tests/ops/check_op.h"
#include "tests/ops/state_fixture.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

class Generator : public StateFixture {
 public:
  Generator() { set({5, 7, 9}); }
  void set(std::initializer_list<int64_t> numbers) { assign(state, Tensor::of<int64_t>(numbers)); }
  bool is(std::initializer_list<int64_t> numbers) { return read(state).identical(Tensor::of<int64_t>(numbers)); }
  Tensor draw(const std::string& op, std::vector<Arg> more, Attrs attrs = {}) {
    std::vector<Arg> args = {state, philox};
    args.insert(args.end(), more.begin(), more.end());
    auto out = run(op, std::move(args), std::move(attrs));
    if (!out.ok()) FAIL(out.error().str());
    return out->at(0);
  }
  std::string error(const std::string& op, std::vector<Arg> args) {
    const auto out = run(op, std::move(args));
    return out.ok() ? "" : out.error().str();
  }

  Arg state = variable("state", {}, DType::kInt64);
  const Tensor philox = Tensor::scalar<int64_t>(1), shape = Tensor::of<int64_t>({3, 2});
};

}  // namespace

TEST_CASE("a generator draws what its key and counter stand for, and goes on", "[random]") {
  Generator f;
  const Tensor key = Tensor::of<uint64_t>({9}), counter = Tensor::of<uint64_t>({5, 7}),
               alg = Tensor::scalar<int32_t>(1);
  const std::pair<const char*, const char*> forms[] = {{"StatefulUniform", "StatelessRandomUniformV2"},
                                                       {"StatefulStandardNormalV2", "StatelessRandomNormalV2"},
                                                       {"StatefulTruncatedNormal", "StatelessTruncatedNormalV2"},
                                                       {"StatefulUniformFullInt", "StatelessRandomUniformFullIntV2"}};
  for (const auto& [op, stateless] : forms) {
    INFO(op);
    f.set({5, 7, 9});
    const Tensor first = f.draw(op, {f.shape});
    CHECK(first.identical(*apply(stateless, {f.shape, key, counter, alg})));
    CHECK(f.is({5 + 6 * 256, 7, 9}));
    CHECK_FALSE(f.draw(op, {f.shape}).identical(first));
  }
  f.set({-1, 7, 9});
  f.draw("StatefulUniform", {Tensor::of<int64_t>({1})});
  CHECK(f.is({255, 8, 9}));  // a counter of 128 bits
  f.draw("StatefulUniform", {Tensor::of<int64_t>({0})});
  CHECK(f.is({255, 8, 9}));
}

TEST_CASE("a generator's state is read and moved on", "[random]") {
  Generator f;
  const auto skip = [&](uint64_t delta) {
    auto out = f.run("RngReadAndSkip", {f.state, Tensor::scalar<int32_t>(3), Tensor::scalar(delta)});
    REQUIRE(out.ok());
    return out->at(0);
  };
  CHECK(skip(2).identical(Tensor::of<int64_t>({5, 7, 9})));
  CHECK(f.is({5 + 512, 7, 9}));
  CHECK(f.run("RngSkip", {f.state, f.philox, Tensor::scalar<int64_t>(-2)})->empty());
  CHECK(f.is({5, 7, 9}));
}

TEST_CASE("what is no generator, and what it cannot draw, is refused", "[random][bad_input]") {
  Generator f;
  const Tensor two = Tensor::scalar<int64_t>(2), one = Tensor::scalar<uint64_t>(1);
  CHECK_THAT(f.error("StatefulUniform", {f.state, two, f.shape}), Contains("alg 2 is not Philox"));
  CHECK_THAT(f.error("StatefulUniform", {f.state, f.philox, Tensor::of<int64_t>({-1})}), Contains("-1"));
  CHECK_THAT(f.error("StatefulUniformInt", {f.state, f.philox, f.shape, two, two}), Contains("minval 2 is not below"));
  CHECK_THAT(f.error("StatefulRandomBinomial",
                     {f.state, f.philox, f.shape, Tensor::of<double>({1, 2, 3}), Tensor::scalar(0.5)}),
             Contains("shape [3,2] does not end with [3]"));
  CHECK_THAT(f.error("RngReadAndSkip", {f.state, Tensor::scalar<int32_t>(2), one}), Contains("alg 2 is not Philox"));
  f.set({1, 2});
  CHECK_THAT(f.error("StatefulUniform", {f.state, f.philox, f.shape}),
             Contains("variable 'state' must be int64[3], a generator's state, not int64[2]"));
  CHECK(f.is({1, 2}));
  const auto floats = f.variable("floats");
  f.assign(floats, Tensor::of<float>({1, 2, 3}));
  CHECK_THAT(f.error("RngSkip", {floats, f.philox, two}), Contains("not float32[3]"));
  const auto unset = f.variable("unset", {}, DType::kInt64);
  CHECK_THAT(f.error("RngSkip", {unset, f.philox, two}), Contains("unset"));
}
