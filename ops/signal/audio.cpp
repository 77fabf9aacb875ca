// SPDX-License-Identifier: Apache-2.0
// Sound: DecodeWav, EncodeWav, AudioSpectrogram, Mfcc. Source of the latter: Davis and Mermelstein, "Comparison of
// parametric representations for monosyllabic word recognition", 1980.
#include <bit>
#include <mutex>
#include <numbers>

#include "devices/parallel.h"
#include "io/wav.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/signal/fourier.h"
#include "ops/signal/register.h"

namespace troupe {
namespace {

// -- files ------------------------------------------------------------------------------------------------------------

class DecodeWav final : public ComputeKernel {
 public:
  explicit DecodeWav(const KernelInit& init)
      : channels_(init.attr<int64_t>("desired_channels")), samples_(init.attr<int64_t>("desired_samples")) {}
  Status compute(KernelContext& c) override {
    if (c.input(0).rank() != 0) return invalid_argument("contents must be a scalar, not {}", c.input(0).shape().str());
    TROUPE_ASSIGN(const Sound sound, decode_wav(c.input(0).data<std::string>()[0]));
    if (sound.rate > INT32_MAX) return invalid_argument("the sample rate {} does not fit int32", sound.rate);
    const int64_t times = static_cast<int64_t>(sound.samples.size()) / sound.channels;
    const int64_t sizes[] = {samples_ < 0 ? times : samples_, channels_ < 0 ? sound.channels : channels_};
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor audio, Tensor::zeros(DType::kFloat32, shape, c.device().allocator));
    float* out = audio.mutable_data<float>();
    for (int64_t t = 0; t < std::min(times, shape[0]); ++t)
      for (int64_t k = 0; k < shape[1]; ++k)
        *out++ = sound.samples[t * sound.channels + std::min(k, sound.channels - 1)];
    c.set_output(0, std::move(audio));
    c.set_output(1, Tensor::scalar(static_cast<int32_t>(sound.rate)));
    return {};
  }

 private:
  const int64_t channels_, samples_;
};

Status decode_wav_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 0).status());
  int64_t sizes[2];
  const char* names[] = {"desired_samples", "desired_channels"};
  for (int i : {0, 1}) {
    sizes[i] = c.attr<int64_t>(names[i]);
    if (sizes[i] < -1) return invalid_argument("{} is {}, neither a size nor -1", names[i], sizes[i]);
  }
  c.set_output(0, PartialShape{sizes[0], sizes[1]});
  c.set_output(1, PartialShape(Shape{}));
  return {};
}

class EncodeWav final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& audio = c.input(0);
    if (audio.rank() != 2)
      return invalid_argument("audio must have shape [length, channels], not {}", audio.shape().str());
    if (c.input(1).rank() != 0)
      return invalid_argument("sample_rate must be a scalar, not {}", c.input(1).shape().str());
    const int32_t rate = c.input(1).data<int32_t>()[0];
    if (rate < 1) return invalid_argument("sample_rate must be above 0, not {}", rate);
    TROUPE_ASSIGN(std::string bytes, encode_wav(audio.values<float>(), audio.dim(1), rate));
    c.set_output(0, Tensor::scalar(std::move(bytes)));
    return {};
  }
};

Status encode_wav_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 2).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0).status());
  c.set_output(0, PartialShape(Shape{}));
  return {};
}

// -- spectra ----------------------------------------------------------------------------------------------------------

/// How long windows lie over the samples of a sound.
struct SoundWindows {
  int64_t size, stride;
  static Result<SoundWindows> of(const Attrs& attrs) {
    const SoundWindows w{*attrs.get<int64_t>("window_size"), *attrs.get<int64_t>("stride")};
    if (w.size < 2 || w.size > INT32_MAX || w.stride < 1)
      return invalid_argument("window_size {} must be above 1 and stride {} above 0", w.size, w.stride);
    return w;
  }
  int64_t count(int64_t samples) const { return samples < size ? 0 : 1 + (samples - size) / stride; }
  int64_t transformed() const { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size))); }
  int64_t bins() const { return 1 + transformed() / 2; }
};

class AudioSpectrogram final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    TROUPE_ASSIGN(const SoundWindows windows, SoundWindows::of(*init.attrs));
    return std::unique_ptr<ComputeKernel>(new AudioSpectrogram(windows, init.attr<bool>("magnitude_squared")));
  }
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() != 2) return invalid_argument("input must have shape [samples, channels], not {}", x.shape().str());
    const int64_t channels = x.dim(1), frames = windows_.count(x.dim(0)), bins = windows_.bins();
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, Shape{channels, frames, bins}));
    if (y.elements() == 0) {
      c.set_output(0, std::move(y));
      return {};
    }
    std::call_once(weighted_, [&] { hann_ = hann(windows_.size); });  // there are samples for a window
    float* out = y.mutable_data<float>();
    using Line = std::vector<Fourier<double>::Number>;
    const Fourier<double> fourier(windows_.transformed());
    parallel_for(c.threads(), channels * frames, 1 + kDearGrain / bins, [&](int64_t begin, int64_t end) {
      Line line(static_cast<size_t>(windows_.transformed())), work(static_cast<size_t>(fourier.work_size()));
      for (int64_t i = begin; i < end; ++i) {
        std::ranges::fill(line, Line::value_type{});
        const float* in = x.data<float>() + i % frames * windows_.stride * channels + i / frames;
        for (int64_t k = 0; k < windows_.size; ++k) line[k].re = hann_[k] * in[k * channels];
        fourier.run(line.data(), work.data());
        for (int64_t k = 0; k < bins; ++k) {
          const std::complex<double> z(line[k].re, line[k].im);
          out[i * bins + k] = static_cast<float>(squared_ ? std::norm(z) : std::abs(z));
        }
      }
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  AudioSpectrogram(const SoundWindows& windows, bool squared) : windows_(windows), squared_(squared) {}

  static std::vector<double> hann(int64_t size) {
    std::vector<double> out;
    for (int64_t k = 0; k < size; ++k)
      out.push_back(0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(size)));
    return out;
  }

  const SoundWindows windows_;
  const bool squared_;
  std::once_flag weighted_;
  std::vector<double> hann_;  // by place in a window, its weight
};

Status spectrogram_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(0, 2));
  TROUPE_ASSIGN(const SoundWindows windows, SoundWindows::of(c.attrs()));
  c.set_output(0, PartialShape{x.dim(1), x.dim(0) < 0 ? -1 : windows.count(x.dim(0)), windows.bins()});
  return {};
}

/// Triangles over frequencies, evenly spaced as one hears them, of which each falls where the next rises.
class MelFilters {
 public:
  /// Errors: no frequency to be heard, limits that none lies between.
  static Result<MelFilters> make(int64_t count, double rate, int64_t bins, double low, double high) {
    if (!(rate > 0) || bins < 2) return invalid_argument("a spectrum of {} values at a sample rate of {}", bins, rate);
    const double step = 0.5 * rate / static_cast<double>(bins - 1);
    if (!(low >= 0 && high > low && high < step * static_cast<double>(bins)))
      return invalid_argument("the frequencies from {} to {} are not below {}", low, high,
                              step * static_cast<double>(bins));
    return MelFilters(count, step, low, high);
  }
  void apply(const float* squares, std::vector<double>& out) const {
    std::ranges::fill(out, 0);
    for (size_t i = 0; i < falling_.size(); ++i) {
      const double size = std::sqrt(static_cast<double>(squares[first_ + static_cast<int64_t>(i)]));
      const int64_t filter = filter_[i];
      if (filter >= 0) out[filter] += size * falling_[i];
      if (filter + 1 < static_cast<int64_t>(out.size())) out[filter + 1] += size * (1 - falling_[i]);
    }
  }

 private:
  static double mel(double hertz) { return 1127 * std::log1p(hertz / 700); }

  MelFilters(int64_t count, double step, double low, double high) : first_(static_cast<int64_t>(1.5 + low / step)) {
    const double begin = mel(low), width = (mel(high) - begin) / static_cast<double>(count + 1);
    int64_t filter = -1;  // the last one whose top is below; -1: none
    for (int64_t i = first_; i <= static_cast<int64_t>(high / step); ++i) {
      const double at = mel(static_cast<double>(i) * step);
      while (filter + 1 < count && begin + width * static_cast<double>(filter + 2) < at) ++filter;
      filter_.push_back(filter);
      falling_.push_back((begin + width * static_cast<double>(filter + 2) - at) / width);
    }
  }

  int64_t first_;                // bin
  std::vector<int64_t> filter_;  // by bin from there, the one that falls
  std::vector<double> falling_;  // its weight
};

Status check_cepstrum(int64_t filters, int64_t coefficients) {
  constexpr int64_t kMostFilters = 4096;
  if (filters > kMostFilters)
    return invalid_argument("filterbank_channel_count must be at most {}, got {}", kMostFilters, filters);
  if (coefficients < 1 || coefficients > filters)
    return invalid_argument("dct_coefficient_count {} must be from 1 to filterbank_channel_count {}", coefficients,
                            filters);
  return {};
}

class Mfcc final : public ComputeKernel {
 public:
  explicit Mfcc(const KernelInit& init)
      : low_(init.attr<float>("lower_frequency_limit")), high_(init.attr<float>("upper_frequency_limit")),
        filters_(init.attr<int64_t>("filterbank_channel_count")),
        coefficients_(init.attr<int64_t>("dct_coefficient_count")) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() != 3)
      return invalid_argument("spectrogram must have shape [channels, frames, bins], not {}", x.shape().str());
    if (c.input(1).rank() != 0)
      return invalid_argument("sample_rate must be a scalar, not {}", c.input(1).shape().str());
    TROUPE_RETURN_IF_ERROR(check_cepstrum(filters_, coefficients_));
    TROUPE_ASSIGN(const MelFilters filters,
                  MelFilters::make(filters_, c.input(1).data<int32_t>()[0], x.dim(2), low_, high_));
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, Shape{x.dim(0), x.dim(1), coefficients_}));
    float* out = y.mutable_data<float>();
    const double scale = std::sqrt(2.0 / static_cast<double>(filters_));
    const double angle = std::numbers::pi / static_cast<double>(filters_);
    const int64_t grain = 1 + kDearGrain / (coefficients_ * filters_);
    parallel_for(c.threads(), x.dim(0) * x.dim(1), grain, [&](int64_t begin, int64_t end) {
      std::vector<double> bands(static_cast<size_t>(filters_));
      for (int64_t i = begin; i < end; ++i) {
        filters.apply(x.data<float>() + i * x.dim(2), bands);
        for (double& b : bands) b = std::log(std::max(b, kLeast));
        for (int64_t k = 0; k < coefficients_; ++k) {
          double sum = 0;
          for (int64_t j = 0; j < filters_; ++j)
            sum += bands[j] * std::cos(angle * static_cast<double>(k) * (static_cast<double>(j) + 0.5));
          out[i * coefficients_ + k] = static_cast<float>(scale * sum);
        }
      }
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  static constexpr double kLeast = 1e-12;  // what counts as silence

  const double low_, high_;
  const int64_t filters_, coefficients_;
};

Status mfcc_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(0, 3));
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0).status());
  const auto coefficients = c.attr<int64_t>("dct_coefficient_count");
  TROUPE_RETURN_IF_ERROR(check_cepstrum(c.attr<int64_t>("filterbank_channel_count"), coefficients));
  c.set_output(0, PartialShape{x.dim(0), x.dim(1), coefficients});
  return {};
}

}  // namespace

void register_audio_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const Gradient none = undefined_gradient();
  ops.add(OpDef("DecodeWav")
              .input("contents: string")
              .output("audio: float32")
              .output("sample_rate: int32")
              .attr("desired_channels: int = -1")
              .attr("desired_samples: int = -1")
              .shape(decode_wav_shape)
              .doc("The samples [length, channels] of a WAV file of 16 bits, from -1 to 1, and how many there are in a "
                   "second. Wished-for samples beyond its end are 0, channels that it has not like its last one."),
          none);
  ops.add(OpDef("EncodeWav")
              .input("audio: float32")
              .input("sample_rate: int32")
              .output("contents: string")
              .shape(encode_wav_shape)
              .doc("Samples [length, channels] from -1 to 1 as a WAV file of 16 bits; what is beyond is cut off."),
          none);
  ops.add(OpDef("AudioSpectrogram")
              .input("input: float32")
              .output("spectrogram: float32")
              .attr("window_size: int")
              .attr("stride: int")
              .attr("magnitude_squared: bool = false")
              .shape(spectrogram_shape)
              .doc("The magnitudes, or their squares, of the frequencies of samples [length, channels] in each window, "
                   "weighted as Hann does: [channels, windows, bins], 1 more than half of the power of two that holds "
                   "a window."),
          none);
  ops.add(OpDef("Mfcc")
              .input("spectrogram: float32")
              .input("sample_rate: int32")
              .output("output: float32")
              .attr("upper_frequency_limit: float = 4000.0")
              .attr("lower_frequency_limit: float = 20.0")
              .attr("filterbank_channel_count: int = 40")
              .attr("dct_coefficient_count: int = 13")
              .shape(mfcc_shape)
              .doc("The first dct_coefficient_count mel-frequency cepstral coefficients of each spectrum of squared "
                   "magnitudes: the cosine transform of the logarithms of what filterbank_channel_count filters (at "
                   "most 4096) let through."),
          none);
  kernels.add<DecodeWav>("DecodeWav", DeviceKind::kCpu, {});
  kernels.add<EncodeWav>("EncodeWav", DeviceKind::kCpu, {});
  kernels.add("AudioSpectrogram", DeviceKind::kCpu, {}, AudioSpectrogram::make);
  kernels.add<Mfcc>("Mfcc", DeviceKind::kCpu, {});
}

}  // namespace troupe
