// SPDX-License-Identifier: Apache-2.0
// What the code blocks of docs/simulation.md take for granted.
#pragma once
#include <cstdio>

#include "troupe/session.h"

using namespace troupe;

extern Graph graph;
extern Output loss;
