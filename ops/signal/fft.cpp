// SPDX-License-Identifier: Apache-2.0
// Fourier transforms of the last one, two or three dimensions: FFT, IFFT, RFFT, IRFFT.
#include <map>
#include <memory>
#include <mutex>

#include "devices/parallel.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/precision.h"
#include "ops/parts/strided_copy.h"
#include "ops/parts/type_dispatch.h"
#include "ops/signal/fourier.h"
#include "ops/signal/register.h"

namespace troupe {
namespace {

/// FFT2D; of one dimension FFT.
std::string name_of(const char* transform, int dims) {
  return dims == 1 ? transform : fmt::format("{}{}D", transform, dims);
}

/// What the name of an op says: IRFFT2D is inverse, real and of two dimensions.
struct FftKind {
  bool inverse, real;
  int dims;
  explicit FftKind(std::string_view op)
      : inverse(op[0] == 'I'), real(op.find("RFFT") != op.npos), dims(op.ends_with('T') ? 1 : op[op.size() - 2] - '0') {
  }
  std::string str(bool other_way) const { return name_of(inverse != other_way ? "IFFT" : "FFT", dims); }
};

/// The lengths of a real transform. Errors: not `dims` numbers of 0 or more.
Result<std::vector<int64_t>> lengths_from(const Tensor& t, int dims) {
  TROUPE_ASSIGN(auto lengths, int_values(t, "fft_length"));
  if (static_cast<int>(lengths.size()) != dims)
    return invalid_argument("fft_length has {} numbers for {} dimensions", lengths.size(), dims);
  for (int64_t n : lengths)
    if (n < 0) return invalid_argument("fft_length {} is negative", n);
  return lengths;
}

/// x after a real transform of `lengths`; what is known of it. Errors: dimensions shorter than the transform.
Result<PartialShape> real_shape(const PartialShape& x, const FftKind& kind, const std::vector<int64_t>& lengths) {
  PartialShape out = x;
  for (int i = 0; i < kind.dims; ++i) {
    const int d = x.rank() - kind.dims + i;
    const bool last = i + 1 == kind.dims;
    const int64_t n = lengths[i], half = n == 0 ? 0 : n / 2 + 1, needed = last && kind.inverse ? half : n;
    if (x[d] >= 0 && x[d] < needed)
      return invalid_argument("dimension {} of {} is shorter than the {} of fft_length {}", d, x.str(), needed, n);
    out.set(d, last && !kind.inverse ? half : n);
  }
  return PartialShape::make(out.dims());
}

/// Calls f(start of the line in each tensor) for all lines along dimension d of the box `lines`, a shape with size 1
/// there; the tensors have the strides `a` and `b`.
template <class F>
void each_line(const Shape& lines, const std::array<int64_t, kMaxRank>& a, const std::array<int64_t, kMaxRank>& b,
               int64_t begin, int64_t end, F&& f) {
  for (int64_t i = begin; i < end; ++i) {
    int64_t rest = i, at = 0, to = 0;
    for (int d = lines.rank() - 1; d >= 0; --d) {
      at += rest % lines[d] * a[d];
      to += rest % lines[d] * b[d];
      rest /= lines[d];
    }
    f(at, to);
  }
}

template <class R> void set(Lanes<R, 1>& z, int, R re, R im) { z = {re, im}; }
template <class R, int L> void set(Lanes<R, L>& z, int l, R re, R im) {
  z.re[l] = re;
  z.im[l] = im;
}
template <class R> Lanes<R, 1> get(const Lanes<R, 1>& z, int) { return z; }
template <class R, int L> Lanes<R, 1> get(const Lanes<R, L>& z, int l) { return {z.re[l], z.im[l]}; }

/// Transforms along one dimension of n numbers with parts of type R, from x, of which more is passed over, to y. Either
/// may be real: then only half of the transform is written, or read.
template <class In, class Out, class R> class LineTransform {
 public:
  static constexpr bool kReadsReal = !is_complex_type<In>, kWritesReal = !is_complex_type<Out>;
  using Plan = RealFourier<R>;

  LineTransform(const Plan& plan, const Tensor& x, Tensor& y, int d, int64_t n, bool inverse)
      : plan_(plan), in_(x.data<In>()), out_(y.mutable_data<Out>()), lines_(y.shape()), from_(strides_of(x.shape())),
        to_(strides_of(y.shape())), step_(from_[d]), step_out_(to_[d]), n_(n), written_(y.shape()[d]),
        inverse_(inverse) {
    lines_.set(d, 1);
  }

  void run(int threads) const {
    const Fourier<R>& fourier = plan_.fourier();
    const int64_t count = lines_.elements();
    if (!fourier.is_long()) {
      using Numbers = typename Fourier<R>::Numbers;
      constexpr int kLanes = Fourier<R>::kLanes;
      parallel_for(threads, (count + kLanes - 1) / kLanes, 1 + kCheapGrain / (32 * n_),
                   [&](int64_t begin, int64_t end) {
                     Room<Numbers> room(*this);
                     for (int64_t i = begin * kLanes; i < std::min(end * kLanes, count); i += kLanes)
                       carry_out<kLanes>(i, static_cast<int>(std::min<int64_t>(kLanes, count - i)), room, 1);
                   });
      return;
    }
    // Threads take lines or, where these are few, share them.
    const int64_t parts = count >= threads ? threads : 1;
    std::vector<Room<typename Fourier<R>::Number>> rooms;
    for (int64_t part = 0; part < parts; ++part) rooms.emplace_back(*this);
    parallel_for(static_cast<int>(parts), parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        for (int64_t i = count * part / parts; i < count * (part + 1) / parts; ++i)
          carry_out<1>(i, 1, rooms[static_cast<size_t>(part)], parts == 1 ? threads : 1);
    });
  }

 private:
  /// Memory for a line, and to work in; not set.
  template <class N> struct Room {
    explicit Room(const LineTransform& t)
        : line(std::make_unique_for_overwrite<N[]>(static_cast<size_t>(t.n_ + 1))),
          work(std::make_unique_for_overwrite<N[]>(static_cast<size_t>(t.plan_.fourier().work_size()))) {}
    std::unique_ptr<N[]> line, work;
  };

  /// The `used` of L lines that begin with number `first`.
  template <int L> void carry_out(int64_t first, int used, Room<Lanes<R, L>>& room, int threads) const {
    std::array<const In*, L> from{};
    std::array<Out*, L> to{};
    int next = 0;
    each_line(lines_, from_, to_, first, first + used, [&](int64_t a, int64_t b) {
      from[next] = in_ + a;
      to[next++] = out_ + b;
    });
    for (; next < L; ++next) from[next] = from[0];
    read<L>(from, room.line.get());
    if constexpr (L == 1) plan_.fourier().run(room.line.get(), room.work.get(), threads);
    else plan_.fourier().run(room.line.get(), room.work.get());
    if (kReadsReal && plan_.halved()) plan_.part(room.line.get());
    write<L>(room.line.get(), to, used);
  }

  /// With the sign of the inverse turned, conjugates give its conjugates.
  template <int L> void read(const std::array<const In*, L>& from, Lanes<R, L>* line) const {
    const int64_t half = n_ / 2 + 1;
    if constexpr (kReadsReal) {
      for (int l = 0; l < L; ++l) {
        const In* p = from[l];
        if (plan_.halved())
          for (int64_t k = 0; k < n_ / 2; ++k) set<R>(line[k], l, p[2 * k * step_], p[(2 * k + 1) * step_]);
        else
          for (int64_t k = 0; k < n_; ++k) set<R>(line[k], l, p[k * step_], 0);
      }
    } else {
      const R sign = inverse_ ? -1 : 1;
      for (int64_t k = 0; k < (kWritesReal ? half : n_); ++k)
        for (int l = 0; l < L; ++l) {
          const In v = from[l][k * step_];
          set<R>(line[k], l, v.real(), kWritesReal && (k == 0 || 2 * k == n_) ? 0 : sign * v.imag());
        }
    }
    if constexpr (kWritesReal) {
      if (plan_.halved()) plan_.join(line);
      else
        for (int64_t k = 1; k < half; ++k) line[n_ - k] = {line[k].re, -line[k].im};
    }
  }

  template <int L> void write(const Lanes<R, L>* line, const std::array<Out*, L>& to, int used) const {
    const R scale = inverse_ ? 1 / static_cast<R>(n_) : 1;
    if constexpr (kWritesReal) {
      for (int l = 0; l < used; ++l) {
        Out* p = to[l];
        if (plan_.halved())
          for (int64_t k = 0; k < n_ / 2; ++k) {
            const auto z = get(line[k], l);
            p[2 * k * step_out_] = z.re * scale;
            p[(2 * k + 1) * step_out_] = -z.im * scale;
          }
        else
          for (int64_t k = 0; k < written_; ++k) p[k * step_out_] = get(line[k], l).re * scale;
      }
    } else {
      const R turned = inverse_ ? -scale : scale;
      for (int64_t k = 0; k < written_; ++k)
        for (int l = 0; l < used; ++l) {
          const auto z = get(line[k], l);
          to[l][k * step_out_] = Out(z.re * scale, z.im * turned);
        }
    }
  }

  const Plan& plan_;
  const In* const in_;
  Out* const out_;
  Shape lines_;  // y, with 1 along the dimension
  const std::array<int64_t, kMaxRank> from_, to_;
  const int64_t step_, step_out_, n_, written_;
  const bool inverse_;
};

template <class In, class Out, class R>
void transform(const RealFourier<R>& plan, const Tensor& x, Tensor& y, int d, int64_t n, bool inverse, int threads) {
  LineTransform<In, Out, R>(plan, x, y, d, n, inverse).run(threads);
}

/// By numbers whose parts are of type R.
template <class R> class Fft final : public ComputeKernel {
 public:
  explicit Fft(const KernelInit& init) : kind_(init.op) {}
  Status compute(KernelContext& c) override {
    Tensor x = c.input(0);
    if (x.rank() < kind_.dims)
      return invalid_argument("input must have rank {} or more, but its shape is {}", kind_.dims, x.shape().str());
    const int first = x.rank() - kind_.dims, last = x.rank() - 1;
    std::vector<int64_t> lengths(x.shape().begin() + first, x.shape().end());
    Shape shape = x.shape();
    if (kind_.real) {
      TROUPE_ASSIGN(lengths, lengths_from(c.input(1), kind_.dims));
      TROUPE_ASSIGN(const PartialShape result, real_shape(x.shape(), kind_, lengths));
      shape = result.shape();
    }
    if (shape.elements() == 0) {
      TROUPE_ASSIGN(Tensor y, c.allocate(kind_.real && kind_.inverse ? dtype_of<R> : dtype_of<C>, shape));
      c.set_output(0, std::move(y));
      return {};
    }
    // Real numbers are read first, and written last, in the last dimension.
    const bool reads_real = kind_.real && !kind_.inverse, writes_real = kind_.real && kind_.inverse;
    for (int step = 0; step < kind_.dims; ++step) {
      const int d = writes_real ? first + step : last - step;
      Shape next = x.shape();
      next.set(d, shape[d]);
      TROUPE_ASSIGN(Tensor y, c.allocate(writes_real && d == last ? dtype_of<R> : dtype_of<C>, next));
      const int64_t n = lengths[d - first];
      const std::shared_ptr<const RealFourier<R>> plan = plan_of(n, kind_.real && d == last);
      if (reads_real && d == last) transform<R, C>(*plan, x, y, d, n, false, c.threads());
      else if (writes_real && d == last) transform<C, R>(*plan, x, y, d, n, true, c.threads());
      else transform<C, C>(*plan, x, y, d, n, kind_.inverse, c.threads());
      x = std::move(y);
    }
    c.set_output(0, std::move(x));
    return {};
  }

 private:
  using C = std::complex<R>;
  /// The plans of the last step are kept: their roots take as long as a few lines.
  std::shared_ptr<const RealFourier<R>> plan_of(int64_t n, bool real) {
    constexpr size_t kKept = 4;
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const RealFourier<R>>& plan = plans_[{n, real}];
    if (!plan) {
      auto made = std::make_shared<const RealFourier<R>>(n, real);
      if (plans_.size() > kKept) plans_.clear();
      return plans_[{n, real}] = std::move(made);
    }
    return plan;
  }

  const FftKind kind_;
  std::mutex mutex_;
  std::map<std::pair<int64_t, bool>, std::shared_ptr<const RealFourier<R>>> plans_;
};

template <int dims> Status complex_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank_at_least(0, dims).status());
  return unchanged_shape(c);
}

template <int dims, bool inverse> Status real_transform_shape(ShapeContext& c) {
  const auto real = c.attr<DType>("Treal");
  TROUPE_RETURN_IF_ERROR(check_precision(c, "Tcomplex", real, complex_of(real)));
  TROUPE_ASSIGN(const PartialShape x, c.with_rank_at_least(0, dims));
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
  if (!x.has_rank()) return {};
  PartialShape out = x;
  for (int i = 1; i <= dims; ++i) out.set(x.rank() - i, -1);
  if (const auto constant = c.constant_input(1)) {
    TROUPE_ASSIGN(const auto lengths, lengths_from(*constant, dims));
    FftKind kind("FFT");
    kind.dims = dims;
    kind.inverse = inverse;
    TROUPE_ASSIGN(out, real_shape(x, kind, lengths));
  }
  c.set_output(0, std::move(out));
  return {};
}

// --- gradients ---

/// The number of elements that the last `dims` dimensions of x have, in the type of x.
Output size_of_last(GradientContext& c, Output x, int dims) {
  const int64_t b[] = {-dims}, e[] = {0}, s[] = {1};
  const Output sizes = c.op("StridedSlice", {c.op("Shape", {x}), int_vector(c, b), int_vector(c, e), int_vector(c, s)},
                            {{"end_mask", int64_t{1}}});
  return c.op("Cast", {c.op("Prod", {sizes, c.constant(Tensor::scalar<int32_t>(0))})}, {{"DstT", x.dtype()}});
}

/// A transform with its sign turned, and without or with the scale.
Status fft_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const FftKind kind(c.node().op().name());
  const Output size = size_of_last(c, c.dy(0), kind.dims), dx = c.op(kind.str(true), {c.dy(0)});
  c.set_dx(0, c.op(kind.inverse ? "RealDiv" : "Mul", {dx, size}));
  return {};
}

/// x with zeros after it up to `sizes`.
Output padded(GradientContext& c, Output x, Output sizes) {
  const Output after = c.op("Sub", {sizes, c.op("Shape", {x})});
  return c.op("Pad", {x, c.op("Pack", {c.op("ZerosLike", {after}), after}, {{"axis", int64_t{1}}})});
}

/// The first `keep` sizes of x, or all but as many where that is negative, then `rest`.
Output sizes_then(GradientContext& c, Output x, int64_t keep, Output rest) {
  const int64_t b[] = {0}, e[] = {keep}, s[] = {1};
  const Output first = c.op("StridedSlice", {c.op("Shape", {x}), int_vector(c, b), int_vector(c, e), int_vector(c, s)});
  return c.op("ConcatV2", {first, rest, c.constant(Tensor::scalar<int32_t>(0))});
}

/// The half of the transform is one of all with zeros for the rest; what of x is not read gets zeros.
Status rfft_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const FftKind kind(c.node().op().name());
  const Output x = c.input(0), lengths = c.input(1);
  const Output g = padded(c, c.dy(0), sizes_then(c, c.dy(0), -kind.dims, lengths));
  FftKind complex = kind;
  complex.real = false;
  const Output dx = real_part(c, c.op(complex.str(true), {g}));
  c.set_dx(0, padded(c, c.op("Mul", {dx, size_of_last(c, dx, kind.dims)}), c.op("Shape", {x})));
  return {};
}

/// Numbers that stand for their conjugates too count twice.
Status irfft_gradient(GradientContext& c) {
  const Output g = c.dy(0);
  if (!g) return {};
  const std::string name = c.node().op().name();
  const FftKind kind(name);
  const Output dx = c.op(name.substr(1), {g, c.input(1)}, {{"Tcomplex", c.input(0).dtype()}});
  const auto number = [&](int32_t v) { return c.constant(Tensor::scalar<int32_t>(v)); };
  const int64_t l[] = {-1}, z[] = {0}, s[] = {1};
  const auto last = [&](Output sizes) {
    return c.op("StridedSlice", {sizes, int_vector(c, l), int_vector(c, z), int_vector(c, s)},
                {{"end_mask", int64_t{1}}, {"shrink_axis_mask", int64_t{1}}});
  };
  const Output at = c.op("Range", {number(0), last(c.op("Shape", {dx})), number(1)});
  const Output single = c.op(
      "LogicalOr", {c.op("Equal", {at, number(0)}), c.op("Equal", {c.op("Mul", {at, number(2)}), last(c.input(1))})});
  const auto real = [&](double v) { return scalar_like(c, g.dtype(), v); };
  const Output counts = c.op("RealDiv", {c.op("SelectV2", {single, real(1), real(2)}), size_of_last(c, g, kind.dims)});
  const Output scaled = c.op("Mul", {dx, c.op("Cast", {counts}, {{"DstT", dx.dtype()}})});
  c.set_dx(0, padded(c, scaled, c.op("Shape", {c.input(0)})));
  return {};
}

void add_kernels(KernelRegistry& kernels, const std::string& name) {
  kernels.add(name, DeviceKind::kCpu, "Tcomplex", DType::kComplex64, KernelFactory::of<Fft<float>>());
  kernels.add(name, DeviceKind::kCpu, "Tcomplex", DType::kComplex128, KernelFactory::of<Fft<double>>());
}

template <int dims> void add_transforms(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string where = dims == 1 ? "the last dimension" : fmt::format("the last {} dimensions", dims);
  for (const bool inverse : {false, true}) {
    const std::string name = name_of(inverse ? "IFFT" : "FFT", dims);
    ops.add(OpDef(name)
                .input("input: Tcomplex")
                .output("output: Tcomplex")
                .attr(type_attr("Tcomplex", ComplexTypes{}, "complex64"))
                .shape(complex_shape<dims>)
                .doc(std::string(inverse ? "The inverse Fourier transform of " : "The Fourier transform of ") + where +
                     "."),
            gradient(fft_gradient));
    add_kernels(kernels, name);
  }
  ops.add(
      OpDef(name_of("RFFT", dims))
          .input("input: Treal")
          .input("fft_length: int32")
          .output("output: Tcomplex")
          .attr(type_attr("Treal", FullFloatTypes{}, "float32"))
          .attr(type_attr("Tcomplex", ComplexTypes{}, "complex64"))
          .shape(real_transform_shape<dims, false>)
          .doc("The Fourier transform of the first fft_length real numbers of " + where +
               "; of the last, the fft_length / 2 + 1 numbers that say all. Error for a dimension that is shorter."),
      gradient(rfft_gradient));
  ops.add(OpDef(name_of("IRFFT", dims))
              .input("input: Tcomplex")
              .input("fft_length: int32")
              .output("output: Treal")
              .attr(type_attr("Treal", FullFloatTypes{}, "float32"))
              .attr(type_attr("Tcomplex", ComplexTypes{}, "complex64"))
              .shape(real_transform_shape<dims, true>)
              .doc("The fft_length real numbers of " + where + " of which the input has the transform, RFFT's " +
                   "fft_length / 2 + 1 numbers of the last dimension. Error for a dimension that is shorter."),
          gradient(irfft_gradient));
  for (const char* op : {"RFFT", "IRFFT"}) add_kernels(kernels, name_of(op, dims));
}

}  // namespace

void register_fft_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_transforms<1>(ops, kernels);
  add_transforms<2>(ops, kernels);
  add_transforms<3>(ops, kernels);
}

}  // namespace troupe
