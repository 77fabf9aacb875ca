// SPDX-License-Identifier: Apache-2.0
// Inference of a node's types and shapes from its op and inputs.
#include "graph/node_maker.h"

#include "graph/constant_value.h"
#include "graph/resolve.h"

namespace troupe {
namespace {

/// What a shape function sees of the node.
class AddContext : public ShapeContext {
 public:
  AddContext(const std::vector<Output>& inputs, const Attrs& attrs, std::vector<PartialShape>& shapes)
      : inputs_(inputs), attrs_(attrs), shapes_(shapes) {}
  int num_inputs() const override { return static_cast<int>(inputs_.size()); }
  int num_outputs() const override { return static_cast<int>(shapes_.size()); }
  const PartialShape& input(int i) const override { return inputs_[i].shape(); }
  DType input_dtype(int i) const override { return inputs_[i].dtype(); }
  Output source(int i) const override { return inputs_[i]; }
  std::optional<Tensor> constant_input(int i) const override { return constant_value(inputs_[i]); }
  const Attrs& attrs() const override { return attrs_; }
  void set_output(int i, PartialShape shape) override { shapes_.at(i) = std::move(shape); }

 private:
  const std::vector<Output>& inputs_;
  const Attrs& attrs_;
  std::vector<PartialShape>& shapes_;
};

}  // namespace

Status NodeMaker::make(const OpDef& op, NodeSpec&& spec, int id, Node& node) {
  TROUPE_ASSIGN(node.dtypes_, resolve(op, spec.inputs, spec.attrs));
  node.shapes_.resize(node.dtypes_.size());
  AddContext context(spec.inputs, spec.attrs, node.shapes_);
  TROUPE_RETURN_IF_ERROR(op.shape_fn()(context));
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
  return {};
}

}  // namespace troupe
