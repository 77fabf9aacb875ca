// SPDX-License-Identifier: Apache-2.0
// Ops with windows over images and volumes: ties, threads, second gradients and bad input.
#include "tests/ops/nn/window_cases.h"

#include <limits>
#include <set>

#include "tests/ops/check_op.h"

namespace troupe::testing {
namespace {

Attrs pool_attrs(const char* padding = "VALID") {
  return {{"ksize", Ints{1, 1, 2, 1}}, {"strides", Ints{1, 1, 2, 1}}, {"padding", padding}};
}
Attrs rates(const char* padding = "VALID") {
  return {{"strides", Ints{1, 1, 1, 1}}, {"rates", Ints{1, 1, 1, 1}}, {"padding", padding}};
}

}  // namespace

TEST_CASE("of equal largest values the first counts, but for the gradient of volumes", "[window]") {
  const Tensor x = F({2, 2, 1, 3}, {1, 1, 4, 1}), y = F({2, 3}, {1, 1, 2, 1});
  CHECK(apply("MaxPoolWithArgmax", {x}, pool_attrs(), 1)->identical(L({0, 3}, {1, 1, 2, 1})));
  const Attrs volume = volume_attrs({1, 1, 2}, {1, 1, 2}, "VALID");
  const Tensor line = *x.reshape(Shape{1, 1, 1, 4, 1}), most = *y.reshape(Shape{1, 1, 1, 2, 1});
  CHECK(apply("MaxPool3DGrad", {line, most, most}, volume)->identical(F({2, 2, 0, 3}, {1, 1, 1, 4, 1})));
  CHECK(apply("MaxPool3DGradGrad", {line, most, *ramp32({1, 1, 1, 4, 1}).clone()}, volume)
            ->identical(F({0.21f, -1.32f}, {1, 1, 1, 2, 1})));
  const Tensor filter = F({0, 0}, {1, 2, 1}), g = F({1, 1, 1}, {1, 1, 3, 1});
  CHECK(apply("Dilation2DBackpropInput", {x, filter, g}, rates())->identical(F({1, 1, 0, 1}, {1, 1, 4, 1})));
  // No sum is above the least number that there is.
  const Tensor none = *Tensor::zeros(DType::kUInt8, Shape{1, 1, 3, 1}),
               weights = *Tensor::zeros(DType::kUInt8, Shape{1, 2, 1});
  const Tensor ones = Tensor::of<uint8_t>({4, 5}, {1, 1, 2, 1});
  CHECK(apply("Dilation2DBackpropFilter", {none, weights, ones}, rates())
            ->identical(Tensor::of<uint8_t>({9, 0}, {1, 2, 1})));
  CHECK(apply("Dilation2DBackpropInput", {none, weights, ones}, rates())
            ->identical(Tensor::of<uint8_t>({4, 5, 0}, {1, 1, 3, 1})));
}

TEST_CASE("MaxPool3D of nothing but -infinity is that, and its gradient finds it", "[window]") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = F({-inf, -inf, -inf, 1, nan, 2}, {1, 1, 1, 6, 1});
  const Attrs pairs = volume_attrs({1, 1, 2}, {1, 1, 2}, "VALID");
  const Tensor y = *apply("MaxPool3D", {x}, pairs);
  CHECK(y.identical(F({-inf, 1, 2}, {1, 1, 1, 3, 1})));
  const Tensor g = F({3, 4, 5}, {1, 1, 1, 3, 1});
  CHECK(apply("MaxPool3DGrad", {x, y, g}, pairs)->identical(F({3, 3, 0, 4, 0, 5}, {1, 1, 1, 6, 1})));
}

TEST_CASE("places of the largest values are counted in their image or through the batch", "[window]") {
  const Tensor x = F({1, 2, 4, 3}, {2, 1, 2, 1});
  Attrs attrs = pool_attrs();
  CHECK(apply("MaxPoolWithArgmax", {x}, attrs, 1)->identical(L({1, 0}, {2, 1, 1, 1})));
  attrs.set("include_batch_in_index", true);
  const Tensor whole = *apply("MaxPoolWithArgmax", {x}, attrs, 1);
  CHECK(whole.identical(L({1, 2}, {2, 1, 1, 1})));
  const Tensor g = F({5, 6}, {2, 1, 1, 1});
  CHECK(apply("MaxPoolGradWithArgmax", {x, g, whole}, attrs)->identical(F({0, 5, 6, 0}, {2, 1, 2, 1})));
}

TEST_CASE("windows are the same on two threads", "[window]") {
  const auto same = [](const std::string& op, const std::vector<Tensor>& inputs, const Attrs& attrs) {
    INFO(op);
    CHECK(apply(op, inputs, attrs, 0, 1)->identical(*apply(op, inputs, attrs, 0, 2)));
  };
  const Tensor image = random_tensor<float>({4, 40, 40, 12}, 1), volume = random_tensor<float>({3, 9, 20, 21, 4}, 2);
  const Attrs cubes = volume_attrs({2, 3, 2}, {1, 2, 1}, "SAME"), conv = volume_attrs({}, {1, 1, 2}, "SAME");
  same("MaxPoolWithArgmax", {image}, pool_attrs());
  same("Dilation2D", {image, random_tensor<float>({3, 3, 12}, 3)}, rates("SAME"));
  Attrs patches = rates("SAME");
  patches.set("ksizes", Ints{1, 3, 2, 1});
  same("ExtractImagePatches", {image}, patches);
  same("ExtractVolumePatches", {volume},
       {{"ksizes", Ints{1, 2, 3, 2, 1}}, {"strides", Ints{1, 1, 2, 1, 1}}, {"padding", std::string("SAME")}});
  same("MaxPool3D", {volume}, cubes);
  same("AvgPool3D", {volume}, cubes);
  same("Conv3D", {volume, random_tensor<float>({2, 3, 2, 4, 5}, 4)}, conv);
}

TEST_CASE("volumes larger than one matrix of columns are convolved part by part", "[window]") {
  // 40 x 30 x 35 places of 3 x 3 x 3 x 2 numbers are more than a million.
  const Tensor x = random_tensor<double>({1, 40, 30, 35, 2}, 5);
  Tensor ones = *Tensor::make(DType::kFloat64, {3, 3, 3, 2, 1});
  std::fill_n(ones.mutable_data<double>(), ones.elements(), 1.0);
  const Tensor y = *apply("Conv3D", {x, ones}, volume_attrs({}, {1, 1, 1}, "SAME"));
  const auto at = [&](int64_t d, int64_t h, int64_t w) {
    double sum = 0;
    for (int64_t i = std::max<int64_t>(d - 1, 0); i < std::min<int64_t>(d + 2, 40); ++i)
      for (int64_t j = std::max<int64_t>(h - 1, 0); j < std::min<int64_t>(h + 2, 30); ++j)
        for (int64_t k = std::max<int64_t>(w - 1, 0); k < std::min<int64_t>(w + 2, 35); ++k)
          for (int64_t c = 0; c < 2; ++c) sum += x.data<double>()[((i * 30 + j) * 35 + k) * 2 + c];
    return sum;
  };
  for (const auto& [d, h, w] : {std::tuple{0, 0, 0}, {20, 7, 34}, {39, 29, 34}, {18, 14, 11}})
    CHECK(y.data<double>()[(d * 30 + h) * 35 + w] == Approx(at(d, h, w)));
}

TEST_CASE("convolutions of volumes of float32 agree with those of float64", "[window]") {
  struct Case {
    Shape in, filter;
    Ints strides;
    const char* padding;
    int64_t dilation = 1;
  };
  const auto wide = [](const Tensor& t) { return *apply("Cast", {t}, {{"DstT", DType::kFloat64}}); };
  const auto sizes = [](const Tensor& t) {
    Tensor out = *Tensor::make(DType::kInt32, {5});
    for (int i = 0; i < 5; ++i) out.mutable_data<int32_t>()[i] = static_cast<int32_t>(t.dim(i));
    return out;
  };
  for (const Case& k : {Case{{2, 5, 7, 8, 3}, {3, 3, 3, 3, 16}, {1, 1, 1}, "SAME"},
                        Case{{1, 6, 9, 7, 16}, {2, 3, 3, 16, 8}, {2, 1, 2}, "VALID"},
                        Case{{1, 7, 8, 9, 8}, {3, 1, 3, 8, 24}, {1, 1, 1}, "SAME", 2},
                        Case{{2, 4, 5, 6, 4}, {1, 1, 1, 4, 8}, {1, 2, 2}, "SAME"},
                        Case{{1, 3, 4, 5, 5}, {2, 2, 2, 5, 3}, {1, 2, 1}, "SAME"},
                        Case{{2, 4, 5, 6, 32}, {3, 2, 3, 16, 32}, {1, 1, 1}, "SAME"},
                        Case{{2, 4, 5, 6, 6}, {2, 3, 2, 2, 9}, {1, 2, 1}, "SAME"}})
    for (const int threads : {1, 2}) {
      Attrs attrs = volume_attrs({}, k.strides, k.padding);
      attrs.set("dilations", Ints{1, k.dilation, k.dilation, k.dilation, 1});
      const Tensor x = random_tensor<float>(k.in, 1), w = random_tensor<float>(k.filter, 2);
      const Tensor y = *apply("Conv3D", {x, w}, attrs, 0, threads);
      check_close(doubles(y), doubles(*apply("Conv3D", {wide(x), wide(w)}, attrs)), 1e-4);
      const Tensor g = random_tensor<float>(y.shape(), 3);
      check_close(doubles(*apply("Conv3DBackpropInputV2", {sizes(x), w, g}, attrs, 0, threads)),
                  doubles(*apply("Conv3DBackpropInputV2", {sizes(x), wide(w), wide(g)}, attrs)), 1e-4);
      check_close(doubles(*apply("Conv3DBackpropFilterV2", {x, sizes(w), g}, attrs, 0, threads)),
                  doubles(*apply("Conv3DBackpropFilterV2", {wide(x), sizes(w), wide(g)}, attrs)), 1e-4);
    }
}

TEST_CASE("groups of channels of volumes are convolved by filters of their own", "[window]") {
  const Attrs attrs = volume_attrs({}, {1, 2, 1}, "SAME");
  const Tensor x = random_tensor<double>({2, 3, 4, 5, 6}, 1), w = random_tensor<double>({2, 3, 1, 2, 9}, 2);
  const auto part = [](const Tensor& t, int64_t begin, int64_t size) {
    std::vector<int64_t> from(5, 0), sizes(t.shape().dims().begin(), t.shape().dims().end());
    from[4] = begin, sizes[4] = size;
    return *apply("Slice", {t, Tensor::of<int64_t>(std::span<const int64_t>(from)),
                            Tensor::of<int64_t>(std::span<const int64_t>(sizes))});
  };
  std::vector<Tensor> parts;
  for (int64_t g = 0; g < 3; ++g) parts.push_back(*apply("Conv3D", {part(x, 2 * g, 2), part(w, 3 * g, 3)}, attrs));
  const Tensor y = *apply("Conv3D", {x, w}, attrs);
  for (int64_t g = 0; g < 3; ++g)
    check_close(doubles(part(y, 3 * g, 3)), doubles(parts[static_cast<size_t>(g)]), 1e-12);
  check_gradients("Conv3D", {ramp({1, 2, 2, 2, 4}), ramp({1, 2, 1, 2, 4})}, volume_attrs({}, {1, 1, 1}, "VALID"),
                  {0, 1});
  check_always_fails("Conv3D", {ramp({1, 2, 2, 2, 4}), ramp({1, 1, 1, 2, 3})}, "do not divide into 2 groups", attrs);
}

TEST_CASE("pools and convolutions of volumes differentiate twice", "[window]") {
  const Attrs pool = volume_attrs({1, 1, 2}, {1, 1, 2}, "SAME"), conv = volume_attrs({}, {1, 1, 1}, "VALID");
  const Tensor line = ramp({1, 1, 1, 5, 1}), g = ramp({1, 1, 1, 3, 1});
  const Tensor most = *apply("MaxPool3D", {line}, pool);
  check_gradients("MaxPool3DGrad", {line, most, g}, pool, {2});
  check_gradients("MaxPool3DGradGrad", {line, most, line}, pool, {2});
  check_gradients("AvgPool3DGrad", {I({1, 1, 1, 5, 1}), g}, pool, {1});
  const Tensor filter = ramp({1, 1, 3, 1, 2}), gy = ramp({1, 1, 1, 3, 2});
  check_gradients("Conv3DBackpropInputV2", {I({1, 1, 1, 5, 1}), filter, gy}, conv, {1, 2});
  check_gradients("Conv3DBackpropFilterV2", {line, I({1, 1, 3, 1, 2}), gy}, conv, {0, 2});
}

TEST_CASE("regions of fractional pools cover the image and have two sizes", "[window]") {
  const Tensor x = random_tensor<double>({1, 29, 17, 1}, 1);
  for (const bool pseudo : {false, true}) {
    Graph graph(op_library()->ops);
    const Scope scope(graph);
    const Attrs attrs = {{"pooling_ratio", std::vector<float>{1, 1.5f, 2.6f, 1}}, {"pseudo_random", pseudo}};
    const Node* node = add_node(scope, "FractionalMaxPool", {x}, attrs);
    REQUIRE(scope.ok());
    std::set<std::vector<double>> drawn;
    Evaluator evaluator;
    for (int run = 0; run < 20; ++run) {
      const auto out = evaluator.run({node->out(0), node->out(1), node->out(2)});
      REQUIRE(out.ok());
      CHECK((*out)[0].shape() == Shape{1, 19, 6, 1});
      for (const auto& [port, size] : {std::pair{1, 29}, {2, 17}}) {
        const auto cuts = doubles((*out)[port]);
        const int least = size / (static_cast<int>(cuts.size()) - 1);
        CHECK((cuts.front() == 0 && cuts.back() == size));
        for (size_t i = 1; i < cuts.size(); ++i)
          CHECK((cuts[i] - cuts[i - 1] == least || cuts[i] - cuts[i - 1] == least + 1));
      }
      drawn.insert(doubles((*out)[1]));
    }
    CHECK(drawn.size() > 1);
  }
}

TEST_CASE("fractional pools that do not fit are refused", "[window][bad_input]") {
  const auto ratio = [](std::vector<float> by) { return Attrs{{"pooling_ratio", std::move(by)}}; };
  const Tensor x = F({1, 2}, {1, 1, 2, 1});
  check_always_fails("FractionalMaxPool", {x}, "cannot be smaller than 1, but value 2 is 0.5", ratio({1, 1, 0.5f, 1}));
  check_always_fails("FractionalMaxPool", {x}, "above the size of dimension 2 of [1,1,2,1]", ratio({1, 1, 3, 1}));
  check_always_fails("FractionalAvgPool", {x}, "2 for channels, which must be 1", ratio({1, 1, 1, 2}));
  check_always_fails("FractionalAvgPool", {F({1}, {1})}, "rank 4", ratio({1, 1, 1, 1}));
  Attrs seeded = ratio({1, 1, 1, 1});
  seeded.set("seed", int64_t{3});
  CHECK_FALSE(apply("FractionalMaxPool", {x}, seeded).ok());
  const Tensor g = F({1}, {1, 1, 1, 1}), rows = L({0, 1});
  const auto grad_fails = [&](const Tensor& cuts, const char* words) {
    check_always_fails("FractionalMaxPoolGrad", {x, g, g, rows, cuts}, words);
    check_always_fails("FractionalAvgPoolGrad", {L({1, 1, 2, 1}), g, rows, cuts}, words);
  };
  grad_fails(L({0, 3}), "col_pooling_sequence is 3 at position 1");
  grad_fails(L({1, 1}), "col_pooling_sequence is 1 at position 1");
  grad_fails(L({-1, 1}), "col_pooling_sequence is -1 at position 0");
  grad_fails(L({0}), "has no region");
  grad_fails(L({0, 1, 2}), "is not the pool [1,1,2,1]");
}

TEST_CASE("windows that do not fit are refused", "[window][bad_input]") {
  const Tensor x = F({1, 2}, {1, 1, 2, 1}), line = F({1, 2, 3}, {1, 1, 1, 3, 1});
  check_always_fails("MaxPoolWithArgmax", {F({1}, {1})}, "rank 4", pool_attrs());
  Attrs wide = pool_attrs();
  wide.set("ksize", Ints{1, 1, 6, 1});
  check_always_fails("MaxPoolWithArgmax", {F({1}, {1, 1, 1, 1})}, "larger than the width of 1", wide);
  check_always_fails("MaxPoolGradWithArgmax", {x, F({1, 2}, {1, 1, 2, 1}), L({0, 0}, {1, 1, 2, 1})},
                     "not the pool [1,1,1,1]", pool_attrs());
  const auto outside = apply("MaxPoolGradWithArgmax", {x, F({1}, {1, 1, 1, 1}), L({2}, {1, 1, 1, 1})}, pool_attrs());
  REQUIRE_FALSE(outside.ok());
  CHECK_THAT(outside.error().message, Catch::Contains("argmax 2 at position 0"));
  Attrs patches = rates();
  patches.set("ksizes", Ints{1, 6, 2, 1});
  check_always_fails("ExtractImagePatches", {x}, "larger than the height of 1", patches);
  patches.set("ksizes", Ints{2, 1, 1, 1});
  check_always_fails("ExtractImagePatches", {x}, "batch and channels", patches);
  check_always_fails("Dilation2D", {x, F({1, 2}, {1, 1, 2})}, "do not fit", rates());
  check_always_fails("Dilation2D", {x, F({}, {0, 1, 1})}, "no weights", rates());
  check_always_fails("Dilation2DBackpropInput", {x, F({1}, {1, 1, 1}), F({1}, {1, 1, 1, 1})},
                     "is not the result [1,1,2,1]", rates());
  const Attrs pool = volume_attrs({1, 1, 2}, {1, 1, 2}, "VALID"), conv = volume_attrs({}, {1, 1, 1}, "VALID");
  check_always_fails("MaxPool3D", {x}, "rank 5", pool);
  check_always_fails("MaxPool3D", {line}, "larger than the depth of 1", volume_attrs({3, 1, 1}, {1, 1, 1}, "VALID"));
  check_always_fails("MaxPool3D", {line}, "1 or more", volume_attrs({1, 0, 1}, {1, 1, 1}, "VALID"));
  check_always_fails("MaxPool3D", {line}, "batch and channels",
                     {{"ksize", Ints{1, 1, 1, 1, 2}}, {"strides", Ints(5, 1)}, {"padding", "VALID"}});
  const auto cubes = [](Ints size) {
    return Attrs{{"ksizes", std::move(size)}, {"strides", Ints(5, 1)}, {"padding", "VALID"}};
  };
  check_always_fails("ExtractVolumePatches", {x}, "rank 5", cubes(Ints(5, 1)));
  check_always_fails("ExtractVolumePatches", {line}, "larger than the depth of 1", cubes({1, 3, 1, 1, 1}));
  check_always_fails("ExtractVolumePatches", {line}, "batch and channels", cubes({1, 1, 1, 1, 2}));
  check_always_fails("ExtractVolumePatches", {line}, "5 values, not 6", cubes(Ints(6, 1)));
  check_always_fails("MaxPool3DGrad", {line, line, line}, "not", pool);
  check_always_fails("AvgPool3DGrad", {I({1, 1, 1, 3}), line}, "5 numbers, not 4", pool);
  check_always_fails("Conv3D", {line, F({1, 2}, {1, 1, 1, 2, 1})}, "not for the 1 channels", conv);
  check_always_fails("Conv3D", {line, F({}, {1, 1, 0, 1, 1})}, "no weights", conv);
  check_always_fails("Conv3DBackpropInputV2", {I({1, 1, 1, 3, 1}), F({1}, {1, 1, 1, 1, 1}), F({1}, {1, 1, 1, 1, 1})},
                     "is not the result [1,1,1,3,1]", conv);
  Attrs first = conv;
  first.set("data_format", "NCDHW");
  const auto layout = apply("Conv3D", {line, F({1}, {1, 1, 1, 1, 1})}, first);
  REQUIRE_FALSE(layout.ok());
  CHECK(layout.error().code == Code::kUnimplemented);
}

}  // namespace troupe::testing
