// SPDX-License-Identifier: Apache-2.0
// What a training that begins with another's weights reads: GenerateVocabRemapping tells where the words of a
// vocabulary were in an older one, LoadAndRemapMatrix takes rows and columns of a checkpoint's matrix in their new
// order.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "io/checkpoint_reader.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/state/register.h"
#include "ops/state/vocabulary_file.h"
#include "ops/text/string_map.h"
#include "troupe/blocking_kernel.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

class VocabRemapping final : public BlockingKernel {
 public:
  explicit VocabRemapping(const KernelInit& init)
      : offset_(init.attr<int64_t>("new_vocab_offset")), count_(init.attr<int64_t>("num_new_vocab")),
        old_size_(init.attr<int64_t>("old_vocab_size")), folders_(init.data_folders) {}

  Result<std::vector<Tensor>> run(const BlockingRequest& asked) override {
    TROUPE_ASSIGN(const std::string new_file, one_string(asked.inputs[0], "new_vocab_file"));
    TROUPE_ASSIGN(const std::string old_file, one_string(asked.inputs[1], "old_vocab_file"));
    TROUPE_ASSIGN(const std::vector<std::string> words, read_vocabulary(folders_, new_file, -1));
    TROUPE_ASSIGN(const std::vector<std::string> old_words, read_vocabulary(folders_, old_file, old_size_));
    const auto all = static_cast<int64_t>(words.size());
    if (offset_ > all || count_ > all - offset_)
      return invalid_argument("{} has {} words, not {} behind the first {}", new_file, all, count_, offset_);
    std::unordered_map<std::string_view, int64_t> places;
    for (size_t i = 0; i < old_words.size(); ++i)
      if (!places.try_emplace(old_words[i], static_cast<int64_t>(i)).second)
        return invalid_argument("{} has \"{}\" in the lines {} and {}", old_file, old_words[i],
                                places.at(old_words[i]) + 1, i + 1);
    TROUPE_ASSIGN(Tensor remapping, Tensor::make(DType::kInt64, Shape{count_}, asked.allocator));
    int32_t present = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const auto found = places.find(words[static_cast<size_t>(offset_ + i)]);
      remapping.mutable_data<int64_t>()[i] = found == places.end() ? -1 : found->second;
      present += found != places.end();
    }
    return std::vector<Tensor>{std::move(remapping), Tensor::scalar(present)};
  }

 private:
  const int64_t offset_, count_, old_size_;
  const std::shared_ptr<const DataFolders> folders_;
};

/// Where rows or columns of the older matrix go; negative numbers in a remapping say that a new one was not there.
Result<std::unordered_map<int64_t, int64_t>> new_places(std::span<const int64_t> remapping, const char* what) {
  std::unordered_map<int64_t, int64_t> out;
  for (size_t i = 0; i < remapping.size(); ++i)
    if (remapping[i] >= 0 && !out.try_emplace(remapping[i], static_cast<int64_t>(i)).second)
      return make_error(Code::kUnimplemented, "{} has {} twice, at {} and {}", what, remapping[i], out.at(remapping[i]),
                        i);
  return out;
}

class LoadAndRemap final : public BlockingKernel {
 public:
  explicit LoadAndRemap(const KernelInit& init)
      : rows_(init.attr<int64_t>("num_rows")), columns_(init.attr<int64_t>("num_cols")),
        most_rows_(init.attr<int64_t>("max_rows_in_memory")), access_{make_posix_file_system(), init.data_folders} {}

  Result<std::vector<Tensor>> run(const BlockingRequest& asked) override {
    TROUPE_ASSIGN(const std::string path, one_string(asked.inputs[0], "ckpt_path"));
    TROUPE_ASSIGN(const std::string name, one_string(asked.inputs[1], "old_tensor_name"));
    const auto rows = asked.inputs[2].values<int64_t>(), columns = asked.inputs[3].values<int64_t>();
    const auto given = asked.inputs[4].values<float>();
    if (std::ssize(rows) != rows_)
      return invalid_argument("row_remapping has {} elements, num_rows is {}", rows.size(), rows_);
    if (!columns.empty() && std::ssize(columns) != columns_)
      return invalid_argument("col_remapping has {} elements, num_cols is {}", columns.size(), columns_);
    TROUPE_ASSIGN(const auto new_rows, new_places(rows, "row_remapping"));
    TROUPE_ASSIGN(const auto new_columns, new_places(columns, "col_remapping"));
    TROUPE_ASSIGN(const CheckpointReader file, CheckpointReader::open(access_, path, true));
    TROUPE_ASSIGN(const auto described, file.find(name));
    const Shape& shape = described.second;
    if (described.first != DType::kFloat32 || shape.rank() != 2)
      return invalid_argument("tensor '{}' of {} must be a float32 matrix, not {} {}", name, path,
                              to_string(described.first), shape.str());
    if (columns.empty() && shape[1] != columns_)
      return invalid_argument("tensor '{}' of {} has {} columns, num_cols is {}", name, path, shape[1], columns_);
    if (const auto last = std::ranges::max_element(rows); last != rows.end() && *last >= shape[0])
      return invalid_argument("row_remapping has {}, but tensor '{}' has {} rows", *last, name, shape[0]);
    TROUPE_ASSIGN(const Shape matrix, Shape::make(std::array{rows_, columns_}));
    TROUPE_ASSIGN(Tensor out, Tensor::zeros(DType::kFloat32, matrix, asked.allocator));
    TROUPE_RETURN_IF_ERROR(fill_missing(out, rows, columns, given));

    int64_t first = shape[0], end = 0;  // of the rows that are wanted
    for (const auto& [row, place] : new_rows) first = std::min(first, row), end = std::max(end, row + 1);
    const int64_t piece = most_rows_ > 0 ? most_rows_ : shape[0];
    for (; first < end; first += std::min(piece, end - first)) {
      const TensorSlice slice{shape, Shape{std::min(piece, end - first), shape[1]}, {first, 0}};
      TROUPE_ASSIGN(const Tensor part, file.read(name, slice, asked.allocator));
      for (int64_t r = 0; r < part.dim(0); ++r) {
        const auto row = new_rows.find(first + r);
        if (row == new_rows.end()) continue;
        const float* from = part.data<float>() + r * shape[1];
        float* to = out.mutable_data<float>() + row->second * columns_;
        if (columns.empty()) std::copy_n(from, columns_, to);
        for (const auto& [column, place] : new_columns)
          if (column < shape[1]) to[place] = from[column];
      }
    }
    return std::vector<Tensor>{std::move(out)};
  }

 private:
  /// The given values, in order, where a row or a column is new.
  static Status fill_missing(Tensor& out, std::span<const int64_t> rows, std::span<const int64_t> columns,
                             std::span<const float> given) {
    size_t used = 0;
    float* at = out.mutable_data<float>();
    for (const int64_t row : rows)
      for (int64_t j = 0; j < out.dim(1); ++j, ++at) {
        if (row >= 0 && (columns.empty() || columns[static_cast<size_t>(j)] >= 0)) continue;
        if (used < given.size()) *at = given[used];
        ++used;
      }
    if (used == given.size()) return {};
    return invalid_argument("initializing_values has {} elements, but {} are missing", given.size(), used);
  }

  const int64_t rows_, columns_, most_rows_;
  const FileAccess access_;
};

Status remapping_shape(ShapeContext& c) {
  for (int i = 0; i < 2; ++i) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 0).status());
  c.set_output(0, PartialShape{c.attr<int64_t>("num_new_vocab")});
  c.set_output(1, PartialShape::scalar());
  return {};
}

Status remapped_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(2, 1).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank(3, 1).status());
  c.set_output(0, PartialShape{c.attr<int64_t>("num_rows"), c.attr<int64_t>("num_cols")});
  return {};
}

}  // namespace

void register_warm_start_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("GenerateVocabRemapping")
              .input("new_vocab_file: string")
              .input("old_vocab_file: string")
              .output("remapping: int64")
              .output("num_present: int32")
              .attr("new_vocab_offset: int >= 0")
              .attr("num_new_vocab: int >= 0")
              .attr("old_vocab_size: int >= -1 = -1")
              .shape(remapping_shape)
              .doc("Where num_new_vocab words of a file, a line each, behind the first new_vocab_offset, are among the "
                   "first old_vocab_size (-1: all) of another, -1 for one that is not; and how many are. Errors: files "
                   "of fewer words, a word that is twice in the older one."),
          not_differentiable("words are not numbers"));
  kernels.add<VocabRemapping>("GenerateVocabRemapping", DeviceKind::kCpu, {});
  ops.add(
      OpDef("LoadAndRemapMatrix")
          .input("ckpt_path: string")
          .input("old_tensor_name: string")
          .input("row_remapping: int64")
          .input("col_remapping: int64")
          .input("initializing_values: float32")
          .output("output_matrix: float32")
          .attr("num_rows: int >= 0")
          .attr("num_cols: int >= 1")
          .attr("max_rows_in_memory: int = -1")
          .stateful()
          .shape(remapped_shape)
          .doc("Row i, column j is row row_remapping[i], column col_remapping[j] (where that is empty j) of a float32 "
               "matrix in a checkpoint; where one of these is negative, the next of initializing_values. At most "
               "max_rows_in_memory are read at once, where that is above 0. Errors: a row or column of the matrix "
               "that is wanted twice, too few or too many initializing_values."),
      not_differentiable("it is read from a file"));
  kernels.add<LoadAndRemap>("LoadAndRemapMatrix", DeviceKind::kCpu, {});
}

}  // namespace troupe
