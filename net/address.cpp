// SPDX-License-Identifier: Apache-2.0
// Names of tasks and addresses: parsing and printing.
#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>

#include "base/lower_case.h"
#include "net/cluster_spec.h"

namespace troupe::net {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_letter(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '-' || c == '.'; }

/// A number without sign and without zeros before it.
std::optional<uint32_t> plain_number(std::string_view text) {
  uint32_t out = 0;
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return out;
}

/// Whether `host` may be a name or an IPv4 address; RFC 1123's letters, and '_', which container networks use.
const char* fault_of_host(const std::string& host) {
  if (host.empty()) return "has no host";
  if (host.size() > 253) return "has a host of more than 253 letters";
  in_addr ignored = {};
  if (std::ranges::all_of(host, [](char c) { return is_digit(c) || c == '.'; }) &&
      inet_pton(AF_INET, host.c_str(), &ignored) != 1)
    return "has no IPv4 address";
  size_t label = 0;
  for (size_t i = 0; i <= host.size(); ++i) {
    if (i < host.size() && host[i] != '.') {
      if (!is_name_letter(host[i])) return "has a letter that no host name has";
      continue;
    }
    if (i == label || i - label > 63) return "has a host with a part of 0 or more than 63 letters";
    if (host[label] == '-' || host[i - 1] == '-') return "has a host with a '-' at the end of a part";
    label = i + 1;
  }
  return nullptr;
}

}  // namespace

std::string TaskId::str() const { return fmt::format("/job:{}/task:{}", job, task); }

Status TaskId::check() const {
  if (job.empty() || !is_letter(job[0]) || !std::ranges::all_of(job, is_name_letter))
    return invalid_argument("'{}' is not a name of a job: a letter, then letters, digits, '_', '-' and '.'", job);
  if (job.size() > kLongestName)
    return invalid_argument("the name of a job has {} letters, at most {}", job.size(), kLongestName);
  if (task < 0) return invalid_argument("task {} of job '{}': tasks count from 0", task, job);
  return {};
}

Result<TaskId> TaskId::parse(std::string_view text) {
  constexpr std::string_view kJob = "/job:", kTask = "/task:";
  const auto bad = [&] { return invalid_argument("'{}' is not a name of a task, such as /job:worker/task:1", text); };
  if (!text.starts_with(kJob)) return bad();
  const size_t slash = text.find('/', kJob.size());
  if (slash == text.npos || !text.substr(slash).starts_with(kTask)) return bad();
  const auto number = plain_number(text.substr(slash + kTask.size()));
  if (!number || *number > INT32_MAX) return bad();
  TaskId out{std::string(text.substr(kJob.size(), slash - kJob.size())), static_cast<int>(*number)};
  if (!out.check().ok()) return bad();
  return out;
}

std::string Address::str() const {
  if (kind == Kind::kUnix) return "unix:" + path;
  return host.find(':') == host.npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

Result<Address> Address::parse(std::string_view text) {
  const auto bad = [&](std::string_view why) { return invalid_argument("address '{}' {}", text, why); };
  Address out;
  if (text.starts_with("unix:")) {
    out.kind = Kind::kUnix;
    out.path = text.substr(5);
    if (out.path.empty() || out.path[0] != '/') return bad("has no path that begins with '/'");
    if (out.path.size() >= sizeof(sockaddr_un::sun_path)) return bad("has a path of more than 107 bytes");
    if (out.path.find('\0') != out.path.npos) return bad("has a zero byte in its path");
    return out;
  }
  if (text.find("://") != text.npos) return bad("is a URL, not host:port, [IPv6]:port or unix:PATH");
  const size_t colon = text.rfind(':');
  if (colon == text.npos || text.ends_with(']')) return bad("has no port, such as host:2222");
  const auto port = plain_number(text.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535) return bad("has no port from 1 to 65535");
  out.port = static_cast<uint16_t>(*port);
  out.host = text.substr(0, colon);
  if (out.host.starts_with('[')) {
    if (!out.host.ends_with(']')) return bad("has no ']' before its port");
    out.host = out.host.substr(1, out.host.size() - 2);
    const std::string number = out.host.substr(0, out.host.find('%'));  // a link-local one may name its interface
    const std::string interface = out.host.substr(number.size());       // whose letters' case counts: "%enP2p1s0"
    in6_addr parsed = {};
    if (inet_pton(AF_INET6, number.c_str(), &parsed) != 1) return bad("has no IPv6 address between [ and ]");
    if (!interface.empty() && (interface.size() == 1 || !std::ranges::all_of(interface.substr(1), is_name_letter)))
      return bad("has no name of an interface after '%'");
    // One spelling for each address.
    char shortest[INET6_ADDRSTRLEN] = {};
    inet_ntop(AF_INET6, &parsed, shortest, sizeof shortest);
    out.host = shortest + interface;
    return out;
  }
  out.host = lower_case(out.host);
  if (out.host.find(':') != out.host.npos) return bad("is an IPv6 address without [ and ]");
  if (const char* why = fault_of_host(out.host)) return bad(why);
  return out;
}

}  // namespace troupe::net
