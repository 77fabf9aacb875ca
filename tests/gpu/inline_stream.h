// SPDX-License-Identifier: Apache-2.0
// A stream that does what is put in at once, for tests of kernels.
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "gpu/runtime.h"

namespace troupe::testing {

class InlineStream final : public gpu::Stream {
 public:
  int card() const override { return 0; }
  Status record(gpu::Event&) override { return {}; }
  Status wait(const gpu::Event&) override { return {}; }
  Status copy(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
  }
  Status fill(void* at, int byte, size_t bytes) override {
    if (bytes > 0) std::memset(at, byte, bytes);
    return {};
  }
  Status check_launch(const char* kernel) override {
    launched.push_back(kernel);
    return {};
  }
  void uses(std::span<const gpu::Access> accesses) override { accessed.assign(accesses.begin(), accesses.end()); }
  void* native() const override { return nullptr; }
  void enqueue(std::function<void()> work) override { work(); }

  std::vector<std::string> launched;
  std::vector<gpu::Access> accessed;  // what uses() said last
};

}  // namespace troupe::testing
