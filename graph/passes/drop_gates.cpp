// SPDX-License-Identifier: Apache-2.0
// Which memories have gates that nobody reads.
#include "graph/passes/drop_gates.h"

namespace troupe {
namespace {

constexpr int kCells = 1, kResults = 6;  // outputs cs and h

}  // namespace

GateDropping::GateDropping(StepGraph& step, const PassDevices& devices)
    : step_(step), devices_(devices), gates_read_(static_cast<size_t>(step.ids())) {
  const auto read = [&](const Output& o) {
    if (o.port != kCells && o.port != kResults) gates_read_[static_cast<size_t>(o.node->id())] = true;
  };
  step.for_each_wanted(read);
  for (const Node* node : step.nodes())
    for (const Output& input : node->inputs()) read(step.now(input));
}

bool GateDropping::visit(const Node& node) {
  const std::string& op = node.op().name();
  if ((op != "BlockLSTM" && op != "BlockLSTMV2") || node.dtype(0) != DType::kFloat32 || step_.is_fed(node) ||
      !node.control_inputs().empty() || (devices_.on_gpu && devices_.on_gpu(node)) ||
      static_cast<size_t>(node.id()) >= gates_read_.size() || gates_read_[static_cast<size_t>(node.id())])
    return false;
  Attrs attrs{{"op", op}};
  for (const char* name : {"forget_bias", "cell_clip", "use_peephole"})
    if (const AttrValue* value = node.attrs().find(name)) attrs.set(name, *value);
  const Output cells = step_.add_like(node, "_BlockLSTMStates", node.inputs(), std::move(attrs));
  if (!cells) return false;
  std::vector<Output> by(static_cast<size_t>(node.num_outputs()), cells);  // of the gates nobody reads any
  by[kResults] = {cells.node, 1};
  step_.replace(node, by);
  return true;
}

}  // namespace troupe
