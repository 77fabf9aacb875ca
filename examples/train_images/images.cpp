// SPDX-License-Identifier: Apache-2.0
// Reading, shuffling and augmenting images.
#include "images.h"

#include <random>

using namespace troupe;

namespace {

// [n, height, width] with a channel, and labels as int32.
Status prepare(Tensor& images, Tensor& labels, int64_t limit) {
  if (limit > 0 && limit < images.dim(0)) {
    TROUPE_ASSIGN(images, images.slice(0, limit));
    TROUPE_ASSIGN(labels, labels.slice(0, limit));
  }
  TROUPE_ASSIGN(images, images.reshape({images.dim(0), images.dim(1), images.dim(2), 1}));
  const auto bytes = labels.values<uint8_t>();
  const std::vector<int32_t> wide(bytes.begin(), bytes.end());
  labels = Tensor::of<int32_t>(wide);
  return {};
}

// The image moved by up to 2 pixels, blank at the edge, and mirrored half the time, by one number of `random`.
Result<Element> augment(Element element, std::mt19937_64& random) {
  const Tensor& image = element[0];
  const int64_t height = image.dim(0), width = image.dim(1);
  const auto draw = random();
  const int64_t down = static_cast<int64_t>(draw % 5) - 2, right = static_cast<int64_t>(draw / 5 % 5) - 2;
  const bool mirrored = draw >> 63;
  TROUPE_ASSIGN(Tensor out, Tensor::zeros(DType::kUInt8, image.shape()));
  const uint8_t* from = image.data<uint8_t>();
  uint8_t* to = out.mutable_data<uint8_t>();
  for (int64_t y = std::max<int64_t>(0, down); y < std::min(height, height + down); ++y)
    for (int64_t x = std::max<int64_t>(0, right); x < std::min(width, width + right); ++x) {
      const int64_t source = mirrored ? width - 1 - (x - right) : x - right;
      to[y * width + x] = from[(y - down) * width + source];
    }
  element[0] = std::move(out);
  return element;
}

// One epoch after the other, each a dataset of its own.
class Epochs final : public Dataset::Stage {
 public:
  using Make = std::function<Dataset(int64_t epoch)>;
  Epochs(Make make, int64_t first) : make_(std::move(make)), first_(first), sample_(make_(first)) {}

  Result<std::unique_ptr<DatasetIterator>> iterate() const override {
    return std::unique_ptr<DatasetIterator>(new Iterator(make_, first_));
  }
  std::vector<DType> dtypes() const override { return sample_.dtypes(); }
  std::vector<PartialShape> shapes() const override { return sample_.shapes(); }
  int64_t size() const override { return -2; }

 private:
  class Iterator final : public DatasetIterator {
   public:
    Iterator(Make make, int64_t epoch) : make_(std::move(make)), epoch_(epoch) {}
    Result<std::optional<Element>> next() override {
      while (true) {
        if (!now_) {
          TROUPE_ASSIGN(now_, make_(epoch_++).iterate());
        }
        auto element = now_->next();
        if (!element.ok() || *element) return element;
        now_.reset();
      }
    }

   private:
    Make make_;
    int64_t epoch_;
    std::unique_ptr<DatasetIterator> now_;
  };

  Make make_;
  int64_t first_;
  Dataset sample_;
};

}  // namespace

Result<Images> load_images(const Options& options) {
  TROUPE_ASSIGN(ImageData data, read_mnist(options.data));
  Images images{data.train_images, data.train_labels, data.test_images, data.test_labels};
  TROUPE_RETURN_IF_ERROR(prepare(images.train_images, images.train_labels, options.limit));
  TROUPE_RETURN_IF_ERROR(prepare(images.test_images, images.test_labels, 0));
  if (images.train_images.dim(0) < options.batch)
    return invalid_argument("{}: {} training images are less than one batch of {}", options.data,
                            images.train_images.dim(0), options.batch);
  return images;
}

Result<Dataset> training_batches(const Images& images, const Options& options, int64_t first) {
  TROUPE_ASSIGN(Dataset all, Dataset::from_tensors({images.train_images, images.train_labels}));
  const int64_t n = images.train_images.dim(0), per_epoch = n / options.batch;
  const int64_t first_epoch = first / per_epoch;
  const auto make = [=](int64_t epoch) {
    const auto seed = static_cast<uint64_t>(options.seed * 1000003 + epoch);
    const int64_t seen = epoch == first_epoch ? first % per_epoch * options.batch : 0;
    Dataset d = all.shuffle(n, seed).skip(seen);
    if (options.augment) {
      const auto random = std::make_shared<std::mt19937_64>(seed);
      random->discard(static_cast<uint64_t>(seen));
      d = d.map([random](Element e) { return augment(std::move(e), *random); });
    }
    return d.batch(options.batch, true);
  };
  return Dataset(std::make_shared<Epochs>(make, first_epoch)).prefetch(4);
}

Result<Dataset> test_batches(const Images& images) {
  TROUPE_ASSIGN(Dataset all, Dataset::from_tensors({images.test_images, images.test_labels}));
  return all.batch(500);
}
