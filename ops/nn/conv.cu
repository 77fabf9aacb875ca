// SPDX-License-Identifier: Apache-2.0
// Convolutions over images and their gradients on GPUs, by the device's library (gpu/dnn.h), with the bias and Relu of
// a fused one where it has such. Kernels here bring to it what it has no form for: filters in the order of this
// library's graphs, padding that differs before and after.
#include <atomic>

#include "gpu/dnn.h"
#include "ops/nn/conv_kernel.h"
#include "ops/nn/gpu_epilogue.h"
#include "ops/nn/register.h"
#include "ops/parts/elementwise.cuh"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

constexpr int kTile = 32, kTileRows = 8;

/// From [a, b, c] to [c, b, a], by blocks of kTile x kTileRows threads.
template <class T> __global__ void reverse_dimensions(T* out, const T* in, int64_t a, int64_t b, int64_t c) {
  TROUPE_SHARED(T, tile, [kTile][kTile + 1]);
  const int64_t columns = (c + kTile - 1) / kTile, of_plane = (a + kTile - 1) / kTile * columns;
  const int x = static_cast<int>(threadIdx.x);
  for (int64_t t = blockIdx.x; t < of_plane * b; t += gridDim.x) {
    const int64_t plane = t / of_plane, at = t % of_plane, first_a = at / columns * kTile,
                  first_c = at % columns * kTile;
    for (int y = static_cast<int>(threadIdx.y); y < kTile; y += kTileRows)
      if (first_a + y < a && first_c + x < c) tile[y][x] = in[((first_a + y) * b + plane) * c + first_c + x];
    __syncthreads();
    for (int y = static_cast<int>(threadIdx.y); y < kTile; y += kTileRows)
      if (first_c + y < c && first_a + x < a) out[((first_c + y) * b + plane) * a + first_a + x] = tile[x][y];
    __syncthreads();
  }
}
template <class T> Status launch_reverse(const gpu::Compute& gpu, void* out, const void* in, const int64_t (&size)[3]) {
  const auto tiles = [](int64_t n) { return (n + kTile - 1) / kTile; };
  return TROUPE_LAUNCH(gpu.stream, reverse_dimensions<T>,
                       gpu::blocks_for(gpu.card, tiles(size[0]) * size[1] * tiles(size[2]), 1), dim3(kTile, kTileRows),
                       0, static_cast<T*>(out), static_cast<const T*>(in), size[0], size[1], size[2]);
}

/// Images [height, width, channels] one after the other; those of NCHW are images of one channel.
struct PlainImages {
  int64_t count, height, width, channels;
};

/// out[y][x] = in[y - down][x - right], 0 where that is not in the image; `sizes` are those of out.
template <class T>
__global__ void shift_images(T* out, const T* in, int64_t n, int64_t height, int64_t width, int64_t down, int64_t right,
                             const __grid_constant__ GpuSizes sizes) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    int64_t image = i;
    const int64_t c = sizes.pop(3, image), x = sizes.pop(2, image) - right, y = sizes.pop(1, image) - down;
    const bool inside = x >= 0 && x < width && y >= 0 && y < height;
    out[i] = inside ? in[((image * height + y) * width + x) * sizes.size[3] + c] : T();
  }
}
template <class T>
Status launch_shift(const gpu::Compute& gpu, void* out, const PlainImages& to, const void* in, const PlainImages& from,
                    int64_t down, int64_t right) {
  const int64_t sizes[] = {to.count, to.height, to.width, to.channels};
  const int64_t n = to.count * to.height * to.width * to.channels;
  return TROUPE_LAUNCH(gpu.stream, shift_images<T>, pack_blocks<1>(gpu, n), kElementThreads, 0, static_cast<T*>(out),
                       static_cast<const T*>(in), n, from.height, from.width, down, right, GpuSizes(sizes, 4));
}

class GpuConvolution final : public ComputeKernel {
 public:
  GpuConvolution(WindowAttrs attrs, ConvDirection direction, bool depthwise, EpilogueForm epilogue)
      : attrs_(std::move(attrs)), direction_(direction), depthwise_(depthwise), epilogue_(std::move(epilogue)),
        library_finishes_(epilogue_.activation.empty() || epilogue_.activation == "Relu") {}

  Status compute(KernelContext& c) override {
    const gpu::Compute& gpu = *c.device().gpu;
    const int typed = direction_ == ConvDirection::kInput ? 1 : 0;
    const DType dtype = c.input(typed).dtype();
    TROUPE_ASSIGN(const ConvTensors all, conv_tensors(c, attrs_, direction_, depthwise_));
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype, all.made));
    bool finished = false;  // bias and activation
    if (y.elements() > 0) {
      if (all.empty()) {
        declare_uses(c, {&y});
        TROUPE_RETURN_IF_ERROR(gpu.stream.fill(y.mutable_address(), 0, y.bytes()));
      } else {
        const auto convolve_as = size_of(dtype) == 2   ? &GpuConvolution::convolve<uint16_t>
                                 : size_of(dtype) == 4 ? &GpuConvolution::convolve<uint32_t>
                                                       : &GpuConvolution::convolve<uint64_t>;
        TROUPE_ASSIGN(finished, (this->*convolve_as)(c, all, y));
      }
    }
    if (has_epilogue() && !finished)
      TROUPE_RETURN_IF_ERROR(
          launch_epilogue(gpu, {epilogue_, epilogue_.bias ? &c.input(2) : nullptr, attrs_.layout.channels_first}, y));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  bool has_epilogue() const { return epilogue_.bias || !epilogue_.activation.empty(); }

  /// Whether the library did the epilogue too. Elements are moved as S.
  template <class S> Result<bool> convolve(KernelContext& c, const ConvTensors& all, Tensor& y) {
    using Makes = gpu::Convolution::Makes;
    const gpu::Compute& gpu = *c.device().gpu;
    if (!gpu.dnn) return make_error(Code::kUnimplemented, "this GPU device has no library of convolutions");
    const ConvShape& s = all.shape;
    const bool first = attrs_.layout.channels_first, of_input = direction_ == ConvDirection::kInput,
               of_filter = direction_ == ConvDirection::kFilter;
    gpu::Convolution v{.makes = of_input    ? Makes::kInput
                                : of_filter ? Makes::kFilter
                                            : Makes::kOutput,
                       .dtype = y.dtype(),
                       .channels_first = first,
                       .batch = s.batch,
                       .in_channels = s.in_channels,
                       .out_channels = s.out_channels,
                       .groups = s.groups};
    v.y = axis(s.y);
    v.x = axis(s.x);

    // The filter, which is [height, width, in, out], as the library has it.
    const int64_t places = s.y.size * s.x.size;
    const int64_t ours[3] = {first ? places : places * s.group_in, first ? s.group_in : 1, s.out_channels};
    const int64_t theirs[3] = {ours[2], ours[1], ours[0]};
    const bool reversed = (ours[0] > 1) + (ours[1] > 1) + (ours[2] > 1) > 1;
    Tensor filter;
    if (reversed) {
      TROUPE_ASSIGN(filter, c.allocate(y.dtype(), all.filter));
    }
    // The images, with as much padding before as after.
    const PlainImages plain{first ? s.batch * s.in_channels : s.batch, s.y.in, s.x.in, first ? 1 : s.in_channels};
    const PlainImages padded{plain.count, v.y.in, v.x.in, plain.channels};
    const int64_t down = s.y.lo - v.y.padding, right = s.x.lo - v.x.padding;
    const bool pads = v.y.in != s.y.in || v.x.in != s.x.in;
    Tensor images;
    if (pads) {
      TROUPE_ASSIGN(images, c.allocate(y.dtype(), attrs_.layout.shape<Shape>(s.batch, v.y.in, v.x.in, s.in_channels)));
    }

    declare_uses(c, {&y, reversed ? &filter : &y, pads ? &images : &y});
    if (reversed && !of_filter)
      TROUPE_RETURN_IF_ERROR(launch_reverse<S>(gpu, filter.mutable_address(), c.input(1).address(), ours));
    if (pads && !of_input)
      TROUPE_RETURN_IF_ERROR(
          launch_shift<S>(gpu, images.mutable_address(), padded, c.input(0).address(), plain, down, right));
    v.input = pads ? images.address() : c.input(0).address();
    v.filter = reversed ? filter.address() : c.input(1).address();
    v.output = of_input || of_filter ? c.input(2).address() : nullptr;
    Tensor& made = of_input && pads ? images : of_filter && reversed ? filter : y;
    v.made = made.mutable_address();
    TROUPE_ASSIGN(const bool finished, with_epilogue(c, v, all.shape.out_channels));
    if (finished) return true;
    TROUPE_RETURN_IF_ERROR(gpu.dnn->convolve(gpu, v));
    if (of_filter && reversed)
      TROUPE_RETURN_IF_ERROR(launch_reverse<S>(gpu, y.mutable_address(), filter.address(), theirs));
    if (of_input && pads)
      TROUPE_RETURN_IF_ERROR(launch_shift<S>(gpu, y.mutable_address(), plain, images.address(), padded, -down, -right));
    return false;
  }

  /// Convolves with bias and activation, if the library has that.
  Result<bool> with_epilogue(const KernelContext& c, gpu::Convolution v, int64_t channels) {
    if (!has_epilogue() || !library_finishes_.load(std::memory_order_relaxed)) return false;
    if (epilogue_.bias) {
      const Tensor& bias = c.input(2);
      if (bias.rank() != 1 || bias.dim(0) != channels) return false;  // an error, told later
      v.bias = bias.address();
    }
    if (!epilogue_.activation.empty()) v.activation = gpu::Activation::kRelu;
    Status status = c.device().gpu->dnn->convolve(*c.device().gpu, v);
    if (status.ok()) return true;
    if (status.error().code != Code::kUnimplemented) return std::move(status.error());
    library_finishes_.store(false, std::memory_order_relaxed);  // it has none for these types or sizes
    return false;
  }

  static gpu::Convolution::Axis axis(const WindowAxis& a) {
    const int64_t both = std::min(a.lo, a.hi);
    return {.in = a.in + a.lo + a.hi - 2 * both,
            .size = a.size,
            .stride = a.stride,
            .dilation = a.dilation,
            .padding = both,
            .out = a.out};
  }

  const WindowAttrs attrs_;
  const ConvDirection direction_;
  const bool depthwise_;
  const EpilogueForm epilogue_;
  std::atomic<bool> library_finishes_;
};

void add_convolution(KernelRegistry& kernels, const char* op, ConvDirection direction, bool depthwise) {
  KernelRegistry::HostMemory sizes;
  if (direction == ConvDirection::kInput) sizes.inputs = {0};
  if (direction == ConvDirection::kFilter) sizes.inputs = {1};
  kernels.add(
      op, DeviceKind::kCuda, {{"T", FloatTypes::dtypes()}},
      [=](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
        TROUPE_ASSIGN(WindowAttrs attrs, WindowAttrs::parse(*init.attrs));
        EpilogueForm epilogue;
        if (init.op.starts_with("_Fused")) {
          TROUPE_ASSIGN(epilogue, EpilogueForm::parse(init));
        }
        return std::unique_ptr<ComputeKernel>(
            new GpuConvolution(std::move(attrs), direction, depthwise, std::move(epilogue)));
      },
      sizes);
}

}  // namespace

void register_conv_gpu(KernelRegistry& kernels) {
  add_convolution(kernels, "Conv2D", ConvDirection::kOutput, false);
  add_convolution(kernels, "_FusedConv2D", ConvDirection::kOutput, false);
  add_convolution(kernels, "_FusedDepthwiseConv2dNative", ConvDirection::kOutput, true);
  add_convolution(kernels, "Conv2DBackpropInput", ConvDirection::kInput, false);
  add_convolution(kernels, "Conv2DBackpropFilter", ConvDirection::kFilter, false);
  add_convolution(kernels, "DepthwiseConv2dNative", ConvDirection::kOutput, true);
  add_convolution(kernels, "DepthwiseConv2dNativeBackpropInput", ConvDirection::kInput, true);
  add_convolution(kernels, "DepthwiseConv2dNativeBackpropFilter", ConvDirection::kFilter, true);
}

}  // namespace troupe::TROUPE_GPU_VARIANT
