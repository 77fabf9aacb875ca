// SPDX-License-Identifier: Apache-2.0
// Layers, losses and the variables they share: functions that add nodes to a graph. Implemented in nn/. Brings the
// layers of troupe/transformer.h along.
//
// A layer takes the scope (name prefix, device), the Variables of the model and its input; its own variables
// are named `name`/kernel, `name`/bias and so on, whatever the name scope, so that a checkpoint fits the model wherever
// it is built. Two layers of one name are an error, since they would share weights. Variables::reuse() asks for that:
// building a model again with one Variables in one graph, say for testing, gives a second model that shares the
// variables. A model in another graph takes a Variables of its own, and shares them by the container and their names.
// Faults stick to the scope (scope.h).
//
// Variables are float32. A layer computes in the type of its input: cast() that to bfloat16 or float16, and the layers
// after it take their variables rounded to it, while gradients by variables, moving averages and losses are float32
// again (mixed precision). float16 has gradients below 6e-8 vanish: multiply the loss by a power of two, and have the
// optimizer's `clip` divide by it. bfloat16 needs no such thing.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "troupe/export.h"
#include "troupe/scope.h"

namespace TROUPE_API troupe {
namespace nn {

/// Adds the nodes of a variable's initial value: float32 of this shape, random ones drawn from `seed`.
using Initializer = std::function<Output(const Scope& scope, const Shape& shape, int64_t seed)>;

Initializer constant_init(float value);
inline Initializer zeros() { return constant_init(0); }
inline Initializer ones() { return constant_init(1); }
/// Normal with this deviation, values beyond two deviations drawn again.
Initializer truncated_normal(float deviation);
/// Uniform or (truncated) normal with variance 2 / (fan in + fan out). Glorot and Bengio, 2010.
Initializer glorot_uniform();
Initializer glorot_normal();
/// The same with variance 2 / fan in, for layers before a Relu. He et al., 2015.
Initializer he_uniform();
Initializer he_normal();

/// One variable of a model.
struct Variable {
  std::string name;  // its name in the container
  DType dtype = DType::kFloat32;
  Shape shape;
  bool trainable = true;
  const Node* init = nullptr;  // assigns the initial value
};

/// The variables of a model in one container, in the order of their first use. They are known to the engine
/// by (container, name), so graphs and sessions that use the same names share them. All scopes given to one object are
/// of one graph. One thread at a time, like a Scope.
///
/// Each task has containers of its own, so a variable has one home: the task of the device where it is first used,
/// if the device's name tells one. What uses its handle is there; elsewhere there are copies of its value. Of one that
/// is used in a branch or loop, handle, initial value and read are outside, so that others may share them.
class Variables {
 public:
  explicit Variables(std::string container = {}, int64_t seed = 1) : container_(std::move(container)), seed_(seed) {}

  /// The value of variable `name`; the first use of the name defines it. One handle and one read exist for
  /// each device of its home task; on a device of another task the value is an Identity of the home's. Errors: another
  /// shape or dtype than at the first use; a negative size; no initializer.
  Output read(const ScopeAt& scope, const std::string& name, const Shape& shape, const Initializer& initial,
              bool trainable = true, DType dtype = DType::kFloat32);
  /// The read of a variable that was defined before, on the scope's device.
  Output read(const ScopeAt& scope, const Variable& variable);
  /// The handle of a variable on the scope's device, or that of another task at its home; defined as by read(). What
  /// uses it belongs on home(scope, name).
  Output handle(const ScopeAt& scope, const std::string& name, const Shape& shape, const Initializer& initial,
                bool trainable = false, DType dtype = DType::kFloat32);
  /// The handle of a variable that was defined before.
  Output handle(const ScopeAt& scope, const Variable& variable);

  /// The scope for nodes that use the handle of `name`: `scope` itself, or where that is of another task the device of
  /// the variable's first use, or set_home's (see Scope::in_task_of). `scope` too of a name that has neither.
  Scope home(const Scope& scope, std::string_view name) const;

  /// Has the variable of that name live in the task of `device`, whatever uses it first. Before its first use. Nothing
  /// changes where `device` tells no task, or that of the first use.
  void set_home(const std::string& name, const std::string& device) { homes_[name] = device; }

  /// Lets each layer built so far be built once more, in whatever place, to share its variables: before a model is
  /// built again, for testing or for another replica (trainers and pipelines do so), and before a layer that shares on
  /// purpose. `name`: that layer alone, or those that begin with "name/".
  void reuse(std::string_view name = {});
  /// For functions that are layers: takes variable `name` as the layer's own. False, after failing the scope, where a
  /// layer has taken it already and no reuse() came since.
  bool claim(const ScopeAt& scope, const std::string& name);

  /// A counter of updates: int64 scalar "global_step", 0 at first.
  Output global_step(const ScopeAt& scope) {
    return read(scope, "global_step", Shape{}, zeros(), false, DType::kInt64);
  }
  Output global_step_handle(const ScopeAt& scope) {
    return handle(scope, "global_step", Shape{}, zeros(), false, DType::kInt64);
  }

  const std::vector<Variable>& all() const { return all_; }
  std::vector<Variable> trainable() const;
  /// Targets that assign every initial value.
  std::vector<const Node*> initializers() const;
  /// Reads of the trainable variables on the scope's device.
  std::vector<Output> trainable_reads(const ScopeAt& scope);
  /// The handles of a variable there are so far, one for each device, by the devices' names: what gradients are taken
  /// by.
  std::vector<Output> handles(const Variable& variable) const;

  /// Layers leave here what must run with each training step beside the update (moving averages).
  void add_update(const Node* node) { updates_.push_back(node); }
  /// The nodes left since the last call.
  std::vector<const Node*> take_updates() { return std::exchange(updates_, {}); }

  const std::string& container() const { return container_; }
  /// A seed that depends on this object's seed and `name` alone; never 0.
  int64_t seed_for(std::string_view name) const;

 private:
  struct Uses {
    Output handle, read;
  };
  Variable* define(const Scope& scope, const std::string& name, const Shape& shape, const Initializer& initial,
                   bool trainable, DType dtype);
  Uses& uses(const Scope& scope, const std::string& name);

  std::string container_;
  int64_t seed_;
  std::vector<Variable> all_;
  std::map<std::string, size_t> index_;
  std::map<std::pair<std::string, std::string>, Uses> uses_;  // by (name, device)
  std::map<std::string, std::string, std::less<>> homes_;     // by name: set, or of the first use that tells its task
  std::map<std::string, std::string, std::less<>> claims_;    // by name: the name scope of the layer
  std::vector<const Node*> updates_;
};

// -- layers -----------------------------------------------------------------------------------------------------------

struct DenseOptions {
  bool bias = true;
  Initializer kernel = glorot_uniform();
};
/// x [..., in] times kernel [in, units] plus bias [units], over its last dimension. Error: the last size unknown.
Output dense(const ScopeAt& scope, Variables& variables, Output x, int64_t units, const std::string& name,
             const DenseOptions& options = {});

struct EmbeddingOptions {
  Initializer table = truncated_normal(0.05f);
};
/// Row ids[...] of a table [rows, width]: [..., width]. The variable is `name`/table. Its gradient touches the rows
/// that were taken only (see IndexedSlices in optimizers.h). ids int32 or int64; one out of range fails the step.
/// Error: rows or width below 1.
Output embedding(const ScopeAt& scope, Variables& variables, Output ids, int64_t rows, int64_t width,
                 const std::string& name, const EmbeddingOptions& options = {});

struct ConvOptions {
  int stride = 1;
  std::string padding = "SAME";  // or "VALID"
  bool bias = true;
  Initializer kernel = he_normal();
};
/// x [batch, height, width, in] by kernel [size, size, in, filters], plus bias. Error: x of unknown channels.
Output conv2d(const ScopeAt& scope, Variables& variables, Output x, int64_t filters, int size, const std::string& name,
              const ConvOptions& options = {});

/// Pools x [batch, height, width, channels] by size x size windows; padding "VALID" or "SAME"; stride 0: size.
Output max_pool(const ScopeAt& scope, Output x, int size, int stride = 0, const std::string& padding = "VALID");
Output avg_pool(const ScopeAt& scope, Output x, int size, int stride = 0, const std::string& padding = "VALID");

struct BatchNormOptions {
  float momentum = 0.9f;  // of the moving averages
  float epsilon = 1e-3f;
};
/// Normalises x [batch, height, width, channels] or [batch, channels] by channel: in training by the batch's
/// mean and variance, and leaves an update of `name`/moving_mean and `name`/moving_variance; else by those. Error: in
/// training in a loop, since an update is made once a step.
Output batch_norm(const ScopeAt& scope, Variables& variables, Output x, const std::string& name, bool training,
                  const BatchNormOptions& options = {});

/// In training zeroes each element with probability `rate` and scales the others by 1 / (1 - rate); else x
/// itself. The seed is that of `variables` for this scope. Error: rate outside [0, 1).
Output dropout(const ScopeAt& scope, const Variables& variables, Output x, float rate, bool training);

/// What an LSTM carries from step to step; empty Outputs stand for zeros.
struct LstmState {
  Output h = {};  // [batch, units]: the result of the step before
  Output c = {};  // [batch, units]: the cell after it
};
struct LstmOptions {
  float forget_bias = 1;    // added to the forget gate's sum
  bool time_major = false;  // x and the outputs are [steps, batch, ...]
  Initializer kernel = glorot_uniform();
  LstmState initial = {};  // what the first step begins with; gradients flow to it
};
struct LstmResult {
  Output outputs;  // [batch, steps, units]: the result of each step
  Output last;     // [batch, units]: the result of the last step
  Output cell;     // [batch, units]: the cell after it

  LstmState state() const { return {last, cell}; }
};
/// A long short-term memory over x [batch, steps, in]: the op BlockLSTM, one node for all steps. Variables:
/// `name`/kernel [in + units, 4 * units], gates i, c, f, o, and `name`/bias [4 * units], 0 at first. Error:
/// steps or `in` unknown, no steps, or an initial state of another shape.
LstmResult lstm(const ScopeAt& scope, Variables& variables, Output x, int64_t units, const std::string& name,
                const LstmOptions& options = {});

struct LstmStackOptions {
  int64_t chunk = 0;                    // steps that a layer takes at once, of the last chunk maybe fewer; 0: all
  LstmOptions lstm = {};                // of each layer; its initial state is not looked at
  std::vector<LstmState> initial = {};  // of each layer; none: zeros
};
struct LstmStackResult {
  std::vector<Output> chunks = {};     // of the last layer: [batch, steps of the chunk, units] each, on its device
  std::vector<LstmState> states = {};  // of each layer after the last step
  bool time_major = false;

  /// The chunks joined: [batch, steps, units].
  Output outputs(const ScopeAt& scope) const;
};
/// LSTMs of `units` upon each other, layer i on scopes[i], with variables `name`/layer_i/kernel and bias, over
/// x [batch, steps, in]. With layers on devices of their own this is model parallel: a layer works on a chunk while the
/// layer before works on the chunk after it, and backwards in the other direction, as in figure 8 of the TensorFlow
/// white paper. Chunks change no result but for rounding. Without scopes the result is empty. Errors: a negative chunk,
/// as many initial states as layers are needed; those of lstm.
LstmStackResult lstm_stack(const std::vector<Scope>& scopes, Variables& variables, Output x, int64_t units,
                           const std::string& name, const LstmStackOptions& options = {},
                           std::source_location where = std::source_location::current());

/// [batch, ...] to [batch, the rest]. Error: inner sizes unknown.
Output flatten(const ScopeAt& scope, Output x);

Output relu(const ScopeAt& scope, Output x);
Output sigmoid(const ScopeAt& scope, Output x);
Output tanh(const ScopeAt& scope, Output x);
Output softmax(const ScopeAt& scope, Output logits);
/// x as another type; x itself where it has that.
Output cast(const ScopeAt& scope, Output x, DType dtype);
/// Pixels uint8 to float32 in [0, 1].
Output pixels_to_float(const ScopeAt& scope, Output images);

// -- losses and metrics: float32 scalars ------------------------------------------------------------------------------

/// Mean over the batch; logits [batch, classes], labels [batch] int32 or int64.
Output sparse_softmax_cross_entropy(const ScopeAt& scope, Output logits, Output labels);
/// Mean over the batch; logits and labels [batch, classes], labels' rows are distributions.
Output softmax_cross_entropy(const ScopeAt& scope, Output logits, Output labels);
/// Mean over all elements; labels in [0, 1], same shape as logits.
Output sigmoid_cross_entropy(const ScopeAt& scope, Output logits, Output labels);
/// Mean over all elements of the squared difference.
Output mean_squared_error(const ScopeAt& scope, Output predictions, Output targets);
/// rate / 2 times the sum of squares of all trainable variables of rank 2 and more: add it to the loss.
Output l2_penalty(const ScopeAt& scope, Variables& variables, float rate);
/// Share of rows of logits [batch, classes] whose largest entry is at the label [batch].
Output accuracy(const ScopeAt& scope, Output logits, Output labels);

/// Sum and mean of all elements.
Output sum_all(const ScopeAt& scope, Output x);
Output mean_all(const ScopeAt& scope, Output x);

}  // namespace nn
}  // namespace troupe

#include "troupe/transformer.h"
