// SPDX-License-Identifier: Apache-2.0
// The optimizers' updates, applied at the container in place: ResourceApplyGradientDescent, -Momentum,
// -KerasMomentum, -Adam, -Adagrad, -AdagradV2, -RMSProp, -CenteredRMSProp, -Adadelta, -Ftrl.
#include <algorithm>

#include "containers/container.h"
#include "ops/all.h"
#include "ops/resource_kernel.h"
#include "ops/simd_clones.h"
#include "ops/training_rules.h"
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
#undef TROUPE_FLOATS

std::string describe(const Tensor& t) { return to_string(t.dtype()) + t.shape().str(); }

template <class Rule, class T> class ApplyKernel final : public ResourceKernel {
 public:
  explicit ApplyKernel(const KernelInit& init) : flag_(!Rule::kFlag.empty() && init.attr<bool>(Rule::kFlag)) {}

  void execute(Resource& resource, ResourceRequest request) override {
    if (Container* container = core_as<Container>(resource, request, "variable"))
      request.reply(no_output(apply(*container, request)));
  }

 private:
  Status apply(Container& container, const ResourceRequest& request) const {
    const ResourceHandle* handles[Rule::kVariables];
    for (int i = 0; i < Rule::kVariables; ++i) {
      handles[i] = handle_at(request, i);
      if (!handles[i] || handles[i]->type != handles[0]->type || handles[i]->container != handles[0]->container)
        return invalid_argument("input {} must be a variable of container '{}'", i, container.name());
    }
    Arithmetic<T> scalars[Rule::kScalars];
    for (int i = 0; i < Rule::kScalars; ++i) {
      const Tensor& t = request.inputs[Rule::kVariables + i + (i >= Rule::kGradient)];
      if (t.dtype() != dtype_of<T> || t.rank() != 0)
        return invalid_argument("input {} must be a {} scalar, got {}", Rule::kVariables + i + (i >= Rule::kGradient),
                                to_string(dtype_of<T>), describe(t));
      scalars[i] = widen(t.data<T>()[0]);
    }
    const Tensor& gradient = request.inputs[Rule::kVariables + Rule::kGradient];
    return container.rewrite(
        handles, request.allocator, [&](std::span<const Container::Rewritten> variables) -> Status {
          for (int i = 0; i < Rule::kVariables; ++i)
            if (const Tensor& t = *variables[i].from;
                t.dtype() != gradient.dtype() || t.dtype() != dtype_of<T> || !(t.shape() == gradient.shape()))
              return invalid_argument("variable '{}' is {}, the gradient {}", handles[i]->name, describe(t),
                                      describe(gradient));
          run(variables, gradient, scalars);
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
      const T* g = gradient.data<T>() + begin;
      if constexpr (std::is_same_v<T, float>) run_floats(Rule(), v, g, scalars, flag_, n);
      else Rule::run(v, g, scalars, flag_, n);
    }
  }

  const bool flag_;
};

/// Variables and gradient of one shape, all else scalars.
template <class Rule> Status apply_shape(ShapeContext& c) {
  PartialShape shape = c.input(Rule::kVariables + Rule::kGradient);
  for (int i = 0; i < Rule::kVariables; ++i) {
    TROUPE_ASSIGN(const PartialShape variable, variable_shape(c, i, c.attr<DType>("T")));
    if (!variable.compatible(shape))
      return invalid_argument("variable and gradient must have the same shape: input {} has {}, others {}", i,
                              variable.str(), shape.str());
    TROUPE_ASSIGN(shape, PartialShape::merge(shape, variable));
  }
  for (int i = Rule::kVariables; i < c.num_inputs(); ++i)
    if (i != Rule::kVariables + Rule::kGradient) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 0));
  return {};
}

template <class Rule> void add_rule(OpRegistry& ops, KernelRegistry& kernels, OpDef op, std::string doc) {
  const std::string name = op.name();
  op.attr(type_attr("T", FloatTypes{})).attr("use_locking: bool = false");
  if (!Rule::kFlag.empty()) op.attr(fmt::format("{}: bool = {}", Rule::kFlag, Rule::kFlag == "update_slots"));
  ops.add(
      op.doc(doc + " In place and at once: nobody sees some of it. The variables are in one container; all have the "
                   "gradient's shape.")
          .shape(apply_shape<Rule>)
          .stateful(),
      not_differentiable("it has no output; what it writes is read by other nodes"));
  const auto add = [&]<class T>() {
    kernels.add<ApplyKernel<Rule, T>>(name, DeviceKind::kCpu, {{"T", {dtype_of<T>}}});
  };
  add.template operator()<float>();
  add.template operator()<double>();
  add.template operator()<bfloat16>();
  add.template operator()<float16>();
}

/// An op with these handles, then these inputs of type T.
OpDef apply_op(const char* name, std::initializer_list<const char*> handles, std::initializer_list<const char*> rest) {
  OpDef op(name);
  for (const char* h : handles) op.input(std::string(h) + ": resource");
  for (const char* r : rest) op.input(std::string(r) + ": T");
  return op;
}

}  // namespace

void register_training_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_rule<GradientDescentRule>(ops, kernels, apply_op("ResourceApplyGradientDescent", {"var"}, {"alpha", "delta"}),
                                "var -= alpha * delta.");
  add_rule<MomentumRule>(
      ops, kernels, apply_op("ResourceApplyMomentum", {"var", "accum"}, {"lr", "grad", "momentum"}),
      "accum = accum * momentum + grad; var -= lr * accum. With `use_nesterov` var -= lr * grad + lr "
      "* momentum * accum.");
  add_rule<KerasMomentumRule>(ops, kernels,
                              apply_op("ResourceApplyKerasMomentum", {"var", "accum"}, {"lr", "grad", "momentum"}),
                              "accum = accum * momentum - lr * grad; var += accum. With `use_nesterov` var += accum * "
                              "momentum - lr * grad.");
  add_rule<AdamRule>(
      ops, kernels,
      apply_op("ResourceApplyAdam", {"var", "m", "v"},
               {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad"}),
      "m += (grad - m) * (1 - beta1); v += (grad^2 - v) * (1 - beta2); var -= lr * sqrt(1 - beta2_power) / "
      "(1 - beta1_power) * m / (sqrt(v) + epsilon). With `use_nesterov` beta1 * m + (1 - beta1) * grad "
      "stands for m in the last.");
  add_rule<AdagradRule>(ops, kernels, apply_op("ResourceApplyAdagrad", {"var", "accum"}, {"lr", "grad"}),
                        "accum += grad^2 (if `update_slots`); var -= lr * grad / sqrt(accum).");
  add_rule<AdagradV2Rule>(ops, kernels, apply_op("ResourceApplyAdagradV2", {"var", "accum"}, {"lr", "epsilon", "grad"}),
                          "accum += grad^2 (if `update_slots`); var -= lr * grad / (sqrt(accum) + epsilon).");
  add_rule<RmsPropRule>(
      ops, kernels,
      apply_op("ResourceApplyRMSProp", {"var", "ms", "mom"}, {"lr", "rho", "momentum", "epsilon", "grad"}),
      "ms += (grad^2 - ms) * (1 - rho); mom = mom * momentum + lr * grad / sqrt(ms + epsilon); var -= "
      "mom.");
  add_rule<CenteredRmsPropRule>(
      ops, kernels,
      apply_op("ResourceApplyCenteredRMSProp", {"var", "mg", "ms", "mom"},
               {"lr", "rho", "momentum", "epsilon", "grad"}),
      "ms += (grad^2 - ms) * (1 - rho); mg += (grad - mg) * (1 - rho); mom = mom * momentum + lr "
      "* grad / sqrt(ms - mg^2 + epsilon); var -= mom.");
  add_rule<AdadeltaRule>(
      ops, kernels,
      apply_op("ResourceApplyAdadelta", {"var", "accum", "accum_update"}, {"lr", "rho", "epsilon", "grad"}),
      "accum = accum * rho + grad^2 * (1 - rho); update = sqrt(accum_update + epsilon) / sqrt(accum + "
      "epsilon) * grad; var -= lr * update; accum_update = accum_update * rho + update^2 * (1 - rho).");
  add_rule<FtrlRule>(
      ops, kernels, apply_op("ResourceApplyFtrl", {"var", "accum", "linear"}, {"grad", "lr", "l1", "l2", "lr_power"}),
      "new = accum + grad^2; linear += grad - (new^-lr_power - accum^-lr_power) / lr * var; var = (l1 * "
      "sign(linear) - linear) / (new^-lr_power / lr + 2 * l2) where |linear| > l1, else 0; accum = new.");
}

}  // namespace troupe
