// SPDX-License-Identifier: Apache-2.0
// Random floats from Philox: RandomUniform, RandomStandardNormal, TruncatedNormal, their stateless forms and those
// that draw from a generator. The numbers do not depend on threads.
#include <algorithm>

#include "devices/parallel.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/type_dispatch.h"
#include "ops/random/generator.h"
#include "ops/random/register.h"
#include "ops/random/source.h"

namespace troupe {
namespace {

/// Groups [begin, end) of four elements each; out is the first of them.
template <class Distribution, class T>
[[gnu::always_inline]] inline void draw_groups_body(const Philox& random, int64_t begin, int64_t end, T* out) {
  for (int64_t g = begin; g < end; ++g) Distribution::group(random, g, out + (g - begin) * 4);
}
TROUPE_AVX2 void uniform_floats_avx2(const Philox& random, int64_t begin, int64_t end, float* out) {
  draw_groups_body<distributions::Uniform>(random, begin, end, out);
}
template <class Distribution, class T> void draw_groups(const Philox& random, int64_t begin, int64_t end, T* out) {
  if constexpr (std::is_same_v<Distribution, distributions::Uniform> && std::is_same_v<T, float>)
    if (has_avx2()) return uniform_floats_avx2(random, begin, end, out);
  draw_groups_body<Distribution>(random, begin, end, out);
}

template <class Distribution, class T>
Result<Tensor> fill(KernelContext& c, RandomSource& source, const Tensor& sizes) {
  TROUPE_ASSIGN(const Shape shape, shape_from(sizes, "shape"));
  TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, shape));
  TROUPE_ASSIGN(const Philox random, source.next(c, shape.elements() * kBlocksOfElement));
  T* out = y.mutable_data<T>();
  const int64_t n = shape.elements(), whole = n / 4;
  parallel_for(c.threads(), whole, kDearGrain,
               [&](int64_t begin, int64_t end) { draw_groups<Distribution>(random, begin, end, out + begin * 4); });
  if (n % 4 != 0) {
    T last[4];
    draw_groups<Distribution>(random, whole, whole + 1, last);
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
  add_random<distributions::Uniform>(ops, kernels, "RandomUniform", "StatelessRandomUniform", "StatefulUniform",
                                     "Numbers uniform in [0, 1).");
  add_random<distributions::Normal>(ops, kernels, "RandomStandardNormal", "StatelessRandomNormal",
                                    "StatefulStandardNormalV2", "Standard normal numbers.");
  add_random<distributions::Truncated>(ops, kernels, "TruncatedNormal", "StatelessTruncatedNormal",
                                       "StatefulTruncatedNormal",
                                       "Standard normal numbers, those beyond two standard deviations drawn again.");
}

}  // namespace troupe
