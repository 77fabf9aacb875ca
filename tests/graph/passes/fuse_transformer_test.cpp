// SPDX-License-Identifier: Apache-2.0
// Fusing of layer norms and of attention: forms that are known, and what is left alone.
#include "graph/passes/fuse_attention.h"
#include "graph/passes/fuse_layer_norm.h"
#include "tests/graph/passes/pass_fixture.h"

using namespace troupe;

namespace {

struct TransformerFixture : test::PassFixture {
  Output x = placeholder("x", {-1, 3, 8});
  Output gamma = placeholder("gamma", {8}), beta = placeholder("beta", {1, 1, 8});

  std::string fused(Output fetch, std::vector<Output> fed = {}) {
    return after(only(&GraphPasses::fuse_inference), fetch, std::move(fed), [](auto&&...) { return std::nullopt; });
  }
  Output number(float v) { return s.constant(v); }
  Output op(const char* name, const Output& a, const Output& b, Attrs attrs = {}) {
    return s.op(name, {a, b}, std::move(attrs));
  }
  Output mean(const Output& of, int32_t axis = -1, bool keep = true) {
    return op("Mean", of, s.constant(Tensor::of<int32_t>({axis})), {{"keep_dims", keep}});
  }
  Output root(const Output& variance) { return s.op("Rsqrt", {op("AddV2", variance, number(1e-5f))}); }
  /// As nn::layer_norm has it, before gamma.
  Output centered_norm(const Output& of) {
    const Output centered = op("Sub", of, mean(of));
    return op("Mul", centered, root(mean(s.op("Square", {centered}))));
  }
  /// As Keras has it.
  Output keras_norm(const Output& of) {
    const Output m = mean(of, 2);
    const Output inverse = op("Mul", root(mean(op("SquaredDifference", of, s.op("StopGradient", {m})), 2)), gamma);
    const Output shift = op("AddV2", op("Mul", s.op("Neg", {m}), inverse), beta);
    return op("AddV2", op("Mul", of, inverse), shift);
  }
  /// As tf.nn.batch_normalization has it.
  Output tf_norm(const Output& of) {
    const Output m = mean(of), inverse = op("Mul", gamma, root(mean(op("SquaredDifference", of, m))));
    return op("AddV2", op("Mul", of, inverse), op("Sub", beta, op("Mul", m, inverse)));
  }
  Output swap(const Output& of) { return op("Transpose", of, s.constant(Tensor::of<int32_t>({0, 2, 1, 3}))); }
  Output scores(const Output& q, const Output& k) { return op("BatchMatMulV2", q, k, {{"adj_y", true}}); }
  Output attend(const Output& of_scores, const Output& v) {
    return op("BatchMatMulV2", s.op("Softmax", {of_scores}), v);
  }
};

struct AttentionFixture : TransformerFixture {
  Output q = placeholder("q", {-1, 2, 5, 4}), k = placeholder("k", {-1, 2, 7, 4}), v = placeholder("v", {-1, 2, 7, 6});
  Output mask = placeholder("mask", {5, 7}, DType::kBool),
         padding = placeholder("padding", {-1, 1, 1, 7}, DType::kBool);

  Output hide(const Output& by, const Output& of, float hidden = -1e9f) {
    return s.op("SelectV2", {by, of, number(hidden)});
  }
  template <class T> T attribute(Output last, const char* name) {
    StepGraph step(graph, {}, {&last, 1}, {});
    run_passes(step, only(&GraphPasses::fuse_inference), {});
    return *step.now(last).node->attrs().get<T>(name);
  }
};

}  // namespace

TEST_CASE("layer norms become one node, however they multiply") {
  TransformerFixture f;
  const Output plain = f.centered_norm(f.x);
  CHECK(f.fused(plain) == "_FusedLayerNorm(x)");
  CHECK(f.fused(f.op("Mul", f.gamma, f.centered_norm(f.x))) == "_FusedLayerNorm(x, gamma)");
  CHECK(f.fused(f.op("AddV2", f.centered_norm(f.x), f.beta)) == "_FusedLayerNorm(x, beta)");
  CHECK(f.fused(f.op("Add", f.op("Mul", f.centered_norm(f.x), f.gamma), f.beta)) == "_FusedLayerNorm(x, gamma, beta)");
  CHECK(f.fused(f.op("Sub", f.op("Mul", f.centered_norm(f.x), f.gamma), f.beta)).find("_FusedLayerNorm(x, gamma)") !=
        std::string::npos);
  CHECK(f.fused(f.keras_norm(f.x)) == "_FusedLayerNorm(x, gamma, beta)");
  CHECK(f.fused(f.tf_norm(f.x)) == "_FusedLayerNorm(x, gamma, beta)");
  const Output centered = f.op("Sub", f.x, f.mean(f.x)), variance = f.mean(f.op("Mul", centered, centered));
  const Output divided = f.op("RealDiv", centered, f.s.op("Sqrt", {f.op("AddV2", f.number(1e-5f), variance)}));
  CHECK(f.fused(divided) == "_FusedLayerNorm(x)");
  // One after the other, with a sum between them.
  const Output first = f.tf_norm(f.x), sum = f.op("AddV2", first, f.x);
  CHECK(f.fused(f.keras_norm(sum)) == "_FusedLayerNorm(AddV2(_FusedLayerNorm(x, gamma, beta), x), gamma, beta)");
}

TEST_CASE("what is almost a layer norm stays") {
  TransformerFixture f;
  const auto stays = [&](Output o) { return f.fused(o).find("_FusedLayerNorm") == std::string::npos; };
  const Output other = f.placeholder("other", {-1, 3, 8});
  const auto norm = [&](Output less, Output of_squares) {
    return f.op("Mul", f.op("Sub", f.x, less), f.root(f.mean(f.s.op("Square", {of_squares}))));
  };
  const Output m = f.mean(f.x), centered = f.op("Sub", f.x, m);
  REQUIRE_FALSE(stays(norm(m, f.op("Sub", f.x, m))));
  CHECK(stays(norm(f.mean(other), centered)));
  CHECK(stays(norm(m, f.op("Sub", other, m))));
  CHECK(stays(norm(m, f.x)));  // not centered
  CHECK(stays(f.op("Mul", f.op("AddV2", f.x, m), f.root(f.mean(f.s.op("Square", {centered}))))));
  CHECK(stays(norm(f.mean(f.x, 1), f.op("Sub", f.x, f.mean(f.x, 1)))));  // another axis
  const Output twice = f.op("Mul", f.root(f.mean(f.s.op("Square", {centered}))), f.number(2));
  CHECK(stays(f.op("Mul", centered, twice)));
  // The variance has another reader, or is fetched.
  const Output variance = f.mean(f.s.op("Square", {centered}));
  const Output result = f.op("Mul", centered, f.root(variance));
  CHECK(stays(f.op("AddV2", result, variance)));
  CHECK(stays(f.op("AddV2", result, centered)));
  std::vector<Output> fetches = {result, variance};
  StepGraph step(f.graph, {}, fetches, {});
  run_passes(step, TransformerFixture::only(&GraphPasses::fuse_inference), {});
  CHECK(step.now(result) == result);
  // gamma is not along the last dimension: it is left out.
  const Output column = f.placeholder("column", {3, 1});
  CHECK(f.fused(f.op("Mul", f.tf_norm(f.x), column)) == "Mul(_FusedLayerNorm(x, gamma, beta), column)");
  // Fed in between.
  CHECK(f.fused(result, {variance}).find("_FusedLayerNorm") == std::string::npos);
}

TEST_CASE("layer norms of steps with gradients, and with the switch off, stay") {
  TransformerFixture f;
  const Output y = f.tf_norm(f.x);
  StepGraph step(f.graph, {}, {&y, 1}, {});
  run_passes(step, GraphPasses::none(), {});
  CHECK(step.now(y) == y);
  const Output gradient = f.op("ReluGrad", y, f.x);
  CHECK(f.fused(gradient).find("_Fused") == std::string::npos);
}

TEST_CASE("attention becomes one node, with factor, masks and the places of heads") {
  AttentionFixture f;
  CHECK(f.fused(f.attend(f.scores(f.q, f.k), f.v)) == "_FusedAttention(q, k, v)");
  const Output scaled = f.op("Mul", f.scores(f.q, f.k), f.number(0.5f));
  const Output divided = f.op("RealDiv", f.scores(f.q, f.k), f.number(4));
  CHECK(f.attribute<float>(f.attend(scaled, f.v), "scale") == 0.5f);
  CHECK(f.attribute<float>(f.attend(divided, f.v), "scale") == 0.25f);
  CHECK(f.fused(f.attend(f.hide(f.mask, scaled), f.v)) == "_FusedAttention(q, k, v, mask)");
  CHECK(f.attribute<float>(f.attend(f.hide(f.mask, scaled, -7), f.v), "hidden") == -7);
  CHECK(f.fused(f.attend(f.hide(f.mask, f.hide(f.padding, scaled)), f.v)) ==
        "_FusedAttention(q, k, v, LogicalAnd(mask, padding))");
  const Output added = f.placeholder("added", {-1, 1, 1, 7});
  CHECK(f.fused(f.attend(f.op("AddV2", scaled, added), f.v)) == "_FusedAttention(q, k, v, added)");
  CHECK(f.fused(f.attend(f.hide(f.mask, f.op("Add", added, divided)), f.v)) == "_FusedAttention(q, k, v, added, mask)");

  const Output qt = f.placeholder("qt", {-1, 5, 2, 4}), kt = f.placeholder("kt", {-1, 7, 2, 4}),
               vt = f.placeholder("vt", {-1, 7, 2, 6});
  const Output all = f.swap(f.attend(f.scores(f.swap(qt), f.swap(kt)), f.swap(vt)));
  CHECK(f.fused(all) == "_FusedAttention(qt, kt, vt)");
  CHECK(f.attribute<std::string>(all, "layouts") == "tttt");
  CHECK(f.attribute<std::string>(f.attend(f.scores(f.swap(qt), f.k), f.v), "layouts") == "thhh");
}

TEST_CASE("attention becomes one node where products are Einsums, as Keras has them") {
  AttentionFixture f;
  const Output qt = f.placeholder("qt", {-1, 5, 2, 4}), kt = f.placeholder("kt", {-1, 7, 2, 4}),
               vt = f.placeholder("vt", {-1, 7, 2, 6});
  const auto einsum = [&](const char* equation, const Output& a, const Output& b) {
    return f.op("Einsum", a, b, {{"equation", equation}});
  };
  const auto softmax = [&](const Output& of) { return f.s.op("Softmax", {of}); };
  const Output keras = einsum("acbe,aecd->abcd", softmax(einsum("aecd,abcd->acbe", kt, qt)), vt);
  CHECK(f.fused(keras) == "_FusedAttention(qt, kt, vt)");
  CHECK(f.attribute<std::string>(keras, "layouts") == "tttt");
  const Output heads = einsum("bhkd,bhqk->bqhd", f.v, softmax(einsum("bhqd, bhkd -> bhqk", f.q, f.k)));
  CHECK(f.fused(heads) == "_FusedAttention(q, k, v)");
  CHECK(f.attribute<std::string>(heads, "layouts") == "hhht");
  CHECK(f.attribute<std::string>(f.swap(heads), "layouts") == "hhhh");
  const auto mixed = [&](const char* product) {
    return f.op(product, softmax(einsum("bhqd,bkhd->bhqk", f.swap(qt), kt)), f.v);
  };
  CHECK(f.fused(mixed("BatchMatMul")) == "_FusedAttention(qt, kt, v)");
  CHECK(f.attribute<std::string>(mixed("BatchMatMul"), "layouts") == "tthh");
  // One of these broadcasts a batch of one, the other refuses it.
  CHECK(f.fused(mixed("BatchMatMulV2")).find("_FusedAttention") == std::string::npos);
  CHECK_FALSE(f.attribute<bool>(keras, "broadcasts"));
  CHECK(f.attribute<bool>(f.attend(f.scores(f.q, f.k), f.v), "broadcasts"));

  const auto stays = [&](Output o) { return f.fused(o).find("_FusedAttention") == std::string::npos; };
  CHECK(stays(einsum("bhqk,bhkd->hbqd", softmax(einsum("bhqd,bhkd->bhqk", f.q, f.k)), f.v)));
  CHECK(stays(einsum("bhqk,bhqd->bhkd", softmax(einsum("bhqd,bhkd->bhqk", f.q, f.k)), f.q)));
}

TEST_CASE("attention becomes one node where something is subtracted, or a mask is a number") {
  AttentionFixture f;
  const Output scaled = f.op("RealDiv", f.scores(f.q, f.k), f.number(4));
  const Output less = f.placeholder("less", {-1, 1, 1, 7});
  CHECK(f.fused(f.attend(f.op("Sub", scaled, less), f.v)) == "_FusedAttention(q, k, v, Neg(less))");
  CHECK(f.fused(f.attend(f.op("Sub", less, f.scores(f.q, f.k)), f.v)).find("_FusedAttention") == std::string::npos);

  // As GPT-2 of the transformers library: w b - 1e4 (1 - b).
  const auto blend = [&](const Output& scores, const Output& b, float one = 1) {
    return f.op("Sub", f.op("Mul", scores, b), f.op("Mul", f.number(1e4f), f.op("Sub", f.number(one), b)));
  };
  const auto as_number = [&](const Output& of) { return f.s.op("Cast", {of}, {{"DstT", DType::kFloat32}}); };
  const Output b = f.op("Reshape", as_number(f.mask), f.s.constant(Tensor::of<int32_t>({1, 1, 5, 7})));
  const Output all = f.attend(f.op("AddV2", blend(scaled, b), f.number(0)), f.v);
  CHECK(f.fused(all) == "_FusedAttention(q, k, v, Reshape(mask, int32[4] [1, 1, 5, 7]))");
  CHECK(f.attribute<float>(all, "hidden") == -1e4f);
  CHECK(f.fused(f.attend(blend(f.op("AddV2", scaled, less), as_number(f.mask)), f.v)) ==
        "_FusedAttention(q, k, v, less, mask)");
  const auto hidden = [&](const Output& o) { return f.fused(f.attend(o, f.v)).find("mask") != std::string::npos; };
  CHECK_FALSE(hidden(blend(scaled, f.placeholder("weights", {5, 7}))));
  CHECK_FALSE(f.fused(f.attend(blend(scaled, as_number(f.mask), 2), f.v)).starts_with("_FusedAttention(q, k, v, m"));
}

TEST_CASE("attention of sizes that are not known becomes one node, with what is added to all scores left out") {
  AttentionFixture f;
  const auto any = PartialShape{-1, -1, -1, -1};
  const Output q = f.placeholder("q_any", any), k = f.placeholder("k_any", any), v = f.placeholder("v_any", any),
               added = f.placeholder("added_any", any);
  const Output scores = f.op("AddV2", f.op("RealDiv", f.scores(q, k), f.number(4)), added);
  CHECK(f.fused(f.attend(f.op("AddV2", scores, f.number(1e-9f)), v)) ==
        "_FusedAttention(q_any, k_any, v_any, added_any)");
  CHECK(f.fused(f.attend(f.op("AddV2", f.number(-3), f.hide(f.mask, scores)), v)) ==
        "_FusedAttention(q_any, k_any, v_any, added_any, mask)");
  const Output infinite = f.attend(f.op("AddV2", scores, f.number(INFINITY)), v);
  CHECK(f.fused(infinite).find("_FusedAttention") == std::string::npos);
  const Output more = f.placeholder("more", PartialShape::of_rank(5));
  CHECK(f.fused(f.attend(f.op("AddV2", f.scores(q, k), more), v)).find("_FusedAttention") == std::string::npos);
}

TEST_CASE("what is almost attention stays") {
  AttentionFixture f;
  const auto stays = [&](Output o) { return f.fused(o).find("_FusedAttention") == std::string::npos; };
  const Output scores = f.scores(f.q, f.k), weights = f.s.op("Softmax", {scores});
  const Output result = f.op("BatchMatMulV2", weights, f.v);
  CHECK(stays(f.s.op("AddN", {f.s.op("Mean", {result, f.s.constant(Tensor::of<int32_t>({0, 1, 2, 3}))}),
                              f.s.op("Mean", {weights, f.s.constant(Tensor::of<int32_t>({0, 1, 2, 3}))})})));
  CHECK(stays(f.op("BatchMatMulV2", f.q, f.placeholder("w", {-1, 2, 4, 6}))));
  CHECK(stays(f.attend(f.s.op("Relu", {f.scores(f.q, f.k)}), f.v)));
  const Output two = f.hide(f.mask, f.hide(f.padding, f.scores(f.q, f.k), -3), -4);
  CHECK(stays(f.attend(two, f.v)));
  const Output q3 = f.placeholder("q3", {2, 5, 4}), k3 = f.placeholder("k3", {2, 7, 4}),
               v3 = f.placeholder("v3", {2, 7, 6});
  CHECK(stays(f.attend(f.scores(q3, k3), v3)));
  CHECK(stays(f.attend(f.op("BatchMatMulV2", f.q, f.placeholder("kx", {-1, 2, 4, 7})), f.v)));
  CHECK_FALSE(stays(f.attend(f.scores(f.q, f.k), f.v)));
}
