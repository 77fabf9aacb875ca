// SPDX-License-Identifier: Apache-2.0
// The variables of a model and their initial values.
#include <cmath>

#include "troupe/nn.h"

namespace troupe::nn {
namespace {

Output shape_constant(const Scope& scope, const Shape& shape) {
  std::vector<int32_t> dims(shape.begin(), shape.end());
  return scope.constant(Tensor::of<int32_t>(dims));
}

// Random values by `op` from one seed, scaled.
Output random(const Scope& scope, const char* op, const Shape& shape, int64_t seed, float scale, float shift = 0) {
  Output x = scope.op(op, {shape_constant(scope, shape)},
                      {{"dtype", DType::kFloat32}, {"seed", seed}, {"seed2", seed >> 17 | 1}});
  x = scope.op("Mul", {x, scope.constant(scale)});
  return shift == 0 ? x : scope.op("AddV2", {x, scope.constant(shift)});
}

// {fan in, fan out} of a kernel [..., in, out].
std::pair<double, double> fans(const Shape& shape) {
  if (shape.rank() < 2) return {static_cast<double>(shape.elements()), static_cast<double>(shape.elements())};
  const double field = static_cast<double>(shape.elements()) / (std::max<int64_t>(1, shape.dim(-1) * shape.dim(-2)));
  return {field * shape.dim(-2), field * shape.dim(-1)};
}

Initializer scaled(bool uniform, bool both_fans) {
  return [=](const Scope& scope, const Shape& shape, int64_t seed) {
    const auto [in, out] = fans(shape);
    const double variance = both_fans ? 2 / (in + out) : 2 / in;
    // A normal cut at two deviations has 0.8796 of the deviation.
    if (!uniform)
      return random(scope, "TruncatedNormal", shape, seed, static_cast<float>(std::sqrt(variance) / .87962566));
    const auto limit = static_cast<float>(std::sqrt(3 * variance));
    return random(scope, "RandomUniform", shape, seed, 2 * limit, -limit);
  };
}

}  // namespace

Initializer constant_init(float value) {
  return [=](const Scope& scope, const Shape& shape, int64_t) {
    return scope.op("Fill", {shape_constant(scope, shape), scope.constant(value)});
  };
}
Initializer truncated_normal(float deviation) {
  return [=](const Scope& scope, const Shape& shape, int64_t seed) {
    return random(scope, "TruncatedNormal", shape, seed, deviation);
  };
}
Initializer glorot_uniform() { return scaled(true, true); }
Initializer glorot_normal() { return scaled(false, true); }
Initializer he_uniform() { return scaled(true, false); }
Initializer he_normal() { return scaled(false, false); }

int64_t Variables::seed_for(std::string_view name) const {
  uint64_t hash = 0xcbf29ce484222325u ^ static_cast<uint64_t>(seed_);  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash ^= hash >> 32;
  return static_cast<int64_t>(hash >> 1) | 1;
}

Variable* Variables::define(const Scope& scope, const std::string& name, const Shape& shape, const Initializer& initial,
                            bool trainable, DType dtype) {
  if (auto it = index_.find(name); it != index_.end()) {
    Variable& known = all_[it->second];
    if (known.shape == shape && known.dtype == dtype) return &known;
    scope.fail(invalid_argument("variable '{}' is {}{}, asked for as {}{}", name, to_string(known.dtype),
                                known.shape.str(), to_string(dtype), shape.str()));
    return nullptr;
  }
  if (!scope.ok()) return nullptr;
  const auto possible = Shape::make(shape.dims());
  if (!possible.ok() || !initial) {
    scope.fail(invalid_argument("variable '{}': {}", name, initial ? possible.error().message : "no initializer"));
    return nullptr;
  }
  // An initializer that fails or throws leaves nothing.
  const Scope inside = home(scope.within(nullptr), name).scope(name + "/initial");
  Output value = initial(inside, shape, seed_for(name));
  if (dtype != DType::kFloat32) value = inside.op("Cast", {value}, {{"DstT", dtype}});
  Variable v{name, dtype, shape, trainable};
  const Output own = handle(scope, v);
  v.init = home(inside, name).node("AssignVariableOp", {own, value});
  if (!scope.ok()) return nullptr;
  index_[name] = all_.size();
  all_.push_back(std::move(v));
  return &all_.back();
}

Variables::Uses& Variables::uses(const Scope& scope, const std::string& name) {
  return uses_[{name, scope.device_name()}];
}

Scope Variables::home(const Scope& scope, std::string_view name) const {
  const auto device = homes_.find(name);
  return device == homes_.end() ? scope : scope.in_task_of(device->second);
}

Output Variables::handle(const ScopeAt& scope, const Variable& v) {
  const Scope own = home(scope.within(nullptr), v.name);
  Output& handle = uses(own, v.name).handle;
  if (handle) return handle;
  handle = own.named(v.name).op(
      "VarHandleOp", {},
      {{"container", container_}, {"shared_name", v.name}, {"dtype", v.dtype}, {"shape", PartialShape(v.shape)}});
  if (!handle) return handle;
  std::string& device = homes_[v.name];
  if (scope.device(device).task_name() != own.task_name()) device = own.device_name();  // which tells more
  return handle;
}

Output Variables::handle(const ScopeAt& scope, const std::string& name, const Shape& shape, const Initializer& initial,
                         bool trainable, DType dtype) {
  const Variable* v = define(scope, name, shape, initial, trainable, dtype);
  return v ? handle(scope, *v) : Output{};
}

Output Variables::read(const ScopeAt& at, const Variable& v) {
  if (Output known = uses(at, v.name).read) return known;
  // A read in a branch or loop would be dead to those outside who share it.
  const Scope scope = at.flow() ? at.within(nullptr) : Scope(at);
  const Output handle = this->handle(scope, v);
  const Scope own = home(scope, v.name);
  if (own.device_name() != scope.device_name()) {
    const Output value = read(own, v);
    if (own.in_task_of(scope.device_name()).device_name() == own.device_name()) return value;  // no other task
    // Gradients of all that reads the copy are added up before they cross.
    return uses(scope, v.name).read = scope.named(v.name + "/copy").op("Identity", {value});
  }
  Output value = scope.named(v.name + "/read").op("ReadVariableOp", {handle}, {{"dtype", v.dtype}});
  // Layers above must know the shape while the graph is built.
  if (value && !value.shape().fully_known()) value = scope.op("Reshape", {value, shape_constant(scope, v.shape)});
  return uses(scope, v.name).read = value;
}

Output Variables::read(const ScopeAt& scope, const std::string& name, const Shape& shape, const Initializer& initial,
                       bool trainable, DType dtype) {
  const Variable* v = define(scope, name, shape, initial, trainable, dtype);
  return v ? read(scope, *v) : Output{};
}

void Variables::reuse(std::string_view name) {
  const std::string inside = std::string(name) + "/";
  std::erase_if(claims_, [&](const auto& claim) { return name.empty() || claim.first.starts_with(inside); });
}

bool Variables::claim(const ScopeAt& scope, const std::string& name) {
  if (!scope.ok()) return false;
  const auto place = [](const std::string& prefix) {
    return prefix.empty() ? std::string("the outermost scope") : fmt::format("scope '{}'", prefix);
  };
  const auto [at, fresh] = claims_.try_emplace(name, scope.prefix());
  if (fresh) return true;
  scope.fail(
      invalid_argument("variable '{}' is that of a layer in {}, and would be of another in {} too: name the "
                       "layers differently, or call Variables::reuse() before what is to share it",
                       name, place(at->second), place(scope.prefix())));
  return false;
}

std::vector<Variable> Variables::trainable() const {
  std::vector<Variable> result;
  for (const Variable& v : all_)
    if (v.trainable) result.push_back(v);
  return result;
}

std::vector<const Node*> Variables::initializers() const {
  std::vector<const Node*> result;
  for (const Variable& v : all_)
    if (v.init) result.push_back(v.init);
  return result;
}

std::vector<Output> Variables::trainable_reads(const ScopeAt& scope) {
  std::vector<Output> result;
  for (const Variable& v : all_)
    if (v.trainable) result.push_back(read(scope, v));
  return result;
}

std::vector<Output> Variables::handles(const Variable& variable) const {
  std::vector<Output> result;
  for (auto at = uses_.lower_bound({variable.name, {}}); at != uses_.end() && at->first.first == variable.name; ++at)
    if (at->second.handle) result.push_back(at->second.handle);
  return result;
}

}  // namespace troupe::nn
