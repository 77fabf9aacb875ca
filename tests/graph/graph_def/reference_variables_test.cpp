// SPDX-License-Identifier: Apache-2.0
// Reference variables of a GraphDef become handles: what each node turns into and waits for. That the results are
// TensorFlow's is what the golden cases *_ref check.
#include <catch2/catch.hpp>

#include <spdlog/fmt/fmt.h>
#include <set>

#include "tests/op_library.h"
#include "troupe/graph_def.h"
#include "troupe/scope.h"

using namespace troupe;
using Catch::Contains;

namespace {

/// Graphs in short: each line a node: name, op, inputs; then attributes after a bar, as `key=field:value`.
std::string text_of(const std::vector<std::string>& lines) {
  std::string out;
  const auto next = [](std::string_view& s) {
    const size_t end = std::min(s.find(' '), s.size());
    const std::string word(s.substr(0, end));
    s.remove_prefix(std::min(end + 1, s.size()));
    return word;
  };
  for (std::string_view line : lines) {
    out += fmt::format("node {{ name: '{}' ", next(line));
    out += fmt::format("op: '{}' ", next(line));
    bool attrs = false;
    while (!line.empty()) {
      const std::string word = next(line);
      if (word == "|") attrs = true;
      else if (!attrs) out += fmt::format("input: '{}' ", word);
      else
        out += fmt::format("attr {{ key: '{}' value {{ {} }} }} ", word.substr(0, word.find('=')),
                           word.substr(word.find('=') + 1));
    }
    out += "}\n";
  }
  return out;
}

const std::string kFloat = "=type:DT_FLOAT";
const std::string kVariable = " | dtype=type:DT_FLOAT shape=shape:{dim:{size:2}}";

struct LoadFixture {
  Status load(const std::vector<std::string>& lines, std::string_view prefix = {}) {
    return from_graph_def(text_of(lines), graph, prefix);
  }
  void must_load(const std::vector<std::string>& lines) {
    const Status status = load(lines);
    INFO((status.ok() ? "" : status.error().str()));
    REQUIRE(status.ok());
  }
  /// "Op in, in | control, control": controls in order of their names.
  std::string node(const std::string& name) const {
    const Node* n = graph.find(name);
    if (!n) return "not there";
    std::vector<std::string> inputs;
    std::set<std::string> controls;
    for (const Output& in : n->inputs()) inputs.push_back(in.name());
    for (const Node* c : n->control_inputs()) controls.insert(c->name());
    return fmt::format("{} {} | {}", n->op().name(), fmt::join(inputs, ", "), fmt::join(controls, ", "));
  }
  OpRegistry ops = testing::op_library()->ops;
  KernelRegistry kernels = testing::op_library()->kernels;
  Graph graph{ops};
};

}  // namespace

TEST_CASE("a variable is a handle, and its name the read") {
  LoadFixture f;
  f.must_load({"v VariableV2" + kVariable, "n NoOp ^v", "r Identity v ^n | T" + kFloat, "y Neg r | T" + kFloat});
  CHECK(f.node("v/handle") == "VarHandleOp  | ");
  CHECK(f.node("v") == "ReadVariableOp v/handle:0 | ");
  CHECK(f.node("r") == "ReadVariableOp v/handle:0 | n");
  CHECK(f.node("y") == "Neg r:0 | ");
  CHECK(f.node("n") == "NoOp  | v/handle");  // a control input on a variable does not ask for its value
  CHECK(*f.graph.find("v/handle")->attrs().get<std::string>("shared_name") == "v");
  CHECK(f.graph.find("y")->shape(0).str() == "[2]");
}

TEST_CASE("a name below the prefix is the variable's, a shared name stays") {
  LoadFixture f;
  REQUIRE(f.load({"v VariableV2" + kVariable, "w VariableV2" + kVariable + " shared_name=s:'all'"}, "copy").ok());
  CHECK(*f.graph.find("copy/v/handle")->attrs().get<std::string>("shared_name") == "copy/v");
  CHECK(*f.graph.find("copy/w/handle")->attrs().get<std::string>("shared_name") == "all");
}

TEST_CASE("new names give way to those of the file") {
  LoadFixture f;
  f.must_load({"v/handle NoOp", "v VariableV2" + kVariable});
  CHECK(f.node("v/handle") == "NoOp  | ");
  CHECK(f.node("v") == "ReadVariableOp v/handle_1:0 | ");
}

TEST_CASE("an update's name is the value after it, and what waits for it waits for the update") {
  LoadFixture f;
  f.must_load({"v VariableV2" + kVariable, "x Placeholder | dtype" + kFloat,
               "a AssignAdd v x | T" + kFloat + " use_locking=b:true", "b AssignSub a x ^x | T" + kFloat, "n NoOp ^b",
               "y Neg b | T" + kFloat});
  CHECK(f.node("a/update") == "AssignAddVariableOp v/handle:0, x:0 | ");
  CHECK(f.node("a") == "ReadVariableOp v/handle:0 | a/update");
  CHECK(f.node("b/update") == "AssignSubVariableOp v/handle:0, x:0 | a/update, x");
  CHECK(f.node("b") == "ReadVariableOp v/handle:0 | b/update");
  CHECK(f.node("n") == "NoOp  | b/update");
  CHECK(f.node("y/read") == "ReadVariableOp v/handle:0 | b/update");
  CHECK(f.node("y") == "Neg y/read:0 | ");
}

TEST_CASE("a node reads a variable when it could run itself") {
  LoadFixture f;
  f.must_load({"v VariableV2" + kVariable, "x Placeholder | dtype" + kFloat, "a Assign v x | T" + kFloat,
               "z Neg x | T" + kFloat, "n NoOp", "y AddN v z a v ^n | N=i:4 T" + kFloat});
  CHECK(f.node("y") == "AddN y/read_1:0, z:0, y/read:0, y/read_1:0 | n");
  CHECK(f.node("y/read") == "ReadVariableOp v/handle:0 | a/update, n, z");
  CHECK(f.node("y/read_1") == "ReadVariableOp v/handle:0 | a/update, n, z");
}

TEST_CASE("after an update, a node sees it through an identity from before") {
  LoadFixture f;
  f.must_load({"v VariableV2" + kVariable, "x Placeholder | dtype" + kFloat, "r Identity v | T" + kFloat,
               "a AssignAdd v x | T" + kFloat, "n NoOp ^a", "before Neg r | T" + kFloat, "after Neg r ^n | T" + kFloat,
               "mixed Mul r after | T" + kFloat, "again Identity r ^a | T" + kFloat, "late Identity v ^a | T" + kFloat,
               "y Neg late ^a | T" + kFloat, "b AssignSub v r | T" + kFloat, "c AssignAdd v r ^b | T" + kFloat});
  CHECK(f.node("before") == "Neg r:0 | ");
  CHECK(f.node("after") == "Neg after/read:0 | n");
  CHECK(f.node("after/read") == "ReadVariableOp v/handle:0 | n");
  CHECK(f.node("mixed") == "Mul mixed/read:0, after:0 | ");
  CHECK(f.node("mixed/read") == "ReadVariableOp v/handle:0 | after");
  CHECK(f.node("again") == "ReadVariableOp v/handle:0 | a/update");
  CHECK(f.node("y") == "Neg late:0 | a/update");
  CHECK(f.node("b/update") == "AssignSubVariableOp v/handle:0, r:0 | ");
  CHECK(f.node("c/update") == "AssignAddVariableOp v/handle:0, c/update/read:0 | b/update");
}

TEST_CASE("after a condition or a loop with an update in it, a node sees that through an identity from before") {
  LoadFixture f;
  const std::string type = " | T" + kFloat;
  f.must_load({"v VariableV2" + kVariable, "x Placeholder | dtype" + kFloat, "p Placeholder | dtype=type:DT_BOOL",
               "r Identity v" + type, "s RefSwitch v p" + type, "sx Switch x p" + type, "a AssignAdd s:1 sx:1" + type,
               "t Identity sx" + type, "m Merge a t" + type + " N=i:2", "before Neg r" + type,
               "after Neg r ^m" + type});
  CHECK(f.node("before") == "Neg r:0 | ");
  CHECK(f.node("after/read") == "ReadVariableOp v/handle:0 | m");
  LoadFixture l;
  const std::string frame = " frame_name=s:'l'";
  l.must_load({"v VariableV2" + kVariable, "x Placeholder | dtype" + kFloat, "r Identity v" + type,
               "one Const | dtype" + kFloat + " value=tensor:{dtype:DT_FLOAT,tensor_shape:{},float_val:1}",
               "e RefEnter v" + type + frame + " is_constant=b:true", "i Enter one" + type + frame,
               "m Merge i n" + type + " N=i:2", "less Less m m" + type, "c LoopCond less", "s Switch m c" + type,
               "a AssignAdd e s:1" + type, "b Identity s:1 ^a" + type, "n NextIteration b" + type, "out Exit s" + type,
               "after Neg r ^out" + type});
  CHECK(l.node("after/read") == "ReadVariableOp v/handle:0 | out");
  CHECK(l.node("r") == "ReadVariableOp v/handle:0 | ");
}

TEST_CASE("in a loop with an update, a node sees that through an identity from outside") {
  LoadFixture f;
  const std::string type = " | T" + kFloat, frame = " frame_name=s:'l'";
  f.must_load({"v VariableV2" + kVariable, "r Identity v" + type,
               "one Const | dtype" + kFloat + " value=tensor:{dtype:DT_FLOAT,tensor_shape:{},float_val:1}",
               "e RefEnter v" + type + frame + " is_constant=b:true",
               "re Enter r" + type + frame + " is_constant=b:true", "i Enter one" + type + frame,
               "m Merge i n" + type + " N=i:2", "less Less m m" + type, "c LoopCond less", "s Switch m c" + type,
               "y Mul re s:1" + type, "outside Neg r" + type, "a Assign e y" + type, "b Identity s:1 ^a" + type,
               "n NextIteration b" + type, "out Exit s" + type});
  CHECK(f.node("y") == "Mul y/read:0, s:1 | ");
  CHECK(f.node("y/read") == "ReadVariableOp re/handle:0 | s");
  CHECK(f.node("re/handle") == "Enter v/handle:0 | ");
  CHECK(f.node("outside") == "Neg r:0 | ");
}

TEST_CASE("optimizers, scatters and questions take handles") {
  LoadFixture f;
  f.must_load({"v VariableV2" + kVariable, "m VariableV2" + kVariable, "x Placeholder | dtype" + kFloat,
               "rate Placeholder | dtype" + kFloat + " shape=shape:{}",
               "g Placeholder | dtype" + kFloat + " shape=shape:{dim:{size:2}}",
               "i Placeholder | dtype=type:DT_INT32 shape=shape:{dim:{size:1}}",
               "u ApplyMomentum v m rate g rate | T" + kFloat + " use_locking=b:true use_nesterov=b:true",
               "s ScatterAdd v i x | T" + kFloat + " Tindices=type:DT_INT32",
               "q IsVariableInitialized v | dtype" + kFloat});
  CHECK(f.node("u/update") == "ResourceApplyMomentum v/handle:0, m/handle:0, rate:0, g:0, rate:0 | ");
  CHECK(*f.graph.find("u/update")->attrs().get<bool>("use_nesterov"));
  CHECK(f.node("u") == "ReadVariableOp v/handle:0 | u/update");
  CHECK(f.node("s/update") == "ResourceScatterAdd v/handle:0, i:0, x:0 | ");
  CHECK(f.node("q") == "VarIsInitializedOp v/handle:0 | ");
}

TEST_CASE("a variable that is assigned without a check of shapes has none") {
  LoadFixture f;
  f.must_load({"v VariableV2" + kVariable, "old Variable | dtype" + kFloat + " shape=shape:{}",
               "x Placeholder | dtype" + kFloat, "a Assign v x | T" + kFloat + " validate_shape=b:false"});
  CHECK(!f.graph.find("v")->shape(0).has_rank());
  CHECK(!f.graph.find("old")->shape(0).has_rank());
}

TEST_CASE("references pass through control flow as handles") {
  LoadFixture f;
  f.must_load({"v VariableV2" + kVariable, "p Placeholder | dtype=type:DT_BOOL shape=shape:{}",
               "x Placeholder | dtype" + kFloat, "s RefSwitch v p | T" + kFloat, "a Assign s:1 x | T" + kFloat,
               "m RefMerge s a | N=i:2 T" + kFloat, "y Neg m | T" + kFloat, "z Neg m:1 | T=type:DT_INT32",
               "e RefEnter v | T" + kFloat + " frame_name=s:'loop'"});
  CHECK(f.node("s") == "Switch v/handle:0, p:0 | ");
  CHECK(f.node("a/update") == "AssignVariableOp s:1, x:0 | ");
  CHECK(f.node("m/input") == "Identity s:1 | a/update");
  CHECK(f.node("m") == "Merge s:0, m/input:0 | ");
  CHECK(f.node("y/read") == "ReadVariableOp m:0 | ");
  CHECK(f.node("z") == "Neg m:1 | ");
  CHECK(f.node("e") == "Enter v/handle:0 | ");
  CHECK(f.graph.find("m")->dtype(0) == DType::kResource);
}

TEST_CASE("a temporary variable is a handle that each run makes anew") {
  LoadFixture f;
  f.must_load({"t TemporaryVariable" + kVariable + " var_name=s:'sum'", "x Placeholder | dtype" + kFloat,
               "a Assign t x | T" + kFloat, "b AssignAdd t x ^a | T" + kFloat,
               "d DestroyTemporaryVariable a ^b | var_name=s:'sum' T" + kFloat, "y Neg d | T" + kFloat});
  CHECK(f.node("t/handle") == "VarHandleOp  | ");
  CHECK(f.graph.find("t/handle")->attrs().get_or("_temporary", false));
  CHECK(f.node("d") == "_TakeVariable t/handle:0 | a/update, b/update");
  CHECK(f.node("y") == "Neg d:0 | ");
  CHECK(f.graph.find("y")->shape(0).str() == "[2]");
}

TEST_CASE("what is no reference is refused") {
  const auto message = [](const std::vector<std::string>& lines) {
    LoadFixture f;
    const Status status = f.load(lines);
    REQUIRE(!status.ok());
    return status.error().str();
  };
  const std::string x = "x Placeholder | dtype" + kFloat, v = "v VariableV2" + kVariable;
  CHECK_THAT(message({x, "a Assign x x | T" + kFloat}), Contains("Assign 'a'") && Contains("not 'x'"));
  CHECK_THAT(message({x, "a AssignAdd | T" + kFloat}), Contains("input 0 must be a reference"));
  CHECK_THAT(message({x, "a AssignAdd a x | T" + kFloat}), Contains("input 0 must be a reference"));
  CHECK_THAT(message({x, "a AssignAdd b x | T" + kFloat, "b AssignAdd a x | T" + kFloat}), Contains("not 'b'"));
  CHECK_THAT(message({x, "a AssignAdd gone x | T" + kFloat}), Contains("not 'gone'"));
  CHECK_THAT(message({x, v, "u ApplyMomentum v x x x x | T" + kFloat}), Contains("input 1") && Contains("not 'x'"));
  CHECK_THAT(message({x, v, "m RefMerge v x | N=i:2 T" + kFloat}), Contains("RefMerge 'm'"));
  CHECK_THAT(message({x, "s RefSwitch ^x | T" + kFloat}), Contains("RefSwitch 's'"));
  CHECK_THAT(message({"v VariableV2"}), Contains("'v/handle'"));
  CHECK_THAT(message({x, v, "a Assign v ^x | T" + kFloat}), Contains("AssignVariableOp 'a/update'"));
}

TEST_CASE("an op of a user's own that is called as one on references, or one that calls, is that op") {
  LoadFixture f;
  const std::vector<std::string> names = {
      "Assign", "ScatterAdd", "ApplyAdam", "CountUpTo",       "VariableV2",
      "Case",   "RefSwitch",  "If",        "PartitionedCall", "ParseExampleDataset"};
  for (const std::string& op : names)
    f.ops.add(OpDef(op).input("x: float32").output("y: float32").doc("A test's.").shape(unchanged_shape),
              not_differentiable("a test's"));
  Graph from(f.ops);
  const Scope scope(from);
  const Output x = scope.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}});
  for (const std::string& op : names) scope.named("y_" + op).op(op, {x});
  REQUIRE(scope.ok());
  const Status status = from_graph_def(to_graph_def(from), f.graph);
  INFO((status.ok() ? "" : status.error().str()));
  REQUIRE(status.ok());
  for (const std::string& op : names) CHECK(f.node("y_" + op) == op + " x:0 | ");
}
