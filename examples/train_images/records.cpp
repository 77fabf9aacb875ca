// SPDX-License-Identifier: Apache-2.0
// Checkpoints and events of a run.
#include "records.h"

#include <algorithm>
#include <cstdio>

#include "troupe/graph_def.h"

using namespace troupe;

namespace {
// How many images were trained on; kept beside the variables, and none itself.
constexpr const char* kImages = "train_images/images";
// Those of the settings that a run which goes on cannot change.
constexpr const char* kFixed[] = {"--batch", "--limit", "--model", "--optimizer", "--seed"};
}  // namespace

Settings settings_of(const Options& o, int64_t images) {
  return {{"--batch", std::to_string(o.batch)},
          {"--limit", std::to_string(images)},
          {"--model", o.model},
          {"--optimizer", o.optimizer},
          {"--seed", std::to_string(o.seed)},
          {"--lr", o.rate > 0 ? fmt::format("{}", o.rate) : "usual"},
          {"--dtype", o.dtype},
          {"--augment", o.augment ? "yes" : "no"},
          {"--mode", o.together.mode},
          {"--replicas", std::to_string(o.replicas)}};
}

Result<Records> Records::open(const std::string& out, Settings settings) {
  TROUPE_ASSIGN(Checkpointer checkpoints, Checkpointer::open(out + "/checkpoints"));
  TROUPE_ASSIGN(auto events, EventWriter::open(out + "/events"));
  return Records(std::move(checkpoints), std::move(events), std::move(settings));
}

Status Records::compare(const Checkpointer::Loaded& loaded) const {
  std::string wrong, other;
  for (const auto& [name, now] : settings_) {
    const auto found = loaded.metadata.find(name);
    const std::string before = found == loaded.metadata.end() ? "unknown" : found->second;
    if (before == now) continue;
    const bool fixed = found != loaded.metadata.end() && std::ranges::find(kFixed, name) != std::end(kFixed);
    std::string& list = fixed ? wrong : other;
    list += fmt::format("{}{} {} (now {})", list.empty() ? "" : ", ", name, before, now);
  }
  if (!wrong.empty())
    return make_error(Code::kFailedPrecondition,
                      "{} was made with {}; give the same, --fresh to start anew, or another --out", loaded.path,
                      wrong);
  if (!other.empty()) std::fputs(fmt::format("train_images: made before with {}\n", other).c_str(), stderr);
  return {};
}

Result<Records::Point> Records::load() const {
  TROUPE_ASSIGN(Checkpointer::Loaded loaded, checkpoints_.load_latest());
  for (const std::string& line : loaded.skipped)
    std::fputs(fmt::format("train_images: passed over {}\n", line).c_str(), stderr);
  const auto found = loaded.tensors.find(kImages);
  if (found == loaded.tensors.end() || found->second.dtype() != DType::kInt64 || found->second.elements() != 1)
    return make_error(Code::kFailedPrecondition, "{}: no checkpoint of train_images; --fresh starts anew", loaded.path);
  TROUPE_RETURN_IF_ERROR(compare(loaded));
  Point point{{}, found->second.data<int64_t>()[0], loaded.path};
  loaded.tensors.erase(found);
  point.variables.variables = std::move(loaded.tensors);
  return point;
}

Result<int64_t> Records::save(Snapshot snapshot, int64_t images, int64_t step, int64_t per_update) {
  TROUPE_ASSIGN(const int64_t now, nn::step_of(snapshot));
  snapshot.variables[kImages] = Tensor::scalar<int64_t>(images + (now - step) * per_update);
  auto saved = checkpoints_.save(snapshot.variables, now, settings_);
  TROUPE_RETURN_IF_ERROR(saved);
  TROUPE_RETURN_IF_ERROR(events_->flush());
  return now;
}

Status Records::scalar(const std::string& name, double value, int64_t step) {
  return events_->scalar(name, step, static_cast<float>(value));
}

Status Records::go_on(int64_t step) { return events_->begin_again(step + 1); }

Status Records::start(const Graph& graph, const Images& images, int64_t step) {
  TROUPE_RETURN_IF_ERROR(events_->graph(to_graph_def(graph)));
  return events_->image("train/images", step, images.train_images, 4);
}

Status Records::weights(const Snapshot& snapshot, const nn::Variables& model, int64_t step) {
  for (const nn::Variable& v : model.trainable()) {
    const auto found = snapshot.variables.find(v.name);
    if (found != snapshot.variables.end()) TROUPE_RETURN_IF_ERROR(events_->histogram(v.name, step, found->second));
  }
  return {};
}
