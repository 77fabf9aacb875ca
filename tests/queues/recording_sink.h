// SPDX-License-Identifier: Apache-2.0
// A ReplySink that keeps every answer, for tests of resources without actors.
#pragma once
#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "troupe/resource.h"

namespace troupe {

class RecordingSink final : public ReplySink {
 public:
  void deliver(const RequestTag& tag, Result<std::vector<Tensor>> outputs) override {
    const bool first = answers.emplace(tag.node, std::move(outputs)).second;
    CHECK(first);  // exactly once
    order.push_back(tag.node);
  }
  /// A reply for a new request, numbered by last().
  Reply reply(uint64_t requester = 1, int64_t step = 1) { return Reply(*this, {requester, step, ++last_}); }
  uint32_t last() const { return last_; }
  bool answered(uint32_t request) const { return answers.contains(request); }
  bool ok(uint32_t request) const { return answered(request) && answers.at(request).ok(); }
  const std::vector<Tensor>& outputs(uint32_t request) const {
    REQUIRE(answered(request));
    if (!answers.at(request).ok()) FAIL(answers.at(request).error().str());
    return answers.at(request).value();
  }
  const Error& error(uint32_t request) const {
    REQUIRE(answered(request));
    REQUIRE_FALSE(answers.at(request).ok());
    return answers.at(request).error();
  }

  std::map<uint32_t, Result<std::vector<Tensor>>> answers;
  std::vector<uint32_t> order;

 private:
  uint32_t last_ = 0;
};

}  // namespace troupe
