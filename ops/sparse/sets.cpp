// SPDX-License-Identifier: Apache-2.0
// Sets along the last dimension of dense and sparse tensors: SetSize, DenseToDenseSetOperation,
// DenseToSparseSetOperation, SparseToSparseSetOperation.
#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <set>

#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/sparse/register.h"

namespace troupe {
namespace {

using MemberTypes = TypeList<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, std::string>;

/// The types of elements that become members M, which are int64 or strings.
template <class M>
using ElementTypes = std::conditional_t<std::is_same_v<M, std::string>, TypeList<std::string>,
                                        TypeList<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t>>;

/// The sets that have a member, by their place in row-major order among all.
template <class M> using Sets = std::map<int64_t, std::set<M>>;

/// Which sets there are: the dimensions before the last.
Result<Shape> groups_of(std::span<const int64_t> sizes) {
  if (sizes.empty()) return invalid_argument("a scalar has no dimension for the members of a set");
  TROUPE_RETURN_IF_ERROR(Shape::make(sizes).status());
  return Shape::make(sizes.first(sizes.size() - 1));
}

/// For each value of a sparse tensor of `sizes` its set. Errors: shapes that do not fit, an index out of range, and,
/// with `ordered`, one that is not behind the one before it.
Result<std::vector<int64_t>> sparse_places(const Tensor& indices, const Tensor& values,
                                           const std::vector<int64_t>& sizes, bool ordered) {
  const auto rank = static_cast<int64_t>(sizes.size());
  if (indices.rank() != 2 || indices.shape()[1] != rank || values.rank() != 1 ||
      values.elements() != indices.shape()[0])
    return invalid_argument("indices of shape {} and values of shape {} in {} dimensions", indices.shape().str(),
                            values.shape().str(), rank);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < values.elements(); ++i) {
    const int64_t* at = indices.data<int64_t>() + i * rank;
    int64_t group = 0;
    for (int64_t d = 0; d < rank; ++d) {
      if (at[d] < 0 || at[d] >= sizes[d])
        return invalid_argument("index {} at [{},{}] is not in [0, {})", at[d], i, d, sizes[d]);
      if (d + 1 < rank) group = group * sizes[d] + at[d];
    }
    if (ordered && i > 0 && !std::lexicographical_compare(at - rank, at, at, at + rank))
      return invalid_argument("index {} is repeated or out of order", i);
    out.push_back(group);
  }
  return out;
}

/// What a node's inputs from `first` on say: a dense tensor, or the three of a sparse one.
struct SetOperand {
  Shape groups;
  const Tensor* values = nullptr;
  std::vector<int64_t> places;  // of the set of each value

  static Result<SetOperand> read(const KernelContext& c, int first, bool sparse, bool ordered) {
    SetOperand out;
    out.values = &c.input(sparse ? first + 1 : first);
    if (!sparse) {
      TROUPE_ASSIGN(out.groups, groups_of(out.values->shape().dims()));
      const int64_t n = out.values->dim(-1);
      for (int64_t i = 0; i < out.values->elements(); ++i) out.places.push_back(i / n);
      return out;
    }
    TROUPE_ASSIGN(const std::vector<int64_t> sizes, int_values(c.input(first + 2), "the shape of a set"));
    TROUPE_ASSIGN(out.groups, groups_of(sizes));
    TROUPE_ASSIGN(out.places, sparse_places(c.input(first), *out.values, sizes, ordered));
    return out;
  }

  template <class M> Sets<M> sets() const {
    Sets<M> out;
    with_type(values->dtype(), ElementTypes<M>{}, [&]<class T>() {
      for (size_t i = 0; i < places.size(); ++i) out[places[i]].insert(values->data<T>()[i]);
    });
    return out;
  }
};

enum class Operation { kOnlyFirst, kOnlySecond, kBoth, kAny };

Result<Operation> operation_from(const Attrs& attrs) {
  std::string name = *attrs.get<std::string>("set_operation");
  std::ranges::transform(name, name.begin(), [](unsigned char ch) { return static_cast<char>(std::tolower(ch)); });
  if (name == "a-b") return Operation::kOnlyFirst;
  if (name == "b-a") return Operation::kOnlySecond;
  if (name == "intersection") return Operation::kBoth;
  if (name == "union") return Operation::kAny;
  return invalid_argument("set_operation '{}' is none of a-b, b-a, intersection, union", name);
}

template <class M> std::vector<M> combined_members(const std::set<M>& a, const std::set<M>& b, Operation operation) {
  std::vector<M> out;
  const auto to = std::back_inserter(out);
  if (operation == Operation::kOnlyFirst) std::ranges::set_difference(a, b, to);
  else if (operation == Operation::kOnlySecond) std::ranges::set_difference(b, a, to);
  else if (operation == Operation::kBoth) std::ranges::set_intersection(a, b, to);
  else std::ranges::set_union(a, b, to);
  return out;
}

template <class M> class SetOperation final : public ComputeKernel {
 public:
  explicit SetOperation(const KernelInit& init)
      : operation_(operation_from(*init.attrs)), first_sparse_(init.op.starts_with("Sparse")),
        second_sparse_(init.op != "DenseToDenseSetOperation"), ordered_(init.attr<bool>("validate_indices")) {}

  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Operation operation, operation_);
    TROUPE_ASSIGN(const SetOperand a, SetOperand::read(c, 0, first_sparse_, ordered_));
    TROUPE_ASSIGN(const SetOperand b, SetOperand::read(c, first_sparse_ ? 3 : 1, second_sparse_, ordered_));
    if (a.groups != b.groups)
      return invalid_argument("sets of groups {} and {} do not fit", a.groups.str(), b.groups.str());
    const Sets<M> sets[] = {a.sets<M>(), b.sets<M>()};
    std::set<int64_t> groups;
    for (const Sets<M>& own : sets)
      for (const auto& [group, members] : own) groups.insert(group);
    const std::set<M> none;
    const auto in = [&](const Sets<M>& own, int64_t group) -> const std::set<M>& {
      const auto found = own.find(group);
      return found == own.end() ? none : found->second;
    };
    std::vector<int64_t> indices;
    std::vector<M> values;
    int64_t longest = 0;
    for (int64_t group : groups) {
      const std::vector<M> members = combined_members(in(sets[0], group), in(sets[1], group), operation);
      std::vector<int64_t> at(static_cast<size_t>(a.groups.rank()) + 1);
      for (int64_t rest = group, d = a.groups.rank() - 1; d >= 0; --d) {
        at[d] = rest % a.groups[static_cast<int>(d)];
        rest /= a.groups[static_cast<int>(d)];
      }
      for (at.back() = 0; at.back() < static_cast<int64_t>(members.size()); ++at.back())
        indices.insert(indices.end(), at.begin(), at.end());
      values.insert(values.end(), members.begin(), members.end());
      longest = std::max(longest, static_cast<int64_t>(members.size()));
    }
    std::vector<int64_t> sizes(a.groups.begin(), a.groups.end());
    sizes.push_back(longest);
    const Shape places{static_cast<int64_t>(values.size()), static_cast<int64_t>(sizes.size())};
    TROUPE_ASSIGN(Tensor found, Tensor::make(a.values->dtype(), Shape{places[0]}));
    with_type(found.dtype(), ElementTypes<M>{}, [&]<class T>() {
      std::ranges::transform(values, found.mutable_data<T>(), [](const M& m) { return static_cast<T>(m); });
    });
    c.set_output(0, Tensor::of<int64_t>(std::span<const int64_t>(indices), places));
    c.set_output(1, std::move(found));
    c.set_output(2, Tensor::of<int64_t>(std::span<const int64_t>(sizes)));
    return {};
  }

 private:
  const Result<Operation> operation_;
  const bool first_sparse_, second_sparse_, ordered_;
};

template <class M> class SetSize final : public ComputeKernel {
 public:
  explicit SetSize(const KernelInit& init) : ordered_(init.attr<bool>("validate_indices")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const SetOperand x, SetOperand::read(c, 0, true, ordered_));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(DType::kInt32, x.groups, c.device().allocator));
    for (const auto& [group, members] : x.sets<M>())
      y.mutable_data<int32_t>()[group] = static_cast<int32_t>(members.size());
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool ordered_;
};

template <template <class> class K> void add_kernels(KernelRegistry& kernels, const char* op) {
  kernels.add<K<int64_t>>(op, DeviceKind::kCpu, {{"T", ElementTypes<int64_t>::dtypes()}});
  kernels.add<K<std::string>>(op, DeviceKind::kCpu, {{"T", ElementTypes<std::string>::dtypes()}});
}

/// The number of dimensions of the sparse tensor whose three inputs begin at `first`, -1 where it is not known.
Result<int64_t> sparse_rank(ShapeContext& c, int first) {
  TROUPE_ASSIGN(const PartialShape indices, c.with_rank(first, 2));
  TROUPE_ASSIGN(const PartialShape values, c.with_rank(first + 1, 1));
  TROUPE_ASSIGN(const PartialShape sizes, c.with_rank(first + 2, 1));
  TROUPE_ASSIGN(const PartialShape places, PartialShape::merge(indices.has_rank() ? indices : PartialShape{-1, -1},
                                                               PartialShape{values.has_rank() ? values[0] : -1,
                                                                            sizes.has_rank() ? sizes[0] : -1}));
  if (places[1] >= 0 && (places[1] < 1 || places[1] > kMaxRank))
    return invalid_argument("sets in {} dimensions", places[1]);
  return places[1];
}

Status operation_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(operation_from(c.attrs()).status());
  int64_t rank = -1;
  for (int first = 0; first < c.num_inputs();) {
    // A dense operand is one input, a sparse one three.
    const bool sparse = c.num_inputs() - first >= 3 && !(first == 0 && c.num_inputs() == 4);
    int64_t own = -1;
    if (sparse) {
      TROUPE_ASSIGN(own, sparse_rank(c, first));
    } else {
      TROUPE_ASSIGN(const PartialShape x, c.with_rank_at_least(first, 1));
      own = x.rank();
    }
    if (rank >= 0 && own >= 0 && rank != own) return invalid_argument("sets in {} and {} dimensions", rank, own);
    rank = std::max(rank, own);
    first += sparse ? 3 : 1;
  }
  c.set_output(0, PartialShape{-1, rank});
  c.set_output(1, PartialShape{-1});
  c.set_output(2, PartialShape{rank});
  return {};
}

Status size_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const int64_t rank, sparse_rank(c, 0));
  if (const auto constant = c.constant_input(2)) {
    TROUPE_ASSIGN(const std::vector<int64_t> sizes, int_values(*constant, "set_shape"));
    TROUPE_ASSIGN(const Shape groups, groups_of(sizes));
    c.set_output(0, groups);
  } else if (rank > 0) {
    c.set_output(0, PartialShape::of_rank(static_cast<int>(rank) - 1));
  }
  return {};
}

}  // namespace

void register_set_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const char* none = "it is a choice of values";
  const auto sparse = [](OpDef& op, const std::string& name) {
    op.input(name + "_indices: int64").input(name + "_values: T").input(name + "_shape: int64");
  };
  const auto finish = [&](OpDef op, ShapeFn shape, std::string doc) {
    op.attr("validate_indices: bool = true").attr(type_attr("T", MemberTypes{})).shape(std::move(shape));
    ops.add(std::move(op.doc(std::move(doc))), not_differentiable(none));
  };
  for (const char* name : {"DenseToDenseSetOperation", "DenseToSparseSetOperation", "SparseToSparseSetOperation"}) {
    const std::string_view op_name = name;
    OpDef op(name);
    if (op_name.starts_with("Sparse")) sparse(op, "set1");
    else op.input("set1: T");
    if (op_name.starts_with("DenseToDense")) op.input("set2: T");
    else sparse(op, "set2");
    op.output("result_indices: int64").output("result_values: T").output("result_shape: int64");
    op.attr("set_operation: string");
    finish(std::move(op), operation_shape,
           "a-b, b-a, intersection or union, as set_operation says, of the sets along the last dimension of two "
           "tensors, in ascending order as a sparse tensor. The dimensions before must agree; with validate_indices "
           "those of sparse tensors must ascend.");
    add_kernels<SetOperation>(kernels, name);
  }
  OpDef size("SetSize");
  sparse(size, "set");
  size.output("size: int32");
  finish(std::move(size), size_shape,
         "How many different values each row along the last dimension of a sparse tensor has.");
  add_kernels<SetSize>(kernels, "SetSize");
}

}  // namespace troupe
