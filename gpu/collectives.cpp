// SPDX-License-Identifier: Apache-2.0
#include "gpu/collectives.h"

#include <numeric>

namespace troupe::gpu {

const char* to_string(Collective::Kind kind) {
  switch (kind) {
    case Collective::Kind::kAllReduce: return "all-reduce";
    case Collective::Kind::kReduceScatter: return "reduce-scatter";
    case Collective::Kind::kAllGather: return "all-gather";
    case Collective::Kind::kBroadcast: return "broadcast";
  }
  return "?";
}

bool can_sum(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kInt32:
    case DType::kUInt32:
    case DType::kInt64:
    case DType::kUInt64:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kComplex64:
    case DType::kComplex128: return true;
    default: return false;
  }
}

int64_t input_elements(const Collective& c, size_t rank) {
  if (c.kind == Collective::Kind::kAllGather) return c.counts[rank];
  return std::accumulate(c.counts.begin(), c.counts.end(), int64_t{0});
}

int64_t output_elements(const Collective& c, size_t rank) {
  if (c.kind == Collective::Kind::kReduceScatter) return c.counts[rank];
  return std::accumulate(c.counts.begin(), c.counts.end(), int64_t{0});
}

}  // namespace troupe::gpu
