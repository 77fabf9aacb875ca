// SPDX-License-Identifier: Apache-2.0
// The optimizers' updates, applied at the container in place: ResourceApplyGradientDescent, -Momentum, -KerasMomentum,
// -Adam, -AdaMax, -AdamWithAmsgrad, -Adagrad, -AdagradV2, -AdagradDA, -Adadelta, -RMSProp, -CenteredRMSProp, -Ftrl,
// -FtrlV2, -AddSign, -PowerSign, -ProximalGradientDescent, -ProximalAdagrad; ResourceSparseApply... of most of them.
#include <algorithm>

#include "containers/container.h"
#include "ops/all.h"
#include "ops/index_tensors.h"
#include "ops/proximal_rules.h"
#include "ops/resource_kernel.h"
#include "ops/sign_rules.h"
#include "ops/simd_clones.h"
#include "ops/variable_shape.h"

namespace troupe {
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
TROUPE_FLOATS(CenteredRmsPropRule)
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

std::string describe(const Tensor& t) { return to_string(t.dtype()) + t.shape().str(); }

template <class Rule, class T> void run_rule(T* const* v, const T* g, const Arithmetic<T>* s, bool flag, int64_t n) {
  if constexpr (std::is_same_v<T, float>) run_floats(Rule(), v, g, s, flag, n);
  else Rule::run(v, g, s, flag, n);
}

/// The handles and scalars of a request; where it is sparse, indices follow the gradient.
template <class Rule, class T, bool kSparse> class Update {
 public:
  const ResourceHandle* handles[Rule::kVariables];
  Arithmetic<T> scalars[Rule::kScalars];

  static constexpr int kGradient = Rule::kVariables + Rule::kGradient;

  Status read(const Container& container, const ResourceRequest& request) {
    for (int i = 0; i < Rule::kVariables; ++i) {
      handles[i] = handle_at(request, i);
      if (!handles[i] || handles[i]->type != handles[0]->type || handles[i]->container != handles[0]->container)
        return invalid_argument("input {} must be a variable of container '{}'", i, container.name());
    }
    for (int i = 0; i < Rule::kScalars; ++i)
      TROUPE_RETURN_IF_ERROR(
          read_scalar(request, i, Rule::kVariables + i + (i >= Rule::kGradient ? 1 + int{kSparse} : 0)));
    return {};
  }

 private:
  Status read_scalar(const ResourceRequest& request, int i, int input) {
    const Tensor& t = request.inputs[static_cast<size_t>(input)];
    DType wanted = dtype_of<T>;
    if constexpr (requires { Rule::kStep; })
      if (i == Rule::kStep) wanted = DType::kInt64;
    if (t.dtype() != wanted || t.rank() != 0)
      return invalid_argument("input {} must be a {} scalar, got {}", input, to_string(wanted), describe(t));
    if (wanted == dtype_of<T>) scalars[i] = widen(t.data<T>()[0]);
    else scalars[i] = static_cast<Arithmetic<T>>(t.data<int64_t>()[0]);
    return {};
  }
};

template <class Rule, class T> class ApplyKernel final : public ResourceKernel {
 public:
  explicit ApplyKernel(const KernelInit& init) : flag_(!Rule::kFlag.empty() && init.attr<bool>(Rule::kFlag)) {}

  void execute(Resource& resource, ResourceRequest request) override {
    if (Container* container = core_as<Container>(resource, request, "variable"))
      request.reply(no_output(apply(*container, request)));
  }

 private:
  Status apply(Container& container, const ResourceRequest& request) const {
    Update<Rule, T, false> update;
    TROUPE_RETURN_IF_ERROR(update.read(container, request));
    const auto& handles = update.handles;
    const Tensor& gradient = request.inputs[Rule::kVariables + Rule::kGradient];
    return container.rewrite(
        handles, request.allocator, [&](std::span<const Container::Rewritten> variables) -> Status {
          for (int i = 0; i < Rule::kVariables; ++i)
            if (const Tensor& t = *variables[i].from;
                t.dtype() != gradient.dtype() || t.dtype() != dtype_of<T> || !(t.shape() == gradient.shape()))
              return invalid_argument("variable '{}' is {}, the gradient {}", handles[i]->name, describe(t),
                                      describe(gradient));
          run(variables, gradient, update.scalars);
          return {};
        });
  }

  /// Piece by piece, so that what is copied is still in the nearest cache when the rule changes it.
  void run(std::span<const Container::Rewritten> variables, const Tensor& gradient,
           const Arithmetic<T>* scalars) const {
    constexpr int64_t kPiece = 2048;
    for (int64_t begin = 0, size = gradient.elements(); begin < size; begin += kPiece) {
      const int64_t n = std::min(kPiece, size - begin);
      T* v[Rule::kVariables];
      for (int i = 0; i < Rule::kVariables; ++i) {
        v[i] = variables[i].to->template mutable_data<T>() + begin;
        if (!variables[i].in_place()) std::copy_n(variables[i].from->template data<T>() + begin, n, v[i]);
      }
      run_rule<Rule>(v, gradient.data<T>() + begin, scalars, flag_, n);
    }
  }

  const bool flag_;
};

/// The rule for the rows that indices name, one after the other: a row that comes twice is changed twice.
template <class Rule, class T, class I> class SparseApplyKernel final : public ResourceKernel {
 public:
  explicit SparseApplyKernel(const KernelInit& init) : flag_(!Rule::kFlag.empty() && init.attr<bool>(Rule::kFlag)) {}

  void execute(Resource& resource, ResourceRequest request) override {
    if (Container* container = core_as<Container>(resource, request, "variable"))
      request.reply(no_output(apply(*container, request)));
  }

 private:
  using Inputs = Update<Rule, T, true>;

  Status apply(Container& container, const ResourceRequest& request) const {
    Inputs update;
    TROUPE_RETURN_IF_ERROR(update.read(container, request));
    const Tensor &gradient = request.inputs[Inputs::kGradient], &indices = request.inputs[Inputs::kGradient + 1];
    if (indices.dtype() != dtype_of<I> || indices.rank() != 1)
      return invalid_argument("indices must be a {} vector, got {}", to_string(dtype_of<I>), describe(indices));
    return container.update(update.handles, request.allocator, [&](std::span<Tensor* const> variables) -> Status {
      const Shape& shape = variables[0]->shape();
      T* base[Rule::kVariables];
      for (int i = 0; i < Rule::kVariables; ++i) {
        TROUPE_RETURN_IF_ERROR(check(update.handles[i]->name, *variables[i], shape, gradient, indices));
        base[i] = variables[i]->mutable_data<T>();
      }
      TROUPE_RETURN_IF_ERROR(check_indices(indices.values<I>(), shape[0]));
      const int64_t rows = indices.elements(), row = shape[0] ? shape.elements() / shape[0] : 0;
      const T* g = gradient.data<T>();
      for (int64_t k = 0; k < rows; ++k, g += row) {
        T* v[Rule::kVariables];
        for (int i = 0; i < Rule::kVariables; ++i) v[i] = base[i] + static_cast<int64_t>(indices.data<I>()[k]) * row;
        run_rule<Rule>(v, g, update.scalars, flag_, row);
      }
      return {};
    });
  }

  static Status check(const std::string& name, const Tensor& v, const Shape& shape, const Tensor& gradient,
                      const Tensor& indices) {
    Shape rows = v.shape();
    if (rows.rank() > 0) rows.set(0, indices.elements());
    if (v.rank() == 0 || v.dtype() != dtype_of<T> || gradient.dtype() != dtype_of<T> || !(v.shape() == shape) ||
        !(gradient.shape() == rows))
      return invalid_argument("variable '{}' is {}, the gradient of {} of its rows {}", name, describe(v),
                              indices.elements(), describe(gradient));
    return {};
  }

  const bool flag_;
};

/// Variables of one shape, and with them the gradient, or, where it is sparse, its rows; all else scalars.
template <class Rule, bool kSparse> Status apply_shape(ShapeContext& c) {
  constexpr int kGradient = Rule::kVariables + Rule::kGradient;
  PartialShape shape = c.input(kGradient);
  if (kSparse && shape.has_rank()) {
    TROUPE_RETURN_IF_ERROR(c.with_rank_at_least(kGradient, 1));
    TROUPE_RETURN_IF_ERROR(c.with_rank(kGradient + 1, 1));
    shape.set(0, -1);
  }
  for (int i = 0; i < Rule::kVariables; ++i) {
    TROUPE_ASSIGN(const PartialShape variable, variable_shape(c, i, c.attr<DType>("T")));
    if (!variable.compatible(shape))
      return invalid_argument("variable and gradient must have the same shape: input {} has {}, others {}", i,
                              variable.str(), shape.str());
    TROUPE_ASSIGN(shape, PartialShape::merge(shape, variable));
  }
  for (int i = Rule::kVariables; i < c.num_inputs(); ++i)
    if (i < kGradient || i > kGradient + int{kSparse}) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 0));
  return {};
}

using Words = std::vector<std::string>;

class Rules {
 public:
  Rules(OpRegistry& ops, KernelRegistry& kernels) : ops_(ops), kernels_(kernels) {}

  /// ResourceApply<name>, with handles of these variables, then these inputs of type T, of which one is the gradient.
  template <class Rule>
  void add(const std::string& name, const Words& variables, const Words& rest, const std::string& doc) {
    const std::string op = "ResourceApply" + name;
    register_op<Rule, false>(op, variables, rest,
                             doc +
                                 " In place and at once: nobody sees some of it. The variables are in one container; "
                                 "all have the gradient's shape.");
    const auto kernel = [&]<class T>() {
      kernels_.add<ApplyKernel<Rule, T>>(op, DeviceKind::kCpu, {{"T", {dtype_of<T>}}});
    };
    kernel.template operator()<float>();
    kernel.template operator()<double>();
    kernel.template operator()<bfloat16>();
    kernel.template operator()<float16>();
  }

  /// ResourceSparseApply<name> too.
  template <class Rule>
  void add_both(const std::string& name, const Words& variables, Words rest, const std::string& doc) {
    add<Rule>(name, variables, rest, doc);
    const std::string op = "ResourceSparseApply" + name;
    rest[Rule::kGradient] = "grad";
    rest.insert(rest.begin() + Rule::kGradient + 1, "indices: Tindices");
    register_op<Rule, true>(op, variables, rest,
                            doc +
                                " For the rows of the variables that the vector `indices` names, one after the other "
                                "(a row may come twice), with as many rows of `grad`. An index out of range is an "
                                "error that changes nothing.");
    const auto kernel = [&]<class T, class I>() {
      kernels_.add<SparseApplyKernel<Rule, T, I>>(op, DeviceKind::kCpu,
                                                  {{"T", {dtype_of<T>}}, {"Tindices", {dtype_of<I>}}});
    };
    const auto kernels = [&]<class T>() {
      kernel.template operator()<T, int32_t>();
      kernel.template operator()<T, int64_t>();
    };
    kernels.template operator()<float>();
    kernels.template operator()<double>();
    kernels.template operator()<bfloat16>();
    kernels.template operator()<float16>();
  }

 private:
  template <class Rule, bool kSparse>
  void register_op(const std::string& name, const Words& variables, const Words& rest, const std::string& doc) {
    OpDef op(name);
    for (const std::string& v : variables) op.input(v + ": resource");
    for (const std::string& r : rest) op.input(r.find(':') == std::string::npos ? r + ": T" : r);
    op.attr(type_attr("T", FloatTypes{}));
    if (kSparse) op.attr(type_attr("Tindices", IndexTypes{}));
    op.attr("use_locking: bool = false");
    if (!Rule::kFlag.empty()) op.attr(fmt::format("{}: bool = {}", Rule::kFlag, Rule::kFlag == "update_slots"));
    ops_.add(op.doc(doc).shape(apply_shape<Rule, kSparse>).stateful(),
             not_differentiable("it has no output; what it writes is read by other nodes"));
  }

  OpRegistry& ops_;
  KernelRegistry& kernels_;
};

}  // namespace

void register_training_ops(OpRegistry& ops, KernelRegistry& kernels) {
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
  rules.add_both<RmsPropRule>("RMSProp", {"var", "ms", "mom"}, {"lr", "rho", "momentum", "epsilon", "grad"},
                              "ms += (grad^2 - ms) * (1 - rho); mom = mom * momentum + lr * grad / sqrt(ms + epsilon); "
                              "var -= mom.");
  rules.add_both<CenteredRmsPropRule>("CenteredRMSProp", {"var", "mg", "ms", "mom"},
                                      {"lr", "rho", "momentum", "epsilon", "grad"},
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
