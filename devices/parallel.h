// SPDX-License-Identifier: Apache-2.0
// The team of threads that helps the one that runs a device, and splitting a kernel's work over it. Implemented in
// devices/parallel.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <semaphore>
#include <thread>
#include <type_traits>

namespace troupe {

/// Sets how many threads help the calling one, itself among them: at most OMP_THREAD_LIMIT, since oneDNN leaves work
/// out, or waits for ever, when it gets fewer than it asked for. Whoever runs kernels calls this before. Returns the
/// number before.
int set_team(int threads);

/// While one of these lives, threads of teams that wait, for work or for one another, go to sleep after some
/// microseconds in place of some milliseconds: see contention.h. GNU's OpenMP waits so once it has more threads than
/// there are cores, and cannot be told otherwise: so this holds a team of that many, which sleep. OMP_WAIT_POLICY and
/// GOMP_SPINCOUNT go before; with these, under an OMP_THREAD_LIMIT, without threads to be had, or with another OpenMP
/// nothing changes.
class BriefWaits {
 public:
  BriefWaits();
  ~BriefWaits();
  BriefWaits(const BriefWaits&) = delete;

 private:
  std::binary_semaphore ends_{0};
  std::thread holder_;
};

/// A reference to a function f(begin, end), for the time of a call.
class RangeFunction {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, RangeFunction>) RangeFunction(F&& f)
      : f_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* f, int64_t begin, int64_t end) { (*static_cast<std::remove_reference_t<F>*>(f))(begin, end); }) {
  }
  void operator()(int64_t begin, int64_t end) const { call_(f_, begin, end); }

 private:
  void* f_;
  void (*call_)(void*, int64_t, int64_t);
};

/// Calls f(begin, end) on disjoint ranges that cover [0, n), in at most `threads` pieces of at least `grain`; on the
/// calling thread alone when that makes one piece. Returns when all are done. f must not throw.
void parallel_for(int threads, int64_t n, int64_t grain, RangeFunction f);

}  // namespace troupe
