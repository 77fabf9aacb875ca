// SPDX-License-Identifier: Apache-2.0
// What the code blocks of docs/data_parallel.md take for granted.
#pragma once
#include "troupe/train.h"

using namespace troupe;

extern std::unique_ptr<Engine> engine;
extern nn::ModelFn model;
extern Dataset batches;
