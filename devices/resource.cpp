// SPDX-License-Identifier: Apache-2.0
// Reply: exactly once, whatever happens. The keys of hosts.
#include "troupe/resource.h"

namespace troupe {

Reply& Reply::operator=(Reply&& other) noexcept {
  if (this != &other) {
    Reply dropped(std::move(*this));
    sink_ = std::move(other.sink_);
    tag_ = other.tag_;
  }
  return *this;
}

Reply::~Reply() {
  if (sink_) sink_->deliver(tag_, make_error(Code::kCancelled, "the request was dropped"));
}

void Reply::operator()(Result<std::vector<Tensor>> outputs) {
  if (const auto sink = std::move(sink_)) sink->deliver(tag_, std::move(outputs));
}

std::string ResourceHandle::host_key() const {
  std::string key = type + "/";
  for (const char c : container) {
    if (c == '/' || c == '\\') key += '\\';
    key += c;
  }
  return type == "container" ? key : key + "/" + name;
}

}  // namespace troupe
