// SPDX-License-Identifier: Apache-2.0
// What the code blocks of docs/tensorflow.md take for granted.
#pragma once
#include "troupe/graph_def.h"
#include "troupe/saved_model.h"

using namespace troupe;

extern Engine& engine;
