// SPDX-License-Identifier: Apache-2.0
// Block b of SpaceToBatchND takes every b-th place, so a convolution of that steps b places between two of its
// window's.
#include "graph/passes/plain_convolutions.h"

#include <algorithm>

#include "graph/passes/same_place.h"

namespace troupe {
namespace {

using Ints = std::vector<int64_t>;

bool is_convolution(const Node& n) {
  return (n.op().name() == "Conv2D" || n.op().name() == "DepthwiseConv2dNative") && data_format(n) == "NHWC";
}

std::string padding(const Node& conv) { return conv.attrs().get_or<std::string>("padding", ""); }

/// Whether the list `name` of its attributes holds ones alone.
bool all_ones(const Node& conv, const char* name) {
  return std::ranges::all_of(conv.attrs().get_or<Ints>(name, {}), [](int64_t n) { return n == 1; });
}

/// The numbers of a constant of int32 or int64; none where it is another.
Ints ints(const Tensor* t) {
  Ints out;
  if (!t) return out;
  for (int64_t i = 0; i < t->elements(); ++i)
    if (t->dtype() == DType::kInt32) out.push_back(t->data<int32_t>()[i]);
    else if (t->dtype() == DType::kInt64) out.push_back(t->data<int64_t>()[i]);
  return out;
}

bool is_zero(const Tensor* t) {
  if (!t || t->elements() != 1) return false;
  const auto* bytes = static_cast<const unsigned char*>(t->raw());
  return std::all_of(bytes, bytes + t->bytes(), [](unsigned char byte) { return byte == 0; });
}

bool is_activation(const std::string& op) {
  return op == "Relu" || op == "Relu6" || op == "Elu" || op == "Tanh" || op == "Sigmoid";
}

}  // namespace

PlainConvolutions::PlainConvolutions(StepGraph& step, const PassDevices& devices)
    : step_(step), devices_(devices), readers_(step) {}

const Node* PlainConvolutions::before(const Node& node, const Node& last) const {
  const Node* from = step_.now(node.inputs()[0]).node;
  return once(*from) && is_free(*from) && same_place(*from, last) ? from : nullptr;
}

bool PlainConvolutions::squeezes_height(const Node& squeeze) const {
  const Ints axes = squeeze.attrs().get_or<Ints>("squeeze_dims", {});
  return squeeze.op().name() == "Squeeze" && (axes == Ints{1} || axes == Ints{-3});
}

bool PlainConvolutions::expands_height(const Node& node) const {
  const PartialShape shape = node.op().name() == "ExpandDims" ? step_.shape(node.out()) : PartialShape();
  if (!shape.has_rank() || shape.rank() != 4) return false;
  const Ints axis = ints(step_.constant(node.inputs()[1]));
  return axis == Ints{1} || axis == Ints{-3};
}

Output PlainConvolutions::convolve(const Node& conv, Output x, const Spaces& spaces, const int64_t* dilations,
                                   const Node& node) {
  Attrs attrs = conv.attrs();
  attrs.set("padding", std::string("EXPLICIT"));
  attrs.set("explicit_paddings", Ints{0, 0, spaces.lo[0], spaces.hi[0], spaces.lo[1], spaces.hi[1], 0, 0});
  if (dilations) attrs.set("dilations", Ints{1, dilations[0], dilations[1], 1});
  const Output y = step_.add_like(node, conv.op().name(), {x, conv.inputs()[1]}, std::move(attrs));
  if (y) read_once_.insert(y.node);
  return y;
}

Output PlainConvolutions::expanded(const Node* expand, Output x, const Node& node) {
  if (!expand) return x;
  const Output y = step_.add_like(node, "ExpandDims", {x, expand->inputs()[1]}, expand->attrs());
  if (y) read_once_.insert(y.node);
  return y;
}

bool PlainConvolutions::put(Output by, const Node& node) {
  if (!by) return false;
  if (once(node)) read_once_.insert(by.node);
  else read_once_.erase(by.node);
  step_.replace(node, {&by, 1});
  return true;
}

bool PlainConvolutions::take_padding(const Node& conv) {
  const bool is_explicit = padding(conv) == "EXPLICIT";
  if (!is_explicit && padding(conv) != "VALID") return false;
  const Node* pad = before(conv, conv);
  const Node* expand = pad && expands_height(*pad) ? pad : nullptr;
  if (expand) pad = before(*expand, conv);
  if (!pad || (pad->op().name() != "Pad" && pad->op().name() != "PadV2")) return false;
  if (pad->inputs().size() > 2 && !is_zero(step_.constant(pad->inputs()[2]))) return false;
  const Ints around = ints(step_.constant(pad->inputs()[1]));
  const size_t rank = expand ? 3 : 4;
  if (around.size() != 2 * rank || std::ranges::any_of(around, [](int64_t n) { return n < 0; })) return false;
  if (around[0] != 0 || around[1] != 0 || around[2 * rank - 2] != 0 || around[2 * rank - 1] != 0) return false;
  const PartialShape filter = step_.shape(conv.inputs()[1]);
  const Ints own = is_explicit ? conv.attrs().get_or<Ints>("explicit_paddings", {}) : Ints(8);
  const Ints dilations = conv.attrs().get_or<Ints>("dilations", {1, 1, 1, 1});
  if (!filter.has_rank() || filter.rank() != 4 || own.size() != 8 || dilations.size() != 4) return false;
  Spaces spaces;
  for (size_t i = 0; i < 2; ++i) {
    spaces.lo[i] = own[2 * i + 2];
    spaces.hi[i] = own[2 * i + 3];
    if (i > 0 || !expand) {
      const size_t at = expand ? 2 : 2 * i + 2;
      spaces.lo[i] += around[at];
      spaces.hi[i] += around[at + 1];
    }
    // Where a window would see zeros alone, kernels may have no fast code.
    if (std::max(spaces.lo[i], spaces.hi[i]) > (filter[static_cast<int>(i)] - 1) * dilations[i + 1]) return false;
  }
  const Output x = expanded(expand, pad->inputs()[0], conv);
  return x && put(convolve(conv, x, spaces, nullptr, conv), conv);
}

bool PlainConvolutions::take_dilation(const Node& back) {
  const Node* at = before(back, back);
  const Node* squeeze = at && squeezes_height(*at) ? at : nullptr;
  if (squeeze) at = before(*squeeze, back);
  if (!at || !is_convolution(*at) || padding(*at) != "VALID" || !all_ones(*at, "strides") ||
      !all_ones(*at, "dilations"))
    return false;
  const Node& conv = *at;
  at = before(conv, back);
  const Node* expand = squeeze && at && expands_height(*at) ? at : nullptr;
  if (squeeze && !expand) return false;
  if (expand) at = before(*expand, back);
  if (!at || at->op().name() != "SpaceToBatchND") return false;
  const Node& forth = *at;

  const size_t count = squeeze ? 1 : 2;  // of dimensions
  const Ints block = ints(step_.constant(forth.inputs()[1])), around = ints(step_.constant(forth.inputs()[2]));
  const Ints crops = ints(step_.constant(back.inputs()[2]));
  if (block.size() != count || block != ints(step_.constant(back.inputs()[1]))) return false;
  if (around.size() != 2 * count || crops.size() != 2 * count) return false;
  const PartialShape in = step_.shape(forth.inputs()[0]), filter = step_.shape(conv.inputs()[1]);
  if (!in.has_rank() || in.rank() != static_cast<int>(count) + 2 || !filter.has_rank() || filter.rank() != 4)
    return false;
  Spaces spaces;
  int64_t dilations[2] = {1, 1};
  for (size_t i = 0; i < count; ++i) {
    const size_t to = i + 2 - count;
    const int64_t size = in[static_cast<int>(i) + 1], window = filter[static_cast<int>(to)];
    const int64_t lo = around[2 * i], hi = around[2 * i + 1], first = crops[2 * i], last = crops[2 * i + 1];
    // What would be an error stays one.
    if (size < 0 || window < 1 || block[i] < 1 || lo < 0 || hi < 0 || first < 0 || last < 0) return false;
    const int64_t padded = size + lo + hi;
    if (padded % block[i] != 0 || padded < window * block[i]) return false;
    if (padded - (window - 1) * block[i] < first + last || lo < first || hi < last) return false;
    dilations[to] = block[i];
    spaces.lo[to] = lo - first;
    spaces.hi[to] = hi - last;
  }
  const Output x = expanded(expand, forth.inputs()[0], back);
  if (!x) return false;
  Output y = convolve(conv, x, spaces, dilations, back);
  if (y && squeeze) y = step_.add_like(back, "Squeeze", {y}, squeeze->attrs());
  return put(y, back);
}

bool PlainConvolutions::sink_squeeze(const Node& node) {
  const std::string& op = node.op().name();
  const bool vector = op == "Mul" || op == "Add" || op == "AddV2";
  if (!vector && op != "BiasAdd" && !is_activation(op)) return false;
  for (const size_t i : {0, 1}) {
    if (i > 0 && !vector) break;
    const Node* squeeze = step_.now(node.inputs()[i]).node;
    if (!squeezes_height(*squeeze) || !once(*squeeze) || !is_free(*squeeze) || !same_place(*squeeze, node)) continue;
    const Node* at = before(*squeeze, node);
    while (at && !is_convolution(*at) && read_once_.contains(at) && !at->inputs().empty()) {
      // A product or sum with a constant has that on either side.
      const bool second = at->inputs().size() > 1 && step_.constant(at->inputs()[0]);
      at = step_.now(at->inputs()[second ? 1 : 0]).node;
    }
    if (!at || !is_convolution(*at)) continue;
    const PartialShape shape = step_.shape(squeeze->out());
    if (!shape.has_rank() || shape.rank() != 3) continue;
    if (op == "BiasAdd" && data_format(node) != "NHWC") continue;
    if (vector) {
      const Tensor* by = step_.constant(node.inputs()[1 - i]);
      if (!by || by->rank() < 1 || by->rank() > 3 || by->dim(-1) != by->elements() || by->dim(-1) != shape[2]) continue;
    }
    std::vector<Output> inputs = node.inputs();
    inputs[i] = step_.now(squeeze->inputs()[0]);
    const Output y = step_.add_like(node, op, std::move(inputs), node.attrs());
    if (!y) return false;
    read_once_.insert(y.node);
    return put(step_.add_like(node, "Squeeze", {y}, squeeze->attrs()), node);
  }
  return false;
}

bool PlainConvolutions::visit(const Node& node) {
  if (!is_free(node) || (devices_.on_gpu && devices_.on_gpu(node))) return false;
  if (is_convolution(node)) return take_padding(node);
  if (node.op().name() == "BatchToSpaceND") return take_dilation(node);
  return sink_squeeze(node);
}

}  // namespace troupe
