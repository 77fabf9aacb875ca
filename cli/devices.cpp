// SPDX-License-Identifier: Apache-2.0
#include "cli/devices.h"

#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "base/device_name.h"
#include "base/threads_available.h"

namespace troupe {
namespace {

constexpr int kMostDevices = 10'000;
constexpr double kMost = 1e18;  // of whatever a device or link can do

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out(1);
  for (const char c : text)
    if (c == at) out.emplace_back();
    else out.back() += c;
  return out;
}

/// A positive number with a suffix, or NaN.
double read_number(const std::string& text, double thousand) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string suffix(end, text.data() + text.size());
  static const std::map<std::string, int> powers = {{"", 0}, {"k", 1}, {"K", 1}, {"M", 2}, {"G", 3}, {"T", 4}};
  const auto power = powers.find(suffix);
  if (error != std::errc() || power == powers.end() || !std::isfinite(number)) return std::nan("");
  return number * std::pow(thousand, power->second);
}

/// "name=number,..." into what `names` points to.
Status read_settings(const std::string& text, const std::map<std::string, double*>& names, const std::string& option) {
  std::string known;
  std::set<std::string> told;
  for (const auto& [name, to] : names) known += (known.empty() ? "" : ", ") + name;
  for (const std::string& setting : split(text, ',')) {
    const size_t equal = setting.find('=');
    const auto at = names.find(setting.substr(0, equal));
    if (equal == std::string::npos || at == names.end())
      return invalid_argument("{}: '{}' is not a setting; there are {}, each as name=number", option, setting, known);
    if (!told.insert(at->first).second) return invalid_argument("{}: '{}' is there twice", option, at->first);
    *at->second = read_number(setting.substr(equal + 1), at->first == "memory" ? 1024 : 1000);
    const bool may_be_zero = at->first == "latency" || at->first == "launch" || at->first == "memory";
    if (!(*at->second > 0 || (may_be_zero && *at->second == 0)) || *at->second > kMost)
      return invalid_argument("{}: '{}' is not a number above 0, of {} at most", option, setting, kMost);
  }
  return {};
}

}  // namespace

Result<std::vector<PlacementDevice>> read_devices(const std::string& text) {
  std::vector<PlacementDevice> out;
  std::map<std::string, int> counts;
  for (const std::string& group : split(text, '+')) {
    const size_t equal = group.find('='), colon = equal == std::string::npos ? equal : group.find(':', equal);
    const size_t slash = group.substr(0, equal).rfind('/');
    const std::string kind = group.substr(slash + 1, equal - slash - 1);
    DeviceName place{.job = "localhost", .replica = 0, .task = 0};
    if (slash != std::string::npos) {
      TROUPE_ASSIGN(const DeviceName told, DeviceName::parse(group.substr(0, slash)));
      place = DeviceName::override(place, told);
    }
    const std::string number = equal == std::string::npos ? "" : group.substr(equal + 1, colon - equal - 1);
    int count = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), count);
    if ((kind != "cpu" && kind != "gpu" && kind != "sim") || place.kind || place.index || error != std::errc() ||
        *end != '\0' || count < 1 || count > kMostDevices)
      return invalid_argument(
          "--devices {}: cpu=N, gpu=N or sim=N is expected, with N from 1 to {}, or /job:NAME/task:N/ and one of them",
          text, kMostDevices);
    DeviceRates rates;
    double memory = 0;
    if (colon != std::string::npos)
      TROUPE_RETURN_IF_ERROR(read_settings(group.substr(colon + 1),
                                           {{"flops", &rates.flops},
                                            {"bandwidth", &rates.memory_bandwidth},
                                            {"launch", &rates.launch_ns},
                                            {"memory", &memory}},
                                           "--devices " + text));
    rates.memory = static_cast<int64_t>(memory);
    const std::string name = place.str() + "/device:" + kind;
    for (int i = 0; i < count; ++i) out.push_back({fmt::format("{}:{}", name, counts[name]++), rates});
  }
  return out;
}

Result<OwnDevices> read_own_devices(const std::string& text, int cores) {
  constexpr int kMostCpus = 1024, kMostGpus = 64;
  OwnDevices out;
  int cpus = 0;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t end = std::min(text.find('+', at), text.size());
    const std::string part = text.substr(at, end - at);
    at = end + 1;
    const std::string count = part.substr(std::min(part.size(), part.find('=') + 1));
    const bool gpu = part.starts_with("gpu=");
    int& devices = gpu ? out.gpus : cpus;
    const bool again = devices > 0;
    const auto [last, error] = std::from_chars(count.data(), count.data() + count.size(), devices);
    if (again || (!gpu && !part.starts_with("cpu=")) || error != std::errc() || *last != '\0' || devices < 1 ||
        devices > (gpu ? kMostGpus : kMostCpus))
      return invalid_argument("--devices {}: cpu=N, gpu=N or both with + between are expected, with N from 1 to {}, {}",
                              text, kMostCpus, kMostGpus);
  }
  if (cores == 0) cores = count_cores_available();
  if (cpus > 0) out.cpu_threads.assign(static_cast<size_t>(cpus), std::max(1, cores / cpus));
  return out;
}

Result<LinkRates> read_link(const std::string& text) {
  LinkRates out;
  TROUPE_RETURN_IF_ERROR(
      read_settings(text, {{"bandwidth", &out.bandwidth}, {"latency", &out.latency_ns}}, "--link " + text));
  return out;
}

}  // namespace troupe
