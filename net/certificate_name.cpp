// SPDX-License-Identifier: Apache-2.0
#include "net/certificate_name.h"

#include <algorithm>

#include "base/printable.h"

namespace troupe::net {
namespace {

constexpr std::string_view kScheme = "troupe://", kClientPath = "/client";

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

}  // namespace

std::string CertificateName::uri() const {
  const std::string who = task             ? task->str()
                          : client.empty() ? std::string(kClientPath)
                                           : fmt::format("{}/{}", kClientPath, client);
  return fmt::format("{}{}{}", kScheme, cluster, who);
}

Status CertificateName::check() const {
  if (!is_plain_name(cluster)) return invalid_argument("{} is not a name of a cluster", in_quotes(cluster));
  if (task) return task->check();
  if (!client.empty() && !is_plain_name(client))
    return invalid_argument("{} is not a name of a client: at most {} letters, digits, '_', '-' and '.'",
                            in_quotes(client), kLongestName);
  return {};
}

Result<CertificateName> CertificateName::parse(std::string_view uri) {
  const auto bad = [&] { return invalid_argument("{} names neither a task nor a client", in_quotes(uri)); };
  if (!uri.starts_with(kScheme)) return bad();
  const std::string_view rest = uri.substr(kScheme.size());
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return bad();
  CertificateName out{std::string(rest.substr(0, slash)), {}};
  const std::string_view who = rest.substr(slash);
  if (who.starts_with("/job:")) {
    auto task = TaskId::parse(who);
    if (!task.ok()) return bad();
    out.task = std::move(*task);
  } else if (who != kClientPath) {
    if (!who.starts_with("/client/") || who.size() == kClientPath.size() + 1) return bad();
    out.client = who.substr(kClientPath.size() + 1);
  }
  if (!out.check().ok()) return bad();
  return out;
}

}  // namespace troupe::net
