// SPDX-License-Identifier: Apache-2.0
// Parsing, printing and matching of device names.
#include "base/device_name.h"

#include <algorithm>
#include <charconv>

#include "base/lower_case.h"

namespace troupe {
namespace {

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool name_character(char c) { return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.'; }

/// A word up to ':' , which is taken away with it.
std::string_view take_word(std::string_view& text) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view word = text.substr(0, colon);
  text.remove_prefix(std::min(colon + 1, text.size()));
  return word;
}

template <class T> bool agree(const std::optional<T>& a, const std::optional<T>& b) { return !a || !b || *a == *b; }

template <class T> void set_if(std::optional<T>& to, const std::optional<T>& from) {
  if (from) to = from;
}

}  // namespace

Result<DeviceName> DeviceName::parse(std::string_view text) {
  DeviceName out;
  const auto bad = [&](std::string_view part, std::string_view why) {
    return invalid_argument("device name '{}': '{}' {}", text, part, why);
  };
  std::string_view rest = text;
  while (!rest.empty()) {
    if (rest[0] == '/') rest.remove_prefix(1);
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(part.size());
    std::string_view value = part;
    std::string key = lower_case(take_word(value));
    if (key == "job") {
      if (value.empty() || !letter(value[0]) || !std::ranges::all_of(value, name_character))
        return bad(part, "has no name of a job");
      if (out.job) return bad(part, "names the job again");
      out.job = value;
      continue;
    }
    const bool place = key == "replica" || key == "task";
    if (!place) {
      if (key == "device") key = lower_case(take_word(value));
      if (key != "*" && (key.empty() || !letter(key[0]) || !std::ranges::all_of(key, name_character)))
        return bad(part, "has no kind of device");
      if (out.kind || out.index) return bad(part, "names the device again");
      if (key != "*") out.kind = key;
    }
    std::optional<int>& number = key == "replica" ? out.replica : key == "task" ? out.task : out.index;
    if (value == "*" || (value.empty() && !place && part.back() != ':')) continue;
    int parsed = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    if (error != std::errc() || end != value.data() + value.size() || parsed < 0) return bad(part, "has no number");
    if (number) return bad(part, "is there twice");
    number = parsed;
  }
  return out;
}

bool DeviceName::matches(const DeviceName& device) const {
  return agree(job, device.job) && replica.value_or(device.replica.value_or(0)) == device.replica.value_or(0) &&
         agree(task, device.task) && agree(kind, device.kind) && agree(index, device.index);
}

Result<DeviceName> DeviceName::merge(const DeviceName& a, const DeviceName& b) {
  if (!agree(a.job, b.job) || !agree(a.replica, b.replica) || !agree(a.task, b.task) || !agree(a.kind, b.kind) ||
      !agree(a.index, b.index))
    return invalid_argument("devices {} and {} do not agree", a.str(), b.str());
  return override(a, b);
}

DeviceName DeviceName::override(const DeviceName& outer, const DeviceName& inner) {
  DeviceName out = outer;
  set_if(out.job, inner.job);
  set_if(out.replica, inner.replica);
  set_if(out.task, inner.task);
  if (inner.kind && inner.kind != outer.kind) out.index.reset();
  set_if(out.kind, inner.kind);
  set_if(out.index, inner.index);
  return out;
}

std::string DeviceName::str() const {
  std::string out;
  if (job) out += "/job:" + *job;
  if (replica) out += fmt::format("/replica:{}", *replica);
  if (task) out += fmt::format("/task:{}", *task);
  if (kind || index) out += "/device:" + kind.value_or("*") + ":" + (index ? std::to_string(*index) : "*");
  return out;
}

}  // namespace troupe
