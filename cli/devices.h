// SPDX-License-Identifier: Apache-2.0
// Devices and links as command lines write them.
#pragma once
#include <string>
#include <vector>

#include "troupe/placement.h"

namespace troupe {

/// "cpu=2" or "sim=4:flops=10e12,bandwidth=900e9,launch=3000,memory=16G", several with + between, those of another
/// machine with its name in front, "/job:worker/task:17/gpu=8": so many devices of a kind, each with floating-point
/// operations and bytes of memory traffic a second, nanoseconds that every node takes beside its work, and bytes that
/// it may hold. k, M, G and T behind a number are powers of 1000, of memory 1024. Errors: kInvalidArgument with the
/// text and what is expected.
Result<std::vector<PlacementDevice>> read_devices(const std::string& text);

/// The devices of a process of one's own.
struct OwnDevices {
  std::vector<int> cpu_threads = {};  // of each CPU device; empty: none is named
  int gpus = 0;
};
/// "cpu=2", "gpu=1" or "cpu=2+gpu=1": so many CPU devices, which share `cores` (0: all there are), and so many GPUs.
/// "": none are named. Errors: as above.
Result<OwnDevices> read_own_devices(const std::string& text, int cores = 0);

/// "bandwidth=50e9,latency=3000": bytes a second in each direction, and nanoseconds.
Result<LinkRates> read_link(const std::string& text);

}  // namespace troupe
