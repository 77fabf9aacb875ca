// SPDX-License-Identifier: Apache-2.0
// Running a graph in TensorFlow's format from its bytes, or a saved model: what `troupe run` and the golden tests do.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/step_feeds.h"
#include "troupe/engine.h"
#include "troupe/graph_passes.h"
#include "troupe/placement.h"

namespace troupe {

struct GraphRun {
  std::string graph;                    // a GraphDef, binary or text
  std::string file = {};                // where it is from, for errors
  std::string model = {};               // in place of `graph`: what load_saved_model takes
  std::vector<std::string> tags = {};   // of the model's graph
  std::string signature = {};           // of the model: feeds and fetches may be called by its names, and its outputs
                                        // are fetched where there are no fetches
  std::map<std::string, Tensor> feeds;  // by tensor name, "x:0"; the same in every step, and while initialising
  std::vector<std::string> init;        // nodes run together, once, before the first step
  std::vector<std::string> fetches;     // tensor names
  std::vector<std::string> targets;     // nodes run in each step beside what the fetches need
  DataOptions data = {};                // feeds that differ from step to step
  std::string checkpoint = {};          // what variables begin with, after the initialisation; see restore_variables()
  std::string checkpoint_out = {};      // where they are written after the last step; see save_variables()
  std::function<void(const std::string& line)> note = {};  // told what the checkpoint and the variables do not share,
                                                           // and of nodes that ask for tasks which a cluster has not
  int64_t steps = 1;                                       // 0: as many as `data` give
  double deadline = 0;                                     // seconds a step, or the initialisation, may take; 0: any
  bool all_steps = false;                                  // keep the fetches of every step, not of the last alone
  EngineOptions engine = {};                               // devices
  std::string default_device = {};                         // see SessionOptions
  Engine* on = nullptr;                                    // run on this engine instead of one of its own
  GraphPasses passes = {};
  Placing placing = Placing::kByHand;
  std::string costs = {};  // a file of measured costs: begun with, where it is there, and written at the end
  std::string trace = {};  // a file for the trace of all steps; empty: none
  std::function<void(int64_t done)> after_step = {};
};

/// Runs it and returns the fetches by the names asked for, or those of the signature's outputs: of the last step, or of
/// all steps stacked on a new first axis. Nodes for devices that are not here run on those that are. Without fetches
/// and targets no step runs. While a step runs, the data of the next one are read; the first are there before the
/// initialisation. Beside the tensors returned, memory does not grow with the steps. Errors: those of from_graph_def,
/// load_saved_model, Session::run, StepFeeds, restore_variables(), save_variables(), CostModel and TraceFile;
/// kInvalidArgument for a feed that comes from `feeds` and `data`, and for a fetch that changes its shape between steps
/// that are to be stacked, or holds handles.
Result<std::map<std::string, Tensor>> run_graph(const GraphRun& job);

}  // namespace troupe
