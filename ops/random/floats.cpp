// SPDX-License-Identifier: Apache-2.0
// Random floats from Philox: RandomUniform, RandomStandardNormal, TruncatedNormal, their stateless forms and those
// that draw from a generator. The numbers do not depend on threads.
#include <algorithm>
#include <array>
#include <cmath>

#include "devices/parallel.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/random/generator.h"
#include "ops/random/register.h"
#include "ops/random/source.h"

namespace troupe {
namespace {

// Distributions make blocks [begin, end) of four elements each; out is the first of them.

template <class T>
[[gnu::always_inline]] inline void uniform_body(const Philox& random, int64_t begin, int64_t end, T* out) {
  for (int64_t g = begin; g < end; ++g) {
    const Philox::Block w = random(static_cast<uint64_t>(g));
    for (int k = 0; k < 4; ++k) {
      if constexpr (std::is_same_v<T, float16>)
        out[(g - begin) * 4 + k] = T(static_cast<float>(w[k] & 0x3ff) * 0x1p-10f);
      else if constexpr (std::is_same_v<T, bfloat16>)
        out[(g - begin) * 4 + k] = T(static_cast<float>(w[k] & 0x7f) * 0x1p-7f);
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

struct Normal {
  template <class T> static void blocks(const Philox& random, int64_t begin, int64_t end, T* out) {
    constexpr int n = kOfBlock<Arithmetic<T>>;
    for (int64_t g = begin * 4 / n; g < end * 4 / n; ++g)
      for (const auto z : normals<Arithmetic<T>>(random(static_cast<uint64_t>(g)))) *out++ = narrow<T>(z);
  }
};

/// Normal numbers beyond two standard deviations are drawn again, for as many numbers as a block makes at a time.
struct Truncated {
  template <class T> static void blocks(const Philox& random, int64_t begin, int64_t end, T* out) {
    constexpr int n = kOfBlock<Arithmetic<T>>;
    constexpr int64_t left = kBlocksOfElement * n / 4;
    for (int64_t g = begin * 4 / n; g < end * 4 / n; ++g) {
      int filled = 0;
      for (int64_t attempt = g * left; filled < n; ++attempt)
        for (const auto z : normals<Arithmetic<T>>(random(static_cast<uint64_t>(attempt))))
          if (std::abs(z) < 2 && filled < n) ++filled, *out++ = narrow<T>(z);
    }
  }
};

template <class Distribution, class T>
Result<Tensor> fill(KernelContext& c, RandomSource& source, const Tensor& sizes) {
  TROUPE_ASSIGN(const Shape shape, shape_from(sizes, "shape"));
  TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, shape));
  TROUPE_ASSIGN(const Philox random, source.next(c, shape.elements() * kBlocksOfElement));
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
      TROUPE_ASSIGN(Tensor y, (fill<Distribution, T>(c, source_, c.input(0))));
      c.set_output(0, std::move(y));
      return {};
    }

   private:
    RandomSource source_;
  };
};

/// The forms of an op: `op`, `stateless` with and without V2, and `generator`, whose state is a variable.
template <class Distribution>
void add_random(OpRegistry& ops, KernelRegistry& kernels, const std::string& op, const std::string& stateless,
                const std::string& generator, const char* what) {
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
  ops.add(generator_op(generator, what)
              .output("output: dtype")
              .attr(type_attr("dtype", FloatTypes{}, "float32"))
              .attr(type_attr("shape_dtype", IndexTypes{}, "int64")),
          not_differentiable(kRandom));
  add_generator_kernels<Random<Distribution>::template Kernel>(kernels, generator, FloatTypes{});
}

}  // namespace

void register_random_float_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_random<Uniform>(ops, kernels, "RandomUniform", "StatelessRandomUniform", "StatefulUniform",
                      "Numbers uniform in [0, 1).");
  add_random<Normal>(ops, kernels, "RandomStandardNormal", "StatelessRandomNormal", "StatefulStandardNormalV2",
                     "Standard normal numbers.");
  add_random<Truncated>(ops, kernels, "TruncatedNormal", "StatelessTruncatedNormal", "StatefulTruncatedNormal",
                        "Standard normal numbers, those beyond two standard deviations drawn again.");
}

}  // namespace troupe
