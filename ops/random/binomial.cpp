// SPDX-License-Identifier: Apache-2.0
// How often something of a given probability happens in so many trials: StatelessRandomBinomial,
// StatefulRandomBinomial. Source: Hormann, "The generation of binomial random variates", 1993.
#include <algorithm>
#include <cmath>
#include <limits>

#include "devices/parallel.h"
#include "ops/parts/broadcast.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/strided_copy.h"
#include "ops/parts/type_dispatch.h"
#include "ops/random/draws.h"
#include "ops/random/generator.h"
#include "ops/random/register.h"
#include "ops/random/source.h"

namespace troupe {
namespace {

using CountTypes = TypeList<float, double, float16, int32_t, int64_t>;

/// What draw_rare takes for an element, all but always.
constexpr int64_t kBlocksOfRare = 42;

double log_factorial(double n) {
  int sign = 0;
  return lgamma_r(n + 1, &sign);
}

/// Counts the gaps between what happens, of which there are few.
double draw_rare(Draws& draws, double trials, double p) {
  const double scale = std::log1p(-p);
  double count = 0;
  for (double passed = 0;; ++count) {
    passed += std::ceil(std::log(draws.uniform()) / scale);
    if (!(passed <= trials)) return count;
  }
}

/// Transformed rejection, for trials * p of 10 or more and p of at most 1/2.
double draw_often(Draws& draws, double n, double p) {
  const double deviation = std::sqrt(n * p * (1 - p)), b = 1.15 + 2.53 * deviation, a = -0.0873 + 0.0248 * b + 0.01 * p;
  const double alpha = (2.83 + 5.1 / b) * deviation, odds = std::log(p / (1 - p)), mode = std::floor((n + 1) * p);
  const double at_mode = log_factorial(mode) + log_factorial(n - mode);
  for (;;) {
    const double u = draws.uniform() - 0.5, v = draws.uniform(), edge = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / edge + b) * u + n * p + 0.5);
    if (edge >= 0.07 && v <= 0.92 - 4.2 / b) return k;
    if (!(k >= 0 && k <= n)) continue;
    const double bound = at_mode - log_factorial(k) - log_factorial(n - k) + (k - mode) * odds;
    if (std::log(v * alpha / (a / (edge * edge) + b)) <= bound) return k;
  }
}

/// Number `place` of a result.
double draw_binomial(const Philox& random, int64_t place, double trials, double p) {
  if (trials <= 0 || p <= 0) return 0;
  if (p >= 1) return trials;
  if (p > 0.5) return trials - draw_binomial(random, place, trials, 1 - p);
  const bool rare = trials * p < 10;
  Draws draws(random.from(static_cast<uint64_t>(place * (rare ? kBlocksOfRare : kBlocksOfElement))));
  return rare ? draw_rare(draws, trials, p) : draw_often(draws, trials, p);
}

/// The elements of x, repeated to `shape`.
Result<std::vector<double>> repeated(const KernelContext& c, const Tensor& x, const Shape& shape) {
  TROUPE_ASSIGN(const Tensor whole, broadcast_to(x, shape, c.device().allocator, 1));
  std::vector<double> out(static_cast<size_t>(whole.elements()));
  with_type(whole.dtype(), CountTypes{}, [&]<class T>() {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(widen(whole.data<T>()[i]));
  });
  return out;
}

/// The shape of a result, and how it ends: with what counts and probabilities broadcast to.
struct Samples {
  Shape shape, both;
  static Result<Samples> of(const Tensor& sizes, const Tensor& counts, const Tensor& probs) {
    TROUPE_ASSIGN(const Shape shape, shape_from(sizes, "shape"));
    TROUPE_ASSIGN(const Shape both, broadcast(counts.shape(), probs.shape()));
    if (both.rank() <= shape.rank() && std::equal(both.begin(), both.end(), shape.end() - both.rank()))
      return Samples{shape, both};
    return invalid_argument("shape {} does not end with {}, that of counts and probs", shape.str(), both.str());
  }
  /// By how many numbers a generator goes on for them, in TensorFlow.
  int64_t uses() const {
    const int64_t of = both.elements(), each = of ? shape.elements() / of : 0;
    return of * 2 * 100 * (each + 3) / 4;
  }
};

class Binomial final : public ComputeKernel {
 public:
  explicit Binomial(const KernelInit& init) : source_(init), dtype_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    const Tensor &counts = c.input(1 + source_.inputs()), &probs = c.input(2 + source_.inputs());
    TROUPE_ASSIGN(const Samples samples, Samples::of(c.input(0), counts, probs));
    const Shape &shape = samples.shape, &both = samples.both;
    TROUPE_ASSIGN(const auto trials, repeated(c, counts, both));
    TROUPE_ASSIGN(const auto shares, repeated(c, probs, both));
    for (size_t i = 0; i < trials.size(); ++i)
      if (!std::isfinite(trials[i]) || std::isnan(shares[i]))
        return invalid_argument("{} trials of probability {} at position {}", trials[i], shares[i], i);
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_, shape));
    TROUPE_ASSIGN(const Philox random, source_.next(c, shape.elements() * kBlocksOfElement));
    const auto of = static_cast<int64_t>(trials.size()), times = of ? shape.elements() / of : 0;
    with_type(dtype_, CountTypes{}, [&]<class T>() {
      T* out = y.mutable_data<T>();
      parallel_for(c.threads(), shape.elements(), kDearGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t place = i % of * times + i / of;  // all of a probability, then those of the next
          const auto at = static_cast<size_t>(i % of);
          out[i] = to_number<T>(draw_binomial(random, place, std::floor(trials[at]), shares[at]));
        }
      });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  /// The nearest number that T holds.
  template <class T> static T to_number(double x) {
    if constexpr (std::is_integral_v<T>)
      return x >= static_cast<double>(std::numeric_limits<T>::max()) ? std::numeric_limits<T>::max()
                                                                     : static_cast<T>(x);
    else return narrow<T>(static_cast<Arithmetic<T>>(x));
  }

  RandomSource source_;
  const DType dtype_;
};

}  // namespace

void register_random_binomial_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string what =
      "How often something of probability `probs` happens in `counts` trials; `shape` ends with what these two "
      "broadcast to.";
  OpDef stateless("StatelessRandomBinomial");
  stateless.input("shape: S");
  add_random_inputs(stateless, RandomForm::kSeed);
  stateless.shape(shape_of_input).doc(what + random_doc(RandomForm::kSeed));
  for (OpDef op : {stateless, generator_op("StatefulRandomBinomial", what, "S")})
    ops.add(op.input("counts: T")
                .input("probs: T")
                .output("output: dtype")
                .attr(type_attr("S", IndexTypes{}))
                .attr(type_attr("T", CountTypes{}, "float64"))
                .attr(type_attr("dtype", CountTypes{}, "int64")),
            not_differentiable(kRandom));
  kernels.add<Binomial>("StatelessRandomBinomial", DeviceKind::kCpu, {});
  kernels.add("StatefulRandomBinomial", DeviceKind::kCpu, {},
              generator_kernel<Binomial>([](auto inputs) -> Result<int64_t> {
                TROUPE_ASSIGN(const Samples samples, Samples::of(inputs[2], inputs[3], inputs[4]));
                return samples.uses();
              }));
}

}  // namespace troupe
