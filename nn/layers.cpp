// SPDX-License-Identifier: Apache-2.0
// Layers: dense, convolution, pooling, batch normalisation, dropout, LSTM, embedding.
#include <algorithm>

#include "nn/precision.h"
#include "nn/shapes.h"
#include "nn/updates.h"
#include "troupe/control_flow.h"

namespace troupe::nn {
namespace {

Output pool(const Scope& scope, const char* op, Output x, int size, int stride, const std::string& padding) {
  const int64_t step = stride ? stride : size;
  return scope.op(op, {x},
                  {{"ksize", std::vector<int64_t>{1, size, size, 1}},
                   {"strides", std::vector<int64_t>{1, step, step, 1}},
                   {"padding", padding}});
}

}  // namespace

Output cast(const ScopeAt& scope, Output x, DType dtype) {
  return x && x.dtype() == dtype ? x : scope.op("Cast", {x}, {{"DstT", dtype}});
}

Output for_input(const Scope& scope, Output value, Output x) {
  return value && x && is_16_bit_float(x.dtype()) ? cast(scope, value, x.dtype()) : value;
}

Output widened(const Scope& scope, Output x) {
  return x && is_16_bit_float(x.dtype()) ? cast(scope, x, DType::kFloat32) : x;
}

Output dense(const ScopeAt& scope, Variables& variables, Output x, int64_t units, const std::string& name,
             const DenseOptions& options) {
  const int64_t in = last_size_of(scope, x, 1, "dense", name);
  if (in == 0 || !variables.claim(scope, name + "/kernel")) return {};
  const Scope inside = scope.scope(name);
  const Output kernel = variables.read(scope, name + "/kernel", {in, units}, options.kernel);
  const int rank = x.shape().rank();
  const Output flat = rank == 2 ? x : inside.op("Reshape", {x, inside.constant(Tensor::of<int64_t>({-1, in}))});
  Output y = inside.op("MatMul", {flat, for_input(inside, kernel, x)});
  if (rank > 2) y = with_last_sizes(inside, y, x, {units});  // before the bias, where passes find both
  if (options.bias) {
    const Output bias = variables.read(scope, name + "/bias", {units}, zeros());
    y = inside.op("BiasAdd", {y, for_input(inside, bias, x)});
  }
  if (rank == 1) y = with_last_sizes(inside, y, x, {units});
  return y;
}

Output conv2d(const ScopeAt& scope, Variables& variables, Output x, int64_t filters, int size, const std::string& name,
              const ConvOptions& options) {
  const int64_t in = last_size_of(scope, x, 4, "conv2d", name);
  if (in == 0 || !variables.claim(scope, name + "/kernel")) return {};
  const Scope inside = scope.scope(name);
  const Output kernel = variables.read(scope, name + "/kernel", {size, size, in, filters}, options.kernel);
  Output y = inside.op(
      "Conv2D", {x, for_input(inside, kernel, x)},
      {{"strides", std::vector<int64_t>{1, options.stride, options.stride, 1}}, {"padding", options.padding}});
  if (options.bias) {
    const Output bias = variables.read(scope, name + "/bias", {filters}, zeros());
    y = inside.op("BiasAdd", {y, for_input(inside, bias, x)});
  }
  return y;
}

Output max_pool(const ScopeAt& scope, Output x, int size, int stride, const std::string& padding) {
  return pool(scope, "MaxPool", x, size, stride, padding);
}
Output avg_pool(const ScopeAt& scope, Output x, int size, int stride, const std::string& padding) {
  return pool(scope, "AvgPool", x, size, stride, padding);
}

Output batch_norm(const ScopeAt& scope, Variables& variables, Output x, const std::string& name, bool training,
                  const BatchNormOptions& options) {
  if (training && in_loop(scope)) {
    scope.fail(
        invalid_argument("batch_norm '{}': in training it must be outside of loops, since a step updates its "
                         "moving averages once",
                         name));
    return {};
  }
  const int64_t c = last_size_of(scope, x, 2, "batch_norm", name);
  if (c == 0 || !variables.claim(scope, name + "/gamma")) return {};
  const Scope inside = scope.scope(name);
  const bool flat = x.shape().rank() == 2;  // the op wants four dimensions
  if (flat) x = inside.op("Reshape", {x, inside.constant(Tensor::of<int32_t>({-1, 1, 1, static_cast<int32_t>(c)}))});
  const Output gamma = variables.read(scope, name + "/gamma", {c}, ones());
  const Output beta = variables.read(scope, name + "/beta", {c}, zeros());
  const Output mean = variables.read(scope, name + "/moving_mean", {c}, zeros(), false);
  const Output variance = variables.read(scope, name + "/moving_variance", {c}, ones(), false);
  // In training the op takes no mean and variance: it computes them.
  const Output none = training ? inside.constant(Tensor::of<float>({}, {0})) : Output{};
  const Node* norm =
      inside.node("FusedBatchNormV3", {x, gamma, beta, training ? none : mean, training ? none : variance},
                  {{"epsilon", options.epsilon}, {"is_training", training}});
  if (!norm) return {};
  if (training) {
    const Output rate = inside.constant(1 - options.momentum);
    const auto follow = [&](const char* of, int port) {
      const Scope home = variables.home(inside, name + of);
      const Output average = variables.read(home, name + of, {c}, zeros(), false);
      const Output step = home.op("Mul", {home.op("Sub", {average, norm->out(port)}), rate});
      const Output handle = variables.handle(scope, name + of, {c}, zeros());
      variables.add_update(home.node("AssignSubVariableOp", {handle, step}));
    };
    follow("/moving_mean", 1);
    follow("/moving_variance", 2);
  }
  Output y = norm->out();
  if (flat) y = inside.op("Reshape", {y, inside.constant(Tensor::of<int32_t>({-1, static_cast<int32_t>(c)}))});
  return y;
}

Output dropout(const ScopeAt& scope, const Variables& variables, Output x, float rate, bool training) {
  if (!(rate >= 0 && rate < 1)) {
    scope.fail(invalid_argument("dropout: rate {} is not in [0, 1)", rate));
    return {};
  }
  if (!scope.ok()) return {};
  if (!x) return scope.fail(invalid_argument("dropout: the input is empty")), x;
  if (!training || rate == 0) return x;
  const Scope inside = scope.scope("dropout");
  const int64_t seed = variables.seed_for(inside.prefix());
  const Output draw = inside.op("RandomUniform", {inside.op("Shape", {x})},
                                {{"dtype", DType::kFloat32}, {"seed", seed}, {"seed2", seed >> 17 | 1}});
  const Output keep = inside.op("GreaterEqual", {draw, inside.constant(rate)});
  const Output mask = for_input(inside, cast(inside, keep, DType::kFloat32), x);
  return inside.op("Mul", {inside.op("Mul", {x, for_input(inside, inside.constant(1 / (1 - rate)), x)}), mask});
}

namespace {

/// lstm(), for a layer that has its name already, or the next chunk of one.
LstmResult lstm_of(const Scope& scope, Variables& variables, Output x, int64_t units, const std::string& name,
                   const LstmOptions& options) {
  const int64_t in = last_size_of(scope, x, 3, "lstm", name);
  if (in == 0) return {};
  const int64_t batch = x.shape().dim(options.time_major ? 1 : 0), steps = x.shape().dim(options.time_major ? 0 : 1);
  if (x.shape().rank() != 3 || steps < 1 || units < 1) {
    scope.fail(
        invalid_argument("lstm '{}': {} units over input {} of shape {}; units, and a known shape of rank 3 with "
                         "steps are needed",
                         name, units, x.name(), x.shape().str()));
    return {};
  }
  const Scope inside = scope.scope(name);
  const auto swap = [&](Output t) {
    return options.time_major ? t : inside.op("Transpose", {t, inside.constant(Tensor::of<int32_t>({1, 0, 2}))});
  };
  const Output kernel =
      for_input(inside, variables.read(scope, name + "/kernel", {in + units, 4 * units}, options.kernel), x);
  const Output bias = for_input(inside, variables.read(scope, name + "/bias", {4 * units}, zeros()), x);
  const auto vector = [&](const std::vector<int64_t>& v) { return inside.constant(Tensor::of<int64_t>(v)); };
  const auto zeros_of = [&](Output sizes) {
    return inside.op("Fill", {sizes, for_input(inside, inside.constant(0.f), x)});
  };
  Output state_sizes;
  const auto initial = [&](Output state, const char* what) {
    if (!state) {
      if (!state_sizes && batch >= 0) state_sizes = vector({batch, units});
      if (!state_sizes) {
        const Output all = inside.op("Shape", {x}, {{"out_type", DType::kInt64}});
        const Output rows = inside.op("Slice", {all, vector({options.time_major ? 1 : 0}), vector({1})});
        state_sizes = inside.op("ConcatV2", {rows, vector({units}), inside.constant(0)});
      }
      return zeros_of(state_sizes);
    }
    if (!state.shape().compatible(PartialShape{batch, units}))
      scope.fail(invalid_argument("lstm '{}': the initial {} {} has shape {}, not [{},{}]", name, what, state.name(),
                                  state.shape().str(), batch, units));
    return state;
  };
  const Output peephole = zeros_of(vector({units}));
  const Node* all = inside.node("BlockLSTM",
                                {inside.constant(steps), swap(x), initial(options.initial.c, "cell"),
                                 initial(options.initial.h, "result"), kernel, peephole, peephole, peephole, bias},
                                {{"forget_bias", options.forget_bias}, {"cell_clip", 0.f}});
  if (!all) return {};
  const auto of_last = [&](Output t) {
    return inside.op("GatherV2", {t, inside.constant(steps - 1), inside.constant(0)});
  };
  return {swap(all->out(6)), of_last(all->out(6)), of_last(all->out(1))};
}

}  // namespace

LstmResult lstm(const ScopeAt& scope, Variables& variables, Output x, int64_t units, const std::string& name,
                const LstmOptions& options) {
  return variables.claim(scope, name + "/kernel") ? lstm_of(scope, variables, x, units, name, options) : LstmResult();
}

LstmStackResult lstm_stack(const std::vector<Scope>& scopes, Variables& variables, Output x, int64_t units,
                           const std::string& name, const LstmStackOptions& options, std::source_location where) {
  if (scopes.empty()) return {};
  const ScopeAt first(scopes.front(), where);
  const size_t layers = scopes.size();
  if (last_size_of(first, x, 3, "lstm_stack", name) == 0) return {};
  const bool time_major = options.lstm.time_major;
  const int64_t steps = x.shape().dim(time_major ? 0 : 1);
  if (steps < 1 || options.chunk < 0 || (!options.initial.empty() && options.initial.size() != layers)) {
    first.fail(invalid_argument("lstm_stack '{}': chunks of {} of {} steps of {}, initial states of {} of {} layers",
                                name, options.chunk, steps, x.name(), options.initial.size(), layers));
    return {};
  }
  const auto swap = [&](const ScopeAt& scope, Output t) {
    return time_major ? t : scope.op("Transpose", {t, scope.constant(Tensor::of<int32_t>({1, 0, 2}))});
  };
  std::vector<int64_t> sizes;
  const int64_t chunk = options.chunk == 0 ? steps : options.chunk;
  for (int64_t at = 0; at < steps; at += chunk) sizes.push_back(std::min(chunk, steps - at));
  const Scope inputs = first.scope(name + "/chunks");
  const Node* parts =
      inputs.node("SplitV", {swap(inputs, x), inputs.constant(Tensor::of<int64_t>(sizes)), inputs.constant(0)},
                  {{"num_split", static_cast<int64_t>(sizes.size())}});
  for (size_t layer = 0; layer < layers; ++layer)
    variables.claim(first, fmt::format("{}/layer_{}/kernel", name, layer));
  if (!parts || !first.ok()) return {};
  LstmStackResult result;
  result.time_major = time_major;
  result.states = options.initial;
  result.states.resize(layers);
  LstmOptions own = options.lstm;
  own.time_major = true;
  for (int part = 0; part < parts->num_outputs(); ++part) {
    Output y = parts->out(part);
    for (size_t layer = 0; layer < layers && y; ++layer) {
      own.initial = result.states[layer];
      const LstmResult out =
          lstm_of(ScopeAt(scopes[layer], where), variables, y, units, fmt::format("{}/layer_{}", name, layer), own);
      result.states[layer] = out.state();
      y = out.outputs;
    }
    result.chunks.push_back(y ? swap({scopes.back(), where}, y) : y);
  }
  return result;
}

Output LstmStackResult::outputs(const ScopeAt& scope) const {
  if (chunks.size() == 1) return chunks[0];
  if (chunks.empty()) return {};
  std::vector<Output> inputs = chunks;
  inputs.push_back(scope.constant<int32_t>(time_major ? 0 : 1));
  return scope.op("ConcatV2", std::move(inputs));
}

Output embedding(const ScopeAt& scope, Variables& variables, Output ids, int64_t rows, int64_t width,
                 const std::string& name, const EmbeddingOptions& options) {
  if (rows < 1 || width < 1) {
    scope.fail(invalid_argument("embedding '{}': {} rows of {}", name, rows, width));
    return {};
  }
  if (!variables.claim(scope, name + "/table")) return {};
  const Output table = table_at_home(scope, variables, name + "/table", {rows, width}, options.table);
  const Scope home = variables.home(scope.scope(name), name + "/table");
  return home.op("GatherV2", {table, ids, home.constant(0)});
}

Output flatten(const ScopeAt& scope, Output x) {
  if (!scope.ok()) return {};
  if (!x) return scope.fail(invalid_argument("flatten: the input is empty")), x;
  const PartialShape& shape = x.shape();
  int64_t size = shape.has_rank() && shape.rank() >= 1 ? 1 : -1;
  for (int i = 1; i < shape.rank() && size >= 0; ++i) size = shape[i] < 0 ? -1 : size * shape[i];
  if (size < 0) {
    scope.fail(
        invalid_argument("flatten: {} has shape {}; sizes after the first must be known", x.name(), shape.str()));
    return {};
  }
  // Of a tensor without elements -1 would not be known.
  const auto batch = static_cast<int32_t>(size == 0 ? shape[0] : -1);
  return scope.op("Reshape", {x, scope.constant(Tensor::of<int32_t>({batch, static_cast<int32_t>(size)}))});
}

Output relu(const ScopeAt& scope, Output x) { return scope.op("Relu", {x}); }
Output sigmoid(const ScopeAt& scope, Output x) { return scope.op("Sigmoid", {x}); }
Output tanh(const ScopeAt& scope, Output x) { return scope.op("Tanh", {x}); }
Output softmax(const ScopeAt& scope, Output logits) { return scope.op("Softmax", {logits}); }

Output pixels_to_float(const ScopeAt& scope, Output images) {
  return scope.op("Mul", {cast(scope, images, DType::kFloat32), scope.constant(1.f / 255)});
}

}  // namespace troupe::nn
