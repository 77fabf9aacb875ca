// SPDX-License-Identifier: Apache-2.0
// Histograms, images and sound in a Summary.
#include "io/summary.h"

#include <algorithm>
#include <cmath>

#include "io/histogram.h"
#include "io/image.h"
#include "io/numbers.h"

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

namespace {

/// The lowest `bytes` bytes of a number, the lowest first.
void append_number(std::string& out, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(number >> (8 * i)));
}

}  // namespace

Status add_audio(std::string tag, const float* samples, int64_t frames, int64_t channels, float rate,
                 proto::Summary& out) {
  const int64_t n = frames * channels;
  const auto per_second = static_cast<int64_t>(std::lrint(static_cast<double>(rate)));
  if (n > (INT32_MAX - 64) / 2 || channels < 1 || channels > INT16_MAX || per_second > INT32_MAX / (2 * channels))
    return invalid_argument("sound '{}' of {} frames, {} channels, {} a second does not fit a WAV file", tag, frames,
                            channels, rate);
  const auto bytes = static_cast<uint64_t>(2 * n);
  std::string wav;
  wav.reserve(bytes + 44);
  wav += "RIFF";
  append_number(wav, 36 + bytes, 4);
  wav += "WAVEfmt ";
  append_number(wav, 16, 4);  // bytes of what follows up to the data
  append_number(wav, 1, 2);   // plain numbers
  append_number(wav, static_cast<uint64_t>(channels), 2);
  append_number(wav, static_cast<uint64_t>(per_second), 4);
  append_number(wav, static_cast<uint64_t>(per_second * channels * 2), 4);
  append_number(wav, static_cast<uint64_t>(channels * 2), 2);
  append_number(wav, 16, 2);  // bits of a number
  wav += "data";
  append_number(wav, bytes, 4);
  for (int64_t i = 0; i < n; ++i) {
    const float scaled = std::round(samples[i] * 32768.f);
    const auto number = static_cast<int16_t>(std::min(std::max(-32768.f, scaled), 32767.f));  // NaN is the least
    append_number(wav, static_cast<uint16_t>(number), 2);
  }
  auto* v = out.add_value();
  v->set_tag(std::move(tag));
  auto* audio = v->mutable_audio();
  audio->set_sample_rate(rate);
  audio->set_num_channels(channels);
  audio->set_length_frames(frames);
  audio->set_encoded_audio_string(std::move(wav));
  audio->set_content_type("audio/wav");
  return {};
}

}  // namespace troupe
