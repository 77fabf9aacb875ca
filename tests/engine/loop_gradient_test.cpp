// SPDX-License-Identifier: Apache-2.0
// Gradients of loops through Session, compared with derivatives known in closed form.
#include <cmath>

#include "tests/engine/fixtures.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"

using namespace troupe;

namespace {

struct LoopTest : TestEngine {
  using TestEngine::TestEngine;

  double number(std::vector<Feed> feeds, Output fetch) { return value(std::move(feeds), fetch).data<double>()[0]; }
  Output input(std::string_view name, const PartialShape& shape = PartialShape::scalar()) {
    return placeholder(DType::kFloat64, shape, name);
  }
  Outputs gradient(Output y, const Outputs& xs) {
    auto dxs = gradients(scope, {y}, xs);
    INFO((dxs.ok() ? "" : dxs.error().str()));
    REQUIRE(dxs.ok());
    return *dxs;
  }
};

Tensor d(double value) { return Tensor::scalar(value); }

Output constant_of(const Scope& s, double value) { return s.constant(value); }

/// Runs body(scope, value) `times` times, a float64 scalar.
using Step = std::function<Outputs(const Scope&, const Outputs&)>;
Outputs repeat(const Scope& scope, Output times, Outputs init, const Step& step, WhileOptions options = {}) {
  init.insert(init.begin(), scope.constant<int32_t>(0));
  Outputs out = while_loop(
      scope, init,
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], times});
      },
      [&](const Scope& s, const Outputs& v) {
        Outputs next = step(s, {v.begin() + 1, v.end()});
        next.insert(next.begin(), s.op("AddV2", {v[0], s.constant<int32_t>(1)}));
        return next;
      },
      std::move(options));
  if (!out.empty()) out.erase(out.begin());
  return out;
}

}  // namespace

TEST_CASE("the gradient of a loop runs it backwards, by what it carries and by what it uses") {
  for (int parallel : {1, 10}) {
    LoopTest t;
    const Output x = t.input("x"), w = t.input("w");
    const Output n = t.placeholder(DType::kInt32, PartialShape::scalar(), "n");
    // y = x * w^n
    const Output y = repeat(t.scope, n, {x},
                            [&](const Scope& s, const Outputs& v) {
                              return Outputs{s.op("Mul", {v[0], w})};
                            },
                            {.parallel_iterations = parallel})[0];
    const Outputs dx = t.gradient(y, {x, w});
    for (int times : {0, 1, 2, 7, 40}) {
      const std::vector<Feed> feeds = {{x, d(1.5)}, {w, d(0.9)}, {n, Tensor::scalar<int32_t>(times)}};
      CHECK(t.number(feeds, dx[0]) == Approx(std::pow(0.9, times)));
      CHECK(t.number(feeds, dx[1]) == Approx(1.5 * times * std::pow(0.9, times - 1)));
    }
  }
}

TEST_CASE("the gradient of a loop goes through every value that leads to the result") {
  LoopTest t;
  const Output x = t.input("x");
  // a <- b * x, b <- a: after 4 iterations a = a0 * x^2 with a0 = x, b = b0 * x^2 with b0 = 3.
  const Outputs out = repeat(t.scope, t.scope.constant<int32_t>(4), {x, constant_of(t.scope, 3)},
                             [&](const Scope& s, const Outputs& v) {
                               return Outputs{s.op("Mul", {v[1], x}), s.op("Identity", {v[0]})};
                             });
  CHECK(t.number({{x, d(2)}}, out[0]) == 8);
  CHECK(t.number({{x, d(2)}}, out[1]) == 12);
  CHECK(t.number({{x, d(2)}}, t.gradient(out[0], {x})[0]) == Approx(3 * 4));
  CHECK(t.number({{x, d(2)}}, t.gradient(out[1], {x})[0]) == Approx(3 * 2 * 2));
}

TEST_CASE("matrices in a loop: the gradient of repeated products") {
  LoopTest t;
  const Output h = t.input("h", {1, 2}), w = t.input("w", {2, 2});
  const Output y = repeat(t.scope, t.scope.constant<int32_t>(3), {h}, [&](const Scope& s, const Outputs& v) {
    return Outputs{s.op("Tanh", {s.op("MatMul", {v[0], w})})};
  })[0];
  const Output loss = t.scope.op("Sum", {y, t.scope.constant(Tensor::of<int32_t>({0, 1}))});
  const Outputs dx = t.gradient(loss, {h, w});
  std::vector<double> hv = {0.3, -0.2}, wv = {0.5, -0.4, 0.7, 0.6};
  const auto at = [&](Output fetch) {
    return t.value({{h, Tensor::of<double>(std::span<const double>(hv), Shape{1, 2})},
                    {w, Tensor::of<double>(std::span<const double>(wv), Shape{2, 2})}},
                   fetch);
  };
  const Tensor dh = at(dx[0]), dw = at(dx[1]);
  const auto slope = [&](double& v) {
    const double old = v, step = 1e-5;
    v = old + step;
    const double up = at(loss).data<double>()[0];
    v = old - step;
    const double down = at(loss).data<double>()[0];
    v = old;
    return (up - down) / (2 * step);
  };
  for (size_t i = 0; i < hv.size(); ++i) CHECK(dh.data<double>()[i] == Approx(slope(hv[i])).epsilon(1e-6));
  for (size_t i = 0; i < wv.size(); ++i) CHECK(dw.data<double>()[i] == Approx(slope(wv[i])).epsilon(1e-6));
}

TEST_CASE("loops in loops have gradients") {
  LoopTest t;
  const Output x = t.input("x"), w = t.input("w");
  // Each of n iterations: v <- sin(v) * w^3, by a loop inside.
  const Output n = t.placeholder(DType::kInt32, PartialShape::scalar(), "n");
  const Output y = repeat(t.scope, n, {x}, [&](const Scope& s, const Outputs& v) {
    return repeat(s, s.constant<int32_t>(3), {s.op("Sin", {v[0]})}, [&](const Scope& in, const Outputs& u) {
      return Outputs{in.op("Mul", {u[0], w})};
    });
  })[0];
  const Outputs dx = t.gradient(y, {x, w});
  for (int times : {0, 1, 2, 5}) {
    double v = 0.8, dv_dx = 1, dv_dw = 0;
    for (int i = 0; i < times; ++i) {
      const double c = std::pow(1.1, 3);
      dv_dx = std::cos(v) * c * dv_dx;
      dv_dw = std::cos(v) * c * dv_dw + std::sin(v) * 3 * 1.1 * 1.1;
      v = std::sin(v) * c;
    }
    const std::vector<Feed> feeds = {{x, d(0.8)}, {w, d(1.1)}, {n, Tensor::scalar<int32_t>(times)}};
    CHECK(t.number(feeds, y) == Approx(v));
    CHECK(t.number(feeds, dx[0]) == Approx(dv_dx));
    CHECK(t.number(feeds, dx[1]) == Approx(dv_dw).margin(1e-12));
  }
}

TEST_CASE("a gradient of unknown shape goes through a loop whose values have known ones") {
  for (const PartialShape& shape : {PartialShape{2, 2}, PartialShape{-1, -1}, PartialShape{-1, 2}}) {
    for (const bool carried : {true, false}) {
      LoopTest t;
      const Output w = t.input("w", shape), dy = t.input("dy", PartialShape::unknown());
      const Output y = repeat(t.scope, t.scope.constant<int32_t>(3), {w}, [&](const Scope& s, const Outputs& v) {
        return Outputs{s.op("Mul", {carried ? v[0] : w, constant_of(s, 2)})};
      })[0];
      auto dw = gradients(t.scope, {y}, {w}, {dy});
      INFO(shape.str() << (dw.ok() ? "" : dw.error().str()));
      REQUIRE(dw.ok());
      const Tensor got = t.value({{w, Tensor::of<double>({1, 2, 3, 4}, {2, 2})},  //
                                  {dy, Tensor::of<double>({1, 1, 1, 2}, {2, 2})}},
                                 (*dw)[0]);
      const double by = carried ? 8 : 2;
      CHECK(got.identical(Tensor::of<double>({by, by, by, 2 * by}, {2, 2})));
    }
  }
}

TEST_CASE("the body of a loop asks for the gradient of a loop in it") {
  LoopTest t;
  const Output x = t.input("x"), w = t.input("w");
  // Twice: v <- v - 0.1 d(w^3 v^2 / 2)/dv, where the product by w is made in a loop.
  const Output y = repeat(t.scope, t.scope.constant<int32_t>(2), {x}, [&](const Scope& s, const Outputs& v) {
    const Output half = s.op("Mul", {s.op("Mul", {v[0], v[0]}), constant_of(s, 0.5)});
    const Output energy = repeat(s, s.constant<int32_t>(3), {half}, [&](const Scope& in, const Outputs& u) {
      return Outputs{in.op("Mul", {u[0], w})};
    })[0];
    auto slope = gradients(s, {energy}, {v[0]});
    INFO((slope.ok() ? "" : slope.error().str()));
    REQUIRE(slope.ok());
    return Outputs{s.op("Sub", {v[0], s.op("Mul", {(*slope)[0], constant_of(s, 0.1)})})};
  })[0];
  const double left = 1 - 0.1 * std::pow(1.1, 3);
  CHECK(t.number({{x, d(0.8)}, {w, d(1.1)}}, y) == Approx(0.8 * left * left));
  const Outputs dx = t.gradient(y, {x, w});
  CHECK(t.number({{x, d(0.8)}, {w, d(1.1)}}, dx[0]) == Approx(left * left));
  CHECK(t.number({{x, d(0.8)}, {w, d(1.1)}}, dx[1]) == Approx(-0.8 * 2 * left * 0.3 * 1.1 * 1.1));
}

TEST_CASE("the body of a loop asks for the gradient by what is outside of it") {
  LoopTest t;
  const Output x = t.input("x"), p = t.placeholder(DType::kBool, PartialShape::scalar(), "p");
  const Output handle = t.variable("w", DType::kFloat64, PartialShape::scalar());
  const Node* init = t.scope.node("AssignVariableOp", {handle, constant_of(t.scope, 1.1)});
  const auto read = [&](const Scope& s) { return s.op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat64}}); };
  // By a loop and a branch: b = x^3 or -x.
  const Output cube = repeat(t.scope, t.scope.constant<int32_t>(2), {x}, [&](const Scope& s, const Outputs& v) {
    return Outputs{s.op("Mul", {v[0], x})};
  })[0];
  const Output b = cond(
      t.scope, p, [&](const Scope&) { return Outputs{cube}; },
      [&](const Scope& s) { return Outputs{s.op("Neg", {x})}; })[0];
  for (const int depth : {1, 2}) {
    // The sum over all iterations of the gradients of 2 w b by x, and of those by w.
    const std::function<Outputs(const Scope&, int)> sums = [&](const Scope& s, int loops) {
      return repeat(
          s, s.constant<int32_t>(3), {constant_of(s, 0), constant_of(s, 0)}, [&](const Scope& in, const Outputs& v) {
            Outputs found;
            if (loops > 1) {
              found = sums(in, loops - 1);
            } else {
              auto made = gradients(in, {in.op("Mul", {in.op("Mul", {read(in), b}), constant_of(in, 2)})}, {x, handle});
              INFO((made.ok() ? "" : made.error().str()));
              REQUIRE(made.ok());
              found = *made;
            }
            REQUIRE((found.at(0) && found.at(1)));
            return Outputs{in.op("AddV2", {v[0], found[0]}), in.op("AddV2", {v[1], found[1]})};
          });
    };
    const Outputs by = sums(t.scope, depth);
    REQUIRE(t.session->run(init).ok());
    const double times = depth == 1 ? 3 : 9;
    for (const bool taken : {true, false}) {
      const std::vector<Feed> feeds = {{x, d(0.8)}, {p, Tensor::scalar(taken)}};
      CHECK(t.number(feeds, by.at(0)) == Approx(times * 2 * 1.1 * (taken ? 3 * 0.8 * 0.8 : -1)));
      CHECK(t.number(feeds, by.at(1)) == Approx(times * 2 * (taken ? 0.8 * 0.8 * 0.8 : -0.8)));
    }
  }
}

TEST_CASE("branches in loops have gradients, in each iteration that of the branch taken") {
  LoopTest t;
  const Output x = t.input("x");
  const Output n = t.placeholder(DType::kInt32, PartialShape::scalar(), "n");
  // Above 2 the value is halved after a sine was added, else squared.
  const Output y = repeat(t.scope, n, {x}, [&](const Scope& s, const Outputs& v) {
    return cond(
        s, s.op("Greater", {v[0], constant_of(s, 2)}),
        [&](const Scope& in) {
          return Outputs{in.op("Mul", {in.op("AddV2", {v[0], in.op("Sin", {v[0]})}), constant_of(in, 0.5)})};
        },
        [&](const Scope& in) {
          return Outputs{in.op("Mul", {v[0], v[0]})};
        });
  })[0];
  const Output dx = t.gradient(y, {x})[0];
  for (double from : {1.2, 3.0, 0.5}) {
    for (int times : {0, 1, 2, 3, 8}) {
      double v = from, slope = 1;
      for (int i = 0; i < times; ++i) {
        slope *= v > 2 ? 0.5 * (1 + std::cos(v)) : 2 * v;
        v = v > 2 ? 0.5 * (v + std::sin(v)) : v * v;
      }
      const std::vector<Feed> feeds = {{x, d(from)}, {n, Tensor::scalar<int32_t>(times)}};
      CHECK(t.number(feeds, y) == Approx(v));
      CHECK(t.number(feeds, dx) == Approx(slope));
    }
  }
}

TEST_CASE("a loop in a branch that is not taken has no part in the gradient") {
  LoopTest t;
  const Output x = t.input("x");
  const Output y = cond(
      t.scope, t.scope.op("Greater", {x, constant_of(t.scope, 0)}),
      [&](const Scope& s) {
        return repeat(s, s.constant<int32_t>(3), {x}, [&](const Scope& in, const Outputs& v) {
          return Outputs{in.op("Mul", {v[0], x})};
        });
      },
      [&](const Scope& s) { return Outputs{s.op("Neg", {x})}; })[0];
  const Output dx = t.gradient(y, {x})[0];
  CHECK(t.number({{x, d(2)}}, dx) == Approx(4 * 8));
  CHECK(t.number({{x, d(-2)}}, dx) == Approx(-1));
}

TEST_CASE("lists carried by a loop pass gradients to what was put in") {
  LoopTest t;
  const Output x = t.input("x", {4});
  const Attrs type{{"element_dtype", DType::kFloat64}};
  const Output shape = t.scope.constant(*Tensor::make(DType::kInt32, Shape{0}));
  const Output in = t.scope.op("TensorListFromTensor", {x, shape});
  const Output out = t.scope.op("TensorListReserve", {shape, t.scope.constant<int32_t>(4)}, type);
  // out[i] = in[i]^2 + out[i - 1]
  const Outputs result = while_loop(
      t.scope, {t.scope.constant<int32_t>(0), constant_of(t.scope, 0), out},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], s.constant<int32_t>(4)});
      },
      [&](const Scope& s, const Outputs& v) {
        const Output item = s.op("TensorListGetItem", {in, v[0], shape}, type);
        const Output sum = s.op("AddV2", {v[1], s.op("Mul", {item, item})});
        return Outputs{s.op("AddV2", {v[0], s.constant<int32_t>(1)}), sum,
                       s.op("TensorListSetItem", {v[2], v[0], sum})};
      });
  INFO((t.scope.ok() ? "" : t.scope.status().error().str()));
  REQUIRE(t.scope.ok());
  const Output sums = t.scope.op("TensorListStack", {result[2], shape}, type);
  const Output loss = t.scope.op("Sum", {sums, t.scope.constant<int32_t>(0)});
  const Tensor at = Tensor::of<double>({1, 2, 3, 4});
  CHECK(t.value({{x, at}}, sums).identical(Tensor::of<double>({1, 5, 14, 30})));
  CHECK(t.value({{x, at}}, t.gradient(loss, {x})[0]).identical(Tensor::of<double>({8, 12, 12, 8})));
}

TEST_CASE("variables read in a loop get the gradient of all iterations") {
  LoopTest t;
  const Output x = t.input("x");
  const Output handle =
      t.scope.op("VarHandleOp", {},
                 {{"dtype", DType::kFloat64}, {"shape", PartialShape::scalar()}, {"shared_name", std::string("w")}});
  const Node* init = t.scope.node("AssignVariableOp", {handle, constant_of(t.scope, 1.2)});
  REQUIRE(init);
  const Output y = repeat(t.scope, t.scope.constant<int32_t>(3), {x}, [&](const Scope& s, const Outputs& v) {
    return Outputs{s.op("Mul", {v[0], s.op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat64}})})};
  })[0];
  REQUIRE(t.session->run({}, {}, {init}).ok());
  CHECK(t.number({{x, d(2)}}, t.gradient(y, {handle})[0]) == Approx(2 * 3 * 1.2 * 1.2));
}

TEST_CASE("a scan gives the state after every row, with its gradient") {
  for (const PartialShape& rows : {PartialShape{4}, PartialShape{-1}, PartialShape::unknown()}) {
    LoopTest t;
    const Output x = t.input("x", rows), w = t.input("w");
    // s <- w * s + x[i]
    const Outputs sums = scan(t.scope, {x}, {constant_of(t.scope, 0)},
                              [&](const Scope& s, const Outputs& state, const Outputs& row) {
                                return Outputs{s.op("AddV2", {s.op("Mul", {w, state[0]}), row[0]})};
                              },
                              {.shapes = {PartialShape::unknown()}});
    const std::vector<Feed> feeds = {{x, Tensor::of<double>({1, 2, 3, 4})}, {w, d(10)}};
    CHECK(t.value(feeds, sums.at(0)).identical(Tensor::of<double>({1, 12, 123, 1234})));
    const Output last =
        t.scope.op("Sum", {t.scope.op("Mul", {sums[0], t.scope.constant(Tensor::of<double>({0, 0, 0, 1}))}),
                           t.scope.constant<int32_t>(0)});
    const Outputs dx = t.gradient(last, {x, w});
    CHECK(t.value(feeds, dx[0]).identical(Tensor::of<double>({1000, 100, 10, 1})));
    CHECK(t.number(feeds, dx[1]) == Approx(3 * 100 * 1 + 2 * 10 * 2 + 3));
  }
}

TEST_CASE("a scan gives as many rows as it takes, also in the shape") {
  LoopTest t;
  const auto rows_of = [&](const char* name, const PartialShape& shape) {
    const auto sum = [](const Scope& s, const Outputs& state, const Outputs& row) {
      return Outputs{s.op("AddV2", {state[0], row[0]})};
    };
    return scan(t.scope, {t.input(name, shape)}, {t.scope.constant(Tensor::of<double>({0, 0}))}, sum).at(0).shape();
  };
  CHECK(rows_of("x", {4, 2}) == PartialShape{4, 2});
  CHECK(rows_of("y", {-1, 2}) == PartialShape{-1, 2});
}

TEST_CASE("what a scan cannot do is refused") {
  LoopTest t;
  const auto keep = [](const Scope&, const Outputs& state, const Outputs&) { return state; };
  CHECK(scan(t.scope, {constant_of(t.scope, 1)}, {constant_of(t.scope, 0)}, keep).empty());
  CHECK_THAT(t.scope.status().error().message, Catch::Contains("no rows to scan"));
  LoopTest many;
  CHECK(scan(many.scope, {many.input("x", {int64_t{1} << 32})}, {constant_of(many.scope, 0)}, keep).empty());
  CHECK_THAT(many.scope.status().error().message, Catch::Contains("4294967296 rows"));
  LoopTest u;
  const Output x = u.input("x", {-1}), y = u.input("y", {-1});
  const Outputs both =
      scan(u.scope, {x, y}, {constant_of(u.scope, 0)}, [&](const Scope& s, const Outputs&, const Outputs& rows) {
        return Outputs{s.op("Mul", {rows[0], rows[1]})};
      });
  auto result = u.session->run({{x, Tensor::of<double>({1, 2, 3})}, {y, Tensor::of<double>({1, 2})}}, both);
  REQUIRE(!result.ok());
  CHECK_THAT(result.error().message, Catch::Contains("index 2 into a list of 2"));
}
