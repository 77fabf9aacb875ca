// SPDX-License-Identifier: Apache-2.0
#include "troupe/cost_model.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "plan/op_costs.h"

namespace troupe {
namespace {

using nlohmann::json;

/// From this many measurements on the mean forgets.
constexpr int64_t kRemembered = 20;
/// Of whatever is measured, so that sums stay numbers.
constexpr double kMostMeasured = 1e18;
constexpr int64_t kMostSteps = 1'000'000'000'000'000'000;

/// Whether `path` is something else than a file: a FIFO, which would wait, or a device.
bool is_special(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

Error no_cost_model(const std::string& path, const std::string& why) {
  return make_error(Code::kDataLoss, "'{}' is not a cost model: {}", path, why);
}

}  // namespace

void CostModel::add(const std::string& node, std::string_view kind, double ns, double output_bytes, int64_t steps,
                    double firings) {
  const auto known = [](double value) { return value >= 0 && value <= kMostMeasured; };
  if (steps < 1 || !known(ns) || !known(output_bytes) || !known(firings)) return;
  steps = std::min(steps, kMostSteps);
  MeasuredCost& cost = measured_[node].try_emplace(std::string(kind)).first->second;
  cost.steps = std::min(cost.steps + steps, kMostSteps);
  const double weight =
      std::min(1.0, static_cast<double>(steps) / static_cast<double>(std::min(cost.steps, kRemembered)));
  cost.ns += (ns - cost.ns) * weight;
  cost.bytes += (output_bytes - cost.bytes) * weight;
  cost.firings += (firings - cost.firings) * weight;
}

void CostModel::add(const CostModel& other) {
  for (const auto& [node, kinds] : other.measured_)
    for (const auto& [kind, cost] : kinds) add(node, kind, cost.ns, cost.bytes, cost.steps, cost.firings);
}

const MeasuredCost* CostModel::find(std::string_view node, std::string_view kind) const {
  const auto kinds = measured_.find(node);
  if (kinds == measured_.end()) return nullptr;
  auto cost = kinds->second.find(kind);
  if (cost == kinds->second.end() && kind == "sim") cost = kinds->second.find("cpu");
  return cost == kinds->second.end() ? nullptr : &cost->second;
}

std::optional<double> CostModel::firings(std::string_view node) const {
  const auto kinds = measured_.find(node);
  if (kinds == measured_.end()) return {};
  const auto steps = [](const auto& kind) { return kind.second.steps; };
  return std::ranges::max_element(kinds->second, {}, steps)->second.firings;
}

double CostModel::time_ns(const Node& node, std::string_view kind, const DeviceRates& rates) const {
  if (const MeasuredCost* measured = find(node.name(), kind)) return measured->ns;
  return estimated_ns(node, rates);
}

Status CostModel::save(const std::string& path) const {
  json nodes = json::object();
  for (const auto& [node, kinds] : measured_)
    for (const auto& [kind, cost] : kinds)
      nodes[node][kind] = {{"ns", cost.ns}, {"steps", cost.steps}, {"bytes", cost.bytes}, {"firings", cost.firings}};
  if (is_special(path))
    return make_error(Code::kNotFound, "the cost model cannot be written to '{}': it is not a regular file", path);
  const std::string beside = path + ".new";
  std::remove(beside.c_str());  // of a program that was killed
  errno = 0;
  std::ofstream out(beside, std::ios::trunc);
  out << json{{"format", "troupe cost model"}, {"version", 1}, {"nodes", std::move(nodes)}}.dump(
             1, ' ', false, json::error_handler_t::replace)
      << '\n';
  out.close();
  if (!out || std::rename(beside.c_str(), path.c_str()) != 0) {
    const std::string why = std::generic_category().message(errno);
    std::remove(beside.c_str());
    return make_error(Code::kNotFound, "the cost model cannot be written to '{}': {}", path, why);
  }
  return {};
}

Result<CostModel> CostModel::load(const std::string& path) {
  if (is_special(path)) return no_cost_model(path, "not a regular file");
  std::ifstream in(path);
  if (!in) return make_error(Code::kNotFound, "there is not a cost model '{}'", path);
  std::stringstream text;
  text << in.rdbuf();
  const json file = json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (!file.is_object() || file.value("format", json()) != "troupe cost model")
    return no_cost_model(path, "another format");
  if (file.value("version", json()) != 1) return no_cost_model(path, "another version than 1");
  const json nodes = file.value("nodes", json());
  if (!nodes.is_object()) return no_cost_model(path, "no nodes");
  CostModel model;
  for (const auto& [node, kinds] : nodes.items()) {
    if (!kinds.is_object()) return no_cost_model(path, fmt::format("node '{}' has no costs", node));
    for (const auto& [kind, cost] : kinds.items()) {
      const auto number = [&cost = cost](const char* name) {
        const json value = cost.is_object() ? cost.value(name, json()) : json();
        return value.is_number() ? value.get<double>() : -1;
      };
      const double ns = number("ns"), steps = number("steps"), bytes = number("bytes");
      const double firings = cost.is_object() && cost.contains("firings") ? number("firings") : 1;
      if (!(ns >= 0 && ns <= kMostMeasured) || !(steps >= 1 && steps <= kMostMeasured) ||
          !(bytes >= 0 && bytes <= kMostMeasured) || !(firings >= 0 && firings <= kMostMeasured))
        return no_cost_model(
            path, fmt::format("node '{}' on {}: ns, steps, bytes and firings are not all numbers, or beyond {}", node,
                              kind, kMostMeasured));
      model.measured_[node][kind] = {ns, static_cast<int64_t>(steps), bytes, firings};
    }
  }
  return model;
}

}  // namespace troupe
