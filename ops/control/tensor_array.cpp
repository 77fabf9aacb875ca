// SPDX-License-Identifier: Apache-2.0
// Arrays of tensors that the iterations of a loop read and write: TensorArray...V3. They change in place; the flow, a
// scalar that every op takes and gives, says in which order.
#include <map>

#include "ops/control/register.h"
#include "ops/control/step_object.h"
#include "ops/control/tensor_array_gradients.h"
#include "ops/parts/element_list.h"
#include "ops/parts/index_tensors.h"

namespace troupe {
namespace {

struct TensorArray {
  static constexpr const char* kKind = "tensor array";
  struct Element {
    Tensor value;           // undefined: not written, or given up
    PartialShape shape;     // of what was written
    bool given_up = false;  // read where reading clears
  };

  mutable std::mutex mutex;
  DType dtype = DType::kInvalid;
  PartialShape shape;  // of every element
  bool grows = false;
  bool alike = false;     // the first that is written tells the sizes that `shape` leaves open
  bool clears = true;     // an element is given up when it is read
  bool gradient = false;  // what is written to one element adds up, and what was not written is zeros
  bool closed = false;
  std::vector<Element> elements;
  std::map<std::string, std::shared_ptr<TensorArray>, std::less<>> gradients;  // by source

  Status check_open() const {
    if (closed) return make_error(Code::kFailedPrecondition, "the tensor array was closed");
    return {};
  }

  Status write(const KernelContext& c, int64_t i, const Tensor& value) {
    TROUPE_RETURN_IF_ERROR(check_open());
    if (value.dtype() != dtype || !shape.compatible(PartialShape(value.shape())))
      return invalid_argument("an element {}{} does not go into a tensor array of {}{}", to_string(value.dtype()),
                              value.shape().str(), to_string(dtype), shape.str());
    if (i < 0 || (!grows && i >= static_cast<int64_t>(elements.size())))
      return invalid_argument("index {} into a tensor array of {} elements", i, elements.size());
    if (i >= static_cast<int64_t>(elements.size())) TROUPE_RETURN_IF_ERROR(resize_elements(c, elements, i + 1));
    Element& e = elements[static_cast<size_t>(i)];
    if (e.given_up) return invalid_argument("element {} was read already, and given up", i);
    if (e.value.defined() && !gradient) return invalid_argument("element {} was written already", i);
    TROUPE_ASSIGN(e.value, add_elements(c, e.value, value));
    e.shape = PartialShape(value.shape());
    if (alike) shape = e.shape;
    return {};
  }

  Result<Tensor> read(const KernelContext& c, int64_t i) {
    TROUPE_RETURN_IF_ERROR(check_open());
    if (i < 0 || i >= static_cast<int64_t>(elements.size()))
      return invalid_argument("index {} into a tensor array of {} elements", i, elements.size());
    Element& e = elements[static_cast<size_t>(i)];
    if (e.given_up)
      return invalid_argument("element {} was read already, and given up: make the array with clear_after_read false",
                              i);
    if (!e.value.defined()) {
      auto known = PartialShape::merge(shape, e.shape);
      if (!known.ok() || !known->fully_known())
        return invalid_argument("element {} was never written{}", i, gradient ? ", and its shape is not known" : "");
      return Tensor::zeros(dtype, known->shape(), c.device().allocator);
    }
    if (!clears) return e.value;
    e.given_up = true;
    return std::move(e.value);
  }

  /// The elements at `indices`; of those never written zeros where that can be told.
  Result<std::vector<Tensor>> read_all(const KernelContext& c, std::span<const int64_t> indices) {
    std::vector<Tensor> out;
    for (const int64_t i : indices) {
      TROUPE_ASSIGN(Tensor element, read(c, i));
      out.push_back(std::move(element));
    }
    return out;
  }
};

using ArrayRef = std::shared_ptr<TensorArray>;

Result<ArrayRef> array_of(const KernelContext& c) { return step_object<TensorArray>(c.input(0)); }

void put_flow(KernelContext& c, int i) { c.set_output(i, Tensor::scalar(0.f)); }

class MakeArray final : public ComputeKernel {
 public:
  explicit MakeArray(const KernelInit& init)
      : dtype_(init.attr<DType>("dtype")), shape_(init.attr<PartialShape>("element_shape")),
        grows_(init.attr<bool>("dynamic_size")), clears_(init.attr<bool>("clear_after_read")),
        alike_(init.attr<bool>("identical_element_shapes")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const int64_t size, int_scalar(c.input(0), "size"));
    if (size < 0) return invalid_argument("size = {} is negative", size);
    auto array = std::make_shared<TensorArray>();
    array->dtype = dtype_;
    array->shape = shape_;
    array->grows = grows_;
    array->clears = clears_;
    array->alike = alike_;
    TROUPE_RETURN_IF_ERROR(resize_elements(c, array->elements, size));
    c.set_output(0, step_handle(std::move(array)));
    put_flow(c, 1);
    return {};
  }

 private:
  const DType dtype_;
  const PartialShape shape_;
  const bool grows_, clears_, alike_;
};

/// TensorArrayGradV3 and TensorArrayGradWithShape: the array of gradients, one for each source.
class MakeGradient final : public ComputeKernel {
 public:
  explicit MakeGradient(const KernelInit& init) : source_(init.attr<std::string>("source")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const ArrayRef of, array_of(c));
    std::vector<int64_t> prepend;
    if (c.num_inputs() > 2) {
      TROUPE_ASSIGN(prepend, int_values(c.input(2), "shape_to_prepend"));
    }
    const std::lock_guard lock(of->mutex);
    TROUPE_RETURN_IF_ERROR(of->check_open());
    ArrayRef& gradient = of->gradients[source_];
    if (!gradient) {
      gradient = std::make_shared<TensorArray>();
      gradient->dtype = of->dtype;
      gradient->gradient = true;
      gradient->alike = of->alike;
      TROUPE_ASSIGN(gradient->shape, longer(prepend, of->shape));
      for (const TensorArray::Element& e : of->elements) {
        TROUPE_ASSIGN(PartialShape shape, longer(prepend, e.shape));
        gradient->elements.push_back({Tensor(), std::move(shape), false});
      }
    }
    c.set_output(0, step_handle(gradient));
    put_flow(c, 1);
    return {};
  }

 private:
  static Result<PartialShape> longer(std::vector<int64_t> first, const PartialShape& then) {
    if (!then.has_rank()) return PartialShape::unknown();
    first.insert(first.end(), then.dims().begin(), then.dims().end());
    return PartialShape::make(first);
  }

  const std::string source_;
};

class TensorArrayWrite final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const ArrayRef array, array_of(c));
    TROUPE_ASSIGN(const int64_t i, int_scalar(c.input(1), "index"));
    const std::lock_guard lock(array->mutex);
    TROUPE_RETURN_IF_ERROR(array->write(c, i, c.input(2)));
    put_flow(c, 0);
    return {};
  }
};

/// What the ops that read have in common: the array, of the dtype they were made for.
class TensorArrayReader : public ComputeKernel {
 public:
  explicit TensorArrayReader(const KernelInit& init) : dtype_(init.attr<DType>("dtype")) {}

 protected:
  Result<ArrayRef> array(const KernelContext& c) const {
    TROUPE_ASSIGN(ArrayRef array, array_of(c));
    if (array->dtype != dtype_)
      return invalid_argument("a tensor array of {}, where {} is expected", to_string(array->dtype), to_string(dtype_));
    return array;
  }
  const DType dtype_;
};

class TensorArrayRead final : public TensorArrayReader {
 public:
  using TensorArrayReader::TensorArrayReader;
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const ArrayRef array, this->array(c));
    TROUPE_ASSIGN(const int64_t i, int_scalar(c.input(1), "index"));
    const std::lock_guard lock(array->mutex);
    TROUPE_ASSIGN(Tensor value, array->read(c, i));
    c.set_output(0, std::move(value));
    return {};
  }
};

class TensorArrayGather final : public TensorArrayReader {
 public:
  explicit TensorArrayGather(const KernelInit& init)
      : TensorArrayReader(init), shape_(init.attr<PartialShape>("element_shape")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const ArrayRef array, this->array(c));
    TROUPE_ASSIGN(const std::vector<int64_t> indices, int_values(c.input(1), "indices"));
    const std::lock_guard lock(array->mutex);
    TROUPE_ASSIGN(const std::vector<Tensor> elements, array->read_all(c, indices));
    TROUPE_ASSIGN(const PartialShape shape, PartialShape::merge(array->shape, shape_));
    TROUPE_ASSIGN(Tensor out, stack_elements(c, elements, dtype_, shape));
    c.set_output(0, std::move(out));
    return {};
  }

 private:
  const PartialShape shape_;
};

class TensorArrayScatter final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const ArrayRef array, array_of(c));
    TROUPE_ASSIGN(const std::vector<int64_t> indices, int_values(c.input(1), "indices"));
    TROUPE_ASSIGN(const std::vector<Tensor> rows, unstack_elements(c.input(2)));
    if (rows.size() != indices.size()) return invalid_argument("{} indices for {} rows", indices.size(), rows.size());
    const std::lock_guard lock(array->mutex);
    for (size_t i = 0; i < rows.size(); ++i) TROUPE_RETURN_IF_ERROR(array->write(c, indices[i], rows[i]));
    put_flow(c, 0);
    return {};
  }
};

/// Of the elements, any number of rows of this shape.
Result<PartialShape> rows_of(const PartialShape& rest) {
  if (!rest.has_rank() || rest.rank() == kMaxRank) return PartialShape::unknown();
  std::vector<int64_t> sizes(rest.dims().begin(), rest.dims().end());
  sizes.insert(sizes.begin(), -1);
  return PartialShape::make(sizes);
}

class TensorArrayConcat final : public TensorArrayReader {
 public:
  explicit TensorArrayConcat(const KernelInit& init)
      : TensorArrayReader(init), rest_(init.attr<PartialShape>("element_shape_except0")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const ArrayRef array, this->array(c));
    const std::lock_guard lock(array->mutex);
    std::vector<int64_t> all(array->elements.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    TROUPE_ASSIGN(const std::vector<Tensor> elements, array->read_all(c, all));
    TROUPE_ASSIGN(PartialShape shape, rows_of(rest_));
    TROUPE_ASSIGN(shape, PartialShape::merge(array->shape, shape));
    TROUPE_ASSIGN(Joined joined, join_elements(c, elements, dtype_, shape));
    TROUPE_ASSIGN(Tensor lengths, int_tensor(DType::kInt64, joined.lengths, Shape{static_cast<int64_t>(all.size())}));
    c.set_output(0, std::move(joined.tensor));
    c.set_output(1, std::move(lengths));
    return {};
  }

 private:
  const PartialShape rest_;
};

class TensorArraySplit final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const ArrayRef array, array_of(c));
    TROUPE_ASSIGN(const std::vector<int64_t> lengths, int_values(c.input(2), "lengths"));
    TROUPE_ASSIGN(const std::vector<Tensor> parts, part_elements(c.input(1), lengths));
    const std::lock_guard lock(array->mutex);
    if (!array->grows && parts.size() != array->elements.size())
      return invalid_argument("{} lengths for a tensor array of {} elements", parts.size(), array->elements.size());
    for (size_t i = 0; i < parts.size(); ++i)
      TROUPE_RETURN_IF_ERROR(array->write(c, static_cast<int64_t>(i), parts[i]));
    put_flow(c, 0);
    return {};
  }
};

class ArraySize final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const ArrayRef array, array_of(c));
    const std::lock_guard lock(array->mutex);
    TROUPE_RETURN_IF_ERROR(array->check_open());
    c.set_output(0, Tensor::scalar(static_cast<int32_t>(array->elements.size())));
    return {};
  }
};

class CloseArray final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const ArrayRef array, array_of(c));
    const std::lock_guard lock(array->mutex);
    array->closed = true;
    array->elements.clear();
    return {};
  }
};

/// The flow, the last input, is a scalar; so are the outputs.
Status flow_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(c.num_inputs() - 1, 0));
  return scalar_shape(c);
}

Status array_read_shape(ShapeContext& c) { return c.with_rank(c.num_inputs() - 1, 0).status(); }

Status array_gather_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(array_read_shape(c));
  const PartialShape& element = c.attr<PartialShape>("element_shape");
  if (!element.has_rank() || element.rank() == kMaxRank) return {};
  const PartialShape& indices = c.input(1);
  std::vector<int64_t> sizes(element.dims().begin(), element.dims().end());
  sizes.insert(sizes.begin(), indices.has_rank() && indices.rank() == 1 ? indices[0] : -1);
  TROUPE_ASSIGN(const PartialShape shape, PartialShape::make(sizes));
  c.set_output(0, shape);
  return {};
}

Status array_concat_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(array_read_shape(c));
  c.set_output(1, PartialShape{-1});
  TROUPE_ASSIGN(PartialShape shape, rows_of(c.attr<PartialShape>("element_shape_except0")));
  c.set_output(0, std::move(shape));
  return {};
}

}  // namespace

void register_tensor_array_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto on_array = [](const char* name) { return OpDef(name).input("handle: resource").stateful(); };
  const Gradient none = not_differentiable("its results are not continuous");

  ops.add(OpDef("TensorArrayV3")
              .input("size: int32")
              .output("handle: resource")
              .output("flow: float32")
              .attr("dtype: type")
              .attr("element_shape: shape = <unknown>")
              .attr("dynamic_size: bool = false")
              .attr("clear_after_read: bool = true")
              .attr("identical_element_shapes: bool = false")
              .attr("tensor_array_name: string = ''")
              .stateful()
              .shape(scalar_shape)
              .doc("A new array for size tensors, more with dynamic_size. Each element is written once and, with "
                   "clear_after_read, read once; with identical_element_shapes all have the sizes of the first. It "
                   "lives as long as the step."),
          none);
  ops.add(on_array("TensorArrayGradV3")
              .input("flow_in: float32")
              .output("grad_handle: resource")
              .output("flow_out: float32")
              .attr("source: string")
              .shape(flow_shape)
              .doc("The array of gradients by the elements, one for each source. What is written twice adds up; an "
                   "element never written is zeros."),
          none);
  ops.add(on_array("TensorArrayGradWithShape")
              .input("flow_in: float32")
              .input("shape_to_prepend: int32")
              .output("grad_handle: resource")
              .output("flow_out: float32")
              .attr("source: string")
              .shape(scalar_shape)
              .doc("The array of gradients by the elements, each with more dimensions before its own."),
          none);
  ops.add(on_array("TensorArrayWriteV3")
              .input("index: int32")
              .input("value: T")
              .input("flow_in: float32")
              .output("flow_out: float32")
              .attr("T: type")
              .shape(flow_shape)
              .doc("Writes element index."),
          gradient(array_write_gradient));
  ops.add(on_array("TensorArrayReadV3")
              .input("index: int32")
              .input("flow_in: float32")
              .output("value: dtype")
              .attr("dtype: type")
              .shape(array_read_shape)
              .cost(move_cost)
              .doc("Reads element index."),
          gradient(array_read_gradient));
  ops.add(on_array("TensorArrayGatherV3")
              .input("indices: int32")
              .input("flow_in: float32")
              .output("value: dtype")
              .attr("dtype: type")
              .attr("element_shape: shape = <unknown>")
              .shape(array_gather_shape)
              .doc("Reads the elements at indices as the rows of one tensor."),
          gradient(array_gather_gradient));
  ops.add(on_array("TensorArrayScatterV3")
              .input("indices: int32")
              .input("value: T")
              .input("flow_in: float32")
              .output("flow_out: float32")
              .attr("T: type")
              .shape(flow_shape)
              .doc("Writes the rows of value to the elements at indices."),
          gradient(array_scatter_gradient));
  ops.add(on_array("TensorArrayConcatV3")
              .input("flow_in: float32")
              .output("value: dtype")
              .output("lengths: int64")
              .attr("dtype: type")
              .attr("element_shape_except0: shape = <unknown>")
              .shape(array_concat_shape)
              .doc("Reads all elements one after another along their first dimension, and how long each is."),
          gradient(array_concat_gradient));
  ops.add(on_array("TensorArraySplitV3")
              .input("value: T")
              .input("lengths: int64")
              .input("flow_in: float32")
              .output("flow_out: float32")
              .attr("T: type")
              .shape(flow_shape)
              .doc("Writes consecutive rows of value, as many as lengths say, to the elements."),
          gradient(array_split_gradient));
  ops.add(on_array("TensorArraySizeV3")
              .input("flow_in: float32")
              .output("size: int32")
              .shape(flow_shape)
              .doc("The number of elements."),
          none);
  ops.add(
      on_array("TensorArrayCloseV3").shape(no_outputs).doc("Gives up the elements; the array is not usable any more."),
      none);
  kernels.add<MakeArray>("TensorArrayV3", DeviceKind::kCpu, {});
  kernels.add<MakeGradient>("TensorArrayGradV3", DeviceKind::kCpu, {});
  kernels.add<MakeGradient>("TensorArrayGradWithShape", DeviceKind::kCpu, {});
  kernels.add<TensorArrayWrite>("TensorArrayWriteV3", DeviceKind::kCpu, {});
  kernels.add<TensorArrayRead>("TensorArrayReadV3", DeviceKind::kCpu, {});
  kernels.add<TensorArrayGather>("TensorArrayGatherV3", DeviceKind::kCpu, {});
  kernels.add<TensorArrayScatter>("TensorArrayScatterV3", DeviceKind::kCpu, {});
  kernels.add<TensorArrayConcat>("TensorArrayConcatV3", DeviceKind::kCpu, {});
  kernels.add<TensorArraySplit>("TensorArraySplitV3", DeviceKind::kCpu, {});
  kernels.add<ArraySize>("TensorArraySizeV3", DeviceKind::kCpu, {});
  kernels.add<CloseArray>("TensorArrayCloseV3", DeviceKind::kCpu, {});
}

}  // namespace troupe
