// SPDX-License-Identifier: Apache-2.0
// Op schemas: what an op takes, gives and is called, its shape function and its gradient. Implemented in graph/op.cpp
// (schema, registry) and graph/gradients.cpp.
//
// Adding an op: docs/adding_an_op.md. Op names, attributes and meanings are TensorFlow's.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/attr.h"
#include "troupe/export.h"
#include "troupe/op_cost.h"

namespace TROUPE_API troupe {

class Node;
class Scope;
struct Output;

/// One input or output in a schema. Exactly one of dtype, type_attr, type_list_attr tells the type; number_attr, if
/// any, says how many tensors of it there are.
struct ArgDef {
  std::string name;
  DType dtype = DType::kInvalid;
  std::string type_attr;
  std::string number_attr;
  std::string type_list_attr;
};

/// One attribute in a schema.
struct AttrDef {
  std::string name;
  std::string type;  // "int", "list(int)", "type", ...
  std::optional<AttrValue> default_value;
  std::vector<DType> allowed_types;         // for "type", "list(type)"; empty: any
  std::vector<std::string> allowed_values;  // for "string"; empty: any
  std::optional<int64_t> minimum;           // of an int, or of a list's length
};

/// What a shape function sees of a node that is about to be added. Each call throws std::out_of_range for an input,
/// output or attribute that there is not, which becomes the error of that node.
class ShapeContext {
 public:
  virtual ~ShapeContext() = default;
  virtual int num_inputs() const = 0;
  virtual int num_outputs() const = 0;
  virtual const PartialShape& input(int i) const = 0;
  virtual DType input_dtype(int i) const = 0;
  /// What input i is connected to: a resource op finds type and shape of its variable at the node of the handle.
  virtual Output source(int i) const = 0;
  /// The value of input i where it is a constant, for ops whose output shape depends on it (Reshape, Fill, ...).
  virtual std::optional<Tensor> constant_input(int i) const = 0;
  /// The shape whose sizes input i, a vector, holds, as far as these follow from constants and known shapes. A negative
  /// one counts as unknown.
  virtual PartialShape sizes_input(int i) const = 0;
  virtual const Attrs& attrs() const = 0;
  virtual void set_output(int i, PartialShape shape) = 0;

  /// The attribute; one that the schema has is there, with the schema's type.
  template <class T> const T& attr(std::string_view name) const { return attrs().at<T>(name); }
  /// input(i) with `rank` dimensions at least known to exist, or an error that names the shape.
  Result<PartialShape> with_rank(int i, int rank) const;
  Result<PartialShape> with_rank_at_least(int i, int rank) const;
};
/// Sets every output's shape (unset ones are unknown) or returns what is wrong; op and node are added to the error. It
/// is called without a lock, so that it may ask graphs and sessions for something.
using ShapeFn = std::function<Status(ShapeContext&)>;

/// What a gradient function sees of a node y = op(x): it adds nodes that compute the gradients of the inputs. Each call
/// throws std::out_of_range for an input or output that there is not, which becomes the error of that node.
class GradientContext {
 public:
  virtual ~GradientContext() = default;
  virtual const Node& node() const = 0;
  virtual int num_inputs() const = 0;
  virtual Output input(int i) const = 0;
  virtual Output output(int i) const = 0;
  /// Gradient of the loss by output i; none (false) when the loss does not depend on it.
  virtual Output dy(int i) const = 0;
  /// Sets the gradient by input i. Inputs left unset get none.
  virtual void set_dx(int i, Output gradient) = 0;
  /// Where new nodes go: a name scope of this node, on its device.
  virtual Scope& scope() = 0;

  /// Adds a node by op name and returns its first output; faults stick to scope().
  Output op(std::string_view op_name, std::vector<Output> inputs, Attrs attrs = {});
  /// Adds a node and returns all its outputs.
  std::vector<Output> ops(std::string_view op_name, std::vector<Output> inputs, Attrs attrs = {});
  /// A Const node.
  Output constant(Tensor value);
};
using GradientFn = std::function<Status(GradientContext&)>;

/// How an op is differentiated; every op says so.
struct Gradient {
  GradientFn function;             // empty: not differentiable
  std::string no_gradient_reason;  // then why

  Gradient();
  Gradient(GradientFn function, std::string_view no_gradient_reason);
  Gradient(const Gradient& other);
  Gradient(Gradient&& other) noexcept;
  Gradient& operator=(Gradient&& other) noexcept;
  ~Gradient();
};
Gradient gradient(GradientFn function);
/// No gradient flows through the op; the loss is treated as constant in its inputs. `reason` is documented.
Gradient not_differentiable(std::string_view reason);

/// What an op does to the flow of control (white paper, 4.4). An engine carries these out itself.
enum class ControlFlow : uint8_t {
  kNone,
  kSwitch,         // (data, predicate) -> one of its outputs lives, the others are dead
  kMerge,          // the first live input -> (it, its index)
  kEnter,          // into the first iteration of the loop `frame_name`
  kExit,           // out of a loop, when it ends
  kNextIteration,  // to the next iteration
  kTrigger,        // lives even when its control inputs are dead
  kAlive,          // lives even when its input is dead, and says whether it is
  kSend,           // its input, or the mere fact that it ran, goes to the kRecv of the same `edge`
  kRecv,           // what comes from there; its control inputs only tell its loop
};

/// The schema of one op. Built in one expression, in TensorFlow's notation:
///   OpDef("MatMul").input("a: T").input("b: T").output("product: T")
///       .attr("transpose_a: bool = false").attr("T: {float32, float64}")
///       .doc("Matrix product.").shape(matmul_shape)
/// Args: "x: float32", "x: T", "xs: N * T", "xs: Tlist". Attributes: "name: type", with "= default", "{a, b}" or
/// "{'SAME', 'VALID'}" for allowed types or strings, ">= 1" for the minimum of an int or of a list's length, in this
/// order: type, minimum, default. A malformed text aborts: it is our bug.
class OpDef {
 public:
  explicit OpDef(std::string_view name);
  OpDef(const OpDef& other);
  OpDef(OpDef&& other) noexcept;
  ~OpDef();
  OpDef& input(std::string_view text);
  OpDef& output(std::string_view text);
  OpDef& attr(std::string_view text);
  /// First sentence: what it computes. Then arguments and errors.
  OpDef& doc(std::string_view text);
  OpDef& shape(ShapeFn fn);
  /// The op has state or an effect: it is never merged, folded or dropped as a duplicate.
  OpDef& stateful();
  OpDef& control_flow(ControlFlow flow);
  /// How much work a node of it is. Unless stated it is arithmetic_cost, and nothing for control flow and for what
  /// makes the handle of a resource.
  OpDef& cost(CostFn fn);
  /// It changes the variable of its first input where that lives, which takes arithmetic: update_cost, unless another
  /// is stated. Other ops on resources ask for something that is there, and take no time of a device.
  OpDef& updates_variable();

  const std::string& name() const { return name_; }
  const std::string& doc() const { return doc_; }
  const std::vector<ArgDef>& inputs() const { return inputs_; }
  const std::vector<ArgDef>& outputs() const { return outputs_; }
  const std::vector<AttrDef>& attrs() const { return attrs_; }
  const AttrDef* find_attr(std::string_view name) const;
  const ShapeFn& shape_fn() const { return shape_; }
  const Gradient& gradient() const { return gradient_; }
  bool is_stateful() const { return stateful_; }
  ControlFlow control_flow() const { return control_flow_; }
  const CostFn& cost_fn() const { return cost_; }
  bool does_update_variable() const { return updates_variable_; }

 private:
  friend class OpRegistry;
  std::string name_, doc_;
  std::vector<ArgDef> inputs_, outputs_;
  std::vector<AttrDef> attrs_;
  ShapeFn shape_;
  Gradient gradient_;
  CostFn cost_;
  bool stateful_ = false, updates_variable_ = false;
  ControlFlow control_flow_ = ControlFlow::kNone;
};

/// All ops an engine knows. Filled once by explicit calls (ops/all.cpp), then only read, by any thread. A copy shares
/// the ops that it was made with, and may be added to.
class OpRegistry {
 public:
  /// Adds an op. A second op of the same name, no doc, no shape function, or neither a gradient nor a reason for none
  /// aborts: it is our bug.
  void add(const OpDef& schema, Gradient gradient);
  const OpDef* find(std::string_view name) const;
  /// Names that look like `name`, for messages.
  std::vector<std::string> near(std::string_view name) const;
  using Ops = std::map<std::string, std::shared_ptr<const OpDef>, std::less<>>;
  const Ops& all() const { return ops_; }

 private:
  Ops ops_;  // a copy of the registry has the same ones
};

/// Shape functions that many ops share.
Status unchanged_shape(ShapeContext& c);  // output 0 like input 0
Status broadcast_shape(ShapeContext& c);  // output 0 like inputs 0 and 1 broadcast
Status scalar_shape(ShapeContext& c);     // every output a scalar
Status unknown_shape(ShapeContext& c);    // every output unknown
Status no_outputs(ShapeContext& c);

}  // namespace troupe
