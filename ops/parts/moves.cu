// SPDX-License-Identifier: Apache-2.0
// Moves of GPUs. Elements go in pieces of up to 16 bytes where rows, steps and addresses are multiples of these;
// transposes go by tiles in shared memory. Whatever the dtype, the kernels know its size alone.
#include "ops/parts/moves.h"

#include <algorithm>

#include "gpu/launch.h"
#include "ops/parts/gpu_elementwise.h"
#include "ops/parts/gpu_index.h"
#include "ops/parts/pieces.cuh"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

constexpr int kMoveThreads = 256;

/// A StridedCopy for kernels.
struct GpuBox {
  GpuSizesOf<2 * kMaxRank> sizes;
  int64_t from[2 * kMaxRank] = {}, to[2 * kMaxRank] = {};

  explicit GpuBox(const StridedCopy& box) : sizes(box.size.data(), box.rank) {
    for (int d = 0; d < box.rank; ++d) {
      from[d] = box.from[d];
      to[d] = box.to[d];
    }
  }
  int64_t count() const {
    int64_t n = 1;
    for (int d = 0; d < sizes.rank; ++d) n *= sizes.size[d];
    return n;
  }
  /// Adds where element i of the first `dims` dimensions is read and written.
  __device__ void places(int dims, int64_t i, int64_t& read, int64_t& written) const {
    for (int d = dims - 1; d >= 0; --d) {
      const int64_t last = d > 0 ? sizes.pop(d, i) : i;
      read += last * from[d];
      written += last * to[d];
    }
  }
};

template <class S> __global__ void copy_box(S* to, const S* from, int64_t n, const __grid_constant__ GpuBox box) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    int64_t read = 0, written = 0;
    box.places(box.sizes.rank, i, read, written);
    to[written] = from[read];
  }
}

constexpr int kTileSide = 32, kTileRows = 8;  // elements of a tile, and threads of a block along its columns

/// Transposes planes of m x n elements, dense along m where they are read and along n where they are written. Blocks
/// of 32 x 8 threads. `tiles`: the planes, then the tiles of a plane along m and n.
template <class S>
__global__ void copy_tiles(S* to, const S* from, int64_t count, int64_t m, int64_t n, int64_t read_step,
                           int64_t written_step, const __grid_constant__ GpuBox tiles) {
  TROUPE_SHARED(S, tile, [kTileSide][kTileSide + 1]);
  for (int64_t k = blockIdx.x; k < count; k += gridDim.x) {
    int64_t plane = k, read = 0, written = 0;
    const int64_t column = tiles.sizes.pop(tiles.sizes.rank - 1, plane) * kTileSide;
    const int64_t row = tiles.sizes.pop(tiles.sizes.rank - 2, plane) * kTileSide;
    tiles.places(tiles.sizes.rank - 2, plane, read, written);
    for (int64_t y = threadIdx.y; y < kTileSide; y += kTileRows)
      if (row + threadIdx.x < m && column + y < n)
        tile[y][threadIdx.x] = from[read + row + threadIdx.x + (column + y) * read_step];
    __syncthreads();
    for (int64_t y = threadIdx.y; y < kTileSide; y += kTileRows)
      if (row + y < m && column + threadIdx.x < n)
        to[written + (row + y) * written_step + column + threadIdx.x] = tile[threadIdx.x][y];
    __syncthreads();
  }
}

/// The dimension along which a box is dense where it is read, while where it is written the last one is; -1 where
/// nothing is gained by tiles of both.
int transposed_dimension(const StridedCopy& box) {
  constexpr int64_t kLeast = 8;  // elements along both, below which most threads of a tile would have none
  const int last = box.rank - 1;
  if (box.to[last] != 1 || box.from[last] == 1 || box.from[last] == 0 || box.size[last] < kLeast) return -1;
  for (int d = last - 1; d >= 0; --d)
    if (box.from[d] == 1) return box.size[d] < kLeast ? -1 : d;
  return -1;
}

Status launch_tiles(const gpu::Compute& gpu, void* to, const void* from, int64_t size, const StridedCopy& box,
                    int dense) {
  const int last = box.rank - 1;
  const int64_t m = box.size[dense], n = box.size[last];
  StridedCopy planes;
  for (int d = 0; d < last; ++d)
    if (d != dense) planes.push(box.size[d], box.from[d], box.to[d]);
  planes.push((m + kTileSide - 1) / kTileSide, 0, 0);
  planes.push((n + kTileSide - 1) / kTileSide, 0, 0);
  const GpuBox tiles(planes);
  const int64_t count = tiles.count();
  return with_piece(size, [&]<class S>() {
    return TROUPE_LAUNCH(gpu.stream, copy_tiles<S>, gpu::blocks_for(gpu.card, count, 1), dim3(kTileSide, kTileRows), 0,
                         static_cast<S*>(to), static_cast<const S*>(from), count, m, n, box.from[last], box.to[dense],
                         tiles);
  });
}

Status gpu_copy(const KernelContext& c, Tensor& y, int64_t to, const Tensor& x, int64_t from,
                const StridedCopy& given) {
  bool empty = x.elements() == 0 || y.elements() == 0;
  for (int d = 0; d < given.rank; ++d) empty = empty || given.size[d] == 0;
  if (empty) return {};
  const gpu::Compute& gpu = *c.device().gpu;
  StridedCopy box = merged(given);
  const auto size = static_cast<int64_t>(size_of(x.dtype()));
  const int last = box.rank - 1;
  void* const target = static_cast<char*>(y.mutable_address()) + to * size;
  const void* const source = static_cast<const char*>(x.address()) + from * size;
  const bool dense = box.from[last] == 1 && box.to[last] == 1;
  if (dense && last == 0) return gpu.stream.copy(target, source, static_cast<size_t>(box.size[0] * size));
  declare_uses(c, {&y});
  if (const int d = transposed_dimension(box); d >= 0) return launch_tiles(gpu, target, source, size, box, d);
  Piece piece;
  piece.take(dense ? box.size[last] * size : size);
  piece.take(target);
  piece.take(source);
  for (int d = 0; d < last; ++d) {
    piece.take(box.from[d] * size);
    piece.take(box.to[d] * size);
  }
  const int64_t elements = piece.bytes() / size;
  for (int d = 0; d < last; ++d) {
    box.from[d] /= elements;
    box.to[d] /= elements;
  }
  if (dense) box.size[last] /= elements;
  const GpuBox pieces(box);
  const int64_t n = pieces.count();
  return with_piece(piece.bytes(), [&]<class S>() {
    return TROUPE_LAUNCH(gpu.stream, copy_box<S>, gpu::blocks_for(gpu.card, n, kMoveThreads), kMoveThreads, 0,
                         static_cast<S*>(target), static_cast<const S*>(source), n, pieces);
  });
}

// --- joins and splits ---

constexpr int kMostParts = 128;  // of one launch

/// Matrices side by side; their columns are counted through.
struct Parts {
  void* at[kMostParts];
  int64_t begin[kMostParts + 1];
  int count = 0;
};

/// Copies the columns of parts to those of `whole`, whose rows are `step` apart, or back.
template <class S, bool kJoin>
__global__ void move_columns(S* whole, int64_t step, int64_t n, const __grid_constant__ Parts parts,
                             const __grid_constant__ GpuSizes sizes) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    int64_t row = i;
    const int64_t column = parts.begin[0] + sizes.pop(1, row);
    int part = 0;
    for (int end = parts.count; end - part > 1;) {
      const int middle = (part + end) / 2;
      if (parts.begin[middle] <= column) part = middle;
      else end = middle;
    }
    const int64_t begin = parts.begin[part], width = parts.begin[part + 1] - begin;
    S& of_part = static_cast<S*>(parts.at[part])[row * width + column - begin];
    S& of_whole = whole[row * step + column];
    if (kJoin) of_whole = of_part;
    else of_part = of_whole;
  }
}

struct Part {
  void* at;
  int64_t elements;
};

template <bool kJoin>
Status move_parts(const gpu::Compute& gpu, void* whole, int64_t elements, int64_t size, int64_t rows,
                  std::span<const Part> parts) {
  Piece piece;
  piece.take(whole);
  for (const Part& part : parts) {
    piece.take(part.at);
    piece.take(part.elements / rows * size);
  }
  const int64_t bytes = piece.bytes(), step = elements / rows * size / bytes;
  int64_t column = 0;
  for (size_t next = 0; next < parts.size();) {
    Parts some;
    some.begin[0] = column;
    for (; next < parts.size() && some.count < kMostParts; ++next) {
      if (parts[next].elements == 0) continue;
      some.at[some.count] = parts[next].at;
      column += parts[next].elements / rows * size / bytes;
      some.begin[++some.count] = column;
    }
    if (some.count == 0) continue;
    const int64_t sizes[] = {rows, column - some.begin[0]};
    const int64_t n = sizes[0] * sizes[1];
    TROUPE_RETURN_IF_ERROR(with_piece(bytes, [&]<class S>() {
      return TROUPE_LAUNCH(gpu.stream, (move_columns<S, kJoin>), gpu::blocks_for(gpu.card, n, kMoveThreads),
                           kMoveThreads, 0, static_cast<S*>(whole), step, n, some, GpuSizes(sizes, 2));
    }));
  }
  return {};
}

Status gpu_join(const KernelContext& c, Tensor& y, int64_t rows, std::span<const Tensor* const> parts) {
  if (y.elements() == 0) return {};
  declare_uses(c, {&y});
  std::vector<Part> from;
  for (const Tensor* part : parts) from.push_back({const_cast<void*>(part->address()), part->elements()});
  return move_parts<true>(*c.device().gpu, y.mutable_address(), y.elements(), static_cast<int64_t>(size_of(y.dtype())),
                          rows, from);
}

Status gpu_split(const KernelContext& c, std::span<Tensor> parts, const Tensor& x, int64_t rows) {
  if (x.elements() == 0) return {};
  std::vector<const Tensor*> written;
  std::vector<Part> to;
  for (Tensor& part : parts) {
    written.push_back(&part);
    to.push_back({part.mutable_address(), part.elements()});
  }
  declare_uses(c, written);
  return move_parts<false>(*c.device().gpu, const_cast<void*>(x.address()), x.elements(),
                           static_cast<int64_t>(size_of(x.dtype())), rows, to);
}

// --- borders ---

/// Where what is inside begins in each dimension, how much it is, and how far apart that lies.
struct GpuBorder {
  GpuSizes sizes;
  int64_t before[kMaxRank] = {}, inside[kMaxRank] = {}, step[kMaxRank] = {};
};

/// Fills `out` with x and, around it, *value (0 without one) or what x has seen in a mirror.
template <class S, bool kMirror>
__global__ void read_bordered(S* out, const S* x, const S* value, int64_t edge, int64_t n,
                              const __grid_constant__ GpuBorder border) {
  const S outside = value ? *value : S{};
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    int64_t rest = i, at = 0;
    bool inside = true;
    for (int d = border.sizes.rank - 1; d >= 0; --d) {
      int64_t k = (d > 0 ? border.sizes.pop(d, rest) : rest) - border.before[d];
      if (kMirror) k = k < 0 ? edge - 1 - k : k < border.inside[d] ? k : 2 * border.inside[d] - 1 - edge - k;
      else inside = inside && k >= 0 && k < border.inside[d];
      at += k * border.step[d];
    }
    out[i] = kMirror || inside ? x[at] : outside;
  }
}

template <bool kMirror>
Status gpu_border(const KernelContext& c, Tensor& y, const Tensor& x, std::span<const int64_t> before,
                  const Tensor* value, int64_t edge) {
  if (y.elements() == 0) return {};
  struct Dimension {
    int64_t size, before, inside;
    bool bordered() const { return size != inside; }
  };
  // A dimension without a border is part of the one before it, unless that has a mirror.
  std::vector<Dimension> dimensions = {{1, 0, 1}};
  for (int d = 0; d < y.rank(); ++d) {
    const Dimension dimension{y.dim(d), before[static_cast<size_t>(d)], x.dim(d)};
    Dimension& last = dimensions.back();
    if (dimension.bordered() || (kMirror && last.bordered())) {
      dimensions.push_back(dimension);
    } else {
      last.size *= dimension.size;
      last.before *= dimension.size;
      last.inside *= dimension.size;
    }
  }
  if (dimensions.size() > 1 && dimensions[0].size == 1 && !dimensions[0].bordered())
    dimensions.erase(dimensions.begin());
  const auto size = static_cast<int64_t>(size_of(y.dtype()));
  Dimension& last = dimensions.back();
  Piece piece;
  piece.take(y.mutable_address());
  piece.take(x.address());
  for (const int64_t n : {last.size, last.before, last.inside}) piece.take(n * size);
  if (value || (kMirror && last.bordered())) piece.take(size);
  const int64_t elements = piece.bytes() / size;
  for (int64_t* n : {&last.size, &last.before, &last.inside}) *n /= elements;

  GpuBorder border;
  int64_t sizes[kMaxRank], step = 1;
  for (int d = static_cast<int>(dimensions.size()) - 1; d >= 0; --d) {
    sizes[d] = dimensions[d].size;
    border.before[d] = dimensions[d].before;
    border.inside[d] = dimensions[d].inside;
    border.step[d] = step;
    step *= border.inside[d];
  }
  border.sizes = GpuSizes(sizes, static_cast<int>(dimensions.size()));
  declare_uses(c, {&y});
  const gpu::Compute& gpu = *c.device().gpu;
  const int64_t n = y.elements() / elements;
  return with_piece(piece.bytes(), [&]<class S>() {
    return TROUPE_LAUNCH(gpu.stream, (read_bordered<S, kMirror>), gpu::blocks_for(gpu.card, n, kMoveThreads),
                         kMoveThreads, 0, static_cast<S*>(y.mutable_address()), static_cast<const S*>(x.address()),
                         value ? static_cast<const S*>(value->address()) : nullptr, edge, n, border);
  });
}

Status gpu_pad(const KernelContext& c, Tensor& y, const Tensor& x, std::span<const int64_t> before,
               const Tensor* value) {
  return gpu_border<false>(c, y, x, before, value, 0);
}

Status gpu_mirror(const KernelContext& c, Tensor& y, const Tensor& x, std::span<const int64_t> before, int64_t edge) {
  return gpu_border<true>(c, y, x, before, nullptr, edge);
}

// --- the rest ---

/// Changes the sign of the second half of each number of so many words: the last bit of its last word.
__global__ void conjugate(uint64_t* numbers, int64_t n, int words) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    numbers[(i + 1) * words - 1] ^= uint64_t{1} << 63;
}

Status gpu_conjugate(const KernelContext& c, Tensor& y) {
  if (y.elements() == 0) return {};
  declare_uses(c, {&y});
  const gpu::Compute& gpu = *c.device().gpu;
  return TROUPE_LAUNCH(gpu.stream, conjugate, gpu::blocks_for(gpu.card, y.elements(), kMoveThreads), kMoveThreads, 0,
                       static_cast<uint64_t*>(y.mutable_address()), y.elements(),
                       static_cast<int>(size_of(y.dtype()) / sizeof(uint64_t)));
}

Result<Tensor> gpu_zeros(const KernelContext& c, DType dtype, const Shape& shape) {
  TROUPE_ASSIGN(Tensor y, c.allocate(dtype, shape));
  if (y.elements() > 0) TROUPE_RETURN_IF_ERROR(c.device().gpu->stream.fill(y.mutable_address(), 0, y.bytes()));
  return y;
}

}  // namespace

const Moves& gpu_moves() {
  static const Moves moves = {.kind = DeviceKind::kCuda,
                              .dtypes = gpu_dtypes(),
                              .copy = gpu_copy,
                              .join = gpu_join,
                              .split = gpu_split,
                              .pad = gpu_pad,
                              .mirror = gpu_mirror,
                              .conjugate = gpu_conjugate,
                              .zeros = gpu_zeros};
  return moves;
}

}  // namespace troupe::TROUPE_GPU_VARIANT
