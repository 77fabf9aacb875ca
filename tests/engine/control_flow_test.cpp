// SPDX-License-Identifier: Apache-2.0
// Branches and loops through Session: what runs, what is dead, when loops end, and what is refused.
#include "troupe/control_flow.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "tests/engine/fixtures.h"
#include "troupe/gradients.h"
#include "troupe/graph_def.h"

using namespace troupe;

namespace {

struct Flow : TestEngine {
  using TestEngine::TestEngine;

  float number(std::vector<Feed> feeds, Output fetch) { return value(std::move(feeds), fetch).data<float>()[0]; }
  Error error(std::vector<Feed> feeds, Output fetch, RunOptions options = {}) {
    auto result = session->run(std::move(feeds), {fetch}, {}, options);
    REQUIRE_FALSE(result.ok());
    return result.error();
  }
  Output scalar(std::string_view name = "x") { return placeholder(DType::kFloat32, PartialShape::scalar(), name); }
  Output fail_if_run(const Scope& s, Output x) { return s.after({s.node("Abort", {})}).op("Identity", {x}); }
};

/// Counts up from 0 to `limit` and adds the numbers passed: {limit, sum}.
Outputs count(const Scope& scope, Output limit, WhileOptions options = {}) {
  return while_loop(
      scope, {scope.constant(0.f), scope.constant(0.f)},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], limit});
      },
      [](const Scope& s, const Outputs& v) {
        return Outputs{s.op("AddV2", {v[0], s.constant(1.f)}), s.op("AddV2", {v[1], v[0]})};
      },
      std::move(options));
}

}  // namespace

TEST_CASE("of a cond only the branch taken runs") {
  Flow t;
  const Output x = t.scalar(), zero = t.scope.constant(0.f);
  const Output y = cond(
      t.scope, t.scope.op("Less", {x, zero}),
      [&](const Scope& s) { return Outputs{t.fail_if_run(s, s.op("Neg", {x}))}; },
      [&](const Scope& s) {
        return Outputs{s.op("Mul", {x, s.constant(10.f)})};
      })[0];
  CHECK(t.number({{x, f(3)}}, y) == 30);
  CHECK(t.error({{x, f(-3)}}, y).op == "Abort");
  CHECK(t.number({{x, f(4)}}, y) == 40);
}

TEST_CASE("conds nest, and give what is outside of them through") {
  Flow t;
  const Output x = t.scalar(), zero = t.scope.constant(0.f), big = t.scope.constant(100.f);
  const Outputs sign = cond(
      t.scope, t.scope.op("Less", {x, zero}),
      [&](const Scope& s) {
        return Outputs{s.constant(-1.f), x};
      },
      [&](const Scope& s) {
        return cond(
            s, s.op("Less", {x, big}),
            [&](const Scope& in) {
              return Outputs{in.constant(1.f), x};
            },
            [&](const Scope& in) {
              return Outputs{in.constant(2.f), big};
            });
      });
  for (auto [value, kind, passed] : {std::tuple(-5.f, -1.f, -5.f), {5.f, 1.f, 5.f}, {500.f, 2.f, 100.f}}) {
    CHECK(t.number({{x, f(value)}}, sign[0]) == kind);
    CHECK(t.number({{x, f(value)}}, sign[1]) == passed);
  }
}

TEST_CASE("gradients flow through the branch taken") {
  Flow t;
  const Output x = t.scalar();
  const Output y = cond(
      t.scope, t.scope.op("Less", {x, t.scope.constant(0.f)}),
      [&](const Scope& s) {
        return Outputs{s.op("Mul", {x, s.constant(5.f)})};
      },
      [&](const Scope& s) {
        return Outputs{s.op("Mul", {x, x})};
      })[0];
  auto dx = gradients(t.scope, {t.scope.op("AddV2", {y, x})}, {x});
  REQUIRE(dx.ok());
  CHECK(t.number({{x, f(-2)}}, (*dx)[0]) == 6);
  CHECK(t.number({{x, f(4)}}, (*dx)[0]) == 9);
}

TEST_CASE("a dead tensor cannot be fetched") {
  Flow t;
  const Output x = t.scalar();
  const Node* both = t.scope.named("both").node("Switch", {x, t.scope.constant(Tensor::scalar(true))});
  CHECK(t.number({{x, f(7)}}, both->out(1)) == 7);
  const Error error = t.error({{x, f(7)}}, t.scope.named("after").op("Neg", {both->out(0)}));
  CHECK(error.node == "after");
  CHECK_THAT(error.message, Catch::Contains("dead"));
  CHECK(t.number({{x, f(8)}}, both->out(1)) == 8);
}

TEST_CASE("a while loop runs until its predicate fails, with any number of iterations at once") {
  for (int parallel : {1, 2, 10}) {
    Flow t;
    const Output n = t.scalar();
    const Outputs out = count(t.scope, n, {.parallel_iterations = parallel});
    for (float limit : {0.f, 1.f, 5.f, 1000.f}) {
      CHECK(t.number({{n, f(limit)}}, out[0]) == limit);
      CHECK(t.number({{n, f(limit)}}, out[1]) == limit * (limit - 1) / 2);
    }
  }
}

TEST_CASE("a loop whose value is the same after every iteration ends") {
  Flow t;
  const Output outside = t.scalar();
  for (const bool computed : {false, true}) {
    const Outputs ends = while_loop(
        t.scope, {t.scope.constant(0.f), t.scope.constant(7.f)},
        [](const Scope& s, const Outputs& v) {
          return s.op("Less", {v[0], s.constant(3.f)});
        },
        [&](const Scope& s, const Outputs& v) {
          return Outputs{s.op("AddV2", {v[0], s.constant(1.f)}), computed ? s.op("Neg", {outside}) : outside};
        });
    auto result = t.session->run({{outside, f(5)}}, ends, {}, {.deadline = std::chrono::seconds(20)});
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    CHECK((*result)[0].identical(f(3)));
    CHECK((*result)[1].identical(f(computed ? -5.f : 5.f)));
  }
}

TEST_CASE("loops nest, and use what is outside of them") {
  Flow t;
  const Output n = t.scalar(), step = t.scalar("step");
  // sum over i < n, j < i of (j + step)
  const Output total = while_loop(
      t.scope, {t.scope.constant(0.f), t.scope.constant(0.f)},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], n});
      },
      [&](const Scope& s, const Outputs& v) {
        const Outputs inner = while_loop(
            s, {s.constant(0.f), v[1]},
            [&](const Scope& in, const Outputs& w) {
              return in.op("Less", {w[0], v[0]});
            },
            [&](const Scope& in, const Outputs& w) {
              return Outputs{in.op("AddV2", {w[0], in.constant(1.f)}),
                             in.op("AddV2", {w[1], in.op("AddV2", {w[0], step})})};
            });
        return Outputs{s.op("AddV2", {v[0], s.constant(1.f)}), inner[1]};
      })[1];
  float expected = 0;
  for (int i = 0; i < 12; ++i)
    for (int j = 0; j < i; ++j) expected += static_cast<float>(j) + 2;
  CHECK(t.number({{n, f(12)}, {step, f(2)}}, total) == expected);
  CHECK(t.number({{n, f(0)}, {step, f(2)}}, total) == 0);
}

TEST_CASE("of many loops at once, beside one another and in one another, each has its own values") {
  Flow t;
  const Output limit = t.scalar("limit");
  const auto many = [&](const Scope& s, Output value, int loops) {
    Outputs sums;
    for (int i = 0; i < loops; ++i) {
      const Output to = i % 3 == 0 ? s.op("AddV2", {value, s.constant(static_cast<float>(i % 5))}) : value;
      sums.push_back(count(s, to)[1]);
    }
    return s.op("AddN", sums, {{"N", int64_t{loops}}});
  };
  const Output beside = many(t.scope, limit, 300);
  const Output within = while_loop(
      t.scope, {t.scope.constant(0.f), t.scope.constant(0.f)},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], limit});
      },
      [&](const Scope& s, const Outputs& v) {
        return Outputs{s.op("AddV2", {v[0], s.constant(1.f)}), s.op("AddV2", {v[1], many(s, v[0], 20)})};
      })[1];
  REQUIRE(t.scope.ok());
  const auto expected = [](int value, int loops) {
    int sum = 0;
    for (int i = 0; i < loops; ++i) {
      const int to = value + (i % 3 == 0 ? i % 5 : 0);
      sum += to * (to - 1) / 2;
    }
    return sum;
  };
  for (const int to : {0, 1, 4, 7}) {
    CHECK(t.number({{limit, f(static_cast<float>(to))}}, beside) == static_cast<float>(expected(to, 300)));
    int sum = 0;
    for (int i = 0; i < to; ++i) sum += expected(i, 20);
    CHECK(t.number({{limit, f(static_cast<float>(to))}}, within) == static_cast<float>(sum));
  }
}

TEST_CASE("a cond in a loop chooses in each iteration; a loop in a branch not taken does not run") {
  Flow t;
  const Output start = t.scalar(), two = t.scope.constant(2.f), one = t.scope.constant(1.f);
  // The steps of Collatz from start down to 1.
  const Output steps = while_loop(
      t.scope, {start, t.scope.constant(0.f)},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Greater", {v[0], one});
      },
      [&](const Scope& s, const Outputs& v) {
        const Output odd = s.op("Greater", {s.op("FloorMod", {v[0], two}), s.constant(0.5f)});
        const Outputs next = cond(
            s, odd,
            [&](const Scope& in) {
              return Outputs{in.op("AddV2", {in.op("Mul", {v[0], in.constant(3.f)}), one})};
            },
            [&](const Scope& in) {
              return Outputs{in.op("RealDiv", {v[0], two})};
            });
        return Outputs{next[0], s.op("AddV2", {v[1], one})};
      })[1];
  CHECK(t.number({{start, f(27)}}, steps) == 111);
  CHECK(t.number({{start, f(1)}}, steps) == 0);

  const Output skipped = cond(
      t.scope, t.scope.op("Less", {start, two}), [&](const Scope& s) { return Outputs{s.constant(-1.f)}; },
      [&](const Scope& s) { return Outputs{count(s, start)[1]}; })[0];
  CHECK(t.number({{start, f(1)}}, skipped) == -1);
  CHECK(t.number({{start, f(4)}}, skipped) == 6);
}

TEST_CASE("a loop that never ends is stopped by a deadline, and the session goes on") {
  Flow t;
  const Output x = t.scalar();
  const Output forever = while_loop(
      t.scope, {x},
      [](const Scope& s, const Outputs& v) {
        return s.op("Equal", {v[0], v[0]});
      },
      [](const Scope& s, const Outputs& v) { return Outputs{s.op("Neg", {v[0]})}; })[0];
  RunOptions options;
  options.deadline = std::chrono::milliseconds(50);
  CHECK(t.error({{x, f(1)}}, forever, options).code == Code::kDeadlineExceeded);
  CHECK(t.number({{x, f(2)}}, t.scope.op("Neg", {x})) == -2);
}

TEST_CASE("a loop updates a variable in every iteration") {
  Flow t;
  const Output v = t.variable("v", DType::kFloat32, {}), n = t.scalar();
  REQUIRE(t.session->run(std::vector<Feed>{}, {}, {t.scope.node("AssignVariableOp", {v, t.scope.constant(0.f)})}).ok());
  const Output last = while_loop(
      t.scope, {t.scope.constant(0.f)},
      [&](const Scope& s, const Outputs& i) {
        return s.op("Less", {i[0], n});
      },
      [&](const Scope& s, const Outputs& i) {
        const Node* add = s.node("AssignAddVariableOp", {v, s.constant(2.f)});
        return Outputs{s.after(std::vector<const Node*>{add}).op("AddV2", {i[0], s.constant(1.f)})};
      })[0];
  CHECK(t.number({{n, f(300)}}, last) == 300);
  CHECK(t.number({}, t.scope.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}})) == 600);
}

TEST_CASE("a chain of 20,000 branches without a kernel between them needs no deep stack") {
  Flow t;
  const Output p = t.placeholder(DType::kBool, PartialShape::scalar(), "p"), x = t.scalar();
  Output chained = t.scope.op("Neg", {x});
  for (int i = 0; i < 20'000; ++i) {
    const Node* split = t.scope.node("Switch", {chained, p});
    chained = t.scope.op("Merge", {split->out(0), split->out(1)});
  }
  for (const bool taken : {true, false}) CHECK(t.number({{p, Tensor::scalar(taken)}, {x, f(3)}}, chained) == -3);
}

TEST_CASE("a branch or body waits for a node from outside that its scope is after") {
  Flow t;
  const Output v = t.variable("v", DType::kFloat32, PartialShape::scalar()), x = t.scalar(), n = t.scalar();
  const auto read = [&](const Scope& s) { return s.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}}); };
  // The value is long in coming: a chain of nodes makes it.
  Output late = x;
  for (int i = 0; i < 2000; ++i) late = t.scope.op("Neg", {late});
  const Node* set = t.scope.node("AssignVariableOp", {v, late});
  const std::vector<const Node*> first = {set};
  const Outputs chosen = cond(
      t.scope, t.scope.op("Less", {n, t.scope.constant(0.f)}),
      [&](const Scope& s) { return Outputs{read(s.after(first))}; },
      [&](const Scope& s) {
        // In each of n iterations the value is added, in a branch.
        return Outputs{while_loop(
            s, {s.constant(0.f), s.constant(0.f)},
            [&](const Scope& in, const Outputs& i) {
              return in.op("Less", {i[0], n});
            },
            [&](const Scope& in, const Outputs& i) {
              const Outputs more = cond(
                  in, in.op("Less", {i[0], n}), [&](const Scope& b) { return Outputs{read(b.after(first))}; },
                  [&](const Scope& b) { return Outputs{b.constant(-1.f)}; });
              return Outputs{in.op("AddV2", {i[0], in.constant(1.f)}), in.op("AddV2", {i[1], more.at(0)})};
            })[1]};
      });
  REQUIRE(t.session->run(t.scope.node("AssignVariableOp", {v, t.scope.constant(-100.f)})).ok());
  CHECK(t.number({{x, f(1)}, {n, f(-1)}}, chosen.at(0)) == 1);
  CHECK(t.number({{x, f(2)}, {n, f(3)}}, chosen.at(0)) == 6);
  CHECK(t.number({{x, f(3)}, {n, f(0)}}, chosen.at(0)) == 0);
  CHECK(t.number({{x, f(4)}, {n, f(5)}}, chosen.at(0)) == 20);
}

TEST_CASE("what a body makes of values from outside alone runs once in each iteration") {
  Flow t;
  const Output v = t.variable("v", DType::kFloat32, {}), x = t.scalar(), n = t.scalar();
  const auto add = [&](const Scope& s, Output value) {
    return s.after(std::vector<const Node*>{s.node("AssignAddVariableOp", {v, value})});
  };
  const auto up = [](const Scope& s, Output i) { return s.op("AddV2", {i, s.constant(1.f)}); };
  // In each iteration x, twice 10 x in a loop, and 100 x in a branch.
  const Output last = while_loop(
      t.scope, {t.scope.constant(0.f)},
      [&](const Scope& s, const Outputs& i) {
        return s.op("Less", {i[0], n});
      },
      [&](const Scope& s, const Outputs& i) {
        const Output inner = while_loop(
            s, {s.constant(0.f)},
            [&](const Scope& in, const Outputs& j) {
              return in.op("Less", {j[0], in.constant(2.f)});
            },
            [&](const Scope& in, const Outputs& j) {
              return Outputs{up(add(in, in.op("Mul", {x, in.constant(10.f)})), j[0])};
            })[0];
        const Output chosen = cond(
            s, s.op("Greater", {x, n}), [&](const Scope& in) { return Outputs{in.constant(0.f)}; },
            [&](const Scope& in) {
              return Outputs{add(in, in.op("Mul", {x, in.constant(100.f)})).constant(1.f)};
            })[0];
        return Outputs{up(add(s, x).after(Outputs{inner, chosen}), i[0])};
      })[0];
  const Node* clear = t.scope.node("AssignVariableOp", {v, t.scope.constant(0.f)});
  const Output read = t.scope.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
  for (const float times : {0.f, 1.f, 5.f}) {
    REQUIRE(t.session->run(clear).ok());
    CHECK(t.number({{x, f(0.5f)}, {n, f(times)}}, last) == times);
    CHECK(t.number({}, read) == times * (times < 0.5f ? 0 : 0.5f * 121));
  }
}

TEST_CASE("a loop ends whose body chooses by a predicate from outside between its value and another") {
  Flow t;
  const Output p = t.placeholder(DType::kBool, PartialShape::scalar(), "p"), x = t.scalar();
  const Outputs last = while_loop(
      t.scope, {t.scope.constant(0.f), t.scope.constant(1.f)},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], s.constant(3.f)});
      },
      [&](const Scope& s, const Outputs& v) {
        const Outputs next = cond(
            s, p,
            [&](const Scope& in) {
              return Outputs{in.op("Mul", {v[1], x})};
            },
            [&](const Scope& in) { return Outputs{in.op("Neg", {x})}; });
        return Outputs{s.op("AddV2", {v[0], s.constant(1.f)}), next.at(0)};
      });
  CHECK(t.number({{p, Tensor::scalar(true)}, {x, f(2)}}, last.at(1)) == 8);
  CHECK(t.number({{p, Tensor::scalar(false)}, {x, f(2)}}, last.at(1)) == -2);
}

TEST_CASE("a loop waits for what its scope is after, and so does one in its body") {
  Flow t;
  const Output v = t.variable("v", DType::kFloat32, {}), x = t.scalar();
  const auto set = [&](const Scope& s, Output value) { return s.node("AssignVariableOp", {v, value}); };
  const auto read = [&](const Scope& s) { return s.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}}); };
  REQUIRE(t.session->run(std::vector<Feed>{}, {}, {set(t.scope, t.scope.constant(1.f))}).ok());
  // The variable becomes x, doubles in each of three iterations, and grows by 1 in the two of a loop in each.
  const Output last = while_loop(
      t.scope.after(std::vector<const Node*>{set(t.scope, x)}), {t.scope.constant(0.f)},
      [&](const Scope& s, const Outputs& i) {
        return s.op("Less", {i[0], s.constant(3.f)});
      },
      [&](const Scope& s, const Outputs& i) {
        const Scope began = s.after(std::vector<Output>{i[0]});
        const Node* doubled = set(began, began.op("Mul", {read(began), began.constant(2.f)}));
        const Output ended = while_loop(
            s.after(std::vector<const Node*>{doubled}), {s.op("Mul", {i[0], s.constant(0.f)})},
            [&](const Scope& in, const Outputs& j) {
              return in.op("Less", {j[0], in.constant(2.f)});
            },
            [&](const Scope& in, const Outputs& j) {
              const Node* more = in.node("AssignAddVariableOp", {v, in.constant(1.f)});
              return Outputs{in.after(std::vector<const Node*>{more}).op("AddV2", {j[0], in.constant(1.f)})};
            })[0];
        return Outputs{s.after(std::vector<Output>{ended}).op("AddV2", {i[0], s.constant(1.f)})};
      })[0];
  const Output after = read(t.scope.after(std::vector<Output>{last}));
  CHECK(t.number({{x, f(5)}}, after) == 54);  // 12, 26, 54
  CHECK(t.number({{x, f(0)}}, after) == 14);
}

TEST_CASE("branches and loops cross devices") {
  Flow t({1, 1});
  const Output x = t.scope.device("/cpu:1").op("Neg", {t.scalar()});
  const Output input = x.node->inputs()[0];
  const Output y = cond(
      t.scope, t.scope.op("Less", {x, t.scope.constant(0.f)}),
      [&](const Scope& s) {
        return Outputs{s.device("/cpu:1").op("Mul", {x, s.constant(2.f)})};
      },
      [&](const Scope& s) { return Outputs{count(s.device("/cpu:1"), x)[1]}; })[0];
  CHECK(t.number({{input, f(3)}}, y) == -6);
  CHECK(t.number({{input, f(-4)}}, y) == 6);
}

TEST_CASE("what waits for a side of a Switch by a control edge lives with that side, on any device") {
  for (const char* device : {"/cpu:0", "/cpu:1"}) {
    Flow t({1, 1});
    const Scope there = t.scope.device(device);
    const Output x = t.scalar(), p = t.placeholder(DType::kBool, PartialShape::scalar(), "p");
    const Node* sides = t.scope.node("Switch", {x, p});
    const Output no = t.scope.op("Identity", {sides->out(0)}), yes = t.scope.op("Identity", {sides->out(1)});
    const Output one = there.after({yes}).constant(1.f), ten = there.after({no}).constant(10.f);
    const Output two = there.op("AddV2", {one, one}), twenty = there.op("AddV2", {ten, ten});
    const Node* chosen = there.node("Merge", {one, ten});
    const Node* sum = there.node("Merge", {two, twenty});
    for (bool value : {false, true, false}) {
      const std::vector<Feed> feeds = {{x, f(5)}, {p, Tensor::scalar(value)}};
      CHECK(t.number(feeds, chosen->out(0)) == (value ? 1 : 10));
      CHECK(t.value(feeds, chosen->out(1)).identical(Tensor::scalar(value ? 0 : 1)));
      CHECK(t.number(feeds, sum->out(0)) == (value ? 2 : 20));
      CHECK(t.number(feeds, value ? one : ten) == (value ? 1 : 10));
      CHECK_THAT(t.error(feeds, value ? ten : one).message, Catch::Contains("dead"));
      CHECK_THAT(t.error(feeds, value ? twenty : two).message, Catch::Contains("dead"));
    }
  }
}

TEST_CASE("a constant of a body is the same in every iteration, whoever would write into it") {
  for (int parallel : {1, 4}) {
    Flow t;
    const Output n = t.scalar();
    const Outputs out = while_loop(
        t.scope, {t.scope.constant(0.f), t.scope.constant(Tensor::of<float>({0, 0}))},
        [&](const Scope& s, const Outputs& v) {
          return s.op("Less", {v[0], n});
        },
        [](const Scope& s, const Outputs& v) {
          const Output row = s.constant(Tensor::of<float>({1, 2}));
          const Output last =
              s.op("Exp", {s.op("Neg", {s.op("Neg", {row})})});  // element-wise, in place where it may be
          return Outputs{s.op("AddV2", {v[0], s.constant(1.f)}), s.op("AddV2", {row, s.op("Mul", {last, v[1]})})};
        },
        {.parallel_iterations = parallel});
    float a = 0, b = 0;
    for (int i = 0; i < 5; ++i) {
      a = 1 + std::exp(1.f) * a;
      b = 2 + std::exp(2.f) * b;
    }
    const Tensor result = t.value({{n, f(5)}}, out[1]);
    CHECK(result.data<float>()[0] == Approx(a));
    CHECK(result.data<float>()[1] == Approx(b));
    CHECK(t.value({{n, f(0)}}, out[1]).identical(Tensor::of<float>({0, 0})));
  }
}

TEST_CASE("shapes may change in a loop where that is declared") {
  Flow t;
  const Output one = t.scope.constant(Tensor::of<float>({1}));
  const auto predicate = [&](const Scope& s, const Outputs& v) {
    return s.op("Less", {s.op("Size", {v[0]}), s.constant(Tensor::scalar<int32_t>(5))});
  };
  const auto grow = [](const Scope& s, const Outputs& v) {
    return Outputs{s.op("ConcatV2", {v[0], v[0], s.constant(Tensor::scalar<int32_t>(0))}, {{"N", int64_t{2}}})};
  };
  const Output grown = while_loop(t.scope, {one}, predicate, grow, {.shapes = {PartialShape{-1}}})[0];
  CHECK(grown.shape() == PartialShape{-1});
  CHECK(t.value({}, grown).shape() == Shape{8});
  CHECK(while_loop(t.scope, {one}, predicate, grow).empty());
  CHECK_THAT(t.scope.status().error().message, Catch::Contains("[1]") && Catch::Contains("[2]"));
}

TEST_CASE("loops go to GraphDef and back") {
  Flow t;
  const Output n = t.scalar("n");
  const std::string name = count(t.scope, n)[1].node->name();
  const std::string bytes = to_graph_def(t.graph);
  Graph copy(t.engine->ops());
  Status read = from_graph_def(bytes, copy);
  INFO((read.ok() ? "" : read.error().str()));
  REQUIRE(read.ok());
  CHECK(to_graph_def(copy) == bytes);
  Session session(*t.engine, copy);
  auto sum = session.run({{*copy.output("n"), f(10)}}, {*copy.output(name)});
  REQUIRE(sum.ok());
  CHECK((*sum)[0].data<float>()[0] == 45);
}

TEST_CASE("a loop runs in whatever order a GraphDef lists its nodes") {
  const auto node = [](const std::string& name, const std::string& op, const std::vector<std::string>& inputs,
                       const std::string& type, const std::string& more = "") {
    std::string out = "node { name: '" + name + "' op: '" + op + "'";
    for (const std::string& input : inputs) out += " input: '" + input + "'";
    return out + (type.empty() ? "" : " attr { key: 'T' value { type: " + type + " } }") + more + " } ";
  };
  const auto constant = [&](const std::string& name, const std::vector<std::string>& after, const std::string& type,
                            const std::string& value) {
    return node(name, "Const", after, "",
                " attr { key: 'dtype' value { type: " + type + " } } attr { key: 'value' value { tensor { dtype: " +
                    type + " tensor_shape {} " + value + " } } }");
  };
  std::vector<std::string> nodes = {constant("zero", {}, "DT_INT32", "int_val: 0"),
                                    constant("one", {}, "DT_FLOAT", "float_val: 1"),
                                    constant("three", {"^merge_0"}, "DT_INT32", "int_val: 3"),
                                    constant("step", {"^now_0"}, "DT_INT32", "int_val: 1"),
                                    node("less", "Less", {"merge_0", "three"}, "DT_INT32"),
                                    node("goes_on", "LoopCond", {"less"}, ""),
                                    node("add", "AddV2", {"now_0", "step"}, "DT_INT32"),
                                    node("neg", "Neg", {"now_2"}, "DT_FLOAT"),
                                    node("next_0", "NextIteration", {"add"}, "DT_INT32"),
                                    node("next_1", "NextIteration", {"now_2"}, "DT_FLOAT"),
                                    node("next_2", "NextIteration", {"neg"}, "DT_FLOAT")};
  for (const std::string i : {"0", "1", "2"}) {  // a counter; what the next one was; one that changes its sign
    const std::string type = i == "0" ? "DT_INT32" : "DT_FLOAT";
    nodes.push_back(node("enter_" + i, "Enter", {i == "0" ? "zero" : "one"}, type,
                         " attr { key: 'frame_name' value { s: 'loop' } }"));
    nodes.push_back(
        node("merge_" + i, "Merge", {"enter_" + i, "next_" + i}, type, " attr { key: 'N' value { i: 2 } }"));
    nodes.push_back(node("switch_" + i, "Switch", {"merge_" + i, "goes_on"}, type));
    nodes.push_back(node("now_" + i, "Identity", {"switch_" + i + ":1"}, type));
    nodes.push_back(node("exit_" + i, "Exit", {"switch_" + i}, type));
  }
  std::mt19937 random(1);
  for (int round = 0; round < 40; ++round) {
    std::shuffle(nodes.begin(), nodes.end(), random);
    std::string text;
    for (const std::string& one : nodes) text += one;
    INFO(text);
    TestEngine t({1, 1});
    Graph graph(t.engine->ops());
    const Status read = from_graph_def(text, graph);
    INFO((read.ok() ? "" : read.error().str()));
    REQUIRE(read.ok());
    Session session(*t.engine, graph);
    const auto got = session.run({*graph.output("exit_1"), *graph.output("exit_2")});
    INFO((got.ok() ? "" : got.error().str()));
    REQUIRE(got.ok());
    CHECK(number((*got)[0]) == 1);
    CHECK(number((*got)[1]) == -1);
  }
}

TEST_CASE("of several live inputs a Merge has the first, whenever the others come") {
  Flow t;
  const Output n = t.scalar("n");
  const Scope controlled = t.scope.after({t.scope.op("Tanh", {n}).node});  // it waits until both are there
  const Output late = t.scope.op("Sqrt", {t.scope.op("Exp", {t.scope.op("Exp", {n})})});
  for (const Scope& scope : {t.scope, controlled})
    for (const auto& [a, b] : {std::pair(n, late), {late, n}, {late, t.scope.op("Neg", {n})}, {n, n}}) {
      const Node* merge = scope.node("Merge", {a, b});
      const Output sum = t.scope.op("AddN", {merge->out(0), a, b});  // others read them as well
      const auto got = t.session->run({{n, f(1)}}, {merge->out(0), merge->out(1), a, b, sum});
      INFO((got.ok() ? "" : got.error().str()));
      REQUIRE(got.ok());
      const int32_t index = (*got)[1].data<int32_t>()[0];
      REQUIRE((index == 0 || index == 1));
      CHECK((*got)[0].identical((*got)[static_cast<size_t>(2 + index)]));
      CHECK(number((*got)[4]) == Approx(number((*got)[0]) + number((*got)[2]) + number((*got)[3])));
    }
}

TEST_CASE("faults of branches and loops name the node") {
  Flow t;
  const Output n = t.scalar("n");
  Output inside;
  const Outputs out = while_loop(
      t.scope, {t.scope.constant(0.f)},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], n});
      },
      [&](const Scope& s, const Outputs& v) {
        inside = s.named("inside").op("AddV2", {v[0], s.constant(1.f)});
        return Outputs{inside};
      });
  CHECK_THAT(t.error({{n, f(2)}}, inside).message, Catch::Contains("inside a loop"));
  CHECK_THAT(t.error({{n, f(2)}, {inside, f(2)}}, out[0]).message, Catch::Contains("fed"));
  const Error mixed = t.error({{n, f(2)}}, t.scope.named("mixed").op("AddV2", {inside, t.scope.op("Neg", {n})}));
  CHECK(mixed.node == "mixed");
  CHECK_THAT(mixed.message, Catch::Contains("'while'") && Catch::Contains("outside of every loop"));
  CHECK(t.error({{n, f(2)}}, t.scope.named("lost").op("Exit", {n})).node == "lost");
  const Output live = t.scope.op("Neg", {n});
  CHECK(t.number({{live, f(5)}, {n, f(2)}}, t.scope.op("Merge", {live})) == 5);

  // What another loop brings in from the body of the first is in a loop within that.
  const Outputs other = while_loop(
      t.scope.scope("other"), {t.scope.constant(0.f)},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], n});
      },
      [&](const Scope& s, const Outputs& v) {
        return Outputs{s.named("both").op("AddV2", {v[0], inside})};
      });
  CHECK_THAT(t.error({{n, f(2)}}, other[0]).message, Catch::Contains("is in loop 'other/while',") &&
                                                         Catch::EndsWith("is in loop 'other/while' within 'while'"));

  NodeSpec open{.op = "Merge", .name = "open"};
  open.inputs = {t.scope.op("Enter", {n}, {{"frame_name", std::string("f")}}), Output()};
  auto merge = t.graph.add(std::move(open));
  REQUIRE(merge.ok());
  CHECK_THAT(t.error({{n, f(2)}}, t.scope.op("Exit", {(*merge)->out()})).message, Catch::Contains("not closed"));
  CHECK(t.graph.close_loop(**merge, n).error().node == "open");
  CHECK(t.number({{n, f(3)}}, out[0]) == 3);
}
