// SPDX-License-Identifier: Apache-2.0
// Random floats from Philox: RandomUniform, RandomStandardNormal, TruncatedNormal and their stateless forms. The
// numbers do not depend on threads.
#include <algorithm>
#include <array>
#include <cmath>

#include "devices/parallel.h"
#include "ops/all.h"
#include "ops/index_tensors.h"
#include "ops/random_source.h"
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
    explicit Kernel(const KernelInit& init) : source_(init) {}
    Status compute(KernelContext& c) override {
      TROUPE_ASSIGN(const Philox random, source_.next(c));
      TROUPE_ASSIGN(Tensor y, (fill<Distribution, T>(c, random, c.input(0))));
      c.set_output(0, std::move(y));
      return {};
    }

   private:
    RandomSource source_;
  };
};

/// The three forms of an op: `op`, and `stateless` with and without V2.
template <class Distribution>
void add_random(OpRegistry& ops, KernelRegistry& kernels, const std::string& op, const std::string& stateless,
                const char* what) {
  for (const RandomForm form : {RandomForm::kStateful, RandomForm::kSeed, RandomForm::kKey}) {
    const bool stateful = form == RandomForm::kStateful, key = form == RandomForm::kKey;
    const std::string name = stateful ? op : key ? stateless + "V2" : stateless, index = key ? "Tshape" : "T";
    OpDef def(name);
    def.input("shape: " + index).output("output: dtype");
    add_random_inputs(def, form);
    ops.add(def.attr(type_attr("dtype", FloatTypes{}, stateful ? "" : "float32"))
                .attr(type_attr(index, IndexTypes{}, "int32"))
                .shape(shape_of_input)
                .doc(std::string(what) + random_doc(form)),
            not_differentiable(kRandom));
    add_cpu_kernels<Random<Distribution>::template Kernel>(kernels, name, FloatTypes{}, "dtype");
  }
}

}  // namespace

void register_random_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_random<Uniform>(ops, kernels, "RandomUniform", "StatelessRandomUniform", "Numbers uniform in [0, 1).");
  add_random<Normal>(ops, kernels, "RandomStandardNormal", "StatelessRandomNormal", "Standard normal numbers.");
  add_random<Truncated>(ops, kernels, "TruncatedNormal", "StatelessTruncatedNormal",
                        "Standard normal numbers, those beyond two standard deviations drawn again.");
  register_random_integer_ops(ops, kernels);
  register_random_gamma_ops(ops, kernels);
  register_random_binomial_ops(ops, kernels);
}

}  // namespace troupe
