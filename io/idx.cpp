// SPDX-License-Identifier: Apache-2.0
// The idx format: two zero bytes, a type, a rank, big-endian sizes, big-endian elements.
#include "troupe/idx.h"
#include "base/join.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "io/byte_reader.h"

namespace troupe {
namespace {

Result<DType> dtype_of_code(const std::string& path, unsigned char code) {
  switch (code) {
    case 0x08: return DType::kUInt8;
    case 0x09: return DType::kInt8;
    case 0x0b: return DType::kInt16;
    case 0x0c: return DType::kInt32;
    case 0x0d: return DType::kFloat32;
    case 0x0e: return DType::kFloat64;
    default: return make_error(Code::kDataLoss, "'{}' is not an idx file: unknown element type {:#04x}", path, code);
  }
}

Status read_exactly(ByteReader& reader, void* out, size_t bytes, const char* what) {
  TROUPE_ASSIGN(const size_t got, reader.read(out, bytes));
  char more;
  if (got < bytes) TROUPE_RETURN_IF_ERROR(reader.read(&more, 1).status());  // of a broken stream, say
  if (got < bytes)
    return make_error(Code::kDataLoss, "'{}' is truncated: {} of {} bytes of its {}", reader.path(), got, bytes, what);
  return {};
}

/// The first of `directory`/`name` and that with ".gz" that exists.
Result<std::string> find_file(const std::string& directory, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    std::string path = (std::filesystem::path(directory) / (name + suffix)).string();
    std::error_code error;
    if (std::filesystem::exists(path, error)) return path;
  }
  return make_error(Code::kNotFound, "no file '{}' or '{}.gz' in '{}'", name, name, directory);
}

Status read_pair(const std::string& directory, const std::string& prefix, Tensor& images, Tensor& labels) {
  TROUPE_ASSIGN(const std::string images_path, find_file(directory, prefix + "-images-idx3-ubyte"));
  TROUPE_ASSIGN(const std::string labels_path, find_file(directory, prefix + "-labels-idx1-ubyte"));
  TROUPE_ASSIGN(images, read_idx(images_path));
  TROUPE_ASSIGN(labels, read_idx(labels_path));
  if (images.dtype() != DType::kUInt8 || images.rank() != 3)
    return make_error(Code::kDataLoss, "'{}' holds {}{}, not uint8 images [count, height, width]", images_path,
                      to_string(images.dtype()), images.shape().str());
  if (labels.dtype() != DType::kUInt8 || labels.rank() != 1)
    return make_error(Code::kDataLoss, "'{}' holds {}{}, not uint8 labels [count]", labels_path,
                      to_string(labels.dtype()), labels.shape().str());
  if (images.dim(0) != labels.dim(0))
    return make_error(Code::kDataLoss, "'{}' has {} images, but '{}' {} labels", images_path, images.dim(0),
                      labels_path, labels.dim(0));
  const auto values = labels.values<uint8_t>();
  const auto bad = std::ranges::find_if(values, [](uint8_t v) { return v > 9; });
  if (bad != values.end())
    return make_error(Code::kDataLoss, "'{}': label {} of element {} is not below 10", labels_path, int{*bad},
                      bad - values.begin());
  return {};
}

}  // namespace

Result<Tensor> read_idx(const std::string& path) {
  TROUPE_ASSIGN(ByteReader reader, ByteReader::open(path));
  std::array<unsigned char, 4> magic;
  TROUPE_RETURN_IF_ERROR(read_exactly(reader, magic.data(), magic.size(), "header"));
  if (magic[0] != 0 || magic[1] != 0)
    return make_error(Code::kDataLoss, "'{}' is not an idx file: it begins with {:#04x} {:#04x}", path, magic[0],
                      magic[1]);
  TROUPE_ASSIGN(const DType dtype, dtype_of_code(path, magic[2]));
  if (magic[3] > kMaxRank)
    return invalid_argument("'{}' has {} dimensions, more than the {} supported", path, magic[3], kMaxRank);

  std::array<unsigned char, 4 * kMaxRank> sizes;
  TROUPE_RETURN_IF_ERROR(read_exactly(reader, sizes.data(), size_t{4} * magic[3], "header"));
  std::vector<int64_t> dims;
  for (size_t i = 0; i < magic[3]; ++i) {
    uint32_t size = 0;
    for (size_t b = 0; b < 4; ++b) size = size << 8 | sizes[4 * i + b];
    dims.push_back(size);
  }
  auto shape = Shape::make(dims);
  const size_t width = size_of(dtype);
  if (!shape.ok() || static_cast<uint64_t>(shape->elements()) > reader.most_bytes() / width)
    return make_error(Code::kDataLoss, "'{}' declares {}[{}], more than a file of its length can hold", path,
                      to_string(dtype), join(dims));

  TROUPE_ASSIGN(Tensor tensor, Tensor::make(dtype, *shape));
  TROUPE_RETURN_IF_ERROR(read_exactly(reader, tensor.mutable_raw(), tensor.bytes(), "data"));
  char extra;
  TROUPE_ASSIGN(const size_t more, reader.read(&extra, 1));
  if (more > 0)
    return make_error(Code::kDataLoss, "'{}' has more data than its header says: {}{}", path, to_string(dtype),
                      shape->str());
  if (width > 1) {
    char* at = static_cast<char*>(tensor.mutable_raw());
    for (int64_t i = 0; i < tensor.elements(); ++i, at += width) std::reverse(at, at + width);
  }
  return tensor;
}

Result<ImageData> read_mnist(const std::string& directory) {
  ImageData data;
  TROUPE_RETURN_IF_ERROR(read_pair(directory, "train", data.train_images, data.train_labels));
  TROUPE_RETURN_IF_ERROR(read_pair(directory, "t10k", data.test_images, data.test_labels));
  if (data.train_images.dim(1) != data.test_images.dim(1) || data.train_images.dim(2) != data.test_images.dim(2))
    return make_error(Code::kDataLoss, "'{}': training images are {}, test images {}", directory,
                      data.train_images.shape().str(), data.test_images.shape().str());
  return data;
}

}  // namespace troupe
