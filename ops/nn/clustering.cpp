// SPDX-License-Identifier: Apache-2.0
// What clustering begins with and repeats: NearestNeighbors, KmeansPlusPlusInitialization and
// KMC2ChainInitialization. Sources: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding", 2007;
// Bachem, Lucic, Hassani, Krause, "Approximate k-means++ in sublinear time", 2016.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "devices/parallel.h"
#include "ops/nn/register.h"
#include "ops/parts/gemm.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/random/draws.h"
#include "troupe/graph.h"
#include "troupe/op_cost.h"

namespace troupe {
namespace {

/// How many centers a point is compared with before the nearest are picked.
constexpr int64_t kMostDistances = int64_t{1} << 18;
/// How often a point may be drawn again.
constexpr int64_t kMostRetries = 100000;

Status check_matrix(const Tensor& t, const char* what) {
  return t.rank() == 2 ? Status() : invalid_argument("{} must be a matrix, not of shape {}", what, t.shape().str());
}

/// Of each row half the sum of squares.
std::vector<float> half_norms(const Tensor& x) {
  std::vector<float> out(static_cast<size_t>(x.dim(0)));
  const float* row = x.data<float>();
  for (float& norm : out) {
    norm = 0.5f * std::inner_product(row, row + x.dim(1), row, 0.0f);
    row += x.dim(1);
  }
  return out;
}

class NearestNeighbors final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &points = c.input(0), &centers = c.input(1);
    TROUPE_RETURN_IF_ERROR(check_matrix(points, "points"));
    TROUPE_RETURN_IF_ERROR(check_matrix(centers, "centers"));
    if (points.dim(1) != centers.dim(1))
      return invalid_argument("points have {} coordinates, centers {}", points.dim(1), centers.dim(1));
    TROUPE_ASSIGN(const int64_t asked, count_from(c.input(2), "k"));
    const int64_t n = points.dim(0), m = centers.dim(0), width = points.dim(1), k = std::min(asked, m);
    TROUPE_ASSIGN(Tensor indices, c.allocate(DType::kInt64, Shape{n, k}));
    TROUPE_ASSIGN(Tensor distances, c.allocate(DType::kFloat32, Shape{n, k}));
    const std::vector<float> of_points = half_norms(points), of_centers = half_norms(centers);
    const int64_t block = std::max<int64_t>(1, kMostDistances / std::max<int64_t>(m, 1));
    std::vector<float> products(static_cast<size_t>(k == 0 ? 0 : std::min(block, n) * m));
    for (int64_t first = 0; first < n && k > 0; first += block) {
      const int64_t rows = std::min(block, n - first);
      if (!gemm(points.data<float>() + first * width, false, centers.data<float>(), true, products.data(), rows, m,
                width))
        return make_error(Code::kInternal, "the product of points and centers failed");
      parallel_for(c.threads(), rows, std::max<int64_t>(1, kCheapGrain / m), [&](int64_t begin, int64_t end) {
        std::vector<std::pair<float, int64_t>> found(static_cast<size_t>(m));
        for (int64_t r = begin; r < end; ++r) {
          for (int64_t j = 0; j < m; ++j) found[j] = {of_centers[j] - products[r * m + j], j};
          std::partial_sort(found.begin(), found.begin() + k, found.end(), nearer);
          for (int64_t j = 0, at = (first + r) * k; j < k; ++j, ++at) {
            indices.mutable_data<int64_t>()[at] = found[j].second;
            distances.mutable_data<float>()[at] = 2 * (of_points[first + r] + found[j].first);
          }
        }
      });
    }
    c.set_output(0, std::move(indices));
    c.set_output(1, std::move(distances));
    return {};
  }

 private:
  /// NaN is the farthest.
  static bool nearer(const std::pair<float, int64_t>& a, const std::pair<float, int64_t>& b) {
    if (std::isnan(a.first) || std::isnan(b.first))
      return std::pair(std::isnan(a.first), a.second) < std::pair(std::isnan(b.first), b.second);
    return a < b;
  }
};

/// Draws points one after the other, each the likelier the farther it is from those that were drawn.
class PlusPlus {
 public:
  PlusPlus(const Tensor& points, int64_t seed)
      : points_(points), norms_(half_norms(points)), nearest_(norms_.size(), std::numeric_limits<float>::infinity()),
        sums_(norms_.size()), taken_(norms_.size()), words_(Philox(static_cast<uint64_t>(seed), 0)) {}

  /// The next point: of 1 + `retries` draws the one that leaves the smallest sum of distances.
  Result<int64_t> next(int64_t retries) {
    std::partial_sum(nearest_.begin(), nearest_.end(), sums_.begin());
    std::vector<float> best;
    int64_t chosen = 0;
    float least = std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i <= retries; ++i) {
      const int64_t drawn = draw();
      TROUPE_ASSIGN(std::vector<float> distances, distances_with(drawn));
      const float sum = std::accumulate(distances.begin(), distances.end(), 0.0f);
      if (!best.empty() && !(sum < least)) continue;
      least = sum;
      chosen = drawn;
      best = std::move(distances);
    }
    nearest_ = std::move(best);
    taken_[static_cast<size_t>(chosen)] = true;
    some_ = true;
    return chosen;
  }

 private:
  int64_t draw() {
    const auto n = static_cast<uint64_t>(norms_.size());
    if (!some_) return static_cast<int64_t>(words_.below(n));
    for (int tries = 0;; ++tries) {
      const float total = sums_.back();
      // Where nothing is far, or by rounding only what is taken, all are as likely.
      const bool alike = !(total > 0) || tries >= kMostTries;
      const int64_t at = alike ? static_cast<int64_t>(words_.below(n))
                               : std::ranges::upper_bound(sums_, words_.uniform_float() * total) - sums_.begin();
      const int64_t drawn = std::min(at, static_cast<int64_t>(n) - 1);
      if (!taken_[static_cast<size_t>(drawn)]) return drawn;
    }
  }

  Result<std::vector<float>> distances_with(int64_t center) const {
    const int64_t n = points_.dim(0), width = points_.dim(1);
    std::vector<float> out(norms_.size());
    if (!gemm(points_.data<float>(), false, points_.data<float>() + center * width, true, out.data(), n, 1, width))
      return make_error(Code::kInternal, "the product of points failed");
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = std::min(nearest_[i], norms_[i] - out[i] + norms_[static_cast<size_t>(center)]);
    return out;
  }

  static constexpr int kMostTries = 10000;
  const Tensor& points_;
  const std::vector<float> norms_;
  std::vector<float> nearest_, sums_;  // half squared distances to the nearest drawn point, and their partial sums
  std::vector<bool> taken_;
  Words words_;
  bool some_ = false;
};

class KmeansPlusPlus final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& points = c.input(0);
    TROUPE_RETURN_IF_ERROR(check_matrix(points, "points"));
    TROUPE_ASSIGN(const int64_t count, int_scalar(c.input(1), "num_to_sample"));
    TROUPE_ASSIGN(const int64_t seed, int_scalar(c.input(2), "seed"));
    TROUPE_ASSIGN(int64_t retries, int_scalar(c.input(3), "num_retries_per_sample"));
    if (count <= 0 || count > points.dim(0))
      return invalid_argument("num_to_sample must be from 1 to the number of points, {}, got {}", points.dim(0), count);
    if (retries > kMostRetries)
      return invalid_argument("num_retries_per_sample must be at most {}, got {}", kMostRetries, retries);
    if (retries < 0) retries = 2 + static_cast<int64_t>(std::log(count));
    const int64_t width = points.dim(1);
    TROUPE_ASSIGN(Tensor out, c.allocate(DType::kFloat32, Shape{count, width}));
    PlusPlus sampler(points, seed);
    for (int64_t i = 0; i < count; ++i) {
      TROUPE_ASSIGN(const int64_t point, sampler.next(retries));
      std::copy_n(points.data<float>() + point * width, width, out.mutable_data<float>() + i * width);
    }
    c.set_output(0, std::move(out));
    return {};
  }
};

/// A Markov chain over the candidates: each takes the place of the one before it with the ratio of their distances as
/// probability.
class ChainOfCandidates final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& distances = c.input(0);
    if (distances.rank() != 1 || distances.elements() == 0)
      return invalid_argument("distances must be a vector of some elements, not of shape {}", distances.shape().str());
    TROUPE_ASSIGN(const int64_t seed, int_scalar(c.input(1), "seed"));
    Words words(Philox(static_cast<uint64_t>(seed), 0));
    const auto values = distances.values<float>();
    size_t chosen = 0;
    for (size_t i = 1; i < values.size(); ++i)
      if (values[i] > words.uniform_float() * values[chosen]) chosen = i;
    c.set_output(0, Tensor::scalar(static_cast<int64_t>(chosen)));
    return {};
  }
};

Status neighbors_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape points, c.with_rank(0, 2));
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 2).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank(2, 0).status());
  for (int i = 0; i < 2; ++i) c.set_output(i, PartialShape{points.has_rank() ? points[0] : -1, -1});
  return {};
}

Status plus_plus_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape points, c.with_rank(0, 2));
  for (int i = 1; i < 4; ++i) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 0).status());
  c.set_output(0, PartialShape{-1, points.has_rank() ? points[1] : -1});
  return {};
}

Status chain_shape(ShapeContext& c) {
  for (int i = 0; i < 2; ++i) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 1 - i).status());
  c.set_output(0, PartialShape::scalar());
  return {};
}

}  // namespace

void register_clustering_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("NearestNeighbors")
              .input("points: float32")
              .input("centers: float32")
              .input("k: int64")
              .output("nearest_center_indices: int64")
              .output("nearest_center_distances: float32")
              .shape(neighbors_shape)
              .cost([](const CostContext& c) {
                return NodeCost{2 * c.input_elements(0) * c.input_size(1, 0), c.all_bytes()};
              })
              .doc("For each point, a row of the matrix, its k nearest centers, or all where there are fewer, the "
                   "nearest first, of equal ones the first; and the squared distances."),
          undefined_gradient());
  kernels.add<NearestNeighbors>("NearestNeighbors", DeviceKind::kCpu, {});
  ops.add(
      OpDef("KmeansPlusPlusInitialization")
          .input("points: float32")
          .input("num_to_sample: int64")
          .input("seed: int64")
          .input("num_retries_per_sample: int64")
          .output("samples: float32")
          .shape(plus_plus_shape)
          .cost([](const CostContext& c) {
            return NodeCost{2 * c.input_elements(0) * c.output_size(0, 0), c.all_bytes()};
          })
          .doc("num_to_sample rows of points, drawn one after the other with their squared distances to those that "
               "were drawn as weights. Each is the best of 1 + num_retries_per_sample draws, 3 + log(num_to_sample) "
               "where that is negative: the one after which all points are nearest. The same seed draws the same."),
      not_differentiable("which points are drawn does not depend on them smoothly"));
  kernels.add<KmeansPlusPlus>("KmeansPlusPlusInitialization", DeviceKind::kCpu, {});
  ops.add(
      OpDef("KMC2ChainInitialization")
          .input("distances: float32")
          .input("seed: int64")
          .output("index: int64")
          .shape(chain_shape)
          .cost(reduction_cost)
          .doc("The last state of a Markov chain over candidates with these squared distances, which begins with the "
               "first: a candidate is taken with the ratio of its distance to that of the state as probability. The "
               "same seed draws the same."),
      not_differentiable("an index does not depend on the distances smoothly"));
  kernels.add<ChainOfCandidates>("KMC2ChainInitialization", DeviceKind::kCpu, {});
}

}  // namespace troupe
