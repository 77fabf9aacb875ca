// SPDX-License-Identifier: Apache-2.0
// Sparse tensors as elements of a dense one, and back: SerializeSparse, SerializeManySparse, DeserializeSparse,
// DeserializeManySparse.
#include "base/join.h"
#include "ops/parts/tensor_bytes.h"
#include "ops/sparse/input.h"
#include "ops/sparse/register.h"
#include "troupe/graph.h"
#include "troupe/tensor_list.h"

namespace troupe {
namespace {

/// A tensor as element `at` of strings, or of lists, where it is the only one of its list.
Status pack(const Tensor& part, Tensor& out, int64_t at) {
  if (out.dtype() == DType::kVariant) {
    out.mutable_data<TensorListRef>()[at] =
        std::make_shared<TensorList>(TensorList{part.dtype(), PartialShape(part.shape()), -1, {part}});
    return {};
  }
  TROUPE_ASSIGN(out.mutable_data<std::string>()[at], tensor_bytes(part));
  return {};
}

Result<Tensor> unpacked(const Tensor& in, int64_t at) {
  if (in.dtype() != DType::kVariant) return tensor_of_bytes(in.data<std::string>()[at]);
  const TensorListRef& list = in.data<TensorListRef>()[at];
  if (!list || list->elements.size() != 1 || !list->elements[0].defined())
    return invalid_argument("element {} is not a serialized tensor", at);
  return list->elements[0];
}

class Serialize final : public ComputeKernel {
 public:
  explicit Serialize(const KernelInit& init) : out_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(0), c.input(1), c.input(2)));
    TROUPE_ASSIGN(Tensor out, c.allocate(out_, Shape{kSerializedParts}));
    for (int i = 0; i < kSerializedParts; ++i) TROUPE_RETURN_IF_ERROR(pack(c.input(i), out, i));
    c.set_output(0, std::move(out));
    return {};
  }

 private:
  const DType out_;
};

class SerializeMany final : public ComputeKernel {
 public:
  explicit SerializeMany(const KernelInit& init) : out_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(0), c.input(1), c.input(2)));
    const int64_t rank = x.shape.rank();
    if (rank < 2) return invalid_argument("the rank of the sparse tensor must be above 1, not {}", rank);
    TROUPE_ASSIGN(Tensor out, c.allocate(out_, Shape{x.shape[0], kSerializedParts}));
    const Tensor sizes = Tensor::of<int64_t>(x.shape.dims().subspan(1));
    int64_t i = 0;
    for (int64_t row = 0; row < x.shape[0]; ++row) {
      const int64_t first = i;
      std::vector<int64_t> indices;
      for (; i < x.size() && x.at(i)[0] == row; ++i) indices.insert(indices.end(), x.at(i) + 1, x.at(i) + rank);
      TROUPE_ASSIGN(const Tensor values, x.values->slice(first, i));
      const Tensor parts[] = {Tensor::of<int64_t>(indices, Shape{i - first, rank - 1}), values, sizes};
      for (int k = 0; k < kSerializedParts; ++k)
        TROUPE_RETURN_IF_ERROR(pack(parts[k], out, row * kSerializedParts + k));
    }
    if (i < x.size())
      return invalid_argument("indices[{}] = [{}] is out of order: they must be sorted", i,
                              join(std::span(x.at(i), static_cast<size_t>(rank))));
    c.set_output(0, std::move(out));
    return {};
  }

 private:
  const DType out_;
};

class Deserialize final : public ComputeKernel {
 public:
  explicit Deserialize(const KernelInit& init) : dtype_(init.output_dtypes[1]) {}
  Status compute(KernelContext& c) override {
    const Tensor& in = c.input(0);
    if (in.rank() == 0 || in.dim(-1) != kSerializedParts)
      return invalid_argument("serialized_sparse must have shape [...,3], not {}", in.shape().str());
    const Shape batch(in.shape().dims().first(static_cast<size_t>(in.rank() - 1)));
    if (batch.elements() == 0) return invalid_argument("serialized_sparse {} has no sparse tensor", in.shape().str());
    std::vector<Tensor> parts;  // kept while `all` points at them
    for (int64_t i = 0; i < in.elements(); ++i) {
      TROUPE_ASSIGN(Tensor part, unpacked(in, i));
      parts.push_back(std::move(part));
    }
    std::vector<SparseInput> all;
    std::vector<int64_t> sizes(batch.begin(), batch.end());
    int64_t count = 0;
    for (int64_t i = 0; i < batch.elements(); ++i) {
      TROUPE_RETURN_IF_ERROR(check_types(i, &parts[i * kSerializedParts]));
      TROUPE_ASSIGN(SparseInput x, SparseInput::read(parts[i * kSerializedParts], parts[i * kSerializedParts + 1],
                                                     parts[i * kSerializedParts + 2]));
      if (i == 0) sizes.resize(sizes.size() + static_cast<size_t>(x.shape.rank()));
      if (static_cast<int64_t>(sizes.size()) != batch.rank() + x.shape.rank())
        return invalid_argument("sparse tensor {} has rank {}, the first one {}", i, x.shape.rank(),
                                static_cast<int64_t>(sizes.size()) - batch.rank());
      for (int d = 0; d < x.shape.rank(); ++d) sizes[batch.rank() + d] = std::max(sizes[batch.rank() + d], x.shape[d]);
      count += x.size();
      all.push_back(std::move(x));
    }
    return join_all(c, all, batch, sizes, count);
  }

 private:
  Status check_types(int64_t i, const Tensor* parts) const {
    for (const int k : {0, 2})
      if (parts[k].dtype() != DType::kInt64)
        return invalid_argument("sparse tensor {} has indices or sizes of {}", i, to_string(parts[k].dtype()));
    if (parts[1].dtype() == dtype_) return {};
    return invalid_argument("sparse tensor {} has values of {}, not {}", i, to_string(parts[1].dtype()),
                            to_string(dtype_));
  }

  /// Sparse tensor i has the place i in `batch` before its own indices.
  Status join_all(KernelContext& c, const std::vector<SparseInput>& all, const Shape& batch,
                  const std::vector<int64_t>& sizes, int64_t count) const {
    const auto rank = static_cast<int64_t>(sizes.size());
    TROUPE_ASSIGN(Tensor indices, c.allocate(DType::kInt64, Shape{count, rank}));
    TROUPE_ASSIGN(Tensor values, c.allocate(dtype_, Shape{count}));
    int64_t at = 0, *row = indices.mutable_data<int64_t>();
    for (size_t n = 0; n < all.size(); ++n) {
      const SparseInput& x = all[n];
      for (int64_t i = 0; i < x.size(); ++i, row += rank) {
        int64_t place = static_cast<int64_t>(n);
        for (int d = batch.rank() - 1; d >= 0; place /= batch[d--]) row[d] = place % batch[d];
        std::copy_n(x.at(i), x.shape.rank(), row + batch.rank());
      }
      with_storage(dtype_, [&]<class S>() {
        std::copy_n(static_cast<const S*>(x.values->raw()), x.size(), static_cast<S*>(values.mutable_raw()) + at);
      });
      at += x.size();
    }
    c.set_output(0, std::move(indices));
    c.set_output(1, std::move(values));
    c.set_output(2, Tensor::of<int64_t>(sizes));
    return {};
  }

  const DType dtype_;
};

Status serialize_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(sparse_shapes(c, 0, 1, 2).status());
  c.set_output(0, PartialShape{kSerializedParts});
  return {};
}

Status serialize_many_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(sparse_shapes(c, 0, 1, 2).status());
  int64_t rows = -1;
  if (const auto sizes = c.constant_input(2)) {
    TROUPE_ASSIGN(const Shape shape, shape_from(*sizes, "sparse_shape"));
    if (shape.rank() < 2)
      return invalid_argument("the rank of the sparse tensor must be above 1, not {}", shape.rank());
    rows = shape[0];
  }
  c.set_output(0, PartialShape{rows, kSerializedParts});
  return {};
}

Status deserialize_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape in, c.with_rank_at_least(0, 1));
  if (in.has_rank() && in.dim(-1) >= 0 && in.dim(-1) != kSerializedParts)
    return invalid_argument("serialized_sparse must have shape [...,3], not {}", in.str());
  c.set_output(0, PartialShape{-1, -1});
  for (int i : {1, 2}) c.set_output(i, PartialShape{-1});
  return {};
}

}  // namespace

void register_sparse_serialize_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const Gradient none = not_differentiable("TensorFlow gives it none");
  for (const bool many : {false, true}) {
    const std::string name = many ? "SerializeManySparse" : "SerializeSparse";
    ops.add(OpDef(name)
                .input("sparse_indices: int64")
                .input("sparse_values: T")
                .input("sparse_shape: int64")
                .output("serialized_sparse: out_type")
                .attr("T: type")
                .attr("out_type: {string, variant} = string")
                .shape(many ? serialize_many_shape : serialize_shape)
                .doc(many ? "Each row of a sparse tensor of rank 2 or more, whose indices are sorted, as a row of its "
                            "indices, values and sizes, as SerializeTensor writes them."
                          : "The indices, values and sizes of a sparse tensor, as SerializeTensor writes them."),
            none);
    OpDef back(many ? "DeserializeManySparse" : "DeserializeSparse");
    if (!many) back.attr("Tserialized: {string, variant} = string");
    ops.add(back.input(many ? "serialized_sparse: string" : "serialized_sparse: Tserialized")
                .output("sparse_indices: int64")
                .output("sparse_values: dtype")
                .output("sparse_shape: int64")
                .attr("dtype: type")
                .shape(deserialize_shape)
                .doc("Sparse tensors of one rank that were serialized, as one, in which their places in "
                     "serialized_sparse [...,3] come first and whose sizes are the largest of theirs."),
            none);
  }
  kernels.add<Serialize>("SerializeSparse", DeviceKind::kCpu, {});
  kernels.add<SerializeMany>("SerializeManySparse", DeviceKind::kCpu, {});
  for (const char* op : {"DeserializeSparse", "DeserializeManySparse"})
    kernels.add<Deserialize>(op, DeviceKind::kCpu, {});
}

}  // namespace troupe
