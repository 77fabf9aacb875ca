// SPDX-License-Identifier: Apache-2.0
#include "cli/step_feeds.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/join.h"
#include "base/printable.h"
#include "io/file_pattern.h"
#include "troupe/idx.h"
#include "troupe/npy.h"

namespace troupe {
namespace {

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

Error at_option(const char* option, const std::string& text, Error error) {
  error.message = fmt::format("{} {}: {}", option, printable(text), error.message);
  return error;
}

/// Rows of several datasets side by side.
class RowsTogether final : public Dataset::Stage {
 public:
  struct Part {
    Dataset rows;
    std::string name;
  };
  explicit RowsTogether(std::vector<Part> parts) : parts_(std::move(parts)) {}

  class Iterator final : public DatasetIterator {
   public:
    explicit Iterator(std::vector<std::pair<std::unique_ptr<DatasetIterator>, std::string>> parts)
        : parts_(std::move(parts)) {}
    Result<std::optional<Element>> next() override {
      Element out;
      std::string ended, more;
      for (auto& [iterator, name] : parts_) {
        TROUPE_ASSIGN(std::optional<Element> some, iterator->next());
        (some ? more : ended) = name;
        if (some)
          for (Tensor& t : *some) out.push_back(std::move(t));
      }
      if (ended.empty()) {
        ++rows_;
        return std::optional(std::move(out));
      }
      if (more.empty()) return std::optional<Element>();
      return invalid_argument("{} has {} rows, and {} has more", in_quotes(ended), rows_, in_quotes(more));
    }

   private:
    std::vector<std::pair<std::unique_ptr<DatasetIterator>, std::string>> parts_;
    int64_t rows_ = 0;
  };

  Result<std::unique_ptr<DatasetIterator>> iterate() const override {
    std::vector<std::pair<std::unique_ptr<DatasetIterator>, std::string>> out;
    for (const Part& part : parts_) {
      TROUPE_ASSIGN(auto iterator, part.rows.iterate());
      out.emplace_back(std::move(iterator), part.name);
    }
    return std::unique_ptr<DatasetIterator>(new Iterator(std::move(out)));
  }
  std::vector<DType> dtypes() const override {
    std::vector<DType> out;
    for (const Part& part : parts_)
      for (const DType dtype : part.rows.dtypes()) out.push_back(dtype);
    return out;
  }
  std::vector<PartialShape> shapes() const override { return std::vector<PartialShape>(dtypes().size()); }

 private:
  const std::vector<Part> parts_;
};

/// "0.5" or "1/255".
std::optional<double> factor(std::string_view text) {
  const auto number = [](std::string_view part) {
    double value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return error == std::errc() && end == part.data() + part.size() ? value : std::nan("");
  };
  const size_t slash = text.find('/');
  double out = number(text.substr(0, slash));
  if (slash != text.npos) out /= number(text.substr(slash + 1));
  return std::isfinite(out) ? std::optional(out) : std::nullopt;
}

}  // namespace

Result<StepFeeds> StepFeeds::open(const DataOptions& options) {
  StepFeeds out;
  out.options_ = options;
  if (options.files.empty()) {
    if (options.batch > 0 || options.shuffle > 0 || options.epochs != 1 || options.drop_remainder ||
        !options.scale.empty())
      return invalid_argument(
          "--batch, --shuffle, --epochs, --drop-remainder and --scale are of --data, and there is "
          "none");
    return out;
  }
  if (options.drop_remainder && options.batch == 0)
    return invalid_argument("--drop-remainder is of --batch, and there is none");
  std::map<std::string, std::map<std::string, Tensor>> archives;
  for (const std::string& text : options.files)
    if (Status added = out.add(text, archives); !added.ok()) return at_option("--data", text, std::move(added.error()));
  TROUPE_RETURN_IF_ERROR(out.check_rows());
  TROUPE_RETURN_IF_ERROR(out.read_scales());
  return out;
}

Status StepFeeds::add(const std::string& text, std::map<std::string, std::map<std::string, Tensor>>& archives) {
  const size_t equals = is_file(text) ? text.npos : text.find('=');
  Source source;
  source.feed = equals == text.npos ? "" : text.substr(0, equals);
  source.files = equals == text.npos ? text : text.substr(equals + 1);
  if (equals == 0 || source.files.empty()) return invalid_argument("FEED=FILE is expected");
  if (const size_t colon = source.files.rfind(':'); colon != text.npos && !is_file(source.files)) {
    source.columns = source.files.substr(colon + 1);
    source.files.resize(colon);
    if (source.columns.empty()) return invalid_argument("nothing follows the last ':'");
  }
  source.paths = {source.files};
  if (!is_file(source.files) && source.files.find_first_of("*?[") != text.npos) {
    TROUPE_ASSIGN(source.paths, matching_files(source.files));
    if (source.paths.empty()) return make_error(Code::kNotFound, "no file matches");
  }
  std::vector<std::string> paths;  // without empty files, which some of many may be
  for (const std::string& path : source.paths) {
    TROUPE_ASSIGN(const FeedFileKind kind, kind_of_feed_file(path));
    if (kind == FeedFileKind::kEmpty) continue;
    if (!paths.empty() && kind != source.kind)
      return invalid_argument("{} and {} are files of different kinds", in_quotes(paths[0]), in_quotes(path));
    source.kind = kind;
    paths.push_back(path);
  }
  if (paths.empty()) return invalid_argument("{} is empty", in_quotes(source.paths[0]));
  source.paths = std::move(paths);
  const bool is_array = source.kind == FeedFileKind::kNpy || source.kind == FeedFileKind::kIdx;
  if (source.kind == FeedFileKind::kText || source.kind == FeedFileKind::kRecords) {
    if (source.feed.empty()) return invalid_argument("which feed is it? FEED=FILE:COLUMNS says it");
    return add_source(std::move(source));
  }
  if (source.paths.size() > 1)
    return invalid_argument("{} files match: only files of text and TFRecord files may be several",
                            source.paths.size());
  if (is_array) {
    if (!source.columns.empty())
      return invalid_argument("it has one array, and so nothing by the name of {}", in_quotes(source.columns));
    if (source.feed.empty()) return invalid_argument("which feed is it? FEED=FILE says it");
    TROUPE_ASSIGN(source.array, source.kind == FeedFileKind::kNpy ? read_npy(source.files) : read_idx(source.files));
    return add_source(std::move(source));
  }
  const auto at = archives.find(source.files);
  if (at == archives.end()) {
    TROUPE_ASSIGN(archives[source.files], read_npz(source.files));
  }
  const std::map<std::string, Tensor>& arrays = archives[source.files];
  if (source.feed.empty() && source.columns.empty()) {
    for (const auto& [key, array] : arrays) {
      Source one = source;
      one.feed = key;
      one.array = array;
      TROUPE_RETURN_IF_ERROR(add_source(std::move(one)));
    }
    return arrays.empty() ? Status(invalid_argument("it has no arrays")) : Status();
  }
  if (source.feed.empty()) source.feed = source.columns;
  std::string key = source.columns.empty() ? source.feed : source.columns;
  if (source.columns.empty() && arrays.size() == 1) key = arrays.begin()->first;
  const auto array = arrays.find(key);
  if (array == arrays.end()) {
    std::vector<std::string> keys;
    for (const auto& [name, tensor] : arrays) keys.push_back(in_quotes(name));
    return invalid_argument("{} has no array {}; it has: {}", in_quotes(source.files), in_quotes(key),
                            keys.empty() ? "none" : join(keys, ", "));
  }
  source.array = array->second;
  return add_source(std::move(source));
}

Status StepFeeds::add_source(Source source) {
  for (const Source& other : sources_)
    if (other.feed == source.feed) return invalid_argument("feed {} is given twice", in_quotes(source.feed));
  if (source.array.defined() && source.array.rank() == 0)
    return invalid_argument("array {} is a scalar, which has no rows", in_quotes(source.feed));
  sources_.push_back(std::move(source));
  return {};
}

Status StepFeeds::check_rows() const {
  const Source* first = nullptr;
  for (const Source& source : sources_) {
    if (!source.array.defined()) continue;
    if (!first) first = &source;
    if (source.array.dim(0) != first->array.dim(0))
      return invalid_argument("--data: feed {} has {} rows ({}), feed {} has {} ({})", in_quotes(first->feed),
                              first->array.dim(0), in_quotes(first->files), in_quotes(source.feed), source.array.dim(0),
                              in_quotes(source.files));
  }
  return {};
}

Status StepFeeds::read_scales() {
  for (const std::string& text : options_.scale) {
    const size_t equals = text.find('=');
    const std::string feed = text.substr(0, equals);
    const auto by = equals == text.npos ? std::nullopt : factor(std::string_view(text).substr(equals + 1));
    if (!by) return at_option("--scale", text, invalid_argument("FEED=NUMBER is expected, or FEED=NUMBER/NUMBER"));
    if (std::ranges::find(sources_, feed, &Source::feed) == sources_.end())
      return at_option("--scale", text, invalid_argument("--data has no feed {}", in_quotes(feed)));
    if (!scales_.emplace(feed, *by).second) return at_option("--scale", text, invalid_argument("it is given twice"));
  }
  return {};
}

std::vector<std::string> StepFeeds::names() const {
  std::vector<std::string> out;
  for (const Source& source : sources_) out.push_back(source.feed);
  return out;
}

Error StepFeeds::in_source(const Source& source, Error error) const {
  error.message = fmt::format("feed {} ({}): {}", in_quotes(source.feed), in_quotes(source.files), error.message);
  return error;
}

/// Arrays are gathered as one; each set of other files is read once for all feeds that are in it.
Result<Dataset> StepFeeds::rows() {
  Element arrays;
  std::vector<RowsTogether::Part> parts;
  std::string array_file;
  for (size_t s = 0; s < sources_.size(); ++s)
    if (sources_[s].array.defined()) {
      arrays.push_back(sources_[s].array);
      array_file = sources_[s].files;
      order_.push_back(s);
    }
  if (!arrays.empty()) {
    TROUPE_ASSIGN(Dataset rows, Dataset::from_tensors(std::move(arrays)));
    parts.push_back({std::move(rows), array_file});
  }
  std::map<std::string, std::vector<size_t>> by_files;
  for (size_t s = 0; s < sources_.size(); ++s)
    if (!sources_[s].array.defined()) by_files[sources_[s].files].push_back(s);
  for (const auto& [files, members] : by_files) {
    std::vector<FeedColumns> feeds;
    for (const size_t s : members) {
      feeds.push_back({sources_[s].slot, sources_[s].columns});
      order_.push_back(s);
    }
    const Source& first = sources_[members[0]];
    auto rows = first.kind == FeedFileKind::kText ? text_rows(first.paths, std::move(feeds))
                                                  : record_rows(first.paths, std::move(feeds));
    TROUPE_RETURN_IF_ERROR(rows.status());
    parts.push_back({std::move(*rows), files});
  }
  if (parts.size() == 1) return std::move(parts[0].rows);
  return Dataset(std::make_shared<RowsTogether>(std::move(parts)));
}

Error StepFeeds::ended() const {
  return invalid_argument(
      "the data end after {} of {} steps; --epochs N passes over them N times, 0 as often as it "
      "takes",
      done_, steps_);
}

Status StepFeeds::begin(const std::vector<Output>& outputs, int64_t steps) {
  steps_ = steps;
  if (steps == 0 && options_.epochs == 0) return invalid_argument("--epochs 0 needs --steps");
  for (size_t s = 0; s < sources_.size(); ++s) {
    Source& source = sources_[s];
    const auto scale = scales_.find(source.feed);
    source.slot = {source.feed, outputs[s].dtype(), outputs[s].shape(), {}, options_.batch > 0};
    if (scale == scales_.end()) continue;
    source.slot.scale = scale->second;
    if (!is_floating(source.slot.dtype))
      return in_source(
          source, invalid_argument("it is {}, and only floating numbers can be scaled", to_string(source.slot.dtype)));
  }
  TROUPE_ASSIGN(Dataset data, rows());
  // Of arrays alone the number of rows is known.
  const int64_t count = data.size();
  if (options_.shuffle > 0) data = data.shuffle(options_.shuffle, options_.seed);
  if (options_.batch > 0) data = data.batch(options_.batch, options_.drop_remainder);
  const int64_t in_pass = data.size();
  data = data.repeat(options_.epochs == 0 ? -1 : options_.epochs);
  if (count == 0 || in_pass == 0) return invalid_argument("--data: there are no rows, or not enough for a batch");
  if (data.size() >= 0 && data.size() < steps) {
    done_ = data.size();
    return ended();
  }
  // Batches of a pass that are smaller than others.
  const int64_t last = options_.batch > 0 && count > 0 && !options_.drop_remainder ? count % options_.batch : 0;
  for (const Source& source : sources_)
    if (last > 0 && (steps == 0 || steps >= in_pass) && source.slot.shape.has_rank() && source.slot.shape.rank() > 0 &&
        source.slot.shape[0] >= 0 && source.slot.shape[0] != last)
      return in_source(source,
                       invalid_argument("step {} has the last {} of {} rows, which do not fit {}{}: "
                                        "--drop-remainder leaves them out",
                                        in_pass, last, count, to_string(source.slot.dtype), source.slot.shape.str()));
  TROUPE_ASSIGN(iterator_, data.iterate());
  return {};
}

Result<std::optional<std::vector<Tensor>>> StepFeeds::next() {
  if (steps_ > 0 && done_ == steps_) return std::optional<std::vector<Tensor>>();
  const auto at_step = [this](Error error) {
    error.message = fmt::format("step {}: {}", done_ + 1, error.message);
    return error;
  };
  auto element = iterator_->next();
  if (!element.ok()) return at_step(std::move(element.error()));
  if (!*element && steps_ > 0) return ended();
  if (!*element && done_ == 0) return invalid_argument("--data: there are no rows, or not enough for a batch");
  if (!*element) return std::optional<std::vector<Tensor>>();
  std::vector<Tensor> out(sources_.size());
  for (size_t c = 0; c < order_.size(); ++c) {
    const Source& source = sources_[order_[c]];
    // What is read from text and records is converted already.
    FeedSlot slot = source.slot;
    if (!source.array.defined()) slot.scale.reset();
    auto value = fitted(slot, (**element)[c]);
    if (!value.ok()) {
      Error error = in_source(source, std::move(value.error()));
      const auto rows = options_.batch > 0 ? (**element)[c].dim(0) : options_.batch;
      if (rows < options_.batch) error.message += "; it is the last batch of a pass, which --drop-remainder leaves out";
      return at_step(std::move(error));
    }
    out[order_[c]] = std::move(*value);
  }
  ++done_;
  return std::optional(std::move(out));
}

}  // namespace troupe
