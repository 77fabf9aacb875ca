// SPDX-License-Identifier: Apache-2.0
// _FusedElementwise on CPUs: the loops of a program's functions, and the kernel of programs with functions that must
// have whole rows. Implemented in ops/fused/fused_rows.cpp.
#pragma once
#include <memory>
#include <vector>

#include "ops/fused/fused_program.h"
#include "ops/math/reduce_loops.h"
#include "ops/parts/elementwise.h"

namespace troupe {

/// What a function does on one type: the loop of its kind.
struct FusedLoop {
  FusedKind kind = FusedKind::kUnary;
  UnaryLoop unary = nullptr;
  BinaryLoop binary = nullptr;
  int64_t grain = 1;
  bool broadcasts = true;
  ReduceLoops reduce = {};
};

struct FusedInstruction {
  FusedLoop loop;
  size_t a = 0, b = 0;  // as in FusedStep
  size_t block = 0;     // where its result is kept
};

/// How many elements of the result are worth a thread.
int64_t grain_of(const std::vector<FusedInstruction>& program);
/// Where the element of the first input of `plan` lies that is read beside element `at` of the result.
int64_t place_of_first(const Broadcast& plan, int64_t at);

/// For a program that is by_rows(): runs it row after row of the result, so that all values of a row are in a near
/// cache. A value is as wide as the result, or one element in each row; others are an error of the step.
std::unique_ptr<ComputeKernel> make_fused_rows(FusedProgram form, std::vector<FusedInstruction> program, size_t blocks);

}  // namespace troupe
