// SPDX-License-Identifier: Apache-2.0
// Random numbers of distributions with a parameter for each: RandomGamma, RandomPoisson, RandomPoissonV2 and their
// stateless forms.
#include <algorithm>
#include <cmath>
#include <limits>

#include "devices/parallel.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/random/draws.h"
#include "ops/random/register.h"
#include "ops/random/source.h"

namespace troupe {
namespace {

using GammaTypes = TypeList<float, double, float16>;
using PoissonTypes = TypeList<float, double, float16, int32_t, int64_t>;

/// Source: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
struct Gamma {
  static constexpr const char* name = "alpha";
  static double draw(Draws& draws, double alpha) {
    if (alpha == 0) return 0;
    if (alpha == 1) return -std::log1p(-draws.uniform());
    const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, scale = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = draws.normal(), root = 1 + scale * x, v = root * root * root;
      if (v <= 0) continue;
      const double u = draws.uniform();
      if (u >= 1 - 0.0331 * x * x * x * x && std::log(u) >= 0.5 * x * x + d * (1 - v + std::log(v))) continue;
      return alpha < 1 ? d * v * std::pow(draws.uniform(), 1 / alpha) : d * v;
    }
  }
};

/// Sources: Knuth, "Seminumerical algorithms", for small rates; Hormann, "The transformed rejection method for
/// generating Poisson random variables", 1993, for others.
struct Poisson {
  static constexpr const char* name = "rate";
  static double draw(Draws& draws, double rate) {
    if (rate < 10) {
      double product = draws.uniform(), count = 0;
      for (const double least = std::exp(-rate); product > least; ++count) product *= draws.uniform();
      return count;
    }
    const double b = 0.931 + 2.53 * std::sqrt(rate), a = -0.059 + 0.02483 * b;
    for (;;) {
      const double u = draws.uniform() - 0.5, v = draws.uniform(), edge = 0.5 - std::abs(u);
      const double k = std::floor((2 * a / edge + b) * u + rate + 0.43);
      if (edge >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2)) return k;
      if (!(k >= 0) || (edge < 0.013 && v > edge)) continue;
      int sign = 0;
      const double scaled = std::log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (edge * edge) + b));
      if (scaled <= k * std::log(rate) - rate - lgamma_r(k + 1, &sign)) return k;
    }
  }
};

template <class T> T rounded_to(double x) {
  if constexpr (std::is_integral_v<T>)
    return x >= static_cast<double>(std::numeric_limits<T>::max()) ? std::numeric_limits<T>::max() : static_cast<T>(x);
  else return narrow<T>(static_cast<Arithmetic<T>>(x));
}

/// For each element of the last input, the parameters, as many numbers as input 0 tells: [shape..., parameters...] of
/// a stateful op; of a stateless one input 0 is the whole shape, which ends with the parameters'.
template <class Distribution> class ByParameter final : public ComputeKernel {
 public:
  explicit ByParameter(const KernelInit& init)
      : source_(init), dtype_(init.output_dtypes[0]), whole_(!init.attrs->find("seed2")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(std::vector<int64_t> sizes, int_values(c.input(0), "shape"));
    const Tensor& parameters = c.input(c.num_inputs() - 1);
    if (!whole_) sizes.insert(sizes.end(), parameters.shape().begin(), parameters.shape().end());
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    if (!std::ranges::equal(shape.dims().last(static_cast<size_t>(std::min(shape.rank(), parameters.rank()))),
                            parameters.shape().dims()))
      return invalid_argument("shape {} does not end with {}, that of the parameters", shape.str(),
                              parameters.shape().str());
    std::vector<double> values(static_cast<size_t>(parameters.elements()));
    with_type(parameters.dtype(), PoissonTypes{}, [&]<class T>() {
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(widen(parameters.data<T>()[i]));
    });
    for (size_t i = 0; i < values.size(); ++i)
      if (!(values[i] >= 0) || std::isinf(values[i]))
        return invalid_argument("{} {} at position {} is not a finite number of 0 or more", Distribution::name,
                                values[i], i);
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_, shape));
    TROUPE_ASSIGN(const Philox random, source_.next(c, shape.elements() * kBlocksOfElement));
    const int64_t of = parameters.elements(), times = of ? shape.elements() / of : 0;
    with_type(dtype_, PoissonTypes{}, [&]<class T>() {
      T* out = y.mutable_data<T>();
      parallel_for(c.threads(), shape.elements(), kDearGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t place = i % of * times + i / of;  // all of a parameter, then those of the next
          Draws draws(random.from(static_cast<uint64_t>(place * kBlocksOfElement)));
          out[i] = rounded_to<T>(Distribution::draw(draws, values[static_cast<size_t>(i % of)]));
        }
      });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  RandomSource source_;
  const DType dtype_;
  const bool whole_;
};

Status by_parameter_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(shape_of_input(c));
  if (!c.attrs().find("seed2")) return {};  // input 0 is all of it
  const PartialShape& parameters = c.input(c.num_inputs() - 1);
  const auto sizes = c.constant_input(0);
  if (!sizes || !parameters.has_rank()) {
    c.set_output(0, PartialShape());
    return {};
  }
  TROUPE_ASSIGN(std::vector<int64_t> dims, int_values(*sizes, "shape"));
  dims.insert(dims.end(), parameters.dims().begin(), parameters.dims().end());
  TROUPE_ASSIGN(PartialShape out, PartialShape::make(dims));
  c.set_output(0, std::move(out));
  return {};
}

/// Samples change with alpha as RandomGammaGrad tells; the sum over those of one alpha.
Status gamma_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const int i = c.num_inputs() - 1;
  const Output alpha = c.input(i), sample = c.output(0);
  Output partial;
  if (alpha.dtype() == DType::kFloat16) {
    const auto cast = [&](Output x, DType to) { return c.op("Cast", {x}, {{"DstT", to}}); };
    const DType wide = DType::kFloat32;
    partial = cast(c.op("RandomGammaGrad", {cast(alpha, wide), cast(sample, wide)}), alpha.dtype());
  } else {
    partial = c.op("RandomGammaGrad", {alpha, sample});
  }
  c.set_dx(i, sum_to(c, c.op("Mul", {c.dy(0), partial}), alpha, sample));
  return {};
}

const char* shape_doc(RandomForm form) {
  return form == RandomForm::kStateful ? "For each parameter as many as `shape` says: [shape...,parameters...]."
                                       : "`shape` ends with the parameters' shape.";
}

void add_gamma(OpRegistry& ops, KernelRegistry& kernels, const char* name, RandomForm form) {
  const bool stateful = form == RandomForm::kStateful;
  const std::string type = stateful ? "T" : "dtype", index = stateful                    ? "S"
                                                             : form == RandomForm::kSeed ? "T"
                                                                                         : "shape_dtype";
  OpDef op(name);
  op.input("shape: " + index);
  add_random_inputs(op, form);
  op.input("alpha: " + type).output("output: " + type).attr(type_attr(type, GammaTypes{}));
  ops.add(
      op.attr(type_attr(index, IndexTypes{}, stateful ? "" : "int32"))
          .shape(by_parameter_shape)
          .doc(std::string("Numbers of Gamma distributions of shape alpha and rate 1. Error for an alpha below 0. ") +
               shape_doc(form) + random_doc(form)),
      gradient(gamma_gradient));
  kernels.add<ByParameter<Gamma>>(name, DeviceKind::kCpu, {});
}

}  // namespace

void register_random_gamma_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_gamma(ops, kernels, "RandomGamma", RandomForm::kStateful);
  add_gamma(ops, kernels, "StatelessRandomGammaV2", RandomForm::kSeed);
  add_gamma(ops, kernels, "StatelessRandomGammaV3", RandomForm::kKey);
  const std::string poisson = "Numbers of Poisson distributions. Error for a rate below 0. ";
  for (const RandomForm form : {RandomForm::kStateful, RandomForm::kSeed}) {
    const bool stateful = form == RandomForm::kStateful;
    const std::string name = stateful ? "RandomPoissonV2" : "StatelessRandomPoisson", index = stateful ? "S" : "T";
    const std::string rate = stateful ? "R" : "Rtype";
    OpDef op(name);
    op.input("shape: " + index);
    add_random_inputs(op, form);
    op.input((stateful ? "rate: " : "lam: ") + rate).output("output: dtype");
    op.attr(type_attr(rate, PoissonTypes{}, stateful ? "float64" : ""))
        .attr(type_attr("dtype", PoissonTypes{}, stateful ? "int64" : ""));
    ops.add(op.attr(type_attr(index, IndexTypes{}, stateful ? "" : "int32"))
                .shape(by_parameter_shape)
                .doc(poisson + shape_doc(form) + random_doc(form)),
            not_differentiable(kRandom));
    kernels.add<ByParameter<Poisson>>(name, DeviceKind::kCpu, {});
  }
  OpDef first("RandomPoisson");
  first.input("shape: S");
  add_random_inputs(first, RandomForm::kStateful);
  ops.add(first.input("rate: dtype")
              .output("output: dtype")
              .attr(type_attr("S", IndexTypes{}))
              .attr(type_attr("dtype", GammaTypes{}))
              .shape(by_parameter_shape)
              .doc(poisson + "What graphs had before RandomPoissonV2. " + shape_doc(RandomForm::kStateful) +
                   random_doc(RandomForm::kStateful)),
          not_differentiable(kRandom));
  kernels.add<ByParameter<Poisson>>("RandomPoisson", DeviceKind::kCpu, {});
}

}  // namespace troupe
