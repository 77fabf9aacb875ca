// SPDX-License-Identifier: Apache-2.0
// Collectives: tensors of several cards summed, gathered and handed round by a library that knows their links. There
// are two: NCCL (gpu/nccl.h), and a fake on the host (gpu/fake/fake_collectives.h). Implemented in gpu/collectives.cpp.
//
// A communicator joins cards, its ranks 0, 1, ..., all of this process. No call of it waits, but abort(): what it asks
// for is in progress until ready() says that it is done, and the next call comes after that. After an error a
// communicator is good for revoke(), shrink() and abort() alone.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/runtime.h"
#include "troupe/dtype.h"

namespace troupe::gpu {

/// What all ranks do together. A rank's input and output are in its card's memory; they do not overlap, but that an
/// all-reduce may be in place.
struct Collective {
  enum class Kind {
    kAllReduce,      // each output: the sum of all inputs
    kReduceScatter,  // the output of rank c: chunk c of the sum
    kAllGather,      // each output: all inputs, one after the other
    kBroadcast,      // each output: the input of `root`
  };
  struct Rank {
    const void* input = nullptr;  // of a broadcast: the root's alone is read
    void* output = nullptr;       // of a broadcast: that of the root is not written
  };

  Kind kind = Kind::kAllReduce;
  DType dtype = DType::kFloat32;  // of sums one that can_sum(); what only moves may be taken as kUInt8
  /// Elements: of an input, of all-reduce and broadcast; of each rank's chunk, of the others. At least 0, and their sum
  /// above 0.
  std::vector<int64_t> counts = {};
  int root = 0;
  std::vector<Rank> ranks = {};
};
const char* to_string(Collective::Kind kind);
/// Types that are summed as they are: integers of 8, 32 and 64 bits, which wrap around, floating point and complex.
bool can_sum(DType dtype);
/// Elements of a rank's input and output.
int64_t input_elements(const Collective& collective, size_t rank);
int64_t output_elements(const Collective& collective, size_t rank);

/// One thread at a time, but abort(), which comes last and may be called by another. Communicators of one card may be
/// used by several threads.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::span<const int> cards() const = 0;  // by rank
  /// Whether what was asked for is done: the communicator is made, a collective is in the streams, it is revoked.
  /// Errors: what went wrong since, with the collectives under way too: kUnavailable when a card is lost, else
  /// kInternal. They name the call.
  virtual Result<bool> ready() = 0;
  /// Puts a collective into one stream of each rank's card. Once ready() says so, it is in all of them. The sum of an
  /// element is the same on all ranks, in whatever order.
  virtual Status launch(const Collective& collective, std::span<Stream* const> streams) = 0;
  /// Ends what is under way in the streams, with whatever results. kUnimplemented where the library is too old.
  virtual Status revoke() = 0;
  /// A communicator of the other ranks, in their order, made of this one, which goes on to its abort().
  /// kUnimplemented where the library is too old.
  virtual Result<std::unique_ptr<Communicator>> shrink(std::span<const int> without) = 0;
  /// Ends what is under way, and the communicator. It may wait for long, perhaps for ever. When it returns nothing
  /// uses the memory of its collectives any more. To be called before the communicator goes.
  virtual void abort() = 0;
};

/// Thread-safe.
class Collectives {
 public:
  virtual ~Collectives() = default;
  /// A communicator of distinct cards, two at least, in progress at first. Errors: those of the library.
  virtual Result<std::unique_ptr<Communicator>> make(std::span<const int> cards) = 0;
};

}  // namespace troupe::gpu
