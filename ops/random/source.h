// SPDX-License-Identifier: Apache-2.0
// Where a random op's numbers come from: its seeds and runs, a seed that is an input, or a key and a counter.
// Implemented in ops/random/source.cpp.
#pragma once
#include <array>
#include <memory>

#include "ops/parts/type_dispatch.h"
#include "ops/random/streams.h"
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// The three forms of a random op.
enum class RandomForm { kStateful, kSeed, kKey };

/// The generator of each run of a random kernel. Thread-safe. By the form of the op:
///   kStateful (attributes seed, seed2): a function of these and of what the node's runs drew before; in a run that has
///     a random step, of that and of how often the node ran in this run;
///   kSeed (StatelessX; an input `seed` of two integers): a function of the seed alone;
///   kKey (StatelessXV2; inputs key, counter and alg): a function of these.
/// Seeds, keys and counters stand for the same numbers as in TensorFlow (its PhiloxRandom).
class RandomSource {
 public:
  /// `first` is the input that is the seed, or the key, of stateless ops.
  explicit RandomSource(const KernelInit& init, int first = 1);
  /// A generator of which the caller uses no more than `blocks`.
  /// Errors: a seed that is not two integers, a key or counter that is none, an algorithm other than Philox.
  Result<Philox> next(const KernelContext& context, int64_t blocks);
  /// How many inputs, from `first` on, say where numbers come from.
  int inputs() const;

 private:
  const RandomForm form_;
  const int first_;
  std::unique_ptr<Streams> streams_;  // of the stateful form
};

/// A key and a counter, its lower half first.
struct KeyAndCounter {
  uint64_t key;
  std::array<uint64_t, 2> counter;
};
/// Those that the two integers of input `seed` stand for. Errors: other than two.
Result<KeyAndCounter> scrambled(const Tensor& seed);

/// Algorithms of stateless ops by TensorFlow's numbers: Philox, and whichever is best, which is Philox.
inline constexpr int32_t kPhilox = 1, kAutomatic = 3;

/// Adds to an op what its form takes, as inputs or attributes, and what it does beside its result.
void add_random_inputs(OpDef& op, RandomForm form);
/// What docs of the form say of the numbers.
const char* random_doc(RandomForm form);
/// Why random ops have no gradient.
inline constexpr const char* kRandom = "it is random";

/// An error for algorithms other than Philox.
Status check_algorithm(int64_t number);

/// What ops that give any integers give.
using FullIntTypes = TypeList<int32_t, int64_t, uint32_t, uint64_t>;

/// The shape function of output 0 of the shape that input 0 says, or another input.
Status shape_of_input(ShapeContext& c);
Status shape_said_by(ShapeContext& c, int input);

}  // namespace troupe
