// SPDX-License-Identifier: Apache-2.0
#include "bench/networks/networks.h"

namespace troupe::bench {
namespace {

/// Adds layers to a graph, each with a name of its own.
class Builder {
 public:
  Builder(const Scope& scope, nn::Variables& variables, bool training)
      : root_(scope), s_(scope), v_(variables), training_(training) {}

  const std::vector<std::string>& blocks() const { return blocks_; }

  Output lenet(Output x) {
    const auto conv = [&](Output in, int64_t filters, const char* padding) {
      return nn::relu(s_, nn::conv2d(s_, v_, in, filters, 5, name(), {.padding = padding}));
    };
    Output h = nn::max_pool(s_, conv(x, 6, "SAME"), 2);
    h = nn::flatten(s_, nn::max_pool(s_, conv(h, 16, "VALID"), 2));
    for (const int64_t units : {120, 84}) h = nn::relu(s_, nn::dense(s_, v_, h, units, name()));
    return nn::dense(s_, v_, h, 10, name());
  }

  Output mobilenet(Output x) {
    struct Stage {
      int64_t expand, filters;
      int count, stride;
    };
    Output h = relu6(norm(conv(x, 32, 3, 2)));
    for (const Stage& stage : {Stage{1, 16, 1, 1}, Stage{6, 24, 2, 2}, Stage{6, 32, 3, 2}, Stage{6, 64, 4, 2},
                               Stage{6, 96, 3, 1}, Stage{6, 160, 3, 2}, Stage{6, 320, 1, 1}})
      for (int i = 0; i < stage.count; ++i) {
        begin_block();
        const Output before = h;
        const int64_t in = h.shape().dim(-1);
        const int stride = i == 0 ? stage.stride : 1;
        if (stage.expand > 1) h = relu6(norm(conv(h, in * stage.expand, 1)));
        h = relu6(norm(depthwise(h, stride)));
        h = norm(conv(h, stage.filters, 1));
        if (stride == 1 && in == stage.filters) h = s_.op("AddV2", {h, before});
      }
    end_blocks();
    return classify(relu6(norm(conv(h, 1280, 1))));
  }

  Output resnet(Output x) {
    Output h = nn::max_pool(s_, nn::relu(s_, norm(conv(x, 64, 7, 2))), 3, 2, "SAME");
    for (const auto& [width, count, first] : {std::tuple(64, 3, 1), {128, 4, 2}, {256, 6, 2}, {512, 3, 2}})
      for (int i = 0; i < count; ++i) {
        begin_block();
        const int stride = i == 0 ? first : 1;
        const Output before = i == 0 ? norm(conv(h, 4 * width, 1, stride)) : h;
        h = nn::relu(s_, norm(conv(h, width, 1)));
        h = nn::relu(s_, norm(conv(h, width, 3, stride)));
        h = nn::relu(s_, s_.op("AddV2", {norm(conv(h, 4 * width, 1)), before}));
      }
    end_blocks();
    return classify(h);
  }

  Output efficientnet(Output x) {
    struct Stage {
      int64_t expand, filters;
      int count, stride, size;
    };
    Output h = swish(norm(conv(x, 32, 3, 2)));
    for (const Stage& stage :
         {Stage{1, 16, 1, 1, 3}, Stage{6, 24, 2, 2, 3}, Stage{6, 40, 2, 2, 5}, Stage{6, 80, 3, 2, 3},
          Stage{6, 112, 3, 1, 5}, Stage{6, 192, 4, 2, 5}, Stage{6, 320, 1, 1, 3}})
      for (int i = 0; i < stage.count; ++i) {
        begin_block();
        const Output before = h;
        const int64_t in = h.shape().dim(-1);
        const int stride = i == 0 ? stage.stride : 1;
        if (stage.expand > 1) h = swish(norm(conv(h, in * stage.expand, 1)));
        h = swish(norm(depthwise(h, stride, stage.size)));
        const Output mean = s_.op("Mean", {h, ints({1, 2})}, {{"keep_dims", true}});
        const Output squeezed = swish(nn::conv2d(s_, v_, mean, std::max<int64_t>(1, in / 4), 1, name()));
        h = s_.op("Mul", {h, nn::sigmoid(s_, nn::conv2d(s_, v_, squeezed, h.shape().dim(-1), 1, name()))});
        h = norm(conv(h, stage.filters, 1));
        if (stride == 1 && in == stage.filters) h = s_.op("AddV2", {h, before});
      }
    end_blocks();
    return classify(swish(norm(conv(h, 1280, 1))));
  }

  Output bert(Output words) {
    Output h = layer_norm(positions(nn::embedding(s_, v_, words, kWords, 768, name()), 512, {}), 1e-12f);
    for (int i = 0; i < 12; ++i) {
      begin_block();
      h = layer_norm(s_.op("AddV2", {nn::multi_head_attention(s_, v_, h, 12, name()).outputs, h}), 1e-12f);
      h = layer_norm(s_.op("AddV2", {feed_forward(h, false), h}), 1e-12f);
    }
    end_blocks();
    const Output first = s_.op("GatherV2", {h, s_.constant(0), s_.constant(1)});
    return nn::dense(s_, v_, nn::tanh(s_, nn::dense(s_, v_, first, 768, name())), 10, name());
  }

  /// With the keys and values before, in turn, for each layer; or none.
  Output gpt2(Output words, const std::vector<Output>& past) {
    const Output first = past.empty() ? Output() : s_.constant<int32_t>(kPast);
    Output h = positions(nn::embedding(s_, v_, words, kWords, 768, name()), 1024, first);
    for (size_t i = 0; i < 12; ++i) {
      begin_block();
      nn::AttentionOptions options = {.causal = past.empty()};
      if (!past.empty()) options.past = {past[2 * i], past[2 * i + 1]};
      h = s_.op("AddV2", {nn::multi_head_attention(s_, v_, layer_norm(h, 1e-5f), 12, name(), options).outputs, h});
      h = s_.op("AddV2", {feed_forward(layer_norm(h, 1e-5f), true), h});
    }
    end_blocks();
    h = s_.op("Reshape", {layer_norm(h, 1e-5f), ints({-1, 768})});
    return nn::dense(s_, v_, h, kWords, name(), {.bias = false});
  }

  Output lstm(Output x) {
    x = s_.op("Transpose", {x, ints({1, 0, 2})});
    const int64_t units = x.shape().dim(-1);
    nn::LstmResult h = nn::lstm(s_, v_, x, units, name(), {.time_major = true});
    h = nn::lstm(s_, v_, h.outputs, units, name(), {.time_major = true});
    return nn::dense(s_, v_, h.last, 10, name());
  }

 private:
  void begin_block() { blocks_.push_back((s_ = root_.scope("block")).prefix()); }
  void end_blocks() { s_ = root_; }
  std::string name() { return fmt::format("layer{}", count_++); }
  Output ints(std::initializer_list<int32_t> values) { return s_.constant(Tensor::of<int32_t>(values)); }
  Output conv(Output x, int64_t filters, int size, int stride = 1) {
    return nn::conv2d(s_, v_, x, filters, size, name(), {.stride = stride, .bias = false});
  }
  Output depthwise(Output x, int64_t stride, int64_t size = 3) {
    const Output kernel = v_.read(s_, name() + "/kernel", {size, size, x.shape().dim(-1), 1}, nn::he_normal());
    return s_.op("DepthwiseConv2dNative", {x, kernel},
                 {{"strides", std::vector<int64_t>{1, stride, stride, 1}}, {"padding", std::string("SAME")}});
  }
  Output norm(Output x) { return nn::batch_norm(s_, v_, x, name(), training_); }
  Output swish(Output x) { return s_.op("Mul", {x, nn::sigmoid(s_, x)}); }
  Output layer_norm(Output x, float epsilon) { return nn::layer_norm(s_, v_, x, name(), {.epsilon = epsilon}); }
  Output positions(Output x, int64_t most, Output first) {
    return nn::position_embedding(s_, v_, x, most, name(), {.first = first});
  }
  Output feed_forward(Output x, bool approximate) {
    return nn::dense(s_, v_, nn::gelu(s_, nn::dense(s_, v_, x, 3072, name()), approximate), 768, name());
  }
  Output relu6(Output x) { return s_.op("Relu6", {x}); }
  Output classify(Output x) { return nn::dense(s_, v_, s_.op("Mean", {x, ints({1, 2})}), 1000, name()); }

  const Scope root_;
  Scope s_;  // of the block
  nn::Variables& v_;
  const bool training_;
  int count_ = 0;
  std::vector<std::string> blocks_;
};

bool is_of_words(const std::string& net) { return net == "bert" || net.starts_with("gpt2"); }

Output made(Builder& builder, const std::string& net, Output x, const std::vector<Output>& past = {}) {
  if (net == "lenet") return builder.lenet(x);
  if (net == "mobilenet") return builder.mobilenet(x);
  if (net == "resnet") return builder.resnet(x);
  if (net == "efficientnet") return builder.efficientnet(x);
  if (net == "bert") return builder.bert(x);
  if (net.starts_with("gpt2")) return builder.gpt2(x, past);
  return builder.lstm(x);
}

}  // namespace

Shape input_shape(const std::string& net, int64_t batch) {
  if (net == "lenet") return {batch, 28, 28, 1};
  if (net == "lstm") return {batch, 32, 512};
  if (is_of_words(net)) return {batch, net == "gpt2_next" ? 1 : 128};
  return {batch, 224, 224, 3};
}

DType input_dtype(const std::string& net) { return is_of_words(net) ? DType::kInt32 : DType::kFloat32; }

Network make_network(const std::string& net, const Scope& scope, nn::Variables& variables, int64_t batch,
                     bool training) {
  const auto input = [&](DType dtype, const Shape& shape) {
    return scope.op("Placeholder", {}, {{"dtype", dtype}, {"shape", PartialShape(shape)}});
  };
  Network result;
  const Output x = input(input_dtype(net), input_shape(net, batch));
  std::vector<Output> past;
  for (int i = 0; net == "gpt2_next" && i < 24; ++i) past.push_back(input(DType::kFloat32, {batch, 12, kPast, 64}));
  Builder builder(scope, variables, training);
  result.logits = made(builder, net, x, past);
  result.inputs = {x};
  result.inputs.insert(result.inputs.end(), past.begin(), past.end());
  return result;
}

Output network(const std::string& net, const Scope& scope, nn::Variables& variables, Output x, bool training,
               std::vector<std::string>* blocks) {
  Builder builder(scope, variables, training);
  const Output logits = made(builder, net, x);
  if (blocks) *blocks = builder.blocks();
  return logits;
}

}  // namespace troupe::bench
