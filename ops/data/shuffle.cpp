// SPDX-License-Identifier: Apache-2.0
// Datasets in a random order, random numbers as a dataset, and what such keep from pass to pass: generators of seeds
// and caches, which are objects of their handles.
#include <mutex>
#include <random>

#include "ops/data/dataset_op.h"
#include "ops/data/register.h"
#include "ops/random/philox.h"
#include "troupe/tensor_list.h"

namespace troupe {
namespace {

/// The words of a Philox generator, one by one.
class SeedWords {
 public:
  SeedWords(int64_t seed, int64_t seed2) : philox_(static_cast<uint64_t>(seed), static_cast<uint64_t>(seed2)) {}
  uint32_t next() {
    const uint64_t at = at_++;
    if (at % 4 == 0) block_ = philox_(at / 4);
    return block_[at % 4];
  }

 private:
  Philox philox_;
  Philox::Block block_{};
  uint64_t at_ = 0;
};

/// Seeds for each pass: others each time, which follow from its own, or the same ones. Thread-safe.
class Seeds {
 public:
  /// Two seeds of 0 stand for any.
  Seeds(int64_t seed, int64_t seed2, bool others) : others_(others) {
    if (seed == 0 && seed2 == 0) {
      std::random_device device;
      const auto word = [&] { return static_cast<int64_t>(uint64_t{device()} << 32 | device()); };
      seed = word();
      seed2 = word();
    }
    seed_ = seed;
    seed2_ = seed2;
    words_ = SeedWords(seed, seed2);
  }
  DrawFn draw() {
    const std::lock_guard lock(mutex_);
    auto words = std::make_shared<SeedWords>(seed_, seed2_);
    if (others_) {
      const auto first = static_cast<int64_t>(words_.next());
      words = std::make_shared<SeedWords>(first, static_cast<int64_t>(words_.next()));
    }
    return [words] { return words->next(); };
  }

 private:
  const bool others_;
  int64_t seed_ = 0, seed2_ = 0;
  std::mutex mutex_;
  SeedWords words_{0, 0};
};

struct SeedsHandle final : ResourceHandle {
  std::shared_ptr<Seeds> seeds;
};
struct CacheHandle final : ResourceHandle {
  std::shared_ptr<ElementCache> cache;
};
constexpr const char* kSeedsType = "dataset seed generator";
constexpr const char* kCacheType = "dataset cache";

/// The object of a handle; none of one that stands for none. Error: it is a handle of something else.
template <class Handle> Result<const Handle*> handle_in(const Tensor& t, const char* type) {
  if (t.dtype() == DType::kResource && t.elements() == 1)
    if (const ResourceRef& ref = *t.data<ResourceRef>(); ref && ref->type == type)
      return static_cast<const Handle*>(ref.get());
  return invalid_argument("{} is not a handle of a {}", t.str(), type);
}

MakeDrawFn draws_of(std::shared_ptr<Seeds> seeds) {
  return [seeds = std::move(seeds)] { return seeds->draw(); };
}

/// A handle of a new object each time, with something that would delete it in TensorFlow.
class AnonymousKernel final : public ComputeKernel {
 public:
  using Make = std::function<Result<ResourceRef>(const KernelContext&)>;
  explicit AnonymousKernel(Make make) : make_(std::move(make)) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(ResourceRef made, make_(c));
    c.set_output(0, Tensor::scalar<ResourceRef>(std::move(made)));
    if (c.num_outputs() > 1) c.set_output(1, list_tensor({}));
    return {};
  }

 private:
  const Make make_;
};

Result<int64_t> seed_input(const KernelContext& c, int i) {
  const Tensor& t = c.input(i);
  if (t.elements() != 1) return invalid_argument("input {} must be a scalar, not {}", i, t.str());
  return t.data<int64_t>()[0];
}

Result<ResourceRef> new_seeds(const KernelContext& c, bool others) {
  TROUPE_ASSIGN(const int64_t seed, seed_input(c, 0));
  TROUPE_ASSIGN(const int64_t seed2, seed_input(c, 1));
  auto handle = std::make_shared<SeedsHandle>();
  handle->type = kSeedsType;
  handle->seeds = std::make_shared<Seeds>(seed, seed2, others);
  return ResourceRef(std::move(handle));
}

class DeleteKernel final : public ComputeKernel {
 public:
  Status compute(KernelContext&) override { return {}; }  // what handles own goes with the last of them
};

/// Where the inputs of a shuffling op are; -1: it has none.
struct ShuffleForm {
  int seeds = 2;  // two of them
  int generator = -1;
  int count = -1;
  bool attr = true;  // reshuffle_each_iteration
  bool always_others = false;
};

PlanDataset shuffle(const ShuffleForm& form) {
  return [form](const KernelInit& init) -> Result<MakeDataset> {
    const bool others = form.always_others || (form.attr && init.attr<bool>("reshuffle_each_iteration"));
    return MakeDataset([form, others](const DatasetInputs& in) -> Result<GraphDataset> {
      TROUPE_ASSIGN(const StagePtr from, in.stage());
      constexpr int64_t kAll = -2;  // a buffer for the whole dataset
      TROUPE_ASSIGN(int64_t buffer, in.integer(1, "buffer_size"));
      if (buffer == kAll) buffer = INT64_MAX;
      if (buffer < 1) return invalid_argument("buffer_size must be at least 1, or -2 for all, got {}", buffer);
      int64_t count = 1;
      if (form.count >= 0) {
        TROUPE_ASSIGN(count, in.integer(form.count, "count"));
        if (count == 0 || count < -1) return invalid_argument("count must be at least 1, or -1, got {}", count);
      }
      std::shared_ptr<Seeds> seeds;
      if (form.generator >= 0) {
        TROUPE_ASSIGN(const SeedsHandle* handle, handle_in<SeedsHandle>(in.tensor(form.generator), kSeedsType));
        seeds = handle->seeds;
      }
      if (!seeds) {
        int64_t seed = 0, seed2 = 0;
        if (form.seeds >= 0) {
          TROUPE_ASSIGN(seed, in.integer(form.seeds, "seed"));
          TROUPE_ASSIGN(seed2, in.integer(form.seeds + 1, "seed2"));
        }
        seeds = std::make_shared<Seeds>(seed, seed2, others);
      }
      return GraphDataset{make_draw_stage(from, buffer, count, draws_of(std::move(seeds)))};
    });
  };
}

OpDef shuffled(std::string_view name) {
  return OpDef(name).input("input_dataset: variant").input("buffer_size: int64");
}

PlanDataset cache(bool has_handle) {
  return [has_handle](const KernelInit& init) -> Result<MakeDataset> {
    return MakeDataset([has_handle, folders = init.data_folders](const DatasetInputs& in) -> Result<GraphDataset> {
      TROUPE_ASSIGN(const StagePtr from, in.stage());
      TROUPE_ASSIGN(std::string file, in.string(1, "filename"));
      if (!file.empty()) return GraphDataset{make_file_cache_stage(from, std::move(file), {.folders = folders})};
      std::shared_ptr<ElementCache> kept;
      if (has_handle) {
        TROUPE_ASSIGN(const CacheHandle* handle, handle_in<CacheHandle>(in.tensor(2), kCacheType));
        kept = handle->cache;
      }
      if (!kept) kept = std::make_shared<ElementCache>();
      return GraphDataset{make_cache_stage(from, std::move(kept))};
    });
  };
}

void register_handles(OpRegistry& ops, KernelRegistry& kernels) {
  const auto cpu = DeviceKind::kCpu;
  const Gradient none = not_differentiable("a handle is not a number");
  const auto add = [&](OpDef def, AnonymousKernel::Make make) {
    const std::string name = def.name();
    ops.add(def.shape(scalar_shape).cost(no_cost).stateful(), none);
    kernels.add(name, cpu, {}, [make = std::move(make)](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
      return std::unique_ptr<ComputeKernel>(new AnonymousKernel(make));
    });
  };
  const auto nothing = [](const char* type) {
    return [type](const KernelContext&) -> Result<ResourceRef> {
      std::shared_ptr<ResourceHandle> handle;
      if (type == kSeedsType) handle = std::make_shared<SeedsHandle>();
      else handle = std::make_shared<CacheHandle>();
      handle->type = type;
      return ResourceRef(std::move(handle));
    };
  };
  add(OpDef("DummySeedGenerator")
          .output("handle: resource")
          .doc("Stands for no generator of seeds: a dataset with it has one of its own."),
      nothing(kSeedsType));
  add(OpDef("DummyMemoryCache")
          .output("handle: resource")
          .doc("Stands for no cache: a dataset with it has one of its own."),
      nothing(kCacheType));
  add(OpDef("AnonymousSeedGenerator")
          .input("seed: int64")
          .input("seed2: int64")
          .input("reshuffle: bool")
          .output("handle: resource")
          .output("deleter: variant")
          .doc("A generator of seeds for the passes of datasets, which lives as long as its handle: others for each "
               "pass where reshuffle is true. Seeds of 0 stand for any."),
      [](const KernelContext& c) -> Result<ResourceRef> {
        if (c.input(2).elements() != 1) return invalid_argument("reshuffle must be a scalar, not {}", c.input(2).str());
        return new_seeds(c, c.input(2).data<bool>()[0]);
      });
  add(OpDef("AnonymousRandomSeedGenerator")
          .input("seed: int64")
          .input("seed2: int64")
          .output("handle: resource")
          .output("deleter: variant")
          .doc("A generator of other seeds for each pass of datasets, which lives as long as its handle. Seeds of 0 "
               "stand for any."),
      [](const KernelContext& c) { return new_seeds(c, true); });
  add(OpDef("AnonymousMemoryCache")
          .output("handle: resource")
          .output("deleter: variant")
          .doc("A cache for the elements of a dataset, which lives as long as its handle."),
      [](const KernelContext&) -> Result<ResourceRef> {
        auto handle = std::make_shared<CacheHandle>();
        handle->type = kCacheType;
        handle->cache = std::make_shared<ElementCache>();
        return ResourceRef(std::move(handle));
      });
  for (const char* name : {"DeleteSeedGenerator", "DeleteRandomSeedGenerator", "DeleteMemoryCache"}) {
    ops.add(OpDef(name)
                .input("handle: resource")
                .input("deleter: variant")
                .doc("Does nothing: what the handle names goes with the last reference to it.")
                .shape(no_outputs)
                .cost(no_cost)
                .stateful(),
            none);
    kernels.add<DeleteKernel>(name, cpu, {});
  }
}

}  // namespace

void register_data_shuffle_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_handles(ops, kernels);
  const std::string order = "The elements in another order: each is drawn from a buffer of buffer_size (-2: of all). ";
  const std::string seeds =
      "The order is that of TensorFlow with the same seeds; of 0 and 0 it is any. Each pass has another order where "
      "reshuffle_each_iteration, else the same.";
  add_dataset_op(ops, kernels,
                 shuffled("ShuffleDataset")
                     .input("seed: int64")
                     .input("seed2: int64")
                     .attr("reshuffle_each_iteration: bool = true")
                     .doc(order + seeds),
                 shuffle({}));
  add_dataset_op(ops, kernels,
                 shuffled("ShuffleDatasetV2")
                     .input("seed_generator: resource")
                     .stateful()
                     .doc(order + "The seeds of each pass are those of seed_generator."),
                 shuffle({.seeds = -1, .generator = 2, .attr = false, .always_others = true}));
  add_dataset_op(ops, kernels,
                 shuffled("ShuffleDatasetV3")
                     .input("seed: int64")
                     .input("seed2: int64")
                     .input("seed_generator: resource")
                     .attr("reshuffle_each_iteration: bool = true")
                     .stateful()
                     .doc(order + seeds + " A seed_generator that is none of its own takes the place of the seeds."),
                 shuffle({.generator = 4}));
  add_dataset_op(ops, kernels,
                 shuffled("ShuffleAndRepeatDataset")
                     .input("seed: int64")
                     .input("seed2: int64")
                     .input("count: int64")
                     .attr("reshuffle_each_iteration: bool = true")
                     .doc(order +
                          "count passes (-1: for ever), of which the next fills the buffer while the last "
                          "elements of one are drawn. " +
                          seeds),
                 shuffle({.count = 4}));
  add_dataset_op(ops, kernels,
                 shuffled("ShuffleAndRepeatDatasetV2")
                     .input("seed: int64")
                     .input("seed2: int64")
                     .input("count: int64")
                     .input("seed_generator: resource")
                     .attr("reshuffle_each_iteration: bool = true")
                     .stateful()
                     .doc(order +
                          "count passes (-1: for ever), of which the next fills the buffer while the last "
                          "elements of one are drawn. " +
                          seeds),
                 shuffle({.generator = 5, .count = 4}));
  const auto random = [](bool generator) -> PlanDataset {
    return [generator](const KernelInit& init) -> Result<MakeDataset> {
      const bool others = generator && init.attr<bool>("rerandomize_each_iteration");
      return MakeDataset([others, generator](const DatasetInputs& in) -> Result<GraphDataset> {
        std::shared_ptr<Seeds> kept;
        if (generator) {
          TROUPE_ASSIGN(const SeedsHandle* handle, handle_in<SeedsHandle>(in.tensor(2), kSeedsType));
          kept = handle->seeds;
        }
        TROUPE_ASSIGN(const int64_t seed, in.integer(0, "seed"));
        TROUPE_ASSIGN(const int64_t seed2, in.integer(1, "seed2"));
        if (!kept) kept = std::make_shared<Seeds>(seed, seed2, others);
        return GraphDataset{make_words_stage(draws_of(std::move(kept)))};
      });
    };
  };
  add_dataset_op(ops, kernels,
                 OpDef("RandomDataset")
                     .input("seed: int64")
                     .input("seed2: int64")
                     .stateful()
                     .doc("Random numbers of 32 bits as int64 scalars, without end; any where both seeds are 0."),
                 random(false));
  add_dataset_op(ops, kernels,
                 OpDef("RandomDatasetV2")
                     .input("seed: int64")
                     .input("seed2: int64")
                     .input("seed_generator: resource")
                     .attr("rerandomize_each_iteration: bool = false")
                     .stateful()
                     .doc("Random numbers of 32 bits as int64 scalars, without end; any where both seeds are 0. Each "
                          "pass has others where rerandomize_each_iteration, else the same."),
                 random(true));
  add_dataset_op(
      ops, kernels,
      OpDef("SamplingDataset")
          .input("input_dataset: variant")
          .input("rate: float32")
          .input("seed: int64")
          .input("seed2: int64")
          .doc("Some of the elements: each with the probability `rate`, those that TensorFlow takes with the "
               "same seeds, in each pass the same; any where both seeds are 0. Error: rate is not a scalar."),
      plan_dataset([](const DatasetInputs& in) -> Result<GraphDataset> {
        TROUPE_ASSIGN(const StagePtr from, in.stage());
        const Tensor& rate = in.tensor(1);
        if (rate.elements() != 1) return invalid_argument("rate must be a scalar, not {}", rate.str());
        TROUPE_ASSIGN(const int64_t seed, in.integer(2, "seed"));
        TROUPE_ASSIGN(const int64_t seed2, in.integer(3, "seed2"));
        auto seeds = std::make_shared<Seeds>(seed, seed2, false);
        return GraphDataset{make_sampling_stage(from, rate.data<float>()[0], draws_of(std::move(seeds)))};
      }),
      {.metadata = false});
  const char* cached =
      "The elements, kept by the first pass that comes to their end, from where later passes take them: in memory, or "
      "where `filename` is not empty in the files filename.index and filename.data-00000-of-00001, also for later "
      "programs. Errors: another pass is writing the files; they have other components; elements with variants, which "
      "have no place there.";
  add_dataset_op(ops, kernels,
                 OpDef("CacheDataset").input("input_dataset: variant").input("filename: string").doc(cached),
                 cache(false));
  add_dataset_op(ops, kernels,
                 OpDef("CacheDatasetV2")
                     .input("input_dataset: variant")
                     .input("filename: string")
                     .input("cache: resource")
                     .stateful()
                     .doc(cached),
                 cache(true));
}

}  // namespace troupe
