// SPDX-License-Identifier: Apache-2.0
// Network::Link: a client's way to ask one task of its cluster, by the actor of that peer. Programs are kept, so that a
// task that has started again is told of them.
#pragma once
#include <caf/all.hpp>

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "actors/network.h"

namespace troupe {

class Network::Link final : public TaskLink {
 public:
  Link(Network& network, net::TaskId task) : network_(network), task_(std::move(task)) {}

  void add_program(PartProgram program) override;
  void drop_program(uint64_t program) override;
  void drop_session(uint64_t session) override;
  void run(PartRun run) override;
  void abort(int64_t step, const Error& error) override;
  void ask(ContainerAsk ask) override;

  /// The task is there, in a new life: it is told of all programs.
  void up(const caf::actor& actor);
  void down(const Error& why);

 private:
  /// What is asked of a peer's actor as it ends.
  Error was_lost() const { return make_error(Code::kUnavailable, "{} was lost", task_name(task_)); }
  /// The other tasks that exchange values with a part; the client itself is none.
  std::vector<net::TaskId> partners_of(const PartProgram& program) const;
  Result<net::FrameRef> register_frame(const PartProgram& program) const;

  Network& network_;
  const net::TaskId task_;
  std::atomic<uint64_t> requests_{0};
  std::mutex mutex_;
  caf::actor actor_;  // none: the task is not there
  Error why_not_ = make_error(Code::kUnavailable, "it is not connected");
  std::map<uint64_t, net::FrameRef> programs_;
  std::map<uint64_t, Error> faults_;
  std::map<uint64_t, std::vector<net::TaskId>> partners_;  // by program
};

}  // namespace troupe
