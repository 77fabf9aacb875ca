// SPDX-License-Identifier: Apache-2.0
// Names of devices, full and partial: "/job:worker/replica:0/task:17/device:gpu:3", "/cpu:1", "/job:ps".
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "troupe/error.h"

namespace troupe {

/// A device name in its parts; those not told are empty. A name with every part but the replica (which then is 0) is
/// full and names one device; the others are constraints that many devices may meet.
struct DeviceName {
  std::optional<std::string> job = {};
  std::optional<int> replica = {};
  std::optional<int> task = {};
  std::optional<std::string> kind = {};  // lower case: "cpu", "gpu", "sim"
  std::optional<int> index = {};

  /// Reads a full or partial name; "" has no parts. Kinds may be written "/cpu:1", "/gpu:*", "/device:CPU:1", "CPU:0",
  /// in any case; "*" leaves its part open. Errors: kInvalidArgument that names text and fault.
  static Result<DeviceName> parse(std::string_view text);

  bool empty() const { return *this == DeviceName{}; }
  bool full() const { return job && task && kind && index; }
  /// Whether every part told here is the same in `device`, a full name.
  bool matches(const DeviceName& device) const;
  /// The parts of both. Errors: kInvalidArgument that names both where they differ.
  static Result<DeviceName> merge(const DeviceName& a, const DeviceName& b);
  /// The parts of `inner`, and of `outer` where inner does not tell: a scope within a scope.
  static DeviceName override(const DeviceName& outer, const DeviceName& inner);
  /// In the form of "/job:worker/replica:0/task:17/device:gpu:3", without the parts not told.
  std::string str() const;

  bool operator==(const DeviceName&) const = default;
};

}  // namespace troupe
