// SPDX-License-Identifier: Apache-2.0
// Unary kernels of GPUs give what those of CPUs give, bit for bit.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

TEST_CASE("Unary kernels of GPUs agree with those of CPUs") {
  Parity parity;
  check_unary(parity, {"Neg",   "Abs",   "Sign",  "Square", "Sqrt",     "Rsqrt",     "Reciprocal", "Inv",   "Exp",
                       "Expm1", "Log",   "Log1p", "Sin",    "Cos",      "Tan",       "Asin",       "Acos",  "Atan",
                       "Sinh",  "Cosh",  "Asinh", "Acosh",  "Atanh",    "Erf",       "Erfc",       "Floor", "Ceil",
                       "Rint",  "Round", "IsNan", "IsInf",  "IsFinite", "LogicalNot"});
}

}  // namespace
}  // namespace troupe::testing
