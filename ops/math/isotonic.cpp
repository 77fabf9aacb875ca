// SPDX-License-Identifier: Apache-2.0
// IsotonicRegression: the closest numbers that do not grow along a row. Pools of neighbours that violate the order are
// joined until none do; source: Best and Chakravarti, "Active set algorithms for isotonic regression", 1990.
#include <algorithm>
#include <vector>

#include "devices/parallel.h"
#include "ops/math/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

using WholeTypes = TypeList<int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t, uint32_t, uint64_t>;

/// Neighbours of one value, their mean.
template <class A> struct Pool {
  A sum, mean;
  int64_t begin, end;
};

/// What stays of a number as a T.
template <class T> Arithmetic<T> rounded(Arithmetic<T> x) { return widen(narrow<T>(x)); }

/// One row of n numbers. Each sum and each quotient is rounded to T.
template <class In, class T>
void solve_row(const In* x, T* y, int32_t* segments, int64_t n, std::vector<Pool<Arithmetic<T>>>& pools) {
  using A = Arithmetic<T>;
  pools.clear();
  for (int64_t i = 0; i < n; ++i) {
    const A value = rounded<T>(static_cast<A>(widen(x[i])));
    pools.push_back({value, value, i, i + 1});
    while (pools.size() > 1 && pools.back().mean > pools[pools.size() - 2].mean) {
      const Pool<A> last = pools.back();
      pools.pop_back();
      Pool<A>& joined = pools.back();
      joined.end = last.end;
      joined.sum = rounded<T>(joined.sum + last.sum);
      joined.mean = rounded<T>(joined.sum / rounded<T>(static_cast<A>(joined.end - joined.begin)));
    }
  }
  int32_t segment = 0;
  for (const Pool<A>& pool : pools) {
    std::fill(y + pool.begin, y + pool.end, narrow<T>(pool.mean));
    std::fill(segments + pool.begin, segments + pool.end, segment++);
  }
}

class IsotonicRegression final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_, x.shape()));
    TROUPE_ASSIGN(Tensor segments, c.allocate(DType::kInt32, x.shape()));
    const int64_t n = x.rank() == 0 ? 1 : x.dim(x.rank() - 1), rows = n == 0 ? 0 : x.elements() / n;
    const auto solve = [&]<class In, class T>(const In* in, T* out) {
      int32_t* ids = segments.mutable_data<int32_t>();
      parallel_for(c.threads(), rows, std::max<int64_t>(1, kDearGrain / n), [&](int64_t begin, int64_t end) {
        std::vector<Pool<Arithmetic<T>>> pools;
        for (int64_t r = begin; r < end; ++r) solve_row(in + r * n, out + r * n, ids + r * n, n, pools);
      });
    };
    if (rows > 0)
      with_type(dtype_, FloatTypes{}, [&]<class T>() {
        if (x.dtype() == dtype_) return solve(x.data<T>(), y.mutable_data<T>());
        with_type(x.dtype(), WholeTypes{}, [&]<class In>() { solve(x.data<In>(), y.mutable_data<T>()); });
      });
    c.set_output(0, std::move(y));
    c.set_output(1, std::move(segments));
    return {};
  }
  explicit IsotonicRegression(const KernelInit& init) : dtype_(init.output_dtypes[0]) {}

 private:
  const DType dtype_;
};

/// Whether a floating input keeps its type.
Status isotonic_shape(ShapeContext& c) {
  const DType in = c.attr<DType>("T"), out = c.attr<DType>("output_dtype");
  const auto floats = FloatTypes::dtypes();
  if (in != out && std::ranges::find(floats, in) != floats.end())
    return invalid_argument("output_dtype of {} must be it too, not {}", to_string(in), to_string(out));
  c.set_output(0, c.input(0));
  c.set_output(1, c.input(0));
  return {};
}

}  // namespace

void register_isotonic_ops(OpRegistry& ops, KernelRegistry& kernels) {
  using Types = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                         uint32_t, uint64_t>;
  ops.add(OpDef("IsotonicRegression")
              .input("input: T")
              .output("output: output_dtype")
              .output("segments: int32")
              .attr(type_attr("T", Types{}))
              .attr(type_attr("output_dtype", FloatTypes{}, "float32"))
              .shape(isotonic_shape)
              .doc("Of each row along the last dimension the closest numbers, by squares, that do not grow: runs of "
                   "neighbours get their mean. `segments` counts the runs of a row from 0. Floats keep their type."),
          undefined_gradient());
  kernels.add<IsotonicRegression>("IsotonicRegression", DeviceKind::kCpu, {});
}

}  // namespace troupe
