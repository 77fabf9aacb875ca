// SPDX-License-Identifier: Apache-2.0
// Cases of ops that move elements: mirrors, orders, blocks, diagonals, indices into several dimensions; and of Einsum
// and rounding to few bits.
#pragma once
#include "tests/ops/op_case.h"

namespace troupe::testing {

inline std::vector<OpCase> nd_index_cases() {
  const Tensor x = D({1, 2, 3, 4, 5, 6}, {3, 2});
  const Attrs ignore = {{"bad_indices_policy", std::string("IGNORE")}};
  return {
      {"GatherNd", {x, I({}, {0, 1})}, {}, {D({}, {0, 2})}},
      {"GatherNd", {x, I({1, 7}, {2, 1})}, ignore, {D({3, 4, 0, 0}, {2, 2})}},
      {"GatherNd", {x, Tensor::of<int16_t>({2, 0}, {1, 2})}, {}, {D({5})}},
      {"ScatterNd", {I({1, 9}, {2, 1}), D({1, 2}), I({3})}, ignore, {D({0, 1, 0})}},
      {"ScatterNd", {I({0, 0, 2}, {3, 1}), B({true, false, true}), I({3})}, {}, {B({true, false, true})}},
      {"ScatterNdNonAliasingAdd", {x, I({1, 1, 1, 0}, {2, 2}), D({10, 20})}, {}, {D({1, 2, 23, 14, 5, 6}, {3, 2})}},
      {"TensorScatterUpdate", {x, I({2, 0}, {2, 1}), D({7, 8, 9, 10}, {2, 2})}, {}, {D({9, 10, 3, 4, 7, 8}, {3, 2})}},
      {"TensorScatterUpdate",
       {Tensor::of<std::string>({"a", "b"}), L({1}, {1, 1}), Tensor::of<std::string>({"c"})},
       {},
       {Tensor::of<std::string>({"a", "c"})}},
      {"TensorScatterAdd", {x, L({1, 0, 1, 0}, {2, 2}), D({10, 20})}, {}, {D({1, 2, 33, 4, 5, 6}, {3, 2})}},
      {"TensorScatterAdd", {I({INT32_MAX}), I({0}, {1, 1}), I({1})}, {}, {I({INT32_MIN})}},
      {"TensorScatterSub", {x, I({2}, {1, 1}), D({1, 2}, {1, 2})}, {}, {D({1, 2, 3, 4, 4, 4}, {3, 2})}},
      {"TensorScatterMin", {x, I({2, 0}, {2, 1}), D({1, 9, 0.5, 7}, {2, 2})}, {}, {D({0.5, 2, 3, 4, 1, 6}, {3, 2})}},
      {"TensorScatterMax", {x, I({2, 0}, {2, 1}), D({1, 9, 0.5, 7}, {2, 2})}, {}, {D({1, 7, 3, 4, 5, 9}, {3, 2})}},
  };
}

}  // namespace troupe::testing
