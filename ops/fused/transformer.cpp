// SPDX-License-Identifier: Apache-2.0
// _FusedLayerNorm and _FusedAttention: what inference on CPUs does in one pass over memory where a graph has many
// nodes.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "devices/parallel.h"
#include "ops/fused/register.h"
#include "ops/parts/fast_math.h"
#include "ops/parts/gemm.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/lanes.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

// -- layer norm -------------------------------------------------------------------------------------------------------

/// y = (x - mean) / sqrt(variance + epsilon) gamma + beta of a row; either of the latter may be nullptr.
template <class T>
[[gnu::always_inline]] inline void normalise(const T* x, T* y, int64_t n, const T* gamma, const T* beta, T epsilon) {
  const T mean = sum_of<T>(n, [=](int64_t i) { return x[i]; }) / static_cast<T>(n);
  const T squares = sum_of<T>(n, [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  const T factor = T(1) / std::sqrt(squares / static_cast<T>(n) + epsilon);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * factor;
  if (gamma)
    for (int64_t i = 0; i < n; ++i) y[i] *= gamma[i];
  if (beta)
    for (int64_t i = 0; i < n; ++i) y[i] += beta[i];
}
TROUPE_SIMD_CLONES void normalise_row(const float* x, float* y, int64_t n, const float* gamma, const float* beta,
                                      float epsilon) {
  normalise(x, y, n, gamma, beta, epsilon);
}
void normalise_row(const double* x, double* y, int64_t n, const double* gamma, const double* beta, double epsilon) {
  normalise(x, y, n, gamma, beta, epsilon);
}

Status check_norm_vectors(const Shape& x, const Shape& vector) {
  if (vector.elements() == x.dim(-1) && (vector.rank() == 0 || vector.dim(-1) == x.dim(-1))) return {};
  return invalid_argument("{} does not fit the last dimension of x {}", vector.str(), x.str());
}

class LayerNorm final : public ComputeKernel {
 public:
  LayerNorm(float epsilon, bool scale, bool center) : epsilon_(epsilon), scale_(scale), center_(center) {}

  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    const bool scale = init.attr<bool>("scale"), center = init.attr<bool>("center");
    if (const auto args = init.attr<int64_t>("num_args"); args != int{scale} + int{center})
      return invalid_argument("num_args is {} with scale {} and center {}", args, scale, center);
    return std::unique_ptr<ComputeKernel>(new LayerNorm(init.attr<float>("epsilon"), scale, center));
  }

  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() < 1) return invalid_argument("x must have rank 1 or more, but is a scalar");
    const int gamma = scale_ ? 1 : 0, beta = center_ ? 1 + gamma : 0;
    for (const int i : {gamma, beta})
      if (i > 0) TROUPE_RETURN_IF_ERROR(check_norm_vectors(x.shape(), c.input(i).shape()));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), x.shape()));
    const int64_t n = x.dim(-1), rows = n == 0 ? 0 : x.elements() / n;
    with_type(x.dtype(), FullFloatTypes{}, [&]<class T>() {
      const T* in = x.data<T>();
      T* out = rows > 0 ? y.mutable_data<T>() : nullptr;
      const T* scales = gamma > 0 ? c.input(gamma).data<T>() : nullptr;
      const T* shifts = beta > 0 ? c.input(beta).data<T>() : nullptr;
      parallel_for(c.threads(), rows, 1 + kCheapGrain / std::max<int64_t>(n, 1), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          normalise_row(in + r * n, out + r * n, n, scales, shifts, static_cast<T>(epsilon_));
      });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const float epsilon_;
  const bool scale_, center_;
};

Status layer_norm_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank_at_least(0, 1));
  c.set_output(0, c.input(0));
  return {};
}

// -- attention --------------------------------------------------------------------------------------------------------

/// How a tensor of four dimensions lies: [batch, heads, time, size], or [batch, time, heads, size].
enum class HeadLayout { kHeadsFirst, kTimeFirst };

struct AttentionForm {
  std::array<HeadLayout, 4> layouts;  // of queries, keys, values, result

  static Result<AttentionForm> parse(const std::string& text) {
    AttentionForm form;
    bool fits = text.size() == 4;
    for (size_t i = 0; fits && i < 4; ++i) {
      fits = text[i] == 'h' || text[i] == 't';
      form.layouts[i] = text[i] == 'h' ? HeadLayout::kHeadsFirst : HeadLayout::kTimeFirst;
    }
    if (fits) return form;
    return invalid_argument("layouts are '{}'; four letters are needed, each h or t", text);
  }
};

/// One of the four tensors: its sizes, and distances in elements.
struct HeadTensor {
  int64_t batch, heads, time, size;
  int64_t to_batch, to_head, to_time;

  HeadTensor(const Shape& s, HeadLayout layout) : batch(s[0]), size(s[3]), to_batch(s[1] * s[2] * s[3]) {
    const bool first = layout == HeadLayout::kHeadsFirst;
    heads = s[first ? 1 : 2];
    time = s[first ? 2 : 1];
    to_head = first ? time * size : size;
    to_time = first ? size : heads * size;
  }
  /// Where the matrix of a head begins; one batch or head stands for all.
  int64_t at(int64_t b, int64_t h) const { return (batch == 1 ? 0 : b * to_batch) + (heads == 1 ? 0 : h * to_head); }
};

/// Something that broadcasts to [batch, heads, queries, keys]: distances in elements, 0 where it has one.
struct ScoreTensor {
  std::array<int64_t, 4> strides = {};

  static Result<ScoreTensor> make(const Shape& shape, const std::array<int64_t, 4>& scores, const char* what) {
    ScoreTensor out;
    bool fits = shape.rank() <= 4;
    int64_t stride = 1;
    for (int i = 0; fits && i < shape.rank(); ++i) {
      const int64_t size = shape.dim(-1 - i), of = scores[static_cast<size_t>(3 - i)];
      fits = size == of || size == 1;
      out.strides[static_cast<size_t>(3 - i)] = size == 1 ? 0 : stride;
      stride *= size;
    }
    if (fits) return out;
    return invalid_argument("{} {} does not broadcast to scores [{},{},{},{}]", what, shape.str(), scores[0], scores[1],
                            scores[2], scores[3]);
  }
  int64_t at(int64_t b, int64_t h, int64_t row) const { return b * strides[0] + h * strides[1] + row * strides[2]; }
};

/// What becomes of a row of scores before softmax.
TROUPE_SIMD_CLONES void add_to_scores(float* s, int64_t n, const float* added, int64_t stride) {
  if (stride == 0)
    for (int64_t i = 0; i < n; ++i) s[i] += *added;
  else
    for (int64_t i = 0; i < n; ++i) s[i] += added[i];
}
TROUPE_SIMD_CLONES void hide_scores(float* s, int64_t n, const bool* mask, int64_t stride, float hidden) {
  if (stride == 0) {
    if (!*mask) std::fill_n(s, n, hidden);
    return;
  }
  for (int64_t i = 0; i < n; ++i) s[i] = mask[i] ? s[i] : hidden;
}
TROUPE_SIMD_CLONES void softmax_of_scores(float* s, int64_t n) {
  const float largest = largest_of(s, n);
  for (int64_t i = 0; i < n; ++i) s[i] = fast_math::exp(s[i] - largest);
  const float factor = 1 / sum_of<float>(n, [=](int64_t k) { return s[k]; });
  for (int64_t i = 0; i < n; ++i) s[i] *= factor;
}

/// The scores of one query, and the sum of values by its weights: one call of a product costs as much as these.
TROUPE_SIMD_CLONES void scores_of_query(const float* q, int64_t size, float scale, const float* keys, int64_t to_key,
                                        int64_t n, float* s) {
  for (int64_t j = 0; j < n; ++j) {
    const float* key = keys + j * to_key;
    s[j] = scale * sum_of<float>(size, [=](int64_t i) { return q[i] * key[i]; });
  }
}
TROUPE_SIMD_CLONES void weigh_values(const float* weights, int64_t n, const float* values, int64_t to_value,
                                     int64_t width, float* y) {
  std::fill_n(y, width, 0.0f);
  for (int64_t j = 0; j < n; ++j) {
    const float weight = weights[j];
    const float* value = values + j * to_value;
    for (int64_t i = 0; i < width; ++i) y[i] += weight * value[i];
  }
}

/// Scores of so many rows at once stay in the cache.
constexpr int64_t kScoresAtOnce = 1 << 15, kFewestScoreRows = 16;

class Attention final : public ComputeKernel {
 public:
  Attention(const KernelInit& init, AttentionForm form)
      : form_(form), scale_(init.attr<float>("scale")), hidden_(init.attr<float>("hidden")),
        added_(init.attr<int64_t>("num_added") > 0), masked_(init.attr<int64_t>("num_masks") > 0),
        broadcasts_(init.attr<bool>("broadcasts")) {}

  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    TROUPE_ASSIGN(const AttentionForm form, AttentionForm::parse(init.attr<std::string>("layouts")));
    for (const char* name : {"num_added", "num_masks"})
      if (const auto n = init.attr<int64_t>(name); n > 1)
        return invalid_argument("{} must be at most 1, got {}", name, n);
    return std::unique_ptr<ComputeKernel>(new Attention(init, form));
  }

  Status compute(KernelContext& c) override {
    for (int i = 0; i < 3; ++i)
      if (c.input(i).rank() != 4)
        return invalid_argument("input {} has shape {}, not rank 4", i, c.input(i).shape().str());
    HeadTensor q(c.input(0).shape(), form_.layouts[0]), k(c.input(1).shape(), form_.layouts[1]);
    const HeadTensor v(c.input(2).shape(), form_.layouts[2]);
    std::vector<Shape> beside;  // the scores
    for (int i = 3; i < c.num_inputs(); ++i) beside.push_back(c.input(i).shape());
    std::array<int64_t, 4> scores = {widest(q.batch, k.batch), widest(q.heads, k.heads), q.time, k.time};
    const bool scores_fit = q.batch == k.batch && q.heads == k.heads;
    for (const Shape& shape : beside)
      for (int i = 0; i < std::min(shape.rank(), 4); ++i) {
        int64_t& size = scores[static_cast<size_t>(3 - i)];
        if (const int64_t both = widest(size, shape.dim(-1 - i)); both >= 0) size = both;  // else it is told below
      }
    const int64_t batch = widest(scores[0], v.batch), heads = widest(scores[1], v.heads);
    if (q.size != k.size || scores[3] != v.time || batch < 0 || heads < 0)
      return invalid_argument("queries {}, keys {} and values {} do not fit one another, in layouts {}",
                              c.input(0).shape().str(), c.input(1).shape().str(), c.input(2).shape().str(), layouts());
    if (!broadcasts_ && (!scores_fit || scores[0] != v.batch || scores[1] != v.heads))
      return invalid_argument(
          "queries {}, keys {} and values {}, in layouts {}, with scores [{},{},{},{}] differ in "
          "batch or heads, which do not broadcast here",
          c.input(0).shape().str(), c.input(1).shape().str(), c.input(2).shape().str(), layouts(), scores[0], scores[1],
          scores[2], scores[3]);
    const bool heads_first = form_.layouts[3] == HeadLayout::kHeadsFirst;
    // One query or key where what is added or hides has more stands for all.
    const bool repeats = q.time != scores[2] || k.time != scores[3];
    if (q.time != scores[2]) q.to_time = 0;
    if (k.time != scores[3]) k.to_time = 0;
    const int64_t time = scores[2], n = scores[3];
    TROUPE_ASSIGN(const Shape shape,
                  Shape::make(std::array{batch, heads_first ? heads : time, heads_first ? time : heads, v.size}));
    TROUPE_ASSIGN(Tensor result, c.allocate(DType::kFloat32, shape));
    const HeadTensor y(shape, form_.layouts[3]);
    ScoreTensor added, mask;
    if (added_) {
      TROUPE_ASSIGN(added, ScoreTensor::make(beside.front(), scores, "what is added"));
    }
    if (masked_) {
      TROUPE_ASSIGN(mask, ScoreTensor::make(beside.back(), scores, "mask"));
    }
    if (result.elements() == 0) {
      c.set_output(0, std::move(result));
      return {};
    }
    const auto* qs = c.input(0).data<float>();
    const auto* ks = c.input(1).data<float>();
    const auto* vs = c.input(2).data<float>();
    const float* adds = added_ ? c.input(3).data<float>() : nullptr;
    const bool* sees = masked_ ? c.input(3 + added_).data<bool>() : nullptr;
    float* ys = result.mutable_data<float>();
    const int64_t rows =
        repeats ? 1 : std::min(time, std::max(kFewestScoreRows, kScoresAtOnce / std::max<int64_t>(n, 1)));
    const int64_t blocks = (time + rows - 1) / rows, work = rows * std::max<int64_t>(n, 1) * (q.size + v.size);
    const int64_t parts = batch * heads * blocks;  // not more than the result has elements
    std::atomic<bool> ok{true};
    parallel_for(c.threads(), parts, 1 + kLeastPart / std::max<int64_t>(work, 1), [&](int64_t begin, int64_t end) {
      std::vector<float> s(static_cast<size_t>(rows * n));
      for (int64_t part = begin; part < end; ++part) {
        const int64_t first = part % blocks * rows, h = part / blocks % heads, b = part / blocks / heads;
        const int64_t m = std::min(rows, time - first);
        const float* of_q = qs + q.at(b, h) + first * q.to_time;
        const float *of_k = ks + k.at(b, h), *of_v = vs + v.at(b, h);
        float* of_y = ys + y.at(b, h) + first * y.to_time;
        if (m == 1) scores_of_query(of_q, q.size, scale_, of_k, k.to_time, n, s.data());
        else if (!gemm_strided({m, n, q.size}, scale_, of_q, q.to_time, of_k, true, k.to_time, s.data(), n)) ok = false;
        for (int64_t i = 0; i < m; ++i) {
          float* row = s.data() + i * n;
          if (adds) add_to_scores(row, n, adds + added.at(b, h, first + i), added.strides[3]);
          if (sees) hide_scores(row, n, sees + mask.at(b, h, first + i), mask.strides[3], hidden_);
          softmax_of_scores(row, n);
        }
        if (m == 1) weigh_values(s.data(), n, of_v, v.to_time, v.size, of_y);
        else if (!gemm_strided({m, v.size, n}, 1, s.data(), n, of_v, false, v.to_time, of_y, y.to_time)) ok = false;
      }
    });
    if (!ok) return make_error(Code::kInternal, "the matrix library failed for queries {}", c.input(0).shape().str());
    c.set_output(0, std::move(result));
    return {};
  }

 private:
  static constexpr int64_t kLeastPart = 65536;  // multiplications worth a thread

  /// What two sizes broadcast to; -1 if they do not.
  static int64_t widest(int64_t a, int64_t b) { return a == b || b == 1 ? a : a == 1 ? b : -1; }
  std::string layouts() const {
    std::string text;
    for (const HeadLayout l : form_.layouts) text += l == HeadLayout::kHeadsFirst ? 'h' : 't';
    return text;
  }

  const AttentionForm form_;
  const float scale_, hidden_;
  const bool added_, masked_, broadcasts_;
};

Status attention_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const AttentionForm form, AttentionForm::parse(c.attr<std::string>("layouts")));
  std::array<PartialShape, 3> in;
  for (int i = 0; i < 3; ++i) {
    TROUPE_ASSIGN(in[static_cast<size_t>(i)], c.with_rank(i, 4));
  }
  const auto of = [&](size_t i, int heads_first, int time_first) {
    return in[i][form.layouts[i] == HeadLayout::kHeadsFirst ? heads_first : time_first];
  };
  TROUPE_ASSIGN(const PartialShape both,
                broadcast(PartialShape{in[0][0], of(0, 1, 2)}, PartialShape{in[1][0], of(1, 1, 2)}));
  PartialShape scores{both[0], both[1], of(0, 2, 1), of(1, 2, 1)};
  for (int i = 3; i < c.num_inputs(); ++i) {
    TROUPE_ASSIGN(scores, broadcast(scores, c.input(i)));
  }
  TROUPE_ASSIGN(scores, broadcast(scores, PartialShape{in[2][0], of(2, 1, 2), 1, 1}));
  if (!scores.has_rank() || scores.rank() != 4) return {};  // what is added has a rank that is not known, or too high
  const int64_t time = scores[2], size = in[2][3];
  if (in[0][3] >= 0 && in[1][3] >= 0 && in[0][3] != in[1][3])
    return invalid_argument("inner sizes differ: {} x {}", in[0].str(), in[1].str());
  c.set_output(0, form.layouts[3] == HeadLayout::kHeadsFirst ? PartialShape{scores[0], scores[1], time, size}
                                                             : PartialShape{scores[0], time, scores[1], size});
  return {};
}

/// The products of each query with the keys, and of its weights with the values.
NodeCost attention_cost(const CostContext& c) {
  const double keys = c.input_size(1, c.attrs().at<std::string>("layouts")[1] == 'h' ? -2 : -3);
  return {2 * keys * (c.input_elements(0) + c.output_elements(0)), c.all_bytes()};
}

}  // namespace

void register_fused_transformer_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto none = not_differentiable("passes make it, in steps without gradients");
  ops.add(OpDef("_FusedLayerNorm")
              .input("x: T")
              .input("args: num_args * T")
              .output("y: T")
              .attr("num_args: int >= 0")
              .attr("epsilon: float")
              .attr("scale: bool")
              .attr("center: bool")
              .attr(type_attr("T", FullFloatTypes{}))
              .shape(layer_norm_shape)
              .doc("x less its mean, over the root of its variance and epsilon, along the last dimension; then times "
                   "the first of args with scale, plus the last with center. A pass makes it."),
          none);
  kernels.add("_FusedLayerNorm", DeviceKind::kCpu, {{"T", FullFloatTypes::dtypes()}}, LayerNorm::make);
  ops.add(OpDef("_FusedAttention")
              .input("queries: float32")
              .input("keys: float32")
              .input("values: float32")
              .input("added: num_added * float32")
              .input("masks: num_masks * bool")
              .output("y: float32")
              .attr("num_added: int >= 0")
              .attr("num_masks: int >= 0")
              .attr("scale: float")
              .attr("hidden: float")
              .attr("layouts: string")
              .attr("broadcasts: bool = true")
              .shape(attention_shape)
              .cost(attention_cost)
              .doc("softmax(scale queries keys^T) values of each head, [batch, heads, time, size] each, or where "
                   "layouts have t in place of h (queries, keys, values, y) [batch, time, heads, size]. To the scores "
                   "before softmax added adds at most one tensor; where a mask, at most one, is false they are hidden. "
                   "Both broadcast with [batch, heads, queries, keys]. Batches and heads of queries, keys and values "
                   "do so with broadcasts, else those of each product must be equal. A pass makes it."),
          none);
  kernels.add("_FusedAttention", DeviceKind::kCpu, {}, Attention::make);
}

}  // namespace troupe
