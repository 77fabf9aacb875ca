// SPDX-License-Identifier: Apache-2.0
// The optimizers' updates, applied at the container in place: ResourceApplyGradientDescent, -Momentum, -KerasMomentum,
// -Adam, -AdaMax, -AdamWithAmsgrad, -Adagrad, -AdagradV2, -AdagradDA, -Adadelta, -RMSProp, -CenteredRMSProp, -Ftrl,
// -FtrlV2, -AddSign, -PowerSign, -ProximalGradientDescent, -ProximalAdagrad; ResourceSparseApply... of most of them.
#include <algorithm>
#include <complex>
#include <cstring>

#include "containers/container.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/resource_kernel.h"
#include "ops/parts/variable_memory.h"
#include "ops/state/variable_shape.h"
#include "ops/training/proximal_rules.h"
#include "ops/training/register.h"
#include "ops/training/sign_rules.h"
#include "ops/training/update_checks.h"

namespace troupe {

std::string dtype_and_shape(const Tensor& t) { return to_string(t.dtype()) + t.shape().str(); }

Status check_row_indices(const Tensor& indices) {
  if ((indices.dtype() != DType::kInt64 && indices.dtype() != DType::kInt32) || indices.rank() != 1)
    return invalid_argument("indices must be an int32 or int64 vector, got {}", dtype_and_shape(indices));
  return {};
}

Status check_rows(const std::string& name, const Tensor& v, const Shape& shape, const Tensor& g, const Tensor& indices,
                  DType dtype) {
  Shape rows = v.shape();
  if (rows.rank() > 0) rows.set(0, indices.elements());
  if (v.rank() == 0 || v.dtype() != dtype || g.dtype() != dtype || !(v.shape() == shape) || !(g.shape() == rows))
    return invalid_argument("variable '{}' is {}, the gradient of {} of its rows {}", name, dtype_and_shape(v),
                            indices.elements(), dtype_and_shape(g));
  return {};
}

namespace {

// A function is compiled for several instruction sets only when it is no template, hence one for each rule.
#define TROUPE_FLOATS(Rule)                                                                                         \
  TROUPE_SIMD_CLONES void run_floats(Rule, float* const* v, const float* g, const float* s, bool flag, int64_t n) { \
    Rule::run(v, g, s, flag, n);                                                                                    \
  }
TROUPE_FLOATS(GradientDescentRule)
TROUPE_FLOATS(MomentumRule)
TROUPE_FLOATS(KerasMomentumRule)
TROUPE_FLOATS(AdamRule)
TROUPE_FLOATS(AdagradRule)
TROUPE_FLOATS(AdagradV2Rule)
TROUPE_FLOATS(RmsPropRule)
TROUPE_FLOATS(RmsPropRowsRule)
TROUPE_FLOATS(CenteredRmsPropRule)
TROUPE_FLOATS(CenteredRmsPropRowsRule)
TROUPE_FLOATS(AdadeltaRule)
TROUPE_FLOATS(FtrlRule)
TROUPE_FLOATS(FtrlV2Rule)
TROUPE_FLOATS(AdaMaxRule)
TROUPE_FLOATS(AmsGradRule)
TROUPE_FLOATS(AddSignRule)
TROUPE_FLOATS(PowerSignRule)
TROUPE_FLOATS(AdagradDaRule)
TROUPE_FLOATS(ProximalGradientDescentRule)
TROUPE_FLOATS(ProximalAdagradRule)
#undef TROUPE_FLOATS

template <class Rule, class T> void run_rule(T* const* v, const T* g, const Arithmetic<T>* s, bool flag, int64_t n) {
  if constexpr (std::is_same_v<T, float>) run_floats(Rule(), v, g, s, flag, n);
  else Rule::run(v, g, s, flag, n);
}

/// A scalar of any type that rules are for.
using Scalar = std::complex<double>;

/// A rule for one type, with what tells its inputs, so that the kernels need be no templates.
struct Update {
  DType dtype;
  int variables, scalars, gradient;
  int step = -1;  // which scalar is an int64
  std::string_view flag;
  /// Of n elements from element `begin` on; `s` are the scalars.
  void (*run)(std::span<void* const> variables, int64_t begin, const void* g, const Scalar* s, bool flag, int64_t n);
};

template <class Rule, class T> Update update_by() {
  static_assert(Rule::kVariables <= kMostVariables && Rule::kScalars <= kMostScalars);
  Update u{dtype_of<T>, Rule::kVariables, Rule::kScalars, Rule::kGradient, -1, Rule::kFlag, nullptr};
  if constexpr (requires { Rule::kStep; }) u.step = Rule::kStep;
  u.run = [](std::span<void* const> variables, int64_t begin, const void* g, const Scalar* s, bool flag, int64_t n) {
    T* v[Rule::kVariables];
    Arithmetic<T> scalars[Rule::kScalars];
    for (int i = 0; i < Rule::kVariables; ++i) v[i] = static_cast<T*>(variables[i]) + begin;
    for (int i = 0; i < Rule::kScalars; ++i) {
      if constexpr (is_complex_type<T>) scalars[i] = T(s[i]);
      else scalars[i] = static_cast<Arithmetic<T>>(s[i].real());
    }
    run_rule<Rule>(v, static_cast<const T*>(g), scalars, flag, n);
  };
  return u;
}

/// What the dense and the sparse kernels share: an update of the variables whose handles are the first inputs. Where it
/// is sparse, indices follow the gradient.
class UpdateKernel : public AnsweringKernel {
 public:
  UpdateKernel(const Update& update, const KernelInit& init)
      : update_(update), flag_(!update.flag.empty() && init.attr<bool>(update.flag)) {}

  Result<std::vector<Tensor>> answer(Resource& resource, ResourceRequest& request) override {
    TROUPE_ASSIGN(Container* const container, core_of<Container>(resource, request, "variable"));
    return no_output(apply(*container, request), std::move(request.inputs));
  }

 protected:
  virtual Status apply(Container& container, const ResourceRequest& request) const = 0;

  using Handles = const ResourceHandle* [kMostVariables];

  std::span<const ResourceHandle* const> used(const Handles& handles) const {
    return {handles, static_cast<size_t>(update_.variables)};
  }
  size_t gradient() const { return static_cast<size_t>(update_.variables + update_.gradient); }

  Status read_handles(const Container& container, const ResourceRequest& request, Handles& handles) const {
    for (int i = 0; i < update_.variables; ++i) {
      handles[i] = handle_at(request, i);
      if (!handles[i] || handles[i]->type != handles[0]->type || handles[i]->container != handles[0]->container)
        return invalid_argument("input {} must be a variable of container '{}'", i, container.name());
    }
    return {};
  }
  Status read_scalars(const ResourceRequest& request, bool sparse, Scalar* scalars) const {
    for (int i = 0; i < update_.scalars; ++i) {
      const int input = update_.variables + i + (i >= update_.gradient ? 1 + int{sparse} : 0);
      const Tensor& t = request.inputs[static_cast<size_t>(input)];
      const DType wanted = i == update_.step ? DType::kInt64 : update_.dtype;
      if (t.dtype() != wanted || t.rank() != 0)
        return invalid_argument("input {} must be a {} scalar, got {}", input, to_string(wanted), dtype_and_shape(t));
      with_type(wanted, ComplexTypes{}, [&]<class T>() { scalars[i] = Scalar(t.data<T>()[0]); });
      with_type(wanted, TypeList<float16, bfloat16, float, double, int64_t>{},
                [&]<class T>() { scalars[i] = static_cast<double>(widen(t.data<T>()[0])); });
    }
    return {};
  }

  const Update update_;
  const bool flag_;
};

class ApplyKernel final : public UpdateKernel {
 public:
  using UpdateKernel::UpdateKernel;

 private:
  Status apply(Container& container, const ResourceRequest& request) const override {
    Handles handles;
    Scalar scalars[kMostScalars];
    TROUPE_RETURN_IF_ERROR(read_handles(container, request, handles));
    TROUPE_RETURN_IF_ERROR(read_scalars(request, false, scalars));
    const Tensor& g = request.inputs[gradient()];
    const auto change = [&](std::span<const Container::Rewritten> variables) -> Status {
      for (size_t i = 0; i < variables.size(); ++i)
        if (const Tensor& t = *variables[i].from;
            t.dtype() != g.dtype() || t.dtype() != update_.dtype || !(t.shape() == g.shape()))
          return invalid_argument("variable '{}' is {}, the gradient {}", handles[i]->name, dtype_and_shape(t),
                                  dtype_and_shape(g));
      run(variables, g, scalars);
      return {};
    };
    return container.rewrite(used(handles), request.allocator, change);
  }

  /// Piece by piece, so that what is copied is still in the nearest cache when the rule changes it.
  void run(std::span<const Container::Rewritten> variables, const Tensor& g, const Scalar* scalars) const {
    constexpr int64_t kPiece = 2048;
    const auto size = static_cast<int64_t>(size_of(update_.dtype));
    void* to[kMostVariables];
    for (size_t i = 0; i < variables.size(); ++i) to[i] = variables[i].to->mutable_raw();
    for (int64_t begin = 0; begin < g.elements(); begin += kPiece) {
      const int64_t n = std::min(kPiece, g.elements() - begin);
      for (size_t i = 0; i < variables.size(); ++i)
        if (!variables[i].in_place())
          std::memcpy(static_cast<char*>(to[i]) + begin * size,
                      static_cast<const char*>(variables[i].from->raw()) + begin * size, static_cast<size_t>(n * size));
      update_.run({to, variables.size()}, begin, static_cast<const char*>(g.raw()) + begin * size, scalars, flag_, n);
    }
  }
};

/// The rule for the rows that indices name, one after the other: a row that comes twice is changed twice.
class SparseApplyKernel final : public UpdateKernel {
 public:
  using UpdateKernel::UpdateKernel;

 private:
  Status apply(Container& container, const ResourceRequest& request) const override {
    Handles handles;
    Scalar scalars[kMostScalars];
    TROUPE_RETURN_IF_ERROR(read_handles(container, request, handles));
    TROUPE_RETURN_IF_ERROR(read_scalars(request, true, scalars));
    const Tensor &g = request.inputs[gradient()], &indices = request.inputs[gradient() + 1];
    TROUPE_RETURN_IF_ERROR(check_row_indices(indices));
    const bool wide = indices.dtype() == DType::kInt64;
    return container.update(used(handles), request.allocator, [&](std::span<Tensor* const> variables) -> Status {
      const Shape& shape = variables[0]->shape();
      void* base[kMostVariables];
      for (size_t i = 0; i < variables.size(); ++i) {
        TROUPE_RETURN_IF_ERROR(check_rows(handles[i]->name, *variables[i], shape, g, indices, update_.dtype));
        base[i] = variables[i]->mutable_raw();
      }
      TROUPE_RETURN_IF_ERROR(wide ? check_indices(indices.values<int64_t>(), shape[0])
                                  : check_indices(indices.values<int32_t>(), shape[0]));
      const int64_t rows = indices.elements(), row = shape[0] ? shape.elements() / shape[0] : 0;
      const auto* from = static_cast<const char*>(g.raw());
      const int64_t bytes = row * static_cast<int64_t>(size_of(update_.dtype));
      for (int64_t k = 0; k < rows; ++k) {
        const int64_t at = wide ? indices.data<int64_t>()[k] : indices.data<int32_t>()[k];
        update_.run({base, variables.size()}, at * row, from + k * bytes, scalars, flag_, row);
      }
      return {};
    });
  }
};

/// Variables of one shape, and with them the gradient, or, where it is sparse, its rows; all else scalars.
ShapeFn apply_shape(int variables, int gradient, bool sparse) {
  return [=](ShapeContext& c) -> Status {
    PartialShape shape = c.input(variables + gradient);
    if (sparse && shape.has_rank()) {
      TROUPE_RETURN_IF_ERROR(c.with_rank_at_least(variables + gradient, 1));
      TROUPE_RETURN_IF_ERROR(c.with_rank(variables + gradient + 1, 1));
      shape.set(0, -1);
    }
    for (int i = 0; i < variables; ++i) {
      TROUPE_ASSIGN(const PartialShape variable, variable_shape(c, i, c.attr<DType>("T")));
      if (!variable.compatible(shape))
        return invalid_argument("variable and gradient must have the same shape: input {} has {}, others {}", i,
                                variable.str(), shape.str());
      TROUPE_ASSIGN(shape, PartialShape::merge(shape, variable));
    }
    for (int i = variables; i < c.num_inputs(); ++i)
      if (i < variables + gradient || i > variables + gradient + int{sparse}) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 0));
    return {};
  };
}

using WordList = std::vector<std::string>;

class Rules {
 public:
  Rules(OpRegistry& ops, KernelRegistry& kernels) : ops_(ops), kernels_(kernels) {}

  /// ResourceApply<name>, with handles of these variables, then these inputs of type T, of which one is the gradient.
  template <class Rule>
  void add(const std::string& name, const WordList& variables, const WordList& rest, const std::string& doc) {
    add("ResourceApply" + name, updates<Rule>(), false, variables, rest,
        doc +
            " In place and at once: nobody sees some of it. The variables are in one container; all have the "
            "gradient's shape.");
  }

  /// ResourceSparseApply<name> too, by `RowsRule`.
  template <class Rule, class RowsRule = Rule>
  void add_both(const std::string& name, const WordList& variables, WordList rest, const std::string& doc) {
    add<Rule>(name, variables, rest, doc);
    rest[Rule::kGradient] = "grad";
    rest.insert(rest.begin() + Rule::kGradient + 1, "indices: Tindices");
    add("ResourceSparseApply" + name, updates<RowsRule>(), true, variables, rest,
        doc +
            " For the rows of the variables that the vector `indices` names, one after the other (a row may come "
            "twice), with as many rows of `grad`. An index out of range is an error that changes nothing.");
  }

 private:
  template <class Rule> static std::vector<Update> updates() {
    std::vector<Update> out = {update_by<Rule, float>(), update_by<Rule, double>(), update_by<Rule, bfloat16>(),
                               update_by<Rule, float16>()};
    if constexpr (requires { Rule::kComplex; }) {
      out.push_back(update_by<Rule, complex64>());
      out.push_back(update_by<Rule, complex128>());
    }
    return out;
  }

  void add(const std::string& name, const std::vector<Update>& updates, bool sparse, const WordList& variables,
           const WordList& rest, const std::string& doc) {
    const Update& any = updates[0];
    OpDef op(name);
    for (const std::string& v : variables) op.input(v + ": resource");
    for (const std::string& r : rest) op.input(r.find(':') == std::string::npos ? r + ": T" : r);
    const bool complex = std::ranges::any_of(updates, [](const Update& u) { return is_complex(u.dtype); });
    op.attr(complex ? type_attr("T", FloatOrComplexTypes{}) : type_attr("T", FloatTypes{}));
    if (sparse) op.attr(type_attr("Tindices", IndexTypes{}));
    op.attr("use_locking: bool = false");
    if (!any.flag.empty()) op.attr(fmt::format("{}: bool = {}", any.flag, any.flag == "update_slots"));
    ops_.add(op.doc(doc).shape(apply_shape(any.variables, any.gradient, sparse)).updates_variable().stateful(),
             not_differentiable("it has no output; what it writes is read by other nodes"));
    for (const Update& update : updates) {
      KernelRegistry::Types types = {{"T", {update.dtype}}};
      if (sparse) types["Tindices"] = {DType::kInt32, DType::kInt64};
      kernels_.add(name, DeviceKind::kCpu, types,
                   [update, sparse](const KernelInit& init) -> Result<std::unique_ptr<ResourceKernel>> {
                     if (sparse) return std::unique_ptr<ResourceKernel>(new SparseApplyKernel(update, init));
                     return std::unique_ptr<ResourceKernel>(new ApplyKernel(update, init));
                   });
    }
  }

  OpRegistry& ops_;
  KernelRegistry& kernels_;
};

}  // namespace

void register_update_ops(OpRegistry& ops, KernelRegistry& kernels) {
  Rules rules(ops, kernels);
  rules.add<GradientDescentRule>("GradientDescent", {"var"}, {"alpha", "delta"}, "var -= alpha * delta.");
  rules.add_both<MomentumRule>("Momentum", {"var", "accum"}, {"lr", "grad", "momentum"},
                               "accum = accum * momentum + grad; var -= lr * accum. With `use_nesterov` var -= lr * "
                               "grad + lr * momentum * accum.");
  rules.add_both<KerasMomentumRule>("KerasMomentum", {"var", "accum"}, {"lr", "grad", "momentum"},
                                    "accum = accum * momentum - lr * grad; var += accum. With `use_nesterov` var += "
                                    "accum * momentum - lr * grad.");
  rules.add<AdamRule>(
      "Adam", {"var", "m", "v"}, {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad"},
      "m += (grad - m) * (1 - beta1); v += (grad^2 - v) * (1 - beta2); var -= lr * sqrt(1 - "
      "beta2_power) / (1 - beta1_power) * m / (sqrt(v) + epsilon). With `use_nesterov` beta1 * m + (1 - "
      "beta1) * grad stands for m in the last.");
  rules.add<AmsGradRule>("AdamWithAmsgrad", {"var", "m", "v", "vhat"},
                         {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad"},
                         "As ResourceApplyAdam, with vhat = max(vhat, v) in place of v in the step.");
  rules.add<AdaMaxRule>("AdaMax", {"var", "m", "v"}, {"beta1_power", "lr", "beta1", "beta2", "epsilon", "grad"},
                        "m += (grad - m) * (1 - beta1); v = max(beta2 * v, |grad|); var -= lr / (1 - beta1_power) * m "
                        "/ (v + epsilon).");
  rules.add_both<AdagradRule>("Adagrad", {"var", "accum"}, {"lr", "grad"},
                              "accum += grad^2 (if `update_slots`); var -= lr * grad / sqrt(accum).");
  rules.add_both<AdagradV2Rule>("AdagradV2", {"var", "accum"}, {"lr", "epsilon", "grad"},
                                "accum += grad^2 (if `update_slots`); var -= lr * grad / (sqrt(accum) + epsilon).");
  rules.add_both<AdagradDaRule>(
      "AdagradDA", {"var", "gradient_accumulator", "gradient_squared_accumulator"},
      {"grad", "lr", "l1", "l2", "global_step: int64"},
      "gradient_accumulator += grad; gradient_squared_accumulator += grad^2; var = -lr * "
      "sign(gradient_accumulator) * max(|gradient_accumulator| - global_step * l1, 0) / (l2 * "
      "global_step * lr + sqrt(gradient_squared_accumulator)).");
  rules.add_both<RmsPropRule, RmsPropRowsRule>(
      "RMSProp", {"var", "ms", "mom"}, {"lr", "rho", "momentum", "epsilon", "grad"},
      "ms += (grad^2 - ms) * (1 - rho); mom = mom * momentum + lr * grad / sqrt(ms + epsilon); "
      "var -= mom.");
  rules.add_both<CenteredRmsPropRule, CenteredRmsPropRowsRule>(
      "CenteredRMSProp", {"var", "mg", "ms", "mom"}, {"lr", "rho", "momentum", "epsilon", "grad"},
      "ms += (grad^2 - ms) * (1 - rho); mg += (grad - mg) * (1 - rho); mom = mom * "
      "momentum + lr * grad / sqrt(ms - mg^2 + epsilon); var -= mom.");
  rules.add_both<AdadeltaRule>("Adadelta", {"var", "accum", "accum_update"}, {"lr", "rho", "epsilon", "grad"},
                               "accum = accum * rho + grad^2 * (1 - rho); update = sqrt(accum_update + epsilon) / "
                               "sqrt(accum + epsilon) * grad; var -= lr * update; accum_update = accum_update * rho + "
                               "update^2 * (1 - rho).");
  rules.add_both<FtrlRule>("Ftrl", {"var", "accum", "linear"}, {"grad", "lr", "l1", "l2", "lr_power"},
                           "new = accum + grad^2; linear += grad - (new^-lr_power - accum^-lr_power) / lr * var; var = "
                           "(l1 * sign(linear) - linear) / (new^-lr_power / lr + 2 * l2) where |linear| > l1, else 0; "
                           "accum = new. With `multiply_linear_by_lr` linear is kept times lr.");
  rules.add_both<FtrlV2Rule>(
      "FtrlV2", {"var", "accum", "linear"}, {"grad", "lr", "l1", "l2", "l2_shrinkage", "lr_power"},
      "As ResourceApplyFtrl, with grad + 2 * l2_shrinkage * var added to linear in place of grad.");
  rules.add<AddSignRule>("AddSign", {"var", "m"}, {"lr", "alpha", "sign_decay", "beta", "grad"},
                         "m = beta * m + (1 - beta) * grad; var -= lr * (alpha + sign_decay * sign(grad) * sign(m)) * "
                         "grad.");
  rules.add<PowerSignRule>("PowerSign", {"var", "m"}, {"lr", "logbase", "sign_decay", "beta", "grad"},
                           "m = beta * m + (1 - beta) * grad; var -= lr * exp(logbase * sign_decay * sign(grad) * "
                           "sign(m)) * grad.");
  rules.add_both<ProximalGradientDescentRule>("ProximalGradientDescent", {"var"}, {"alpha", "l1", "l2", "delta"},
                                              "x = var - alpha * delta; var = sign(x) * max(|x| - alpha * l1, 0) / (1 "
                                              "+ l2 * alpha). The sparse form calls delta grad.");
  rules.add_both<ProximalAdagradRule>("ProximalAdagrad", {"var", "accum"}, {"lr", "l1", "l2", "grad"},
                                      "accum += grad^2; r = lr / sqrt(accum); x = var - r * grad; var = sign(x) * "
                                      "max(|x| - r * l1, 0) / (1 + l2 * r).");
}

}  // namespace troupe
