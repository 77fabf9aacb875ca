// SPDX-License-Identifier: Apache-2.0
// Whether models are on GPUs.
#pragma once
#include <algorithm>
#include <cctype>
#include <span>
#include <string>
#include <vector>

#include "troupe/scope.h"
#include "troupe/session.h"

namespace troupe::nn {

/// Whether one of the devices is a GPU. What has no kernel there, such as a queue or an iterator, is then to run on the
/// CPU (SessionOptions::soft_placement); elsewhere a device is all that is asked for.
inline bool any_gpu(std::span<const std::string> devices) {
  return std::ranges::any_of(devices, [](std::string name) {  // "/gpu:0", "/device:GPU:0", "/job:worker/gpu:*"
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    return name.find("gpu:") != std::string::npos;
  });
}

/// Whether all devices are there, which soft placement does not ask. Error: kNotFound with those that are.
inline Status are_there(Engine& engine, std::span<const std::string> devices) {
  Graph graph(engine.ops());
  std::vector<const Node*> nodes;
  for (const std::string& device : devices) nodes.push_back(Scope(graph).device(device).node("NoOp", {}));
  TROUPE_RETURN_IF_ERROR(graph.status());
  return Session(engine, graph).prepare({}, {}, nodes).status();
}

}  // namespace troupe::nn
