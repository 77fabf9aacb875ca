// SPDX-License-Identifier: Apache-2.0
// Whether two nodes ask to be in the same place, so that one may do the work of both.
#pragma once
#include "troupe/graph.h"

namespace troupe {

inline bool same_place(const Node& a, const Node& b) {
  if (a.device() != b.device()) return false;
  const AttrValue* with_a = a.attrs().find("_class");
  const AttrValue* with_b = b.attrs().find("_class");
  return with_a && with_b ? same(*with_a, *with_b) : with_a == with_b;
}

}  // namespace troupe
