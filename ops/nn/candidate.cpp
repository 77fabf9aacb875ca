// SPDX-License-Identifier: Apache-2.0
// Candidate sampling for sampled softmax and NCE: UniformCandidateSampler, LogUniform-, LearnedUnigram-,
// ThreadUnsafeUnigram-, FixedUnigram-, AllCandidateSampler, ComputeAccidentalHits. Source: Jean, Cho, Memisevic,
// Bengio, "On using very large target vocabulary for neural machine translation", 2015.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "ops/nn/class_weights.h"
#include "ops/nn/register.h"
#include "ops/parts/index_tensors.h"
#include "ops/random/draws.h"
#include "ops/random/streams.h"
#include "troupe/blocking_kernel.h"

namespace troupe {
namespace {

/// A distribution of classes [0, range). One thread at a time.
class Classes {
 public:
  virtual ~Classes() = default;
  virtual int64_t draw(Words& words) const = 0;
  virtual double probability(int64_t k) const = 0;
  virtual int64_t count() const = 0;  // of classes that may be drawn
  /// A call is over, these were the true classes.
  virtual void learn(std::span<const int64_t>) {}
};

class UniformClasses final : public Classes {
 public:
  explicit UniformClasses(int64_t range) : range_(range) {}
  int64_t draw(Words& words) const override { return static_cast<int64_t>(words.below(static_cast<uint64_t>(range_))); }
  double probability(int64_t) const override { return 1 / static_cast<double>(range_); }
  int64_t count() const override { return range_; }

 private:
  const int64_t range_;
};

/// Zipf's law: P(k) = log((k + 2) / (k + 1)) / log(range + 1).
class LogUniformClasses final : public Classes {
 public:
  explicit LogUniformClasses(int64_t range) : range_(range), log_range_(std::log1p(static_cast<double>(range))) {}
  int64_t draw(Words& words) const override {
    return std::min(static_cast<int64_t>(std::min(std::exp(words.uniform() * log_range_), 9e18)) - 1, range_ - 1);
  }
  double probability(int64_t k) const override { return std::log1p(1 / static_cast<double>(k + 1)) / log_range_; }
  int64_t count() const override { return range_; }

 private:
  const int64_t range_;
  const double log_range_;
};

/// In proportion to how often each class was a true one, beginning with 1.
class LearnedClasses final : public Classes {
 public:
  explicit LearnedClasses(int64_t range) : weights_(std::vector<double>(static_cast<size_t>(range), 1.0)) {}
  int64_t draw(Words& words) const override {
    return weights_.find(words.below(static_cast<uint32_t>(std::min(weights_.total(), kMostTotal))));
  }
  double probability(int64_t k) const override { return weights_.at(k) / weights_.total(); }
  int64_t count() const override { return weights_.positive(); }
  void learn(std::span<const int64_t> classes) override {
    for (int64_t k : classes)
      if (weights_.total() < kMostTotal) weights_.add(k, 1);
  }

 private:
  static constexpr double kMostTotal = std::numeric_limits<int32_t>::max();
  ClassWeights weights_;
};

/// In proportion to fixed weights.
class WeightedClasses final : public Classes {
 public:
  explicit WeightedClasses(const std::vector<double>& weights) : weights_(weights), table_(weights) {}
  int64_t draw(Words& words) const override { return table_.draw(words); }
  double probability(int64_t k) const override { return weights_.at(k) / weights_.total(); }
  int64_t count() const override { return weights_.positive(); }

 private:
  const ClassWeights weights_;
  const AliasTable table_;
};

/// Classes that have a weight each in memory.
constexpr int64_t kMostWeights = int64_t{1} << 28;
/// Draws until as many different classes were found as are asked for.
constexpr int64_t kMostTries = 100'000'000;

Result<std::unique_ptr<Classes>> make_classes(const KernelInit& init) {
  const auto range = init.attr<int64_t>("range_max");
  if (init.op == "UniformCandidateSampler") return std::unique_ptr<Classes>(new UniformClasses(range));
  if (init.op == "LogUniformCandidateSampler") return std::unique_ptr<Classes>(new LogUniformClasses(range));
  if (range > kMostWeights)
    return invalid_argument("range_max {}: no more than {} classes are counted", range, kMostWeights);
  if (init.op != "FixedUnigramCandidateSampler") return std::unique_ptr<Classes>(new LearnedClasses(range));
  TROUPE_ASSIGN(const std::vector<double> weights, fixed_unigrams(init));
  return std::unique_ptr<Classes>(new WeightedClasses(weights));
}

class CandidateSampler final : public ComputeKernel {
 public:
  CandidateSampler(const KernelInit& init, std::unique_ptr<Classes> classes)
      : streams_(init), classes_(std::move(classes)), num_true_(init.attr<int64_t>("num_true")),
        n_(init.attr<int64_t>("num_sampled")), range_(init.attr<int64_t>("range_max")),
        unique_(init.attr<bool>("unique")) {}

  Status compute(KernelContext& c) override {
    const Tensor& truth = c.input(0);
    if (truth.rank() != 2 || truth.shape()[1] != num_true_)
      return invalid_argument("true_classes of shape {} must have {} columns", truth.shape().str(), num_true_);
    TROUPE_RETURN_IF_ERROR(check_indices(truth.values<int64_t>(), range_));
    TROUPE_ASSIGN(Tensor drawn, c.allocate(DType::kInt64, Shape{n_}));
    TROUPE_ASSIGN(Tensor true_counts, c.allocate(DType::kFloat32, truth.shape()));
    TROUPE_ASSIGN(Tensor counts, c.allocate(DType::kFloat32, Shape{n_}));
    const std::lock_guard lock(mutex_);
    if (unique_ && n_ > classes_->count())
      return invalid_argument("{} different samples of {} classes", n_, classes_->count());
    Words words(streams_.next(c, n_ * 2 * kBlocksOfElement));
    std::unordered_set<int64_t> taken;
    int64_t tries = 0;
    for (int64_t i = 0; i < n_;) {
      if (unique_ && tries - n_ == kMostTries)
        return invalid_argument("{} of {} different samples came in {} tries: the rest hardly ever does", i, n_, tries);
      const int64_t k = classes_->draw(words);
      ++tries;
      if (!unique_ || taken.insert(k).second) drawn.mutable_data<int64_t>()[i++] = k;
    }
    // How often a class is among the samples: of n, or, where some were drawn again, at least once in as many tries.
    const auto expected = [&](int64_t k) {
      const double p = classes_->probability(k);
      if (tries == n_) return static_cast<float>(p * static_cast<double>(n_));
      return static_cast<float>(-std::expm1(static_cast<double>(tries) * std::log1p(-p)));
    };
    for (int64_t i = 0; i < n_; ++i) counts.mutable_data<float>()[i] = expected(drawn.data<int64_t>()[i]);
    for (int64_t i = 0; i < truth.elements(); ++i)
      true_counts.mutable_data<float>()[i] = expected(truth.data<int64_t>()[i]);
    classes_->learn(truth.values<int64_t>());
    c.set_output(0, std::move(drawn));
    c.set_output(1, std::move(true_counts));
    c.set_output(2, std::move(counts));
    return {};
  }

 private:
  Streams streams_;
  std::mutex mutex_;
  const std::unique_ptr<Classes> classes_;  // guarded by mutex_
  const int64_t num_true_, n_, range_;
  const bool unique_;
};

/// The sampler of a file, which the first call reads where that may wait; a fault is found again by the next.
class FileSampler final : public BlockingKernel {
 public:
  explicit FileSampler(const KernelInit& init)
      : op_(init.op), node_(init.node), attrs_(*init.attrs), folders_(init.data_folders) {}

  Result<std::vector<Tensor>> run(const BlockingRequest& request) override {
    TROUPE_ASSIGN(CandidateSampler* const sampler, read_once());
    std::array<Tensor, 4> values = {request.inputs[0]};
    const std::array<int32_t, 4> uses = {1, 1, 1, 1};
    const uint32_t input = 0;
    DeviceInfo device;
    device.allocator = request.allocator;
    KernelContext context(values.data(), uses.data(), &input, 1, 1, 3, device, request.step, request.random_step);
    TROUPE_RETURN_IF_ERROR(sampler->compute(context));
    return std::vector<Tensor>(values.begin() + 1, values.end());
  }

 private:
  Result<CandidateSampler*> read_once() {
    const std::lock_guard lock(mutex_);
    if (!sampler_) {
      KernelInit init;
      init.op = op_;
      init.node = node_;
      init.attrs = &attrs_;
      init.data_folders = folders_;
      TROUPE_ASSIGN(std::unique_ptr<Classes> classes, make_classes(init));
      sampler_ = std::make_unique<CandidateSampler>(init, std::move(classes));
    }
    return sampler_.get();
  }

  const std::string op_, node_;
  const Attrs attrs_;
  const std::shared_ptr<const DataFolders> folders_;
  std::mutex mutex_;
  std::unique_ptr<CandidateSampler> sampler_;  // made under mutex_; stays
};

/// All classes in their order, each expected once.
class AllCandidates final : public ComputeKernel {
 public:
  explicit AllCandidates(const KernelInit& init)
      : num_true_(init.attr<int64_t>("num_true")), n_(init.attr<int64_t>("num_sampled")) {}
  Status compute(KernelContext& c) override {
    const Tensor& truth = c.input(0);
    if (truth.rank() != 2 || truth.shape()[1] != num_true_)
      return invalid_argument("true_classes of shape {} must have {} columns", truth.shape().str(), num_true_);
    TROUPE_ASSIGN(Tensor drawn, c.allocate(DType::kInt64, Shape{n_}));
    TROUPE_ASSIGN(Tensor true_counts, c.allocate(DType::kFloat32, truth.shape()));
    TROUPE_ASSIGN(Tensor counts, c.allocate(DType::kFloat32, Shape{n_}));
    for (int64_t i = 0; i < n_; ++i) drawn.mutable_data<int64_t>()[i] = i;
    std::fill_n(true_counts.mutable_data<float>(), truth.elements(), 1.f);
    std::fill_n(counts.mutable_data<float>(), n_, 1.f);
    c.set_output(0, std::move(drawn));
    c.set_output(1, std::move(true_counts));
    c.set_output(2, std::move(counts));
    return {};
  }

 private:
  const int64_t num_true_, n_;
};

class AccidentalHits final : public ComputeKernel {
 public:
  explicit AccidentalHits(const KernelInit& init) : num_true_(init.attr<int64_t>("num_true")) {}
  Status compute(KernelContext& c) override {
    const Tensor &truth = c.input(0), &drawn = c.input(1);
    if (truth.rank() != 2 || truth.shape()[1] != num_true_ || drawn.rank() != 1)
      return invalid_argument(
          "true_classes of shape {} must have {} columns, sampled_candidates of shape {} be a vector",
          truth.shape().str(), num_true_, drawn.shape().str());
    std::unordered_map<int64_t, int64_t> places;  // the last one, as in TensorFlow
    for (int64_t i = 0; i < drawn.elements(); ++i) places[drawn.data<int64_t>()[i]] = i;
    std::vector<int32_t> rows;
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < truth.elements(); ++i) {
      const auto found = places.find(truth.data<int64_t>()[i]);
      if (found == places.end()) continue;
      rows.push_back(static_cast<int32_t>(i / num_true_));
      ids.push_back(found->second);
    }
    const std::vector<float> weights(ids.size(), std::numeric_limits<float>::lowest());
    c.set_output(0, Tensor::of<int32_t>(std::span<const int32_t>(rows)));
    c.set_output(1, Tensor::of<int64_t>(std::span<const int64_t>(ids)));
    c.set_output(2, Tensor::of<float>(std::span<const float>(weights)));
    return {};
  }

 private:
  const int64_t num_true_;
};

Status sampler_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape truth, c.with_rank(0, 2));
  TROUPE_ASSIGN(const PartialShape out, PartialShape::merge(truth, PartialShape{-1, c.attr<int64_t>("num_true")}));
  const auto n = c.attr<int64_t>("num_sampled");
  TROUPE_ASSIGN(const PartialShape samples, PartialShape::make({&n, 1}));
  c.set_output(0, samples);
  c.set_output(1, out);
  c.set_output(2, samples);
  return {};
}

/// Whether a sampler's distribution is read from a file.
bool has_file(const Attrs& attrs) {
  const auto* file = attrs.get<std::string>("vocab_file");
  return file && !file->empty();
}

void add_sampler(OpRegistry& ops, KernelRegistry& kernels, const char* name, const char* which) {
  const std::string_view given = name;
  const bool all = given == "AllCandidateSampler", fixed = given == "FixedUnigramCandidateSampler";
  OpDef op(name);
  op.input("true_classes: int64")
      .output("sampled_candidates: int64")
      .output("true_expected_count: float32")
      .output("sampled_expected_count: float32")
      .attr("num_true: int >= 1")
      .attr("num_sampled: int >= 1")
      .attr("unique: bool");
  if (!all) op.attr("range_max: int >= 1");
  if (fixed)
    op.attr("vocab_file: string = ''")
        .attr("distortion: float = 1.0")
        .attr("num_reserved_ids: int = 0")
        .attr("num_shards: int >= 1 = 1")
        .attr("shard: int >= 0 = 0")
        .attr("unigrams: list(float) = []");
  op.attr("seed: int = 0").attr("seed2: int = 0").stateful().shape(sampler_shape);
  op.doc(std::string("num_sampled classes, ") + which +
         ", all different if unique; and how often the true and the sampled ones are to be expected among them.");
  ops.add(std::move(op), not_differentiable("it is random"));
  if (all) {
    kernels.add<AllCandidates>(name, DeviceKind::kCpu, {});
    return;
  }
  const auto kind = [](const Attrs& attrs) { return has_file(attrs) ? KernelKind::kBlocking : KernelKind::kCompute; };
  const auto make = [](const KernelInit& init) -> Result<std::unique_ptr<Kernel>> {
    if (has_file(*init.attrs)) return std::unique_ptr<Kernel>(new FileSampler(init));
    TROUPE_ASSIGN(std::unique_ptr<Classes> classes, make_classes(init));
    return std::unique_ptr<Kernel>(new CandidateSampler(init, std::move(classes)));
  };
  kernels.add(name, DeviceKind::kCpu, {}, {kind, make});
}

}  // namespace

void register_candidate_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_sampler(ops, kernels, "UniformCandidateSampler", "each of range_max as likely");
  add_sampler(ops, kernels, "LogUniformCandidateSampler", "by Zipf's law, so that the first of range_max come most");
  for (const char* name : {"LearnedUnigramCandidateSampler", "ThreadUnsafeUnigramCandidateSampler"})
    add_sampler(ops, kernels, name, "in proportion to how often each of range_max was among true_classes so far");
  add_sampler(ops, kernels, "FixedUnigramCandidateSampler",
              "in proportion to the unigrams, or the last fields of the lines of vocab_file, to the power distortion");
  add_sampler(ops, kernels, "AllCandidateSampler", "which are 0, 1, 2 and so on");
  ops.add(OpDef("ComputeAccidentalHits")
              .input("true_classes: int64")
              .input("sampled_candidates: int64")
              .output("indices: int32")
              .output("ids: int64")
              .output("weights: float32")
              .attr("num_true: int >= 1")
              .attr("seed: int = 0")
              .attr("seed2: int = 0")
              .shape([](ShapeContext& c) -> Status {
                TROUPE_RETURN_IF_ERROR(c.with_rank(0, 2).status());
                TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
                for (int i = 0; i < 3; ++i) c.set_output(i, PartialShape{-1});
                return {};
              })
              .doc("Where samples are true classes: the row of true_classes, the last place among sampled_candidates, "
                   "and the lowest number, which added to a logit makes it vanish."),
          not_differentiable("it gives places"));
  kernels.add<AccidentalHits>("ComputeAccidentalHits", DeviceKind::kCpu, {});
}

}  // namespace troupe
