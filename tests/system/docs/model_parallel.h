// SPDX-License-Identifier: Apache-2.0
// What the code blocks of docs/model_parallel.md take for granted.
#pragma once
#include "troupe/device_mesh.h"
#include "troupe/engine.h"
#include "troupe/tensor_parallel.h"

using namespace troupe;

extern std::unique_ptr<Engine> engine;
extern Scope root, s;
extern nn::Variables variables;
extern Output x;
extern int64_t units;
