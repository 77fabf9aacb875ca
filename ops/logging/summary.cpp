// SPDX-License-Identifier: Apache-2.0
// Summaries as strings, which TensorBoard's event files hold: ScalarSummary, HistogramSummary, ImageSummary,
// AudioSummary, TensorSummary in its two versions, MergeSummary.
#include <set>

#include "ops/logging/register.h"
#include "ops/logging/summary_values.h"

namespace troupe {
namespace {

void set_summary(KernelContext& c, const proto::Summary& summary) {
  c.set_output(0, Tensor::scalar(summary.SerializeAsString()));
}

class ScalarSummary final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &tags = c.input(0), &values = c.input(1);
    if (tags.elements() != values.elements() || (tags.rank() != 0 && !(tags.shape() == values.shape())))
      return invalid_argument("tags {} and values {} must have one shape", tags.shape().str(), values.shape().str());
    proto::Summary summary;
    for (int64_t i = 0; i < values.elements(); ++i) add_number(tags.data<std::string>()[i], values, i, summary);
    set_summary(c, summary);
    return {};
  }
};

class HistogramSummary final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const std::string tag, text_of(c.input(0), "tag"));
    proto::Summary summary;
    TROUPE_RETURN_IF_ERROR(add_histogram(tag, c.input(1), summary));
    set_summary(c, summary);
    return {};
  }
};

class ImageSummary final : public ComputeKernel {
 public:
  explicit ImageSummary(const KernelInit& init)
      : most_(init.attr<int64_t>("max_images")), bad_(init.attr<Tensor>("bad_color")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const std::string tag, text_of(c.input(0), "tag"));
    proto::Summary summary;
    TROUPE_RETURN_IF_ERROR(add_pictures(tag, c.input(1), most_, bad_, summary));
    set_summary(c, summary);
    return {};
  }

 private:
  const int64_t most_;
  const Tensor bad_;
};

class AudioSummary final : public ComputeKernel {
 public:
  explicit AudioSummary(const KernelInit& init)
      : most_(init.attr<int64_t>("max_outputs")), rate_(init.attrs->get_or<float>("sample_rate", 0)) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const std::string tag, text_of(c.input(0), "tag"));
    if (c.num_inputs() > 2 && c.input(2).rank() != 0)
      return invalid_argument("sample_rate must be a scalar, not {}", c.input(2).shape().str());
    proto::Summary summary;
    TROUPE_RETURN_IF_ERROR(
        add_sounds(tag, c.input(1), most_, c.num_inputs() > 2 ? *c.input(2).data<float>() : rate_, summary));
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
    proto::Summary summary;
    auto* v = summary.add_value();
    TROUPE_RETURN_IF_ERROR(set_tensor(c.input(tagged_ ? 1 : 0), *v));
    if (tagged_) {
      TROUPE_ASSIGN(std::string tag, text_of(c.input(0), "tag"));
      TROUPE_ASSIGN(std::string metadata, text_of(c.input(2), "serialized_summary_metadata"));
      v->set_tag(std::move(tag));
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
  kernels.add<ScalarSummary>("ScalarSummary", cpu, {});
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
          .attr(type_attr("T", PictureTypes{}, "float32"))
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
