// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_def/functions.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "graph/graph_def/call_sizes.h"
#include "graph/graph_def/carried_functions.h"
#include "graph/graph_def/function_library.h"
#include "graph/graph_def/node_def.h"
#include "graph/graph_def/renamed_ops.h"

namespace troupe {
namespace {

using proto::FunctionDef;
using proto::NodeDef;

/// Calls within calls; real graphs have a few.
constexpr int kMostNestedCalls = 64;

void set_type(NodeDef& node, int type) { set_attr(node, "T").set_type(static_cast<proto::DataType>(type)); }

/// A node to read, with how many calls it is within, and whether one is a
/// While.
struct Pending {
  NodeDef node;
  int nested = 0;
  bool in_loop = false;
};

class Lowering {
 public:
  Lowering(proto::GraphDef& def, const OpRegistry& ops) : def_(def), ops_(ops), library_(def, ops) {}

  Status run() {
    if (std::ranges::none_of(def_.node(), [&](const NodeDef& node) { return library_.is_call(node); })) {
      for (NodeDef& node : *def_.mutable_node())
        if (Status status = carry_functions(node, library_); !status.ok())
          return error_of(node, std::move(status.error()));
      def_.clear_library();
      return {};
    }
    TROUPE_RETURN_IF_ERROR(check_call_sizes(def_, library_));
    for (NodeDef& node : *def_.mutable_node()) names_.insert(node.name());
    std::deque<Pending> pending;
    for (NodeDef& node : *def_.mutable_node()) pending.push_back({std::move(node)});
    def_.clear_node();
    while (!pending.empty()) {
      Pending next = std::move(pending.front());
      pending.pop_front();
      if (!library_.is_call(next.node)) {
        if (Status status = carry_functions(next.node, library_); !status.ok())
          return error_of(next.node, std::move(status.error()));
        *def_.add_node() = std::move(next.node);
        continue;
      }
      call_ = &next.node;
      in_loop_ = next.in_loop;
      made_.clear();
      Status status = next.nested < kMostNestedCalls
                          ? lower()
                          : Status(invalid_argument("function calls must nest at most {} deep", kMostNestedCalls));
      if (!status.ok()) return error_of(next.node, std::move(status.error()));
      for (NodeDef& node : made_) pending.push_back({std::move(node), next.nested + 1, in_loop_});
    }
    def_.clear_library();
    return {};
  }

 private:
  /// What stands for the outputs of a function put in, and the nodes that must
  /// run.
  struct Results {
    std::vector<std::string> values;
    std::vector<int> types;
    std::vector<std::string> controls;
  };

  Status lower() {
    const std::string& op = call_->op();
    inputs_.clear();
    controls_.clear();
    for (const std::string& in : call_->input()) (is_control(in) ? controls_ : inputs_).push_back(in);
    if (op == "If" || op == "StatelessIf") return lower_if();
    if (op == "Case" || op == "StatelessCase") return lower_case();
    if (op == "While" || op == "StatelessWhile") return lower_while();
    if (op == "SymbolicGradient") return lower_gradient();
    return lower_call(op.ends_with("PartitionedCall") || op == "BatchFunction" ? "f" : "");
  }

  // -- nodes
  // ----------------------------------------------------------------------------------------------------------

  NodeDef& make(const std::string& name, std::string op, std::vector<std::string> inputs) {
    NodeDef& node = made_.emplace_back();
    node.set_name(call_->name() + "/" + name);
    node.set_op(std::move(op));
    node.set_device(call_->device());
    for (std::string& in : inputs) node.add_input(std::move(in));
    return node;
  }
  std::string name_of(const std::string& part) const { return call_->name() + "/" + part; }

  /// The node under the name of the call: its outputs are `values`, and it runs
  /// after `controls`.
  void finish(const Results& r) {
    NodeDef& node = made_.emplace_back();
    node.set_name(call_->name());
    node.set_device(call_->device());
    node.set_op(r.values.empty() ? "NoOp" : "IdentityN");
    for (const std::string& v : r.values) node.add_input(v);
    for (const std::string& c : r.controls) node.add_input(c);
    for (const std::string& c : controls_) node.add_input(c);
    if (r.values.empty()) return;
    auto& types = *set_attr(node, "T").mutable_list();
    for (const int t : r.types) types.add_type(static_cast<proto::DataType>(t));
  }

  // -- functions
  // ------------------------------------------------------------------------------------------------------

  Result<const FunctionDef*> function_of(std::string_view attr) const {
    const proto::AttrValue* value = find_attr(*call_, attr);
    if (!value || value->value_case() != proto::AttrValue::kFunc)
      return invalid_argument("attribute {} names no function", attr);
    return library_.get(value->func().name());
  }

  /// How many tensors an output is.
  Result<int> length(const NodeDef& node, const ArgDef& arg, const OpDef& op) const {
    if (!arg.number_attr.empty()) {
      if (const auto* n = find_attr(node, arg.number_attr)) return static_cast<int>(n->i());
      const AttrDef* attr = op.find_attr(arg.number_attr);
      const auto* n = attr && attr->default_value ? std::get_if<int64_t>(&*attr->default_value) : nullptr;
      return n ? static_cast<int>(*n) : 1;
    }
    if (!arg.type_list_attr.empty()) {
      const auto* types = find_attr(node, arg.type_list_attr);
      return types ? types->list().type_size() : 0;
    }
    const auto* types = arg.type_attr.empty() ? nullptr : find_attr(node, arg.type_attr);  // of ops not registered
    return types && types->value_case() == proto::AttrValue::kList ? types->list().type_size() : 1;
  }

  /// "node:output:i", as functions write it, as "prefix/node:port".
  Result<std::string> input_name(const std::string& text, const std::string& prefix,
                                 const std::unordered_map<std::string_view, std::string>& args,
                                 const std::unordered_map<std::string_view, const NodeDef*>& nodes) const {
    const auto missing = [&] { return make_error(Code::kNotFound, "'{}' is not in the function", text); };
    std::string_view name = text, output, number;
    if (const size_t colon = name.find(':'); colon != std::string_view::npos) {
      output = name.substr(colon + 1);
      name = name.substr(0, colon);
      if (const size_t second = output.find(':'); second != std::string_view::npos) {
        number = output.substr(second + 1);
        output = output.substr(0, second);
      }
    }
    if (const auto arg = args.find(name); arg != args.end()) return arg->second;
    const auto at = nodes.find(name);
    if (at == nodes.end()) return missing();
    const NodeDef& node = *at->second;
    int port = 0;
    if (!number.empty() && std::from_chars(number.data(), number.data() + number.size(), port).ec != std::errc())
      return missing();
    const OpDef* op = ops_.find(node.op());
    const auto old = op ? std::nullopt : outputs_of_old_op(node.op(), ops_);
    if ((op || old) && !output.empty()) {
      const int within = port;
      bool found = false;
      for (const ArgDef& arg : (op ? *op : *old).outputs()) {
        found = arg.name == output;
        if (found) break;
        TROUPE_ASSIGN(const int n, length(node, arg, op ? *op : *old));
        port += n;
      }
      if (!found && op) return missing();
      if (!found) port = within;  // the only output, whatever its name was
    } else if (const FunctionDef* f = library_.find(node.op())) {
      for (const proto::OpArg& arg : f->signature().output_arg()) {
        if (arg.name() == output) break;
        ++port;
      }
    }  // of the other calls the only output is a list
    return fmt::format("{}{}:{}", prefix, name, port);
  }

  using Names = std::unordered_set<std::string_view>;

  /// What an input "^node", "node:output:0" or "argument" begins with.
  static std::string_view source_of(std::string_view input) {
    if (is_control(input)) input.remove_prefix(1);
    return input.substr(0, input.find(':'));
  }

  /// The names of the arguments of `f` that are `so`.
  static Names arguments_that(const FunctionDef& f, const std::vector<bool>& so) {
    Names out;
    for (size_t i = 0; i < so.size(); ++i)
      if (so[i]) out.insert(f.signature().input_arg(static_cast<int>(i)).name());
    return out;
  }

  /// The arguments `always` of `f`, and the nodes that follow from these alone,
  /// through nodes without state.
  Names following(const FunctionDef& f, const Names& always) const {
    Names out = always;
    if (always.empty()) return out;
    std::unordered_map<std::string_view, std::vector<int>> consumers;
    std::vector<int> waits(static_cast<size_t>(f.node_def_size()));
    std::vector<int> ready;
    for (int i = 0; i < f.node_def_size(); ++i) {
      const NodeDef& node = f.node_def(i);
      if (node.input_size() == 0 || library_.has_state(node)) continue;
      int& left = waits[static_cast<size_t>(i)];
      for (const std::string& in : node.input())
        if (!always.contains(source_of(in))) {
          ++left;
          consumers[source_of(in)].push_back(i);
        }
      if (left == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      const std::string_view name = f.node_def(ready.back()).name();
      ready.pop_back();
      out.insert(name);
      for (const int i : consumers[name])
        if (--waits[static_cast<size_t>(i)] == 0) ready.push_back(i);
    }
    return out;
  }

  /// Adds the nodes of `f` below `part`, with `args` for its arguments. Nodes
  /// without inputs wait for `pivot`, nodes with state for `before` too. Nodes
  /// with state whose inputs are all `always` there, whether `f` runs or not,
  /// wait for `pivot` as well, and so do calls of which one is: a branch may be
  /// taken by that alone.
  Result<Results> put_in(const FunctionDef& f, const std::string& part, const std::vector<std::string>& args,
                         const std::vector<std::string>& pivot, const std::vector<std::string>& before = {},
                         const Names& always = {}) {
    const proto::OpSignature& signature = f.signature();
    if (static_cast<int>(args.size()) != signature.input_arg_size())
      return invalid_argument("function '{}' takes {} inputs, not {}", signature.name(), signature.input_arg_size(),
                              args.size());
    std::unordered_map<std::string_view, std::string> by_arg;
    for (int i = 0; i < signature.input_arg_size(); ++i) {
      const proto::OpArg& arg = signature.input_arg(i);
      if (!arg.number_attr().empty() || !arg.type_list_attr().empty())
        return make_error(Code::kUnimplemented, "argument '{}' of function '{}' is a list", arg.name(),
                          signature.name());
      by_arg[arg.name()] = args[static_cast<size_t>(i)];
    }
    std::unordered_map<std::string_view, const NodeDef*> nodes;
    for (const NodeDef& node : f.node_def()) nodes[node.name()] = &node;
    std::string prefix = name_of(part.empty() ? "" : part + "/");

    for (const NodeDef& from : f.node_def()) {
      NodeDef node = from;
      node.set_name(prefix + from.name());
      if (!names_.insert(node.name()).second)
        return make_error(Code::kAlreadyExists, "'{}' of function '{}' would be there twice", node.name(),
                          signature.name());
      if (node.device().empty()) node.set_device(call_->device());
      for (proto::AttrEntry& attr : *node.mutable_attr())
        if (attr.key() == "_class")
          for (std::string& place : *attr.mutable_value()->mutable_list()->mutable_s())
            if (place.starts_with("loc:@") && nodes.contains(std::string_view(place).substr(5)))
              place.insert(5, prefix);
      node.clear_input();
      bool waits = false;
      for (const std::string& in : from.input()) {
        if (is_control(in)) {
          const std::string name = in.substr(1);
          if (const auto arg = by_arg.find(name); arg != by_arg.end()) {
            // What has no use of it may begin before it is there. That it waits
            // for a Switch does not say that it lives.
            const std::string wait = after_argument(signature, name, arg->second, prefix);
            if (std::ranges::find(node.input(), wait) == node.input().end()) node.add_input(wait);
            continue;
          }
          if (!nodes.contains(name))
            return make_error(Code::kNotFound, "'{}' is not in function '{}'", in, signature.name());
          node.add_input("^" + prefix + name);
        } else {
          TROUPE_ASSIGN(std::string name, input_name(in, prefix, by_arg, nodes));
          node.add_input(std::move(name));
        }
        waits = true;
      }
      if (waits && !always.empty()) {
        const auto there = [&](const std::string& in) { return always.contains(source_of(in)); };
        if (library_.is_call(from)) waits = std::ranges::none_of(from.input(), there);
        else if (library_.has_state(from)) waits = !std::ranges::all_of(from.input(), there);
      }
      if (!waits)
        for (const std::string& p : pivot) node.add_input(p);
      else if (!before.empty() && (library_.has_state(from) || (in_loop_ && library_.is_call(from))))
        for (const std::string& b : before) node.add_input(b);
      made_.push_back(std::move(node));
    }

    Results out;
    for (const proto::OpArg& arg : signature.output_arg()) {
      const proto::NameEntry* ret = nullptr;
      for (const proto::NameEntry& e : f.ret())
        if (e.key() == arg.name()) ret = &e;
      if (!ret) return invalid_argument("function '{}' does not say what '{}' is", signature.name(), arg.name());
      TROUPE_ASSIGN(std::string value, input_name(ret->value(), prefix, by_arg, nodes));
      out.values.push_back(std::move(value));
      out.types.push_back(arg.type());
    }
    for (const proto::NameEntry& e : f.control_ret()) out.controls.push_back("^" + prefix + e.value());
    return out;
  }

  /// An edge from what an argument is. What is the same in every iteration of a
  /// loop has a node there for it: nothing waits for an Enter itself, so that
  /// the loop may be on several devices.
  std::string after_argument(const proto::OpSignature& signature, std::string_view name, const std::string& value,
                             const std::string& prefix) {
    const std::string source(source_of(value));
    if (!enters_.contains(source)) return "^" + source;
    std::string ready = fmt::format("{}_ready_{}", prefix, name);
    if (names_.insert(ready).second) {
      NodeDef& node = made_.emplace_back();
      node.set_name(ready);
      node.set_op("Identity");
      node.set_device(call_->device());
      node.add_input(value);
      for (const proto::OpArg& arg : signature.input_arg())
        if (arg.name() == name) set_type(node, arg.type());
    }
    return "^" + ready;
  }

  // -- the calls
  // ------------------------------------------------------------------------------------------------------

  Status lower_call(std::string_view attr) {
    TROUPE_ASSIGN(const FunctionDef* f, attr.empty() ? library_.get(call_->op()) : function_of(attr));
    return lower_call(*f);
  }
  Status lower_call(const FunctionDef& f) {
    std::vector<std::string> before = controls_;
    if (before.size() > 1) {  // one edge for each node, not one for each pair;
                              // no function's node has such a name
      make("_begin", "NoOp", controls_);
      before = {"^" + name_of("_begin")};
    }
    std::vector<std::string> pivot = before;
    if (in_loop_ && pivot.empty() && !inputs_.empty())  // what has no inputs must be in the loop too
      pivot.push_back("^" + inputs_[0].substr(0, inputs_[0].find(':')));
    TROUPE_ASSIGN(const Results r, put_in(f, "", inputs_, pivot, before));
    finish(r);
    return {};
  }

  /// A call of the function that the library gives as the gradient. Else the
  /// function on Identities of the arguments, so that gradients by these have
  /// no other paths to the values.
  Status lower_gradient() {
    TROUPE_ASSIGN(const FunctionDef* f, function_of("f"));
    const auto arguments = static_cast<size_t>(f->signature().input_arg_size());
    const auto values = static_cast<size_t>(f->signature().output_arg_size());
    if (inputs_.size() != arguments + values || arguments == 0)
      return invalid_argument(
          "function '{}' has {} arguments and {} values: "
          "the gradient takes as many inputs, not {}",
          f->signature().name(), arguments, values, inputs_.size());
    if (const std::string* own = library_.own_gradient(*call_)) {
      TROUPE_ASSIGN(const FunctionDef* gradient, library_.get(*own));
      if (gradient->signature().output_arg_size() != f->signature().input_arg_size())
        return invalid_argument("function '{}', the gradient of '{}', gives {} values, not {}", *own,
                                f->signature().name(), gradient->signature().output_arg_size(), arguments);
      return lower_call(*gradient);
    }
    if (const FunctionDef* inner = library_.calls_with_own_gradient(*f))
      return make_error(Code::kUnimplemented, "function '{}' calls '{}', whose gradient is a function of its own",
                        f->signature().name(), inner->signature().name());
    std::vector<std::string> args;
    for (size_t i = 0; i < arguments; ++i) {
      NodeDef& arg = make(fmt::format("argument_{}", i), "Identity", {inputs_[i]});
      set_type(arg, f->signature().input_arg(static_cast<int>(i)).type());
      args.push_back(arg.name());
    }
    std::vector<std::string> pivot = controls_;
    if (pivot.empty() && !args.empty()) pivot.push_back("^" + args[0]);
    TROUPE_ASSIGN(const Results r, put_in(*f, "function", args, pivot));
    NodeDef& node = made_.emplace_back();
    node.set_name(call_->name());
    node.set_device(call_->device());
    node.set_op(std::string(kFunctionGradient));
    set_attr(node, "values").set_i(static_cast<int64_t>(values));
    set_attr(node, "arguments").set_i(static_cast<int64_t>(arguments));
    for (const std::string& v : r.values) node.add_input(v);
    for (const std::string& a : args) node.add_input(a);
    for (size_t i = arguments; i < inputs_.size(); ++i) node.add_input(inputs_[i]);
    for (const std::string& c : r.controls) node.add_input(c);
    for (const std::string& c : controls_) node.add_input(c);
    return {};
  }

  /// Switches of all inputs from the second on; names of output `port` of each.
  std::vector<std::string> switched(const FunctionDef& f, int port) const {
    std::vector<std::string> out;
    for (int i = 0; i < f.signature().input_arg_size(); ++i)
      out.push_back(fmt::format("{}:{}", name_of(fmt::format("switch_{}", i)), port));
    return out;
  }

  /// `branches` by the output of the Switches at which they live; `op` is
  /// Switch, or _SwitchN by an index.
  Status lower_branches(const std::vector<const FunctionDef*>& branches, const std::vector<std::string>& names,
                        const std::string& op, const std::string& by, int by_type) {
    const FunctionDef& first = *branches[0];
    const int n = static_cast<int>(branches.size());
    const auto add_switch = [&](const std::string& name, const std::string& data, int type) {
      NodeDef& node = make(name, op, {data, by});
      for (const std::string& c : controls_) node.add_input(c);
      set_type(node, type);
      if (op == "_SwitchN") set_attr(node, "num_outs").set_i(n);
    };
    if (static_cast<int>(inputs_.size()) != first.signature().input_arg_size() + 1)
      return invalid_argument("function '{}' takes {} inputs, not {}", first.signature().name(),
                              first.signature().input_arg_size(), inputs_.size() - 1);
    for (int i = 0; i < first.signature().input_arg_size(); ++i)
      add_switch(fmt::format("switch_{}", i), inputs_[static_cast<size_t>(i) + 1],
                 first.signature().input_arg(i).type());
    add_switch("taken", by, by_type);

    std::vector<Results> results;
    std::vector<std::string> ends;
    for (int b = 0; b < n; ++b) {
      const FunctionDef& f = *branches[static_cast<size_t>(b)];
      const std::string& name = names[static_cast<size_t>(b)];
      set_type(make("pivot_" + name, "Identity", {fmt::format("{}:{}", name_of("taken"), b)}), by_type);
      TROUPE_ASSIGN(Results r, put_in(f, name, switched(f, b), {"^" + name_of("pivot_" + name)}));
      if (b > 0 && r.types != results[0].types)
        return invalid_argument("functions '{}' and '{}' give different outputs", first.signature().name(),
                                f.signature().name());
      NodeDef& end = make("end_" + name, "Identity", {name_of("pivot_" + name)});
      set_type(end, by_type);
      for (const std::string& c : r.controls) end.add_input(c);
      ends.push_back(end.name());
      results.push_back(std::move(r));
    }
    const auto merge = [&](const std::string& name, std::vector<std::string> inputs, int type) {
      NodeDef& node = make(name, "Merge", std::move(inputs));
      set_type(node, type);
      set_attr(node, "N").set_i(n);
      return node.name();
    };
    Results out;
    for (size_t i = 0; i < results[0].values.size(); ++i) {
      std::vector<std::string> values;
      for (const Results& r : results) values.push_back(r.values[i]);
      out.values.push_back(merge(fmt::format("merge_{}", i), std::move(values), results[0].types[i]));
      out.types.push_back(results[0].types[i]);
    }
    out.controls.push_back("^" + merge("ended", std::move(ends), by_type));
    controls_.clear();  // the Switches wait for them
    finish(out);
    return {};
  }

  Status lower_if() {
    TROUPE_ASSIGN(const FunctionDef* then, function_of("then_branch"));
    TROUPE_ASSIGN(const FunctionDef* otherwise, function_of("else_branch"));
    if (inputs_.empty()) return invalid_argument("has no predicate");
    std::string predicate = inputs_[0];
    const proto::AttrValue* type = find_attr(*call_, "Tcond");
    if (type && type->type() != static_cast<proto::DataType>(DType::kBool)) {
      NodeDef& cast = make("predicate", "Cast", {predicate});
      set_attr(cast, "SrcT").set_type(type->type());
      set_attr(cast, "DstT").set_type(static_cast<proto::DataType>(DType::kBool));
      predicate = cast.name();
    }
    return lower_branches({otherwise, then}, {"else", "then"}, "Switch", predicate, static_cast<int>(DType::kBool));
  }

  Status lower_case() {
    const proto::AttrValue* list = find_attr(*call_, "branches");
    if (!list || list->list().func_size() == 0) return invalid_argument("attribute branches names no functions");
    if (inputs_.empty()) return invalid_argument("has no index");
    std::vector<const FunctionDef*> branches;
    std::vector<std::string> names;
    for (const proto::NameAttrList& f : list->list().func()) {
      TROUPE_ASSIGN(const FunctionDef* branch, library_.get(f.name()));
      names.push_back(fmt::format("branch_{}", branches.size()));
      branches.push_back(branch);
    }
    return lower_branches(branches, names, "_SwitchN", inputs_[0], static_cast<int>(DType::kInt32));
  }

  /// Which arguments the body of a loop gives back as they are. At least one
  /// counts as changing.
  static std::vector<bool> find_invariants(const FunctionDef& body) {
    const proto::OpSignature& signature = body.signature();
    std::vector<bool> out(static_cast<size_t>(signature.input_arg_size()));
    for (int i = 0; i < signature.input_arg_size(); ++i)
      for (const proto::NameEntry& ret : body.ret())
        if (ret.key() == signature.output_arg(i).name() && ret.value() == signature.input_arg(i).name())
          out[static_cast<size_t>(i)] = true;
    if (std::ranges::find(out, false) == out.end()) out[0] = false;
    return out;
  }

  Status lower_while() {
    in_loop_ = true;
    TROUPE_ASSIGN(const FunctionDef* condition, function_of("cond"));
    TROUPE_ASSIGN(const FunctionDef* body, function_of("body"));
    const int n = body->signature().input_arg_size();
    if (n == 0 || static_cast<int>(inputs_.size()) != n || body->signature().output_arg_size() != n)
      return invalid_argument("{} inputs, and function '{}' takes {} and gives {}", inputs_.size(),
                              body->signature().name(), n, body->signature().output_arg_size());
    const proto::AttrValue* parallel = find_attr(*call_, "parallel_iterations");
    const auto type = [&](int i) { return body->signature().input_arg(i).type(); };
    const auto numbered = [](const char* what, int i) { return fmt::format("{}_{}", what, i); };
    const std::vector<bool> invariant = find_invariants(*body);
    const auto first = static_cast<size_t>(std::ranges::find(invariant, false) - invariant.begin());
    std::vector<std::string> merges, values;
    for (int i = 0; i < n; ++i) {
      NodeDef& enter = make(numbered("enter", i), "Enter", {inputs_[static_cast<size_t>(i)]});
      for (const std::string& c : controls_) enter.add_input(c);
      set_type(enter, type(i));
      set_attr(enter, "frame_name").set_s(call_->name());
      set_attr(enter, "parallel_iterations").set_i(parallel ? parallel->i() : 10);
      const std::string entered = enter.name();
      enters_.insert(entered);
      if (invariant[static_cast<size_t>(i)]) {
        set_attr(enter, "is_constant").set_b(true);
        merges.push_back(entered);
        values.push_back(entered);
        continue;
      }
      NodeDef& merge = make(numbered("merge", i), "Merge", {entered, name_of(numbered("next", i))});
      set_type(merge, type(i));
      set_attr(merge, "N").set_i(2);
      merges.push_back(merge.name());
      values.push_back(name_of(numbered("value", i)));
    }
    TROUPE_ASSIGN(const Results proceed, put_in(*condition, "cond", merges, {"^" + merges[first]}));
    if (proceed.values.size() != 1)
      return invalid_argument("function '{}' gives {} outputs, a condition must be one", condition->signature().name(),
                              proceed.values.size());
    NodeDef& loop_cond = make("loop_cond", "LoopCond", {proceed.values[0]});
    for (const std::string& c : proceed.controls) loop_cond.add_input(c);
    const std::string predicate = loop_cond.name();
    for (int i = 0; i < n; ++i) {
      if (invariant[static_cast<size_t>(i)]) continue;
      const std::string branch = name_of(numbered("switch", i));
      set_type(make(numbered("switch", i), "Switch", {merges[static_cast<size_t>(i)], predicate}), type(i));
      set_type(make(numbered("value", i), "Identity", {branch + ":1"}), type(i));
      set_type(make(numbered("exit", i), "Exit", {branch}), type(i));
    }
    const Names always = following(*body, arguments_that(*body, invariant));
    TROUPE_ASSIGN(const Results next, put_in(*body, "body", values, {"^" + values[first]}, {}, always));
    Results out;
    for (int i = 0; i < n; ++i) {
      out.types.push_back(type(i));
      if (invariant[static_cast<size_t>(i)]) {
        out.values.push_back(inputs_[static_cast<size_t>(i)]);
        continue;
      }
      NodeDef& node = make(numbered("next", i), "NextIteration", {next.values[static_cast<size_t>(i)]});
      set_type(node, type(i));
      for (const std::string& c : next.controls) node.add_input(c);
      // What is there in every iteration would go on to the next one after the
      // last.
      for (const proto::NameEntry& ret : body->ret())
        if (ret.key() == body->signature().output_arg(i).name() && always.contains(source_of(ret.value())))
          node.add_input("^" + values[first]);
      out.values.push_back(name_of(numbered("exit", i)));
    }
    controls_.clear();  // the Enters wait for them
    finish(out);
    return {};
  }

  proto::GraphDef& def_;
  const OpRegistry& ops_;
  const FunctionLibrary library_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> enters_;  // names of the Enters that were made
  // Of the call at hand:
  const NodeDef* call_ = nullptr;
  bool in_loop_ = false;
  std::vector<std::string> inputs_, controls_;
  std::deque<NodeDef> made_;  // references stay valid
};

}  // namespace

std::string form_of_call(std::string_view op) {
  if (op == "PartitionedCall" || op == "StatefulPartitionedCall" || op == "BatchFunction")
    return "the nodes of its function, IdentityN";
  if (op == "SymbolicGradient") return "the nodes of its function and of their gradients, IdentityN";
  constexpr std::string_view kStateless = "Stateless";
  if (op.starts_with(kStateless)) op.remove_prefix(kStateless.size());
  if (op == "If" || op == "Case") return "the nodes of its functions, Switch, Merge, IdentityN";
  if (op == "While")
    return "the nodes of its functions, Enter, Merge, LoopCond, Switch, "
           "NextIteration, Exit, IdentityN";
  return "";
}

Status put_in_functions(proto::GraphDef& def, const OpRegistry& ops) { return Lowering(def, ops).run(); }

}  // namespace troupe
