// SPDX-License-Identifier: Apache-2.0
// The parts of the array family, each in a file of its own; called by register_array_ops.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

void register_concat_ops(OpRegistry&, KernelRegistry&);    // concat.cpp: ConcatV2, Split, Pack, Unpack, ...
void register_slice_ops(OpRegistry&, KernelRegistry&);     // slice.cpp: Slice, StridedSlice
void register_pad_ops(OpRegistry&, KernelRegistry&);       // pad.cpp: Pad, MirrorPad
void register_reverse_ops(OpRegistry&, KernelRegistry&);   // reverse.cpp: ReverseV2, ReverseSequence, Roll
void register_block_ops(OpRegistry&, KernelRegistry&);     // blocks.cpp: SpaceToBatchND, DepthToSpace, ...
void register_diagonal_ops(OpRegistry&, KernelRegistry&);  // diagonal.cpp: MatrixDiag, MatrixDiagPart, MatrixSetDiag
void register_band_ops(OpRegistry&, KernelRegistry&);      // band.cpp: MatrixBandPart, Diag, DiagPart
void register_sequence_ops(OpRegistry&, KernelRegistry&);  // sequence.cpp: LinSpace, UnravelIndex, BroadcastArgs

}  // namespace troupe
