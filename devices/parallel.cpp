// SPDX-License-Identifier: Apache-2.0
#include "devices/parallel.h"

#include <omp.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "base/steady_clock.h"
#include "base/threads_available.h"
#include "devices/team.h"

namespace troupe {
namespace {

/// Turns that are shorter tell little, and reading the time of a thread takes longer than they should.
constexpr int64_t kLongTurnNs = 50'000;

/// Nanoseconds for which the calling thread has had a core.
int64_t thread_cpu_ns() {
  timespec t = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// In how many pieces of at least `grain` to split n.
int64_t pieces_of(int threads, int64_t n, int64_t grain) {
  return std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, std::max(threads, 1));
}

}  // namespace

void set_team(int threads) {
  const int before = omp_get_max_threads(), after = std::clamp(threads, 1, omp_get_thread_limit());
  if (after != before) omp_set_num_threads(after);
}

KeptTeam::KeptTeam() : threads_(omp_get_max_threads()) {}
KeptTeam::~KeptTeam() { omp_set_num_threads(threads_); }

BriefWaits::BriefWaits() {
#if defined(__GNUC__) && !defined(__clang__)
  const int team = omp_get_num_procs() + 1;
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY") || team > omp_get_thread_limit()) return;
  if (!check_threads_available(team).ok()) return;  // OpenMP ends the process when it gets none
  try {
    holder_ = std::thread([this, team] {
#pragma omp parallel num_threads(team)
      { asm volatile(""); }  // else there would be no team
      ends_.acquire();       // the team stays as long as its thread
    });
  } catch (const std::system_error&) {  // no more threads
  }
#endif
}

BriefWaits::~BriefWaits() {
  if (!holder_.joinable()) return;
  ends_.release();
  holder_.join();
}

Team::Team(int threads) : threads_(threads) {}

Team::~Team() = default;

void Team::begin() {
  set_team(threads_);
  if (threads_ == 1) return;
  begin_ns_ = steady_ns();
  if (brief_waits_ && !contention_.waits_briefly(begin_ns_)) brief_waits_.reset();
  if (measures_) begin_cpu_ns_ = thread_cpu_ns();
}

void Team::end() {
  if (threads_ == 1) return;
  const int64_t now = steady_ns(), wall = now - begin_ns_;
  if (measures_ && !brief_waits_) contention_.took(wall, thread_cpu_ns() - begin_cpu_ns_, now);
  measures_ = wall >= kLongTurnNs;
  if (!brief_waits_ && contention_.waits_briefly(now)) brief_waits_ = std::make_unique<BriefWaits>();
}

void parallel_for(int threads, int64_t n, int64_t grain, RangeFunction f) {
  const int64_t pieces = pieces_of(threads, n, grain);
  if (pieces == 1) {
    if (n > 0) f(0, n);
    return;
  }
#pragma omp parallel for num_threads(int(pieces)) schedule(static, 1)
  for (int64_t i = 0; i < pieces; ++i) f(n * i / pieces, n * (i + 1) / pieces);
}

void parallel_phases(int threads, int64_t phases, int64_t n, int64_t grain, PhaseFunction f) {
  const int64_t pieces = pieces_of(threads, n, grain);
  if (pieces == 1) {
    for (int64_t phase = 0; n > 0 && phase < phases; ++phase) f(phase, 0, n);
    return;
  }
#pragma omp parallel num_threads(int(pieces))
  for (int64_t phase = 0; phase < phases; ++phase) {
#pragma omp for schedule(static, 1)
    for (int64_t i = 0; i < pieces; ++i) f(phase, n * i / pieces, n * (i + 1) / pieces);
  }
}

}  // namespace troupe
