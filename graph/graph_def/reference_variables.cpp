// SPDX-License-Identifier: Apache-2.0
// From references to handles.
#include "graph/graph_def/reference_variables.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <unordered_map>

#include "graph/graph_def/node_def.h"

namespace troupe {
namespace {

using proto::GraphDef;
using proto::NodeDef;

enum class ReferenceKind {
  kOther,     // takes values
  kVariable,  // makes a reference
  kUpdate,    // changes what its first inputs refer to, and gives the first on
  kQuestion,  // takes a reference and gives a value
  kPass,      // gives references on: control flow
};

/// The form for handles of an op on references; empty: `op` is none.
std::string handle_form(const std::string& op) {
  static const std::map<std::string, const char*, std::less<>> kNames = {
      {"Assign", "AssignVariableOp"},
      {"AssignAdd", "AssignAddVariableOp"},
      {"AssignSub", "AssignSubVariableOp"},
      {"IsVariableInitialized", "VarIsInitializedOp"},
      {"CountUpTo", "ResourceCountUpTo"},
      {"DestroyTemporaryVariable", "_TakeVariable"},
      {"StridedSliceAssign", "ResourceStridedSliceAssign"},
      {"RefSwitch", "Switch"},
      {"RefMerge", "Merge"},
      {"RefEnter", "Enter"},
      {"RefExit", "Exit"},
      {"RefNextIteration", "NextIteration"},
      {"RefIdentity", "Identity"},
  };
  static const std::set<std::string, std::less<>> kScatters = {"Update", "Add", "Sub", "Mul", "Div", "Min", "Max"};
  if (const auto at = kNames.find(op); at != kNames.end()) return at->second;
  const bool handles_only = op.ends_with("KerasMomentum") || op == "ApplyAdamWithAmsgrad";
  if (op.starts_with("Apply") || op.starts_with("SparseApply")) return handles_only ? "" : "Resource" + op;
  for (const std::string_view start : {"ScatterNd", "Scatter"})
    if (op.starts_with(start) && kScatters.contains(std::string_view(op).substr(start.size()))) return "Resource" + op;
  return "";
}

ReferenceKind kind_of(const std::string& op, const OpRegistry& ops) {
  if (ops.find(op)) return ReferenceKind::kOther;  // of a user's own
  if (op == "VariableV2" || op == "Variable" || op == "TemporaryVariable")
    return ops.find("VarHandleOp") ? ReferenceKind::kVariable : ReferenceKind::kOther;
  const std::string form = handle_form(op);
  if (form.empty() || !ops.find(form)) return ReferenceKind::kOther;
  if (op == "IsVariableInitialized" || op == "CountUpTo" || op == "DestroyTemporaryVariable")
    return ReferenceKind::kQuestion;
  return op.starts_with("Ref") ? ReferenceKind::kPass : ReferenceKind::kUpdate;
}

proto::DataType type_of(const NodeDef& node, std::string_view attr) {
  const auto* type = find_attr(node, attr);
  return type ? type->type() : proto::DT_INVALID;
}

void add_control(NodeDef& node, const std::string& before) {
  if (before.empty()) return;
  const std::string input = "^" + before;
  if (std::ranges::find(node.input(), input) == node.input().end()) node.add_input(input);
}

/// The op of `node` becomes its form for handles; attributes that the form lacks go, notes of other programs stay.
void take_form(NodeDef& node, const OpDef& form) {
  if (!form.find_attr("T") && form.find_attr("dtype"))
    for (proto::AttrEntry& e : *node.mutable_attr())
      if (e.key() == "T") e.set_key("dtype");
  auto* attrs = node.mutable_attr();
  attrs->erase(std::remove_if(attrs->begin(), attrs->end(),
                              [&](const auto& e) { return !e.key().starts_with('_') && !form.find_attr(e.key()); }),
               attrs->end());
  node.set_op(form.name());
}

/// What the first output of a node refers to; of a kPass node, every one.
struct Ref {
  std::string handle;  // as an input is written; empty: the output itself, which becomes one
  std::string after;   // the node that has changed it; empty: none
  proto::DataType dtype = proto::DT_INVALID;
  int variable = -1;  // the node that made it, where that is known
};

/// Control flow makes one reference of several at a Merge, and a loop leads back: such ways are followed this far.
constexpr int kMostPasses = 1'000;

class ReferenceRewrite {
 public:
  ReferenceRewrite(GraphDef& def, const OpRegistry& ops, std::string_view prefix)
      : def_(def), ops_(ops), prefix_(prefix) {}

  Status run() {
    const int n = def_.node_size();
    bool any = false;
    for (int i = 0; i < n; ++i) {
      kinds_.push_back(kind_of(def_.node(i).op(), ops_));
      any |= kinds_[i] != ReferenceKind::kOther;
      names_.emplace(def_.node(i).name(), i);
    }
    if (!any) return {};
    beside_.resize(kinds_.size());
    refs_.resize(kinds_.size());
    for (int i = 0; i < n; ++i) {
      const NodeDef& node = def_.node(i);
      if (kinds_[i] == ReferenceKind::kVariable) beside_[i] = new_name(node.name() + "/handle");
      if (kinds_[i] == ReferenceKind::kUpdate) beside_[i] = new_name(node.name() + "/update");
      if (kinds_[i] == ReferenceKind::kVariable) refs_[i] = Ref{beside_[i], "", type_of(node, "dtype"), i};
      if (kinds_[i] == ReferenceKind::kPass) refs_[i] = Ref{"", "", type_of(node, "T"), -1};
    }
    for (int i = 0; i < n; ++i)
      if (kinds_[i] == ReferenceKind::kUpdate) TROUPE_RETURN_IF_ERROR(find_root(i));
    find_late_readers();
    for (int i = 0; i < n; ++i) TROUPE_RETURN_IF_ERROR(rewrite(i));
    for (NodeDef& node : added_) *def_.add_node() = std::move(node);
    return {};
  }

 private:
  std::string new_name(const std::string& base) {
    std::string name = base;
    for (int suffix = 1; !names_.try_emplace(name, -1).second; ++suffix) name = fmt::format("{}_{}", base, suffix);
    return name;
  }

  Error no_reference(int i, int k, const std::string& input) const {
    Error error = invalid_argument("input {} must be a reference to a variable, not '{}'", k, input);
    error.op = def_.node(i).op();
    error.node = def_.node(i).name();
    return error;
  }

  // -- references -----------------------------------------------------------------------------------------------------

  /// The node and port that an input names; node -1 where it is not in the file: the import says so.
  std::pair<int, int> source(std::string_view input) const {
    int port = 0;
    if (const size_t colon = input.rfind(':'); colon != std::string_view::npos) {
      std::from_chars(input.data() + colon + 1, input.data() + input.size(), port);
      input = input.substr(0, colon);
    }
    const auto found = names_.find(std::string(input));
    return {found == names_.end() ? -1 : found->second, port};
  }

  /// What an input refers to, none where it is a value. Only once the roots of updates are found.
  std::optional<Ref> ref(const std::string& input) const {
    const auto [i, port] = source(input);
    if (i < 0 || !refs_[i]) return {};
    const bool pass = kinds_[i] == ReferenceKind::kPass;
    if (port != 0 && (!pass || def_.node(i).op() == "Merge" || def_.node(i).op() == "RefMerge")) return {};
    Ref out = *refs_[i];
    if (pass) out.handle = input;
    return out;
  }

  /// Follows an update's first inputs to where the reference was made, and keeps that for all updates on the way.
  Status find_root(int first) {
    std::vector<int> way;
    std::optional<Ref> root;
    for (int i = first; !refs_[i] && !root;) {
      way.push_back(i);
      const NodeDef& node = def_.node(i);
      const std::string input = node.input_size() ? node.input(0) : "";
      const auto [before, port] = source(input);
      root = ref(input);
      const bool follows =
          before >= 0 && kinds_[before] == ReferenceKind::kUpdate && port == 0 && way.size() < kinds_.size();
      if (!root && !follows) return no_reference(i, 0, input);
      i = before;
    }
    for (const int update : way) {
      refs_[update] = root;
      refs_[update]->after = beside_[update];
      const auto* validate = find_attr(def_.node(update), "validate_shape");
      if (validate && !validate->b() && root->variable >= 0) reshaped_.insert(root->variable);
    }
    return {};
  }

  /// The variable whose reference an update changes, also within the branches of a condition or a loop; -1: unknown.
  int variable_of(int update) const {
    if (refs_[update]->variable >= 0) return refs_[update]->variable;
    int i = update;
    for (int passes = 0; passes < kMostPasses && i >= 0; ++passes) {
      if (kinds_[i] == ReferenceKind::kVariable) return i;
      if (kinds_[i] != ReferenceKind::kUpdate && kinds_[i] != ReferenceKind::kPass) return -1;
      const NodeDef& node = def_.node(i);
      i = node.input_size() ? source(node.input(0)).first : -1;
    }
    return -1;
  }

  // -- identities -----------------------------------------------------------------------------------------------------
  // TensorFlow's identity of a reference shares the variable's memory, so that a node that comes after an update sees
  // it even through an identity from before. Such nodes read the variable themselves.

  void find_late_readers() {
    const int n = def_.node_size();
    std::vector<std::vector<int>> consumers(kinds_.size());  // by data and by control
    std::map<int, std::vector<int>> identities;              // by variable
    for (int i = 0; i < n; ++i) {
      for (const std::string& input : def_.node(i).input())
        if (const int from = source(is_control(input) ? input.substr(1) : input).first; from >= 0)
          consumers[from].push_back(i);
      if (def_.node(i).op() != "Identity" || def_.node(i).input_size() == 0) continue;
      if (const auto r = ref(def_.node(i).input(0)); r && r->variable >= 0) identities[r->variable].push_back(i);
    }
    std::vector<int> reached(kinds_.size(), -1);  // the last update that comes before the node
    for (int update = 0; update < n; ++update) {
      if (kinds_[update] != ReferenceKind::kUpdate) continue;
      const auto shared = identities.find(variable_of(update));
      if (shared == identities.end()) continue;
      std::vector<int> next = {update};
      while (!next.empty()) {
        const int i = next.back();
        next.pop_back();
        for (const int c : consumers[i])
          if (std::exchange(reached[c], update) != update) next.push_back(c);
      }
      const auto is_reached = [&](const std::string& input) {
        const int from = source(is_control(input) ? input.substr(1) : input).first;
        return from >= 0 && reached[from] == update;
      };
      for (const int identity : shared->second) {
        if (reached[identity] == update) continue;
        for (const int c : consumers[identity]) {
          if (reached[c] == update && c != update) late_[{c, identity}] = shared->first;
          if (reached[c] == update || def_.node(c).op() != "Enter") continue;
          // Within the loop of the update, after whatever of the iteration the reader waits for.
          for (const int reader : consumers[c])
            if (reached[reader] == update && std::ranges::any_of(def_.node(reader).input(), is_reached))
              late_[{reader, c}] = shared->first;
        }
      }
    }
  }

  /// The handle of a variable in the loop that `enter` brings its value into.
  const std::string& handle_in_loop(int enter, const Ref& r) {
    std::string& name = in_loops_[enter];
    if (!name.empty()) return name;
    NodeDef& node = added_.emplace_back(def_.node(enter));
    node.set_name(name = new_name(node.name() + "/handle"));
    node.set_input(0, r.handle);
    set_attr(node, "T").set_type(proto::DT_RESOURCE);
    return name;
  }

  /// What input `input` of node i is to be read from, none where it is a value to be taken as it is.
  std::optional<Ref> wanted_ref(int i, const std::string& input) {
    if (is_control(input)) return {};
    const int from = source(input).first;
    const auto late = late_.find({i, from});
    if (late == late_.end()) return ref(input);
    Ref r = *refs_[late->second];
    if (def_.node(from).op() == "Enter") r.handle = handle_in_loop(from, r);
    return r;
  }

  // -- nodes ----------------------------------------------------------------------------------------------------------

  Status rewrite(int i) {
    NodeDef& node = *def_.mutable_node(i);
    order_controls(node);
    const std::optional<Ref> first = node.input_size() > 0 ? wanted_ref(i, node.input(0)) : std::nullopt;
    switch (kinds_[i]) {
      case ReferenceKind::kOther:
        if (first && node.op() == "Identity") make_read(node, *first);
        else read_values(i, node);
        return {};
      case ReferenceKind::kVariable: return make_handle(i, node), Status();
      case ReferenceKind::kQuestion: return take_handles(i, node);
      case ReferenceKind::kPass: return pass_on(i, node);
      case ReferenceKind::kUpdate: break;
    }
    NodeDef update = node;
    update.set_name(beside_[i]);
    TROUPE_RETURN_IF_ERROR(take_handles(i, update));
    added_.push_back(std::move(update));
    node.clear_input();
    make_read(node, *refs_[i]);
    return {};
  }

  /// A control input that waits for an update waits for it, not for the read that has its name.
  void order_controls(NodeDef& node) const {
    for (std::string& input : *node.mutable_input()) {
      const int i = is_control(input) ? source(input.substr(1)).first : -1;
      if (i >= 0 && !beside_[i].empty()) input = "^" + beside_[i];
    }
  }

  /// Turns a node into the read of a reference, its control inputs kept.
  static void make_read(NodeDef& node, const Ref& r) {
    std::vector<std::string> inputs = {r.handle};
    std::ranges::copy_if(node.input(), std::back_inserter(inputs), is_control);
    node.set_op("ReadVariableOp");
    node.clear_attr();
    set_attr(node, "dtype").set_type(r.dtype);
    node.clear_input();
    for (std::string& input : inputs) node.add_input(std::move(input));
    add_control(node, r.after);
  }

  void make_handle(int i, NodeDef& node) {
    NodeDef handle = node;
    handle.set_name(beside_[i]);
    take_form(handle, *ops_.find("VarHandleOp"));
    proto::AttrValue& shared = set_attr(handle, "shared_name");
    if (shared.s().empty()) shared.set_s(prefix_ + node.name());
    if (node.op() == "TemporaryVariable") set_attr(handle, "_temporary").set_b(true);
    proto::TensorShapeProto& shape = *set_attr(handle, "shape").mutable_shape();
    const bool unsaid = node.op() == "Variable" && shape.dim_size() == 0;  // so the old op wrote what it did not know
    if (unsaid || reshaped_.contains(i)) {
      shape.clear_dim();
      shape.set_unknown_rank(true);
    }
    make_read(node, *refs_[i]);
    added_.push_back(std::move(handle));
  }

  /// An op on references becomes its form for handles; its other inputs are values.
  Status take_handles(int i, NodeDef& node) {
    const OpDef& form = *ops_.find(handle_form(node.op()));
    std::vector<Ref> handles;
    for (const ArgDef& arg : form.inputs()) {
      if (arg.dtype != DType::kResource) break;
      const auto k = static_cast<int>(handles.size());
      const std::string input = k < node.input_size() ? node.input(k) : "";
      const auto r = ref(input);
      if (!r) return no_reference(i, k, input);
      handles.push_back(*r);
    }
    read_values(i, node, static_cast<int>(handles.size()));
    for (size_t k = 0; k < handles.size(); ++k) node.set_input(static_cast<int>(k), handles[k].handle);
    for (const Ref& r : handles) add_control(node, r.after);
    take_form(node, form);
    return {};
  }

  /// Control flow for references becomes that for handles. A merge does not wait, so what must come before one of its
  /// inputs is put before an identity.
  Status pass_on(int i, NodeDef& node) {
    const bool merge = node.op() == "RefMerge";
    for (int k = 0; k < (merge ? node.input_size() : 1); ++k) {
      const std::string input = k < node.input_size() ? node.input(k) : "";
      if (merge && is_control(input)) break;
      const auto r = ref(input);
      if (!r) return no_reference(i, k, input);
      node.set_input(k, r->handle);
      if (!merge) {
        add_control(node, r->after);
      } else if (!r->after.empty()) {
        NodeDef& identity = added_.emplace_back();
        identity.set_name(new_name(node.name() + "/input"));
        identity.set_op("Identity");
        identity.add_input(r->handle);
        set_attr(identity, "T").set_type(proto::DT_RESOURCE);
        add_control(identity, r->after);
        node.set_input(k, identity.name());
      }
    }
    if (!merge) read_values(i, node, 1);
    set_attr(node, "T").set_type(proto::DT_RESOURCE);
    node.set_op(handle_form(node.op()));
    return {};
  }

  /// References among the inputs from `first` on become values, each read when the node itself could run: after its
  /// control inputs and its other inputs.
  void read_values(int i, NodeDef& node, int first = 0) {
    std::map<std::string, Ref> wanted;
    std::vector<std::string> waits;
    for (int k = first; k < node.input_size(); ++k) {
      const std::string& input = node.input(k);
      const auto r = wanted_ref(i, input);
      if (r) wanted.emplace(input, *r);
      if (is_control(input)) waits.push_back(input.substr(1));
      else if (r) waits.push_back(r->after);
      else if (node.op() != "Merge") waits.push_back(input.substr(0, input.rfind(':')));
    }
    std::map<std::string, std::string> names;
    for (const auto& [input, r] : wanted) {
      NodeDef& read = added_.emplace_back();
      read.set_name(names[input] = new_name(node.name() + "/read"));
      read.set_device(node.device());
      make_read(read, r);
      for (const std::string& before : waits) add_control(read, before);
    }
    for (std::string& input : *node.mutable_input())
      if (const auto name = names.find(input); name != names.end()) input = name->second;
  }

  GraphDef& def_;
  const OpRegistry& ops_;
  const std::string prefix_;
  std::unordered_map<std::string, int> names_;  // of nodes of the file; -1: of a new one
  // By node of the file:
  std::vector<ReferenceKind> kinds_;
  std::vector<std::string> beside_;  // the handle of a variable, the update of an update
  std::vector<std::optional<Ref>> refs_;
  // Node and identity, or Enter of one, that it does not take the value of: the variable.
  std::map<std::pair<int, int>, int> late_;
  std::map<int, std::string> in_loops_;  // by Enter: the handle that goes the same way
  std::set<int> reshaped_;               // variables that an Assign without validate_shape may give another shape
  std::vector<NodeDef> added_;
};

}  // namespace

std::string form_without_references(const std::string& op, const OpRegistry& ops) {
  switch (kind_of(op, ops)) {
    case ReferenceKind::kOther: return "";
    case ReferenceKind::kVariable: return "VarHandleOp, ReadVariableOp";
    case ReferenceKind::kUpdate: return handle_form(op) + ", ReadVariableOp";
    default: return handle_form(op);
  }
}

Status rewrite_reference_variables(proto::GraphDef& def, const OpRegistry& ops, std::string_view prefix) {
  return ReferenceRewrite(def, ops, prefix).run();
}

}  // namespace troupe
