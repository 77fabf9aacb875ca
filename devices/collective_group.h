// SPDX-License-Identifier: Apache-2.0
// CollectiveGroup: where the ranks of collectives among some cards meet. Each rank asks by itself, when its node fires;
// once all have come for the same collective of the same step and iteration, it is carried out. Implemented in
// devices/collective_group.cpp.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gpu/collective_runner.h"
#include "troupe/kernel.h"

namespace troupe {

/// What a rank asks for. But for rank and input all ranks of a collective ask for the same.
struct CollectiveCall {
  std::string name;  // of the collective in its graph
  std::string op;    // for messages: "_AllReduce"
  gpu::Collective::Kind kind = gpu::Collective::Kind::kAllReduce;
  std::vector<int64_t> sizes;  // of reduce-scatter's chunks; empty: as even as may be
  size_t root = 0;             // of a broadcast
  size_t rank = 0;

  bool has_input() const { return kind != gpu::Collective::Kind::kBroadcast || rank == root; }
};

/// A passive core (see Resource): its host calls it, one call at a time.
class CollectiveGroup final : public Resource {
 public:
  /// `members`: numbers of the runner's, by rank.
  CollectiveGroup(std::shared_ptr<gpu::CollectiveRunner> runner, std::vector<size_t> members)
      : runner_(std::move(runner)), members_(std::move(members)) {}

  /// A rank has come. Calls of one step with one name and `ticket` belong together. The answer, one tensor, comes when
  /// the collective is done, or is the error of it, the same for all ranks: kInvalidArgument, naming two of them, where
  /// dtypes or shapes do not agree, or one has come twice; kInvalidArgument of this one alone where it is not the rank
  /// of its device. `input` is in the memory of the rank's device.
  void join(const CollectiveCall& call, int64_t ticket, std::optional<Tensor> input, ResourceRequest request);

  void cancel(uint64_t requester, int64_t step) override;
  /// Collectives for which ranks are missing.
  size_t waiting() const { return gatherings_.size(); }

 private:
  using Key = std::tuple<int64_t, std::string, int64_t>;  // step, name, ticket
  struct Rank {
    CollectiveCall call;
    Tensor input;  // undefined without one
    std::shared_ptr<Allocator> allocator;
    Reply reply;
  };
  using Gathering = std::map<size_t, Rank>;  // by rank

  Status check(const CollectiveCall& call, const std::optional<Tensor>& input, const ResourceRequest& request) const;
  /// All have come.
  void carry_out(Gathering ranks);
  Result<gpu::CollectiveRunner::Task> task_of(Gathering& ranks) const;
  Result<Tensor> output_of(Rank& rank, const Shape& shape, DType dtype) const;
  std::string name_of(const Rank& rank) const;

  const std::shared_ptr<gpu::CollectiveRunner> runner_;
  const std::vector<size_t> members_;
  std::map<Key, Gathering> gatherings_;
};

}  // namespace troupe
