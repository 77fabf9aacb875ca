// SPDX-License-Identifier: Apache-2.0
// Pictures in strings: DecodePng, DecodeJpeg, DecodeAndCropJpeg, DecodeGif, DecodeBmp, DecodeImage, ExtractJpegShape,
// EncodePng, EncodeJpeg, EncodeJpegVariableQuality.
#include "base/join.h"
#include "io/image.h"
#include "ops/image/register.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// The one string of input 0.
Result<std::string_view> contents_of(const Tensor& t) {
  if (t.rank() != 0) return invalid_argument("contents must be one string, not {}", t.shape().str());
  return std::string_view(*t.data<std::string>());
}

ImageOptions options_from(const Attrs& attrs, DType dtype) {
  ImageOptions o;
  o.channels = attrs.get_or<int64_t>("channels", 0);
  o.dtype = dtype;
  o.ratio = attrs.get_or<int64_t>("ratio", 1);
  o.fancy_upscaling = attrs.get_or("fancy_upscaling", true);
  o.exact_dct = attrs.get_or<std::string>("dct_method", "") == "INTEGER_ACCURATE";
  o.recover_truncated = attrs.get_or("try_recover_truncated", false);
  o.acceptable_fraction = attrs.get_or("acceptable_fraction", 1.f);
  o.first_frame = !attrs.get_or("expand_animations", true);
  return o;
}

/// Whether an op decodes pictures of a format: as TensorFlow's they take one another's, with exceptions. What is no
/// picture at all is for the decoder to refuse.
bool takes(std::string_view op, ImageFormat format) {
  if (format == ImageFormat::kUnknown) return true;
  if (op == "DecodeImage") return true;
  if (op == "DecodeBmp") return format == ImageFormat::kBmp;
  if (op == "DecodeAndCropJpeg") return format == ImageFormat::kJpeg;
  return format != ImageFormat::kBmp;
}

class DecodeImage final : public ComputeKernel {
 public:
  explicit DecodeImage(const KernelInit& init)
      : op_(init.op), crops_(op_ == "DecodeAndCropJpeg"), frames_(op_ == "DecodeGif"),
        animations_(op_ == "DecodeImage" && init.attr<bool>("expand_animations")), dtype_(init.output_dtypes[0]),
        options_(options_from(*init.attrs, dtype_)) {
    if (frames_) options_.channels = 3;
  }
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const std::string_view bytes, contents_of(c.input(0)));
    const ImageFormat format = image_format(bytes);
    if (!takes(op_, format)) return invalid_argument("contents are a {} picture", to_string(format));
    ImageOptions options = options_;
    const bool floats = dtype_ == DType::kFloat32, png = format == ImageFormat::kPng;
    if (floats) options.dtype = png ? DType::kUInt16 : DType::kUInt8;
    if (crops_) {
      TROUPE_ASSIGN(const auto window, int_values(c.input(1), "crop_window"));
      if (window.size() != 4) return invalid_argument("crop_window has {} numbers, not 4", window.size());
      options.window = {window[0], window[1], window[2], window[3]};
    }
    TROUPE_ASSIGN(Tensor y, decode_image(bytes, format, options, c.device().allocator));
    TROUPE_ASSIGN(y, with_frames(std::move(y), format == ImageFormat::kGif));
    if (floats) {
      TROUPE_ASSIGN(y, png ? scaled<uint16_t>(c, y) : scaled<uint8_t>(c, y));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  /// The picture, or the frames of one, with the dimensions that the op gives.
  Result<Tensor> with_frames(Tensor y, bool has_frames) const {
    const Shape s = y.shape();
    if (has_frames == frames_ || (has_frames && animations_)) return y;
    if (!has_frames) return y.reshape(Shape{1, s[0], s[1], s[2]});
    if (s[0] == 1) return y.reshape(Shape{s[1], s[2], s[3]});
    return invalid_argument(
        "contents are a GIF picture of {} frames: only DecodeGif and DecodeImage take more than one", s[0]);
  }
  /// Numbers of 0 to 1.
  template <class T> static Result<Tensor> scaled(const KernelContext& c, const Tensor& x) {
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, x.shape()));
    constexpr float kScale = 1.f / std::numeric_limits<T>::max();
    for (int64_t i = 0; i < x.elements(); ++i) y.mutable_data<float>()[i] = static_cast<float>(x.data<T>()[i]) * kScale;
    return y;
  }

  const std::string op_;
  const bool crops_, frames_, animations_;
  const DType dtype_;
  ImageOptions options_;
};

class JpegShape final : public ComputeKernel {
 public:
  explicit JpegShape(const KernelInit& init) : dtype_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const std::string_view bytes, contents_of(c.input(0)));
    TROUPE_ASSIGN(const ImageSize size, jpeg_size(bytes));
    const int64_t dims[] = {size.height, size.width, size.channels};
    TROUPE_ASSIGN(Tensor y, int_tensor(dtype_, dims, Shape{3}));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const DType dtype_;
};

/// Errors: a rank other than 3.
Result<Pixels> pixels_of(const Tensor& t) {
  if (t.rank() != 3) return invalid_argument("image must be [height,width,channels], not {}", t.shape().str());
  return Pixels{t.raw(), t.dim(0), t.dim(1), t.dim(2), t.dtype() == DType::kUInt16 ? 16 : 8};
}

class EncodePng final : public ComputeKernel {
 public:
  explicit EncodePng(const KernelInit& init) : compression_(init.attr<int64_t>("compression")) {}
  Status compute(KernelContext& c) override {
    const Tensor& images = c.input(0);
    if (images.rank() < 3) return invalid_argument("image must have rank 3 or more: {}", images.shape().str());
    const Shape batch(images.shape().dims().first(static_cast<size_t>(images.rank() - 3)));
    const Shape one{images.dim(-3), images.dim(-2), images.dim(-1)};
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kString, batch));
    const auto size = static_cast<int64_t>(size_of(images.dtype()));
    for (int64_t i = 0; i < batch.elements(); ++i) {
      const Pixels pixels{static_cast<const char*>(images.raw()) + i * one.elements() * size, one[0], one[1], one[2],
                          static_cast<int>(8 * size)};
      TROUPE_ASSIGN(y.mutable_data<std::string>()[i], encode_png(pixels, compression_));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const int64_t compression_;
};

class EncodeJpeg final : public ComputeKernel {
 public:
  explicit EncodeJpeg(const KernelInit& init) {
    const Attrs& a = *init.attrs;
    const auto format = a.get_or<std::string>("format", "");
    channels_ = format == "grayscale" ? 1 : format == "rgb" ? 3 : 0;
    options_.quality = a.get_or<int64_t>("quality", 95);
    options_.progressive = a.get_or("progressive", false);
    options_.optimize_size = a.get_or("optimize_size", false);
    options_.chroma_downsampling = a.get_or("chroma_downsampling", true);
    options_.centimetres = a.get_or<std::string>("density_unit", "in") == "cm";
    options_.x_density = a.get_or<int64_t>("x_density", 300);
    options_.y_density = a.get_or<int64_t>("y_density", 300);
    options_.xmp_metadata = a.get_or<std::string>("xmp_metadata", "");
  }
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Pixels pixels, pixels_of(c.input(0)));
    if (channels_ && pixels.channels != channels_)
      return invalid_argument("format of {} channels for image {}", channels_, c.input(0).shape().str());
    JpegOptions options = options_;
    if (c.num_inputs() == 2) {
      TROUPE_ASSIGN(options.quality, int_scalar(c.input(1), "quality"));
    }
    TROUPE_ASSIGN(std::string bytes, encode_jpeg(pixels, options));
    c.set_output(0, Tensor::scalar(std::move(bytes)));
    return {};
  }

 private:
  int64_t channels_ = 0;
  JpegOptions options_;
};

// --- shapes ---

Status decoded_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 0).status());
  const auto channels = c.attr<int64_t>("channels");
  if (channels < 0 || channels > 4 || channels == 2)
    return invalid_argument("channels is 0, 1, 3 or 4, not {}", channels);
  int64_t height = -1, width = -1;
  if (c.num_inputs() == 2) {
    TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
    if (const auto window = c.constant_input(1)) {
      TROUPE_ASSIGN(const auto values, int_values(*window, "crop_window"));
      if (values.size() != 4 || values[2] < 1 || values[3] < 1)
        return invalid_argument("crop_window must be top, left, height, width, not [{}]", join(values));
      height = values[2];
      width = values[3];
    }
  }
  const auto* animations = c.attrs().get<bool>("expand_animations");
  if (animations && *animations) return {};  // with frames or without
  c.set_output(0, PartialShape{height, width, channels == 0 ? -1 : channels});
  return {};
}

/// A scalar for an image of rank 3.
Status encoded_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 3).status());
  if (c.num_inputs() == 2) TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0).status());
  return scalar_shape(c);
}

Status batch_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape images, c.with_rank_at_least(0, 3));
  if (!images.has_rank()) return {};
  TROUPE_ASSIGN(PartialShape out, PartialShape::make(images.dims().first(static_cast<size_t>(images.rank() - 3))));
  c.set_output(0, std::move(out));
  return {};
}

constexpr const char* kTakesBytes = "it takes bytes";
constexpr const char* kTakesIntegers = "it takes integers";

OpDef with_jpeg(OpDef op) {
  return op.attr("channels: int = 0")
      .attr("ratio: int = 1")
      .attr("fancy_upscaling: bool = true")
      .attr("try_recover_truncated: bool = false")
      .attr("acceptable_fraction: float = 1.0")
      .attr("dct_method: string = ''");
}

void add_decoders(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string rest =
      " The result is [height,width,channels]; with channels 0 it has those of the picture. Damaged pictures are "
      "errors.";
  ops.add(OpDef("DecodePng")
              .input("contents: string")
              .output("image: dtype")
              .attr("channels: int = 0")
              .attr("dtype: {uint8, uint16} = uint8")
              .shape(decoded_shape)
              .doc("The pixels of a PNG picture (or a JPEG or a GIF of one frame)." + rest),
          not_differentiable(kTakesBytes));
  ops.add(with_jpeg(OpDef("DecodeJpeg").input("contents: string").output("image: uint8"))
              .shape(decoded_shape)
              .doc("The pixels of a JPEG picture (or a PNG or a GIF of one frame), smaller by `ratio`." + rest +
                   " With try_recover_truncated what is missing at the end is made up; without, it is black if "
                   "acceptable_fraction of the rows are there."),
          not_differentiable(kTakesBytes));
  ops.add(
      with_jpeg(OpDef("DecodeAndCropJpeg").input("contents: string").input("crop_window: int32").output("image: uint8"))
          .shape(decoded_shape)
          .doc("The pixels of the part of a JPEG picture that crop_window, top, left, height and width, tells." + rest),
      not_differentiable(kTakesBytes));
  ops.add(OpDef("DecodeBmp")
              .input("contents: string")
              .output("image: uint8")
              .attr("channels: int = 0")
              .shape(decoded_shape)
              .doc("The pixels of a BMP picture without compression, of 8, 24 or 32 bits a pixel." + rest),
          not_differentiable(kTakesBytes));
  ops.add(
      OpDef("DecodeGif")
          .input("contents: string")
          .output("image: uint8")
          .shape([](ShapeContext& c) -> Status {
            TROUPE_RETURN_IF_ERROR(c.with_rank(0, 0).status());
            c.set_output(0, PartialShape{-1, -1, -1, 3});
            return {};
          })
          .doc("The frames [frames,height,width,3] of a GIF picture (or the one of a PNG or JPEG). Where a frame is "
               "transparent or does not cover the picture it shows the one before it. Damaged pictures are "
               "errors."),
      not_differentiable(kTakesBytes));
  ops.add(OpDef("DecodeImage")
              .input("contents: string")
              .output("image: dtype")
              .attr("channels: int = 0")
              .attr("dtype: {uint8, uint16, float32} = uint8")
              .attr("expand_animations: bool = true")
              .shape(decoded_shape)
              .doc("The pixels of a PNG, JPEG, GIF or BMP picture; as floats they are from 0 to 1." + rest +
                   " A GIF has frames before these, or with expand_animations false only the first one."),
          not_differentiable(kTakesBytes));
  ops.add(OpDef("ExtractJpegShape")
              .input("contents: string")
              .output("image_shape: output_type")
              .attr("output_type: {int32, int64} = int32")
              .shape([](ShapeContext& c) -> Status {
                TROUPE_RETURN_IF_ERROR(c.with_rank(0, 0).status());
                c.set_output(0, PartialShape{3});
                return {};
              })
              .doc("Height, width and channels of a JPEG picture, without decoding it."),
          not_differentiable(kTakesBytes));
  for (const char* op : {"DecodePng", "DecodeJpeg", "DecodeAndCropJpeg", "DecodeGif", "DecodeBmp", "DecodeImage"})
    kernels.add<DecodeImage>(op, DeviceKind::kCpu, {});
  kernels.add<JpegShape>("ExtractJpegShape", DeviceKind::kCpu, {});
}

void add_encoders(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("EncodePng")
              .input("image: T")
              .output("contents: string")
              .attr("compression: int = -1")
              .attr("T: {uint8, uint16} = uint8")
              .shape(batch_shape)
              .doc("The PNG picture of each image [...,height,width,channels] of 1 to 4 channels."),
          not_differentiable(kTakesIntegers));
  ops.add(OpDef("EncodeJpeg")
              .input("image: uint8")
              .output("contents: string")
              .attr("format: {'', 'grayscale', 'rgb'} = ''")
              .attr("quality: int = 95")
              .attr("progressive: bool = false")
              .attr("optimize_size: bool = false")
              .attr("chroma_downsampling: bool = true")
              .attr("density_unit: {'in', 'cm'} = 'in'")
              .attr("x_density: int = 300")
              .attr("y_density: int = 300")
              .attr("xmp_metadata: string = ''")
              .shape(encoded_shape)
              .doc("The JPEG picture of an image [height,width,channels] of 1 or 3 channels."),
          not_differentiable(kTakesIntegers));
  ops.add(OpDef("EncodeJpegVariableQuality")
              .input("images: uint8")
              .input("quality: int32")
              .output("contents: string")
              .shape(encoded_shape)
              .doc("EncodeJpeg with a quality that is an input."),
          not_differentiable(kTakesIntegers));
  kernels.add<EncodePng>("EncodePng", DeviceKind::kCpu, {});
  for (const char* op : {"EncodeJpeg", "EncodeJpegVariableQuality"}) kernels.add<EncodeJpeg>(op, DeviceKind::kCpu, {});
}

}  // namespace

void register_image_file_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_decoders(ops, kernels);
  add_encoders(ops, kernels);
}

}  // namespace troupe
