// SPDX-License-Identifier: Apache-2.0
// StringNGrams: neighbours in the rows of a ragged tensor of strings, joined.
#include <algorithm>

#include "ops/parts/type_dispatch.h"
#include "ops/text/register.h"
#include "ops/text/splits.h"
#include "ops/text/string_map.h"

namespace troupe {
namespace {

constexpr int64_t kMostNGramBytes = int64_t{1} << 31;

class StringNGrams final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    for (const int64_t width : init.attr<std::vector<int64_t>>("ngram_widths"))
      if (width < 1 || width > INT32_MAX)
        return invalid_argument("ngram_widths must be in [1, {}], got {}", INT32_MAX, width);
    return std::unique_ptr<ComputeKernel>(new StringNGrams(init));
  }

  Status compute(KernelContext& c) override {
    const Tensor& data = c.input(0);
    if (data.rank() != 1) return invalid_argument("data must be a vector, but has shape {}", data.shape().str());
    TROUPE_ASSIGN(const std::vector<int64_t> splits, splits_from(c.input(1), data.elements(), "data_splits"));
    std::vector<std::string> out;
    std::vector<int64_t> out_splits(splits.size(), 0);
    int64_t bytes = 0;
    // Of no strings at all there are no n-grams, also none of pads, as TensorFlow has it.
    for (size_t row = 0; data.elements() > 0 && row + 1 < splits.size(); ++row) {
      const auto words = data.values<std::string>().subspan(static_cast<size_t>(splits[row]),
                                                            static_cast<size_t>(splits[row + 1] - splits[row]));
      const size_t before = out.size();
      for (const int64_t width : widths_) TROUPE_RETURN_IF_ERROR(add_all(words, width, bytes, out));
      if (preserve_short_ && !words.empty() && out.size() == before) {
        if (pad_width_ < 0)
          return invalid_argument(
              "pad_width must be at least 0 where short sequences are preserved without "
              "ngram_widths, got {}",
              pad_width_);
        TROUPE_RETURN_IF_ERROR(add(words, std::ssize(words) + 2 * pad_width_, pad_width_, bytes, out));
      }
      out_splits[row + 1] = std::ssize(out);
    }
    TROUPE_ASSIGN(Tensor ngrams, c.allocate(DType::kString, Shape{std::ssize(out)}));
    std::ranges::move(out, ngrams.mutable_data<std::string>());
    TROUPE_ASSIGN(Tensor ngram_splits, int_tensor(c.input(1).dtype(), out_splits, c.input(1).shape()));
    c.set_output(0, std::move(ngrams));
    c.set_output(1, std::move(ngram_splits));
    return {};
  }

 private:
  using Words = std::span<const std::string>;

  explicit StringNGrams(const KernelInit& init)
      : separator_(init.attr<std::string>("separator")), left_(init.attr<std::string>("left_pad")),
        right_(init.attr<std::string>("right_pad")), widths_(init.attr<std::vector<int64_t>>("ngram_widths")),
        pad_width_(std::min<int64_t>(init.attr<int64_t>("pad_width"), INT32_MAX)),
        preserve_short_(init.attr<bool>("preserve_short_sequences")) {}

  /// Those of one width: each place where it fits into the words with their pads.
  Status add_all(Words words, int64_t width, int64_t& bytes, std::vector<std::string>& out) const {
    const int64_t pad = pad_width_ < 0 ? width - 1 : std::min(pad_width_, width - 1);
    const int64_t count = std::ssize(words) + 2 * pad - width + 1;
    for (int64_t i = 0; i < count; ++i) TROUPE_RETURN_IF_ERROR(add(words, width, pad - i, bytes, out));
    return {};
  }

  /// The n-gram that begins `ahead` places before the words. Error: with it there are too many `bytes`.
  Status add(Words words, int64_t width, int64_t ahead, int64_t& bytes, std::vector<std::string>& out) const {
    const int64_t n = std::ssize(words), left = std::clamp<int64_t>(ahead, 0, width);
    const int64_t first = std::max<int64_t>(-ahead, 0), last = std::clamp<int64_t>(width - ahead, 0, n);
    const int64_t count = std::max<int64_t>(last - first, 0), right = width - left - count;
    const auto size = [](const std::string& s) { return static_cast<int64_t>(s.size()); };
    bytes += left * size(left_) + right * size(right_) + (width - 1) * size(separator_) + width;
    for (int64_t i = first; i < first + count; ++i) bytes += size(words[static_cast<size_t>(i)]);
    if (bytes > kMostNGramBytes)
      return make_error(Code::kResourceExhausted, "the n-grams take more than {} bytes", kMostNGramBytes);
    std::string& ngram = out.emplace_back();
    const auto append = [&](const std::string& word) { (ngram += word) += separator_; };
    for (int64_t i = 0; i < left; ++i) append(left_);
    for (int64_t i = first; i < first + count; ++i) append(words[static_cast<size_t>(i)]);
    for (int64_t i = 0; i < right; ++i) append(right_);
    ngram.resize(ngram.size() - separator_.size());
    return {};
  }

  const std::string separator_, left_, right_;
  const std::vector<int64_t> widths_;
  const int64_t pad_width_;  // -1: one less than the n-gram's
  const bool preserve_short_;
};

Status ngrams_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 1));
  TROUPE_ASSIGN(const PartialShape splits, c.with_rank(1, 1));
  c.set_output(0, {-1});
  c.set_output(1, splits);
  return {};
}

}  // namespace

void register_ngram_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("StringNGrams")
              .input("data: string")
              .input("data_splits: Tsplits")
              .output("ngrams: string")
              .output("ngrams_splits: Tsplits")
              .attr("separator: string")
              .attr("ngram_widths: list(int) >= 0")
              .attr("left_pad: string")
              .attr("right_pad: string")
              .attr("pad_width: int")
              .attr("preserve_short_sequences: bool")
              .attr(type_attr("Tsplits", IndexTypes{}, "int64"))
              .shape(ngrams_shape)
              .doc("The n-grams of each row of a ragged tensor: so many neighbours as `ngram_widths` say, `separator` "
                   "between them. A row has `pad_width` pads at each end, less than the width of the n-gram (-1: as "
                   "many as may be). A row without n-grams gives one of all its strings and pads with "
                   "`preserve_short_sequences`. Fails for more than 2 GiB."),
          not_differentiable(kNoGradientOfStrings));
  kernels.add("StringNGrams", DeviceKind::kCpu, {}, StringNGrams::make);
}

}  // namespace troupe
