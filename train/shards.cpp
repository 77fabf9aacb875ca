// SPDX-License-Identifier: Apache-2.0
#include "train/shards.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "troupe/collectives.h"

namespace troupe::nn {
namespace {

/// The vectors one after the other.
Result<Tensor> join_vectors(DType dtype, const std::vector<Tensor>& parts) {
  int64_t n = 0;
  for (const Tensor& t : parts) n += t.elements();
  TROUPE_ASSIGN(Tensor out, Tensor::make(dtype, Shape{n}));
  char* to = static_cast<char*>(out.mutable_raw());
  for (const Tensor& t : parts) {
    if (t.bytes() > 0) std::memcpy(to, t.raw(), t.bytes());
    to += t.bytes();
  }
  return out;
}

/// Elements [begin, begin + shape.elements()) of a vector, in memory of their own.
Result<Tensor> cut_vector(const Tensor& vector, int64_t begin, const Shape& shape) {
  TROUPE_ASSIGN(const Tensor part, vector.slice(begin, begin + shape.elements()));
  TROUPE_ASSIGN(const Tensor shaped, part.reshape(shape));
  return shaped.clone();
}

/// "adam_m" of "<shards.name>/adam_m"; empty for other names.
std::string slot_in(const Shards& shards, const std::string& name) {
  return name.starts_with(shards.name + "/") ? name.substr(shards.name.size() + 1) : "";
}

}  // namespace

Result<Snapshot> join_slots(const std::vector<Shards>& shards, std::vector<Snapshot> replicas) {
  Snapshot out = std::move(replicas[0]);
  for (const Shards& s : shards) {
    out.variables.erase(s.name);
    std::map<std::string, std::vector<Tensor>> chunks;
    for (size_t i = 0; i < replicas.size(); ++i) {
      auto& from = i == 0 ? out.variables : replicas[i].variables;
      for (auto at = from.lower_bound(s.name + "/"); at != from.end() && !slot_in(s, at->first).empty();) {
        chunks[slot_in(s, at->first)].push_back(at->second);
        at = from.erase(at);
      }
    }
    for (const auto& [slot, parts] : chunks) {
      TROUPE_ASSIGN(const Tensor whole, join_vectors(s.bucket.dtype, parts));
      if (whole.elements() != s.bucket.elements())
        return make_error(Code::kInternal, "the chunks of '{}/{}' have {} elements, its variables {}", s.name, slot,
                          whole.elements(), s.bucket.elements());
      int64_t begin = 0;
      for (const Variable& v : s.bucket.variables) {
        TROUPE_ASSIGN(out.variables[v.name + "/" + slot], cut_vector(whole, begin, v.shape));
        begin += v.shape.elements();
      }
    }
  }
  return out;
}

Result<std::vector<Snapshot>> part_slots(const std::vector<Shards>& shards,
                                         const std::vector<const Variables*>& variables, const Snapshot& snapshot) {
  std::vector<Snapshot> out(variables.size());
  out[0] = snapshot;
  for (const Shards& s : shards) {
    std::set<std::string> slots;
    for (const Variables* replica : variables)
      for (const Variable& v : replica->all())
        if (const std::string slot = slot_in(s, v.name); !slot.empty()) slots.insert(slot);
    for (const std::string& slot : slots) {
      std::vector<Tensor> parts;
      std::string missing;
      for (const Variable& v : s.bucket.variables) {
        const std::string name = v.name + "/" + slot;
        const auto at = snapshot.variables.find(name);
        if (at == snapshot.variables.end()) {
          missing = name;
          continue;
        }
        if (at->second.dtype() != v.dtype || !(at->second.shape() == v.shape))
          return invalid_argument("restore: '{}' is {}{}, its variable {}{}", name, to_string(at->second.dtype()),
                                  at->second.shape().str(), to_string(v.dtype), v.shape.str());
        parts.push_back(at->second);
        out[0].variables.erase(name);
      }
      if (parts.empty()) continue;
      if (!missing.empty())
        return invalid_argument("restore: no '{}', but slots of that kind for other variables", missing);
      TROUPE_ASSIGN(const Tensor whole, join_vectors(s.bucket.dtype, parts));
      int64_t begin = 0;
      const std::vector<int64_t> sizes = chunk_sizes(whole.elements(), variables.size());
      for (size_t i = 0; i < variables.size(); begin += sizes[i++])
        if (sizes[i] > 0) {
          TROUPE_ASSIGN(out[i].variables[s.name + "/" + slot], cut_vector(whole, begin, Shape{sizes[i]}));
        }
    }
  }
  return out;
}

Status check_of_model(const Snapshot& snapshot, const std::vector<Variable>& trainable) {
  if (trainable.empty() ||
      std::ranges::any_of(trainable, [&](const Variable& v) { return snapshot.variables.contains(v.name); }))
    return {};
  if (snapshot.variables.empty()) return invalid_argument("restore: the snapshot is empty");
  return invalid_argument(
      "restore: the snapshot is of another model: of {} trainable variables, such as '{}', none is among its {}, such "
      "as '{}'",
      trainable.size(), trainable.front().name, snapshot.variables.size(), snapshot.variables.begin()->first);
}

Result<int64_t> step_of(const Snapshot& snapshot) {
  const auto at = snapshot.variables.find("global_step");
  if (at == snapshot.variables.end()) return invalid_argument("the snapshot must have a variable 'global_step'");
  const Tensor& step = at->second;
  if (step.dtype() != DType::kInt64 || step.rank() != 0)
    return invalid_argument("'global_step' must be an int64 scalar, got {}{}", to_string(step.dtype()),
                            step.shape().str());
  return step.data<int64_t>()[0];
}

}  // namespace troupe::nn
