// SPDX-License-Identifier: Apache-2.0
#include "ops/parts/image_blocks.h"

#include <algorithm>

#include "devices/parallel.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {

Result<Tensor> block_images(const KernelContext& c, const Tensor& images) {
  if (images.rank() != 4)
    return invalid_argument("images must have rank 4, but their shape is {}", images.shape().str());
  const int64_t channels = images.dim(3), blocks = image_blocks(channels);
  TROUPE_ASSIGN(Tensor out,
                c.allocate(DType::kFloat32, {images.dim(0), blocks, images.dim(1), images.dim(2), kImageBlock}));
  if (out.elements() == 0) return out;  // sizes beside one of 0 may be anything
  const int64_t places = images.dim(1) * images.dim(2);
  const float* from = images.data<float>();
  float* to = out.mutable_data<float>();
  const int64_t grain = 1 + kCheapGrain / std::max<int64_t>(places * kImageBlock, 1);
  parallel_for(c.threads(), images.dim(0) * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * kImageBlock, n = std::min(kImageBlock, channels - first);
      const float* x = from + i / blocks * places * channels + first;
      float* y = to + i * places * kImageBlock;
      for (int64_t p = 0; p < places; ++p, x += channels, y += kImageBlock) {
        if (n == kImageBlock) {
          std::copy_n(x, kImageBlock, y);
        } else {
          std::fill(std::copy_n(x, n, y), y + kImageBlock, 0.0f);
        }
      }
    }
  });
  return out;
}

Result<Shape> unblocked_shape(const Shape& blocked, int64_t channels) {
  if (blocked.rank() != 5 || blocked[4] != kImageBlock || blocked[1] != image_blocks(channels))
    return invalid_argument("{} are not {} channels in blocks of {}", blocked.str(), channels, kImageBlock);
  return Shape{blocked[0], blocked[2], blocked[3], channels};
}

Result<Tensor> unblock_images(const KernelContext& c, const Tensor& blocked, int64_t channels) {
  TROUPE_ASSIGN(const Shape shape, unblocked_shape(blocked.shape(), channels));
  TROUPE_ASSIGN(Tensor out, c.allocate(DType::kFloat32, shape));
  if (out.elements() == 0) return out;
  const int64_t places = shape[1] * shape[2], blocks = blocked.dim(1);
  const float* from = blocked.data<float>();
  float* to = out.mutable_data<float>();
  const int64_t grain = 1 + kCheapGrain / std::max<int64_t>(places * kImageBlock, 1);
  parallel_for(c.threads(), shape[0] * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * kImageBlock, n = std::min(kImageBlock, channels - first);
      const float* x = from + i * places * kImageBlock;
      float* y = to + i / blocks * places * channels + first;
      for (int64_t p = 0; p < places; ++p, x += kImageBlock, y += channels) {
        if (n == kImageBlock) std::copy_n(x, kImageBlock, y);
        else std::copy_n(x, n, y);
      }
    }
  });
  return out;
}

}  // namespace troupe
