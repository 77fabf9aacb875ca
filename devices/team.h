// SPDX-License-Identifier: Apache-2.0
// Team: the threads that help the one that runs a device's kernels, and how long they wait awake. Implemented in
// devices/parallel.cpp.
#pragma once
#include <memory>

#include "devices/contention.h"

namespace troupe {

class BriefWaits;

/// Of one device; one thread at a time.
class Team {
 public:
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;

  /// The calling thread runs kernels as long as this lives, with the team's help.
  class Turn {
   public:
    explicit Turn(Team& team) : team_(team) { team_.begin(); }
    ~Turn() { team_.end(); }
    Turn(const Turn&) = delete;

   private:
    Team& team_;
  };

 private:
  void begin();
  void end();

  const int threads_;
  Contention contention_;
  std::unique_ptr<BriefWaits> brief_waits_;  // while there is contention
  bool measures_ = false;                    // this turn, since that before was long
  int64_t begin_ns_ = 0, begin_cpu_ns_ = 0;
};

}  // namespace troupe
