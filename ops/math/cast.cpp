// SPDX-License-Identifier: Apache-2.0
// Conversion of elements: Cast by value, Bitcast by bits.
#include "devices/parallel.h"
#include "ops/math/cast_functors.h"
#include "ops/math/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

using namespace cast_functors;

using CastTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                           uint32_t, uint64_t, bool, complex64, complex128>;

using CastLoop = void (*)(void* to, const void* from, int64_t n);

template <class To, class From> void loop(void* to, const void* from, int64_t n) {
  To* out = static_cast<To*>(to);
  const From* in = static_cast<const From*>(from);
  for (int64_t i = 0; i < n; ++i) out[i] = convert<To>(in[i]);
}

CastLoop find_loop(DType from, DType to) {
  CastLoop out = nullptr;
  with_type(from, CastTypes{},
            [&]<class From>() { with_type(to, CastTypes{}, [&]<class To>() { out = loop<To, From>; }); });
  return out;
}

template <class To, class From> void truncating_loop(void* to, const void* from, int64_t n) {
  To* out = static_cast<To*>(to);
  const From* in = static_cast<const From*>(from);
  for (int64_t i = 0; i < n; ++i) out[i] = convert<To>(without_excess_bits<To>(in[i]));
}

/// For the types between which TensorFlow truncates, else nullptr.
CastLoop find_truncating_loop(DType from, DType to) {
  CastLoop out = nullptr;
  with_type(from, TypeList<float, double>{}, [&]<class From>() {
    with_type(to, TypeList<float, float16, bfloat16>{}, [&]<class To>() {
      if constexpr (kTruncates<To, From>) out = truncating_loop<To, From>;
    });
  });
  return out;
}

class Cast final : public ComputeKernel {
 public:
  explicit Cast(const KernelInit& init)
      : to_(init.output_dtypes[0]), loop_(find_loop(init.input_dtypes[0], init.output_dtypes[0])) {
    if (const CastLoop truncating = find_truncating_loop(init.input_dtypes[0], to_);
        truncating && init.attr<bool>("Truncate"))
      loop_ = truncating;
  }
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.dtype() == to_) {
      c.set_output(0, x);
      return {};
    }
    TROUPE_ASSIGN(Tensor y, c.allocate(to_, x.shape()));
    const auto from_size = static_cast<int64_t>(size_of(x.dtype())), to_size = static_cast<int64_t>(size_of(to_));
    parallel_for(c.threads(), x.elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
      loop_(static_cast<char*>(y.mutable_raw()) + begin * to_size,
            static_cast<const char*>(x.raw()) + begin * from_size, end - begin);
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const DType to_;
  CastLoop loop_;
};

/// The shape of a bitcast: a dimension more or less where sizes of elements differ.
Result<PartialShape> bitcast_shape(const PartialShape& x, DType from, DType to) {
  const auto a = static_cast<int64_t>(size_of(from)), b = static_cast<int64_t>(size_of(to));
  if (!x.has_rank() || a == b) return x;
  PartialShape out = PartialShape::scalar();
  if (a > b) {
    if (x.rank() == kMaxRank) return invalid_argument("{} has the highest rank already", x.str());
    for (int64_t d : x.dims()) out.push_back(d);
    out.push_back(a / b);
    return out;
  }
  if (x.rank() == 0 || (x.dim(-1) >= 0 && x.dim(-1) != b / a))
    return invalid_argument("the last dimension of {} must be {} to make {} of {}", x.str(), b / a, to_string(to),
                            to_string(from));
  for (int i = 0; i + 1 < x.rank(); ++i) out.push_back(x[i]);
  return out;
}

class Bitcast final : public ComputeKernel {
 public:
  explicit Bitcast(const KernelInit& init) : to_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const PartialShape shape, bitcast_shape(x.shape(), x.dtype(), to_));
    TROUPE_ASSIGN(Tensor y, c.allocate(to_, shape.shape()));
    if (y.bytes() > 0) std::memcpy(y.mutable_raw(), x.raw(), y.bytes());
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const DType to_;
};

Status cast_gradient(GradientContext& c) {
  const DType from = c.input(0).dtype();
  if (c.dy(0) && (is_floating(from) || is_complex(from))) c.set_dx(0, c.op("Cast", {c.dy(0)}, {{"DstT", from}}));
  return {};
}

}  // namespace

void register_cast_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const CastTypes types;
  ops.add(OpDef("Cast")
              .input("x: SrcT")
              .output("y: DstT")
              .attr(type_attr("SrcT", types))
              .attr(type_attr("DstT", types))
              .attr("Truncate: bool = false")
              .shape(unchanged_shape)
              .cost(move_cost)
              .doc("x in another type: to integers truncated and limited to what fits, to bool whether not zero, to "
                   "fewer bits rounded or, with Truncate, cut off."),
          gradient(cast_gradient));
  kernels.add<Cast>("Cast", DeviceKind::kCpu, {});
  ops.add(OpDef("Bitcast")
              .input("input: T")
              .output("output: type")
              .attr(type_attr("T", NumberOrComplexTypes{}))
              .attr(type_attr("type", NumberOrComplexTypes{}))
              .shape([](ShapeContext& c) -> Status {
                TROUPE_ASSIGN(PartialShape out, bitcast_shape(c.input(0), c.input_dtype(0), c.attr<DType>("type")));
                c.set_output(0, out);
                return {};
              })
              .cost(move_cost)
              .doc("The same bits as another type. A larger one takes the last dimension, a smaller one adds one."),
          not_differentiable("it reads bits"));
  kernels.add<Bitcast>("Bitcast", DeviceKind::kCpu, {});
}

}  // namespace troupe
