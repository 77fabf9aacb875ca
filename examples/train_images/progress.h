// SPDX-License-Identifier: Apache-2.0
// The progress bar of a terminal; elsewhere a line now and then.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  Progress(int epochs, int64_t images_per_epoch, int64_t images_done);

  /// Takes in one step of `images` images.
  void step(float loss, float accuracy, int64_t images);
  /// So many images come once more.
  void go_back(int64_t images) { images_ -= images; }
  /// A new epoch (from 0) begins to be measured.
  void begin(int epoch);
  /// Removes the bar, so that a line can be printed.
  void clear();

  double loss() const { return steps_ ? loss_sum_ / static_cast<double>(steps_) : 0; }          // of this epoch
  double accuracy() const { return steps_ ? accuracy_sum_ / static_cast<double>(steps_) : 0; }  // of this epoch
  double images_per_second() const;                                                             // of this epoch
  int64_t images() const { return images_; }

 private:
  void draw();

  int epochs_, epoch_ = 0;
  int64_t per_epoch_, images_;
  bool terminal_;
  Clock::time_point begun_, drawn_;
  double loss_sum_ = 0, accuracy_sum_ = 0;  // of the epoch
  double loss_ = 0, accuracy_ = 0;          // of the latest steps
  int64_t steps_ = 0, epoch_images_ = 0;
};
