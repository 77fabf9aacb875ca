// SPDX-License-Identifier: Apache-2.0
// Integers as rows of bits: BitwiseAnd, BitwiseOr, BitwiseXor, Invert, LeftShift, RightShift, PopulationCount.
#include <algorithm>
#include <bit>

#include "ops/math/register.h"
#include "ops/parts/elementwise.h"

namespace troupe {
namespace {

struct BitwiseAnd {
  template <class T> static T apply(T a, T b) { return static_cast<T>(a & b); }
};
struct BitwiseOr {
  template <class T> static T apply(T a, T b) { return static_cast<T>(a | b); }
};
struct BitwiseXor {
  template <class T> static T apply(T a, T b) { return static_cast<T>(a ^ b); }
};
struct Invert {
  template <class T> static T apply(T a) { return static_cast<T>(~a); }
};

/// How far to shift: TensorFlow takes the nearest of 0 and the highest place for what is outside.
template <class T> int places(T b) { return static_cast<int>(std::clamp<T>(b, 0, sizeof(T) * 8 - 1)); }

struct LeftShift {
  template <class T> static T apply(T a, T b) {
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) << places(b));
  }
};
struct RightShift {
  template <class T> static T apply(T a, T b) { return static_cast<T>(a >> places(b)); }
};

template <class T> class PopulationCount final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, DType::kUInt8, x.shape()));
    const T* in = x.data<T>();
    uint8_t* out = y.mutable_data<uint8_t>();
    parallel_for(c.threads(), x.elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        out[i] = static_cast<uint8_t>(std::popcount(static_cast<std::make_unsigned_t<T>>(in[i])));
    });
    c.set_output(0, std::move(y));
    return {};
  }
  bool shareable() const override { return true; }
};

}  // namespace

void register_bitwise_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const IntegerTypes integers;
  const Gradient none = not_differentiable("it is a function of integers");
  const auto add = [&]<class F>(F, const char* name, const char* doc) {
    ops.add(binary_op(name, integers, doc), none);
    add_binary_kernels<F>(kernels, name, integers);
  };
  add(BitwiseAnd{}, "BitwiseAnd", "The bits that are set in x and in y. The shapes broadcast.");
  add(BitwiseOr{}, "BitwiseOr", "The bits that are set in x, in y or in both. The shapes broadcast.");
  add(BitwiseXor{}, "BitwiseXor", "The bits that differ between x and y. The shapes broadcast.");
  add(LeftShift{}, "LeftShift",
      "x shifted left by y bits, zeros moving in. y is limited to the places there are. The shapes broadcast.");
  add(RightShift{}, "RightShift",
      "x shifted right by y bits, copies of the sign moving in. y is limited to the places there are. The shapes "
      "broadcast.");
  ops.add(OpDef("Invert")
              .input("x: T")
              .output("y: T")
              .attr(type_attr("T", integers))
              .shape(unchanged_shape)
              .doc("Every bit of x the other way."),
          none);
  add_unary_kernels<Invert>(kernels, "Invert", integers);
  ops.add(OpDef("PopulationCount")
              .input("x: T")
              .output("y: uint8")
              .attr(type_attr("T", integers))
              .shape(unchanged_shape)
              .doc("How many bits of x are set."),
          none);
  add_cpu_kernels<PopulationCount>(kernels, "PopulationCount", integers);
}

}  // namespace troupe
