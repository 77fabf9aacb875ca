// SPDX-License-Identifier: Apache-2.0
// Dimensions, and sizes by dimension, of images in another layout: DataFormatDimMap, DataFormatVecPermute.
#include <algorithm>

#include "ops/array/register.h"
#include "ops/parts/index_tensors.h"
#include "troupe/op_cost.h"

namespace troupe {
namespace {

/// Two layouts with the same letters, such as NHWC and NCHW.
struct Formats {
  std::string src, dst;

  static Result<Formats> parse(const Attrs& attrs) {
    Formats out{attrs.get_or<std::string>("src_format", "NHWC"), attrs.get_or<std::string>("dst_format", "NCHW")};
    std::string a = out.src, b = out.dst;
    std::ranges::sort(a);
    std::ranges::sort(b);
    if (a != b || (a.size() != 4 && a.size() != 5) || std::ranges::adjacent_find(a) != a.end())
      return invalid_argument("src_format and dst_format must have the same 4 or 5 letters, got {} and {}", out.src,
                              out.dst);
    return out;
  }
  /// The same without batch and channels.
  Formats spatial() const {
    Formats out = *this;
    for (std::string* format : {&out.src, &out.dst})
      std::erase_if(*format, [](char c) { return c == 'N' || c == 'C'; });
    return out;
  }
};

class DimMap final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    TROUPE_ASSIGN(Formats formats, Formats::parse(*init.attrs));
    return std::unique_ptr<ComputeKernel>(new DimMap(std::move(formats)));
  }
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Tensor flat, c.input(0).reshape(Shape{c.input(0).elements()}));
    TROUPE_ASSIGN(std::vector<int64_t> values, int_values(flat, "x"));
    const auto n = std::ssize(formats_.src);
    for (int64_t& v : values) {
      if (v < -n || v >= n) return invalid_argument("dimension {} is not in [{}, {})", v, -n, n);
      v = static_cast<int64_t>(formats_.dst.find(formats_.src[static_cast<size_t>((v + n) % n)]));
    }
    TROUPE_ASSIGN(Tensor y, int_tensor(c.input(0).dtype(), values, c.input(0).shape()));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  explicit DimMap(Formats formats) : formats_(std::move(formats)) {}
  const Formats formats_;
};

class VecPermute final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    TROUPE_ASSIGN(Formats formats, Formats::parse(*init.attrs));
    return std::unique_ptr<ComputeKernel>(new VecPermute(std::move(formats)));
  }
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    const auto all = std::ssize(formats_.src), inner = std::ssize(spatial_.src);
    if (x.rank() < 1 || x.rank() > 2 || (x.dim(0) != all && x.dim(0) != inner) || (x.rank() == 2 && x.dim(1) != 2))
      return invalid_argument("x must be {} or {} numbers or pairs of numbers, not {}", all, inner, x.shape().str());
    const Formats& f = x.dim(0) == all ? formats_ : spatial_;
    TROUPE_ASSIGN(const Tensor flat, x.reshape(Shape{x.elements()}));
    TROUPE_ASSIGN(const std::vector<int64_t> from, int_values(flat, "x"));
    std::vector<int64_t> to;
    const size_t width = x.rank() == 2 ? 2 : 1;
    for (const char dimension : f.dst)
      for (size_t k = 0; k < width; ++k) to.push_back(from[f.src.find(dimension) * width + k]);
    TROUPE_ASSIGN(Tensor y, int_tensor(x.dtype(), to, x.shape()));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  explicit VecPermute(Formats formats) : formats_(std::move(formats)), spatial_(formats_.spatial()) {}
  const Formats formats_, spatial_;
};

Status format_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(Formats::parse(c.attrs()).status());
  c.set_output(0, c.input(0));
  return {};
}

}  // namespace

void register_data_format_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto add = [&](const char* name, const char* doc) {
    ops.add(OpDef(name)
                .input("x: T")
                .output("y: T")
                .attr("T: {int32, int64} = int32")
                .attr("src_format: string = 'NHWC'")
                .attr("dst_format: string = 'NCHW'")
                .doc(doc)
                .shape(format_shape)
                .cost(move_cost),
            not_differentiable("dimensions are integers"));
  };
  add("DataFormatDimMap",
      "For each dimension of src_format, counted from either end, which one of dst_format it is. Error: a dimension "
      "out of range.");
  kernels.add("DataFormatDimMap", DeviceKind::kCpu, {}, DimMap::make);
  add("DataFormatVecPermute",
      "Numbers, or pairs, for the dimensions of src_format in the order of dst_format; of all dimensions, or of those "
      "of space.");
  kernels.add("DataFormatVecPermute", DeviceKind::kCpu, {}, VecPermute::make);
}

}  // namespace troupe
