// SPDX-License-Identifier: Apache-2.0
// Summaries as strings, which TensorBoard's event files hold: ScalarSummary, HistogramSummary, ImageSummary,
// AudioSummary, TensorSummary in its two versions, MergeSummary.
#include <algorithm>
#include <cmath>
#include <set>

#include "graph/graph_def/attr_proto.h"
#include "io/summary.h"
#include "ops/logging/register.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

void set_summary(KernelContext& c, const proto::Summary& summary) {
  c.set_output(0, Tensor::scalar(summary.SerializeAsString()));
}

Result<std::string> tag_of(const Tensor& t) {
  if (t.rank() != 0) return invalid_argument("tag must be a scalar, not {}", t.str());
  return t.data<std::string>()[0];
}

template <class T> class ScalarSummary final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &tags = c.input(0), &values = c.input(1);
    if (tags.elements() != values.elements() || (tags.rank() != 0 && !(tags.shape() == values.shape())))
      return invalid_argument("tags {} and values {} must have one shape", tags.shape().str(), values.shape().str());
    proto::Summary summary;
    for (int64_t i = 0; i < values.elements(); ++i) {
      auto* v = summary.add_value();
      v->set_tag(tags.data<std::string>()[i]);
      v->set_simple_value(static_cast<float>(widen(values.data<T>()[i])));
    }
    set_summary(c, summary);
    return {};
  }
};

class HistogramSummary final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const std::string tag, tag_of(c.input(0)));
    proto::Summary summary;
    TROUPE_RETURN_IF_ERROR(add_histogram(tag, c.input(1), summary));
    set_summary(c, summary);
    return {};
  }
};

/// Pixels as bytes. Floats are scaled so that the largest of an image becomes 255; where some are negative, so that
/// 0 becomes 128 and the largest magnitude 127 away from it. A pixel with NaN or infinity gets the bad colour.
class ImageSummary final : public ComputeKernel {
 public:
  explicit ImageSummary(const KernelInit& init)
      : most_(init.attr<int64_t>("max_images")), bad_(init.attr<Tensor>("bad_color")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const std::string tag, tag_of(c.input(0)));
    const Tensor& images = c.input(1);
    constexpr int64_t kMostSide = 1 << 15;
    const int64_t channels = images.rank() == 4 ? images.dim(3) : 0;
    if ((channels != 1 && channels != 3 && channels != 4) || images.dim(1) < 1 || images.dim(2) < 1 ||
        images.dim(1) > kMostSide || images.dim(2) > kMostSide)
      return invalid_argument("images must be [n, height, width, 1|3|4], not {}", images.shape().str());
    if (bad_.dtype() != DType::kUInt8 || bad_.elements() < channels)
      return invalid_argument("bad_color {} has not {} channels of uint8", bad_.str(), channels);
    const int64_t size = images.elements() / std::max<int64_t>(images.dim(0), 1);
    std::vector<uint8_t> pixels(static_cast<size_t>(size));
    proto::Summary summary;
    for (int64_t i = 0; i < std::min(most_, images.dim(0)); ++i) {
      with_type(images.dtype(), Types{}, [&]<class T>() { to_bytes(images.data<T>() + i * size, channels, pixels); });
      TROUPE_RETURN_IF_ERROR(add_image(most_ == 1 ? tag + "/image" : fmt::format("{}/image/{}", tag, i), pixels.data(),
                                       images.dim(1), images.dim(2), channels, summary));
    }
    set_summary(c, summary);
    return {};
  }
  using Types = TypeList<uint8_t, float, float16, double>;

 private:
  template <class T> void to_bytes(const T* in, int64_t channels, std::vector<uint8_t>& out) const {
    if constexpr (std::is_same_v<T, uint8_t>) {
      std::copy_n(in, out.size(), out.begin());
    } else {
      const auto value = [in](size_t k) { return static_cast<float>(widen(in[k])); };
      float low = 0, high = 0;
      for (size_t k = 0; k < out.size(); ++k)
        if (std::isfinite(value(k))) low = std::min(low, value(k)), high = std::max(high, value(k));
      const float most = std::max(-low, high), offset = low < 0 ? 128 : 0,
                  scale = most > 0 ? (low < 0 ? 127 : 255) / most : 0;
      const auto n = static_cast<size_t>(channels);
      for (size_t pixel = 0; pixel < out.size(); pixel += n) {
        bool finite = true;
        for (size_t k = pixel; k < pixel + n; ++k) finite &= std::isfinite(value(k));
        for (size_t k = 0; k < n; ++k)
          out[pixel + k] = finite ? static_cast<uint8_t>(value(pixel + k) * scale + offset) : bad_.data<uint8_t>()[k];
      }
    }
  }
  const int64_t most_;
  const Tensor bad_;
};

/// The first sounds of a batch [batch,frames,channels] or [batch,frames].
class AudioSummary final : public ComputeKernel {
 public:
  explicit AudioSummary(const KernelInit& init)
      : most_(init.attr<int64_t>("max_outputs")), rate_(init.attrs->get_or<float>("sample_rate", 0)) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const std::string tag, tag_of(c.input(0)));
    const Tensor& sound = c.input(1);
    if (sound.rank() != 2 && sound.rank() != 3)
      return invalid_argument("tensor must be [batch,frames,channels] or [batch,frames], not {}", sound.shape().str());
    if (c.num_inputs() > 2 && c.input(2).rank() != 0)
      return invalid_argument("sample_rate must be a scalar, not {}", c.input(2).shape().str());
    const float rate = c.num_inputs() > 2 ? *c.input(2).data<float>() : rate_;
    if (!(rate > 0 && rate < 1e9f)) return invalid_argument("sample_rate must be above 0, not {}", rate);
    const int64_t frames = sound.dim(1), channels = sound.rank() == 3 ? sound.dim(2) : 1;
    proto::Summary summary;
    for (int64_t i = 0; i < std::min(most_, sound.dim(0)); ++i)
      TROUPE_RETURN_IF_ERROR(add_audio(most_ > 1 ? fmt::format("{}/audio/{}", tag, i) : tag + "/audio",
                                       sound.data<float>() + i * frames * channels, frames, channels, rate, summary));
    set_summary(c, summary);
    return {};
  }

 private:
  const int64_t most_;
  const float rate_;
};

/// A whole tensor, under the name of the node or, in the second version, a tag.
class TensorSummary final : public ComputeKernel {
 public:
  explicit TensorSummary(const KernelInit& init) : node_(init.node), tagged_(init.op == "TensorSummaryV2") {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(tagged_ ? 1 : 0);
    if (x.dtype() == DType::kResource || x.dtype() == DType::kVariant)
      return invalid_argument("{} cannot be written as bytes", to_string(x.dtype()));
    proto::AttrValue value;
    to_proto(AttrValue(x), value);
    if (value.tensor().ByteSizeLong() > INT32_MAX / 2)
      return make_error(Code::kResourceExhausted, "{} takes {} bytes, more than a summary may have", x.shape().str(),
                        value.tensor().ByteSizeLong());
    proto::Summary summary;
    auto* v = summary.add_value();
    v->set_tensor(value.tensor().SerializeAsString());
    if (tagged_) {
      TROUPE_ASSIGN(const std::string tag, tag_of(c.input(0)));
      TROUPE_ASSIGN(std::string metadata, tag_of(c.input(2)));
      v->set_tag(tag);
      v->set_metadata(std::move(metadata));
    } else {
      v->set_node_name(node_);
    }
    set_summary(c, summary);
    return {};
  }

 private:
  const std::string node_;
  const bool tagged_;
};

class MergeSummary final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    proto::Summary all;
    std::set<std::string> tags;
    for (int i = 0; i < c.num_inputs(); ++i) {
      for (const std::string& bytes : c.input(i).values<std::string>()) {
        proto::Summary one;
        if (!one.ParseFromString(bytes))
          return invalid_argument("input {} holds {} bytes that are not a Summary", i, bytes.size());
        for (auto& value : *one.mutable_value()) {
          if (!tags.insert(value.tag()).second) return invalid_argument("the tag '{}' is there twice", value.tag());
          *all.add_value() = std::move(value);
        }
      }
    }
    set_summary(c, all);
    return {};
  }
};

}  // namespace

void register_summary_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto summary = [](const char* name) { return OpDef(name); };
  const auto add = [&](OpDef op) {
    ops.add(op.output("summary: string").shape(scalar_shape), not_differentiable("a summary is a string"));
  };
  const auto cpu = DeviceKind::kCpu;
  add(summary("ScalarSummary")
          .input("tags: string")
          .input("values: T")
          .attr(type_attr("T", NumberTypes{}))
          .doc("A Summary of numbers, each under its tag."));
  add_cpu_kernels<ScalarSummary>(kernels, "ScalarSummary", NumberTypes{});
  add(summary("HistogramSummary")
          .input("tag: string")
          .input("values: T")
          .attr(type_attr("T", NumberTypes{}, "float32"))
          .doc("A Summary of the distribution of all values. NaN and infinity are errors."));
  kernels.add<HistogramSummary>("HistogramSummary", cpu, {});
  add(summary("ImageSummary")
          .input("tag: string")
          .input("tensor: T")
          .attr("max_images: int >= 1 = 3")
          .attr(type_attr("T", ImageSummary::Types{}, "float32"))
          .attr("bad_color: tensor")
          .doc("A Summary of the first `max_images` of images [n, height, width, channels] as PNG. Floats of an image "
               "are "
               "scaled to 0 to 255, or around 128 where some are negative; pixels with NaN or infinity get "
               "`bad_color`."));
  kernels.add<ImageSummary>("ImageSummary", cpu, {});
  for (const char* name : {"AudioSummaryV2", "AudioSummary"}) {
    const bool second = std::string_view(name).ends_with('2');
    OpDef op = summary(name);
    op.input("tag: string").input("tensor: float32");
    if (second) op.input("sample_rate: float32");
    else op.attr("sample_rate: float");
    add(op.attr("max_outputs: int >= 1 = 3")
            .doc("A Summary of the first `max_outputs` sounds of a batch [batch,frames,channels] or [batch,frames] of "
                 "numbers in [-1, 1] as WAV of 16 bits."));
    kernels.add<AudioSummary>(name, cpu, {});
  }
  add(summary("TensorSummary")
          .input("tensor: T")
          .attr("T: type")
          .attr("description: string = ''")
          .attr("labels: list(string) = []")
          .attr("display_name: string = ''")
          .doc("A Summary of a whole tensor under the node's name. Handles and lists are errors."));
  kernels.add<TensorSummary>("TensorSummary", cpu, {});
  add(summary("TensorSummaryV2")
          .input("tag: string")
          .input("tensor: T")
          .input("serialized_summary_metadata: string")
          .attr("T: type")
          .doc("A Summary of a whole tensor under a tag, with metadata that says how to show it, which are not looked "
               "at. Handles and lists are errors."));
  kernels.add<TensorSummary>("TensorSummaryV2", cpu, {});
  add(summary("MergeSummary")
          .input("inputs: N * string")
          .attr("N: int >= 1")
          .doc("All values of Summaries in one. A tag that is there twice is an error."));
  kernels.add<MergeSummary>("MergeSummary", cpu, {});
}

}  // namespace troupe
