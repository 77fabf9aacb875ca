// SPDX-License-Identifier: Apache-2.0
// Inference of a node's types and shapes from its op and inputs.
#include "graph/node_maker.h"

#include <stdexcept>

#include "graph/constant_value.h"
#include "graph/resolve.h"
#include "troupe/guarded.h"

namespace troupe {
namespace {

/// What a shape function sees of the node. What it throws, make() takes for the function's error.
class AddContext : public ShapeContext {
 public:
  AddContext(const NodeSpec& spec, int open_input, std::vector<PartialShape>& shapes)
      : spec_(spec), open_input_(open_input), shapes_(shapes) {}
  int num_inputs() const override { return static_cast<int>(spec_.inputs.size()); }
  int num_outputs() const override { return static_cast<int>(shapes_.size()); }
  const PartialShape& input(int i) const override {
    const PartialShape& shape = source(i).shape();
    return i == open_input_ ? spec_.open_shape : shape;
  }
  DType input_dtype(int i) const override { return source(i).dtype(); }
  Output source(int i) const override { return spec_.inputs[checked("input", i, spec_.inputs.size())]; }
  std::optional<Tensor> constant_input(int i) const override { return constant_value(source(i)); }
  PartialShape sizes_input(int i) const override { return known_sizes(source(i)); }
  const Attrs& attrs() const override { return spec_.attrs; }
  void set_output(int i, PartialShape shape) override {
    shapes_[checked("output", i, shapes_.size())] = std::move(shape);
  }

 private:
  static size_t checked(const char* what, int i, size_t count) {
    if (i >= 0 && static_cast<size_t>(i) < count) return static_cast<size_t>(i);
    throw std::out_of_range(fmt::format("the shape function asks for {0} {1}, but the node has {2} {0}{3}", what, i,
                                        count, count == 1 ? "" : "s"));
  }
  const NodeSpec& spec_;
  const int open_input_;
  std::vector<PartialShape>& shapes_;
};

/// Whether every tensor of shape `a` has shape `b` too.
bool within(const PartialShape& a, const PartialShape& b) {
  if (!b.has_rank()) return true;
  if (a.rank() != b.rank()) return false;
  for (int i = 0; i < b.rank(); ++i)
    if (b[i] >= 0 && a[i] != b[i]) return false;
  return true;
}

}  // namespace

Status NodeMaker::make(const OpDef& op, NodeSpec&& spec, int id, Node& node, int open_input) {
  TROUPE_ASSIGN(node.dtypes_, resolve(op, spec.inputs, spec.attrs));
  node.shapes_.resize(node.dtypes_.size());
  AddContext context(spec, open_input, node.shapes_);
  TROUPE_RETURN_IF_ERROR(guarded([&] { return op.shape_fn()(context); }));
  for (const auto& [name, value] : spec.attrs)
    if (const Tensor* tensor = std::get_if<Tensor>(&value)) tensor->freeze();
  for (size_t i = 0; i < node.shapes_.size(); ++i)
    if (node.shapes_[i].fully_known())
      if (auto possible = Shape::make(node.shapes_[i].dims()); !possible.ok())
        return invalid_argument("output {}: {}", i, possible.error().message);
  node.id_ = id;
  node.name_ = std::move(spec.name);
  node.op_ = &op;
  node.attrs_ = std::move(spec.attrs);
  node.device_ = std::move(spec.device);
  node.inputs_ = std::move(spec.inputs);
  node.control_inputs_ = std::move(spec.control_inputs);
  node.open_input_ = open_input;
  node.open_shape_ = std::move(spec.open_shape);
  return {};
}

Status NodeMaker::close_loop(Node& merge, Output next) {
  if (next.dtype() != merge.dtype(0))
    return invalid_argument("the loop begins with {}, but {} is {}", to_string(merge.dtype(0)), next.name(),
                            to_string(next.dtype()));
  if (!within(next.shape(), merge.open_shape_))
    return invalid_argument(
        "the value of the loop had the shape {}, but {} has {}: a shape that changes from one "
        "iteration to the next must be declared",
        merge.open_shape_.str(), next.name(), next.shape().str());
  merge.inputs_[static_cast<size_t>(merge.open_input_)] = next;
  merge.open_input_ = -1;
  return {};
}

}  // namespace troupe
