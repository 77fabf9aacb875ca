// SPDX-License-Identifier: Apache-2.0
// CertificateName: whom a certificate of a cluster names. Implemented in net/certificate_name.cpp.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "net/cluster_spec.h"

namespace troupe::net {

/// A task of a cluster, or one who may be its client. A certificate has it as a URI among its alternative names.
struct CertificateName {
  std::string cluster;
  std::optional<TaskId> task;  // none: a client
  std::string client = {};     // of a client: who that is; may be empty

  bool operator==(const CertificateName&) const = default;
  /// "troupe://mine/job:worker/task:1", "troupe://mine/client", "troupe://mine/client/alice".
  std::string uri() const;
  /// From uri()'s text. Errors: kInvalidArgument that quotes the text.
  static Result<CertificateName> parse(std::string_view uri);
  /// The rules for its parts: a client's name has letters, digits, '_', '-' and '.', at most kLongestName.
  Status check() const;
};

}  // namespace troupe::net
