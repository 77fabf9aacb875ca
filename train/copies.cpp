// SPDX-License-Identifier: Apache-2.0
// The graphs of replicas that have variables of their own, in containers of their own.
//
//   ring:    gradients of each -> buckets -> all-reduce ------------------------> the same update of every copy
//   sharded: gradients of each -> buckets -> reduce-scatter -> update of a chunk -> all-gather -> every copy
//   local:   gradients of each -> update of the own copy; now and then: copies -> buckets -> all-reduce -> copies
#include <algorithm>

#include "train/tower_builder.h"
#include "troupe/collectives.h"

namespace troupe::nn {
namespace {

/// On each replica i the tensors tensor(i, v) of a bucket's variables v packed, on scope(i).
template <class ScopeOf, class TensorOf>
std::vector<Output> pack_each(int replicas, const Bucket& bucket, ScopeOf scope, TensorOf tensor) {
  std::vector<Output> out;
  for (int i = 0; i < replicas; ++i) {
    std::vector<Output> tensors;
    for (const size_t v : bucket.members) tensors.push_back(tensor(i, v));
    out.push_back(pack(scope(i), tensors));
  }
  return out;
}

std::vector<size_t> all_of(size_t n) {
  std::vector<size_t> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = i;
  return out;
}

/// Chunk `i` of `n` of a vector of so many elements.
Output chunk(const Scope& s, Output vector, int64_t elements, size_t n, size_t i) {
  const std::vector<int64_t> sizes = chunk_sizes(elements, n);
  int64_t begin = 0;
  for (size_t k = 0; k < i; ++k) begin += sizes[k];
  return s.op("Slice", {vector, s.constant(Tensor::of<int64_t>({begin})), s.constant(Tensor::of<int64_t>({sizes[i]}))});
}

/// Gives a variable that value, where it lives.
const Node* assign(const Scope& s, Variables& variables, const Variable& v, Output value) {
  const Output handle = variables.handle(s, v);
  return variables.home(s, v.name).node("AssignVariableOp", {handle, value});
}

}  // namespace

void TowerBuilder::make_copies() {
  const std::string base = options_.container + (options_.container.empty() ? "" : "/") + options_.name;
  for (int i = 1; i < replicas(); ++i)
    towers_.copies.push_back(std::make_unique<Variables>(fmt::format("{}/replica_{}", base, i), options_.seed));
}

std::vector<size_t> TowerBuilder::trained(const std::vector<Tower>& towers) const {
  std::vector<size_t> out;
  const std::vector<Output>& first = towers[0].gradients;
  for (size_t v = 0; v < first.size(); ++v) {
    for (size_t i = 1; i < towers.size(); ++i) {
      const std::vector<Output>& other = towers[i].gradients;
      if (other.size() != first.size() || static_cast<bool>(other[v]) != static_cast<bool>(first[v])) {
        root_.fail(invalid_argument("trainer '{}': the models of replicas 0 and {} differ", options_.name, i));
        return {};
      }
    }
    if (first[v]) out.push_back(v);
  }
  std::ranges::stable_sort(out, {}, [&](size_t v) { return first[v].node->id(); });
  return out;
}

std::vector<Gradient> TowerBuilder::gradients_of(const Scope& scope, const Tower& tower) const {
  const std::vector<Variable> all = variables_.trainable();
  std::vector<Gradient> out;
  for (size_t v = 0; v < all.size(); ++v) out.push_back(rows_of(scope, tower.gradients[v]));
  return out;
}

std::vector<std::vector<Gradient>> TowerBuilder::gradients_of(const Scope& scope,
                                                              const std::vector<Tower>& towers) const {
  std::vector<std::vector<Gradient>> out;
  for (size_t i = 0; i < towers.size(); ++i) out.push_back(gradients_of(scope.device(devices_[i]), towers[i]));
  for (size_t v = 0; v < out[0].size(); ++v)
    if (!std::ranges::all_of(out, [&](const auto& own) { return static_cast<bool>(own[v].indices); }))
      for (size_t i = 0; i < towers.size(); ++i) out[i][v] = {towers[i].gradients[v], {}};
  return out;
}

std::vector<std::vector<Gradient>> TowerBuilder::reduce(const std::vector<Tower>& towers,
                                                        const std::vector<size_t>& members) {
  const std::vector<Variable> all = variables_.trainable();
  const auto scope = [&](int i) { return reduce_.device(devices_[static_cast<size_t>(i)]); };
  const std::vector<std::vector<Gradient>> own = gradients_of(reduce_, towers);
  std::vector<std::vector<Gradient>> out(towers.size(), std::vector<Gradient>(all.size()));
  std::vector<size_t> packed;
  for (const size_t v : members) {
    if (!own[0][v].indices) {
      packed.push_back(v);
      continue;
    }
    std::vector<Output> values, indices;
    for (const auto& gradients : own) values.push_back(gradients[v].value), indices.push_back(gradients[v].indices);
    values = all_gather(reduce_, devices_, values);
    indices = all_gather(reduce_, devices_, indices);
    for (size_t i = 0; i < out.size() && root_.ok(); ++i) {
      const Scope s = scope(static_cast<int>(i));
      const Output share = s.op("Cast", {s.constant(1.0 / replicas())}, {{"DstT", all[v].dtype}});
      out[i][v] = {s.op("Mul", {values[i], share}), indices[i]};
    }
  }
  for (const Bucket& bucket : make_buckets(all, packed, options_.bucket_bytes, false)) {
    const auto vectors = pack_each(replicas(), bucket, scope,
                                   [&](int i, size_t v) { return towers[static_cast<size_t>(i)].gradients[v]; });
    const auto means = all_reduce(reduce_, devices_, vectors, Reduction::kMean);
    for (size_t i = 0; i < out.size() && root_.ok(); ++i) {
      const auto parts = unpack(scope(static_cast<int>(i)), bucket, means[i]);
      for (size_t k = 0; k < parts.size(); ++k) out[i][bucket.members[k]] = {parts[k], {}};
    }
  }
  return out;
}

void TowerBuilder::ring() {
  make_copies();
  const std::vector<Tower> all = all_towers();
  if (!root_.ok()) return;
  const std::vector<size_t> members = trained(all);
  if (!root_.ok()) return;
  StepSpec step = step_of(all);
  const auto means = reduce(all, members);
  for (int i = 0; i < replicas() && root_.ok(); ++i)
    step.targets.push_back(apply_updates(at(i), variables_of(i), options_.optimizer, means[static_cast<size_t>(i)]));
  towers_.replicas.push_back(std::move(step));
}

// Where a whole gradient is on each replica already, since it is of rows or was clipped, each takes its chunk of it.
void TowerBuilder::sharded() {
  make_copies();
  const std::vector<Tower> all = all_towers();
  if (!root_.ok()) return;
  const std::vector<Variable> variables = variables_.trainable();
  const Optimizer& optimizer = options_.optimizer;
  std::vector<size_t> summed, whole;
  for (const size_t v : trained(all)) (optimizer.clip || is_of_rows(all[0].gradients[v]) ? whole : summed).push_back(v);
  if (!root_.ok()) return;
  const auto means = reduce(all, whole);
  std::vector<std::vector<Output>> gradients;
  for (int i = 0; i < replicas() && root_.ok(); ++i) {
    const Scope s = at(i).scope(fmt::format("replica_{}/whole", i));
    std::vector<Output> own;
    for (size_t v = 0; v < variables.size(); ++v)
      own.push_back(dense(s, variables[v], means[static_cast<size_t>(i)][v]));
    gradients.push_back(clipped(s, optimizer, std::move(own)));
  }
  if (!root_.ok()) return;

  StepSpec step = step_of(all);
  std::vector<std::vector<const Node*>> updates(all.size());
  const bool by_decay = optimizer.l2 != 0 || optimizer.weight_decay != 0;
  const auto on = [&](int i) { return reduce_.device(devices_[static_cast<size_t>(i)]); };
  for (const Bucket& bucket : make_buckets(variables, summed, options_.bucket_bytes, by_decay)) {
    const auto vectors =
        pack_each(replicas(), bucket, on, [&](int i, size_t v) { return all[static_cast<size_t>(i)].gradients[v]; });
    update_shards(bucket, reduce_scatter(reduce_, devices_, vectors, Reduction::kMean), step, updates);
  }
  for (const Bucket& bucket : make_buckets(variables, whole, options_.bucket_bytes, by_decay)) {
    auto pieces =
        pack_each(replicas(), bucket, on, [&](int i, size_t v) { return gradients[static_cast<size_t>(i)][v]; });
    for (int i = 0; i < replicas() && root_.ok(); ++i) {
      Output& piece = pieces[static_cast<size_t>(i)];
      piece = chunk(on(i), piece, bucket.elements(), all.size(), static_cast<size_t>(i));
    }
    update_shards(bucket, pieces, step, updates);
  }
  for (int i = 0; i < replicas() && root_.ok(); ++i)
    step.targets.push_back(finish_update(at(i), variables_of(i), updates[static_cast<size_t>(i)]));
  towers_.replicas.push_back(std::move(step));
}

bool TowerBuilder::is_shard(const std::string& name) const {
  return std::ranges::any_of(towers_.shards, [&](const Shards& s) { return name.starts_with(s.name); });
}

void TowerBuilder::update_shards(const Bucket& bucket, const std::vector<Output>& pieces, StepSpec& step,
                                 std::vector<std::vector<const Node*>>& updates) {
  if (!root_.ok()) return;
  const Optimizer& optimizer = options_.optimizer;
  const std::string name = fmt::format("{}/shard_{}", options_.name, towers_.shards.size());
  towers_.shards.push_back({name, bucket});
  const std::vector<int64_t> sizes = chunk_sizes(bucket.elements(), pieces.size());
  std::vector<Output> updated;
  for (size_t i = 0; i < pieces.size() && root_.ok(); ++i) {
    const int replica = static_cast<int>(i);
    Variables& variables = variables_of(replica);
    const Scope s = at(replica).scope("update");
    if (rates_.size() <= i) rates_.push_back(update_rate(s, variables, optimizer));
    if (sizes[i] == 0) {
      updated.push_back(pieces[i]);
      continue;
    }
    const Variable shard{name, bucket.dtype, Shape{sizes[i]}, false};
    const Output handle = variables.handle(s, name, shard.shape, zeros(), false, shard.dtype);
    Output gradient = pieces[i];
    // What decay takes off follows from the value before the update.
    if (bucket.decays && optimizer.weight_decay != 0)
      gradient = s.after(std::vector<Output>{variables.read(s, shard)}).op("Identity", {gradient});
    const Node* update = update_variable({s.scope(name), variables, shard, {}, rates_[i].rate, rates_[i].step},
                                         optimizer, {gradient, {}}, bucket.decays);
    if (!update) return;
    updates[i].push_back(update);
    updated.push_back(
        s.after(std::vector<const Node*>{update}).op("ReadVariableOp", {handle}, {{"dtype", shard.dtype}}));
  }
  const std::vector<Output> whole = all_gather(reduce_, devices_, updated);
  for (size_t i = 0; i < whole.size() && root_.ok(); ++i) {
    const Scope s = at(static_cast<int>(i)).scope("assign");
    const std::vector<Output> values = unpack(s, bucket, whole[i]);
    for (size_t k = 0; k < values.size() && root_.ok(); ++k)
      step.targets.push_back(assign(s, variables_of(static_cast<int>(i)), bucket.variables[k], values[k]));
  }
}

void TowerBuilder::local() {
  make_copies();
  const std::vector<Tower> all = all_towers();
  if (root_.ok()) trained(all);
  for (int i = 0; i < replicas() && root_.ok(); ++i) {
    const Tower& t = all[static_cast<size_t>(i)];
    const Scope s = at(i).scope(fmt::format("replica_{}/apply", i));
    StepSpec step{{}, {t.loss, t.accuracy, t.examples}, {}};
    if (i == 0) step.targets = t.updates;
    step.targets.push_back(apply_updates(s, variables_of(i), options_.optimizer, gradients_of(s, t)));
    towers_.replicas.push_back(std::move(step));
  }
  if (!root_.ok()) return;
  const std::vector<Variable> variables = variables_.trainable();
  const auto on = [&](int i) { return reduce_.device(devices_[static_cast<size_t>(i)]); };
  for (const Bucket& bucket : make_buckets(variables, all_of(variables.size()), options_.bucket_bytes, false)) {
    const auto vectors =
        pack_each(replicas(), bucket, on, [&](int i, size_t v) { return variables_of(i).read(at(i), variables[v]); });
    const auto means = all_reduce(reduce_, devices_, vectors, Reduction::kMean);
    for (size_t i = 0; i < means.size() && root_.ok(); ++i) {
      const Scope s = on(static_cast<int>(i));
      const auto values = unpack(s, bucket, means[i]);
      for (size_t k = 0; k < values.size() && root_.ok(); ++k)
        towers_.average.targets.push_back(assign(s, variables_of(static_cast<int>(i)), bucket.variables[k], values[k]));
    }
  }
}

void TowerBuilder::publish() {
  const Scope s = root_.scope("publish");
  const std::vector<Variable> all = variables_.all();
  for (int i = 1; i <= static_cast<int>(towers_.copies.size()) && root_.ok(); ++i) {
    const Scope there = s.device(devices_[static_cast<size_t>(i)]);
    for (const Variable& v : all)
      if (!is_shard(v.name))
        towers_.publish.targets.push_back(assign(there, variables_of(i), v, variables_.read(there, v)));
  }
  for (const Shards& shards : towers_.shards)
    for (int i = 0; i < replicas() && root_.ok(); ++i) {
      const Scope there = s.device(devices_[static_cast<size_t>(i)]);
      std::vector<Output> values;
      for (const Variable& v : shards.bucket.variables) values.push_back(variables_.read(there, v));
      const int64_t elements = shards.bucket.elements();
      const Output piece =
          chunk(there, pack(there, values), elements, static_cast<size_t>(replicas()), static_cast<size_t>(i));
      const int64_t size = chunk_sizes(elements, static_cast<size_t>(replicas()))[static_cast<size_t>(i)];
      const Variable shard{shards.name, shards.bucket.dtype, Shape{size}, false};
      if (size > 0) towers_.publish.targets.push_back(assign(there, variables_of(i), shard, piece));
    }
}

}  // namespace troupe::nn
