// SPDX-License-Identifier: Apache-2.0
#include "io/wav.h"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

constexpr int64_t kSampleBytes = 2;  // of a sample
constexpr float kScale = 32768;

/// The lowest `bytes` bytes of a number, the lowest first.
void append_number(std::string& out, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(number >> (8 * i)));
}

/// The bytes of a file one after the other.
class WavReader {
 public:
  explicit WavReader(std::string_view bytes) : bytes_(bytes) {}
  bool has(uint64_t n) const { return n <= bytes_.size(); }
  std::string_view take(uint64_t n) {
    const std::string_view out = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return out;
  }
  uint32_t number(int width) {
    uint32_t out = 0;
    for (int i = 0; const char byte : take(static_cast<uint64_t>(width)))
      out |= uint32_t{static_cast<unsigned char>(byte)} << (8 * i++);
    return out;
  }

 private:
  std::string_view bytes_;
};

/// The chunk `fmt ` after its name. Sets channels and rate.
Status read_format(WavReader& in, Sound& sound) {
  constexpr uint32_t kShort = 16, kLong = 18, kPcm = 1;
  if (!in.has(4 + kShort)) return invalid_argument("the WAV file ends in its format");
  const uint32_t size = in.number(4);
  if (size != kShort && size != kLong)
    return invalid_argument("the format of the WAV file has {} bytes, not 16 or 18", size);
  if (const uint32_t kind = in.number(2); kind != kPcm)
    return invalid_argument("the WAV file has audio format {}, not 1 (PCM)", kind);
  sound.channels = in.number(2);
  sound.rate = in.number(4);
  const uint32_t per_second = in.number(4), per_time = in.number(2), bits = in.number(2);
  if (bits != 8 * kSampleBytes) return invalid_argument("the WAV file has samples of {} bits, not 16", bits);
  if (sound.channels == 0 || per_time != kSampleBytes * sound.channels || per_second != per_time * sound.rate)
    return invalid_argument("the WAV file has {} channels, {} bytes for each time and {} for each second of {} times",
                            sound.channels, per_time, per_second, sound.rate);
  if (size == kLong) {
    if (!in.has(2)) return invalid_argument("the WAV file ends in its format");
    in.take(2);
  }
  return {};
}

}  // namespace

Result<Sound> decode_wav(std::string_view bytes) {
  WavReader in(bytes);
  if (!in.has(16) || in.take(4) != "RIFF") return invalid_argument("{} bytes are not a WAV file", bytes.size());
  in.take(4);
  if (in.take(4) != "WAVE" || in.take(4) != "fmt ")
    return invalid_argument("{} bytes are not a WAV file", bytes.size());
  Sound sound;
  TROUPE_RETURN_IF_ERROR(read_format(in, sound));
  bool found = false;
  while (in.has(8)) {
    const std::string_view name = in.take(4);
    const uint32_t size = in.number(4);
    if (!in.has(size)) return invalid_argument("the WAV file ends in its chunk '{}' of {} bytes", name, size);
    if (name != "data") {
      in.take(size);
      continue;
    }
    if (std::exchange(found, true)) return invalid_argument("the WAV file has more than one data chunk");
    const int64_t count = size / (kSampleBytes * sound.channels) * sound.channels;
    sound.samples.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      sound.samples.push_back(static_cast<float>(static_cast<int16_t>(in.number(kSampleBytes))) / kScale);
    in.take(size - static_cast<uint32_t>(count * kSampleBytes));
  }
  if (!found) return invalid_argument("the WAV file has no data chunk");
  return sound;
}

Result<std::string> encode_wav(std::span<const float> samples, int64_t channels, int64_t rate) {
  const auto n = static_cast<int64_t>(samples.size());
  if (n > (INT32_MAX - 64) / kSampleBytes || channels < 1 || channels > INT16_MAX || rate < 0 ||
      rate > INT32_MAX / (kSampleBytes * channels))
    return invalid_argument("{} samples in {} channels, {} a second do not fit a WAV file", n, channels, rate);
  const auto bytes = static_cast<uint64_t>(kSampleBytes * n);
  std::string wav;
  wav.reserve(bytes + 44);
  wav += "RIFF";
  append_number(wav, 36 + bytes, 4);
  wav += "WAVEfmt ";
  append_number(wav, 16, 4);  // bytes of what follows up to the data
  append_number(wav, 1, 2);   // plain numbers
  append_number(wav, static_cast<uint64_t>(channels), 2);
  append_number(wav, static_cast<uint64_t>(rate), 4);
  append_number(wav, static_cast<uint64_t>(rate * channels * kSampleBytes), 4);
  append_number(wav, static_cast<uint64_t>(channels * kSampleBytes), 2);
  append_number(wav, 8 * kSampleBytes, 2);  // bits of a number
  wav += "data";
  append_number(wav, bytes, 4);
  for (const float sample : samples) {
    const float scaled = std::round(sample * kScale);
    const auto number = static_cast<int16_t>(std::min(std::max(-kScale, scaled), kScale - 1));  // NaN is the least
    append_number(wav, static_cast<uint16_t>(number), kSampleBytes);
  }
  return wav;
}

}  // namespace troupe
