// SPDX-License-Identifier: Apache-2.0
// Random tensors from Philox. A node's numbers are a function of (seed, seed2) and of how often the node ran; in a run
// that has a random step, of that and of how often the node ran in this run; the stateless forms take the seed as an
// input. The numbers do not depend on threads.
#include <algorithm>
#include <numeric>

#include "devices/parallel.h"
#include "ops/all.h"
#include "ops/index_tensors.h"
#include "ops/philox.h"
#include "ops/random_streams.h"
#include "ops/type_dispatch.h"

namespace troupe {
namespace {

// Distributions make blocks [begin, end) of four elements each; out is the first of them.

template <class T>
[[gnu::always_inline]] inline void uniform_body(const Philox& random, int64_t begin, int64_t end, T* out) {
  for (int64_t g = begin; g < end; ++g) {
    const Philox::Block w = random(static_cast<uint64_t>(g));
    for (int k = 0; k < 4; ++k) {
      // As many bits as T holds exactly, so that 1 is never reached by rounding.
      if constexpr (std::is_same_v<T, float16>) out[(g - begin) * 4 + k] = T(static_cast<float>(w[k] >> 21) * 0x1p-11f);
      else if constexpr (std::is_same_v<T, bfloat16>)
        out[(g - begin) * 4 + k] = T(static_cast<float>(w[k] >> 24) * 0x1p-8f);
      else out[(g - begin) * 4 + k] = uniform_float(w[k]);
    }
  }
}
TROUPE_AVX2 void uniform_floats_avx2(const Philox& random, int64_t begin, int64_t end, float* out) {
  uniform_body(random, begin, end, out);
}

struct Uniform {
  template <class T> static void blocks(const Philox& random, int64_t begin, int64_t end, T* out) {
    if constexpr (std::is_same_v<T, double>) {
      for (int64_t g = begin; g < end; ++g) {
        const Philox::Block a = random(static_cast<uint64_t>(2 * g)), b = random(static_cast<uint64_t>(2 * g + 1));
        out[(g - begin) * 4] = uniform_double(a[0], a[1]);
        out[(g - begin) * 4 + 1] = uniform_double(a[2], a[3]);
        out[(g - begin) * 4 + 2] = uniform_double(b[0], b[1]);
        out[(g - begin) * 4 + 3] = uniform_double(b[2], b[3]);
      }
    } else if constexpr (std::is_same_v<T, float>) {
      has_avx2() ? uniform_floats_avx2(random, begin, end, out) : uniform_body(random, begin, end, out);
    } else {
      uniform_body(random, begin, end, out);
    }
  }
};

template <class T> std::array<Arithmetic<T>, 4> normals(const Philox::Block& w) {
  using A = Arithmetic<T>;
  std::array<A, 4> out;
  for (int k = 0; k < 4; k += 2) {
    if constexpr (std::is_same_v<A, double>) {
      const auto [x, y] = normal_pair(w[k], w[k + 1]);
      out[k] = x;
      out[k + 1] = y;
    } else {
      const float radius = std::sqrt(-2.0f * std::log((static_cast<float>(w[k]) + 0.5f) * 0x1p-32f));
      const float angle = 2.0f * std::numbers::pi_v<float> * uniform_float(w[k + 1]);
      out[k] = radius * std::cos(angle);
      out[k + 1] = radius * std::sin(angle);
    }
  }
  return out;
}

struct Normal {
  template <class T> static void blocks(const Philox& random, int64_t begin, int64_t end, T* out) {
    for (int64_t g = begin; g < end; ++g) {
      const auto z = normals<T>(random(static_cast<uint64_t>(g)));
      for (int k = 0; k < 4; ++k) out[(g - begin) * 4 + k] = narrow<T>(z[k]);
    }
  }
};

/// Normal numbers beyond two standard deviations are drawn again.
struct Truncated {
  template <class T> static void blocks(const Philox& random, int64_t begin, int64_t end, T* out) {
    for (int64_t g = begin; g < end; ++g) {
      int filled = 0;
      for (uint64_t attempt = 0; filled < 4; ++attempt)
        for (const auto z : normals<T>(random(static_cast<uint64_t>(g) | attempt << 48)))
          if (std::abs(z) < 2 && filled < 4) out[(g - begin) * 4 + filled++] = narrow<T>(z);
    }
  }
};

template <class Distribution, class T>
Result<Tensor> fill(KernelContext& c, const Philox& random, const Tensor& sizes) {
  TROUPE_ASSIGN(const Shape shape, shape_from(sizes, "shape"));
  TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, shape));
  T* out = y.mutable_data<T>();
  const int64_t n = shape.elements(), whole = n / 4;
  parallel_for(c.threads(), whole, kDearGrain,
               [&](int64_t begin, int64_t end) { Distribution::blocks(random, begin, end, out + begin * 4); });
  if (n % 4 != 0) {
    T last[4];
    Distribution::blocks(random, whole, whole + 1, last);
    std::copy_n(last, n % 4, out + whole * 4);
  }
  return y;
}

template <class Distribution> struct Random {
  template <class T> class Kernel final : public ComputeKernel {
   public:
    explicit Kernel(const KernelInit& init) : streams_(init) {}
    Status compute(KernelContext& c) override {
      TROUPE_ASSIGN(Tensor y, (fill<Distribution, T>(c, streams_.next(c), c.input(0))));
      c.set_output(0, std::move(y));
      return {};
    }

   private:
    Streams streams_;
  };

  template <class T> class Stateless final : public ComputeKernel {
   public:
    Status compute(KernelContext& c) override {
      TROUPE_ASSIGN(const auto seed, int_values(c.input(1), "seed"));
      if (seed.size() != 2) return invalid_argument("seed must have two numbers, not {}", seed.size());
      TROUPE_ASSIGN(Tensor y, (fill<Distribution, T>(c, Philox(key_from(seed[0], seed[1]), 0), c.input(0))));
      c.set_output(0, std::move(y));
      return {};
    }
  };
};

template <class T> class UniformInt final : public ComputeKernel {
 public:
  explicit UniformInt(const KernelInit& init) : streams_(init) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Shape shape, shape_from(c.input(0), "shape"));
    TROUPE_ASSIGN(const int64_t low, int_scalar(c.input(1), "minval"));
    TROUPE_ASSIGN(const int64_t high, int_scalar(c.input(2), "maxval"));
    if (low >= high) return invalid_argument("minval {} is not below maxval {}", low, high);
    const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, shape));
    T* out = y.mutable_data<T>();
    const Philox random = streams_.next(c);
    parallel_for(c.threads(), shape.elements(), kDearGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Philox::Block w = random(static_cast<uint64_t>(i));
        const uint64_t word = uint64_t{w[0]} << 32 | w[1];
        const auto scaled = static_cast<uint64_t>(static_cast<unsigned __int128>(word) * range >> 64);
        out[i] = static_cast<T>(static_cast<uint64_t>(low) + scaled);
      }
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  Streams streams_;
};

class Shuffle final : public ComputeKernel {
 public:
  explicit Shuffle(const KernelInit& init) : streams_(init) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() == 0 || x.elements() == 0) {
      c.set_output(0, x);
      return {};
    }
    const int64_t rows = x.shape()[0], width = x.elements() / rows;
    std::vector<int64_t> order(static_cast<size_t>(rows));
    std::iota(order.begin(), order.end(), int64_t{0});
    const Philox random = streams_.next(c);
    for (int64_t i = rows - 1; i > 0; --i) {
      const Philox::Block w = random(static_cast<uint64_t>(i));
      const uint64_t word = uint64_t{w[0]} << 32 | w[1];
      std::swap(order[i], order[static_cast<unsigned __int128>(word) * static_cast<uint64_t>(i + 1) >> 64]);
    }
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), x.shape()));
    with_storage(x.dtype(), [&]<class S>() {
      const S* in = static_cast<const S*>(x.raw());
      S* out = static_cast<S*>(y.mutable_raw());
      for (int64_t i = 0; i < rows; ++i) std::copy_n(in + order[i] * width, width, out + i * width);
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  Streams streams_;
};

template <class T> class Multinomial final : public ComputeKernel {
 public:
  explicit Multinomial(const KernelInit& init) : streams_(init), out_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    const Tensor& logits = c.input(0);
    if (logits.rank() != 2) return invalid_argument("logits must be a matrix, not {}", logits.shape().str());
    TROUPE_ASSIGN(const int64_t n, int_scalar(c.input(1), "num_samples"));
    const int64_t rows = logits.shape()[0], classes = logits.shape()[1];
    if (n < 0 || classes == 0) return invalid_argument("{} samples of {} classes", n, classes);
    TROUPE_ASSIGN(const Shape shape, Shape::make(std::array{rows, n}));
    std::vector<int64_t> drawn;
    const Philox random = streams_.next(c);
    std::vector<double> sums(static_cast<size_t>(classes));
    for (int64_t r = 0; r < rows; ++r) {
      const T* x = logits.data<T>() + r * classes;
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t k = 0; k < classes; ++k) largest = std::max(largest, static_cast<double>(widen(x[k])));
      for (int64_t k = 0; k < classes; ++k) sums[k] = sum += std::exp(static_cast<double>(widen(x[k])) - largest);
      if (!(sum > 0) || !std::isfinite(sum)) return invalid_argument("logits of row {} are no distribution", r);
      for (int64_t i = 0; i < n; ++i) {
        const Philox::Block w = random(static_cast<uint64_t>(r * n + i));
        const auto at = std::ranges::upper_bound(sums, uniform_double(w[0], w[1]) * sum) - sums.begin();
        drawn.push_back(std::min<int64_t>(at, classes - 1));
      }
    }
    TROUPE_ASSIGN(Tensor y, int_tensor(out_, drawn, shape));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  Streams streams_;
  const DType out_;
};

Status shape_of_input(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 1).status());
  if (const auto sizes = c.constant_input(0)) {
    TROUPE_ASSIGN(const Shape shape, shape_from(*sizes, "shape"));
    c.set_output(0, shape);
  } else if (c.input(0).has_rank() && c.input(0)[0] >= 0 && c.input(0)[0] <= kMaxRank) {
    c.set_output(0, PartialShape::of_rank(static_cast<int>(c.input(0)[0])));
  }
  return {};
}

const char* const kRandom = "it is random";

template <class Distribution>
void add_random(OpRegistry& ops, KernelRegistry& kernels, const char* op, const char* stateless, const char* what) {
  const std::string dtype = type_attr("dtype", FloatTypes{}), index = type_attr("T", IndexTypes{}, "int32");
  ops.add(
      OpDef(op)
          .input("shape: T")
          .output("output: dtype")
          .attr("seed: int = 0")
          .attr("seed2: int = 0")
          .attr(dtype)
          .attr(index)
          .shape(shape_of_input)
          .stateful()
          .doc(std::string(what) + " The numbers follow from seed, seed2 and the count of the node's runs; seeds of 0 "
                                   "stand for a seed that nobody knows."),
      not_differentiable(kRandom));
  add_cpu_kernels<Random<Distribution>::template Kernel>(kernels, op, FloatTypes{}, "dtype");
  ops.add(OpDef(stateless)
              .input("shape: T")
              .input("seed: Tseed")
              .output("output: dtype")
              .attr(type_attr("dtype", FloatTypes{}, "float32"))
              .attr(index)
              .attr(type_attr("Tseed", IndexTypes{}, "int64"))
              .shape(shape_of_input)
              .doc(std::string(what) + " The numbers follow from the two numbers of `seed` alone."),
          not_differentiable(kRandom));
  add_cpu_kernels<Random<Distribution>::template Stateless>(kernels, stateless, FloatTypes{}, "dtype");
}

}  // namespace

void register_random_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_random<Uniform>(ops, kernels, "RandomUniform", "StatelessRandomUniform", "Numbers uniform in [0, 1).");
  add_random<Normal>(ops, kernels, "RandomStandardNormal", "StatelessRandomNormal", "Standard normal numbers.");
  add_random<Truncated>(ops, kernels, "TruncatedNormal", "StatelessTruncatedNormal",
                        "Standard normal numbers, those beyond two standard deviations drawn again.");
  ops.add(OpDef("RandomUniformInt")
              .input("shape: T")
              .input("minval: Tout")
              .input("maxval: Tout")
              .output("output: Tout")
              .attr("seed: int = 0")
              .attr("seed2: int = 0")
              .attr(type_attr("Tout", IndexTypes{}))
              .attr(type_attr("T", IndexTypes{}, "int32"))
              .shape(shape_of_input)
              .stateful()
              .doc("Integers uniform in [minval, maxval). Error where that is empty."),
          not_differentiable(kRandom));
  add_cpu_kernels<UniformInt>(kernels, "RandomUniformInt", IndexTypes{}, "Tout");
  ops.add(OpDef("RandomShuffle")
              .input("value: T")
              .output("output: T")
              .attr("seed: int = 0")
              .attr("seed2: int = 0")
              .attr("T: type")
              .shape(unchanged_shape)
              .stateful()
              .doc("The rows of the first dimension in random order."),
          not_differentiable(kRandom));
  kernels.add<Shuffle>("RandomShuffle", DeviceKind::kCpu, {});
  ops.add(OpDef("Multinomial")
              .input("logits: T")
              .input("num_samples: int32")
              .output("output: output_dtype")
              .attr("seed: int = 0")
              .attr("seed2: int = 0")
              .attr(type_attr("T", FloatTypes{}))
              .attr(type_attr("output_dtype", IndexTypes{}, "int64"))
              .shape([](ShapeContext& c) -> Status {
                TROUPE_ASSIGN(const PartialShape logits, c.with_rank(0, 2));
                const auto n = c.constant_input(1);
                PartialShape out{logits[0], -1};
                if (n) {
                  TROUPE_ASSIGN(const int64_t samples, int_scalar(*n, "num_samples"));
                  if (samples < 0) return invalid_argument("{} samples", samples);
                  out.set(1, samples);
                }
                c.set_output(0, out);
                return {};
              })
              .stateful()
              .doc("Classes drawn with probabilities proportional to exp(logits), for each row."),
          not_differentiable(kRandom));
  add_cpu_kernels<Multinomial>(kernels, "Multinomial", FloatTypes{});
}

}  // namespace troupe
