// SPDX-License-Identifier: Apache-2.0
// The progress bar of a terminal; elsewhere a line now and then.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  Progress(int epochs, int64_t images_per_epoch, int64_t images_done);

  /// Takes in one step of `images` images.
  void step(float loss, float accuracy, int64_t images);
  /// So many images come once more: what the epoch's latest steps made of them is forgotten.
  void go_back(int64_t images);
  /// A new epoch (from 0) begins to be measured.
  void begin(int epoch);
  /// Removes the bar, so that a line can be printed.
  void clear();

  double loss() const { return mean(&Step::loss); }          // of this epoch
  double accuracy() const { return mean(&Step::accuracy); }  // of this epoch
  double images_per_second() const;                          // of this epoch
  int64_t images() const { return images_; }

 private:
  struct Step {
    float loss, accuracy;
    int64_t images;
  };
  void draw();
  double mean(float Step::*what) const;

  int epochs_, epoch_ = 0;
  int64_t per_epoch_, images_;
  bool terminal_;
  Clock::time_point begun_, drawn_;
  std::vector<Step> steps_;         // of the epoch
  double loss_ = 0, accuracy_ = 0;  // of the latest steps
  int64_t epoch_images_ = 0;        // those that came more than once too
};
