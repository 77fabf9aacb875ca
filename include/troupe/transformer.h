// SPDX-License-Identifier: Apache-2.0
// Layers of transformers: normalisation, GELU, positions, attention. Implemented in nn/transformer.cpp; troupe/nn.h
// includes it, whose first lines hold here too.
//
// A block as in GPT-2, over x [batch, time, width]:
//
//   const auto norm = [&](const char* name) { return nn::layer_norm(s, v, x, name); };
//   x = x + nn::multi_head_attention(s, v, norm("ln_1"), 12, "attention", {.causal = true}).outputs;
//   x = x + nn::dense(s, v, nn::gelu(s, nn::dense(s, v, norm("ln_2"), 4 * width, "up")), width, "down");
//
// Batch and time may be unknown while the graph is built. All is made of TensorFlow's ops, so gradients flow and a
// graph opens elsewhere. In steps without gradients passes put faster nodes in their place (docs/graph_passes.md).
#pragma once
#include <string>

#include "troupe/export.h"
#include "troupe/nn.h"

namespace TROUPE_API troupe {
namespace nn {

struct LayerNormOptions {
  float epsilon = 1e-5f;  // added to the variance; BERT has 1e-12
  bool scale = true;      // by `name`/gamma [width], ones at first
  bool center = true;     // adds `name`/beta [width], zeros at first
};
/// Normalises x [..., width] to mean 0 and variance 1 over its last dimension. 16-bit floats are computed with in
/// float32. Errors: the last size unknown; epsilon negative or not finite. Ba et al., 2016.
Output layer_norm(const ScopeAt& scope, Variables& variables, Output x, const std::string& name,
                  const LayerNormOptions& options = {});

/// x times the normal distribution function of x, by erf; `approximate`: by tanh, as in GPT-2. Hendrycks and Gimpel,
/// 2016; tf.nn.gelu.
Output gelu(const ScopeAt& scope, Output x, bool approximate = false);

struct PositionOptions {
  Output first = {};  // position of the first row, int32 or int64 scalar; empty: 0
  Initializer table = truncated_normal(0.02f);
};
/// x [..., time, width] plus the rows of its positions in a learned table [positions, width], the variable
/// `name`/table. Errors: rank below 2, width unknown, no positions; more time than positions, at the latest in the
/// step.
Output position_embedding(const ScopeAt& scope, Variables& variables, Output x, int64_t positions,
                          const std::string& name, const PositionOptions& options = {});

struct DotProductOptions {
  bool causal = false;  // query i sees the keys up to i + keys - queries: the last query sees all
  Output mask = {};  // bool that broadcasts to [..., queries, keys]: true where a query sees a key; empty: everywhere
};
/// softmax(queries keys^T / sqrt(size)) values, for queries [..., queries, size], keys [..., keys, size] and values
/// [..., keys, width]; the dimensions before broadcast. A query that sees nothing takes the mean of all values. Errors:
/// ranks below 2 or unknown, size unknown, a mask that is not bool. Vaswani et al., 2017.
Output dot_product_attention(const ScopeAt& scope, Output queries, Output keys, Output values,
                             const DotProductOptions& options = {});

/// Keys and values of the positions so far, each [batch, heads, time, head size].
struct AttentionState {
  Output keys = {};
  Output values = {};
};
struct AttentionOptions {
  bool causal = false;       // as in DotProductOptions
  Output mask = {};          // the same, for [batch, heads, queries, keys]: of padding [batch, 1, 1, keys]
  Output context = {};       // [batch, keys, any]: what keys and values are made of; empty: x itself (self-attention)
  AttentionState past = {};  // keys and values that come before those of this step (a cache); both or none
  int64_t head_size = 0;     // 0: the width of x / heads
  bool bias = true;
  float dropout = 0;  // rate at which weights of attention are dropped in training
  bool training = false;
  Initializer kernel = glorot_uniform();
};
struct AttentionResult {
  Output outputs;        // [batch, time, width]
  AttentionState state;  // past and this step's: the past of the next step
};
/// Attention of `heads` heads over x [batch, time, width]. Variables: `name`/query, key, value and output, each with
/// kernel and bias, as of dense layers. Errors: x or context of another rank than 3 or unknown width; heads that are
/// not positive or, without head_size, do not divide the width; half a past, or one of another shape. Vaswani et al.,
/// 2017; tf.keras.layers.MultiHeadAttention.
AttentionResult multi_head_attention(const ScopeAt& scope, Variables& variables, Output x, int64_t heads,
                                     const std::string& name, const AttentionOptions& options = {});

}  // namespace nn
}  // namespace troupe
