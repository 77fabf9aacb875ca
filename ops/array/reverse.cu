// SPDX-License-Identifier: Apache-2.0
// ReverseSequence on GPUs: a thread for each piece. A length that is out of range, which is an error on CPUs, counts as
// the nearest that is not. The other orders are in ops/parts/moves.cu.
#include "ops/array/reverse.h"

#include <algorithm>

#include "ops/array/register.h"
#include "ops/parts/gpu_elementwise.h"
#include "ops/parts/gpu_index.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/pieces.cuh"
#include "ops/parts/type_dispatch.h"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

constexpr int kReverseThreads = 256;

/// `sizes`: five dimensions, of which the second and the fourth are that of sequences and that which numbers them, in
/// their order. `step`: how far apart the elements of a sequence are.
template <class S, class I>
__global__ void reverse_beginnings(S* out, const S* x, const I* lengths, int64_t n, bool sequence_first, int64_t step,
                                   const __grid_constant__ GpuSizes sizes) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x, steps = sizes.size[sequence_first ? 1 : 3];
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    int64_t rest = i;
    sizes.pop(4, rest);
    const int64_t second = sizes.pop(3, rest);
    sizes.pop(2, rest);
    const int64_t first = sizes.pop(1, rest);
    const int64_t k = sequence_first ? first : second;
    const auto length = static_cast<int64_t>(lengths[sequence_first ? second : first]);
    const int64_t end = length < steps ? length : steps;
    out[i] = x[k < end ? i + (end - 1 - 2 * k) * step : i];
  }
}

class GpuReverseSequence final : public ComputeKernel {
 public:
  explicit GpuReverseSequence(const KernelInit& init) : attrs_(*init.attrs) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &lengths = c.input(1);
    TROUPE_ASSIGN(const SequenceAxes axes, plan_reverse_sequence(attrs_, x.shape(), lengths.shape()));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), x.shape()));
    Status status;
    if (x.elements() > 0) {
      declare_uses(c, {&y});
      const int first = std::min(axes.sequence, axes.batch), second = std::max(axes.sequence, axes.batch);
      const auto size = static_cast<int64_t>(size_of(x.dtype()));
      int64_t sizes[] = {sizes_product(x.shape(), 0, first), x.dim(first), sizes_product(x.shape(), first + 1, second),
                         x.dim(second), sizes_product(x.shape(), second + 1, x.rank())};
      Piece piece;
      piece.take(y.mutable_address());
      piece.take(x.address());
      piece.take(sizes[4] * size);
      sizes[4] = sizes[4] * size / piece.bytes();
      const bool sequence_first = axes.sequence == first;
      const int64_t step = sequence_first ? sizes[2] * sizes[3] * sizes[4] : sizes[4];
      const int64_t n = x.elements() * size / piece.bytes();
      const gpu::Compute& gpu = *c.device().gpu;
      status = with_piece(piece.bytes(), [&]<class S>() {
        Status launched;
        with_type(lengths.dtype(), IndexTypes{}, [&]<class I>() {
          launched = TROUPE_LAUNCH(
              gpu.stream, (reverse_beginnings<S, I>), gpu::blocks_for(gpu.card, n, kReverseThreads), kReverseThreads, 0,
              static_cast<S*>(y.mutable_address()), static_cast<const S*>(x.address()),
              static_cast<const I*>(lengths.address()), n, sequence_first, step, GpuSizes(sizes, 5));
        });
        return launched;
      });
    }
    c.set_output(0, std::move(y));
    return status;
  }

 private:
  const Attrs attrs_;
};

}  // namespace

void register_reverse_sequence_gpu(KernelRegistry& kernels) {
  kernels.add<GpuReverseSequence>("ReverseSequence", DeviceKind::kCuda, {{"T", gpu_dtypes()}});
}

}  // namespace troupe::TROUPE_GPU_VARIANT
