// SPDX-License-Identifier: Apache-2.0
// Checkpoints and events of a run.
#include "records.h"

#include "troupe/graph_def.h"

using namespace troupe;

namespace {
// How many images were trained on; kept beside the variables, and none itself.
constexpr const char* kImages = "train_images/images";
}  // namespace

Result<Records> Records::open(const std::string& out) {
  TROUPE_ASSIGN(Checkpointer checkpoints, Checkpointer::open(out + "/checkpoints"));
  TROUPE_ASSIGN(auto events, EventWriter::open(out + "/events"));
  return Records(std::move(checkpoints), std::move(events));
}

Result<Records::Point> Records::load() const {
  TROUPE_ASSIGN(Checkpointer::Loaded loaded, checkpoints_.load_latest());
  for (const std::string& line : loaded.skipped) fmt::print(stderr, "train_images: passed over {}\n", line);
  const auto found = loaded.tensors.find(kImages);
  if (found == loaded.tensors.end() || found->second.dtype() != DType::kInt64 || found->second.elements() != 1)
    return make_error(Code::kFailedPrecondition, "{}: no checkpoint of train_images; --fresh starts anew", loaded.path);
  Point point{{}, found->second.data<int64_t>()[0], loaded.path};
  loaded.tensors.erase(found);
  point.variables.variables = std::move(loaded.tensors);
  return point;
}

Result<int64_t> Records::save(Snapshot snapshot, int64_t images, int64_t step, int64_t per_update) {
  const auto counter = snapshot.variables.find("global_step");
  if (counter == snapshot.variables.end() || counter->second.dtype() != DType::kInt64)
    return make_error(Code::kFailedPrecondition, "nothing to save: there is no global step");
  const int64_t now = counter->second.data<int64_t>()[0];
  snapshot.variables[kImages] = Tensor::scalar<int64_t>(images + (now - step) * per_update);
  auto saved = checkpoints_.save(snapshot.variables, now);
  TROUPE_RETURN_IF_ERROR(saved);
  TROUPE_RETURN_IF_ERROR(events_->flush());
  return now;
}

Status Records::scalar(const std::string& name, double value, int64_t step) {
  return events_->scalar(name, step, static_cast<float>(value));
}

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
