// SPDX-License-Identifier: Apache-2.0
// What the code blocks of docs/gradients.md take for granted.
#pragma once
#include "troupe/optimizers.h"

using namespace troupe;

extern Scope scope;
extern nn::Variables variables;
extern nn::Optimizer optimizer;
extern Output x;
Output layers_of_a_block(const Scope& scope, Output h);
Output loss_of(Output h);
