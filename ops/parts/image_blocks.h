// SPDX-License-Identifier: Apache-2.0
// Images in blocks of channels, [batch, blocks, height, width, 16], as convolutions with AVX-512 hand them on to one
// another: places that are next to one another stay so, whatever the count of channels. What the last block has
// beyond the channels is 0. Implemented in ops/parts/image_blocks.cpp.
#pragma once
#include "troupe/kernel.h"

namespace troupe {

/// Channels of a block.
inline constexpr int64_t kImageBlock = 16;

/// Blocks for so many channels; -1 for -1.
inline int64_t image_blocks(int64_t channels) {
  return channels < 0 ? -1 : channels / kImageBlock + (channels % kImageBlock == 0 ? 0 : 1);
}

/// [batch, height, width, channels] of float32 in blocks. Errors: another rank.
Result<Tensor> block_images(const KernelContext& c, const Tensor& images);
/// The shape [batch, height, width, channels] of what is `blocked` in blocks. Errors: another rank, or blocks that are
/// not those of `channels`.
Result<Shape> unblocked_shape(const Shape& blocked, int64_t channels);
/// The images that are `blocked` in blocks. Errors: as of unblocked_shape().
Result<Tensor> unblock_images(const KernelContext& c, const Tensor& blocked, int64_t channels);

}  // namespace troupe
