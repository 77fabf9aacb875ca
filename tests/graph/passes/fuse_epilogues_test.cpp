// SPDX-License-Identifier: Apache-2.0
// Fusing of products with bias and activation, and folding of batch norms into convolutions: what is rewritten, and
// what is not.
#include "graph/passes/fuse_epilogues.h"

#include "graph/passes/fold_batch_norm.h"
#include "tests/graph/passes/pass_fixture.h"

using namespace troupe;

namespace {

struct EpilogueFixture : test::PassFixture {
  std::string fused(Output fetch, std::vector<Output> fed = {}) {
    return after(only(&GraphPasses::fuse_epilogues), fetch, std::move(fed), [](auto&&...) { return std::nullopt; });
  }
  std::string folded(Output fetch, std::vector<Output> fed = {}) {
    return after(only(&GraphPasses::fold_batch_norm), fetch, std::move(fed), [](auto&&...) { return std::nullopt; });
  }
  Output conv(Output x, Output filter, const std::string& op = "Conv2D") {
    return s.op(op, {x, filter}, {{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("SAME")}});
  }
  Output vector(std::initializer_list<float> v) { return s.constant(Tensor::of<float>(v)); }
  Output filter(Shape shape) { return s.constant(*Tensor::zeros(DType::kFloat32, shape)); }
  const Node* norm(Output x, bool training = false) {
    return s.node("FusedBatchNormV3", {x, vector({1, 2}), vector({0, 1}), vector({3, 4}), vector({1, 4})},
                  {{"is_training", training}, {"epsilon", 0.f}});
  }
};

/// The attributes of what stands for `o` after the pass.
struct Made {
  std::vector<std::string> ops;
  int64_t args;
};
Made made(EpilogueFixture& f, Output o) {
  StepGraph step(f.graph, {}, {&o, 1}, {});
  run_passes(step, EpilogueFixture::only(&GraphPasses::fuse_epilogues), {});
  const Attrs& attrs = step.now(o).node->attrs();
  return {*attrs.get<std::vector<std::string>>("fused_ops"), *attrs.get<int64_t>("num_args")};
}

}  // namespace

TEST_CASE("a product takes the bias and the activation after it") {
  EpilogueFixture f;
  const Output x = f.placeholder("x", {-1, 3}), w = f.placeholder("w", {3, 2}), b = f.placeholder("b", {2});
  const Output product = f.s.op("MatMul", {x, w}, {{"transpose_a", false}});
  const Output sum = f.s.op("BiasAdd", {product, b}), relu = f.s.op("Relu", {sum});
  CHECK(f.fused(relu) == "_FusedMatMul(x, w, b)");
  CHECK(made(f, relu).ops == std::vector<std::string>{"BiasAdd", "Relu"});
  CHECK(f.fused(sum) == "_FusedMatMul(x, w, b)");
  CHECK(made(f, sum).ops == std::vector<std::string>{"BiasAdd"});
  const Output bare = f.s.op("Tanh", {f.s.op("MatMul", {x, w})});
  CHECK(f.fused(bare) == "_FusedMatMul(x, w)");
  CHECK(made(f, bare).args == 0);
  CHECK(f.fused(f.s.op("Exp", {relu})) == "Exp(_FusedMatMul(x, w, b))");
  CHECK(f.fused(product) == "MatMul(x, w)");
}

TEST_CASE("a bias and an activation pass a reshape of the product that keeps its last axis") {
  EpilogueFixture f;
  const Output x = f.placeholder("x", {6, 3}), w = f.placeholder("w", {3, 2}), b = f.placeholder("b", {2});
  const auto reshaped = [&](std::initializer_list<int32_t> shape) {
    return f.s.op("Reshape", {f.s.op("MatMul", {x, w}), f.s.constant(Tensor::of<int32_t>(shape))});
  };
  const std::string fused = "Reshape(_FusedMatMul(x, w, b), int32[3] [2, 3, 2])";
  CHECK(f.fused(f.s.op("Relu", {f.s.op("BiasAdd", {reshaped({2, 3, 2}), b})})) == fused);
  CHECK(f.fused(f.s.op("Tanh", {f.s.op("AddV2", {b, reshaped({2, 3, 2})})})) == fused);
  CHECK(f.fused(f.s.op("BiasAdd", {reshaped({2, 3, 2}), b})) == fused);
  CHECK(f.fused(f.s.op("Relu", {reshaped({2, 3, 2})})) == "Reshape(_FusedMatMul(x, w), int32[3] [2, 3, 2])");
  CHECK(f.fused(reshaped({2, 3, 2})) == "Reshape(MatMul(x, w), int32[3] [2, 3, 2])");
  const Output behind = f.s.op("AddV2", {f.s.op("MatMul", {x, w}), b});
  const auto widened = [&](Output o) { return f.s.op("Reshape", {o, f.s.constant(Tensor::of<int32_t>({2, 3, 2}))}); };
  CHECK(f.fused(f.s.op("Tanh", {widened(behind)})) == fused);
  CHECK(f.fused(widened(f.s.op("AddV2", {f.s.op("MatMul", {x, w}), b}))) == fused);
  CHECK(f.fused(f.s.op("Tanh", {widened(widened(f.s.op("MatMul", {x, w})))})).find("_Fused") == std::string::npos);
  CHECK(f.fused(f.s.op("BiasAdd", {widened(f.s.op("AddV2", {f.s.op("MatMul", {x, w}), b})), b})) ==
        "BiasAdd(" + fused + ", b)");
  const Output three = f.placeholder("three", {3});
  CHECK(f.fused(f.s.op("BiasAdd", {reshaped({2, 2, 3}), three})) ==
        "BiasAdd(Reshape(MatMul(x, w), int32[3] [2, 2, 3]), three)");
  const Output first = f.s.op("BiasAdd", {reshaped({2, 3, 2}), three}, {{"data_format", std::string("NCHW")}});
  CHECK(f.fused(first) == "BiasAdd(Reshape(MatMul(x, w), int32[3] [2, 3, 2]), three)");
  const Output product = f.s.op("MatMul", {x, w}), wide = f.s.constant(Tensor::of<int32_t>({2, 3, 2}));
  const Output twice = f.s.op("Relu", {f.s.op("BiasAdd", {f.s.op("Reshape", {product, wide}), b})});
  CHECK(f.fused(f.s.op("AddN", {twice, f.s.op("Reshape", {product, wide})})).find("_Fused") == std::string::npos);
}

TEST_CASE("convolutions too, where the layouts agree") {
  EpilogueFixture f;
  const Output x = f.placeholder("x", {1, 4, 4, 2}), w = f.placeholder("w", {3, 3, 2, 2}), b = f.placeholder("b", {2});
  const Output d = f.placeholder("d", {3, 3, 2, 1});
  for (const char* activation : {"Relu", "Relu6", "Elu", "Tanh", "Sigmoid"}) {
    CHECK(f.fused(f.s.op(activation, {f.s.op("BiasAdd", {f.conv(x, w), b})})) == "_FusedConv2D(x, w, b)");
    CHECK(f.fused(f.s.op(activation, {f.s.op("BiasAdd", {f.conv(x, d, "DepthwiseConv2dNative"), b})})) ==
          "_FusedDepthwiseConv2dNative(x, d, b)");
  }
  CHECK(f.fused(f.s.op("Softplus", {f.s.op("BiasAdd", {f.conv(x, w), b})})) == "Softplus(_FusedConv2D(x, w, b))");
  const Output four = f.placeholder("four", {4});
  CHECK(f.fused(f.s.op("BiasAdd", {f.conv(x, w), four}, {{"data_format", std::string("NCHW")}})) ==
        "BiasAdd(Conv2D(x, w), four)");
}

TEST_CASE("a convolution takes the sum of a residual block") {
  EpilogueFixture f;
  const Output x = f.placeholder("x", {-1, 4, 4, 2}), w = f.placeholder("w", {3, 3, 2, 2}), b = f.placeholder("b", {2});
  const Output y = f.placeholder("y", {-1, 4, 4, 2}), biased = f.s.op("BiasAdd", {f.conv(x, w), b});
  const Output relu = f.s.op("Relu", {f.s.op("AddV2", {biased, y})});
  CHECK(f.fused(relu) == "_FusedConv2D(x, w, b, y)");
  CHECK(made(f, relu).ops == std::vector<std::string>{"BiasAdd", "Add", "Relu"});
  CHECK(made(f, relu).args == 2);
  const Output bare = f.s.op("Add", {y, f.conv(x, w)});
  CHECK(f.fused(bare) == "_FusedConv2D(x, w, y)");
  CHECK(made(f, bare).ops == std::vector<std::string>{"Add"});
  const Output both = f.s.op("AddV2", {f.conv(x, w), f.s.op("BiasAdd", {f.conv(y, w), b})});
  CHECK(f.fused(both) == "_FusedConv2D(x, w, _FusedConv2D(y, w, b))");
  const Output self = f.conv(x, w);
  CHECK(f.fused(f.s.op("AddV2", {self, self})) == "AddV2(Conv2D(x, w), Conv2D(x, w))");
  for (const PartialShape& shape : {PartialShape{1, 4, 4, 2}, {-1, 4, 4, 1}, {-1, 1, 4, 2}, {2}}) {
    const Output other = f.placeholder(fmt::format("other{}", f.graph.size()), shape);
    CHECK(f.fused(f.s.op("AddV2", {f.conv(x, w), other})).starts_with("AddV2(Conv2D(x, w), other"));
  }
  CHECK(f.fused(f.s.op("AddV2", {f.s.op("Relu", {f.conv(x, w)}), y})) == "AddV2(_FusedConv2D(x, w), y)");
}

TEST_CASE("a product takes the sum of a residual block, behind a reshape too") {
  EpilogueFixture f;
  const Output x = f.placeholder("x", {6, 3}), w = f.placeholder("w", {3, 2}), b = f.placeholder("b", {2});
  const Output y = f.placeholder("y", {2, 3, 2}), flat = f.placeholder("flat", {6, 2});
  const auto product = [&] { return f.s.op("MatMul", {x, w}); };
  const auto wide = [&] { return f.s.op("Reshape", {product(), f.s.constant(Tensor::of<int32_t>({2, 3, 2}))}); };
  CHECK(f.fused(f.s.op("AddV2", {f.s.op("BiasAdd", {product(), b}), flat})) == "_FusedMatMul(x, w, b, flat)");
  CHECK(f.fused(f.s.op("Relu", {f.s.op("AddV2", {flat, product()})})) == "_FusedMatMul(x, w, flat)");
  const Output sum = f.s.op("AddV2", {y, f.s.op("BiasAdd", {wide(), b})});
  CHECK(f.fused(sum) == "Reshape(_FusedMatMul(x, w, b, Reshape(y, int64[2] [-1, 2])), int32[3] [2, 3, 2])");
  const Output none = f.s.op(
      "Reshape", {f.s.op("MatMul", {x, f.placeholder("w0", {3, 0})}), f.s.constant(Tensor::of<int32_t>({2, 3, 0}))});
  CHECK(f.fused(f.s.op("AddV2", {none, f.placeholder("y0", {2, 3, 0})})).starts_with("AddV2(Reshape"));
  const Output open = f.placeholder("open", {-1, 3}), other = f.placeholder("other", {-1, 2});
  CHECK(f.fused(f.s.op("AddV2", {f.s.op("MatMul", {open, w}), other})) == "AddV2(MatMul(open, w), other)");
  const Output row = f.placeholder("row", {1, 2}), rows = f.placeholder("rows", {2, 1, 2});
  CHECK(f.fused(f.s.op("AddV2", {product(), row})) == "_FusedMatMul(x, w, Reshape(row, int64[1] [-1]))");
  CHECK(f.fused(f.s.op("AddV2", {product(), rows})) == "AddV2(MatMul(x, w), rows)");
}

TEST_CASE("a product takes the Swish after it") {
  EpilogueFixture f;
  const Output x = f.placeholder("x", {1, 4, 4, 2}), w = f.placeholder("w", {3, 3, 2, 2}), b = f.placeholder("b", {2});
  const auto swish = [&](Output of) { return f.s.op("Mul", {of, f.s.op("Sigmoid", {of})}); };
  const Output y = swish(f.s.op("BiasAdd", {f.conv(x, w), b}));
  CHECK(f.fused(y) == "_FusedConv2D(x, w, b)");
  CHECK(made(f, y).ops == std::vector<std::string>{"BiasAdd", "Swish"});
  const Output product = f.s.op("MatMul", {f.placeholder("a", {3, 2}), f.placeholder("c", {2, 4})});
  CHECK(f.fused(f.s.op("Mul", {f.s.op("Sigmoid", {product}), product})) == "_FusedMatMul(a, c)");
  const Output grouped = f.s.op("BiasAdd", {f.conv(x, w), b});
  const Node* group = f.s.node("IdentityN", {swish(grouped), grouped, f.s.constant(1.f)});
  CHECK(f.fused(group->out()) == "_FusedConv2D(x, w, b)");
  CHECK(f.fused(f.s.op("AddN", {group->out(0), group->out(1)})).find("Swish") == std::string::npos);
  CHECK(f.fused(f.s.op("AddN", {group->out(0), group->out(1)})).find("IdentityN") != std::string::npos);
  const Node* waits = f.s.node("IdentityN", {swish(f.conv(x, w)), f.placeholder("effect", {})});
  CHECK(f.fused(waits->out()) == "IdentityN(_FusedConv2D(x, w), effect)");
  const Output first = f.conv(x, w), second = f.conv(x, w);
  CHECK(f.fused(f.s.op("Mul", {first, f.s.op("Sigmoid", {second})})) == "Mul(Conv2D(x, w), _FusedConv2D(x, w))");
  const Output read = f.conv(x, w);
  CHECK(f.fused(f.s.op("AddN", {swish(read), f.s.op("Exp", {read})})).find("_Fused") == std::string::npos);
}

TEST_CASE("by default products of steps without gradients are fused, and batch norms folded") {
  EpilogueFixture f;
  const auto by_default = [&](Output fetch) {
    return f.after(GraphPasses(), fetch, {}, [](auto&&...) { return std::nullopt; });
  };
  const Output x = f.placeholder("x", {1, 4, 4, 2}), v = f.placeholder("v", {1, 1, 2, 2}), b = f.placeholder("b", {2});
  const Output relu = f.s.op("Relu", {f.s.op("BiasAdd", {f.conv(x, v), b})});
  CHECK(by_default(relu) == "_FusedConv2D(x, v, b)");
  const Output gradient = f.s.op("ReluGrad", {relu, relu});
  CHECK(by_default(gradient) == "_FusedElementwise(BiasAdd(Conv2D(x, v), b))");
  CHECK(by_default(f.s.op("Relu", {f.norm(f.conv(x, f.filter({1, 1, 2, 2})))->out()})).starts_with("_FusedConv2D(x, "));
  StepGraph step(f.graph, {}, {&relu, 1}, {});
  run_device_passes(step, GraphPasses(),
                    {.has_kernel = [](auto&&...) { return true; }, .on_gpu = [](const Node&) { return true; }});
  CHECK(f.text(step, relu) == "Relu(BiasAdd(Conv2D(x, v), b))");
}

TEST_CASE("what others read, what is fed and what waits is not fused") {
  EpilogueFixture f;
  const Output x = f.placeholder("x", {2, 3}), w = f.placeholder("w", {3, 2}), b = f.placeholder("b", {2});
  const Output product = f.s.op("MatMul", {x, w}), sum = f.s.named("sum").op("BiasAdd", {product, b});
  const Output relu = f.s.op("Relu", {sum});
  CHECK(f.fused(f.s.op("AddV2", {relu, product})) == "AddV2(Relu(BiasAdd(MatMul(x, w), b)), MatMul(x, w))");
  CHECK(f.fused(f.s.op("AddV2", {relu, sum})) == "AddV2(Relu(_FusedMatMul(x, w, b)), _FusedMatMul(x, w, b))");
  CHECK(f.fused(relu, {sum}) == "Relu(sum)");
  CHECK(f.fused(relu, {product}) == "Relu(BiasAdd(MatMul, b))");
  const Output late = f.s.after({x}).op("BiasAdd", {f.s.op("MatMul", {x, w}), b});
  CHECK(f.fused(f.s.op("Relu", {late})) == "Relu(BiasAdd(MatMul(x, w), b))");
  const Output there = f.s.device("/cpu:1").op("BiasAdd", {f.s.op("MatMul", {x, w}), b});
  CHECK(f.fused(there) == "BiasAdd(MatMul(x, w), b)");
  const Output i = f.placeholder("i", {2, 2}, DType::kFloat16), bias = f.placeholder("bias", {2}, DType::kFloat16);
  CHECK(f.fused(f.s.op("BiasAdd", {f.s.op("MatMul", {i, i}), bias})) == "BiasAdd(MatMul(i, i), bias)");
}

TEST_CASE("the batch norm of an inference goes into the filter and the bias") {
  EpilogueFixture f;
  const Output x = f.placeholder("x", {1, 4, 4, 1});
  const Output w = f.s.constant(Tensor::of<float>({1, 1}, {1, 1, 1, 2}));
  CHECK(f.folded(f.norm(f.conv(x, w))->out()) ==
        "BiasAdd(Conv2D(x, float32[1,1,1,2] [[[[1, 1]]]]), float32[2] [-3, -3])");
  // 1 (w x + 5 - 3) / 1 + 0 and 2 (w x + 6 - 4) / 2 + 1.
  const Output biased = f.s.op("BiasAdd", {f.conv(x, w), f.vector({5, 6})});
  CHECK(f.folded(f.norm(biased)->out()) == "BiasAdd(Conv2D(x, float32[1,1,1,2] [[[[1, 1]]]]), float32[2] [2, 3])");
  const Output d = f.s.constant(Tensor::of<float>({2, 4}, {1, 1, 1, 2}));
  CHECK(f.folded(f.norm(f.conv(x, d, "DepthwiseConv2dNative"))->out()) ==
        "BiasAdd(DepthwiseConv2dNative(x, float32[1,1,1,2] [[[[2, 4]]]]), float32[2] [-3, -3])");
}

TEST_CASE("factors and shifts of channels go into a convolution, as Keras writes a batch norm") {
  EpilogueFixture f;
  const Output x = f.placeholder("x", {1, 4, 4, 1});
  const Output w = f.s.constant(Tensor::of<float>({1, 2}, {1, 1, 1, 2}));
  const auto wide = [&](float a, float b) { return f.s.constant(Tensor::of<float>({a, b}, {1, 1, 1, 2})); };
  const Output norm = f.s.op("AddV2", {f.s.op("Mul", {f.conv(x, w), wide(3, 5)}), wide(7, 8)});
  CHECK(f.folded(norm) == "BiasAdd(Conv2D(x, float32[1,1,1,2] [[[[3, 10]]]]), float32[2] [7, 8])");
  const Output biased = f.s.op("BiasAdd", {f.conv(x, w), f.vector({1, -1})});
  CHECK(f.folded(f.s.op("Add", {f.vector({1, 2}), f.s.op("Mul", {wide(3, 5), biased})})) ==
        "BiasAdd(Conv2D(x, float32[1,1,1,2] [[[[3, 10]]]]), float32[2] [4, -3])");
  const Output d = f.s.constant(Tensor::of<float>({2, 3}, {1, 1, 2, 1})), two = f.placeholder("two", {1, 4, 4, 2});
  CHECK(f.folded(f.s.op("Mul", {f.conv(two, d, "DepthwiseConv2dNative"), wide(5, 7)})) ==
        "DepthwiseConv2dNative(two, float32[1,1,2,1] [[[[10], [21]]]])");
  // Another reader, a number for all, a vector that is not along the channels, a filter that is not a constant.
  const Output read = f.conv(x, w);
  CHECK(f.folded(f.s.op("AddN", {f.s.op("Mul", {read, wide(3, 5)}), read})).find("[[[[3, 10]]]]") == std::string::npos);
  CHECK(f.folded(f.s.op("Mul", {f.conv(x, w), f.s.constant(3.f)})).starts_with("Mul(Conv2D"));
  const Output rows = f.s.constant(Tensor::of<float>({1, 2, 3, 4}, {4, 1}));
  CHECK(f.folded(f.s.op("Mul", {f.conv(x, w), rows})).starts_with("Mul(Conv2D"));
  const Output open = f.placeholder("open", {1, 1, 1, 2});
  CHECK(f.folded(f.s.op("Mul", {f.conv(x, open), wide(3, 5)})).starts_with("Mul(Conv2D"));
  const Output fed = f.conv(x, w);
  CHECK(f.folded(f.s.op("Mul", {fed, wide(3, 5)}), {fed}).starts_with("Mul(Conv2D"));
}

TEST_CASE("a batch norm stays in training, when its statistics are read or fed, and after what others read") {
  EpilogueFixture f;
  const Output x = f.placeholder("x", {1, 4, 4, 1}), w = f.filter({1, 1, 1, 2}), v = f.placeholder("v", {1, 1, 1, 2});
  const auto stays = [&](const std::string& text) { return text.find("FusedBatchNormV3") != std::string::npos; };
  CHECK(stays(f.folded(f.norm(f.conv(x, w), true)->out())));
  CHECK(stays(f.folded(f.norm(f.conv(x, v))->out())));
  CHECK(stays(f.folded(f.norm(x.shape().rank() == 4 ? f.placeholder("y", {1, 4, 4, 2}) : x)->out())));
  const Node* both = f.norm(f.conv(x, w));
  CHECK(stays(f.folded(f.s.op("Sum", {both->out(0), f.s.op("Size", {both->out(1)})}))));
  const Output conv = f.conv(x, w);
  CHECK(stays(f.folded(f.s.op("AddV2", {f.norm(conv)->out(), conv}))));
  const Node* fed = f.norm(f.conv(x, w));
  CHECK(stays(f.folded(f.s.op("Neg", {fed->out()}), {fed->inputs()[3]})));
}
