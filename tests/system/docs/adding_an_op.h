// SPDX-License-Identifier: Apache-2.0
// What the code blocks of docs/adding_an_op.md take for granted: an op of this tree includes what those beside it do.
#pragma once
#include "ops/parts/type_dispatch.h"
#include "troupe/gradients.h"
#include "troupe/kernel.h"

using namespace troupe;
