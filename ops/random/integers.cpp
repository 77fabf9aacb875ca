// SPDX-License-Identifier: Apache-2.0
// Random integers and orders: RandomUniformInt, RandomShuffle, Multinomial and their stateless forms, and the keys and
// counters of these.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "devices/parallel.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/random/draws.h"
#include "ops/random/generator.h"
#include "ops/random/int_range.h"
#include "ops/random/register.h"
#include "ops/random/source.h"

namespace troupe {
namespace {

/// Integers of [minval, maxval), or of all that T holds where there are no such inputs.
template <class T> class UniformInt final : public ComputeKernel {
 public:
  explicit UniformInt(const KernelInit& init) : source_(init) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Shape shape, shape_from(c.input(0), "shape"));
    TROUPE_ASSIGN(const IntRange range, int_range<T>(c, 1 + source_.inputs(), shape.elements()));
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, shape));
    TROUPE_ASSIGN(const Philox random, source_.next(c, shape.elements() * kBlocksOfElement));
    T* out = y.mutable_data<T>();
    constexpr int64_t n = kIntsOfBlock<T>;
    parallel_for(c.threads(), (shape.elements() + n - 1) / n, kDearGrain, [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) {
        const Philox::Block w = random(static_cast<uint64_t>(g));
        for (int64_t i = g * n; i < std::min((g + 1) * n, shape.elements()); ++i)
          out[i] = int_of_block<T>(w, static_cast<int>(i % n), range);
      }
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  RandomSource source_;
};

class Shuffle final : public ComputeKernel {
 public:
  explicit Shuffle(const KernelInit& init) : source_(init) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() == 0 || x.elements() <= 1 || x.dim(0) <= 1) {
      c.set_output(0, x);
      return {};
    }
    const int64_t rows = x.shape()[0], width = x.elements() / rows;
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), x.shape()));
    TROUPE_ASSIGN(const Philox random, source_.next(c, (rows + 2) / 4));
    std::vector<int64_t> order(static_cast<size_t>(rows));
    std::iota(order.begin(), order.end(), int64_t{0});
    Words words(random);
    for (int64_t i = 0; i + 1 < rows; ++i) std::swap(order[i], order[i + words.word() % (rows - i)]);
    with_storage(x.dtype(), [&]<class S>() {
      const S* in = static_cast<const S*>(x.raw());
      S* out = static_cast<S*>(y.mutable_raw());
      for (int64_t i = 0; i < rows; ++i) std::copy_n(in + order[i] * width, width, out + i * width);
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  RandomSource source_;
};

template <class T> class Multinomial final : public ComputeKernel {
 public:
  explicit Multinomial(const KernelInit& init) : source_(init, 2), out_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    const Tensor& logits = c.input(0);
    if (logits.rank() != 2) return invalid_argument("logits must be a matrix, not {}", logits.shape().str());
    TROUPE_ASSIGN(const int64_t n, int_scalar(c.input(1), "num_samples"));
    const int64_t rows = logits.shape()[0], classes = logits.shape()[1];
    if (n < 0 || classes == 0) return invalid_argument("{} samples of {} classes", n, classes);
    TROUPE_ASSIGN(const Shape shape, Shape::make(std::array{rows, n}));
    TROUPE_ASSIGN(Tensor y, c.allocate(out_, shape));
    TROUPE_ASSIGN(const Philox random, source_.next(c, rows * ((n + 3) / 4 * 4) * 2 * kBlocksOfElement));
    Words words(random);
    const int64_t drawn = y.elements() > 0 ? rows : 0;
    std::vector<double> sums(static_cast<size_t>(drawn > 0 ? classes : 0));
    for (int64_t r = 0; r < drawn; ++r) {
      const T* logit = logits.data<T>() + r * classes;
      const auto x = [&](int64_t k) { return static_cast<double>(widen(logit[k])); };
      double largest = std::numeric_limits<double>::lowest(), sum = 0;
      for (int64_t k = 0; k < classes; ++k)
        if (std::isfinite(x(k))) largest = std::max(largest, x(k));
      for (int64_t k = 0; k < classes; ++k) sums[k] = sum += std::isfinite(x(k)) ? std::exp(x(k) - largest) : 0;
      if (!(sum > 0)) return invalid_argument("logits of row {} are not a distribution", r);
      with_type(out_, IndexTypes{}, [&]<class I>() {
        for (int64_t i = 0; i < n; ++i) {
          const auto at = std::ranges::upper_bound(sums, words.uniform() * sum) - sums.begin();
          y.mutable_data<I>()[r * n + i] = static_cast<I>(std::min<int64_t>(at, classes - 1));
        }
      });
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  RandomSource source_;
  const DType out_;
};

Status multinomial_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape logits, c.with_rank(0, 2));
  PartialShape out{logits[0], -1};
  if (const auto n = c.constant_input(1)) {
    TROUPE_ASSIGN(const int64_t samples, int_scalar(*n, "num_samples"));
    if (samples < 0) return invalid_argument("{} samples", samples);
    TROUPE_ASSIGN(out, PartialShape::make(std::array{logits[0], samples}));
  }
  c.set_output(0, out);
  return {};
}

/// What the stateless ops of the second version take: a key and a counter from the seed, the algorithm, or all.
class KeyCounter final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    if (c.num_inputs() == 1) {
      TROUPE_ASSIGN(const KeyAndCounter from, scrambled(c.input(0)));
      c.set_output(0, Tensor::of<uint64_t>({from.key}));
      c.set_output(1, Tensor::of<uint64_t>({from.counter[0], from.counter[1]}));
    }
    if (c.num_outputs() != 2) c.set_output(c.num_outputs() - 1, Tensor::scalar<int32_t>(kPhilox));
    return {};
  }
};

Status key_counter_shape(ShapeContext& c) {
  if (c.num_outputs() > 1) {
    c.set_output(0, PartialShape{1});
    c.set_output(1, PartialShape{2});
  }
  if (c.num_outputs() != 2) c.set_output(c.num_outputs() - 1, PartialShape::scalar());
  return {};
}

void add_keys(OpRegistry& ops, KernelRegistry& kernels) {
  for (const char* name : {"StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg"}) {
    OpDef op(name);
    op.input("seed: Tseed").output("key: uint64").output("counter: uint64");
    if (op.name().ends_with("Alg")) op.output("alg: int32");
    ops.add(op.attr(type_attr("Tseed", IndexTypes{}, "int64"))
                .shape(key_counter_shape)
                .doc("The key, the counter and the algorithm that two numbers of `seed` stand for in stateless random "
                     "ops."),
            not_differentiable("it gives integers"));
    kernels.add<KeyCounter>(name, DeviceKind::kCpu, {});
  }
  ops.add(OpDef("StatelessRandomGetAlg")
              .output("alg: int32")
              .shape(key_counter_shape)
              .stateful()
              .doc("The number of the algorithm of stateless random ops: 1, Philox."),
          not_differentiable("it gives integers"));
  kernels.add<KeyCounter>("StatelessRandomGetAlg", DeviceKind::kCpu, {});
}

void add_full_integers(OpRegistry& ops, KernelRegistry& kernels, const char* name, RandomForm form) {
  const bool key = form == RandomForm::kKey;
  OpDef op(name);
  op.input(key ? "shape: Tshape" : "shape: T").output("output: dtype");
  if (key) add_random_inputs(op, form);
  else op.input("seed: Tseed").attr(type_attr("Tseed", FullIntTypes{}, "int64"));
  ops.add(op.attr(type_attr("dtype", FullIntTypes{}, "uint64"))
              .attr(type_attr(key ? "Tshape" : "T", IndexTypes{}, "int32"))
              .shape(shape_of_input)
              .doc(std::string("Integers uniform among all that dtype holds.") + random_doc(form)),
          not_differentiable(kRandom));
  add_cpu_kernels<UniformInt>(kernels, name, FullIntTypes{}, "dtype");
}

void add_integers(OpRegistry& ops, KernelRegistry& kernels, const char* name, RandomForm form) {
  const bool stateful = form == RandomForm::kStateful, key = form == RandomForm::kKey;
  const std::string type = stateful ? "Tout" : "dtype", index = key ? "Tshape" : "T";
  OpDef op(name);
  op.input("shape: " + index).output("output: " + type);
  add_random_inputs(op, form);
  op.input("minval: " + type).input("maxval: " + type);
  op.attr(key ? type_attr(type, FullIntTypes{}) : type_attr(type, IndexTypes{}));
  ops.add(op.attr(type_attr(index, IndexTypes{}, "int32"))
              .shape(shape_of_input)
              .doc(std::string("Integers uniform in [minval, maxval). Error where that is empty.") + random_doc(form)),
          not_differentiable(kRandom));
  if (key) add_cpu_kernels<UniformInt>(kernels, name, FullIntTypes{}, type.c_str());
  else add_cpu_kernels<UniformInt>(kernels, name, IndexTypes{}, type.c_str());
}

void add_generator_integers(OpRegistry& ops, KernelRegistry& kernels) {
  for (const bool full : {true, false}) {
    const std::string name = full ? "StatefulUniformFullInt" : "StatefulUniformInt";
    OpDef op = generator_op(name, full ? "Integers uniform among all that dtype holds."
                                       : "Integers uniform in [minval, maxval). Error where that is empty.");
    if (!full) op.input("minval: dtype").input("maxval: dtype");
    op.attr(full ? type_attr("dtype", FullIntTypes{}, "uint64") : type_attr("dtype", IndexTypes{}, "int64"));
    ops.add(op.output("output: dtype").attr(type_attr("shape_dtype", IndexTypes{}, "int64")),
            not_differentiable(kRandom));
  }
  add_generator_kernels<UniformInt>(kernels, "StatefulUniformFullInt", FullIntTypes{});
  add_generator_kernels<UniformInt>(kernels, "StatefulUniformInt", IndexTypes{});
}

}  // namespace

void register_random_integer_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_integers(ops, kernels, "RandomUniformInt", RandomForm::kStateful);
  add_integers(ops, kernels, "StatelessRandomUniformInt", RandomForm::kSeed);
  add_integers(ops, kernels, "StatelessRandomUniformIntV2", RandomForm::kKey);
  add_full_integers(ops, kernels, "StatelessRandomUniformFullInt", RandomForm::kSeed);
  add_full_integers(ops, kernels, "StatelessRandomUniformFullIntV2", RandomForm::kKey);
  add_generator_integers(ops, kernels);
  add_keys(ops, kernels);
  for (const RandomForm form : {RandomForm::kStateful, RandomForm::kKey}) {
    OpDef op(form == RandomForm::kKey ? "StatelessShuffle" : "RandomShuffle");
    op.input("value: T").output("output: T");
    add_random_inputs(op, form);
    const std::string name = op.name();
    ops.add(op.attr("T: type")
                .shape(unchanged_shape)
                .cost(move_cost)
                .doc(std::string("The rows of the first dimension in random order.") + random_doc(form)),
            not_differentiable(kRandom));
    kernels.add<Shuffle>(name, DeviceKind::kCpu, {});
  }
  for (const RandomForm form : {RandomForm::kStateful, RandomForm::kSeed}) {
    OpDef op(form == RandomForm::kSeed ? "StatelessMultinomial" : "Multinomial");
    op.input("logits: T").input("num_samples: int32").output("output: output_dtype");
    add_random_inputs(op, form);
    const std::string name = op.name();
    ops.add(
        op.attr(type_attr("T", FloatTypes{}))
            .attr(type_attr("output_dtype", IndexTypes{}, "int64"))
            .shape(multinomial_shape)
            .doc(std::string("Classes drawn with probabilities proportional to exp(logits), for each row; 0 where a "
                             "logit is not finite.") +
                 random_doc(form)),
        not_differentiable(kRandom));
    add_cpu_kernels<Multinomial>(kernels, name, FloatTypes{});
  }
}

}  // namespace troupe
