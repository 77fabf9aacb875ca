// SPDX-License-Identifier: Apache-2.0
// Ops of TensorFlow's older graphs whose handles of queues, readers, tables and accumulators are references to strings,
// and those that have new versions.
#pragma once
#include <optional>
#include <string>

#include "graph/graph_def/graph.pb.h"
#include "troupe/op.h"

namespace troupe {

/// The name that an op takes on; empty where it keeps its own.
std::string newer_form(const std::string& op, const OpRegistry& ops);

/// The outputs, in order, of an op that becomes another, for names of outputs in functions; nothing for other ops. They
/// may have more than the op had at the end, and names that it did not have where it had one output.
std::optional<OpDef> outputs_of_old_op(const std::string& op, const OpRegistry& ops);

/// Gives each such op of `def` the name of its form for handles, QueueDequeue that of QueueDequeueV2 and
/// AccumulatorTakeGradient that of ResourceAccumulatorTakeGradient: inputs, outputs and attributes are the same but for
/// the handle. FusedBatchNorm in its first two versions, its gradients, BatchNormWithGlobalNormalization of float32 and
/// BiasAddV1 become what took their place. Ops that `ops` has, or whose other form it has not, stay as they are.
void rename_old_ops(proto::GraphDef& def, const OpRegistry& ops);

}  // namespace troupe
