// SPDX-License-Identifier: Apache-2.0
// A host for resources under test: what they ask of it is kept until the test answers.
#pragma once
#include <catch2/catch.hpp>

#include <utility>
#include <vector>

#include "devices/hosted_resource.h"

namespace troupe {

struct FakeHost final : ResourceHost {
  struct Asked {
    uint64_t question;  // 0: nobody is told of its end
    Job job;
  };

  uint64_t ask(const ResourceRef&, Use use) override {
    uses.push_back(std::move(use));
    return ++questions;
  }
  void withdraw(uint64_t question) override { withdrawn.push_back(question); }
  uint64_t run_blocking(Job job) override {
    jobs.push_back({++questions, std::move(job)});
    return questions;
  }
  Status start_blocking(Job job) override {
    jobs.push_back({0, std::move(job)});
    return {};
  }
  std::function<void()> waker() override {
    return [] {};
  }
  /// Runs the last job and tells `resource` of its end.
  void run_job(HostedResource& resource) {
    REQUIRE_FALSE(jobs.empty());
    const Asked asked = std::move(jobs.back());
    jobs.pop_back();
    asked.job();
    if (asked.question) resource.answered(asked.question, std::vector<Tensor>());
  }

  uint64_t questions = 0;
  std::vector<Use> uses;
  std::vector<Asked> jobs;
  std::vector<uint64_t> withdrawn;
};

}  // namespace troupe
