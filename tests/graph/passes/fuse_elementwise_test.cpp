// SPDX-License-Identifier: Apache-2.0
// Fusing of element-wise nodes: which groups are found, and what is kept apart.
#include "graph/passes/fuse_elementwise.h"

#include "tests/graph/passes/pass_fixture.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"

using namespace troupe;

namespace {

struct ElementwiseFixture : test::PassFixture {
  static GraphPasses passes() { return only(&GraphPasses::fuse_elementwise); }
  /// As by default in a step that computes gradients.
  static GraphPasses training() { return only(&GraphPasses::fuse_training); }
  /// The functions of each fused node that `fetches` need, and the ops of all other nodes but Placeholder and Const.
  std::string fused(std::vector<Output> fetches, std::vector<Output> fed = {}, const GraphPasses& by = passes()) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, fed, fetches, {});
    run_passes(step, by, {});
    std::string out;
    for (const Node* n : step.nodes()) {
      if (n->op().name() == "Placeholder" || n->op().name() == "Const") continue;
      out += out.empty() ? "" : " ";
      if (n->op().name() != "_FusedElementwise") {
        out += n->op().name();
        continue;
      }
      std::string functions;
      for (const std::string& f : *n->attrs().get<std::vector<std::string>>("ops"))
        functions += (functions.empty() ? "" : ",") + f;
      out += fmt::format("[{}]", functions);
    }
    return out;
  }
};

}  // namespace

TEST_CASE("chains and trees become one node, with each input once") {
  ElementwiseFixture f;
  const Output x = f.placeholder("x", {2, -1}), y = f.placeholder("y", {2, -1});
  const Output a = f.s.op("Mul", {x, x}), b = f.s.op("Tanh", {a}), c = f.s.op("AddV2", {b, y});
  CHECK(f.fused({c}) == "[Mul,Tanh,AddV2]");
  CHECK(f.after(ElementwiseFixture::passes(), c) == "_FusedElementwise(x, y)");
  const Output d = f.s.op("Sub", {x, y}), e = f.s.op("Mul", {d, f.s.op("Exp", {d})});
  CHECK(f.fused({e}) == "[Sub,Exp,Mul]");
  StepGraph step(f.graph, {}, {&e, 1}, {});
  run_passes(step, ElementwiseFixture::passes(), {});
  const Node& fused = *step.now(e).node;
  CHECK(*fused.attrs().get<std::vector<int64_t>>("operands") == std::vector<int64_t>{0, 1, 2, -1, 2, 3});
  CHECK(fused.name() == e.node->name());
  CHECK(fused.shape(0) == PartialShape{2, -1});
}

TEST_CASE("what somebody else reads stays a node") {
  ElementwiseFixture f;
  const Output x = f.placeholder("x", {4});
  const Output a = f.s.op("Neg", {x}), b = f.s.op("Exp", {a}), c = f.s.op("Tanh", {b}), d = f.s.op("Abs", {c});
  CHECK(f.fused({d}) == "[Neg,Exp,Tanh,Abs]");
  CHECK(f.fused({d, b}) == "[Neg,Exp] [Tanh,Abs]");
  CHECK(f.fused({d}, {b}) == "[Tanh,Abs]");
  const Output sum = f.s.op("Sum", {b, f.s.constant(Tensor::of<int32_t>({0}))});
  CHECK(f.fused({d, sum}) == "[Neg,Exp] [Tanh,Abs] Sum");
  // Two groups read Exp: to join either would compute it twice or make a cycle.
  const Output e = f.s.op("Mul", {b, f.s.op("BroadcastTo", {sum, f.s.constant(Tensor::of<int32_t>({4}))})});
  CHECK(f.fused({f.s.op("Sqrt", {e})}) == "[Neg,Exp] Sum BroadcastTo [Mul,Sqrt]");
  CHECK(f.fused({a}) == "Neg");
}

TEST_CASE("other types, devices, shapes, ops and control edges end a group") {
  ElementwiseFixture f;
  const Output x = f.placeholder("x", {2, 3}), row = f.placeholder("row", {3}), u = f.placeholder("u", PartialShape());
  const Output i = f.placeholder("i", {2}, DType::kInt32);
  CHECK(f.fused({f.s.op("Neg", {f.s.op("Neg", {i})})}) == "Neg Neg");
  CHECK(f.fused({f.s.op("Exp", {f.s.op("Neg", {u})})}) == "Neg Exp");
  CHECK(f.fused({f.s.op("Exp", {f.s.op("AddV2", {x, f.s.op("Neg", {f.s.op("Tanh", {row})})})})}) ==
        "[Tanh,Neg] [AddV2,Exp]");
  CHECK(f.fused({f.s.device("/cpu:1").op("Exp", {f.s.op("Neg", {x})})}) == "Neg Exp");
  const Output first = f.s.op("Neg", {x}), late = f.s.after({first}).op("Exp", {x});
  CHECK(f.fused({f.s.op("AddV2", {f.s.op("Abs", {first}), f.s.op("Tanh", {late})})}) == "Neg Exp [Abs,Tanh,AddV2]");
}

TEST_CASE("nodes that are to be with others are fused with those that are to be there too") {
  ElementwiseFixture f;
  const Output x = f.placeholder("x", {2});
  const Node* there = f.s.node("Floor", {x});
  const Scope with = f.s.colocate(there);
  const Output a = f.s.op("Tanh", {with.op("Exp", {x})}), b = with.op("Tanh", {with.op("Exp", {x})});
  CHECK(f.fused({a}) == "Exp Tanh");
  CHECK(f.fused({b}) == "[Exp,Tanh]");
}

TEST_CASE("groups are limited, and each may be a part of a chain") {
  ElementwiseFixture f;
  Output x = f.placeholder("x", {2});
  for (int i = 0; i < 2 * ElementwiseFusion::kMostNodes + 2; ++i) x = f.s.op("Sin", {x});
  StepGraph step(f.graph, {}, {&x, 1}, {});
  run_passes(step, ElementwiseFixture::passes(), {});
  CHECK(step.nodes().size() == 4);
}

TEST_CASE("groups stay within their branch and their loop") {
  ElementwiseFixture f;
  const Output p = f.placeholder("p", {}, DType::kBool), x = f.placeholder("x", {2});
  const auto two = [](const Scope& s, Output v) { return std::vector{s.op("Exp", {s.op("Neg", {v})})}; };
  const Output y = cond(
      f.s, p, [&](const Scope& s) { return two(s, x); }, [&](const Scope& s) { return two(s, x); })[0];
  CHECK(f.fused({f.s.op("Abs", {f.s.op("Tanh", {y})})}).ends_with("Merge [Tanh,Abs]"));
  const Output z = while_loop(
      f.s, {f.s.op("Sin", {f.s.op("Cos", {x})})},
      [](const Scope& s, const std::vector<Output>&) { return s.constant(false); },
      [&](const Scope& s, const std::vector<Output>& v) { return two(s, v[0]); })[0];
  const std::string loop = f.fused({f.s.op("Abs", {f.s.op("Tanh", {z})})});
  CHECK(loop.starts_with("[Cos,Sin] Enter"));
  CHECK(loop.find("[Neg,Exp]") != std::string::npos);
  CHECK(loop.ends_with("[Tanh,Abs]"));
}

TEST_CASE("a sum of several tensors is as many sums of two, where they have the shape of the result") {
  ElementwiseFixture f;
  const Output x = f.placeholder("x", {2, 3}), y = f.placeholder("y", {2, 3});
  const Output sum = f.s.op("AddN", {x, f.s.op("Neg", {y}), y});
  CHECK(f.fused({f.s.op("Exp", {sum})}) == "[Neg,AddN,AddN,Exp]");
  CHECK(f.fused({sum, f.s.op("Exp", {sum})}) == "[Neg,AddN,AddN] Exp");
  StepGraph step(f.graph, {}, {&sum, 1}, {});
  run_passes(step, ElementwiseFixture::passes(), {});
  CHECK(*step.now(sum).node->attrs().get<std::vector<int64_t>>("operands") == std::vector<int64_t>{0, -1, 1, 2, 3, 0});
  const Output one = f.s.op("AddN", {x}), nine = f.s.op("AddN", {x, x, x, x, x, x, x, x, y});
  CHECK(f.fused({f.s.op("Exp", {one}), f.s.op("Exp", {nine})}) == "AddN AddN Exp Exp");
}

TEST_CASE("a long bias along the last dimension is added in a group, where it is known to fit") {
  ElementwiseFixture f;
  const Output x = f.placeholder("x", {-1, 64}), b = f.placeholder("b", {64}), any = f.placeholder("any", {-1});
  CHECK(f.fused({f.s.op("Exp", {f.s.op("BiasAdd", {x, b})})}) == "[AddV2,Exp]");
  const Output few = f.placeholder("few", {-1, 63}), short_one = f.placeholder("short_one", {63});
  CHECK(f.fused({f.s.op("Exp", {f.s.op("BiasAdd", {few, short_one})})}) == "BiasAdd Exp");
  CHECK(f.fused({f.s.op("Exp", {f.s.op("BiasAdd", {x, any})})}) == "BiasAdd Exp");
  const Output images = f.placeholder("images", {2, 64, 4, 4});
  CHECK(f.fused({f.s.op("Exp", {f.s.op("BiasAdd", {images, b}, {{"data_format", "NCHW"}})})}) == "BiasAdd Exp");
}

TEST_CASE("steps that compute gradients fuse by default and compute again what they would have to keep") {
  ElementwiseFixture f;
  const Output x = f.placeholder("x", {512, 512}), dy = f.placeholder("dy", {512, 512});
  const Output half = f.s.op("Mul", {x, f.s.constant(0.5f)}), t = f.s.op("Tanh", {half}), y = f.s.op("Mul", {t, x});
  const Output dx = f.s.op("Mul", {f.s.op("TanhGrad", {t, f.s.op("Mul", {dy, x})}), f.s.constant(0.5f)});
  CHECK(f.fused({y, dx}, {}, ElementwiseFixture::training()) == "[Mul,Tanh,Mul] [Mul,Tanh,Mul,TanhGrad,Mul]");
  CHECK(f.fused({y, dx}) == "[Mul,Tanh] Mul [Mul,TanhGrad,Mul]");
  CHECK(f.fused({y}, {}, ElementwiseFixture::training()) == "Mul Tanh Mul");  // no gradients here
  CHECK(f.fused({y, dx}, {}, GraphPasses()) == f.fused({y, dx}, {}, ElementwiseFixture::training()));
  // What somebody else reads is there anyway.
  CHECK(f.fused({y, dx, t}, {}, ElementwiseFixture::training()) == "[Mul,Tanh] Mul [Mul,TanhGrad,Mul]");
}

TEST_CASE("rows that are reduced and spread again stay within a group, and so do layer norms and their gradients") {
  ElementwiseFixture f;
  const Output x = f.placeholder("x", {8, 128}), dy = f.placeholder("dy", {8, 128});
  const Output last = f.s.constant(Tensor::of<int32_t>({-1})), first = f.s.constant(Tensor::of<int32_t>({0}));
  const auto reduced = [&](const char* op, Output v, Output axis, bool keep = true) {
    return f.s.op(op, {v, axis}, {{"keep_dims", keep}});
  };
  const auto less = [&](Output v, Output by) { return f.s.op("Exp", {f.s.op("Sub", {v, by})}); };
  CHECK(f.fused({less(x, reduced("Max", x, last))}) == "[Max,Sub,Exp]");
  CHECK(f.fused({less(x, f.s.op("Sqrt", {reduced("Sum", f.s.op("Square", {x}), last)}))}) ==
        "[Square,Sum,Sqrt,Sub,Exp]");
  const Output wide = f.s.op("BroadcastTo", {reduced("Sum", x, last), f.s.constant(Tensor::of<int32_t>({8, 128}))});
  CHECK(f.fused({less(x, wide)}) == "[Sum,BroadcastTo,Sub,Exp]");
  // Of another dimension, or which drop it, or of a result that is wanted.
  CHECK(f.fused({less(x, reduced("Sum", x, first))}) == "Sum [Sub,Exp]");
  CHECK(f.fused({less(x, reduced("Sum", x, first, false))}) == "Sum [Sub,Exp]");
  const Output sum = reduced("Sum", f.s.op("Abs", {x}), last);
  CHECK(f.fused({less(x, sum), sum}) == "Abs Sum [Sub,Exp]");
  CHECK(f.fused({sum}) == "Abs Sum");
  // Short rows, long ones, and what is not known.
  for (const PartialShape& shape : {PartialShape{8, 63}, PartialShape{8, 8193}, PartialShape{-1, 128}}) {
    const Output y = f.placeholder(fmt::format("y{}", f.graph.size()), shape);
    CHECK(f.fused({less(y, reduced("Max", y, last))}) == "Max [Sub,Exp]");
  }

  const Output gamma = f.placeholder("gamma", {128}), beta = f.placeholder("beta", {128});
  const Output centered = f.s.op("Sub", {x, reduced("Mean", x, last)});
  const Output variance = reduced("Mean", f.s.op("Square", {centered}), last);
  const Output root = f.s.op("Rsqrt", {f.s.op("AddV2", {variance, f.s.constant(1e-5f)})});
  const Output normal = f.s.op("Mul", {centered, root});
  const Output y = f.s.op("AddV2", {f.s.op("Mul", {normal, gamma}), beta});
  CHECK(f.fused({y}) == "[Mean,Sub,Square,Mean,AddV2,Rsqrt,Mul,Mul,AddV2]");
  const auto grads = gradients(f.s, {y}, {x, gamma, beta}, {dy});
  REQUIRE(grads.ok());
  std::vector<Output> fetches = *grads;
  fetches.push_back(y);
  StepGraph step(f.graph, {}, fetches, {});
  run_passes(step, GraphPasses(), [&](const Node& n, std::span<const Tensor> in) { return f.compute(n, in); });
  std::map<std::string, int> ops;
  for (const Node* n : step.nodes()) ++ops[n->op().name()];
  CHECK(ops["_FusedElementwise"] == 3);  // y, dx, and what is summed to be dgamma
  CHECK(ops["Sum"] == 2);
  ops.erase("Const"), ops.erase("Placeholder"), ops.erase("_FusedElementwise"), ops.erase("Sum");
  for (const auto& [op, count] : ops) FAIL(op << " " << count);
}

TEST_CASE("nothing is computed again that a cache near a core holds, or that is made of more") {
  ElementwiseFixture f;
  const auto fused = [&](const PartialShape& shape, const char* op, bool two) {
    const std::string n = fmt::format("{}", f.graph.size());
    const Output x = f.placeholder("x" + n, shape), z = f.placeholder("z" + n, shape),
                 dy = f.placeholder("dy" + n, shape);
    const Output a = two ? f.s.op("Mul", {x, z}) : f.s.op(op, {x});
    const Output y = f.s.op("Neg", {f.s.op("Abs", {a})}), dx = f.s.op("Neg", {f.s.op("ReluGrad", {a, dy})});
    return f.fused({y, dx}, {}, ElementwiseFixture::training());
  };
  CHECK(fused({-1, 1024, 512}, "Sigmoid", false) == "[Sigmoid,Abs,Neg] [Sigmoid,ReluGrad,Neg]");
  CHECK(fused({-1, 512}, "Sigmoid", false) == "Sigmoid [Abs,Neg] [ReluGrad,Neg]");
  CHECK(fused({-1, 512}, "Square", false) == "[Square,Abs,Neg] [Square,ReluGrad,Neg]");
  CHECK(fused({512, 512}, "", true) == "Mul [Abs,Neg] [ReluGrad,Neg]");
}

TEST_CASE("four groups compute a node again, but not five") {
  for (const int groups : {4, 5}) {
    ElementwiseFixture f;
    const Output x = f.placeholder("x", {512}), dy = f.placeholder("dy", {512}), a = f.s.op("Square", {x});
    std::vector<Output> fetches = {f.s.op("Neg", {f.s.op("ReluGrad", {a, dy})})};
    for (int i = 1; i < groups; ++i) fetches.push_back(f.s.op("Exp", {f.s.op("Neg", {a})}));
    // Each is a group of its own: what is the same would be merged under another switch.
    const std::string fused = f.fused(fetches, {}, ElementwiseFixture::training());
    CHECK((fused.find("[Square,Neg,Exp]") != std::string::npos) == (groups == 4));
    CHECK((fused.find("Square [ReluGrad,Neg]") != std::string::npos) == (groups == 5));
  }
}
