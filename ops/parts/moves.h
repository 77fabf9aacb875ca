// SPDX-License-Identifier: Apache-2.0
// Moving elements, on CPUs and GPUs: the kernel of an op that only moves them (a slice, a join, a border) is written
// once and takes the moves of the device that it is for. Implemented in ops/parts/moves.cpp and ops/parts/moves.cu.
#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ops/parts/gpu_variants.h"
#include "ops/parts/strided_copy.h"

namespace troupe {

/// What a kernel does to elements in the memory of its device, in compute() alone. `y` is an output of the kernel, `x`
/// one of its inputs, of the same dtype; neither overlaps the other. Whoever calls has checked that sizes fit; nothing
/// is done where they are 0. Errors: those of launches on a GPU; none on a CPU.
struct Moves {
  DeviceKind kind;
  /// The types that it is for; empty: all.
  std::vector<DType> dtypes;
  /// Copies a box, from element `from` of x on to element `to` of y on.
  Status (*copy)(const KernelContext& c, Tensor& y, int64_t to, const Tensor& x, int64_t from, const StridedCopy& box);
  /// Fills y, seen as a matrix of so many rows, with the columns of the parts, one part after the other.
  Status (*join)(const KernelContext& c, Tensor& y, int64_t rows, std::span<const Tensor* const> parts);
  /// Fills the parts with columns of x, seen so.
  Status (*split)(const KernelContext& c, std::span<Tensor> parts, const Tensor& x, int64_t rows);
  /// Fills y with x, from place before[d] of each dimension d on, and with `value`, a scalar, around it; without one,
  /// with zeros. Both have the rank of `before`.
  Status (*pad)(const KernelContext& c, Tensor& y, const Tensor& x, std::span<const int64_t> before,
                const Tensor* value);
  /// The same with what x has, seen in a mirror: `edge` is 0 where the border repeats the outermost elements, 1 where
  /// it leaves them out. No border is wider than what it mirrors.
  Status (*mirror)(const KernelContext& c, Tensor& y, const Tensor& x, std::span<const int64_t> before, int64_t edge);
  /// Replaces the complex numbers of y by their conjugates.
  Status (*conjugate)(const KernelContext& c, Tensor& y);
  Result<Tensor> (*zeros)(const KernelContext& c, DType dtype, const Shape& shape);

  /// Registers the kernel K(const KernelInit&, const Moves&) for the types of attribute T. `host`: the inputs that it
  /// reads in the host's memory where the device is a GPU; negative numbers count from the end.
  template <class K> void add(KernelRegistry& kernels, std::string_view op, std::vector<int> host = {}) const {
    KernelRegistry::Types types;
    if (!dtypes.empty()) types["T"] = dtypes;
    kernels.add(op, kind, std::move(types),
                [moves = this](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                  return std::unique_ptr<ComputeKernel>(new K(init, *moves));
                },
                {std::move(host), {}});
  }
};

/// Those of CPUs; always the same object.
const Moves& host_moves();

// Those of GPUs, for all types that these have in their memory; always the same object.
namespace on_cuda {
const Moves& gpu_moves();
}
namespace on_fake {
const Moves& gpu_moves();
}

}  // namespace troupe
