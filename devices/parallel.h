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
/// out, or waits for ever, when it gets fewer than it asked for. Whoever runs kernels calls this before.
void set_team(int threads);

/// When it dies the calling thread has as many helpers as when it was made: for threads that are a program's own.
class KeptTeam {
 public:
  KeptTeam();
  ~KeptTeam();
  KeptTeam(const KeptTeam&) = delete;

 private:
  const int threads_;
};

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

/// A reference to a function, for the time of a call.
template <class... Arguments> class FunctionReference {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionReference>) FunctionReference(F&& f)
      : f_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* f, Arguments... arguments) { (*static_cast<std::remove_reference_t<F>*>(f))(arguments...); }) {}
  void operator()(Arguments... arguments) const { call_(f_, arguments...); }

 private:
  void* f_;
  void (*call_)(void*, Arguments...);
};
using RangeFunction = FunctionReference<int64_t, int64_t>;           // f(begin, end)
using PhaseFunction = FunctionReference<int64_t, int64_t, int64_t>;  // f(phase, begin, end)

/// Calls f(begin, end) on disjoint ranges that cover [0, n), in at most `threads` pieces of at least `grain`; on the
/// calling thread alone when that makes one piece. Returns when all are done. f must not throw.
void parallel_for(int threads, int64_t n, int64_t grain, RangeFunction f);

/// Calls f(phase, begin, end) for each of `phases` on ranges as parallel_for() makes them; a phase begins when all of
/// the one before is done. A thread has the same range in every phase, so that what it read and wrote is in its cache.
void parallel_phases(int threads, int64_t phases, int64_t n, int64_t grain, PhaseFunction f);

}  // namespace troupe
