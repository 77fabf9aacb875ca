// SPDX-License-Identifier: Apache-2.0
// SobolSample: points that fill the unit cube evenly. Sources: Bratley and Fox, "Algorithm 659: implementing Sobol's
// quasirandom sequence generator", 1988; the numbers are those of Joe and Kuo, "Constructing Sobol sequences with
// better two-dimensional projections", 2008, which TensorFlow has too.
#include <array>
#include <bit>
#include <limits>

#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/random/register.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

using SampleTypes = TypeList<float, double>;
constexpr int kBits = 31;
/// The number of the first point that is left out; TensorFlow counts in 32 bits.
constexpr int64_t kMostPoints = std::numeric_limits<int32_t>::max();

/// The primitive polynomial of each dimension but the first: bit k is the coefficient of x to the k.
constexpr uint16_t kPolynomials[] = {
    3,   7,   11,  13,  19,  25,  37,  41,  47,  55,  59,  61,  67,  91,  97,  103, 109, 115, 131,  137,
    143, 145, 157, 167, 171, 185, 191, 193, 203, 211, 213, 229, 239, 241, 247, 253, 285, 299, 301,  333,
    351, 355, 357, 361, 369, 391, 397, 425, 451, 463, 487, 501, 529, 539, 545, 557, 563, 601, 607,  617,
    623, 631, 637, 647, 661, 675, 677, 687, 695, 701, 719, 721, 731, 757, 761, 787, 789, 799, 803,  817,
    827, 847, 859, 865, 875, 877, 883, 895, 901, 911, 949, 953, 967, 971, 973, 981, 985, 995, 1001, 1019};

/// How the direction numbers of these dimensions begin: as many as the degree of the polynomial, one dimension after
/// the other.
constexpr uint16_t kFirst[] = {
    1,   1,   3,   1,   3,   1,   1,   1,   1,   1,   1,   3,   3,   1,   3,   5,   13,  1,   1,   5,   5,   17,  1,
    1,   5,   5,   5,   1,   1,   7,   11,  19,  1,   1,   5,   1,   1,   1,   1,   1,   3,   11,  1,   3,   5,   5,
    31,  1,   3,   3,   9,   7,   49,  1,   1,   1,   15,  21,  21,  1,   3,   1,   13,  27,  49,  1,   1,   1,   15,
    7,   5,   1,   3,   1,   15,  13,  25,  1,   1,   5,   5,   19,  61,  1,   3,   7,   11,  23,  15,  103, 1,   3,
    7,   13,  13,  15,  69,  1,   1,   3,   13,  7,   35,  63,  1,   3,   5,   9,   1,   25,  53,  1,   3,   1,   13,
    9,   35,  107, 1,   3,   1,   5,   27,  61,  31,  1,   1,   5,   11,  19,  41,  61,  1,   3,   5,   3,   3,   13,
    69,  1,   1,   7,   13,  1,   19,  1,   1,   3,   7,   5,   13,  19,  59,  1,   1,   3,   9,   25,  29,  41,  1,
    3,   5,   13,  23,  1,   55,  1,   3,   7,   3,   13,  59,  17,  1,   3,   1,   3,   5,   53,  69,  1,   1,   5,
    5,   23,  33,  13,  1,   1,   7,   7,   1,   61,  123, 1,   1,   7,   9,   13,  61,  49,  1,   3,   3,   5,   3,
    55,  33,  1,   3,   1,   15,  31,  13,  49,  245, 1,   3,   5,   15,  31,  59,  63,  97,  1,   3,   1,   11,  11,
    11,  77,  249, 1,   3,   1,   11,  27,  43,  71,  9,   1,   1,   7,   15,  21,  11,  81,  45,  1,   3,   7,   3,
    25,  31,  65,  79,  1,   3,   1,   1,   19,  11,  3,   205, 1,   1,   5,   9,   19,  21,  29,  157, 1,   3,   7,
    11,  1,   33,  89,  185, 1,   3,   3,   3,   15,  9,   79,  71,  1,   3,   7,   11,  15,  39,  119, 27,  1,   1,
    3,   1,   11,  31,  97,  225, 1,   1,   1,   3,   23,  43,  57,  177, 1,   3,   7,   7,   17,  17,  37,  71,  1,
    3,   1,   5,   27,  63,  123, 213, 1,   1,   3,   5,   11,  43,  53,  133, 1,   3,   5,   5,   29,  17,  47,  173,
    479, 1,   3,   3,   11,  3,   1,   109, 9,   69,  1,   1,   1,   5,   17,  39,  23,  5,   343, 1,   3,   1,   5,
    25,  15,  31,  103, 499, 1,   1,   1,   11,  11,  17,  63,  105, 183, 1,   1,   5,   11,  9,   29,  97,  231, 363,
    1,   1,   5,   15,  19,  45,  41,  7,   383, 1,   3,   7,   7,   31,  19,  83,  137, 221, 1,   1,   1,   3,   23,
    15,  111, 223, 83,  1,   1,   5,   13,  31,  15,  55,  25,  161, 1,   1,   3,   13,  25,  47,  39,  87,  257, 1,
    1,   1,   11,  21,  53,  125, 249, 293, 1,   1,   7,   11,  11,  7,   57,  79,  323, 1,   1,   5,   5,   17,  13,
    81,  3,   131, 1,   1,   7,   13,  23,  7,   65,  251, 475, 1,   3,   5,   1,   9,   43,  3,   149, 11,  1,   1,
    3,   13,  31,  13,  13,  255, 487, 1,   3,   3,   1,   5,   63,  89,  91,  127, 1,   1,   3,   3,   1,   19,  123,
    127, 237, 1,   1,   5,   7,   23,  31,  37,  243, 289, 1,   1,   5,   11,  17,  53,  117, 183, 491, 1,   1,   1,
    5,   1,   13,  13,  209, 345, 1,   1,   3,   15,  1,   57,  115, 7,   33,  1,   3,   1,   11,  7,   43,  81,  207,
    175, 1,   3,   1,   1,   15,  27,  63,  255, 49,  1,   3,   5,   3,   27,  61,  105, 171, 305, 1,   1,   5,   3,
    1,   3,   57,  249, 149, 1,   1,   3,   5,   5,   57,  15,  13,  159, 1,   1,   1,   11,  7,   11,  105, 141, 225,
    1,   3,   3,   5,   27,  59,  121, 101, 271, 1,   3,   5,   9,   11,  49,  51,  59,  115, 1,   1,   7,   1,   23,
    45,  125, 71,  419, 1,   1,   3,   5,   23,  5,   105, 109, 75,  1,   1,   7,   15,  7,   11,  67,  121, 453, 1,
    3,   7,   3,   9,   13,  31,  27,  449, 1,   3,   1,   15,  19,  39,  39,  89,  15,  1,   1,   1,   1,   1,   33,
    73,  145, 379, 1,   3,   1,   15,  15,  43,  29,  13,  483, 1,   1,   7,   3,   19,  27,  85,  131, 431, 1,   3,
    3,   3,   5,   35,  23,  195, 349, 1,   3,   3,   7,   9,   27,  39,  59,  297, 1,   1,   3,   9,   11,  17,  13,
    241, 157, 1,   3,   7,   15,  25,  57,  33,  189, 213, 1,   1,   7,   1,   9,   55,  73,  83,  217, 1,   3,   3,
    13,  19,  27,  23,  113, 249, 1,   3,   5,   3,   23,  43,  3,   253, 479, 1,   1,   5,   5,   11,  5,   45,  117,
    217, 1,   3,   3,   7,   29,  37,  33,  123, 147};

constexpr int64_t kMostDimensions = static_cast<int64_t>(std::size(kPolynomials)) + 1;

/// Of one dimension: v[k] is what bit k of the Gray code of a point's number turns over, a fraction of 2 to the kBits.
using Directions = std::array<uint32_t, kBits>;

std::vector<Directions> directions_of(int64_t dim) {
  std::vector<Directions> out(static_cast<size_t>(dim));
  for (int k = 0; k < kBits; ++k) out[0][k] = uint32_t{1} << (kBits - 1 - k);
  const uint16_t* first = kFirst;
  for (size_t d = 1; d < out.size(); ++d) {
    const uint32_t polynomial = kPolynomials[d - 1];
    const int degree = std::bit_width(polynomial) - 1;
    Directions& v = out[d];
    for (int k = 0; k < kBits; ++k) {
      if (k < degree) {
        v[k] = uint32_t{*first++} << (kBits - 1 - k);
        continue;
      }
      v[k] = v[k - degree] ^ v[k - degree] >> degree;
      for (int i = 1; i < degree; ++i)
        if (polynomial >> (degree - i) & 1) v[k] ^= v[k - i];
    }
  }
  return out;
}

Result<int64_t> dimensions(const Tensor& t) {
  TROUPE_ASSIGN(const int64_t dim, int_scalar(t, "dim"));
  if (dim < 1 || dim > kMostDimensions) return invalid_argument("dim must be in [1, {}], got {}", kMostDimensions, dim);
  return dim;
}

Result<int64_t> points(const Tensor& t) {
  TROUPE_ASSIGN(const int64_t n, int_scalar(t, "num_results"));
  if (n < 1) return invalid_argument("num_results must be at least 1, got {}", n);
  return n;
}

class SobolSample final : public ComputeKernel {
 public:
  explicit SobolSample(const KernelInit& init) : dtype_(init.attr<DType>("dtype")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const int64_t dim, dimensions(c.input(0)));
    TROUPE_ASSIGN(const int64_t n, points(c.input(1)));
    TROUPE_ASSIGN(const int64_t skip, int_scalar(c.input(2), "skip"));
    if (skip < 0) return invalid_argument("skip must be at least 0, got {}", skip);
    if (n + skip >= kMostPoints)
      return invalid_argument("num_results {} and skip {} must add up to less than {}", n, skip, kMostPoints);
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_, Shape{n, dim}));
    const std::vector<Directions> directions = directions_of(dim);
    std::vector<uint32_t> point(directions.size());  // that before the first: its number is skip
    for (size_t d = 0; d < point.size(); ++d)
      for (uint64_t gray = static_cast<uint64_t>(skip ^ skip >> 1); gray != 0; gray &= gray - 1)
        point[d] ^= directions[d][std::countr_zero(gray)];
    with_type(dtype_, SampleTypes{}, [&]<class T>() {
      T* out = y.mutable_data<T>();
      for (int64_t i = skip + 1; i <= skip + n; ++i) {
        const int turned = std::countr_zero(static_cast<uint64_t>(i));
        for (size_t d = 0; d < point.size(); ++d) {
          point[d] ^= directions[d][turned];
          *out++ = static_cast<T>(point[d]) * static_cast<T>(1.0 / (uint32_t{1} << kBits));
        }
      }
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const DType dtype_;
};

Status sobol_shape(ShapeContext& c) {
  PartialShape shape{-1, -1};
  if (const auto n = c.constant_input(1)) {
    TROUPE_ASSIGN(const int64_t rows, points(*n));
    shape.set(0, rows);
  }
  if (const auto dim = c.constant_input(0)) {
    TROUPE_ASSIGN(const int64_t columns, dimensions(*dim));
    shape.set(1, columns);
  }
  c.set_output(0, shape);
  return {};
}

}  // namespace

void register_sobol_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("SobolSample")
              .input("dim: int32")
              .input("num_results: int32")
              .input("skip: int32")
              .output("samples: dtype")
              .attr(type_attr("dtype", SampleTypes{}, "float32"))
              .shape(sobol_shape)
              .doc(fmt::format("Points of Sobol's sequence, which fill the unit cube more evenly than random ones: "
                               "[num_results, dim], the first `skip` left out, also that at 0. `dim` is at most {}.",
                               kMostDimensions)),
          not_differentiable("its inputs are integers"));
  kernels.add<SobolSample>("SobolSample", DeviceKind::kCpu, {});
}

}  // namespace troupe
