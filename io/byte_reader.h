// SPDX-License-Identifier: Apache-2.0
// Reads bytes of a file in sequence, plain or gzip (told apart by its first bytes).
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "troupe/error.h"

namespace troupe {

/// A sequential reader. Errors name the file: kNotFound, kDataLoss (the gzip stream is broken or cut off),
/// kInvalidArgument (a directory, a socket).
class ByteReader {
 public:
  /// What may be opened: files, or also FIFOs and character devices, whose open and reads wait for data.
  enum class Kinds { kFiles, kStreamsToo };
  static Result<ByteReader> open(const std::string& path, Kinds kinds = Kinds::kFiles);
  /// Up to `bytes` bytes; fewer only at the end, and before an error, which the next call returns: of a gzip stream
  /// that is cut off what is there comes first.
  Result<size_t> read(void* out, size_t bytes);
  /// Whether the file is gzip; known after the first read.
  bool compressed() const;
  /// The most bytes the file can give, from its length: gzip packs at most 1032 to 1. Of a stream: any number.
  uint64_t most_bytes() const;
  const std::string& path() const { return path_; }

 private:
  static constexpr uint64_t kNoLength = UINT64_MAX;
  struct Closer {
    void operator()(void* file) const;
  };
  ByteReader(std::string path, void* file, uint64_t length) : path_(std::move(path)), file_(file), length_(length) {}
  std::string path_;
  std::unique_ptr<void, Closer> file_;  // zlib's gzFile
  uint64_t length_;
};

}  // namespace troupe
