// SPDX-License-Identifier: Apache-2.0
// RandomIndexShuffle: a random permutation of [0, max_index], computed one index at a time by a block cipher over the
// next power of two, repeated until it gives an index in range. Sources: Black and Rogaway, "Ciphers with arbitrary
// finite domains", 2002; Beaulieu et al., "The Simon and Speck families of lightweight block ciphers", 2013.
#include <array>
#include <cmath>

#include "ops/parts/type_dispatch.h"
#include "ops/random/register.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

using ShuffleTypes = TypeList<int32_t, int64_t, uint32_t, uint64_t>;
constexpr int64_t kSeedWords = 3;

/// Simon with a key of three words, over words of 8 to 32 bits.
class Simon {
 public:
  Simon(int width, const std::array<uint32_t, kSeedWords>& seed, int64_t rounds)
      : width_(width), mask_((uint64_t{1} << width) - 1) {
    for (const uint32_t word : seed) keys_.push_back(word & mask_);
    uint64_t z = 0x7369f885192c0ef5 & mask_;
    for (int64_t i = kSeedWords; i < rounds; ++i, z >>= 1) {
      const uint64_t last = keys_.back();
      keys_.push_back((0xfffffffc & mask_) ^ (z & 1) ^ keys_[static_cast<size_t>(i - kSeedWords)] ^
                      rotate(last, width_ - 3) ^ rotate(last, width_ - 4));
    }
  }

  /// A permutation of the numbers of two words.
  uint64_t encrypt(uint64_t block) const {
    uint64_t left = block >> width_ & mask_, right = block & mask_;
    for (size_t i = 0; i + 1 < keys_.size(); i += 2) {
      left ^= mix(right) ^ keys_[i];
      right ^= mix(left) ^ keys_[i + 1];
    }
    return left << width_ | right;
  }

 private:
  /// To the left, by at most a word.
  uint64_t rotate(uint64_t x, int by) const { return (x << by | x >> (width_ - by)) & mask_; }
  uint64_t mix(uint64_t x) const { return (rotate(x, 1) & rotate(x, 8)) ^ rotate(x, 2); }

  const int width_;
  const uint64_t mask_;
  std::vector<uint64_t> keys_;
};

uint64_t shuffled(uint64_t index, const std::array<uint32_t, kSeedWords>& seed, uint64_t max_index, int64_t rounds) {
  if (max_index == 0) return 0;
  const int bits = static_cast<int>(std::ceil(std::log2(static_cast<double>(max_index))));
  const Simon cipher(std::max(bits + bits % 2, 16) / 2, seed, rounds);
  do index = cipher.encrypt(index);
  while (index > max_index);
  return index;
}

/// The elements of an integer tensor, as 64 bits each. Error: one is below 0, unless `wrap`.
Result<std::vector<uint64_t>> words_of(const Tensor& t, const char* what, bool wrap = false) {
  std::vector<uint64_t> out;
  Status status;
  with_type(t.dtype(), ShuffleTypes{}, [&]<class T>() {
    for (const T v : t.values<T>()) {
      if (std::is_signed_v<T> && v < T(0) && !wrap) status = invalid_argument("{} must be at least 0, got {}", what, v);
      out.push_back(static_cast<uint64_t>(v));
    }
  });
  TROUPE_RETURN_IF_ERROR(status);
  return out;
}

/// The shape of the output: a scalar of scalars, else a vector. Error: inputs that do not fit one another.
Result<PartialShape> shuffle_shape(const PartialShape& index, const PartialShape& seed, const PartialShape& max_index) {
  if (!index.has_rank() || !seed.has_rank() || !max_index.has_rank()) return PartialShape();
  const bool fits = index.rank() <= 1 && max_index.rank() <= 1 && (seed.rank() == 1 || seed.rank() == 2) &&
                    (seed[seed.rank() - 1] < 0 || seed[seed.rank() - 1] == kSeedWords);
  int64_t n = -1;
  bool one = fits;
  for (const PartialShape* s : {&index, &max_index, &seed}) {
    if (!fits || s->rank() == (s == &seed ? 1 : 0) || (*s)[0] < 0) continue;
    one &= n < 0 || n == (*s)[0];
    n = (*s)[0];
  }
  if (!one)
    return invalid_argument(
        "index {} and max_index {} must be scalars or vectors of one length, and seed {} must have "
        "three numbers, or three for each",
        index.str(), max_index.str(), seed.str());
  if (index.rank() == 0 && max_index.rank() == 0 && seed.rank() == 1) return PartialShape::scalar();
  return PartialShape{n};
}

class RandomIndexShuffle final : public ComputeKernel {
 public:
  explicit RandomIndexShuffle(const KernelInit& init) : rounds_(init.attr<int64_t>("rounds")) {}
  Status compute(KernelContext& c) override {
    if (rounds_ < 4 || rounds_ % 2 != 0 || rounds_ > 1024)
      return invalid_argument("rounds must be an even number in [4, 1024], got {}", rounds_);
    const Tensor &index = c.input(0), &seed = c.input(1), &max_index = c.input(2);
    TROUPE_ASSIGN(const PartialShape shape, shuffle_shape(index.shape(), seed.shape(), max_index.shape()));
    TROUPE_ASSIGN(const std::vector<uint64_t> indices, words_of(index, "index"));
    TROUPE_ASSIGN(const std::vector<uint64_t> seeds, words_of(seed, "seed", true));
    TROUPE_ASSIGN(const std::vector<uint64_t> most, words_of(max_index, "max_index"));
    TROUPE_ASSIGN(Tensor y, c.allocate(index.dtype(), shape.shape()));
    for (int64_t i = 0; i < y.elements(); ++i) {
      const auto at = static_cast<size_t>(i);
      const uint64_t x = indices[index.rank() ? at : 0], last = most[max_index.rank() ? at : 0];
      if (x > last) return invalid_argument("index must be in [0, {}], got {}", last, x);
      const uint64_t* words = seeds.data() + (seed.rank() == 2 ? at * kSeedWords : 0);
      const uint64_t out = shuffled(
          x, {static_cast<uint32_t>(words[0]), static_cast<uint32_t>(words[1]), static_cast<uint32_t>(words[2])}, last,
          rounds_);
      with_type(y.dtype(), ShuffleTypes{}, [&]<class T>() { y.mutable_data<T>()[i] = static_cast<T>(out); });
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const int64_t rounds_;
};

}  // namespace

void register_index_shuffle_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(
      OpDef("RandomIndexShuffle")
          .input("index: dtype")
          .input("seed: Tseed")
          .input("max_index: dtype")
          .output("output: dtype")
          .attr("rounds: int = 4")
          .attr(type_attr("dtype", ShuffleTypes{}))
          .attr(type_attr("Tseed", ShuffleTypes{}))
          .shape([](ShapeContext& c) -> Status {
            TROUPE_ASSIGN(const PartialShape shape, shuffle_shape(c.input(0), c.input(1), c.input(2)));
            c.set_output(0, shape);
            return {};
          })
          .doc("Where each `index` comes in a random order of [0, max_index] that the `seed`, three numbers, fixes. "
               "`index` and `max_index` are scalars or vectors, `seed` may have a row for each. More `rounds`, an "
               "even number, mix better. Fails for an index beyond `max_index`."),
      not_differentiable("an index does not depend on values smoothly"));
  kernels.add<RandomIndexShuffle>("RandomIndexShuffle", DeviceKind::kCpu, {});
}

}  // namespace troupe
