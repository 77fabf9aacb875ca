// SPDX-License-Identifier: Apache-2.0
// What the code blocks of docs/pipeline.md take for granted.
#pragma once
#include <cstdio>

#include "troupe/device_mesh.h"
#include "troupe/pipeline.h"
#include "troupe/tensor_parallel.h"

using namespace troupe;

extern std::unique_ptr<Engine> engine;
extern nn::ModelFn model;
extern Dataset batches;
extern Scope s;
extern nn::Variables v;
extern Output x;
