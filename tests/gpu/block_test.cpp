// SPDX-License-Identifier: Apache-2.0
// The shim that runs kernels on the host: what CUDA promises holds, and what it leaves undefined is reported.
#include "gpu/fake/block.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <catch2/catch.hpp>

#include "gpu/fake/fibers.h"
#include "gpu/launch.h"
#include "tests/gpu/inline_stream.h"

namespace troupe::testing {
namespace {

using gpu::fake::seed_launches;
using gpu::fake::take_faults;

/// Faults whose text has `part`; they are taken.
int faults_about(const std::string& part) {
  const auto all = take_faults();
  return static_cast<int>(std::ranges::count_if(all, [&](const std::string& f) { return f.find(part) != f.npos; }));
}

void note_place(int* seen, int threads) {
  const int thread = static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
  const int block = static_cast<int>(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
  ++seen[block * threads + thread];
}

void note_order(int* order, int* next) { order[(*next)++] = static_cast<int>(threadIdx.x); }

/// The sum of a block by halves, over as many barriers as it takes.
void sum_by_halves(float* out, const float* x) {
  TROUPE_SHARED(float, part, [64]);
  part[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  for (unsigned half = 32; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

void warp_sums(int* out, const int* x) {
  int sum = x[threadIdx.x];
  for (int delta = 16; delta > 0; delta /= 2) sum += __shfl_down_sync(0xffffffff, sum, delta);
  if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = sum;
}

void shuffles(double* out) {
  const double mine = threadIdx.x;
  out[threadIdx.x] = __shfl_sync(0xffffffff, mine, 5);
  out[32 + threadIdx.x] = __shfl_xor_sync(0xffffffff, mine, 3);
  out[64 + threadIdx.x] = __shfl_up_sync(0xffffffff, mine, 2);
  out[96 + threadIdx.x] = __shfl_down_sync(0xffffffff, mine, 1, 8);
}

void votes(unsigned* out) {
  const unsigned odd = __ballot_sync(0xffffffff, threadIdx.x % 2);
  const int any = __any_sync(0xffffffff, threadIdx.x == 7), all = __all_sync(0xffffffff, threadIdx.x < 31);
  const int count = __syncthreads_count(threadIdx.x < 10), none = __syncthreads_or(0), every = __syncthreads_and(1);
  if (threadIdx.x == 0) {
    out[0] = odd;
    out[1] = any;
    out[2] = all;
    out[3] = count;
    out[4] = none;
    out[5] = every;
  }
}

/// Both halves of a warp exchange at the same time, each for itself.
void halves(int* out) {
  const unsigned mask = threadIdx.x < 16 ? 0xffff : 0xffff0000;
  int x = static_cast<int>(threadIdx.x);
  for (int delta = 8; delta > 0; delta /= 2) x += __shfl_xor_sync(mask, x, delta, 16);
  out[threadIdx.x] = x;
}

void count_up(int* at, float* sum, int* largest) {
  atomicAdd(at, 1);
  atomicAdd(sum, 0.5f);
  atomicMax(largest, static_cast<int>(threadIdx.x));
}

void some_leave(int* out) {
  if (threadIdx.x % 2) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
void two_barriers(int* out) {
  if (threadIdx.x % 2) __syncthreads();
  else __syncthreads();
  out[threadIdx.x] = 1;
}
void lane_missing(int* out) {
  if (threadIdx.x == 3) __syncthreads();
  else out[threadIdx.x] = __shfl_sync(0xffffffff, 1, 0);
}
void reads_absent_lane(int* out) { out[threadIdx.x] = __shfl_sync(0xffffffff, 1, 30); }
void not_in_mask(int* out) { out[threadIdx.x] = __shfl_sync(0x1, 1, 0); }
void much_shared(int* out) {
  TROUPE_SHARED(char, large, [40000]);
  TROUPE_SHARED(char, more, [20000]);
  out[0] = large[0] + more[0];
}
void fresh_shared(float* out) {
  TROUPE_SHARED(float, mine, [1]);
  TROUPE_SHARED_DYNAMIC(float, row);
  out[blockIdx.x * 2] = mine[0];
  out[blockIdx.x * 2 + 1] = row[0];
  mine[0] = row[0] = 1;
}
template <class T, int n> void add_number(T* x, T by) { *x += by * n; }

TEST_CASE("Every thread of every block runs once") {
  InlineStream stream;
  std::vector<int> seen(2 * 3 * 2 * 30, 0);
  REQUIRE(TROUPE_LAUNCH(stream, note_place, dim3(2, 3, 2), dim3(5, 3, 2), 0, seen.data(), 30).ok());
  CHECK(std::ranges::count(seen, 1) == static_cast<int64_t>(seen.size()));
  CHECK(stream.launched == std::vector<std::string>{"note_place"});
  CHECK(take_faults().empty());
}

TEST_CASE("The order of threads follows the seed") {
  InlineStream stream;
  const auto order = [&](uint64_t seed) {
    seed_launches(seed);
    std::vector<int> out(64);
    int next = 0;
    REQUIRE(TROUPE_LAUNCH(stream, note_order, 1, 64, 0, out.data(), &next).ok());
    return out;
  };
  CHECK(order(3) == order(3));
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 1; seed < 20; ++seed) orders.insert(order(seed));
  CHECK(orders.size() > 10);
}

TEST_CASE("Barriers and shared memory add up blocks in any order of threads") {
  InlineStream stream;
  std::vector<float> x(64 * 7), out(7);
  std::iota(x.begin(), x.end(), 0.0f);
  for (uint64_t seed = 1; seed < 30; ++seed) {
    seed_launches(seed);
    REQUIRE(TROUPE_LAUNCH(stream, sum_by_halves, 7, 64, 0, out.data(), x.data()).ok());
    for (int b = 0; b < 7; ++b) CHECK(out[b] == 64 * (64 * b) + 63 * 32);
  }
  CHECK(take_faults().empty());
}

TEST_CASE("Warps exchange and vote") {
  InlineStream stream;
  std::vector<int> x(96), sums(3), all(32);
  std::iota(x.begin(), x.end(), 0);
  std::vector<double> out(128);
  std::vector<unsigned> votes_of(6);
  for (uint64_t seed = 1; seed < 10; ++seed) {
    seed_launches(seed);
    REQUIRE(TROUPE_LAUNCH(stream, warp_sums, 1, 96, 0, sums.data(), x.data()).ok());
    CHECK(sums == std::vector<int>{496, 496 + 1024, 496 + 2048});
    REQUIRE(TROUPE_LAUNCH(stream, shuffles, 1, 32, 0, out.data()).ok());
    for (int i = 0; i < 32; ++i) {
      CHECK(out[i] == 5);
      CHECK(out[32 + i] == (i ^ 3));
      CHECK(out[64 + i] == (i < 2 ? i : i - 2));
      CHECK(out[96 + i] == (i % 8 == 7 ? i : i + 1));
    }
    REQUIRE(TROUPE_LAUNCH(stream, votes, 1, 32, 0, votes_of.data()).ok());
    CHECK(votes_of == std::vector<unsigned>{0xaaaaaaaa, 1, 0, 10, 0, 1});
    REQUIRE(TROUPE_LAUNCH(stream, halves, 1, 32, 0, all.data()).ok());
    for (int i = 0; i < 32; ++i) CHECK(all[i] == (i < 16 ? 120 : 376));
  }
  CHECK(take_faults().empty());
}

TEST_CASE("Atomics of blocks add up, and templates are kernels") {
  InlineStream stream;
  int count = 0, largest = 0;
  float sum = 0;
  REQUIRE(TROUPE_LAUNCH(stream, count_up, 5, 100, 0, &count, &sum, &largest).ok());
  CHECK(count == 500);
  CHECK(sum == 250);
  CHECK(largest == 99);
  double x = 1;
  REQUIRE(TROUPE_LAUNCH(stream, (add_number<double, 3>), 1, 1, 0, &x, 2).ok());
  CHECK(x == 7);
  CHECK(take_faults().empty());
}

TEST_CASE("Shared memory begins undefined in every block") {
  InlineStream stream;
  std::vector<float> out(8, 0);
  REQUIRE(TROUPE_LAUNCH(stream, fresh_shared, 4, 1, 16, out.data()).ok());
  for (float v : out) CHECK(std::isnan(v));
}

TEST_CASE("What CUDA leaves undefined is a fault") {
  InlineStream stream;
  std::vector<int> out(64);
  take_faults();
  REQUIRE(TROUPE_LAUNCH(stream, some_leave, 1, 64, 0, out.data()).ok());
  CHECK(faults_about("kernel some_leave, block 0,0,0: 32 of 64 threads wait at the barrier block_test.cpp") == 1);
  REQUIRE(TROUPE_LAUNCH(stream, two_barriers, 1, 64, 0, out.data()).ok());
  CHECK(faults_about("threads meet at the barriers") > 0);
  REQUIRE(TROUPE_LAUNCH(stream, lane_missing, 1, 32, 0, out.data()).ok());
  CHECK(faults_about("lanes 0x8 of mask 0xffffffff never come") == 1);
  REQUIRE(TROUPE_LAUNCH(stream, reads_absent_lane, 1, 20, 0, out.data()).ok());
  CHECK(faults_about("reads lane 30, which takes no part") == 20);
  REQUIRE(TROUPE_LAUNCH(stream, not_in_mask, 1, 2, 0, out.data()).ok());
  CHECK(faults_about("lane 1 is not in its own mask 0x1") == 1);
  REQUIRE(TROUPE_LAUNCH(stream, much_shared, 1, 1, 0, out.data()).ok());
  CHECK(faults_about("more than 48 KiB") == 1);
  CHECK_FALSE(TROUPE_LAUNCH(stream, some_leave, 0, 64, 0, out.data()).ok());
  CHECK_FALSE(TROUPE_LAUNCH(stream, some_leave, 1, 1025, 0, out.data()).ok());
  CHECK_FALSE(TROUPE_LAUNCH(stream, some_leave, 1, 1, 49 << 10, out.data()).ok());
  CHECK(faults_about("kernel some_leave") == 3);
}

struct Steps {
  gpu::fake::Fiber* fiber;
  std::vector<int> seen;
};

TEST_CASE("A fiber stops, goes on and is used again") {
  gpu::fake::Fiber fiber(32 << 10);
  Steps steps{&fiber, {}};
  const auto body = [](void* argument) {
    auto& s = *static_cast<Steps*>(argument);
    for (int i = 0; i < 3; ++i) {
      s.seen.push_back(i);
      s.fiber->pause();
    }
  };
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3; ++i) {
      CHECK_FALSE(fiber.resume(body, &steps));
      steps.seen.push_back(10 + i);
    }
    CHECK(fiber.resume(body, &steps));
    CHECK(steps.seen == std::vector<int>{0, 10, 1, 11, 2, 12});
    steps.seen.clear();
  }
}

}  // namespace
}  // namespace troupe::testing
