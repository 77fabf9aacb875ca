// SPDX-License-Identifier: Apache-2.0
// What two nodes must agree on so that one may do the work of both: the place that they ask for, the layout of images.
#pragma once
#include <string>

#include "troupe/graph.h"

namespace troupe {

inline bool same_place(const Node& a, const Node& b) {
  if (a.device() != b.device()) return false;
  const AttrValue* with_a = a.attrs().find("_class");
  const AttrValue* with_b = b.attrs().find("_class");
  return with_a && with_b ? same(*with_a, *with_b) : with_a == with_b;
}

inline std::string data_format(const Node& n) { return n.attrs().get_or<std::string>("data_format", "NHWC"); }

}  // namespace troupe
