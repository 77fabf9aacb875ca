// SPDX-License-Identifier: Apache-2.0
// First it is chosen which nodes change: all with NCHW images that can, and of the others those that read what changes
// and either read nothing else or are read by what changes. Of connected ones all change or none, by what it gains.
#include "graph/passes/choose_layout.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <set>

#include "graph/frames.h"

namespace troupe {
namespace {

using Role = LayoutRole;

constexpr int kToLast[] = {0, 2, 3, 1}, kToFirst[] = {0, 3, 1, 2};  // dimension i is dimension order[i] of the other
constexpr int kAxisInLast[] = {0, 3, 1, 2};                         // where a dimension of NCHW is in NHWC
constexpr size_t kMostConstantBytes = size_t{1} << 24;

/// What a transposition costs for each element, in nanoseconds.
constexpr double kTransposition = 0.5;

/// Roles of inputs and outputs: s same, i image, b broadcast, z sizes, p paddings, a axes; one before * fills what the
/// others leave. Ops with spaces between.
struct Row {
  std::string_view inputs, outputs, ops;
};
// With a data_format; gain() knows them.
constexpr Row kFormats[] = {
    {"is", "i", "Conv2D DepthwiseConv2dNative BiasAdd"},
    {"zsi", "i", "Conv2DBackpropInput DepthwiseConv2dNativeBackpropInput"},
    {"isi", "s", "Conv2DBackpropFilter DepthwiseConv2dNativeBackpropFilter"},
    {"i", "i", "MaxPool AvgPool SpaceToDepth DepthToSpace"},
    {"iii", "i", "MaxPoolGrad MaxPoolGradGrad"},
    {"zi", "i", "AvgPoolGrad"},
    {"izz", "i", "MaxPoolV2"},
    {"iiizz", "i", "MaxPoolGradV2 MaxPoolGradGradV2"},
    {"i", "s", "BiasAddGrad"},
    {"issss", "isssss", "FusedBatchNormV3"},
    {"iissss", "issss", "FusedBatchNormGradV3"},
};
constexpr Row kFormatless[] = {
    {"i", "i",
     "Abs Acos Acosh Asin Asinh Atan Atanh Cast Ceil CheckNumerics Conj Cos Cosh Digamma Elu Erf Erfc Exp Expm1 Floor "
     "Identity Inv IsFinite IsInf IsNan LeakyRelu Lgamma Log Log1p LogicalNot Neg OnesLike PreventGradient Reciprocal "
     "Relu Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh Snapshot Softplus Softsign Sqrt Square StopGradient Tan "
     "Tanh ZerosLike"},
    {"ii", "i",
     "EluGrad InvGrad LeakyReluGrad ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad SeluGrad SigmoidGrad SoftplusGrad "
     "SoftsignGrad SqrtGrad TanhGrad"},
    {"bb", "i",
     "Add AddV2 Atan2 Div DivNoNan Equal FloorDiv FloorMod Greater GreaterEqual Less LessEqual LogicalAnd LogicalOr "
     "Maximum Minimum Mul MulNoNan NotEqual Pow RealDiv SquaredDifference Sub Xdivy Xlogy"},
    {"bbb", "i", "SelectV2"},
    {"iii", "i", "Select"},
    {"ibb", "i", "ClipByValue"},
    {"i*", "i", "AddN"},
    {"ai*", "i", "Concat"},
    {"i*a", "i", "ConcatV2"},
    {"ai", "i*", "Split"},
    {"isa", "i*", "SplitV"},
    {"ip", "i", "Pad MirrorPad MirrorPadGrad"},
    {"ips", "i", "PadV2"},
    {"izz", "i", "Slice"},
    {"iz", "i", "Tile BroadcastTo"},
    {"ia", "i", "Sum Mean Max Min Prod"},
    {"ia", "s", "ArgMax ArgMin"},
    {"i", "z", "Shape"},
    {"i*", "z*", "ShapeN"},
    {"i", "s", "Size Rank Squeeze"},
    {"is", "s", "Reshape Transpose"},
    {"is", "ii", "Switch"},
    {"i*", "is", "Merge"},
};
constexpr int kFormatRows = std::size(kFormats);

std::vector<Role> roles(std::string_view text, size_t n) {
  std::vector<Role> out;
  const size_t others = text.size() - 2;  // where there is a *
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    const Role role = letter == 'i'   ? Role::kImage
                      : letter == 'b' ? Role::kBroadcast
                      : letter == 'z' ? Role::kSizes
                      : letter == 'p' ? Role::kPaddings
                      : letter == 'a' ? Role::kAxes
                                      : Role::kSame;
    const bool many = i + 1 < text.size() && text[i + 1] == '*';
    out.insert(out.end(), many ? n - others : 1, role);
    i += many;
  }
  return out;
}

bool is_image(Role role) { return role == Role::kImage || role == Role::kBroadcast; }

/// The values of a constant vector or scalar of integers.
std::optional<std::vector<int64_t>> integers(const Tensor* t) {
  if (!t || t->rank() > 1) return {};
  if (t->dtype() == DType::kInt32)
    return std::vector<int64_t>(t->values<int32_t>().begin(), t->values<int32_t>().end());
  if (t->dtype() == DType::kInt64)
    return std::vector<int64_t>(t->values<int64_t>().begin(), t->values<int64_t>().end());
  return {};
}

/// Where dimension `axis` of an NCHW image is in an NHWC one; none where the image has no such.
std::optional<int64_t> renamed(int64_t axis) {
  if (axis < -4 || axis >= 4) return {};
  return kAxisInLast[axis < 0 ? axis + 4 : axis];
}

/// Whether an image without these dimensions is the same in both layouts.
bool same_without(const std::vector<int64_t>& dropped) {
  bool gone[4] = {};
  for (const int64_t axis : dropped) gone[axis < 0 ? axis + 4 : axis] = true;
  return gone[1] || (gone[2] && gone[3]);
}

/// Rows of `row` bytes of a constant in another order.
Result<Tensor> rows_in_order(const Tensor& from, std::span<const int> order) {
  TROUPE_ASSIGN(Tensor to, Tensor::make(from.dtype(), from.shape()));
  const size_t row = from.bytes() / 4;
  for (size_t i = 0; i < 4; ++i)
    std::memcpy(static_cast<char*>(to.mutable_raw()) + i * row,
                static_cast<const char*>(from.raw()) + static_cast<size_t>(order[i]) * row, row);
  return to;
}

/// A constant image with its channels last; the dimensions that it lacks are of one element, and come first.
Result<Tensor> channels_last(const Tensor& from) {
  int64_t d[4] = {1, 1, 1, 1};
  for (int i = 0; i < from.rank(); ++i) d[4 - from.rank() + i] = from.dim(i);
  TROUPE_ASSIGN(Tensor to, Tensor::make(from.dtype(), {d[0], d[2], d[3], d[1]}));
  const size_t size = size_of(from.dtype());
  const auto* source = static_cast<const char*>(from.raw());
  auto* target = static_cast<char*>(to.mutable_raw());
  const int64_t places = d[2] * d[3];
  for (int64_t n = 0; n < d[0]; ++n)
    for (int64_t p = 0; p < places; ++p)
      for (int64_t c = 0; c < d[1]; ++c, target += size)
        std::memcpy(target, source + static_cast<size_t>((n * d[1] + c) * places + p) * size, size);
  return to;
}

/// Elements of one image of the batch; sizes that are not known count as 16.
double elements(const PartialShape& shape) {
  double n = 1;
  for (int i = 1; i < 4; ++i) n *= static_cast<double>(shape[i] < 0 ? 16 : shape[i]);
  return n;
}

/// Whether channels first and last are the same order of elements.
bool same_order(const PartialShape& s, bool channels_first) {
  const int channel = channels_first ? 1 : 3, place = channels_first ? 2 : 1;
  return s[channel] == 1 || (s[place] == 1 && s[place + 1] == 1);
}

/// What NHWC gains in the kernel of an op with formats, by the shape of its NCHW images and of its filter.
double gain(const std::string& op, const PartialShape& image, const PartialShape& filter) {
  const auto by = [&](double nanoseconds) { return nanoseconds * elements(image); };
  if (op.starts_with("Depthwise")) return by(0.3);
  if (op.starts_with("Conv2D") && filter.rank() == 4) {
    if (filter[0] == 1 && filter[1] == 1) return by(0.3);
    // After Winograd, for which images are brought into blocks from either layout.
    return filter[0] == 3 && filter[1] == 3 && filter[2] >= 32 && filter[3] >= 32 ? by(-0.3) : 0;
  }
  if (op.find("PoolGrad") != std::string::npos) return by(1.5);
  if (op.find("Pool") != std::string::npos) return by(0.6);
  if (!op.starts_with("FusedBatchNorm")) return 0;
  if (image[1] >= 0 && image[1] < 16) return by(-0.4);
  const int64_t places = image[2] < 0 || image[3] < 0 ? 1024 : image[2] * image[3];
  return by(places <= 256 ? 0.4 : places <= 1024 ? 0.1 : -0.2);
}

/// Attributes of an op with formats, for NHWC; none where they are at fault.
std::optional<Attrs> for_channels_last(const Attrs& from) {
  Attrs to = from;
  for (const char* name : {"strides", "dilations", "ksize", "explicit_paddings"}) {
    const auto* list = from.get<std::vector<int64_t>>(name);
    if (!list || list->empty()) continue;
    if (list->size() != 4 && list->size() != 8) return {};
    std::vector<int64_t> values;
    const size_t each = list->size() / 4;
    for (const int i : kToLast)
      for (size_t j = 0; j < each; ++j) values.push_back((*list)[static_cast<size_t>(i) * each + j]);
    to.set(name, std::move(values));
  }
  to.set("data_format", std::string("NHWC"));
  return to;
}

bool channels_first(const Node& node) {
  const auto* format = node.attrs().get<std::string>("data_format");
  return format && *format == "NCHW";
}

/// The input of a Transpose that the graph itself has, where it changes the order like this.
Output transposed_from(const StepGraph& step, const Node& node, std::span<const int> order) {
  if (node.op().name() != "Transpose" || !node.control_inputs().empty() || step.is_fed(node)) return {};
  const auto axes = integers(step.constant(node.inputs()[1]));
  return axes && std::ranges::equal(*axes, order) ? step.now(node.inputs()[0]) : Output();
}

}  // namespace

bool LayoutChoice::may_apply(const StepGraph& step) {
  return std::ranges::any_of(step.nodes(), [](const Node* n) { return channels_first(*n); });
}

LayoutChoice::LayoutChoice(StepGraph& step, PassDevices devices)
    : step_(step), devices_(std::move(devices)), chosen_(static_cast<size_t>(step.ids())) {
  const auto add = [&](std::span<const Row> rows, int first) {
    for (size_t i = 0; i < rows.size(); ++i)
      for (std::string_view names = rows[i].ops; !names.empty();) {
        const size_t end = std::min(names.find(' '), names.size());
        if (const OpDef* op = step.ops().find(names.substr(0, end))) rows_.emplace(op, first + static_cast<int>(i));
        names.remove_prefix(std::min(end + 1, names.size()));
      }
  };
  add(kFormats, 0);
  add(kFormatless, kFormatRows);
  step.for_each_wanted([&](Output o) { after_.push_back(o.node); });
  for (const Node* node : step.nodes())
    step.for_each_control(*node, [&](Output before) { after_.push_back(before.node); });
  std::ranges::sort(after_);
  const auto loops = [](const Node* n) { return n->op().control_flow() == ControlFlow::kEnter; };
  if (std::ranges::any_of(step.nodes(), loops)) {
    auto frames = find_frames(step, OpenLoops::kAllowed);
    if (!frames.ok()) return;
    frames_ = std::move(frames->of);
  }
  choose();
}

bool LayoutChoice::fits_input(Output input, Role role) const {
  const PartialShape shape = step_.shape(input);
  const Tensor* value = step_.constant(input);
  switch (role) {
    case Role::kSame: return true;
    case Role::kImage:
    case Role::kBroadcast:
      if (value && (value->bytes() > kMostConstantBytes || is_object(value->dtype()))) return false;
      if (shape.rank() == 4) return true;
      return role == Role::kBroadcast && shape.rank() < 4 && (value || shape.fully_known());
    case Role::kSizes: return shape.rank() == 1 && shape[0] == 4;
    case Role::kPaddings: return value && value->rank() == 2 && value->dim(0) == 4 && value->dim(1) == 2;
    case Role::kAxes: {
      const auto axes = integers(value);
      return axes && std::ranges::all_of(*axes, [](int64_t axis) { return renamed(axis).has_value(); });
    }
  }
  return false;
}

bool LayoutChoice::fits(const Node& node, LayoutRecipe& r) const {
  const std::string& op = node.op().name();
  const Output first = step_.now(node.inputs()[0]);
  const auto image = [&] { return step_.shape(first); };
  const bool keeps = node.attrs().get_or("keep_dims", false);
  if (op == "ArgMax" || op == "ArgMin" || (r.inputs.back() == Role::kAxes && node.attrs().has("keep_dims"))) {
    const auto axes = integers(step_.constant(node.inputs()[1]));
    if (!keeps) r.outputs[0] = Role::kSame;
    return keeps || (!axes->empty() && same_without(*axes));
  }
  if (op == "Squeeze") {
    std::vector<int64_t> axes = node.attrs().get_or<std::vector<int64_t>>("squeeze_dims", {});
    if (axes.empty()) {
      if (!image().fully_known()) return false;
      for (int i = 0; i < 4; ++i)
        if (image()[i] == 1) axes.push_back(i);
      if (axes.empty()) return false;
    }
    std::vector<int64_t> now;
    for (const int64_t axis : axes)
      if (const auto at = renamed(axis)) now.push_back(*at);
    r.attrs.set("squeeze_dims", now);
    return now.size() == axes.size() && same_without(axes);
  }
  if (op == "Reshape") return same_order(image(), true);
  if (op == "Transpose") return static_cast<bool>(transposed_from(step_, node, kToLast));
  if (op == "Switch") return !std::ranges::binary_search(after_, &node);
  return true;
}

std::optional<LayoutRecipe> LayoutChoice::recipe(const Node& node) const {
  const auto at = rows_.find(&node.op());
  if (at == rows_.end() || node.inputs().empty() || step_.is_fed(node) || node.open()) return {};
  if (devices_.on_gpu && devices_.on_gpu(node)) return {};
  if (const auto id = static_cast<size_t>(node.id()); id < frames_.size() && frames_[id] != 0) return {};
  if (node.op().is_stateful() && node.op().control_flow() == ControlFlow::kNone) return {};
  const bool format = at->second < kFormatRows;
  if (format && !channels_first(node)) return {};
  const Row& row = format ? kFormats[at->second] : kFormatless[at->second - kFormatRows];
  LayoutRecipe r{roles(row.inputs, node.inputs().size()), roles(row.outputs, static_cast<size_t>(node.num_outputs())),
                 node.attrs(), format, 0};
  if (r.inputs.size() != node.inputs().size() || r.outputs.size() != static_cast<size_t>(node.num_outputs())) return {};
  for (size_t i = 0; i < r.inputs.size(); ++i)
    if (!fits_input(node.inputs()[i], r.inputs[i])) return {};
  if (!fits(node, r)) return {};
  for (int i = 0; i < node.num_outputs(); ++i)
    if (r.outputs[static_cast<size_t>(i)] == Role::kImage && step_.shape({&node, i}).rank() != 4) return {};
  if (!format) return r;
  auto attrs = for_channels_last(node.attrs());
  if (!attrs) return {};
  r.attrs = std::move(*attrs);
  const bool by_sizes = r.inputs[0] == Role::kSizes;
  const PartialShape filter = node.inputs().size() > 1 ? step_.shape(node.inputs()[1]) : PartialShape();
  r.gain = gain(node.op().name(), step_.shape(by_sizes ? node.out() : node.inputs()[0]),
                r.outputs[0] == Role::kSame ? step_.shape(node.out()) : filter);
  return r;
}

bool LayoutChoice::changed(Output output) const {
  const Output o = step_.now(output);
  const auto id = static_cast<size_t>(o.node->id());
  return (id < chosen_.size() && chosen_[id] && !step_.is_fed(o)) || transposed_from(step_, *o.node, kToFirst);
}

void LayoutChoice::choose() {
  const auto& nodes = step_.nodes();
  std::vector<bool> able(chosen_.size()), wanted(chosen_.size());  // by id; wanted: a changed node reads it as an image
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = *nodes[i];
    const auto id = static_cast<size_t>(node.id());
    const auto r = recipe(node);
    able[id] = r.has_value();
    if (!r || (!r->has_format && !wanted[id])) continue;
    for (size_t k = 0; k < r->inputs.size(); ++k)
      if (is_image(r->inputs[k])) wanted[static_cast<size_t>(step_.now(node.inputs()[k]).node->id())] = true;
  }
  std::vector<const Node*> chosen;
  std::vector<bool> seen(chosen_.size());
  for (const Node* node : nodes) {
    const auto id = static_cast<size_t>(node->id());
    seen[id] = true;
    if (!able[id]) continue;
    const auto r = recipe(*node);
    bool any = r->has_format, all = true, loop = false;
    for (size_t k = 0; k < r->inputs.size(); ++k) {
      if (!is_image(r->inputs[k])) continue;
      const Output input = step_.now(node->inputs()[k]);
      loop |= !seen[static_cast<size_t>(input.node->id())] && !step_.is_fed(input);
      const bool is = changed(input);
      any |= is;
      all &= is || step_.constant(input) || step_.shape(input).rank() < 4;
    }
    if (!any || loop || !(all || r->has_format || wanted[id])) continue;
    chosen_[id] = true;
    chosen.push_back(node);
  }
  drop_losses(chosen);
}

void LayoutChoice::drop_losses(const std::vector<const Node*>& chosen) {
  std::vector<int> group(chosen_.size());  // by id: of connected nodes one stands for all
  std::iota(group.begin(), group.end(), 0);
  const auto find = [&](int id) {
    while (group[static_cast<size_t>(id)] != id)
      id = group[static_cast<size_t>(id)] = group[static_cast<size_t>(group[static_cast<size_t>(id)])];
    return id;
  };
  const auto is_chosen = [&](const Node& n) {
    return static_cast<size_t>(n.id()) < chosen_.size() && chosen_[static_cast<size_t>(n.id())];
  };
  // Images that a chosen node makes or reads, for each reader.
  const auto each_image = [&](const Node& node, auto&& f) {
    const auto r = is_chosen(node) ? recipe(node) : std::nullopt;
    for (size_t k = 0; k < node.inputs().size(); ++k) f(step_.now(node.inputs()[k]), r && is_image(r->inputs[k]));
  };
  for (const Node* node : chosen)
    each_image(*node, [&](Output input, bool image) {
      if (image && is_chosen(*input.node) && !step_.is_fed(input))
        group[static_cast<size_t>(find(input.node->id()))] = find(node->id());
    });
  std::unordered_map<int, double> gains;  // by group
  std::set<std::pair<int, Key>> borders;
  const auto cross = [&](int of, Output image) {
    const PartialShape shape = step_.shape(image);
    if (shape.rank() != 4 || same_order(shape, true) || !borders.insert({of, {image.node, image.port}}).second) return;
    gains[of] -= kTransposition * elements(shape);
  };
  const auto leave = [&](Output o) {
    if (!is_chosen(*o.node) || step_.is_fed(o)) return;
    if (recipe(*o.node)->outputs[static_cast<size_t>(o.port)] == Role::kImage) cross(find(o.node->id()), o);
  };
  for (const Node* node : chosen) gains[find(node->id())] += recipe(*node)->gain;
  for (const Node* node : step_.nodes())
    each_image(*node, [&](Output input, bool image) {
      if (!image) leave(input);
      else if (!changed(input) && !step_.constant(input)) cross(find(node->id()), input);
    });
  step_.for_each_wanted(leave);
  for (const Node* node : chosen) chosen_[static_cast<size_t>(node->id())] = gains[find(node->id())] > 0;
}

Output LayoutChoice::reordered(const Node& node, Output image, std::span<const int> order) {
  if (!image) return {};
  const PartialShape shape = image.shape();
  const bool to_last = order.data() == kToLast;
  std::vector<int32_t> values(order.begin(), order.end());
  const char* op = "Transpose";
  if (same_order(shape, to_last) && std::ranges::count(shape.dims(), -1) <= 1 &&
      std::ranges::none_of(shape.dims(), [](int64_t d) { return d == 0 || d > INT32_MAX; })) {
    op = "Reshape";
    for (size_t i = 0; i < 4; ++i) values[i] = static_cast<int32_t>(shape[order[i]]);
  }
  const auto constant = step_.add_constant(Tensor::of<int32_t>(std::span<const int32_t>(values)), node);
  return constant.ok() ? step_.add_like(node, op, {image, *constant}) : Output();
}

Output LayoutChoice::lifted(const Node& node, Output image) {
  const PartialShape shape = image.shape();
  if (shape.rank() == 4) return image;
  std::vector<int32_t> sizes(static_cast<size_t>(4 - shape.rank()), 1);
  for (const int64_t size : shape.dims()) sizes.push_back(static_cast<int32_t>(size));
  const auto constant = step_.add_constant(Tensor::of<int32_t>(std::span<const int32_t>(sizes)), node);
  return constant.ok() ? step_.add_like(node, "Reshape", {image, *constant}) : Output();
}

Output LayoutChoice::read(const Node& node, Output input, Role role) {
  input = step_.now(input);
  const bool image = is_image(role);
  if (role == Role::kSame || (image && step_.shape(input).rank() == 0)) return input;
  const Key key = {input.node, input.port};
  if (image || role == Role::kSizes) {
    if (const auto at = changed_.find(key); at != changed_.end()) return at->second;
    if (const Output from = transposed_from(step_, *input.node, kToFirst); image && from) return from;
    if (const auto at = transposed_.find({key, node.device()}); at != transposed_.end()) return at->second;
  }
  const auto constant = [&](Result<Tensor> value) {
    auto added = value.ok() ? step_.add_constant(std::move(*value), node) : Result<Output>(value.error());
    return added.ok() ? *added : Output();
  };
  const Tensor* value = step_.constant(input);
  Output out;
  if (role == Role::kAxes) {
    Tensor axes = *Tensor::make(value->dtype(), value->shape());
    const auto old = *integers(value);
    for (size_t i = 0; i < old.size(); ++i) {
      if (axes.dtype() == DType::kInt32) axes.mutable_data<int32_t>()[i] = static_cast<int32_t>(*renamed(old[i]));
      else axes.mutable_data<int64_t>()[i] = *renamed(old[i]);
    }
    return constant(std::move(axes));
  }
  if (role == Role::kPaddings || (role == Role::kSizes && value)) return constant(rows_in_order(*value, kToLast));
  if (image && value) out = constant(channels_last(*value));
  else if (image) out = reordered(node, lifted(node, input), kToLast);
  else {
    const Output order = constant(Tensor::of<int32_t>(kToLast)), axis = constant(Tensor::scalar<int32_t>(0));
    out = order && axis ? step_.add_like(node, "GatherV2", {input, order, axis}) : Output();
  }
  if (out) transposed_[{key, node.device()}] = out;
  return out;
}

bool LayoutChoice::visit(const Node& node) {
  if (static_cast<size_t>(node.id()) >= chosen_.size() || !chosen_[static_cast<size_t>(node.id())]) return false;
  const auto r = recipe(node);
  if (!r) return false;
  std::vector<Output> inputs, by;
  for (size_t i = 0; i < r->inputs.size(); ++i) {
    inputs.push_back(read(node, node.inputs()[i], r->inputs[i]));
    if (!inputs.back()) return false;
  }
  if (node.op().name() == "Transpose") {
    step_.replace(node, {&inputs[0], 1});
    return true;
  }
  auto made =
      step_.add({node.op().name(), node.name(), std::move(inputs), r->attrs, node.control_inputs(), node.device()});
  if (!made.ok()) return false;
  for (int i = 0; i < node.num_outputs(); ++i) {
    const Role role = r->outputs[static_cast<size_t>(i)];
    Output out = (*made)->out(i);
    if (role == Role::kImage) {
      out = reordered(node, out, kToFirst);
    } else if (role == Role::kSizes) {
      const auto order = step_.add_constant(Tensor::of<int32_t>(kToFirst), node);
      const auto axis = step_.add_constant(Tensor::scalar<int32_t>(0), node);
      out = order.ok() && axis.ok() ? step_.add_like(node, "GatherV2", {out, *order, *axis}) : Output();
    }
    if (!out) return false;
    by.push_back(out);
    if (role != Role::kSame) changed_[{out.node, out.port}] = (*made)->out(i);
  }
  step_.replace(node, by);
  return true;
}

}  // namespace troupe
