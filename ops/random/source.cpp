// SPDX-License-Identifier: Apache-2.0
// Keys and streams of random ops.
#include "ops/random/source.h"

#include "ops/parts/index_tensors.h"

namespace troupe {

namespace {

/// Spreads seeds that differ in few bits (the constant is TensorFlow's).
constexpr uint64_t kScramblingKey = 0x02461e293ec8f720;

uint64_t joined_words(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

}  // namespace

Result<KeyAndCounter> scrambled(const Tensor& seed) {
  if (seed.rank() != 1 || seed.elements() != 2)
    return invalid_argument("seed must have two numbers, not the shape {}", seed.shape().str());
  uint64_t seeds[2] = {};
  with_type(seed.dtype(), TypeList<int32_t, int64_t, uint32_t, uint64_t>{}, [&]<class T>() {
    for (int i : {0, 1}) seeds[i] = static_cast<uint64_t>(seed.data<T>()[i]);
  });
  const Philox::Block w = Philox(kScramblingKey, seeds[1], seeds[0])(0);
  return KeyAndCounter{joined_words(w[0], w[1]), {0, joined_words(w[2], w[3])}};
}

RandomSource::RandomSource(const KernelInit& init, int first)
    : form_(init.attrs->find("seed2")   ? RandomForm::kStateful
            : init.attrs->find("Tseed") ? RandomForm::kSeed
                                        : RandomForm::kKey),
      first_(first) {
  if (form_ == RandomForm::kStateful) streams_ = std::make_unique<Streams>(init);
}

Result<Philox> RandomSource::next(const KernelContext& context, int64_t blocks) {
  if (form_ == RandomForm::kStateful) return streams_->next(context, blocks);
  if (form_ == RandomForm::kSeed) {
    TROUPE_ASSIGN(const KeyAndCounter from, scrambled(context.input(first_)));
    return Philox(from.key, from.counter[1], from.counter[0]);
  }
  const Tensor &key = context.input(first_), &counter = context.input(first_ + 1);
  TROUPE_ASSIGN(const int64_t algorithm, int_scalar(context.input(first_ + 2), "alg"));
  TROUPE_RETURN_IF_ERROR(check_algorithm(algorithm));
  if (key.rank() != 1 || key.dim(0) != 1 || counter.rank() != 1 || counter.dim(0) < 2)
    return invalid_argument("key {} and counter {} must be [1] and [2]", key.shape().str(), counter.shape().str());
  const uint64_t* at = counter.data<uint64_t>();
  return Philox(*key.data<uint64_t>(), at[1], at[0]);
}

Status check_algorithm(int64_t number) {
  if (number == kPhilox || number == kAutomatic) return {};
  return invalid_argument("alg {} is not Philox (1) or automatic (3)", number);
}

int RandomSource::inputs() const { return form_ == RandomForm::kStateful ? 0 : form_ == RandomForm::kSeed ? 1 : 3; }

void add_random_inputs(OpDef& op, RandomForm form) {
  if (form == RandomForm::kStateful) op.attr("seed: int = 0").attr("seed2: int = 0").stateful();
  else if (form == RandomForm::kSeed) op.input("seed: Tseed").attr(type_attr("Tseed", IndexTypes{}, "int64"));
  else op.input("key: uint64").input("counter: uint64").input("alg: int32");
}

const char* random_doc(RandomForm form) {
  switch (form) {
    case RandomForm::kStateful:
      return " The numbers follow from seed, seed2 and what the node drew before, as TensorFlow's do; seeds of 0 stand "
             "for a seed that nobody knows.";
    case RandomForm::kSeed: return " The numbers follow from the two numbers of `seed` alone, as TensorFlow's do.";
    default:
      return " The numbers follow from key and counter alone, as TensorFlow's do; alg is 1 (Philox) or 3 (automatic, "
             "the "
             "same).";
  }
}

Status shape_of_input(ShapeContext& c) { return shape_said_by(c, 0); }

Status shape_said_by(ShapeContext& c, int input) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(input, 1).status());
  if (const auto sizes = c.constant_input(input)) {
    TROUPE_ASSIGN(const Shape shape, shape_from(*sizes, "shape"));
    c.set_output(0, shape);
  } else {
    c.set_output(0, c.sizes_input(input));
  }
  return {};
}

}  // namespace troupe
