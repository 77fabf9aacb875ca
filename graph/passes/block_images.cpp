// SPDX-License-Identifier: Apache-2.0
// Which nodes work on blocks of channels, and what comes in their places.
#include "graph/passes/block_images.h"

#include <algorithm>
#include <numeric>

#include "graph/passes/same_place.h"

namespace troupe {
namespace {

constexpr int64_t kBlockChannels = 16;  // channels: ops/parts/image_blocks.h
constexpr int64_t kMostOfFirst = 3;     // channels of images that oneDNN makes blocks of itself
// Nanoseconds an element, measured on AVX-512 with one thread.
constexpr double kGain = 0.1;          // of what a convolution reads and writes
constexpr double kGreyGain = 0.5;      // of what one of images of one channel writes
constexpr double kWinogradGain = 0.3;  // of one that may be done after Winograd, which works on blocks
constexpr double kChange = 0.5;        // to blocks or back

int64_t blocks(int64_t channels) { return (channels + kBlockChannels - 1) / kBlockChannels; }
/// Enough channels, without too much of the last block left empty.
bool fills_blocks(int64_t channels) {
  return channels >= kBlockChannels && 3 * blocks(channels) * kBlockChannels <= 4 * channels;
}

/// Whether it is of images whose sizes are known, but perhaps for the batch.
bool is_known(const PartialShape& s) { return s.has_rank() && s.rank() == 4 && s[1] >= 0 && s[2] >= 0 && s[3] > 0; }
double image_elements(const PartialShape& s) {
  if (!is_known(s)) return 0;
  return static_cast<double>(std::max<int64_t>(s[0], 1)) * static_cast<double>(s[1] * s[2]) * static_cast<double>(s[3]);
}

bool is_depthwise(const Node& node) { return node.op().name().ends_with("DepthwiseConv2dNative"); }

}  // namespace

bool ImageBlocks::is_convolution(const Node& node, Role& role) const {
  const std::string& op = node.op().name();
  const bool depthwise = is_depthwise(node);
  if (op != "Conv2D" && op != "_FusedConv2D" && op != "DepthwiseConv2dNative" && op != "_FusedDepthwiseConv2dNative")
    return false;
  const Tensor* filter = step_.constant(node.inputs()[1]);
  const PartialShape in = step_.shape(node.inputs()[0]), out = step_.shape(node.out());
  if (!filter || filter->rank() != 4 || !is_known(in) || !is_known(out)) return false;
  if (in[1] * in[2] == 1 && out[1] * out[2] == 1) return false;  // one place is the same either way
  // Of one channel the kernels for blocks are so much faster that even a third of a block is worth it.
  if (!fills_blocks(out[3]) && (depthwise || in[3] != 1 || 3 * out[3] < kBlockChannels)) return false;
  if (depthwise ? filter->dim(3) != 1 || in[3] % kBlockChannels != 0 : filter->dim(2) != in[3]) return false;
  if (fills_blocks(in[3])) role = Role::kConvolution;
  else if (!depthwise && in[3] <= kMostOfFirst) role = Role::kFirst;
  else return false;
  return true;
}

ImageBlocks::Role ImageBlocks::role(const Node& node, const PassDevices& devices) const {
  if (node.num_outputs() != 1 || node.dtype(0) != DType::kFloat32 || node.inputs().empty() || step_.is_fed(node) ||
      !node.control_inputs().empty() || data_format(node) != "NHWC" || (devices.on_gpu && devices.on_gpu(node)))
    return Role::kNone;
  Role role = Role::kNone;
  if (is_convolution(node, role)) return role;
  const std::string& op = node.op().name();
  if (op == "MaxPool") role = Role::kPool;
  else if (op == "Relu" || op == "Relu6" || op == "AddV2" || op == "Add") role = Role::kElements;
  else if (op == "Mul" && (scales(node, 0) || scales(node, 1))) return Role::kScale;
  else if (op == "Mean" && is_mean_of_places(node)) return Role::kMean;
  else return Role::kNone;
  const PartialShape out = step_.shape(node.out());
  if (!is_known(out)) return Role::kNone;
  for (const Output& input : node.inputs()) {
    const Output now = step_.now(input);
    const PartialShape in = step_.shape(now);
    if (!gives_blocks(*now.node) || step_.is_fed(now) || !is_known(in)) return Role::kNone;
    if (role == Role::kElements && !std::ranges::equal(in.dims(), out.dims())) return Role::kNone;
  }
  return role;
}

bool ImageBlocks::scales(const Node& node, size_t image) const {
  const Output of = step_.now(node.inputs()[image]), by = step_.now(node.inputs()[1 - image]);
  const PartialShape x = step_.shape(of), scale = step_.shape(by);
  if (!gives_blocks(*of.node) || step_.is_fed(of) || !is_known(x) || !is_known(scale)) return false;
  return (scale[0] == 1 || scale[0] == x[0]) && scale[1] == 1 && scale[2] == 1 && scale[3] == x[3] && x[1] * x[2] > 1;
}

bool ImageBlocks::is_mean_of_places(const Node& node) const {
  const Output of = step_.now(node.inputs()[0]);
  const Tensor* over = step_.constant(node.inputs()[1]);
  if (!gives_blocks(*of.node) || step_.is_fed(of) || !is_known(step_.shape(of)) || !over || over->elements() != 2)
    return false;
  const auto dimension = [&](int64_t i) {
    const int64_t d = over->dtype() == DType::kInt64 ? over->data<int64_t>()[i] : over->data<int32_t>()[i];
    return d < 0 ? d + 4 : d;
  };
  return std::min(dimension(0), dimension(1)) == 1 && std::max(dimension(0), dimension(1)) == 2;
}

std::vector<size_t> ImageBlocks::images(const Node& node, Role role) const {
  if (role == Role::kScale) {
    const PartialShape x = step_.shape(node.inputs()[0]);
    return {x[1] * x[2] > 1 ? size_t{0} : size_t{1}};  // the other is of one place
  }
  std::vector<size_t> out;
  if (role != Role::kFirst) out.push_back(0);
  if (role == Role::kElements && node.inputs().size() > 1) out.push_back(1);
  if (role == Role::kFirst || role == Role::kConvolution) {
    const auto* ops = node.attrs().get<std::vector<std::string>>("fused_ops");
    if (ops && std::ranges::find(*ops, "Add") != ops->end()) out.push_back(node.inputs().size() - 1);
  }
  return out;
}

double ImageBlocks::gain(const Node& node, Role role) const {
  if (role != Role::kFirst && role != Role::kConvolution) return 0;
  double read_written = image_elements(step_.shape(node.out()));
  if (role == Role::kConvolution) read_written += image_elements(step_.shape(node.inputs()[0]));
  else if (step_.shape(node.inputs()[0])[3] == 1) return kGreyGain * read_written;
  const Tensor& filter = *step_.constant(node.inputs()[1]);
  const auto* strides = node.attrs().get<std::vector<int64_t>>("strides");
  const bool winograd = role == Role::kConvolution && !is_depthwise(node) && filter.dim(0) == 3 && filter.dim(1) == 3 &&
                        strides && std::ranges::count(*strides, 1) == 4;
  return (winograd ? kWinogradGain : kGain) * read_written;
}

ImageBlocks::ImageBlocks(StepGraph& step, const PassDevices& devices)
    : step_(step), roles_(static_cast<size_t>(step.ids())) {
  if (!step.ops().find("_BlockedConv2D")) return;
  for (const Node* node : step.nodes()) roles_[static_cast<size_t>(node->id())] = role(*node, devices);
  drop_losses();
}

void ImageBlocks::drop_losses() {
  std::vector<int> parent(roles_.size());
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int id) {  // of what is connected with it
    while (parent[static_cast<size_t>(id)] != id)
      id = parent[static_cast<size_t>(id)] = parent[static_cast<size_t>(parent[static_cast<size_t>(id)])];
    return id;
  };
  const auto reads_blocks = [&](const Node& node, size_t i) {
    const auto images = this->images(node, role_of(node));
    return role_of(node) != Role::kNone && std::ranges::find(images, i) != images.end();
  };
  for (const Node* node : step_.nodes())
    for (size_t i = 0; i < node->inputs().size(); ++i)
      if (const Output now = step_.now(node->inputs()[i]); reads_blocks(*node, i) && gives_blocks(*now.node))
        parent[static_cast<size_t>(root(node->id()))] = root(now.node->id());
  std::vector<double> gains(roles_.size());
  std::vector<bool> leaves(roles_.size());
  std::map<std::pair<std::pair<int, int>, int>, Output> enters;  // by id and port, and the nodes to which
  for (const Node* node : step_.nodes()) {
    gains[static_cast<size_t>(root(node->id()))] += gain(*node, role_of(*node));
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      const Output now = step_.now(node->inputs()[i]);
      const bool in_blocks = gives_blocks(*now.node);
      if (reads_blocks(*node, i)) {
        if (!in_blocks) enters[{{now.node->id(), now.port}, root(node->id())}] = now;
      } else if (in_blocks) {
        leaves[static_cast<size_t>(now.node->id())] = true;
      }
    }
  }
  step_.for_each_wanted([&](const Output& o) {
    if (gives_blocks(*o.node)) leaves[static_cast<size_t>(o.node->id())] = true;
  });
  for (const auto& [key, image] : enters)
    gains[static_cast<size_t>(key.second)] -= kChange * image_elements(step_.shape(image));
  for (const Node* node : step_.nodes())
    if (leaves[static_cast<size_t>(node->id())])
      gains[static_cast<size_t>(root(node->id()))] -= kChange * image_elements(step_.shape(node->out()));
  for (const Node* node : step_.nodes())
    if (gains[static_cast<size_t>(root(node->id()))] <= 0) roles_[static_cast<size_t>(node->id())] = Role::kNone;
}

Output ImageBlocks::in_blocks(const Node& node, Output image) {
  image = step_.now(image);
  if (image.node->op().name() == "_UnblockImages") return image.node->inputs()[0];
  Output& known = blocked_[{{image.node->id(), image.port}, node.device()}];
  if (!known) known = step_.add_like(node, "_BlockImages", {image});
  return known;
}

Output ImageBlocks::make(const Node& node, Role role) {
  std::vector<Output> inputs = node.inputs();
  for (const size_t i : images(node, role))
    if (!(inputs[i] = in_blocks(node, inputs[i]))) return {};
  const PartialShape in = step_.shape(node.inputs()[0]), out = step_.shape(node.out());
  if (role == Role::kMean)
    return step_.add_like(node, "_MeanOfBlockedImages", {inputs[0]},
                          {{"channels", in[3]}, {"keep_dims", node.attrs().get_or("keep_dims", false)}});
  if (role == Role::kScale) {
    const size_t image = images(node, role)[0];
    return step_.add_like(node, "_ScaleBlockedImages", {inputs[image], inputs[1 - image]});
  }
  if (role == Role::kElements) return step_.add_like(node, node.op().name(), std::move(inputs), node.attrs());
  if (role == Role::kPool) {
    // The blocks of an image are images of 16 channels.
    const auto reshape = [&](Output x, std::initializer_list<int64_t> sizes) -> Output {
      const auto shape = step_.add_constant(Tensor::of<int64_t>(sizes), node);
      return shape.ok() && x ? step_.add_like(node, "Reshape", {x, *shape}) : Output();
    };
    const Output flat = reshape(inputs[0], {-1, in[1], in[2], kBlockChannels});
    if (!flat) return {};
    return reshape(step_.add_like(node, "MaxPool", {flat}, node.attrs()),
                   {-1, blocks(out[3]), out[1], out[2], kBlockChannels});
  }
  Attrs attrs;
  for (const char* name : {"strides", "padding", "explicit_paddings", "dilations", "num_args", "fused_ops"})
    if (const AttrValue* value = node.attrs().find(name)) attrs.set(name, *value);
  if (!attrs.has("fused_ops")) {
    attrs.set("num_args", int64_t{0});
    attrs.set("fused_ops", std::vector<std::string>());
  }
  attrs.set("depthwise", is_depthwise(node));
  attrs.set("blocked", role == Role::kConvolution);
  attrs.set("channels", in[3]);
  return step_.add_like(node, "_BlockedConv2D", std::move(inputs), std::move(attrs));
}

bool ImageBlocks::visit(const Node& node) {
  const Role role = role_of(node);
  if (role == Role::kNone) return false;
  const Output made = make(node, role);
  if (!made) return false;
  const Output by = gives_blocks(node)
                        ? step_.add_like(node, "_UnblockImages", {made}, {{"channels", step_.shape(node.out())[3]}})
                        : made;
  if (!by) return false;
  step_.replace(node, {&by, 1});
  return true;
}

}  // namespace troupe
