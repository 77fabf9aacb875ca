// SPDX-License-Identifier: Apache-2.0
// Op schemas: parsing of their texts, the registry, shape functions that many ops share.
#include "troupe/op.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "graph/near_names.h"

namespace troupe {
namespace {

/// A malformed schema is our own bug; says which text of which op.
[[noreturn]] void bad_schema(std::string_view op, std::string_view text, std::string_view why) {
  std::fputs(fmt::format("op {}: malformed schema \"{}\": {}\n", op, text, why).c_str(), stderr);
  std::abort();
}

/// The same of an op as a whole.
[[noreturn]] void bad_op(std::string_view op, std::string_view why) {
  std::fputs(fmt::format("op {}: {}\n", op, why).c_str(), stderr);
  std::abort();
}

/// Reads one schema text from left to right.
class SchemaReader {
 public:
  SchemaReader(std::string_view op, std::string_view text) : op_(op), text_(text), rest_(text) {}

  [[noreturn]] void fail(std::string_view why) const { bad_schema(op_, text_, why); }

  bool take(std::string_view token) {
    skip_space();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail(fmt::format("expected '{}'", token));
  }
  void expect_end() {
    skip_space();
    if (!rest_.empty()) fail(fmt::format("'{}' is left over", rest_));
  }
  std::string word() {
    skip_space();
    size_t n = 0;
    while (n < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[n])) || rest_[n] == '_')) ++n;
    if (n == 0) fail("expected a name");
    std::string out(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return out;
  }
  bool at_quote() {
    skip_space();
    return !rest_.empty() && (rest_[0] == '\'' || rest_[0] == '"');
  }
  std::string quoted() {
    if (!at_quote()) fail("expected a quoted string");
    const size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) fail("a quote is not closed");
    std::string out(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return out;
  }
  template <class T> T number() {
    skip_space();
    T value{};
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) fail("expected a number");
    rest_.remove_prefix(end - rest_.data());
    return value;
  }
  bool boolean() {
    const std::string w = word();
    if (w != "true" && w != "false") fail("expected true or false");
    return w == "true";
  }
  DType dtype() {
    const std::string w = word();
    const std::optional<DType> found = dtype_from_string(w);
    if (!found) fail(fmt::format("unknown type '{}'", w));
    return *found;
  }
  /// "<unknown>", "[]", "[2,?,-1]".
  PartialShape shape() {
    if (take("<unknown>")) return PartialShape::unknown();
    expect("[");
    PartialShape out = PartialShape::scalar();
    while (!take("]")) {
      out.push_back(take("?") ? -1 : number<int64_t>());
      take(",");
    }
    return out;
  }
  template <class F> auto list(F item) {
    std::vector<decltype(item())> out;
    expect("[");
    while (!take("]")) {
      out.push_back(item());
      take(",");
    }
    return out;
  }

 private:
  void skip_space() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
  }
  std::string_view op_, text_, rest_;
};

ArgDef parse_arg(std::string_view op, std::string_view text) {
  SchemaReader r(op, text);
  ArgDef arg;
  arg.name = r.word();
  r.expect(":");
  std::string type = r.word();
  if (r.take("*")) {
    arg.number_attr = std::move(type);
    type = r.word();
  }
  r.expect_end();
  if (const std::optional<DType> dtype = dtype_from_string(type)) arg.dtype = *dtype;
  else arg.type_attr = std::move(type);  // OpRegistry::add moves it where the attribute is a list of types
  return arg;
}

AttrValue parse_default(SchemaReader& r, std::string_view type) {
  const auto integer = [&] { return r.number<int64_t>(); };
  const auto real = [&] { return r.number<float>(); };
  const auto boolean = [&] { return r.boolean(); };
  const auto quoted = [&] { return r.quoted(); };
  const auto dtype = [&] { return r.dtype(); };
  const auto shape = [&] { return r.shape(); };
  if (type == "int") return integer();
  if (type == "float") return real();
  if (type == "bool") return boolean();
  if (type == "string") return quoted();
  if (type == "type") return dtype();
  if (type == "shape") return shape();
  if (type == "list(int)") return r.list(integer);
  if (type == "list(float)") return r.list(real);
  if (type == "list(bool)") return r.list(boolean);
  if (type == "list(string)") return r.list(quoted);
  if (type == "list(type)") return r.list(dtype);
  if (type == "list(shape)") return r.list(shape);
  r.fail(fmt::format("no default can be written for {}", type));
}

constexpr const char* kAttrTypes[] = {"int", "float", "bool", "string", "type", "shape", "tensor"};

/// "int", "list(int)", "{float32, int32}", "{'SAME', 'VALID'}", "list({float32, int32})".
void parse_attr_type(SchemaReader& r, AttrDef& attr) {
  const bool list = r.take("list(");
  if (r.take("{")) {
    attr.type = r.at_quote() ? "string" : "type";
    while (!r.take("}")) {
      if (attr.type == "string") attr.allowed_values.push_back(r.quoted());
      else attr.allowed_types.push_back(r.dtype());
      r.take(",");
    }
  } else {
    attr.type = r.word();
    if (std::ranges::find(kAttrTypes, attr.type) == std::end(kAttrTypes)) r.fail("unknown type of attribute");
  }
  if (!list) return;
  r.expect(")");
  if (attr.type == "tensor") r.fail("there are no lists of tensors");
  attr.type = "list(" + attr.type + ")";
}

}  // namespace

Gradient::Gradient() = default;
Gradient::Gradient(GradientFn function, std::string_view no_gradient_reason)
    : function(std::move(function)), no_gradient_reason(no_gradient_reason) {}
Gradient::Gradient(const Gradient& other) = default;
Gradient::Gradient(Gradient&& other) noexcept = default;
Gradient& Gradient::operator=(Gradient&& other) noexcept = default;
Gradient::~Gradient() = default;

Gradient gradient(GradientFn function) { return {std::move(function), {}}; }
Gradient not_differentiable(std::string_view reason) { return {{}, reason}; }

OpDef::OpDef(std::string_view name) : name_(name), cost_(arithmetic_cost) {}
OpDef::OpDef(const OpDef& other) = default;
OpDef::OpDef(OpDef&& other) noexcept = default;
OpDef::~OpDef() = default;

OpDef& OpDef::doc(std::string_view text) {
  doc_ = text;
  return *this;
}

OpDef& OpDef::shape(ShapeFn fn) {
  shape_ = std::move(fn);
  return *this;
}

OpDef& OpDef::stateful() {
  stateful_ = true;
  return *this;
}

OpDef& OpDef::control_flow(ControlFlow flow) {
  control_flow_ = flow;
  return *this;
}

OpDef& OpDef::cost(CostFn fn) {
  cost_ = std::move(fn);
  return *this;
}

OpDef& OpDef::updates_variable() {
  updates_variable_ = true;
  return cost(update_cost);
}

OpDef& OpDef::input(std::string_view text) {
  inputs_.push_back(parse_arg(name_, text));
  return *this;
}

OpDef& OpDef::output(std::string_view text) {
  outputs_.push_back(parse_arg(name_, text));
  return *this;
}

OpDef& OpDef::attr(std::string_view text) {
  SchemaReader r(name_, text);
  AttrDef attr;
  attr.name = r.word();
  r.expect(":");
  parse_attr_type(r, attr);
  if (r.take(">=")) {
    if (attr.type != "int" && !attr.type.starts_with("list(")) r.fail("only an int or a list has a minimum");
    attr.minimum = r.number<int64_t>();
  }
  if (r.take("=")) attr.default_value = parse_default(r, attr.type);
  r.expect_end();
  if (find_attr(attr.name)) r.fail("the attribute is there already");
  attrs_.push_back(std::move(attr));
  return *this;
}

const AttrDef* OpDef::find_attr(std::string_view name) const {
  for (const AttrDef& attr : attrs_)
    if (attr.name == name) return &attr;
  return nullptr;
}

void OpRegistry::add(const OpDef& schema, Gradient gradient) {
  OpDef op = schema;
  if (op.doc_.empty()) bad_op(op.name_, "it has no doc");
  if (!op.shape_) bad_op(op.name_, "it has no shape function");
  if (!gradient.function && gradient.no_gradient_reason.empty())
    bad_op(op.name_, "it has neither a gradient nor a reason for none");
  for (std::vector<ArgDef>* args : {&op.inputs_, &op.outputs_}) {
    for (ArgDef& arg : *args) {
      if (!arg.number_attr.empty()) {
        const AttrDef* number = op.find_attr(arg.number_attr);
        if (!number || number->type != "int") bad_schema(op.name_, arg.name, "its number is not an int attribute");
      }
      if (arg.type_attr.empty()) continue;
      const AttrDef* type = op.find_attr(arg.type_attr);
      if (type && type->type == "list(type)" && arg.number_attr.empty()) std::swap(arg.type_list_attr, arg.type_attr);
      else if (!type || type->type != "type")
        bad_schema(op.name_, arg.name, "its type is neither a type nor a type attribute");
    }
  }
  op.gradient_ = std::move(gradient);
  std::string name = op.name_;
  const bool added = ops_.try_emplace(name, std::make_shared<const OpDef>(std::move(op))).second;
  if (!added)
    bad_op(name,
           "it is registered twice: call each function that registers ops once in EngineOptions::register_ops, "
           "and name ops of your own otherwise than those of docs/ops.md");
}

const OpDef* OpRegistry::find(std::string_view name) const {
  const auto at = ops_.find(name);
  return at == ops_.end() ? nullptr : at->second.get();
}

std::vector<std::string> OpRegistry::near(std::string_view name) const {
  NearNames names(name);
  for (const auto& [other, op] : ops_) names.offer(other);
  return names.take();
}

Result<PartialShape> ShapeContext::with_rank(int i, int rank) const {
  const PartialShape& shape = input(i);
  if (!shape.has_rank()) return PartialShape::of_rank(rank);
  if (shape.rank() != rank)
    return invalid_argument("input {} must have rank {}, but its shape is {}", i, rank, shape.str());
  return shape;
}

Result<PartialShape> ShapeContext::with_rank_at_least(int i, int rank) const {
  const PartialShape& shape = input(i);
  if (shape.has_rank() && shape.rank() < rank)
    return invalid_argument("input {} must have rank {} or more, but its shape is {}", i, rank, shape.str());
  return shape;
}

Status unchanged_shape(ShapeContext& c) {
  c.set_output(0, c.input(0));
  return {};
}

Status broadcast_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape shape, broadcast(c.input(0), c.input(1)));
  c.set_output(0, shape);
  return {};
}

Status scalar_shape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape::scalar());
  return {};
}

Status unknown_shape(ShapeContext&) { return {}; }

Status no_outputs(ShapeContext&) { return {}; }

}  // namespace troupe
