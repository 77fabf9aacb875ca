// SPDX-License-Identifier: Apache-2.0
// Makes cases from schemas and rules. The language of the rules is told in op_rules.cpp.
#include "tests/fuzz/op_case.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "tests/fuzz/op_rules.h"

namespace troupe::fuzz {
namespace {

/// Parts of `text` between `separator`s that are in no bracket and no quotation.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  bool quoted = false;
  for (const char c : text) {
    if (c == '\'') quoted = !quoted;
    if (!quoted && (c == '[' || c == '(' || c == '{')) ++depth;
    if (!quoted && (c == ']' || c == ')' || c == '}')) --depth;
    if (c == separator && depth == 0 && !quoted) parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

/// Parts that are not empty.
std::vector<std::string> words(std::string_view text, char separator = ' ') {
  std::vector<std::string> out;
  for (std::string& part : split(text, separator))
    if (!part.empty()) out.push_back(std::move(part));
  return out;
}

[[noreturn]] void wrong(const std::string& what, std::string_view where) {
  detail::abort_with(invalid_argument("rules of the op fuzzer: {} in \"{}\"", what, where));
}

Rule::Statement read_statement(std::string_view text, Rule& rule) {
  Rule::Statement s;
  for (const std::string& token : words(text)) {
    if (token == "~close") rule.close = true;
    else if (token == "~unordered") rule.unordered = true;
    else if (token == "~unsteady") rule.unsteady = true;
    else if (token == "~fails") rule.fails = true;
    else if (const auto arrow = token.find("<-"); arrow != std::string::npos && token.find('=') == std::string::npos) {
      s.name = token.substr(0, arrow);
      s.op = token.substr(arrow + 2);
    } else {
      const size_t at = token.find_first_of(":=");
      if (at == std::string::npos) wrong("'" + token + "'", text);
      const Rule::Item item{token.substr(token[0] == '@', at - (token[0] == '@')), token.substr(at + 1)};
      (token[at] == ':' ? s.sizes : token[0] == '@' ? s.attrs : s.inputs).push_back(item);
    }
  }
  return s;
}

/// A seed that no other op has with the same `seed`.
uint64_t mixed(std::string_view op, uint64_t seed) {
  uint64_t hash = 1469598103934665603u ^ (seed * 0x9e3779b97f4a7c15u);
  for (const char c : op) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash ^ (hash >> 29);
}

bool names_dtype(const AttrDef& attr) { return attr.type == "type" || attr.type == "list(type)"; }

/// Makes one case.
class Making {
 public:
  Making(const OpRegistry& ops, const KernelRegistry& kernels, const std::string& folder, uint64_t seed)
      : ops_(ops), kernels_(kernels), folder_(folder), rng_(seed) {}

  Case make(const OpDef& op, const std::vector<Rule>& rules) {
    const Rule& rule = rng_.one_of(rules);
    main_op_ = &op;
    out_.unordered = rule.unordered;
    out_.close = rule.close;
    out_.unsteady = rule.unsteady;
    out_.fails = rule.fails;
    out_.turn = rng_.between(0, 29);
    const Rule::Statement* own = nullptr;
    for (const auto& s : rule.statements)
      if (s.op.empty()) own = &s;
    main_types(op, own);
    for (const auto& s : rule.statements) {
      const OpDef* def = s.op.empty() ? &op : ops_.find(s.op);
      if (!def) wrong("no op " + s.op, op.name());
      for (const auto& item : s.sizes) declare(item);
      CaseNode node;
      node.op = def->name();
      node.attrs = s.op.empty() ? types_ : Attrs();
      fill(*def, s, node);
      if (s.op.empty()) out_.main = static_cast<int>(out_.nodes.size());
      if (!s.name.empty()) named_[s.name] = static_cast<int>(out_.nodes.size());
      out_.nodes.push_back(std::move(node));
    }
    if (rng_.percent(35)) spoil(op);
    return std::move(out_);
  }

 private:
  // -- sizes ----------------------------------------------------------------------------------------------------------

  void declare(const Rule::Item& item) {
    const auto parts = words(item.spec, ':');
    const auto range = [&](const std::string& text) {
      const size_t dots = text.find("..");
      if (dots == std::string::npos) {
        const auto choices = split(text, '|');
        const int64_t one = whole(rng_.one_of(choices));
        return one;
      }
      return rng_.between(whole(text.substr(0, dots)), whole(text.substr(dots + 2)));
    };
    if (item.name[0] != '*') {
      sizes_[item.name] = range(parts.at(0));
      return;
    }
    std::vector<int64_t>& list = lists_[item.name.substr(1)];
    list.clear();
    if (item.spec[0] == '{') {
      for (const double v : values(item.spec.substr(1, item.spec.size() - 2))) list.push_back(static_cast<int64_t>(v));
      return;
    }
    for (int64_t rank = range(parts.at(0)); rank > 0; --rank)
      list.push_back(parts.size() > 1 ? range(parts[1]) : any_size(rng_));
  }

  int64_t size(const std::string& name) {
    const auto [at, fresh] = sizes_.try_emplace(name, 0);
    if (fresh) at->second = any_size(rng_);
    return at->second;
  }

  const std::vector<int64_t>& list(const std::string& name) {
    const auto [at, fresh] = lists_.try_emplace(name);
    if (fresh) {
      static const std::vector<int64_t> ranks = {0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5};
      for (int64_t rank = rng_.one_of(ranks); rank > 0; --rank) at->second.push_back(any_size(rng_) % 5);
    }
    return at->second;
  }

  /// The value of an expression: numbers, names of sizes, + - * /, and the functions r (rank of a list), p (product),
  /// d (one size of a list), c (quotient rounded up), max, min.
  double value(std::string_view text) {
    size_t at = 0;
    const double v = sum(text, at);
    if (at != text.size()) wrong("expression", text);
    return v;
  }
  int64_t whole(std::string_view text) { return static_cast<int64_t>(value(text)); }

  double sum(std::string_view t, size_t& at) {
    double v = product(t, at);
    while (at < t.size() && (t[at] == '+' || t[at] == '-')) {
      const char sign = t[at++];
      const double w = product(t, at);
      v = sign == '+' ? v + w : v - w;
    }
    return v;
  }
  double product(std::string_view t, size_t& at) {
    double v = factor(t, at);
    while (at < t.size() && (t[at] == '*' || t[at] == '/')) {
      const char sign = t[at++];
      const double w = factor(t, at);
      v = sign == '*' ? v * w : w == 0 ? 0 : std::floor(v / w);
    }
    return v;
  }
  double factor(std::string_view t, size_t& at) {
    if (at >= t.size()) wrong("expression", t);
    if (t[at] == '-') return -factor(t, ++at);
    if (t[at] == '(') {
      const double v = sum(t, ++at);
      ++at;
      return v;
    }
    if (std::isdigit(static_cast<unsigned char>(t[at]))) {
      size_t end = at;
      while (end < t.size() && (std::isdigit(static_cast<unsigned char>(t[end])) ||
                                (t[end] == '.' && end + 1 < t.size() && t[end + 1] != '.')))
        ++end;
      const double v = std::stod(std::string(t.substr(at, end - at)));
      at = end;
      return v;
    }
    size_t end = at;
    while (end < t.size() && (std::isalnum(static_cast<unsigned char>(t[end])) || t[end] == '_')) ++end;
    const std::string name(t.substr(at, end - at));
    if (name.empty()) wrong("expression", t);
    at = end;
    if (at >= t.size() || t[at] != '(') return static_cast<double>(size(name));
    size_t close = at;
    for (int depth = 0; close < t.size(); ++close) {
      depth += t[close] == '(' ? 1 : t[close] == ')' ? -1 : 0;
      if (depth == 0) break;
    }
    const auto args = words(t.substr(at + 1, close - at - 1), ',');
    at = close + 1;
    if (name == "r") return static_cast<double>(list(args.at(0)).size());
    if (name == "p") {
      double n = 1;
      for (const int64_t d : list(args.at(0))) n *= static_cast<double>(d);
      return n;
    }
    if (name == "d") {
      const auto& dims = list(args.at(0));
      const int64_t i = whole(args.at(1)), rank = static_cast<int64_t>(dims.size());
      return rank == 0 ? 0 : static_cast<double>(dims[static_cast<size_t>(((i % rank) + rank) % rank)]);
    }
    const double a = value(args.at(0)), b = value(args.at(1));
    if (name == "max") return std::max(a, b);
    if (name == "min") return std::min(a, b);
    if (name == "c") return b == 0 ? 0 : std::ceil(a / b);
    wrong("function " + name, t);
  }

  /// Items of "a,b,*S,*b(S),?,..." as numbers.
  std::vector<double> values(std::string_view text) {
    std::vector<double> out;
    for (const std::string& item : words(text, ',')) {
      if (item == "?") out.push_back(static_cast<double>(any_size(rng_)));
      else if (item == "...")
        for (int64_t n = rng_.between(0, 2); n > 0; --n) out.push_back(static_cast<double>(any_size(rng_)));
      else if (item.starts_with("*b(")) {
        const auto& dims = list(item.substr(3, item.size() - 4));
        const auto from =
            static_cast<size_t>(rng_.percent(30) ? rng_.between(0, static_cast<int64_t>(dims.size())) : 0);
        for (size_t i = from; i < dims.size(); ++i) out.push_back(rng_.percent(30) ? 1 : static_cast<double>(dims[i]));
      } else if (item[0] == '*')
        for (const int64_t d : list(item.substr(1))) out.push_back(static_cast<double>(d));
      else if (item[0] == '(' && item.find("..") != std::string::npos) out.push_back(between(item));
      else out.push_back(value(item));
    }
    return out;
  }

  Shape shape_of(std::string_view text) {
    std::vector<int64_t> dims;
    for (const double v : values(text)) dims.push_back(std::clamp<int64_t>(static_cast<int64_t>(v), 0, 100000));
    if (dims.size() > 8) dims.resize(8);
    while (Shape(dims).elements() > 20000) *std::ranges::max_element(dims) /= 2;
    return Shape(dims);
  }

  /// "(a..b)": a number between.
  double between(std::string_view text) {
    const size_t dots = text.find("..");
    const std::string_view low = text.substr(1, dots - 1), high = text.substr(dots + 2, text.size() - dots - 3);
    if (text.find('.') == dots && high.find('.') == std::string::npos)
      return static_cast<double>(rng_.between(whole(low), whole(high)));
    return rng_.real(value(low), value(high));
  }

  // -- types ----------------------------------------------------------------------------------------------------------

  DType dtype_of_word(std::string_view word) {
    if (word[0] == '$') {
      const DType* found = types_.get<DType>(word.substr(1));
      if (!found) wrong("type " + std::string(word), main_op_->name());
      return *found;
    }
    const auto found = dtype_from_string(word);
    if (!found) wrong("type " + std::string(word), main_op_->name());
    return *found;
  }

  std::vector<DType> dtypes_of_words(std::string_view text) {
    if (text[0] == '$') {
      const auto* found = types_.get<std::vector<DType>>(text.substr(1));
      if (!found) wrong("types " + std::string(text), main_op_->name());
      return *found;
    }
    std::vector<DType> out;
    for (const auto& word : words(text.substr(1, text.size() - 2), ',')) out.push_back(dtype_of_word(word));
    return out;
  }

  AttrValue type_value(const AttrDef& attr, const std::string* spec, const KernelRegistry::Types& kernel) {
    std::vector<DType> choices = attr.allowed_types.empty() ? value_dtypes() : attr.allowed_types;
    if (attr.type == "type") {
      if (spec) return dtype_of_word(rng_.one_of(split(*spec, '|')));
      if (const auto served = kernel.find(attr.name); served != kernel.end()) {
        std::vector<DType> both;
        for (const DType d : served->second)
          if (attr.allowed_types.empty() || std::ranges::find(choices, d) != choices.end()) both.push_back(d);
        if (!both.empty()) choices = both;
      }
      std::erase(choices, DType::kResource);
      std::erase(choices, DType::kVariant);
      if (choices.empty()) choices = attr.allowed_types;
      return rng_.one_of(choices);
    }
    if (spec) return dtypes_of_words(rng_.one_of(split(*spec, '|')));
    std::vector<DType> types;
    for (int64_t n = rng_.between(std::max<int64_t>(attr.minimum.value_or(1), 1), 3); n > 0; --n)
      types.push_back(rng_.one_of(choices));
    return types;
  }

  KernelRegistry::Types served_types(const OpDef& op) {
    std::vector<KernelRegistry::Types> all;
    for (auto& [kind, types] : kernels_.kernels(op.name()))
      if (kind == DeviceKind::kCpu) all.push_back(types);
    return all.empty() ? KernelRegistry::Types() : rng_.one_of(all);
  }

  static const std::string* spec_of(const std::vector<Rule::Item>& items, const std::string& name) {
    for (const auto& item : items)
      if (item.name == name) return &item.spec;
    return nullptr;
  }

  void main_types(const OpDef& op, const Rule::Statement* own) {
    const auto kernel = served_types(op);
    // Those that name others come after them.
    for (const bool named : {false, true})
      for (const AttrDef& attr : op.attrs()) {
        if (!names_dtype(attr)) continue;
        const std::string* spec = own ? spec_of(own->attrs, attr.name) : nullptr;
        if ((spec && (*spec)[0] == '$') == named) types_.set(attr.name, type_value(attr, spec, kernel));
      }
  }

  // -- attributes -----------------------------------------------------------------------------------------------------

  std::string text_value(const std::string& spec) {
    std::string text = spec;
    if (text.size() >= 2 && text.front() == '\'') text = text.substr(1, text.size() - 2);
    for (size_t at; (at = text.find("$D")) != std::string::npos;) text.replace(at, 2, folder_);
    std::ranges::replace(text, '~', ' ');
    std::ranges::replace(text, '^', '\n');
    return text;
  }

  AttrValue told_attr(const AttrDef& attr, const std::string& whole_spec, bool main) {
    const std::string spec = rng_.one_of(split(whole_spec, '|'));
    const std::string inside = spec.size() >= 2 ? spec.substr(1, spec.size() - 2) : "";
    const auto number = [&](const std::string& s) {
      return s[0] == '(' && s.find("..") != std::string::npos ? between(s) : value(s);
    };
    if (attr.type == "int") return static_cast<int64_t>(number(spec));
    if (attr.type == "float") return static_cast<float>(number(spec));
    if (attr.type == "bool") return spec == "true";
    if (attr.type == "string") return text_value(spec);
    if (attr.type == "shape") return partial(spec, main);
    if (attr.type == "list(shape)" && spec == "?") {
      size_t n = 0;
      for (const auto& [name, v] : types_)
        if (const auto* list = std::get_if<std::vector<DType>>(&v)) n = list->size();
      return std::vector<PartialShape>(n);
    }
    if (attr.type == "list(shape)") {
      std::vector<PartialShape> shapes;
      for (const auto& item : words(inside, ',')) shapes.push_back(partial(item, main));
      return shapes;
    }
    if (attr.type == "list(string)") {
      std::vector<std::string> texts;
      for (const auto& item : words(inside, ',')) texts.push_back(text_value(item));
      return texts;
    }
    const std::vector<double> numbers = values(inside);
    if (attr.type == "list(float)") return std::vector<float>(numbers.begin(), numbers.end());
    if (attr.type == "list(int)") {
      std::vector<int64_t> out;
      for (const double v : numbers) out.push_back(static_cast<int64_t>(v));
      return out;
    }
    wrong("attribute " + attr.name + " of type " + attr.type, spec);
  }

  PartialShape partial(const std::string& spec, bool vague) {
    if (spec == "?") return {};
    PartialShape shape(shape_of(spec.substr(1, spec.size() - 2)));
    for (int i = 0; i < shape.rank(); ++i)
      if (vague && rng_.percent(10)) shape.set(i, -1);
    return vague && rng_.percent(5) ? PartialShape() : shape;
  }

  AttrValue any_attr(const AttrDef& attr, const Attrs& so_far) {
    if (attr.name == "seed" || attr.name == "seed2") return rng_.between(1, 1000);
    if (attr.default_value && (attr.type == "tensor" || rng_.percent(60))) return *attr.default_value;
    if (attr.type == "int")
      return rng_.between(attr.minimum.value_or(0), std::max<int64_t>(attr.minimum.value_or(0), 0) + 3);
    if (attr.type == "bool") return rng_.percent(50);
    if (attr.type == "float") return static_cast<float>(rng_.real(0, 2));
    if (attr.type == "string" && !attr.allowed_values.empty()) return rng_.one_of(attr.allowed_values);
    if (attr.default_value) return *attr.default_value;
    if (attr.type == "string") return std::string("text");
    if (attr.type == "shape") return partial("[*S]", true);
    if (attr.type == "tensor") {
      const DType* dtype = so_far.get<DType>("dtype");
      const auto& dims = list("S");
      return any_tensor(rng_, dtype ? *dtype : DType::kUInt8, Shape(dims));
    }
    const auto n = static_cast<size_t>(rng_.between(attr.minimum.value_or(1), attr.minimum.value_or(1) + 1));
    if (attr.type == "list(int)") return std::vector<int64_t>(n, rng_.between(1, 3));
    if (attr.type == "list(float)") return std::vector<float>(n, 1.f);
    if (attr.type == "list(string)") return std::vector<std::string>(n, "text");
    if (attr.type == "list(shape)") return std::vector<PartialShape>(n);
    return std::vector<bool>(n);
  }

  // -- nodes ----------------------------------------------------------------------------------------------------------

  /// Sets attributes and inputs of a node.
  void fill(const OpDef& op, const Rule::Statement& s, CaseNode& node) {
    const bool main = s.op.empty();
    const auto kernel = main ? KernelRegistry::Types() : served_types(op);
    for (const auto& item : s.attrs)
      if (!op.find_attr(item.name) && !(main && own_rule_shared_)) wrong("no attribute " + item.name, op.name());
    for (const AttrDef& attr : op.attrs()) {
      if (node.attrs.has(attr.name)) continue;
      const std::string* spec = spec_of(s.attrs, attr.name);
      if (names_dtype(attr)) {
        const AttrValue* same_name = types_.find(attr.name);
        node.attrs.set(attr.name, !spec && same_name ? *same_name : type_value(attr, spec, kernel));
      } else if (spec) node.attrs.set(attr.name, told_attr(attr, *spec, main));
      else if (attr.name == "container" || attr.name == "shared_name") continue;
      else if (counts(op, attr.name))
        node.attrs.set(attr.name, rng_.between(std::max<int64_t>(attr.minimum.value_or(1), 1), 3));
      else if (!main && attr.default_value) continue;
      else node.attrs.set(attr.name, any_attr(attr, node.attrs));
    }
    const auto style = rng_.between(0, 9);
    for (const ArgDef& arg : op.inputs()) {
      const std::string* spec = spec_of(s.inputs, arg.name);
      std::vector<DType> dtypes(1, arg.dtype);
      if (!arg.type_attr.empty()) dtypes[0] = *node.attrs.get<DType>(arg.type_attr);
      if (!arg.type_list_attr.empty()) dtypes = *node.attrs.get<std::vector<DType>>(arg.type_list_attr);
      if (!arg.number_attr.empty())
        dtypes.resize(static_cast<size_t>(std::max<int64_t>(0, *node.attrs.get<int64_t>(arg.number_attr))), dtypes[0]);
      if (spec && (*spec)[0] == '%') {
        for (const auto& ref : words(*spec, ',')) node.inputs.push_back(reference(ref));
        continue;
      }
      for (const DType dtype : dtypes)
        node.inputs.push_back(spec ? told_tensor(*spec, dtype) : free_tensor(dtype, style));
    }
  }

  static bool counts(const OpDef& op, const std::string& attr) {
    const auto is = [&](const ArgDef& a) { return a.number_attr == attr; };
    return std::ranges::any_of(op.inputs(), is) || std::ranges::any_of(op.outputs(), is);
  }

  Ref reference(const std::string& text) {
    const size_t colon = text.find(':');
    const auto found = named_.find(text.substr(1, colon - 1));
    if (found == named_.end()) wrong("no node " + text, main_op_->name());
    return {found->second, colon == std::string::npos ? 0 : std::stoi(text.substr(colon + 1))};
  }

  /// An input that no rule tells of: of one shape with the others, or of one that broadcasts with theirs.
  Tensor free_tensor(DType dtype, int64_t style) {
    if (style == 0) return any_tensor(rng_, dtype, shape_of("..."));
    return any_tensor(rng_, dtype, shape_of(style <= 3 ? "*b(S)" : "*S"));
  }

  Tensor told_tensor(const std::string& whole_spec, DType dtype) {
    const std::string spec = rng_.one_of(split(whole_spec, '|'));
    std::string kind = spec;
    std::optional<Shape> shape;
    if (spec[0] == '[') {
      const size_t close = split(spec, ']').at(0).size() == spec.size() ? closing(spec) : spec.find(']');
      shape = shape_of(spec.substr(1, close - 1));
      kind = spec.substr(close + 1);
    }
    if (kind.empty()) return any_tensor(rng_, dtype, *shape);
    const std::string rest = kind.substr(1);
    if (kind[0] == '{') {
      const std::string inside = kind.substr(1, kind.size() - 2);
      if (dtype == DType::kString) {
        const auto items = words(inside, ',');
        Tensor t = *Tensor::make(dtype, shape.value_or(Shape{static_cast<int64_t>(items.size())}));
        for (int64_t i = 0; i < t.elements(); ++i)
          t.mutable_data<std::string>()[i] =
              items.empty() ? "" : text_value(items[static_cast<size_t>(i) % items.size()]);
        return t;
      }
      const auto numbers = values(inside);
      Tensor t = *Tensor::zeros(dtype, shape.value_or(Shape{static_cast<int64_t>(numbers.size())}));
      for (int64_t i = 0; i < t.elements() && !numbers.empty(); ++i)
        set_number(t, i, numbers[static_cast<size_t>(i) % numbers.size()]);
      return t;
    }
    Tensor t = *Tensor::zeros(dtype, shape.value_or(Shape()));
    const int64_t n = t.elements();
    switch (kind[0]) {
      case '\'':
        for (int64_t i = 0; i < n; ++i) t.mutable_data<std::string>()[i] = text_value(kind);
        return t;
      case '=': {
        const double v = value(rest);
        for (int64_t i = 0; i < n; ++i) set_number(t, i, v);
        return t;
      }
      case '<': {
        const int64_t end = whole(rest);
        for (int64_t i = 0; i < n; ++i) set_number(t, i, static_cast<double>(rng_.between(0, end - 1)));
        return t;
      }
      case '(':
        for (int64_t i = 0; i < n; ++i) set_number(t, i, between(kind));
        return t;
      case ':': named_values(t, rest); return t;
      default: wrong("values " + kind, spec);
    }
  }

  static size_t closing(const std::string& spec) {
    int depth = 0;
    for (size_t i = 0; i < spec.size(); ++i) {
      depth += spec[i] == '[' ? 1 : spec[i] == ']' ? -1 : 0;
      if (depth == 0) return i;
    }
    wrong("bracket", spec);
  }

  /// Values of a kind that has a name.
  void named_values(Tensor& t, const std::string& text) {
    const size_t open = text.find('(');
    const std::string name = text.substr(0, open);
    const auto args = open == std::string::npos ? std::vector<std::string>()
                                                : words(text.substr(open + 1, text.size() - open - 2), ',');
    const int64_t n = t.elements();
    if (name == "sorted") {  // ascending, below a bound
      std::vector<int64_t> v(static_cast<size_t>(n));
      for (auto& x : v) x = rng_.between(0, whole(args.at(0)) - 1);
      std::ranges::sort(v);
      for (int64_t i = 0; i < n; ++i) set_number(t, i, static_cast<double>(v[static_cast<size_t>(i)]));
    } else if (name == "segments") {  // 0, 0, 1, 1, 2: ascending without gaps
      double v = 0;
      for (int64_t i = 0; i < n; ++i) set_number(t, i, v += i > 0 && rng_.percent(50));
    } else if (name == "rows") {  // each row ascends
      const int64_t width = t.rank() > 0 ? t.dim(-1) : 1;
      for (int64_t i = 0; i < n; ++i) set_number(t, i, static_cast<double>(i % width));
    } else if (name == "permutation") {
      std::vector<int64_t> v(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = i;
      for (int64_t i = n - 1; i > 0; --i)
        std::swap(v[static_cast<size_t>(i)], v[static_cast<size_t>(rng_.between(0, i))]);
      for (int64_t i = 0; i < n; ++i) set_number(t, i, static_cast<double>(v[static_cast<size_t>(i)]));
    } else if (name == "places") {  // [k, rank of a list]: k different places in a tensor of that shape, in order
      const auto& dims = list(args.at(0));
      int64_t all = 1;
      for (const int64_t d : dims) all *= d;
      const int64_t k = t.dim(0), rank = static_cast<int64_t>(dims.size());
      for (int64_t i = 0; i < k; ++i) {
        int64_t place = k == 0 ? 0 : i * all / k;
        for (int64_t j = rank - 1; j >= 0; --j) {
          const int64_t d = std::max<int64_t>(1, dims[static_cast<size_t>(j)]);
          set_number(t, i * rank + j, static_cast<double>(place % d));
          place /= d;
        }
      }
    } else if (name == "indices") {  // [..., rank of a prefix]: places within the first sizes of a list
      const auto& dims = list(args.at(0));
      const int64_t width = t.rank() > 0 ? t.dim(-1) : 1;
      for (int64_t i = 0; i < n; ++i)
        set_number(t, i, static_cast<double>(rng_.between(0, dims.at(static_cast<size_t>(i % width)) - 1)));
    } else if (name == "positive") {  // matrices that are symmetric and positive definite
      matrices(t, [&](int64_t i, int64_t j) { return i == j ? 4.0 : 0.5; });
    } else if (name == "regular") {  // matrices far from singular
      matrices(t, [&](int64_t i, int64_t j) { return i == j ? 4 + rng_.real(0, 1) : rng_.real(-0.5, 0.5); });
    } else if (name == "lower") {  // lower triangles
      matrices(t, [&](int64_t i, int64_t j) { return i == j ? 2 + rng_.real(0, 1) : i > j ? rng_.real(-1, 1) : 0.0; });
    } else if (name == "names") {  // "s0", "s1", ...
      for (int64_t i = 0; i < n; ++i) t.mutable_data<std::string>()[i] = fmt::format("s{}", i);
    } else if (name == "example" || name == "sequence") {
      for (int64_t i = 0; i < n; ++i)
        t.mutable_data<std::string>()[i] = name == "example" ? example_record(rng_) : sequence_record(rng_);
    } else if (name == "bmp") {
      for (int64_t i = 0; i < n; ++i) t.mutable_data<std::string>()[i] = bitmap(rng_);
    } else wrong("kind " + name, text);
  }

  template <class F> static void matrices(Tensor& t, F f) {
    const int64_t rows = t.rank() > 1 ? t.dim(-2) : 1, columns = t.rank() > 0 ? t.dim(-1) : 1;
    for (int64_t i = 0; i < t.elements(); ++i) set_number(t, i, f(i / columns % rows, i % columns));
  }

  // -- what does not fit ----------------------------------------------------------------------------------------------

  void spoil(const OpDef& op) {
    out_.hostile = true;
    CaseNode& node = out_.nodes[static_cast<size_t>(out_.main)];
    for (int64_t n = rng_.percent(70) ? 1 : 2; n > 0; --n) {
      const bool attr = !op.attrs().empty() && (node.inputs.empty() || rng_.percent(25));
      if (attr) spoil_attr(op, node, rng_.one_of(op.attrs()));
      else if (!node.inputs.empty())
        spoil_input(node.inputs[static_cast<size_t>(rng_.between(0, static_cast<int64_t>(node.inputs.size()) - 1))]);
    }
  }

  void spoil_input(Given& given) {
    if (const Ref* ref = std::get_if<Ref>(&given)) {
      const OpDef& source = *ops_.find(out_.nodes[static_cast<size_t>(ref->node)].op);
      if (ref->port >= static_cast<int>(source.outputs().size())) return;
      const DType dtype = source.outputs()[static_cast<size_t>(ref->port)].dtype;
      static const std::vector<Shape> shapes = {Shape{}, Shape{0}, Shape{2}, Shape{1, 1}};
      if (dtype != DType::kInvalid) given = any_tensor(rng_, dtype, rng_.one_of(shapes));
      return;
    }
    Tensor& t = std::get<Tensor>(given);
    switch (rng_.between(0, 5)) {
      case 0: t = any_tensor(rng_, t.dtype(), shape_of("?,...")); break;
      case 1: {  // another size
        std::vector<int64_t> dims(t.shape().begin(), t.shape().end());
        if (dims.empty()) dims = {any_size(rng_)};
        else dims[static_cast<size_t>(rng_.between(0, static_cast<int64_t>(dims.size()) - 1))] = any_size(rng_);
        t = any_tensor(rng_, t.dtype(), Shape(dims));
        break;
      }
      case 2: {  // another rank
        std::vector<int64_t> dims(t.shape().begin(), t.shape().end());
        if (dims.empty() || rng_.percent(50)) dims.push_back(any_size(rng_));
        else dims.pop_back();
        t = any_tensor(rng_, t.dtype(), Shape(dims));
        break;
      }
      case 3: t = any_tensor(rng_, t.dtype(), t.shape()); break;
      default: t = *t.clone(); make_extreme(rng_, t);
    }
  }

  void spoil_attr(const OpDef& op, CaseNode& node, const AttrDef& attr) {
    static const std::vector<int64_t> integers = {-1,   0,         -2,        1,         2,         7,
                                                  1000, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t{1} << 40};
    static const std::vector<float> reals = {NAN, INFINITY, -INFINITY, -1, 0, 1e-30f, 1e30f};
    const AttrValue* now = node.attrs.find(attr.name);
    if (!now || names_dtype(attr) || attr.name == "container" || attr.name == "shared_name") return;
    if (counts(op, attr.name) || attr.name == "seed" || attr.name == "seed2") return;  // seeds of 0 are a random one
    AttrValue next = *now;
    if (auto* v = std::get_if<int64_t>(&next)) *v = rng_.one_of(integers);
    if (auto* v = std::get_if<float>(&next)) *v = rng_.one_of(reals);
    if (auto* v = std::get_if<bool>(&next)) *v = !*v;
    if (auto* v = std::get_if<PartialShape>(&next)) *v = PartialShape(shape_of("?,..."));
    if (auto* v = std::get_if<std::string>(&next))
      *v = rng_.one_of(std::vector<std::string>{"", "x", "\xff", "SAME", "VALID", "EXPLICIT", "NCHW", "(", "%d"});
    if (auto* v = std::get_if<std::vector<int64_t>>(&next)) {
      if (v->empty() || rng_.percent(15)) v->push_back(rng_.one_of(integers));
      else if (rng_.percent(15)) v->pop_back();
      else (*v)[static_cast<size_t>(rng_.between(0, static_cast<int64_t>(v->size()) - 1))] = rng_.one_of(integers);
    }
    if (auto* v = std::get_if<std::vector<float>>(&next)) {
      if (v->empty() || rng_.percent(30)) v->push_back(rng_.one_of(reals));
      else (*v)[static_cast<size_t>(rng_.between(0, static_cast<int64_t>(v->size()) - 1))] = rng_.one_of(reals);
    }
    node.attrs.set(attr.name, std::move(next));
  }

  const OpRegistry& ops_;
  const KernelRegistry& kernels_;
  const std::string& folder_;
  Rng rng_;
  const OpDef* main_op_ = nullptr;
  static constexpr bool own_rule_shared_ = true;  // a rule may name attributes that only some of its ops have
  Case out_;
  Attrs types_;
  std::map<std::string, int64_t, std::less<>> sizes_;
  std::map<std::string, std::vector<int64_t>, std::less<>> lists_;
  std::map<std::string, int, std::less<>> named_;
};

}  // namespace

std::string Case::str() const {
  std::string out;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const CaseNode& node = nodes[i];
    out += fmt::format("{} {} = {}(", static_cast<int>(i) == main ? "*" : " ", i, node.op);
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (k > 0) out += ", ";
      if (const Ref* ref = std::get_if<Ref>(&node.inputs[k])) out += fmt::format("%{}:{}", ref->node, ref->port);
      else out += std::get<Tensor>(node.inputs[k]).str(64);
    }
    out += ')';
    for (const auto& [name, value] : node.attrs) out += fmt::format(" {}={}", name, to_string(value));
    out += '\n';
  }
  return out;
}

Rules read_rules() {
  Rules rules;
  std::vector<std::string> lines;
  for (std::string& line : split(std::string(kOpRules), '\n')) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == ' ' && !lines.empty()) lines.back() += line;
    else lines.push_back(std::move(line));
  }
  for (const std::string& line : lines) {
    const size_t colon = line.find(" : ");
    if (colon == std::string::npos) wrong("no ' : '", line);
    Rule rule;
    bool main = false;
    for (const std::string& text : split(line.substr(colon + 3), ';')) {
      rule.statements.push_back(read_statement(text, rule));
      main |= rule.statements.back().op.empty();
    }
    if (!main) wrong("no node of the op", line);
    for (const std::string& op : words(line.substr(0, colon))) rules[op].push_back(rule);
  }
  return rules;
}

CaseMaker::CaseMaker(const OpRegistry& ops, const KernelRegistry& kernels, std::string folder)
    : ops_(ops), kernels_(kernels), folder_(std::move(folder)), rules_(read_rules()) {}

Case CaseMaker::make(const OpDef& op, uint64_t seed) const {
  static const std::vector<Rule> any = {{.statements = {Rule::Statement()}}};
  const auto found = rules_.find(op.name());
  return Making(ops_, kernels_, folder_, mixed(op.name(), seed)).make(op, found == rules_.end() ? any : found->second);
}

std::vector<std::string> CaseMaker::unknown_ops() const {
  std::vector<std::string> out;
  for (const auto& [name, rule] : rules_)
    if (!ops_.find(name)) out.push_back(name);
  return out;
}

}  // namespace troupe::fuzz
