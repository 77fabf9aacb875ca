// SPDX-License-Identifier: Apache-2.0
// Feeds that differ from step to step: rows of files, shuffled, in batches, passed over once or more. Implemented in
// cli/step_feeds.cpp.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/feed_files.h"
#include "troupe/graph.h"

namespace troupe {

/// As --data, --batch, --shuffle, --seed, --epochs, --drop-remainder and --scale have it.
struct DataOptions {
  /// FEED=FILE, FEED=FILE:COLUMNS (see FeedColumns; of a .npz file the key), or FILE, a .npz whose keys are feeds.
  /// Files of text and of records may be a pattern, see io/file_pattern.h.
  std::vector<std::string> files = {};
  int64_t batch = 0;                    // rows of a step, on a new first axis; 0: one row is the value of a step
  bool drop_remainder = false;          // leaves out the smaller batch at the end of a pass
  int64_t shuffle = 0;                  // rows to draw from, anew in each pass; 0: in order
  uint64_t seed = 0;                    // of `shuffle`
  int64_t epochs = 1;                   // passes; 0: as many as the steps take
  std::vector<std::string> scale = {};  // FEED=NUMBER or FEED=A/B: what numbers are multiplied by
};

/// One thread at a time.
class StepFeeds {
 public:
  /// Reads what the options say, the arrays wholly, of other files what kind they are. Errors name the option and the
  /// file: kInvalidArgument for what is not of these forms, a feed given twice, arrays without rows or with other
  /// numbers of rows, options without --data; kNotFound; those of the readers.
  static Result<StepFeeds> open(const DataOptions& options);

  bool empty() const { return sources_.empty(); }
  /// The names of the feeds, in the order of next().
  std::vector<std::string> names() const;
  /// The outputs that are fed, in the order of names(). `steps`: how many there will be; 0: as many as the data give.
  /// Where the number of rows is known, errors of later steps come here: kInvalidArgument for shapes and types that do
  /// not fit, with both, and for fewer rows than the steps need.
  Status begin(const std::vector<Output>& outputs, int64_t steps);
  /// The values of the next step; nothing at the end. Errors name the step, the feed, its file and what is wrong;
  /// kInvalidArgument where the data end before the steps do.
  Result<std::optional<std::vector<Tensor>>> next();

 private:
  struct Source {
    std::string feed, files, columns;
    FeedFileKind kind = FeedFileKind::kNpy;
    Tensor array = {};
    std::vector<std::string> paths = {};
    FeedSlot slot = {};
  };

  Status add(const std::string& text, std::map<std::string, std::map<std::string, Tensor>>& archives);
  Status add_source(Source source);
  Status check_rows() const;
  Status read_scales();
  Result<Dataset> rows();
  Error ended() const;
  Error in_source(const Source& source, Error error) const;

  DataOptions options_;
  std::vector<Source> sources_;
  std::map<std::string, double> scales_;
  std::vector<size_t> order_;  // of the components of an element: which source they are of
  std::unique_ptr<DatasetIterator> iterator_;
  int64_t steps_ = 0, done_ = 0;
};

}  // namespace troupe
