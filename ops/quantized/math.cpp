// SPDX-License-Identifier: Apache-2.0
// Sums and products of integers that stand for numbers: QuantizedAdd, QuantizedMul, QuantizedBiasAdd, QuantizedMatMul,
// QuantizedBatchNormWithGlobalNormalization. The results have 32 bits and a range in which they cannot overflow.
#include "devices/parallel.h"
#include "ops/parts/broadcast.h"
#include "ops/parts/gemm.h"
#include "ops/parts/wrapping.h"
#include "ops/quantized/range.h"
#include "ops/quantized/register.h"

namespace troupe {
namespace {

/// A byte's number as an integer of 32 bits, by equal steps.
class Stepper {
 public:
  Stepper(const CodeRange& from, const CodeRange& to)
      : first_(unbounded_code<int32_t>(number_of<uint8_t>(0, from), to)),
        step_(
            static_cast<int32_t>(wrapping_subtract(unbounded_code<int32_t>(number_of<uint8_t>(1, from), to), first_))) {
  }
  int32_t operator()(uint8_t x) const { return to_integer<int32_t>(wrapping_add(first_, int64_t{x} * step_)); }

 private:
  int64_t first_;
  int32_t step_;
};

class QuantizedAdd final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &y = c.input(1);
    TROUPE_ASSIGN(const CodeRange a, rising_range_at(c, 2));
    TROUPE_ASSIGN(const CodeRange b, rising_range_at(c, 4));
    const float largest = std::max(std::abs(std::min(a.low, b.low)), std::abs(std::max(a.high, b.high)));
    const float end = largest * (1 << 14);  // room for sums of sums
    const CodeRange to{-end, end};
    TROUPE_ASSIGN(const Broadcast plan, plan_broadcast(x.shape(), y.shape()));
    TROUPE_ASSIGN(Tensor z, c.allocate(DType::kInt32, plan.shape));
    const Table left(a, to, x.elements() == 1), right(b, to, y.elements() == 1 && x.elements() != 1);
    int32_t* out = z.mutable_data<int32_t>();
    const int64_t p = plan.stride[0][plan.rank - 1], q = plan.stride[1][plan.rank - 1];
    for_each_run(plan, c.threads(), kCheapGrain, [&](int64_t at, const std::array<int64_t, 3>& in, int64_t n) {
      const uint8_t *u = x.data<uint8_t>() + in[0], *v = y.data<uint8_t>() + in[1];
      for (int64_t i = 0; i < n; ++i) out[at + i] = wrapping_add(left.of[u[i * p]], right.of[v[i * q]]);
    });
    c.set_output(0, std::move(z));
    set_range(c, 1, to);
    return {};
  }

 private:
  /// What each byte becomes; one that is added to all others is rounded by itself, as in TensorFlow.
  struct Table {
    std::array<int32_t, 256> of{};
    Table(const CodeRange& from, const CodeRange& to, bool alone) {
      const Stepper step(from, to);
      for (int i = 0; i < 256; ++i) {
        const auto code = static_cast<uint8_t>(i);
        of[static_cast<size_t>(i)] = alone ? code_of<int32_t>(number_of(code, from), to) : step(code);
      }
    }
  };
};

class QuantizedMul final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &y = c.input(1);
    TROUPE_ASSIGN(const CodeRange a, rising_range_at(c, 2));
    TROUPE_ASSIGN(const CodeRange b, rising_range_at(c, 4));
    TROUPE_ASSIGN(const Broadcast plan, plan_broadcast(x.shape(), y.shape()));
    TROUPE_ASSIGN(Tensor z, c.allocate(DType::kInt32, plan.shape));
    const int32_t zero_a = zero_of(a), zero_b = zero_of(b);
    int32_t* out = z.mutable_data<int32_t>();
    const int64_t p = plan.stride[0][plan.rank - 1], q = plan.stride[1][plan.rank - 1];
    for_each_run(plan, c.threads(), kCheapGrain, [&](int64_t at, const std::array<int64_t, 3>& in, int64_t n) {
      const uint8_t *u = x.data<uint8_t>() + in[0], *v = y.data<uint8_t>() + in[1];
      for (int64_t i = 0; i < n; ++i)
        out[at + i] = wrapping_multiply(wrapping_subtract<int32_t>(u[i * p], zero_a),
                                        wrapping_subtract<int32_t>(v[i * q], zero_b));
    });
    c.set_output(0, std::move(z));
    set_range(c, 1, product_range(a, b));
    return {};
  }
};

class QuantizedMatMul final : public ComputeKernel {
 public:
  explicit QuantizedMatMul(const KernelInit& init)
      : ta_(init.attr<bool>("transpose_a")), tb_(init.attr<bool>("transpose_b")) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &y = c.input(1);
    TROUPE_ASSIGN(const CodeRange a, rising_range_at(c, 2));
    TROUPE_ASSIGN(const CodeRange b, rising_range_at(c, 4));
    if (x.rank() != 2 || y.rank() != 2)
      return invalid_argument("a and b must be matrices: {}, {}", x.shape().str(), y.shape().str());
    const int64_t m = x.dim(ta_), k = x.dim(!ta_), n = y.dim(!tb_);
    if (y.dim(tb_) != k)
      return invalid_argument("inner sizes differ: {} x {}{}{}", x.shape().str(), y.shape().str(),
                              ta_ ? ", a transposed" : "", tb_ ? ", b transposed" : "");
    TROUPE_ASSIGN(const Tensor u, from_zero(c, x, zero_of(a)));
    TROUPE_ASSIGN(const Tensor v, from_zero(c, y, zero_of(b)));
    TROUPE_ASSIGN(const Shape shape, Shape::make(std::array{m, n}));
    TROUPE_ASSIGN(Tensor z, c.allocate(DType::kInt32, shape));
    if (!gemm(u.data<int32_t>(), ta_, v.data<int32_t>(), tb_, z.mutable_data<int32_t>(), m, n, k))
      return make_error(Code::kInternal, "the product of {} and {} failed", x.shape().str(), y.shape().str());
    c.set_output(0, std::move(z));
    set_range(c, 1, product_range(a, b));
    return {};
  }

 private:
  const bool ta_, tb_;
};

Status quantized_matmul_shape(ShapeContext& c) {
  set_range_shape(c);
  TROUPE_ASSIGN(const PartialShape a, c.with_rank(0, 2));
  TROUPE_ASSIGN(const PartialShape b, c.with_rank(1, 2));
  const int ta = c.attr<bool>("transpose_a"), tb = c.attr<bool>("transpose_b");
  if (a[1 - ta] >= 0 && b[tb] >= 0 && a[1 - ta] != b[tb])
    return invalid_argument("inner sizes differ: {} x {}{}{}", a.str(), b.str(), ta ? ", a transposed" : "",
                            tb ? ", b transposed" : "");
  TROUPE_ASSIGN(PartialShape out, PartialShape::make(std::array{a[ta], b[1 - tb]}));
  c.set_output(0, std::move(out));
  return {};
}

class QuantizedBiasAdd final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &bias = c.input(1);
    TROUPE_ASSIGN(const CodeRange a, range_at(c, 2));
    TROUPE_ASSIGN(const CodeRange b, range_at(c, 4));
    if (x.rank() < 2 || bias.rank() != 1 || bias.dim(0) != x.dim(-1))
      return invalid_argument("bias {} has not one number for each channel of input {}", bias.shape().str(),
                              x.shape().str());
    const float end = std::max(std::max(a.high, -a.low), std::max(b.high, -b.low)) * (1 << 17);
    const CodeRange to{-end, end};
    TROUPE_ASSIGN(Tensor z, c.allocate(DType::kInt32, x.shape()));
    with_type(x.dtype(), TypeList<int8_t, uint8_t>{}, [&]<class T>() {
      const Encoder<int32_t> encode(to);
      const Decoder<T> decode(a), decode_bias(b);
      std::vector<int32_t> added;
      const int32_t zero = code_of<int32_t>(0, to);
      for (const T v : bias.values<T>()) added.push_back(wrapping_add(encode(decode_bias(v)), zero));
      const auto channels = static_cast<int64_t>(added.size());
      const T* in = x.data<T>();
      int32_t* out = z.mutable_data<int32_t>();
      parallel_for(c.threads(), x.elements(), kCheapGrain, [&](int64_t begin, int64_t end_) {
        for (int64_t i = begin; i < end_; ++i)
          out[i] = wrapping_add(encode(decode(in[i])), added[static_cast<size_t>(i % channels)]);
      });
    });
    c.set_output(0, std::move(z));
    set_range(c, 1, to);
    return {};
  }
};

/// (x - mean) / sqrt(variance + epsilon) * gamma + beta by whole numbers. Each input is three: integers and their
/// range.
class QuantizedBatchNorm final : public ComputeKernel {
 public:
  explicit QuantizedBatchNorm(const KernelInit& init)
      : epsilon_(init.attr<float>("variance_epsilon")), scaled_(init.attr<bool>("scale_after_normalization")) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() != 4) return invalid_argument("t must be images of rank 4, not of shape {}", x.shape().str());
    TROUPE_ASSIGN(const CodeRange range, range_at(c, 1));
    std::vector<float> numbers[4];  // mean, variance, beta, gamma
    for (int i = 0; i < 4; ++i) {
      const Tensor& t = c.input(3 * (i + 1));
      TROUPE_ASSIGN(const CodeRange own, range_at(c, 3 * (i + 1) + 1));
      if (t.rank() != 1 || t.dim(0) != x.dim(3))
        return invalid_argument("input {} of shape {} has not one number for each channel of {}", 3 * (i + 1),
                                t.shape().str(), x.shape().str());
      for (const uint8_t v : t.values<uint8_t>()) numbers[i].push_back(number_of(v, own));
    }
    constexpr CodeRange kTo{-(1 << 20), 1 << 20};
    const auto one = code_of<int32_t>(1, kTo);
    std::vector<int32_t> scales, offsets;
    for (size_t k = 0; k < numbers[0].size(); ++k) {
      float scale = 1.f / std::sqrt(numbers[1][k] + epsilon_);
      if (scaled_) scale *= numbers[3][k];
      scales.push_back(code_of<int32_t>(scale, kTo));
      offsets.push_back(code_of<int32_t>(-numbers[0][k] * scale + numbers[2][k], kTo));
    }
    std::array<int32_t, 256> codes;
    for (int i = 0; i < 256; ++i)
      codes[static_cast<size_t>(i)] = code_of<int32_t>(number_of(static_cast<uint8_t>(i), range), kTo);
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kInt32, x.shape()));
    const uint8_t* in = x.data<uint8_t>();
    int32_t* out = y.mutable_data<int32_t>();
    parallel_for(c.threads(), x.elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto k = static_cast<size_t>(i) % scales.size();
        out[i] = wrapping_add(wrapping_multiply(codes[in[i]], scales[k]) / one, offsets[k]);
      }
    });
    c.set_output(0, std::move(y));
    set_range(c, 1, kTo);
    return {};
  }

 private:
  const float epsilon_;
  const bool scaled_;
};

Status quantized_batch_norm_shape(ShapeContext& c) {
  set_range_shape(c);
  TROUPE_ASSIGN(PartialShape x, c.with_rank(0, 4));
  for (int i = 3; i < 15; i += 3) {
    TROUPE_ASSIGN(const PartialShape t, c.with_rank(i, 1));
    if (t[0] >= 0 && x[3] >= 0 && t[0] != x[3])
      return invalid_argument("input {} of shape {} has not one number for each channel of {}", i, t.str(), x.str());
  }
  c.set_output(0, std::move(x));
  return {};
}

Status quantized_bias_shape(ShapeContext& c) {
  set_range_shape(c);
  TROUPE_ASSIGN(PartialShape x, c.with_rank_at_least(0, 2));
  TROUPE_ASSIGN(const PartialShape bias, c.with_rank(1, 1));
  if (x.has_rank() && bias[0] >= 0 && x[x.rank() - 1] >= 0 && x[x.rank() - 1] != bias[0])
    return invalid_argument("bias {} has not one number for each channel of input {}", bias.str(), x.str());
  c.set_output(0, std::move(x));
  return {};
}

Status broadcast_with_range(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(broadcast_shape(c));
  set_range_shape(c);
  return {};
}

}  // namespace

void register_quantized_math_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto add = [&](OpDef& op) { ops.add(std::move(op), not_differentiable(kQuantized)); };
  const auto pair = [](const char* name, const char* x, const char* y, const std::string& z) {
    OpDef op(name);
    op.input(std::string(x) + ": T1").input(std::string(y) + ": T2");
    for (const std::string of : {x, y}) op.input("min_" + of + ": float32").input("max_" + of + ": float32");
    op.output(z + ": Toutput").output("min_" + z + ": float32").output("max_" + z + ": float32");
    return op.attr("T1: {uint8}").attr("T2: {uint8}").attr("Toutput: {int32} = int32");
  };
  OpDef sum = pair("QuantizedAdd", "x", "y", "z");
  add(sum.shape(broadcast_with_range)
          .doc("x + y with broadcasting, as integers of 32 bits with a range 2^14 times as wide as those of x and y."));
  kernels.add<QuantizedAdd>("QuantizedAdd", DeviceKind::kCpu, {});
  OpDef product = pair("QuantizedMul", "x", "y", "z");
  add(product.shape(broadcast_with_range)
          .doc("x * y with broadcasting, as integers of 32 bits; a step stands for the product of the inputs' steps."));
  kernels.add<QuantizedMul>("QuantizedMul", DeviceKind::kCpu, {});
  OpDef matrices = pair("QuantizedMatMul", "a", "b", "out");
  add(matrices.attr("transpose_a: bool = false")
          .attr("transpose_b: bool = false")
          .attr(type_attr("Tactivation", QuantizedTypes{}, "uint8"))
          .shape(quantized_matmul_shape)
          .doc("The product of two matrices, as integers of 32 bits; a step stands for the product of the inputs' "
               "steps. Tactivation makes no difference."));
  kernels.add<QuantizedMatMul>("QuantizedMatMul", DeviceKind::kCpu, {});
  OpDef bias("QuantizedBiasAdd");
  add(bias.input("input: T1")
          .input("bias: T2")
          .input("min_input: float32")
          .input("max_input: float32")
          .input("min_bias: float32")
          .input("max_bias: float32")
          .output("output: out_type")
          .output("min_out: float32")
          .output("max_out: float32")
          .attr("T1: {int8, uint8}")
          .attr("T2: {int8, uint8}")
          .attr("out_type: {int32}")
          .shape(quantized_bias_shape)
          .doc("A vector added along the last dimension, as integers of 32 bits with a range 2^17 times as wide as "
               "those of the inputs, which have one type."));
  const char* name = "QuantizedBatchNormWithGlobalNormalization";
  OpDef norm(name);
  for (const std::string of : {"t", "m", "v", "beta", "gamma"})
    norm.input(of + ": Tinput").input(of + "_min: float32").input(of + "_max: float32");
  add(norm.output("result: out_type")
          .output("result_min: float32")
          .output("result_max: float32")
          .attr("Tinput: {uint8}")
          .attr("out_type: {int32}")
          .attr("variance_epsilon: float")
          .attr("scale_after_normalization: bool")
          .shape(quantized_batch_norm_shape)
          .doc("(t - m) / sqrt(v + variance_epsilon) * gamma + beta for each channel of images, without gamma unless "
               "scale_after_normalization; as integers of 32 bits with the range -2^20 to 2^20, whose products wrap "
               "around."));
  kernels.add<QuantizedBatchNorm>(name, DeviceKind::kCpu, {});
  for (const DType t : {DType::kInt8, DType::kUInt8})
    kernels.add<QuantizedBiasAdd>("QuantizedBiasAdd", DeviceKind::kCpu, {{"T1", {t}}, {"T2", {t}}});
}

}  // namespace troupe
