// SPDX-License-Identifier: Apache-2.0
// Layers of transformers, made of TensorFlow's ops in the forms that graph/passes recognises.
#include "troupe/transformer.h"

#include <cmath>
#include <limits>

#include "nn/precision.h"
#include "nn/shapes.h"

namespace troupe::nn {
namespace {

/// A causal mask up to so many elements is a constant.
constexpr int64_t kMostMaskElements = 1 << 20;

bool is_empty(const Scope& scope, Output x, const char* layer, const char* what) {
  if (!scope.ok()) return true;
  if (!x) scope.fail(invalid_argument("{}: {} is empty", layer, what));
  return !x;
}

Output int_vector(const Scope& scope, std::initializer_list<int64_t> values) {
  return scope.constant(Tensor::of<int64_t>(values));
}

/// Size `axis`, counted from the end, of x: an int64 scalar.
Output size_from_end(const Scope& scope, Output x, int axis) {
  if (const int64_t known = x.shape().dim(-axis); known >= 0) return scope.constant(known);
  const Output shape = scope.op("Shape", {x}, {{"out_type", DType::kInt64}});
  return scope.op("GatherV2", {shape, scope.constant<int64_t>(x.shape().rank() - axis), scope.constant(0)});
}

/// bool [queries, keys]: whether query i sees key j, j <= i + keys - queries.
Output causal_mask(const Scope& scope, Output queries, Output keys) {
  const int64_t rows = queries.shape().dim(-2), columns = keys.shape().dim(-2);
  if (rows >= 0 && columns >= 0 && (rows == 0 || columns <= kMostMaskElements / rows)) {
    auto made = Tensor::make(DType::kBool, {rows, columns});
    if (!made.ok()) return scope.fail(made.error()), Output{};
    bool* sees = made->mutable_data<bool>();
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) *sees++ = j <= i + columns - rows;
    return scope.constant(std::move(*made));
  }
  const Output m = size_from_end(scope, queries, 2), n = size_from_end(scope, keys, 2);
  const Output zero = scope.constant<int64_t>(0), one = scope.constant<int64_t>(1);
  const Output i = scope.op("Range", {scope.op("Sub", {n, m}), n, one}), j = scope.op("Range", {zero, n, one});
  return scope.op("LessEqual", {j, scope.op("ExpandDims", {i, scope.constant(-1)})});
}

/// The lowest finite number of a type, of which exp(x - largest) is 0.
float lowest(DType dtype) { return dtype == DType::kFloat16 ? -65504.f : -3.3895314e38f; }

Output attend(const Scope& scope, Output queries, Output keys, Output values, const DotProductOptions& options,
              const std::function<Output(Output)>& on_weights) {
  const int64_t size = queries.shape().dim(-1);
  const auto number = [&](float x) { return for_input(scope, scope.constant(x), queries); };
  Output scores = scope.op("BatchMatMulV2", {queries, keys}, {{"adj_y", true}});
  scores = scope.op("Mul", {scores, number(1 / std::sqrt(static_cast<float>(size)))});
  const auto hide = [&](Output mask) {
    scores = scope.op("SelectV2", {mask, scores, number(lowest(queries.dtype()))});
  };
  if (options.mask) hide(options.mask);
  if (options.causal) hide(causal_mask(scope, queries, keys));
  return scope.op("BatchMatMulV2", {on_weights(scope.op("Softmax", {scores})), values});
}

bool is_mask(const Scope& scope, Output mask, const char* layer) {
  if (!mask || mask.dtype() == DType::kBool) return true;
  scope.fail(invalid_argument("{}: the mask {} is {}, not bool", layer, mask.name(), to_string(mask.dtype())));
  return false;
}

}  // namespace

Output layer_norm(const ScopeAt& scope, Variables& variables, Output x, const std::string& name,
                  const LayerNormOptions& options) {
  const int64_t width = last_size_of(scope, x, 1, "layer_norm", name);
  if (width == 0) return {};
  if (!(options.epsilon >= 0) || !std::isfinite(options.epsilon)) {
    scope.fail(
        invalid_argument("layer_norm '{}': epsilon must be at least 0 and finite, got {}", name, options.epsilon));
    return {};
  }
  if ((options.scale || options.center) && !variables.claim(scope, name + (options.scale ? "/gamma" : "/beta")))
    return {};
  const Scope inside = scope.scope(name);
  const Output wide = widened(inside, x), last = inside.constant(Tensor::of<int32_t>({-1}));
  const auto mean_of = [&](Output y) { return inside.op("Mean", {y, last}, {{"keep_dims", true}}); };
  const Output centered = inside.op("Sub", {wide, mean_of(wide)});
  const Output variance = mean_of(inside.op("Square", {centered}));
  Output y = inside.op(
      "Mul", {centered, inside.op("Rsqrt", {inside.op("AddV2", {variance, inside.constant(options.epsilon)})})});
  if (options.scale) y = inside.op("Mul", {y, variables.read(scope, name + "/gamma", {width}, ones())});
  if (options.center) y = inside.op("AddV2", {y, variables.read(scope, name + "/beta", {width}, zeros())});
  return cast(inside, y, x.dtype());
}

Output gelu(const ScopeAt& scope, Output x, bool approximate) {
  if (is_empty(scope, x, "gelu", "the input")) return {};
  if (!is_floating(x.dtype())) {
    scope.fail(invalid_argument("gelu: input {} is {}, not a float", x.name(), to_string(x.dtype())));
    return {};
  }
  const Scope inside = scope.scope("gelu");
  const auto number = [&](double v) { return for_input(inside, inside.constant(static_cast<float>(v)), x); };
  Output argument = inside.op("Mul", {x, number(std::sqrt(0.5))});
  if (approximate) {
    const Output cube = inside.op("Mul", {inside.op("Mul", {x, x}), x});
    const Output sum = inside.op("AddV2", {x, inside.op("Mul", {cube, number(0.044715)})});
    argument = inside.op("Mul", {sum, number(std::sqrt(2 / M_PI))});
  }
  const Output curve = inside.op(approximate ? "Tanh" : "Erf", {argument});
  return inside.op("Mul", {inside.op("Mul", {x, number(0.5)}), inside.op("AddV2", {curve, number(1)})});
}

Output position_embedding(const ScopeAt& scope, Variables& variables, Output x, int64_t positions,
                          const std::string& name, const PositionOptions& options) {
  const int64_t width = last_size_of(scope, x, 2, "position_embedding", name);
  if (width == 0) return {};
  const int64_t time = x.shape().dim(-2);
  if (positions < 1 || time > positions) {
    scope.fail(invalid_argument("position_embedding '{}': {} positions for input {} of shape {}", name, positions,
                                x.name(), x.shape().str()));
    return {};
  }
  const Output& first = options.first;
  if (first && ((first.dtype() != DType::kInt32 && first.dtype() != DType::kInt64) ||
                !first.shape().compatible(PartialShape{}))) {
    scope.fail(invalid_argument("position_embedding '{}': the first position {} is {} of shape {}, not an int scalar",
                                name, first.name(), to_string(first.dtype()), first.shape().str()));
    return {};
  }
  if (!variables.claim(scope, name + "/table")) return {};
  const Scope inside = scope.scope(name);
  const Output table = for_input(inside, variables.read(scope, name + "/table", {positions, width}, options.table), x);
  Output begin = int_vector(inside, {0, 0}), size = int_vector(inside, {time, width});
  const auto row = [&](Output scalar, int64_t column) {  // [scalar, column]
    return inside.op("Pack", {cast(inside, scalar, DType::kInt64), inside.constant(column)});
  };
  if (first) begin = row(first, 0);
  if (time < 0) size = row(size_from_end(inside, x, 2), width);
  return inside.op("AddV2", {x, inside.op("Slice", {table, begin, size})});
}

Output dot_product_attention(const ScopeAt& scope, Output queries, Output keys, Output values,
                             const DotProductOptions& options) {
  for (const auto& [x, what] : {std::pair(queries, "queries"), {keys, "keys"}, {values, "values"}}) {
    if (is_empty(scope, x, "dot_product_attention", what)) return {};
    if (last_size_of(scope, x, 2, "dot_product_attention", what) == 0) return {};
  }
  if (!is_mask(scope, options.mask, "dot_product_attention")) return {};
  return attend(scope.scope("attention"), queries, keys, values, options, [](Output weights) { return weights; });
}

AttentionResult multi_head_attention(const ScopeAt& scope, Variables& variables, Output x, int64_t heads,
                                     const std::string& name, const AttentionOptions& options) {
  const char* layer = "multi_head_attention";
  const int64_t width = last_size_of(scope, x, 3, layer, name);
  const Output context = options.context ? options.context : x;
  if (width == 0 || last_size_of(scope, context, 3, layer, name) == 0) return {};
  int64_t size = options.head_size, all = 0;
  if (size == 0 && heads > 0 && width % heads == 0) size = width / heads;
  if (x.shape().rank() != 3 || context.shape().rank() != 3 || heads < 1 || size < 1 ||
      __builtin_mul_overflow(heads, size, &all)) {
    scope.fail(invalid_argument(
        "{} '{}': {} heads of {} over input {} of shape {} and context {} of shape {}; rank 3 "
        "and positive sizes are needed, and without head_size heads that divide the width",
        layer, name, heads, options.head_size, x.name(), x.shape().str(), context.name(), context.shape().str()));
    return {};
  }
  const AttentionState& past = options.past;
  if (static_cast<bool>(past.keys) != static_cast<bool>(past.values)) {
    scope.fail(invalid_argument("{} '{}': the past has {} alone", layer, name, past.keys ? "keys" : "values"));
    return {};
  }
  const PartialShape of_past{x.shape().dim(0), heads, -1, size};
  for (const Output& o : {past.keys, past.values})
    if (o && !o.shape().compatible(of_past)) {
      scope.fail(invalid_argument("{} '{}': the past {} has shape {}, not {}", layer, name, o.name(), o.shape().str(),
                                  of_past.str()));
      return {};
    }
  if (!is_mask(scope, options.mask, layer)) return {};

  const Scope inside = scope.scope(name);
  const DenseOptions projection = {.bias = options.bias, .kernel = options.kernel};
  const auto swap = [&](Output y) {
    return inside.op("Transpose", {y, inside.constant(Tensor::of<int32_t>({0, 2, 1, 3}))});
  };
  const auto heads_of = [&](Output from, const char* what) {
    const Output y = dense(scope, variables, from, all, name + what, projection);
    return swap(with_last_sizes(inside, y, from, {heads, size}));
  };
  const auto joined = [&](Output before, Output y) {
    return before ? inside.op("ConcatV2", {before, y, inside.constant(2)}) : y;
  };
  const Output queries = heads_of(x, "/query");
  AttentionResult result;
  result.state.keys = joined(past.keys, heads_of(context, "/key"));
  result.state.values = joined(past.values, heads_of(context, "/value"));
  if (!scope.ok()) return {};
  const auto dropped = [&](Output weights) {
    return dropout(inside, variables, weights, options.dropout, options.training);
  };
  const Output y = attend(inside, queries, result.state.keys, result.state.values,
                          {.causal = options.causal, .mask = options.mask}, dropped);
  if (!y) return {};
  result.outputs =
      dense(scope, variables, with_last_sizes(inside, swap(y), x, {all}), width, name + "/output", projection);
  return result;
}

}  // namespace troupe::nn
