// SPDX-License-Identifier: Apache-2.0
// What the code blocks of docs/graph_passes.md take for granted.
#pragma once
#include "troupe/session.h"

using namespace troupe;

extern std::unique_ptr<Engine> engine;
extern Graph graph;
