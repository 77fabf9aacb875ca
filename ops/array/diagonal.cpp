// SPDX-License-Identifier: Apache-2.0
// Diagonals of matrices: MatrixDiag, MatrixDiagPart and MatrixSetDiag in their three versions, MatrixBandPart, and Diag
// and DiagPart of tensors.
//
// Several diagonals, from `upper` down to `lower`, are the rows of a matrix as long as the longest of them; `align`
// says at which end shorter ones have padding.
#include <algorithm>

#include "devices/parallel.h"
#include "ops/array/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// Which diagonals, of matrices [rows, columns].
struct Diagonals {
  int64_t lower = 0, upper = 0, rows = 0, columns = 0;
  bool left_above = true, left_below = true;  // shorter diagonals above, below the main one begin at the left

  int64_t count() const { return upper - lower + 1; }
  int64_t length(int64_t d) const {
    return std::max<int64_t>(std::min(rows + std::min<int64_t>(d, 0), columns - std::max<int64_t>(d, 0)), 0);
  }
  int64_t longest() const { return length(std::clamp<int64_t>(0, lower, upper)); }
  /// Where diagonal d begins in its row.
  int64_t offset(int64_t d) const {
    const bool left = (d >= 0 && left_above) || (d <= 0 && left_below);
    return left ? 0 : longest() - length(d);
  }
  /// Sizes of the diagonals of one matrix: one diagonal is a vector.
  std::vector<int64_t> sizes() const {
    return count() == 1 ? std::vector<int64_t>{longest()} : std::vector<int64_t>{count(), longest()};
  }
  /// Errors: a diagonal outside the matrix.
  Status check() const {
    for (int64_t d : {lower, upper})
      if (d != 0 && (d <= -rows || d >= columns))
        return invalid_argument("diagonal {} is outside matrices [{},{}]", d, rows, columns);
    return {};
  }
};

/// Input k and attribute align; the first versions have neither.
Result<Diagonals> diagonals_of(const Attrs& attrs, const Tensor* k) {
  Diagonals out;
  if (!k) return out;
  TROUPE_ASSIGN(const auto range, int_values(*k, "k"));
  if (range.empty() || range.size() > 2) return invalid_argument("k must be one number or two, not {}", range.size());
  out.lower = range.front();
  out.upper = range.back();
  if (out.lower > out.upper) return invalid_argument("k: {} is above {}", out.lower, out.upper);
  const auto align = attrs.get_or<std::string>("align", "LEFT_LEFT");
  out.left_above = align.starts_with("LEFT");
  out.left_below = align.ends_with("LEFT");
  return out;
}

/// Calls f(place in the matrices, place in the diagonals) for each element of the diagonals of matrices [begin, end).
template <class F> void each_diagonal(const Diagonals& d, int64_t begin, int64_t end, F&& f) {
  const int64_t longest = d.longest();
  for (int64_t m = begin; m < end; ++m)
    for (int64_t k = d.upper; k >= d.lower; --k) {
      const int64_t n = d.length(k), row = std::max<int64_t>(-k, 0), column = std::max<int64_t>(k, 0);
      int64_t at = (m * d.rows + row) * d.columns + column;
      int64_t in = (m * d.count() + d.upper - k) * longest + d.offset(k);
      for (int64_t i = 0; i < n; ++i, at += d.columns + 1, ++in) f(at, in);
    }
}

int64_t grain(const Diagonals& d) { return 1 + kCheapGrain / std::max<int64_t>(d.rows * d.columns, 1); }

template <class S> S scalar_of(const Tensor& t) { return *static_cast<const S*>(t.raw()); }

Status check_scalar(const Tensor& t, const char* what) {
  if (t.elements() == 1) return {};
  return invalid_argument("{} must be one number, not {}", what, t.shape().str());
}

// --- MatrixDiag ---

/// Fills in rows and columns from the longest diagonal and what num_rows and num_cols ask (-1: as few as can be).
Status resolve_sizes(Diagonals& d, int64_t longest, int64_t rows, int64_t columns) {
  const int64_t least_rows = longest - std::min<int64_t>(d.upper, 0);
  const int64_t least_columns = longest + std::max<int64_t>(d.lower, 0);
  if (rows == -1 && columns == -1) rows = columns = std::max(least_rows, least_columns);
  if (rows == -1) rows = least_rows;
  if (columns == -1) columns = least_columns;
  if (rows < least_rows || columns < least_columns || (rows != least_rows && columns != least_columns))
    return invalid_argument("diagonals {} to {} of length {} do not fit matrices [{},{}]", d.lower, d.upper, longest,
                            rows, columns);
  d.rows = rows;
  d.columns = columns;
  return {};
}

/// The shape of the matrices with diagonals of shape `x`. rows and columns of -2 are not known.
Result<PartialShape> diag_shape(Diagonals& d, const PartialShape& x, int64_t rows, int64_t columns) {
  const int last = d.count() == 1 ? 1 : 2;
  if (x.rank() < last) return invalid_argument("diagonals must have rank {} or more: {}", last, x.str());
  if (last == 2 && x.dim(-2) >= 0 && x.dim(-2) != d.count())
    return invalid_argument("{} diagonals, but k asks for {} of them: {}", x.dim(-2), d.count(), x.str());
  std::vector<int64_t> sizes(x.dims().begin(), x.dims().end() - last);
  if (x.dim(-1) < 0 || rows == -2 || columns == -2) {
    sizes.insert(sizes.end(), {-1, -1});
  } else {
    TROUPE_RETURN_IF_ERROR(resolve_sizes(d, x.dim(-1), rows, columns));
    sizes.insert(sizes.end(), {d.rows, d.columns});
  }
  return PartialShape::make(sizes);
}

class MatrixDiag final : public ComputeKernel {
 public:
  explicit MatrixDiag(const KernelInit& init) : attrs_(*init.attrs) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    const bool plain = c.num_inputs() == 1;
    TROUPE_ASSIGN(Diagonals d, diagonals_of(attrs_, plain ? nullptr : &c.input(1)));
    int64_t rows = -1, columns = -1;
    if (!plain) {
      TROUPE_ASSIGN(rows, int_scalar(c.input(2), "num_rows"));
      TROUPE_ASSIGN(columns, int_scalar(c.input(3), "num_cols"));
      TROUPE_RETURN_IF_ERROR(check_scalar(c.input(4), "padding_value"));
      if (rows < -1 || columns < -1) return invalid_argument("num_rows {} and num_cols {}", rows, columns);
    }
    TROUPE_ASSIGN(const PartialShape result, diag_shape(d, x.shape(), rows, columns));
    TROUPE_ASSIGN(const Shape shape, Shape::make(result.dims()));
    TROUPE_RETURN_IF_ERROR(d.check());
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
    const int64_t one = d.rows * d.columns, matrices = one == 0 ? 0 : y.elements() / one;
    with_storage(x.dtype(), [&]<class S>() {
      const S* in = static_cast<const S*>(x.raw());
      S* out = static_cast<S*>(y.mutable_raw());
      const S fill = plain ? S() : scalar_of<S>(c.input(4));
      parallel_for(c.threads(), matrices, grain(d), [&](int64_t begin, int64_t end) {
        std::fill(out + begin * one, out + end * one, fill);
        each_diagonal(d, begin, end, [&](int64_t at, int64_t from) { out[at] = in[from]; });
      });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Attrs attrs_;
};

Status matrix_diag_shape(ShapeContext& c) {
  const PartialShape& x = c.input(0);
  const bool plain = c.num_inputs() == 1;
  const auto k = plain ? std::nullopt : c.constant_input(1);
  if (!x.has_rank() || (!plain && !k)) return {};
  TROUPE_ASSIGN(Diagonals d, diagonals_of(c.attrs(), plain ? nullptr : &*k));
  int64_t asked[2] = {-1, -1};
  for (int i = 0; i < 2 && !plain; ++i) {
    const auto n = c.constant_input(2 + i);
    asked[i] = -2;
    if (!n) continue;
    TROUPE_ASSIGN(asked[i], int_scalar(*n, i ? "num_cols" : "num_rows"));
    if (asked[i] < -1) return invalid_argument("{} is {}", i ? "num_cols" : "num_rows", asked[i]);
  }
  TROUPE_ASSIGN(PartialShape out, diag_shape(d, x, asked[0], asked[1]));
  c.set_output(0, std::move(out));
  return {};
}

// --- MatrixDiagPart ---

/// Sets rows and columns of d from matrices of this shape and gives the shape of their diagonals.
Result<PartialShape> part_shape(Diagonals& d, const PartialShape& x) {
  if (x.rank() < 2) return invalid_argument("matrices must have rank 2 or more: {}", x.str());
  std::vector<int64_t> sizes(x.dims().begin(), x.dims().end() - 2);
  if (x.dim(-2) < 0 || x.dim(-1) < 0) {
    sizes.insert(sizes.end(), d.count() == 1 ? 1 : 2, -1);
    if (d.count() > 1) sizes[sizes.size() - 2] = d.count();
  } else {
    d.rows = x.dim(-2);
    d.columns = x.dim(-1);
    TROUPE_RETURN_IF_ERROR(d.check());
    const auto own = d.sizes();
    sizes.insert(sizes.end(), own.begin(), own.end());
  }
  return PartialShape::make(sizes);
}

class MatrixDiagPart final : public ComputeKernel {
 public:
  explicit MatrixDiagPart(const KernelInit& init) : attrs_(*init.attrs) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    const bool plain = c.num_inputs() == 1;
    TROUPE_ASSIGN(Diagonals d, diagonals_of(attrs_, plain ? nullptr : &c.input(1)));
    TROUPE_ASSIGN(const PartialShape result, part_shape(d, x.shape()));
    if (!plain) TROUPE_RETURN_IF_ERROR(check_scalar(c.input(2), "padding_value"));
    TROUPE_ASSIGN(const Shape shape, Shape::make(result.dims()));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
    const int64_t one = d.count() * d.longest(), matrices = one == 0 ? 0 : y.elements() / one;
    with_storage(x.dtype(), [&]<class S>() {
      const S* in = static_cast<const S*>(x.raw());
      S* out = static_cast<S*>(y.mutable_raw());
      const S fill = plain ? S() : scalar_of<S>(c.input(2));
      parallel_for(c.threads(), matrices, 1 + kCheapGrain / std::max<int64_t>(one, 1), [&](int64_t begin, int64_t end) {
        if (d.count() > 1) std::fill(out + begin * one, out + end * one, fill);
        each_diagonal(d, begin, end, [&](int64_t at, int64_t to) { out[to] = in[at]; });
      });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Attrs attrs_;
};

Status matrix_diag_part_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank_at_least(0, 2));
  const bool plain = c.num_inputs() == 1;
  const auto k = plain ? std::nullopt : c.constant_input(1);
  if (!x.has_rank() || (!plain && !k)) return {};
  TROUPE_ASSIGN(Diagonals d, diagonals_of(c.attrs(), plain ? nullptr : &*k));
  TROUPE_ASSIGN(PartialShape out, part_shape(d, x));
  c.set_output(0, std::move(out));
  return {};
}

// --- MatrixSetDiag ---

class MatrixSetDiag final : public ComputeKernel {
 public:
  explicit MatrixSetDiag(const KernelInit& init) : attrs_(*init.attrs) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &diagonal = c.input(1);
    TROUPE_ASSIGN(Diagonals d, diagonals_of(attrs_, c.num_inputs() == 2 ? nullptr : &c.input(2)));
    TROUPE_ASSIGN(const PartialShape wanted, part_shape(d, x.shape()));
    if (!(wanted == PartialShape(diagonal.shape())))
      return invalid_argument("the diagonal must have shape {}, not {}, for matrices {}", wanted.str(),
                              diagonal.shape().str(), x.shape().str());
    const bool apart = !x.shares_buffer(diagonal);
    TROUPE_ASSIGN(Tensor y, apart ? c.forward_or_allocate(0, x.dtype(), x.shape()) : c.allocate(x.dtype(), x.shape()));
    const int64_t one = d.rows * d.columns, matrices = one == 0 ? 0 : x.elements() / one;
    const bool copies = !y.shares_buffer(x);
    with_storage(x.dtype(), [&]<class S>() {
      const S *in = static_cast<const S*>(x.raw()), *values = static_cast<const S*>(diagonal.raw());
      S* out = static_cast<S*>(y.mutable_raw());
      parallel_for(c.threads(), matrices, grain(d), [&](int64_t begin, int64_t end) {
        if (copies) std::copy(in + begin * one, in + end * one, out + begin * one);
        each_diagonal(d, begin, end, [&](int64_t at, int64_t from) { out[at] = values[from]; });
      });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Attrs attrs_;
};

Status matrix_set_diag_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank_at_least(0, 2));
  const bool plain = c.num_inputs() == 2;
  const auto k = plain ? std::nullopt : c.constant_input(2);
  c.set_output(0, x);
  if (!x.has_rank() || (!plain && !k)) return {};
  TROUPE_ASSIGN(Diagonals d, diagonals_of(c.attrs(), plain ? nullptr : &*k));
  TROUPE_ASSIGN(const PartialShape wanted, part_shape(d, x));
  if (!wanted.compatible(c.input(1)))
    return invalid_argument("the diagonal must have shape {}, not {}, for matrices {}", wanted.str(), c.input(1).str(),
                            x.str());
  return {};
}

// --- gradients ---

/// The version of an op: "", "V2" or "V3".
std::string op_version(GradientContext& c) {
  const std::string& name = c.node().op().name();
  return name[name.size() - 2] == 'V' ? name.substr(name.size() - 2) : "";
}
Attrs align_of(GradientContext& c) {
  const AttrValue* align = c.node().attrs().find("align");
  return align ? Attrs{{"align", *align}} : Attrs();
}
Output diag_part(GradientContext& c, Output x, Output k) {
  if (!k) return c.op("MatrixDiagPart", {x});
  return c.op("MatrixDiagPart" + op_version(c), {x, k, scalar_like(c, x.dtype(), 0)}, align_of(c));
}
Output set_diag(GradientContext& c, Output x, Output diagonal, Output k) {
  if (!k) return c.op("MatrixSetDiag", {x, diagonal});
  return c.op("MatrixSetDiag" + op_version(c), {x, diagonal, k}, align_of(c));
}

Status matrix_diag_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, diag_part(c, c.dy(0), c.num_inputs() == 1 ? Output() : c.input(1)));
  return {};
}
Status matrix_diag_part_gradient(GradientContext& c) {
  const Output k = c.num_inputs() == 1 ? Output() : c.input(1);
  if (c.dy(0)) c.set_dx(0, set_diag(c, c.op("ZerosLike", {c.input(0)}), c.dy(0), k));
  return {};
}
Status matrix_set_diag_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output k = c.num_inputs() == 2 ? Output() : c.input(2);
  c.set_dx(0, set_diag(c, c.dy(0), c.op("ZerosLike", {c.input(1)}), k));
  c.set_dx(1, diag_part(c, c.dy(0), k));
  return {};
}

}  // namespace

void register_diagonal_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string many =
      " k is one diagonal, 0 the main one and 1 the one above, or the lowest and the highest of several, which are "
      "rows from the highest down.";
  for (const std::string v : {"", "V2", "V3"}) {
    OpDef diag("MatrixDiag" + v), part("MatrixDiagPart" + v), set("MatrixSetDiag" + v);
    diag.input("diagonal: T");
    part.input("input: T");
    set.input("input: T").input("diagonal: T");
    for (OpDef* op : {&diag, &part, &set}) {
      if (!v.empty()) op->input("k: int32");
      op->attr("T: type");
      if (v == "V3") op->attr("align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'");
    }
    if (!v.empty()) {
      diag.input("num_rows: int32").input("num_cols: int32").input("padding_value: T");
      part.input("padding_value: T");
    }
    ops.add(diag.output("output: T")
                .shape(matrix_diag_shape)
                .doc("Matrices with the given diagonals; the rest is zero or padding_value." + (v.empty() ? "" : many)),
            gradient(matrix_diag_gradient));
    ops.add(
        part.output("diagonal: T")
            .shape(matrix_diag_part_shape)
            .doc("Diagonals of matrices." + (v.empty() ? "" : many + " Shorter ones are filled with padding_value.")),
        gradient(matrix_diag_part_gradient));
    ops.add(set.output("output: T")
                .shape(matrix_set_diag_shape)
                .doc("Matrices with other diagonals." + (v.empty() ? "" : many)),
            gradient(matrix_set_diag_gradient));
    kernels.add<MatrixDiag>("MatrixDiag" + v, DeviceKind::kCpu, {});
    kernels.add<MatrixDiagPart>("MatrixDiagPart" + v, DeviceKind::kCpu, {});
    kernels.add<MatrixSetDiag>("MatrixSetDiag" + v, DeviceKind::kCpu, {});
  }
}

}  // namespace troupe
