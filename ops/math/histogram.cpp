// SPDX-License-Identifier: Apache-2.0
// Counting and finding by value: Bincount, DenseBincount, HistogramFixedWidth, Bucketize, LowerBound, UpperBound.
#include <algorithm>
#include <cmath>

#include "ops/math/counted.h"
#include "ops/math/register.h"

namespace troupe {
namespace {

/// Bincount and, for each row of a matrix, DenseBincount.
class Bincount final : public ComputeKernel {
 public:
  explicit Bincount(const KernelInit& init)
      : rows_apart_(init.op == "DenseBincount"), binary_(init.attrs->get_or<bool>("binary_output", false)) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Counted counted,
                  rows_apart_ ? Counted::by_row(c.input(0), c.input(2)) : Counted::all(c.input(0), c.input(2)));
    TROUPE_ASSIGN(Tensor y, counted.bins(c, c.input(1), c.input(2).dtype(), binary_));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool rows_apart_, binary_;
};

Status bincount_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0).status());
  int64_t size = -1;
  if (const auto constant = c.constant_input(1)) {
    TROUPE_ASSIGN(size, count_from(*constant, "size"));
  }
  if (c.attrs().find("binary_output")) {
    const PartialShape& x = c.input(0);
    if (!x.has_rank()) return {};
    if (x.rank() > 2) return invalid_argument("input of shape {} has more than rows", x.str());
    c.set_output(0, x.rank() == 2 ? PartialShape{x[0], size} : PartialShape{size});
  } else {
    c.set_output(0, PartialShape{size});
  }
  return {};
}

class HistogramFixedWidth final : public ComputeKernel {
 public:
  explicit HistogramFixedWidth(const KernelInit& init) : out_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    const Tensor &values = c.input(0), &range = c.input(1);
    TROUPE_ASSIGN(const int64_t bins, int_scalar(c.input(2), "nbins"));
    if (bins <= 0) return invalid_argument("{} bins", bins);
    if (range.shape() != Shape{2}) return invalid_argument("value_range of shape {}", range.shape().str());
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(out_, Shape{bins}, c.device().allocator));
    Status status;
    with_type(values.dtype(), WeightTypes{}, [&]<class T>() {
      const T low = range.data<T>()[0], high = range.data<T>()[1];
      if (!(low < high)) {
        status = invalid_argument("value_range from {} to {}", low, high);
        return;
      }
      const double width = (static_cast<double>(high) - static_cast<double>(low)) / static_cast<double>(bins);
      with_type(out_, IndexTypes{}, [&]<class I>() {
        I* counts = y.mutable_data<I>();
        for (T v : values.values<T>()) {
          const double at = (static_cast<double>(std::max(v, low)) - static_cast<double>(low)) / width;
          ++counts[at < static_cast<double>(bins - 1) ? static_cast<int64_t>(at) : at == at ? bins - 1 : 0];
        }
      });
    });
    TROUPE_RETURN_IF_ERROR(status);
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const DType out_;
};

class Bucketize final : public ComputeKernel {
 public:
  explicit Bucketize(const KernelInit& init) : boundaries_(init.attr<std::vector<float>>("boundaries")) {}
  Status compute(KernelContext& c) override {
    if (!std::ranges::is_sorted(boundaries_)) return invalid_argument("the boundaries do not ascend");
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kInt32, x.shape()));
    with_type(x.dtype(), WeightTypes{}, [&]<class T>() {
      for (int64_t i = 0; i < x.elements(); ++i)
        y.mutable_data<int32_t>()[i] = static_cast<int32_t>(
            std::upper_bound(boundaries_.begin(), boundaries_.end(), x.data<T>()[i]) - boundaries_.begin());
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const std::vector<float> boundaries_;
};

/// LowerBound and UpperBound: for each value of a row the first place of the sorted row that it may be put to, or last.
class Bound final : public ComputeKernel {
 public:
  explicit Bound(const KernelInit& init) : upper_(init.op == "UpperBound"), out_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    const Tensor &sorted = c.input(0), &values = c.input(1);
    if (sorted.rank() != 2 || values.rank() != 2 || sorted.shape()[0] != values.shape()[0])
      return invalid_argument("sorted_inputs of shape {} and values of shape {} must be matrices of as many rows",
                              sorted.shape().str(), values.shape().str());
    const int64_t rows = values.shape()[0], n = sorted.shape()[1], m = values.shape()[1];
    std::vector<int64_t> found;
    with_type(sorted.dtype(), NumberTypes{}, [&]<class T>() {
      const auto less = [](T a, T b) { return widen(a) < widen(b); };
      for (int64_t r = 0; r < rows && m > 0; ++r) {
        const T *begin = sorted.data<T>() + r * n, *end = begin + n, *v = values.data<T>() + r * m;
        for (int64_t i = 0; i < m; ++i)
          found.push_back(
              (upper_ ? std::upper_bound(begin, end, v[i], less) : std::lower_bound(begin, end, v[i], less)) - begin);
      }
    });
    TROUPE_ASSIGN(Tensor y, int_tensor(out_, found, values.shape()));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool upper_;
  const DType out_;
};

void add_counts(OpRegistry& ops, KernelRegistry& kernels) {
  const char* none = "it counts";
  ops.add(OpDef("Bincount")
              .input("arr: int32")
              .input("size: int32")
              .input("weights: T")
              .output("bins: T")
              .attr(type_attr("T", WeightTypes{}))
              .shape(bincount_shape)
              .doc("For each number below size how often it comes in arr, or the sum of its weights unless these are "
                   "empty. Error for a negative number."),
          not_differentiable(none));
  ops.add(OpDef("DenseBincount")
              .input("input: Tidx")
              .input("size: Tidx")
              .input("weights: T")
              .output("output: T")
              .attr(type_attr("Tidx", IndexTypes{}))
              .attr(type_attr("T", WeightTypes{}))
              .attr("binary_output: bool = false")
              .shape(bincount_shape)
              .doc("Bincount of a vector, or of each row of a matrix; with binary_output only whether a number comes."),
          not_differentiable(none));
  for (const char* op : {"Bincount", "DenseBincount"}) kernels.add<Bincount>(op, DeviceKind::kCpu, {});
  ops.add(OpDef("HistogramFixedWidth")
              .input("values: T")
              .input("value_range: T")
              .input("nbins: int32")
              .output("out: dtype")
              .attr(type_attr("T", WeightTypes{}))
              .attr(type_attr("dtype", IndexTypes{}, "int32"))
              .shape([](ShapeContext& c) -> Status {
                TROUPE_RETURN_IF_ERROR(c.with_rank(2, 0).status());
                int64_t bins = -1;
                if (const auto constant = c.constant_input(2)) {
                  TROUPE_ASSIGN(bins, int_scalar(*constant, "nbins"));
                  if (bins <= 0) return invalid_argument("{} bins", bins);
                }
                c.set_output(0, PartialShape{bins});
                return {};
              })
              .doc("How many values are in each of nbins equal parts of value_range; the first and the last take what "
                   "is below and above."),
          not_differentiable(none));
  kernels.add<HistogramFixedWidth>("HistogramFixedWidth", DeviceKind::kCpu, {});
}

}  // namespace

void register_histogram_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_counts(ops, kernels);
  ops.add(OpDef("Bucketize")
              .input("input: T")
              .output("output: int32")
              .attr(type_attr("T", WeightTypes{}))
              .attr("boundaries: list(float)")
              .shape(unchanged_shape)
              .doc("How many of the boundaries, which ascend, are not above each number."),
          not_differentiable("it is piecewise constant"));
  kernels.add<Bucketize>("Bucketize", DeviceKind::kCpu, {});
  for (const char* op : {"LowerBound", "UpperBound"}) {
    ops.add(OpDef(op)
                .input("sorted_inputs: T")
                .input("values: T")
                .output("output: out_type")
                .attr(type_attr("T", NumberTypes{}))
                .attr(type_attr("out_type", IndexTypes{}, "int32"))
                .shape([](ShapeContext& c) -> Status {
                  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 2).status());
                  TROUPE_ASSIGN(const PartialShape values, c.with_rank(1, 2));
                  c.set_output(0, values);
                  return {};
                })
                .doc(std::string("For each value the ") + (op[0] == 'L' ? "first" : "last") +
                     " place in its row of sorted_inputs where it may be put in so that the row stays sorted."),
            not_differentiable("it gives places"));
    kernels.add<Bound>(op, DeviceKind::kCpu, {});
  }
}

}  // namespace troupe
