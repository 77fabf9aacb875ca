// SPDX-License-Identifier: Apache-2.0
#include "ops/data/carried_function.h"

#include "ops/data/dataset_value.h"

namespace troupe {

CarriedFunction::CarriedFunction(const KernelInit& init, std::string_view attr)
    : what_(fmt::format("{} of {} '{}'", attr, init.op, init.node)) {
  body_.graph = init.attr<std::string>(attr);
  if (const auto* container = init.attrs->get<std::string>("_container")) body_.container = *container;
}

Result<std::shared_ptr<GraphFunction>> CarriedFunction::prepared(const std::shared_ptr<FunctionCaller>& functions) {
  if (!functions) return make_error(Code::kFailedPrecondition, "nobody is here who calls functions of graphs");
  const std::lock_guard lock(mutex_);
  if (!prepared_ || by_.lock() != functions) {
    TROUPE_ASSIGN(prepared_, functions->prepare(body_));
    by_ = functions;
  }
  return prepared_;
}

Result<Element> CarriedFunction::call(const std::shared_ptr<FunctionCaller>& functions, Element arguments,
                                      const std::stop_token& stop) {
  auto function = prepared(functions);
  return named(function.ok() ? (*function)->call(std::move(arguments), stop) : std::move(function.error()));
}

BegunCall CarriedFunction::begin(const std::shared_ptr<CarriedFunction>& self,
                                 const std::shared_ptr<FunctionCaller>& functions, Element arguments,
                                 const std::stop_token& stop) {
  auto function = self->prepared(functions);
  if (!function.ok()) return [self, error = function.error()] { return self->named(error); };
  return [self, call = (*function)->begin(std::move(arguments), stop)] { return self->named(call()); };
}

Result<Element> CarriedFunction::named(Result<Element> out) const {
  if (!out.ok()) {
    Error& error = out.error();
    std::string inner = error.node.empty() ? "" : fmt::format("{} '{}': ", error.op, error.node);
    error.message = fmt::format("{}: {}{}", what_, inner, error.message);
    error.op = error.node = error.device = {};  // those of the node that is asked name the outer one
  }
  return out;
}

PassFn CarriedFunction::bind(std::shared_ptr<CarriedFunction> function, Element captured) {
  return [function = std::move(function), captured = std::move(captured)](const Pass& pass, Element element) {
    element.insert(element.end(), captured.begin(), captured.end());
    return function->call(pass.functions, std::move(element), pass.stop);
  };
}

BeginFn CarriedFunction::bind_begun(std::shared_ptr<CarriedFunction> function, Element captured) {
  return [function = std::move(function), captured = std::move(captured)](const Pass& pass, Element element) {
    element.insert(element.end(), captured.begin(), captured.end());
    return begin(function, pass.functions, std::move(element), pass.stop);
  };
}

StageOfElementFn CarriedFunction::bind_stage(std::shared_ptr<CarriedFunction> function, Element captured) {
  return [by = bind(std::move(function), std::move(captured))](const Pass& pass, Element element) -> Result<StagePtr> {
    TROUPE_ASSIGN(const Element out, by(pass, std::move(element)));
    if (out.size() != 1) return invalid_argument("the function must give one dataset, not {} values", out.size());
    TROUPE_ASSIGN(GraphDataset dataset, dataset_of(out[0], "what the function gives"));
    return stage_within(std::move(dataset));
  };
}

}  // namespace troupe
