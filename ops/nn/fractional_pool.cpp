// SPDX-License-Identifier: Apache-2.0
// Pools over regions whose sizes differ by one, drawn at random: FractionalMaxPool, FractionalAvgPool, and their
// gradients. Source: Graham, "Fractional max-pooling", 2015.
#include <numeric>

#include "devices/parallel.h"
#include "ops/nn/pool_shapes.h"
#include "ops/nn/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/random/draws.h"
#include "ops/random/source.h"

namespace troupe {
namespace {

using FractionalTypes = TypeList<float, double, int32_t, int64_t>;

/// Rows or columns, cut into regions: region i is from cuts[i] to cuts[i + 1], with that one where they overlap.
struct PoolCuts {
  int64_t size = 0;
  bool overlapping = false;
  std::vector<int64_t> at;

  int64_t regions() const { return static_cast<int64_t>(at.size()) - 1; }
  int64_t begin(int64_t i) const { return at[i]; }
  int64_t end(int64_t i) const { return std::min(at[i + 1] + (overlapping ? 1 : 0), size); }

  /// Those of a pool's second and third output. Errors: no region, cuts that do not grow or are outside.
  static Result<PoolCuts> of(const Tensor& cuts, int64_t size, bool overlapping, const char* what) {
    TROUPE_ASSIGN(PoolCuts out, with_values(cuts, what));
    out.size = size;
    out.overlapping = overlapping;
    if (out.at.size() < 2) return invalid_argument("{} {} has no region", what, cuts.str());
    for (size_t i = 0; i < out.at.size(); ++i)
      if (out.at[i] < 0 || out.at[i] > size || (i > 0 && out.at[i] <= out.at[i - 1]))
        return invalid_argument("{} is {} at position {}; it must grow from 0 or more up to {}", what, out.at[i], i,
                                size);
    return out;
  }

 private:
  static Result<PoolCuts> with_values(const Tensor& cuts, const char* what) {
    PoolCuts out;
    TROUPE_ASSIGN(out.at, int_values(cuts, what));
    return out;
  }
};

/// Images [height, width, channels] in regions.
struct Regions {
  int64_t images = 0, channels = 0;
  PoolCuts rows, columns;
  int64_t in_image() const { return rows.size * columns.size * channels; }
  Shape pool() const { return {images, rows.regions(), columns.regions(), channels}; }

  /// Calls f(place in the pool, places of the input) for each region of image i, for its first channel.
  template <class F> void each(int64_t i, const F& f) const {
    int64_t to = i * rows.regions() * columns.regions() * channels;
    std::vector<int64_t> places;
    for (int64_t r = 0; r < rows.regions(); ++r)
      for (int64_t c = 0; c < columns.regions(); ++c, to += channels) {
        places.clear();
        for (int64_t y = rows.begin(r); y < rows.end(r); ++y)
          for (int64_t x = columns.begin(c); x < columns.end(c); ++x)
            places.push_back(i * in_image() + (y * columns.size + x) * channels);
        f(to, std::as_const(places));
      }
  }
  /// The same for all images, on up to `threads` threads.
  template <class F> void each_of_all(int threads, const F& f) const {
    if (in_image() == 0) return;
    parallel_for(threads, images, 1 + kCheapGrain / in_image(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) each(i, f);
    });
  }
};

/// Sizes of regions, `size` / `regions` or one more each, as TensorFlow draws them.
std::vector<int64_t> drawn_sizes(int64_t size, int64_t regions, bool pseudo_random, const Philox& random) {
  const int64_t least = size / regions;
  std::vector<int64_t> out(static_cast<size_t>(regions), least);
  Words words(random);
  if (!pseudo_random) {
    std::fill_n(out.begin(), size % regions, least + 1);
    for (int64_t i = 0; i + 1 < regions; ++i)
      std::swap(out[i], out[i + words.word() % static_cast<uint32_t>(regions - i)]);
    return out;
  }
  // Cut i is at ceil(ratio * (i + u)), with u such that the first and the last region have one of the two sizes.
  const double ratio = static_cast<double>(size) / static_cast<double>(regions), k = static_cast<double>(least);
  const double most =
      std::min((k + 2) / ratio - 1, (static_cast<double>(size) + 1 - k) / ratio - static_cast<double>(regions - 1));
  const double u = words.uniform() * most;
  int64_t before = 1;
  for (int64_t i = 1; i <= regions; ++i) {
    const int64_t cut = i < regions ? static_cast<int64_t>(std::ceil(ratio * (static_cast<double>(i) + u))) : size + 1;
    out[i - 1] = cut - before;
    before = cut;
  }
  return out;
}

/// The sizes of the pool. Errors: a ratio below 1, or of batch or channels, or above the size; other than four.
Result<PartialShape> fractional_pooled(const Attrs& attrs, const PartialShape& in) {
  const auto& ratio = *attrs.get<std::vector<float>>("pooling_ratio");
  if (ratio.size() != 4) return invalid_argument("pooling_ratio must have 4 values, not {}", ratio.size());
  if (ratio[0] != 1 || ratio[3] != 1)
    return make_error(Code::kUnimplemented, "pooling_ratio is {} for the batch and {} for channels, which must be 1",
                      ratio[0], ratio[3]);
  if (in.has_rank() && in.rank() != 4) return invalid_argument("value must have rank 4, but its shape is {}", in.str());
  std::vector<int64_t> out(4, -1);
  for (int i = 0; i < 4; ++i) {
    if (!(ratio[i] >= 1))
      return invalid_argument("pooling_ratio cannot be smaller than 1, but value {} is {}", i, ratio[i]);
    if (!in.has_rank() || in.dim(i) < 0) continue;
    out[i] = static_cast<int64_t>(std::floor(static_cast<float>(in.dim(i)) / ratio[i]));
    if (out[i] == 0 && i % 3 != 0)
      return invalid_argument("pooling_ratio {} is above the size of dimension {} of {}", ratio[i], i, in.str());
  }
  return PartialShape::make(out);
}

template <class T> void largest_in(const T* in, const std::vector<int64_t>& places, int64_t channels, T* out) {
  std::copy_n(in + places[0], channels, out);
  for (const int64_t at : places)
    for (int64_t k = 0; k < channels; ++k) out[k] = in[at + k] > out[k] ? in[at + k] : out[k];
}
template <class T> void mean_of(const T* in, const std::vector<int64_t>& places, int64_t channels, T* out) {
  std::fill_n(out, channels, T(0));
  for (const int64_t at : places)
    for (int64_t k = 0; k < channels; ++k) out[k] += in[at + k];
  for (int64_t k = 0; k < channels; ++k) out[k] /= static_cast<T>(places.size());
}

class FractionalPool final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    const bool fixed = init.attr<bool>("deterministic");
    if (!fixed && (init.attr<int64_t>("seed") != 0 || init.attr<int64_t>("seed2") != 0))
      return invalid_argument("seed and seed2 must be 0 where deterministic is false");
    return std::unique_ptr<ComputeKernel>(new FractionalPool(init, fixed));
  }

  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const PartialShape shape, fractional_pooled(attrs_, PartialShape(x.shape())));
    const int64_t rows = shape.dim(1), columns = shape.dim(2);
    const int64_t row_blocks = pseudo_random_ ? 1 : (rows + 3) / 4;
    const Philox random = fixed_ ? *fixed_ : streams_->next(c, row_blocks + (pseudo_random_ ? 1 : (columns + 3) / 4));
    Regions r{x.dim(0), x.dim(3), cuts(x.dim(1), rows, random),
              cuts(x.dim(2), columns, random.from(static_cast<uint64_t>(row_blocks)))};
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), r.pool()));
    if (y.elements() > 0)
      with_type(x.dtype(), FractionalTypes{}, [&]<class T>() {
        const T* in = x.data<T>();
        T* out = y.mutable_data<T>();
        r.each_of_all(c.threads(), [&](int64_t to, const std::vector<int64_t>& places) {
          max_ ? largest_in(in, places, r.channels, out + to) : mean_of(in, places, r.channels, out + to);
        });
      });
    c.set_output(0, std::move(y));
    c.set_output(1, Tensor::of<int64_t>(r.rows.at));
    c.set_output(2, Tensor::of<int64_t>(r.columns.at));
    return {};
  }

 private:
  FractionalPool(const KernelInit& init, bool fixed)
      : max_(init.op == "FractionalMaxPool"), pseudo_random_(init.attr<bool>("pseudo_random")),
        overlapping_(init.attr<bool>("overlapping")), attrs_(*init.attrs) {
    if (!fixed) {
      streams_.emplace(init);
      return;
    }
    const auto seeds = seeds_of(init);
    fixed_.emplace(seeds[0], seeds[1]);
  }
  PoolCuts cuts(int64_t size, int64_t regions, const Philox& random) const {
    PoolCuts out{size, overlapping_, {0}};
    for (const int64_t s : drawn_sizes(size, regions, pseudo_random_, random)) out.at.push_back(out.at.back() + s);
    return out;
  }

  const bool max_, pseudo_random_, overlapping_;
  const Attrs attrs_;
  std::optional<Philox> fixed_;     // with `deterministic`, of all calls
  std::optional<Streams> streams_;  // else
};

/// The input's shape, the gradient by the pool, and the cuts; `first` is the input that has the latter's.
Result<Regions> regions_of(const KernelContext& c, const Shape& in, const Tensor& g, int first, bool overlapping) {
  if (in.rank() != 4) return invalid_argument("the input must have rank 4, but its shape is {}", in.str());
  Regions r{in[0], in[3], {}, {}};
  TROUPE_ASSIGN(r.rows, PoolCuts::of(c.input(first), in[1], overlapping, "row_pooling_sequence"));
  TROUPE_ASSIGN(r.columns, PoolCuts::of(c.input(first + 1), in[2], overlapping, "col_pooling_sequence"));
  if (g.shape() != r.pool())
    return invalid_argument("out_backprop {} is not the pool {} of {}", g.shape().str(), r.pool().str(), in.str());
  return r;
}

class FractionalMaxPoolGrad final : public ComputeKernel {
 public:
  explicit FractionalMaxPoolGrad(const KernelInit& init) : overlapping_(init.attr<bool>("overlapping")) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &y = c.input(1), &g = c.input(2);
    TROUPE_ASSIGN(const Regions r, regions_of(c, x.shape(), g, 3, overlapping_));
    if (y.shape() != r.pool())
      return invalid_argument("orig_output {} is not the pool {} of {}", y.shape().str(), r.pool().str(),
                              x.shape().str());
    TROUPE_ASSIGN(Tensor dx, Tensor::zeros(x.dtype(), x.shape(), c.device().allocator));
    with_type(x.dtype(), FractionalTypes{}, [&]<class T>() {
      const T *in = x.data<T>(), *by = g.data<T>();
      T* out = dx.mutable_data<T>();
      r.each_of_all(c.threads(), [&](int64_t from, const std::vector<int64_t>& places) {
        for (int64_t k = 0; k < r.channels; ++k) {
          const auto largest = std::ranges::max_element(places, {}, [&](int64_t at) { return in[at + k]; });
          out[*largest + k] += by[from + k];
        }
      });
    });
    c.set_output(0, std::move(dx));
    return {};
  }

 private:
  const bool overlapping_;
};

class FractionalAvgPoolGrad final : public ComputeKernel {
 public:
  explicit FractionalAvgPoolGrad(const KernelInit& init) : overlapping_(init.attr<bool>("overlapping")) {}
  Status compute(KernelContext& c) override {
    const Tensor& g = c.input(1);
    TROUPE_ASSIGN(const Shape in, shape_from(c.input(0), "orig_input_tensor_shape"));
    TROUPE_ASSIGN(const Regions r, regions_of(c, in, g, 2, overlapping_));
    TROUPE_ASSIGN(Tensor dx, c.allocate(g.dtype(), in));
    with_type(g.dtype(), FractionalTypes{}, [&]<class T>() {
      std::vector<double> sums(static_cast<size_t>(dx.elements()));
      const T* by = g.data<T>();
      r.each_of_all(c.threads(), [&](int64_t from, const std::vector<int64_t>& places) {
        for (const int64_t at : places)
          for (int64_t k = 0; k < r.channels; ++k)
            sums[at + k] += static_cast<double>(by[from + k]) / static_cast<double>(places.size());
      });
      std::ranges::transform(sums, dx.mutable_data<T>(), [](double sum) { return static_cast<T>(sum); });
    });
    c.set_output(0, std::move(dx));
    return {};
  }

 private:
  const bool overlapping_;
};

Status fractional_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(set_pool_shape(c, fractional_pooled));
  TROUPE_ASSIGN(const PartialShape out, fractional_pooled(c.attrs(), c.input(0)));
  for (int i : {1, 2}) c.set_output(i, PartialShape{out.dim(i) < 0 ? -1 : out.dim(i) + 1});
  return {};
}

Status fractional_max_grad_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape out, c.with_rank(0, 4));
  for (int i : {1, 2}) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 4).status());
  c.set_output(0, std::move(out));
  return {};
}

Status fractional_avg_grad_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 4).status());
  PartialShape out = PartialShape::of_rank(4);
  if (const auto sizes = c.constant_input(0)) {
    TROUPE_ASSIGN(const Shape shape, shape_from(*sizes, "orig_input_tensor_shape"));
    if (shape.rank() != 4) return invalid_argument("the input must have rank 4, but its shape is {}", shape.str());
    out = shape;
  }
  c.set_output(0, std::move(out));
  return {};
}

Status fractional_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Attrs attrs = {{"overlapping", c.node().attrs().get_or("overlapping", false)}};
  if (c.node().op().name() == "FractionalMaxPool") {
    c.set_dx(0, c.op("FractionalMaxPoolGrad", {c.input(0), c.output(0), c.dy(0), c.output(1), c.output(2)}, attrs));
    return {};
  }
  const Output sizes = c.op("Shape", {c.input(0)}, {{"out_type", DType::kInt64}});
  c.set_dx(0, c.op("FractionalAvgPoolGrad", {sizes, c.dy(0), c.output(1), c.output(2)}, attrs));
  return {};
}

}  // namespace

void register_fractional_pool_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string types = type_attr("T", FractionalTypes{});
  for (const bool max : {true, false}) {
    const std::string op = max ? "FractionalMaxPool" : "FractionalAvgPool";
    ops.add(OpDef(op)
                .input("value: T")
                .output("output: T")
                .output("row_pooling_sequence: int64")
                .output("col_pooling_sequence: int64")
                .attr("pooling_ratio: list(float) >= 4")
                .attr("pseudo_random: bool = false")
                .attr("overlapping: bool = false")
                .attr("deterministic: bool = false")
                .attr("seed: int = 0")
                .attr("seed2: int = 0")
                .attr(types)
                .stateful()
                .shape(fractional_shape)
                .doc(fmt::format(
                    "{} of each of floor(size / pooling_ratio) regions of height and width of images, whose sizes are "
                    "drawn, and the cuts between them. `overlapping` regions share the cut. Each run draws anew; with "
                    "`deterministic` all draw what follows from the seeds, as in TensorFlow.",
                    max ? "The largest value" : "The mean")),
            gradient(fractional_gradient));
    kernels.add(op, DeviceKind::kCpu, {{"T", FractionalTypes::dtypes()}}, FractionalPool::make);
  }
  ops.add(OpDef("FractionalMaxPoolGrad")
              .input("orig_input: T")
              .input("orig_output: T")
              .input("out_backprop: T")
              .input("row_pooling_sequence: int64")
              .input("col_pooling_sequence: int64")
              .output("output: T")
              .attr("overlapping: bool = false")
              .attr(types)
              .shape(fractional_max_grad_shape)
              .doc("The gradient of FractionalMaxPool: out_backprop goes to the first place of each region that holds "
                   "its largest value."),
          undefined_gradient());
  ops.add(OpDef("FractionalAvgPoolGrad")
              .input("orig_input_tensor_shape: int64")
              .input("out_backprop: T")
              .input("row_pooling_sequence: int64")
              .input("col_pooling_sequence: int64")
              .output("output: T")
              .attr("overlapping: bool = false")
              .attr(types)
              .shape(fractional_avg_grad_shape)
              .doc("The gradient of FractionalAvgPool: out_backprop in equal parts to all places of each region."),
          undefined_gradient());
  kernels.add<FractionalMaxPoolGrad>("FractionalMaxPoolGrad", DeviceKind::kCpu, {{"T", FractionalTypes::dtypes()}});
  kernels.add<FractionalAvgPoolGrad>("FractionalAvgPoolGrad", DeviceKind::kCpu, {{"T", FractionalTypes::dtypes()}});
}

}  // namespace troupe
