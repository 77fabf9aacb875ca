// SPDX-License-Identifier: Apache-2.0
// Histograms, images and sound in a Summary.
#include "io/summary.h"

#include <algorithm>
#include <cmath>

#include "io/histogram.h"
#include "io/image.h"
#include "io/numbers.h"
#include "io/wav.h"

namespace troupe {

Status add_histogram(std::string_view tag, const Tensor& values, proto::Summary& out) {
  if (!visit_real(values.dtype(), [](auto) {}))
    return invalid_argument("histogram '{}' of {}{}: it needs numbers", tag, to_string(values.dtype()),
                            values.shape().str());
  const std::vector<double> numbers = as_doubles(values);
  const auto bad = std::ranges::find_if(numbers, [](double v) { return !std::isfinite(v); });
  if (bad != numbers.end())
    return invalid_argument("histogram '{}': element {} is {}", tag, bad - numbers.begin(), *bad);
  const Histogram h = make_histogram(numbers);
  auto* v = out.add_value();
  v->set_tag(std::string(tag));
  auto* histo = v->mutable_histo();
  histo->set_min(h.min);
  histo->set_max(h.max);
  histo->set_num(h.num);
  histo->set_sum(h.sum);
  histo->set_sum_squares(h.sum_squares);
  histo->mutable_bucket_limit()->Add(h.limits.begin(), h.limits.end());
  histo->mutable_bucket()->Add(h.counts.begin(), h.counts.end());
  return {};
}

Status add_image(std::string tag, const uint8_t* pixels, int64_t height, int64_t width, int64_t channels,
                 proto::Summary& out) {
  TROUPE_ASSIGN(std::string png, encode_png({pixels, height, width, channels}));
  auto* v = out.add_value();
  v->set_tag(std::move(tag));
  auto* written = v->mutable_image();
  written->set_height(static_cast<int32_t>(height));
  written->set_width(static_cast<int32_t>(width));
  written->set_colorspace(static_cast<int32_t>(channels));
  written->set_encoded_image_string(std::move(png));
  return {};
}

Status add_audio(std::string tag, const float* samples, int64_t frames, int64_t channels, float rate,
                 proto::Summary& out) {
  const auto per_second = static_cast<int64_t>(std::lrint(static_cast<double>(rate)));
  auto wav = encode_wav({samples, static_cast<size_t>(frames * channels)}, channels, per_second);
  if (!wav.ok())
    return invalid_argument("sound '{}' of {} frames, {} channels, {} a second does not fit a WAV file", tag, frames,
                            channels, rate);
  auto* v = out.add_value();
  v->set_tag(std::move(tag));
  auto* audio = v->mutable_audio();
  audio->set_sample_rate(rate);
  audio->set_num_channels(channels);
  audio->set_length_frames(frames);
  audio->set_encoded_audio_string(std::move(*wav));
  audio->set_content_type("audio/wav");
  return {};
}

}  // namespace troupe
