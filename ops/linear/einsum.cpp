// SPDX-License-Identifier: Apache-2.0
// Einsum of one or two operands: sums over dimensions of one operand, then batches of matrix products.
//
// Dimensions of two operands fall into four groups: batch (in both and the result), free (in one and the result),
// contracted (in both alone) and summed (in one alone). Operands are summed, brought to [batch, free, contracted] or
// [batch, contracted, free], whichever is no copy, and multiplied; the product [batch, free, free] is brought to the
// order of the result.
#include <algorithm>
#include <numeric>

#include "devices/parallel.h"
#include "ops/linear/einsum_spec.h"
#include "ops/linear/register.h"
#include "ops/parts/gemm.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/strided_copy.h"

namespace troupe {
namespace {

using EinsumTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, complex64, complex128>;
using DimLabels = std::vector<int>;

bool has(const DimLabels& labels, int label) { return std::ranges::find(labels, label) != labels.end(); }

/// A tensor with its dimensions numbered, each number once.
struct EinsumOperand {
  Tensor data;
  DimLabels labels;
};

/// Where each of `labels` moves in a tensor: repeated ones along the diagonal.
std::vector<int64_t> label_strides(const DimLabels& labels, const DimLabels& dims, const Shape& shape) {
  const auto strides = strides_of(shape);
  std::vector<int64_t> out(labels.size(), 0);
  for (size_t i = 0; i < labels.size(); ++i)
    for (size_t d = 0; d < dims.size(); ++d)
      if (dims[d] == labels[i]) out[i] += strides[d];
  return out;
}

/// x in the order of `wanted`, which are all of its labels.
Result<EinsumOperand> ordered(KernelContext& c, EinsumOperand x, const DimLabels& wanted,
                              const std::vector<int64_t>& sizes) {
  if (x.labels == wanted) return x;
  Shape shape;
  for (int label : wanted) shape.push_back(sizes[label]);
  TROUPE_ASSIGN(Tensor y, c.allocate(x.data.dtype(), shape));
  const auto from = label_strides(wanted, x.labels, x.data.shape());
  const auto to = strides_of(shape);
  StridedCopy box;
  for (size_t i = 0; i < wanted.size(); ++i) box.push(sizes[wanted[i]], from[i], to[i]);
  strided_copy(y.dtype(), y.mutable_raw(), x.data.raw(), box, c.threads());
  return EinsumOperand{std::move(y), wanted};
}

/// What many values of T are added up in: wider floats, integers that wrap around.
template <class T> struct WideSum { using Type = std::make_unsigned_t<T>; };
template <> struct WideSum<float> { using Type = double; };
template <> struct WideSum<double> { using Type = double; };
template <> struct WideSum<complex64> { using Type = complex128; };
template <> struct WideSum<complex128> { using Type = complex128; };

/// The sums of n values each.
template <class T> void add_up(int threads, const T* in, int64_t n, T* sums, int64_t count) {
  parallel_for(threads, count, 1 + kCheapGrain / std::max<int64_t>(n, 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      typename WideSum<T>::Type sum{};
      for (int64_t k = 0; k < n; ++k) sum += static_cast<typename WideSum<T>::Type>(in[i * n + k]);
      sums[i] = static_cast<T>(sum);
    }
  });
}

/// x summed over labels that only it has and that the result has not.
Result<EinsumOperand> summed(KernelContext& c, EinsumOperand x, const DimLabels& kept,
                             const std::vector<int64_t>& sizes) {
  DimLabels order;
  int64_t n = 1;
  for (int label : x.labels)
    if (has(kept, label) && !has(order, label)) order.push_back(label);
  const size_t rest = order.size();
  for (int label : x.labels)
    if (!has(order, label)) {
      order.push_back(label);
      n *= sizes[label];
    }
  if (rest == order.size() && rest == x.labels.size()) return x;
  TROUPE_ASSIGN(x, ordered(c, std::move(x), order, sizes));
  if (rest == order.size()) return x;
  order.resize(rest);
  Shape shape;
  for (int label : order) shape.push_back(sizes[label]);
  TROUPE_ASSIGN(Tensor y, c.allocate(x.data.dtype(), shape));
  with_type(y.dtype(), GemmTypes{},
            [&]<class T>() { add_up(c.threads(), x.data.data<T>(), n, y.mutable_data<T>(), y.elements()); });
  return EinsumOperand{y, order};
}

int64_t count(const DimLabels& labels, const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (int label : labels) n *= sizes[label];
  return n;
}

DimLabels joined(const DimLabels& a, const DimLabels& b, const DimLabels& c = {}) {
  DimLabels out = a;
  out.insert(out.end(), b.begin(), b.end());
  out.insert(out.end(), c.begin(), c.end());
  return out;
}

/// The product of two operands whose labels are all in `result` or in both.
Result<EinsumOperand> product(KernelContext& c, EinsumOperand a, EinsumOperand b, const DimLabels& result,
                              const std::vector<int64_t>& sizes) {
  DimLabels batch, free_a, free_b, contracted;
  for (int label : result) (!has(b.labels, label) ? free_a : !has(a.labels, label) ? free_b : batch).push_back(label);
  for (int label : a.labels)
    if (!has(result, label)) contracted.push_back(label);
  if (!free_a.empty() && !free_b.empty() && result == joined(batch, free_b, free_a)) {
    std::swap(a, b);
    std::swap(free_a, free_b);
  }
  const bool ta = a.labels == joined(batch, contracted, free_a), tb = b.labels == joined(batch, free_b, contracted);
  if (!ta) {
    TROUPE_ASSIGN(a, ordered(c, std::move(a), joined(batch, free_a, contracted), sizes));
  }
  if (!tb) {
    TROUPE_ASSIGN(b, ordered(c, std::move(b), joined(batch, contracted, free_b), sizes));
  }
  EinsumOperand out{{}, joined(batch, free_a, free_b)};
  std::vector<int64_t> dims;
  for (int label : out.labels) dims.push_back(sizes[label]);
  TROUPE_ASSIGN(const Shape shape, Shape::make(dims));
  TROUPE_ASSIGN(out.data, c.allocate(a.data.dtype(), shape));
  if (shape.elements() == 0) return out;  // for however many matrices
  std::vector<int64_t> at(static_cast<size_t>(count(batch, sizes)));
  std::iota(at.begin(), at.end(), int64_t{0});
  bool done = false;
  with_type(out.data.dtype(), GemmTypes{}, [&]<class T>() {
    done = gemm_batch(c.threads(), a.data.data<T>(), ta, at, b.data.data<T>(), tb, at, out.data.mutable_data<T>(),
                      count(free_a, sizes), count(free_b, sizes), count(contracted, sizes));
  });
  if (!done)
    return make_error(Code::kInternal, "the matrix library failed for {} x {}", a.data.shape().str(),
                      b.data.shape().str());
  return out;
}

/// x in the order of `labels`, of which some may be repeated: then all but their diagonal is zero.
Result<Tensor> spread(KernelContext& c, EinsumOperand x, const DimLabels& labels, const std::vector<int64_t>& sizes) {
  DimLabels once;
  for (int label : labels)
    if (!has(once, label)) once.push_back(label);
  TROUPE_ASSIGN(x, ordered(c, std::move(x), once, sizes));
  if (once.size() == labels.size()) return x.data;
  std::vector<int64_t> dims;
  for (int label : labels) dims.push_back(sizes[label]);
  TROUPE_ASSIGN(const Shape shape, Shape::make(dims));
  TROUPE_ASSIGN(Tensor y, Tensor::zeros(x.data.dtype(), shape, c.device().allocator));
  const auto from = strides_of(x.data.shape());
  const auto to = label_strides(once, labels, shape);
  StridedCopy box;
  for (size_t i = 0; i < once.size(); ++i) box.push(sizes[once[i]], from[i], to[i]);
  strided_copy(y.dtype(), y.mutable_raw(), x.data.raw(), box, c.threads());
  return y;
}

class Einsum final : public ComputeKernel {
 public:
  explicit Einsum(EinsumSpec spec) : spec_(std::move(spec)) {}
  Status compute(KernelContext& c) override {
    std::vector<PartialShape> shapes;
    for (int i = 0; i < c.num_inputs(); ++i) shapes.emplace_back(c.input(i).shape());
    TROUPE_ASSIGN(const EinsumLabels labels, EinsumLabels::resolve(spec_, shapes));
    std::vector<EinsumOperand> operands;
    for (int i = 0; i < c.num_inputs(); ++i) {
      TROUPE_ASSIGN(EinsumOperand x, operand(c, i, labels));
      operands.push_back(std::move(x));
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      const DimLabels kept = operands.size() == 1 ? labels.output : joined(labels.output, operands[1 - i].labels);
      TROUPE_ASSIGN(operands[i], summed(c, std::move(operands[i]), kept, labels.sizes));
    }
    if (operands.size() == 2) {
      DimLabels once;
      for (int label : labels.output)
        if (!has(once, label)) once.push_back(label);
      TROUPE_ASSIGN(operands[0], product(c, operands[0], operands[1], once, labels.sizes));
    }
    TROUPE_ASSIGN(const Tensor y, spread(c, std::move(operands[0]), labels.output, labels.sizes));
    TROUPE_ASSIGN(Tensor narrow, converted(c, y, c.input(0).dtype()));
    c.set_output(0, std::move(narrow));
    return {};
  }

 private:
  /// Input i without dimensions of 1 that broadcast.
  static Result<EinsumOperand> operand(KernelContext& c, int i, const EinsumLabels& labels) {
    const DType dtype = c.input(i).dtype();
    const bool half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
    TROUPE_ASSIGN(const Tensor x, converted(c, c.input(i), half ? DType::kFloat32 : dtype));
    EinsumOperand out;
    Shape shape;
    for (int d = 0; d < x.rank(); ++d) {
      const int label = labels.inputs[i][d];
      if (labels.sizes[label] != x.shape()[d]) continue;
      out.labels.push_back(label);
      shape.push_back(x.shape()[d]);
    }
    TROUPE_ASSIGN(out.data, x.reshape(shape));
    return out;
  }

  const EinsumSpec spec_;
};

Status einsum_shape(ShapeContext& c) {
  if (c.num_inputs() > 2) return invalid_argument("{} operands, not 1 or 2", c.num_inputs());
  TROUPE_ASSIGN(const EinsumSpec spec, EinsumSpec::parse(c.attr<std::string>("equation"), c.num_inputs()));
  std::vector<PartialShape> shapes;
  for (int i = 0; i < c.num_inputs(); ++i) {
    shapes.push_back(c.input(i));
    const bool ellipsis = spec.inputs[i].find(EinsumSpec::kEllipsis) != std::string::npos;
    if (!c.input(i).has_rank() && ellipsis) return {};
    if (!c.input(i).has_rank() && spec.inputs[i].size() <= kMaxRank)
      shapes.back() = PartialShape::of_rank(static_cast<int>(spec.inputs[i].size()));
  }
  TROUPE_ASSIGN(const EinsumLabels labels, EinsumLabels::resolve(spec, shapes));
  TROUPE_ASSIGN(PartialShape out, labels.result());
  c.set_output(0, std::move(out));
  return {};
}

// --- the gradient ---

constexpr char kDots = EinsumSpec::kEllipsis;

/// Subscripts as text of an equation.
std::string text(const std::string& subscripts) {
  std::string out;
  for (char c : subscripts) out += c == kDots ? std::string("...") : std::string(1, c);
  return out;
}

Output einsum(GradientContext& c, const std::vector<Output>& inputs, const std::string& equation) {
  return c.op("Einsum", inputs, {{"equation", equation}});
}

/// The sizes of x from dimension `begin` on, without the last `drop`.
Output some_sizes(GradientContext& c, Output x, int64_t begin, int64_t drop) {
  const int64_t b[] = {begin}, e[] = {-drop}, s[] = {1};
  return c.op("StridedSlice", {c.op("Shape", {x}), int_vector(c, b), int_vector(c, e), int_vector(c, s)},
              {{"end_mask", int64_t{drop == 0}}});
}

/// The sizes of x under the ellipsis of its subscripts.
Output sizes_under_dots(GradientContext& c, Output x, const std::string& subscripts) {
  const size_t at = subscripts.find(kDots);
  if (at == std::string::npos) return some_sizes(c, x, static_cast<int64_t>(subscripts.size()), 0);
  return some_sizes(c, x, static_cast<int64_t>(at), static_cast<int64_t>(subscripts.size() - at - 1));
}

/// g, in the order of subscripts `all`, summed over what of its ellipsis x was broadcast along.
Output sum_broadcast(GradientContext& c, Output g, Output x, const std::string& own, const std::string& all,
                     const std::string& result) {
  const Output y = c.output(0);
  const size_t at = all.find(kDots);
  if (at == std::string::npos) return g;
  if (x.shape().fully_known() && y.shape().has_rank()) {
    const int under_x = x.shape().rank() - static_cast<int>(own.size()) + (own.find(kDots) != std::string::npos);
    const int under_y = y.shape().rank() - static_cast<int>(result.size()) + 1;
    bool same = under_x == under_y;
    for (int i = 0; i < under_x; ++i) same = same && x.shape()[static_cast<int>(at) + i] != 1;
    if (same) return g;
  }
  const std::vector<Output> axes =
      c.ops("BroadcastGradientArgs", {sizes_under_dots(c, x, own), sizes_under_dots(c, y, result)});
  if (axes.empty()) return {};
  const Output moved = c.op("AddV2", {axes[0], c.constant(Tensor::scalar<int32_t>(static_cast<int32_t>(at)))});
  return c.op("Reshape", {c.op("Sum", {g, moved}), sizes_of(c, x)});
}

/// dx is the Einsum of dy and the other operand; dimensions that were summed in x alone repeat it.
Output gradient_by(GradientContext& c, const EinsumSpec& spec, int i) {
  const Output x = c.input(i);
  const std::string& own = spec.inputs[i];
  const std::string other = spec.inputs.size() == 2 ? spec.inputs[1 - i] : "";
  const bool dots = spec.output.find(kDots) != std::string::npos;
  std::string all, left, repeated;  // of x with an ellipsis if the result has one; what dy and other give; the rest
  for (char label : own)
    if (label != kDots || dots) all += label;
  if (dots && all.find(kDots) == std::string::npos) all += kDots;
  for (char label : all) {
    const bool given = spec.output.find(label) != std::string::npos || other.find(label) != std::string::npos;
    std::string& list = given ? left : repeated;
    if (list.find(label) == std::string::npos) list += label;
  }
  Output g = c.dy(0);
  const std::string target = repeated.empty() ? all : left;
  if (spec.inputs.size() == 2)
    g = einsum(c, {g, conj(c, c.input(1 - i))}, text(spec.output) + "," + text(other) + "->" + text(target));
  else if (spec.output != target) g = einsum(c, {g}, text(spec.output) + "->" + text(target));
  if (!repeated.empty()) {
    std::vector<Output> sizes;
    for (char label : repeated) {
      const auto at = static_cast<int64_t>(own.find(label)), last = static_cast<int64_t>(own.size());
      const size_t ellipsis = own.find(kDots);
      const bool from_end = ellipsis != std::string::npos && ellipsis < static_cast<size_t>(at);
      sizes.push_back(some_sizes(c, x, from_end ? at - last : at, 0));
      const int64_t zero[] = {0}, one[] = {1};
      sizes.back() = c.op("StridedSlice", {sizes.back(), int_vector(c, zero), int_vector(c, one), int_vector(c, one)});
    }
    sizes.push_back(c.op("Shape", {g}));
    sizes.push_back(c.constant(Tensor::scalar<int32_t>(0)));
    g = c.op("BroadcastTo", {g, c.op("ConcatV2", sizes)});
    if (repeated + left != all) g = einsum(c, {g}, text(repeated + left) + "->" + text(all));
  }
  return sum_broadcast(c, g, x, own, all, spec.output);
}

Status einsum_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  TROUPE_ASSIGN(const EinsumSpec spec,
                EinsumSpec::parse(c.node().attrs().get_or<std::string>("equation", ""), c.num_inputs()));
  for (int i = 0; i < c.num_inputs(); ++i) c.set_dx(i, gradient_by(c, spec, i));
  return {};
}

}  // namespace

void register_einsum_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(
      OpDef("Einsum")
          .input("inputs: N * T")
          .output("output: T")
          .attr("equation: string")
          .attr("N: int >= 1")
          .attr(type_attr("T", EinsumTypes{}))
          .shape(einsum_shape)
          .doc("Sums of products by Einstein's convention: in 'ij,jk->ik' dimensions of one letter go together, and "
               "those that the result has not are summed. A letter twice in an operand takes its diagonal, twice in "
               "the result makes one; '...' stands for dimensions that broadcast. One or two operands; sizes that "
               "differ are errors."),
      gradient(einsum_gradient));
  kernels.add("Einsum", DeviceKind::kCpu, {{"T", EinsumTypes::dtypes()}},
              [](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                const int n = static_cast<int>(init.input_dtypes.size());
                TROUPE_ASSIGN(EinsumSpec spec, EinsumSpec::parse(init.attr<std::string>("equation"), n));
                return std::unique_ptr<ComputeKernel>(new Einsum(std::move(spec)));
              });
}

}  // namespace troupe
