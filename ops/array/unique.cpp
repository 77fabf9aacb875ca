// SPDX-License-Identifier: Apache-2.0
// Values as sets: Unique, UniqueV2, UniqueWithCounts, UniqueWithCountsV2, ListDiff.
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "ops/array/register.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

using SetTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                          uint32_t, uint64_t, bool, std::string>;

/// What an element is compared by: its value, so that 0 equals -0 and NaN equals nothing.
template <class T>
using UniqueKey = std::conditional_t<std::is_same_v<T, std::string>, std::string_view,
                                     std::conditional_t<std::is_integral_v<T>, uint64_t, double>>;
template <class T> UniqueKey<T> key(const T& x) {
  if constexpr (is_half<T>) return widen(x);
  else return static_cast<UniqueKey<T>>(x);
}

/// Slices of a tensor [outer, n, inner] along the middle dimension, compared element by element.
struct Slices {
  const void* data;
  int64_t outer, n, inner;

  /// f of each element of a slice until it is false.
  template <class T, class F> bool for_each(int64_t slice, F&& f) const {
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i)
        if (!f(static_cast<const T*>(data)[(o * n + slice) * inner + i])) return false;
    return true;
  }
};

template <class T> std::vector<size_t> hashes(const Slices& slices) {
  std::vector<size_t> out;
  for (int64_t s = 0; s < slices.n; ++s) {
    size_t hash = 0;
    slices.for_each<T>(s, [&](const T& x) {
      hash = hash * 0x9E3779B97F4A7C15 + std::hash<UniqueKey<T>>()(key(x));
      return true;
    });
    out.push_back(hash);
  }
  return out;
}

template <class T> bool equal_slices(const Slices& slices, int64_t a, int64_t b) {
  const int64_t step = (b - a) * slices.inner;
  return slices.for_each<T>(a, [step](const T& x) { return key(x) == key((&x)[step]); });
}

/// For each slice its number among the different ones, in the order in which they appear first; and who these are.
struct Distinct {
  std::vector<int64_t> numbers, firsts, counts;
};

Distinct find_distinct(const Slices& slices, DType dtype) {
  std::vector<size_t> hashed;
  bool (*same)(const Slices&, int64_t, int64_t) = nullptr;
  with_type(dtype, SetTypes{}, [&]<class T>() {
    hashed = hashes<T>(slices);
    same = equal_slices<T>;
  });
  const auto hash = [&](int64_t s) { return hashed[s]; };
  const auto equal = [&](int64_t a, int64_t b) { return same(slices, a, b); };
  std::unordered_map<int64_t, int64_t, decltype(hash), decltype(equal)> seen(hashed.size(), hash, equal);
  Distinct out;
  for (int64_t s = 0; s < slices.n; ++s) {
    const auto [it, added] = seen.try_emplace(s, static_cast<int64_t>(out.firsts.size()));
    if (added) {
      out.firsts.push_back(s);
      out.counts.push_back(0);
    }
    out.numbers.push_back(it->second);
    ++out.counts[it->second];
  }
  return out;
}

class Unique final : public ComputeKernel {
 public:
  explicit Unique(const KernelInit& init) : index_(init.output_dtypes[1]) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    int axis = 0;
    if (c.num_inputs() == 2 && c.input(1).elements() > 0) {
      TROUPE_ASSIGN(axis, axis_from(c.input(1), x.rank()));
    } else if (x.rank() != 1) {
      return invalid_argument("x must be a vector, not {}", x.shape().str());
    }
    int64_t outer = 1, inner = 1;
    const int64_t n = x.shape()[axis];
    for (int i = 0; i < axis; ++i) outer *= x.shape()[i];
    for (int i = axis + 1; i < x.rank(); ++i) inner *= x.shape()[i];
    const Distinct found = find_distinct({x.raw(), outer, n, inner}, x.dtype());
    const auto distinct = static_cast<int64_t>(found.firsts.size());
    Shape shape = x.shape();
    shape.set(axis, distinct);
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
    with_storage(x.dtype(), [&]<class S>() {
      const S* in = static_cast<const S*>(x.raw());
      S* out = static_cast<S*>(y.mutable_raw());
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t s : found.firsts) out = std::copy_n(in + (o * n + s) * inner, inner, out);
    });
    TROUPE_ASSIGN(Tensor numbers, int_tensor(index_, found.numbers, Shape{n}));
    if (c.num_outputs() == 3) {
      TROUPE_ASSIGN(Tensor counts, int_tensor(index_, found.counts, Shape{distinct}));
      c.set_output(2, std::move(counts));
    }
    c.set_output(0, std::move(y));
    c.set_output(1, std::move(numbers));
    return {};
  }

 private:
  const DType index_;
};

Status unique_shape(ShapeContext& c) {
  PartialShape x = c.input(0);
  PartialShape numbers{-1};
  if (c.num_outputs() == 3) c.set_output(2, PartialShape{-1});
  if (c.num_inputs() == 1) {
    TROUPE_ASSIGN(numbers, c.with_rank(0, 1));
    c.set_output(0, PartialShape{-1});
    c.set_output(1, numbers);
    return {};
  }
  const auto constant = c.constant_input(1);
  if (constant && constant->elements() > 1) return invalid_argument("more than one axis: {}", constant->str());
  if (constant && x.has_rank()) {
    int axis = 0;
    if (constant->elements() == 1) {
      TROUPE_ASSIGN(axis, axis_from(*constant, x.rank()));
    } else if (x.rank() != 1) {
      return invalid_argument("x must be a vector, not {}", x.str());
    }
    numbers.set(0, x[axis]);
    x.set(axis, -1);
    c.set_output(0, x);
  } else if (x.has_rank()) {
    c.set_output(0, PartialShape::of_rank(x.rank()));
  }
  c.set_output(1, numbers);
  return {};
}

template <class T> std::vector<UniqueKey<T>> keys(const Tensor& x) {
  std::vector<UniqueKey<T>> out;
  for (const T& v : x.values<T>()) out.push_back(key(v));
  return out;
}

/// Which of x are not in y.
template <class K> std::vector<int64_t> difference(const std::vector<K>& x, const std::vector<K>& y) {
  const std::unordered_set<K> others(y.begin(), y.end());
  std::vector<int64_t> out;
  for (size_t i = 0; i < x.size(); ++i)
    if (!others.contains(x[i])) out.push_back(static_cast<int64_t>(i));
  return out;
}

class ListDiff final : public ComputeKernel {
 public:
  explicit ListDiff(const KernelInit& init) : index_(init.output_dtypes[1]) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &y = c.input(1);
    if (x.rank() != 1 || y.rank() != 1)
      return invalid_argument("x and y must be vectors, not {} and {}", x.shape().str(), y.shape().str());
    std::vector<int64_t> kept;
    with_type(x.dtype(), SetTypes{}, [&]<class T>() { kept = difference(keys<T>(x), keys<T>(y)); });
    const auto n = static_cast<int64_t>(kept.size());
    TROUPE_ASSIGN(Tensor out, c.allocate(x.dtype(), Shape{n}));
    with_storage(x.dtype(), [&]<class S>() {
      for (int64_t i = 0; i < n; ++i) static_cast<S*>(out.mutable_raw())[i] = static_cast<const S*>(x.raw())[kept[i]];
    });
    TROUPE_ASSIGN(Tensor places, int_tensor(index_, kept, Shape{n}));
    c.set_output(0, std::move(out));
    c.set_output(1, std::move(places));
    return {};
  }

 private:
  const DType index_;
};

}  // namespace

void register_unique_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const char* none = "it is a choice of values; TensorFlow defines none";
  for (const bool v2 : {false, true})
    for (const bool counts : {false, true}) {
      const std::string name = std::string(counts ? "UniqueWithCounts" : "Unique") + (v2 ? "V2" : "");
      OpDef op(name);
      op.input("x: T");
      if (v2) op.input("axis: Taxis");
      op.output("y: T").output("idx: out_idx");
      if (counts) op.output("count: out_idx");
      op.attr(type_attr("T", SetTypes{}));
      if (v2) op.attr(type_attr("Taxis", IndexTypes{}, "int64"));
      op.attr(type_attr("out_idx", IndexTypes{}, "int32")).shape(unique_shape);
      op.doc(std::string("The different ") + (v2 ? "slices of x along axis" : "elements of the vector x") +
             " in the order in which they come first, and for each of x which of them it is" +
             (counts ? ", and how often each comes." : ".") +
             (v2 ? " An empty axis stands for that of a vector." : ""));
      ops.add(std::move(op), not_differentiable(none));
      kernels.add<Unique>(name, DeviceKind::kCpu, {});
    }
  ops.add(OpDef("ListDiff")
              .input("x: T")
              .input("y: T")
              .output("out: T")
              .output("idx: out_idx")
              .attr(type_attr("T", SetTypes{}))
              .attr(type_attr("out_idx", IndexTypes{}, "int32"))
              .shape([](ShapeContext& c) -> Status {
                TROUPE_RETURN_IF_ERROR(c.with_rank(0, 1).status());
                TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
                for (int i = 0; i < 2; ++i) c.set_output(i, PartialShape{-1});
                return {};
              })
              .doc("The elements of the vector x that are not in the vector y, in their order, and where they were."),
          not_differentiable(none));
  kernels.add<ListDiff>("ListDiff", DeviceKind::kCpu, {});
}

}  // namespace troupe
