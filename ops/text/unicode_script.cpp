// SPDX-License-Identifier: Apache-2.0
// The scripts that characters belong to: UnicodeScript. What is asked of ICU is asked here.
#include <unicode/uscript.h>

#include "ops/parts/elementwise.h"
#include "ops/text/register.h"

namespace troupe {
namespace {

struct ScriptOf {
  static int32_t apply(int32_t code) {
    UErrorCode status = U_ZERO_ERROR;
    const UScriptCode script = uscript_getScript(code, &status);
    return U_FAILURE(status) ? USCRIPT_INVALID_CODE : script;
  }
};

}  // namespace

void register_unicode_script_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("UnicodeScript")
              .input("input: int32")
              .output("output: int32")
              .shape(unchanged_shape)
              .doc("The script of each code point, as ICU numbers them (UScriptCode): 0 for what all share, 25 Latin, "
                   "8 Cyrillic, 103 for what none has; -1 for numbers that are not in [0, 0x10FFFF]."),
          not_differentiable("it gives numbers of scripts"));
  kernels.add("UnicodeScript", DeviceKind::kCpu, {}, [](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
    return std::unique_ptr<ComputeKernel>(
        new UnaryKernel(elementwise::unary_plain<ScriptOf, int32_t, int32_t>, DType::kInt32, kCheapGrain));
  });
}

}  // namespace troupe
