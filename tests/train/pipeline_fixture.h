// SPDX-License-Identifier: Apache-2.0
// A small model in stages, what training it without a pipeline gives, and pipelines of it.
#pragma once
#include <map>
#include <random>

#include "tests/nn/fixture.h"
#include "troupe/pipeline.h"

namespace troupe::nn {

inline const auto kSchedules = {PipelineSchedule::kGPipe, PipelineSchedule::kOneFOneB, PipelineSchedule::kInterleaved,
                                PipelineSchedule::kZeroBubble};
constexpr int kMicroBatches = 6;

inline Dataset points(int64_t batches, int64_t rows = 24, int64_t features = 8) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(batches * rows * features));
  std::vector<int32_t> labels;
  for (float& value : x) value = normal(random);
  for (int64_t i = 0; i < batches * rows; ++i) labels.push_back(x[static_cast<size_t>(i * features)] > 0);
  auto made = Dataset::from_tensors({Tensor::of<float>(x, {batches * rows, features}), Tensor::of<int32_t>(labels)});
  REQUIRE(made.ok());
  return made->batch(rows, true);
}

inline StageFn hidden(int i, bool drop, bool norm) {
  return [=](const Scope& s, Variables& v, const std::vector<Output>& in, const std::vector<Output>&, bool training) {
    Output x = dense(s, v, in[0], 12, fmt::format("hidden_{}", i));
    if (norm) x = batch_norm(s, v, x, fmt::format("norm_{}", i), training);
    return std::vector<Output>{dropout(s, v, tanh(s, x), drop ? .3f : 0, training)};
  };
}
inline std::vector<Output> last(const Scope& s, Variables& v, const std::vector<Output>& in,
                                const std::vector<Output>& batch, bool) {
  const Output logits = dense(s, v, in[0], 2, "logits");
  return {sparse_softmax_cross_entropy(s, logits, batch[1]), accuracy(s, logits, batch[1])};
}
inline std::vector<StageFn> stages_of(int count, bool drop = true, bool norm = false) {
  std::vector<StageFn> out;
  for (int i = 0; i + 1 < count; ++i) out.push_back(hidden(i, drop, norm));
  out.push_back(last);
  return out;
}

struct Trained {
  std::map<std::string, Tensor> variables;
  std::vector<float> losses;
};

/// Micro-batches one after the other on one device, their gradients added up in order here.
inline Trained reference(const ModelFn& model, const Optimizer& optimizer, int batches, int m) {
  Fixture f;
  // One product in place of a sum of products rounds otherwise, and there is no such product across devices.
  f.session = std::make_unique<Session>(*f.engine, f.graph, SessionOptions{.passes = {.sum_products = false}});
  const Output x = f.s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{24 / m, 8}}});
  const Output labels = f.s.op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape{24 / m}}});
  const Output loss = model(f.s, f.variables, {x, labels}, true).loss;
  const std::vector<const Node*> moving = f.variables.take_updates();
  const std::vector<Output> reads = f.variables.trainable_reads(f.s);
  auto gradients = troupe::gradients(f.s, {loss}, reads, {f.s.constant(1.f / static_cast<float>(m))});
  REQUIRE(gradients.ok());
  std::vector<Output> sums;
  for (const Output& read : reads)
    sums.push_back(f.s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", read.shape()}}));
  const Node* update = apply_gradients(f.s, f.variables, optimizer, sums);
  REQUIRE(f.s.ok());
  f.initialise();
  Trained out;
  auto data = points(batches).iterate();
  REQUIRE(data.ok());
  for (int b = 0; b < batches; ++b) {
    const Element batch = **(*data)->next();
    std::vector<std::vector<float>> total;
    float loss_sum = 0;
    for (int i = 0; i < m; ++i) {
      const int64_t rows = 24 / m;
      std::vector<Output> fetches = {loss};
      fetches.insert(fetches.end(), gradients->begin(), gradients->end());
      auto got = f.session->run({{x, batch[0].slice(i * rows, (i + 1) * rows).value()},
                                 {labels, batch[1].slice(i * rows, (i + 1) * rows).value()}},
                                fetches, moving, {.random_step = b * m + i});
      REQUIRE(got.ok());
      loss_sum += (*got)[0].data<float>()[0];
      for (size_t v = 0; v < reads.size(); ++v) {
        const auto values = (*got)[v + 1].values<float>();
        if (i == 0) total.emplace_back(values.begin(), values.end());
        else
          for (size_t j = 0; j < values.size(); ++j) total[v][j] += values[j];
      }
    }
    out.losses.push_back(loss_sum / static_cast<float>(m));
    std::vector<Feed> feeds;
    for (size_t v = 0; v < reads.size(); ++v)
      feeds.push_back({sums[v], Tensor::of<float>(total[v], reads[v].shape().shape())});
    REQUIRE(f.session->run(feeds, std::vector<Output>{}, {update}).ok());
  }
  out.variables = f.engine->snapshot().get()->variables;
  return out;
}

inline std::unique_ptr<Pipeline> pipeline_of(Engine& engine, std::vector<StageFn> stages, Dataset data,
                                             const PipelineOptions& options) {
  auto made = Pipeline::create(engine, std::move(stages), std::move(data), options);
  INFO((made.ok() ? std::string() : made.error().str()));
  REQUIRE(made.ok());
  REQUIRE((*made)->initialise().ok());
  return std::move(*made);
}

inline PipelineOptions options_of(PipelineSchedule schedule, int devices, const Optimizer& optimizer) {
  PipelineOptions o;
  o.schedule = schedule;
  o.optimizer = optimizer;
  o.micro_batches = kMicroBatches;
  o.recovery.snapshot_interval = std::chrono::seconds(30);
  for (int i = 0; i < devices; ++i) o.devices.push_back(fmt::format("/cpu:{}", i));
  return o;
}

inline Trained trained(Engine& engine, std::vector<StageFn> stages, const PipelineOptions& options, int batches) {
  auto pipeline = pipeline_of(engine, std::move(stages), points(batches), options);
  Trained out;
  auto summary = pipeline->run(batches, [&](const StepReport& r) {
    out.losses.push_back(r.loss);
    CHECK(r.examples == 24);
  });
  INFO((summary.ok() ? std::string() : summary.error().str()));
  REQUIRE(summary.ok());
  CHECK(summary->updates == batches);
  CHECK(pipeline->step() == batches);
  out.variables = engine.snapshot().get()->variables;
  return out;
}

inline void check_same(const Trained& a, const Trained& b) {
  CHECK(a.variables.size() == b.variables.size());
  for (const auto& [name, value] : a.variables) {
    INFO(name);
    REQUIRE(b.variables.contains(name));
    CHECK(value.identical(b.variables.at(name)));
  }
  REQUIRE(a.losses.size() == b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) CHECK(a.losses[i] == Approx(b.losses[i]).epsilon(1e-5));
}

}  // namespace troupe::nn
