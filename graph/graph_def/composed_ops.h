// SPDX-License-Identifier: Apache-2.0
// Ops of TensorFlow that say in one node what several of ours do.
#pragma once
#include <string_view>

#include "graph/graph_def/graph.pb.h"
#include "troupe/op.h"

namespace troupe {

/// What such an op becomes, as text; empty where it is none.
std::string_view form_of_composed(std::string_view op, const OpRegistry& ops);

/// Takes such ops of `def` apart: FusedPadConv2D becomes a MirrorPad and a Conv2D, before which FusedResizeAndPadConv2D
/// has a ResizeBilinear; ParseSequenceExample, whose keys are attributes, a ParseSequenceExampleV2, whose keys are
/// constants; InitializeTableFromDataset a batch of the whole dataset and an InitializeTableV2. Conv3DBackpropInput and
/// Conv3DBackpropFilter take the shape of a tensor where they took the tensor; SelfAdjointEig puts eigenvalues above
/// eigenvectors; TensorArrayPack and TensorArrayUnpack become TensorArrayGatherV3 and TensorArrayScatterV3 of all
/// elements; Stack a StackV2 without a limit; Conv the convolution of images or volumes. The last keeps the node's
/// name. Nodes that lack inputs, and ops that `ops` has, stay as they are.
void take_apart(proto::GraphDef& def, const OpRegistry& ops);

}  // namespace troupe
