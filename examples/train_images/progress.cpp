// SPDX-License-Identifier: Apache-2.0
// Draws the progress bar.
#include "progress.h"
#include "programs/program.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <spdlog/fmt/fmt.h>

Progress::Progress(int epochs, int64_t images_per_epoch, int64_t images_done)
    : epochs_(epochs), per_epoch_(images_per_epoch), images_(images_done), terminal_(isatty(STDOUT_FILENO)),
      begun_(Clock::now()), drawn_(begun_) {}

void Progress::begin(int epoch) {
  epoch_ = epoch;
  begun_ = Clock::now();
  steps_.clear();
  epoch_images_ = 0;
}

void Progress::step(float loss, float accuracy, int64_t images) {
  steps_.push_back({loss, accuracy, images});
  const double weight = std::max(0.02, 1. / static_cast<double>(steps_.size()));
  loss_ += weight * (loss - loss_);
  accuracy_ += weight * (accuracy - accuracy_);
  images_ += images;
  epoch_images_ += images;
  const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000);
  if (Clock::now() - drawn_ >= pause) draw();
}

void Progress::go_back(int64_t images) {
  images_ -= images;
  for (; images > 0 && !steps_.empty(); steps_.pop_back()) images -= steps_.back().images;
}

double Progress::mean(float Step::*what) const {
  double sum = 0;
  for (const Step& step : steps_) sum += step.*what;
  return steps_.empty() ? 0 : sum / static_cast<double>(steps_.size());
}

double Progress::images_per_second() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
  return seconds > 0 ? static_cast<double>(epoch_images_) / seconds : 0;
}

void Progress::draw() {
  drawn_ = Clock::now();
  const double speed = images_per_second();
  const auto total = static_cast<double>(per_epoch_) * epochs_;
  const double share = std::clamp(static_cast<double>(images_) / std::max(1., total), 0., 1.);
  const auto left = static_cast<int64_t>((total - static_cast<double>(images_)) / std::max(1., speed));
  constexpr int kWidth = 24;
  const int filled = static_cast<int>(share * kWidth);
  const std::string text =
      fmt::format("epoch {}/{} [{}{}{}] {:3.0f} %  loss {:.4f}  accuracy {:.2f} %  {:.0f} images/s  {}:{:02} left",
                  epoch_ + 1, epochs_, std::string(static_cast<size_t>(filled), '='), filled < kWidth ? ">" : "",
                  std::string(static_cast<size_t>(std::max(0, kWidth - filled - 1)), ' '), 100 * share, loss_,
                  100 * accuracy_, speed, std::max<int64_t>(0, left) / 60, std::max<int64_t>(0, left) % 60);
  if (terminal_) programs::print("\r\033[K{}", text);
  else programs::print("{}\n", text);
  std::fflush(stdout);
}

void Progress::clear() {
  if (terminal_) programs::print("\r\033[K");
  std::fflush(stdout);
}
