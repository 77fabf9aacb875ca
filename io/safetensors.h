// SPDX-License-Identifier: Apache-2.0
// The safetensors format over the FileSystem interface; the public calls are in troupe/checkpoint.h.
//
// A file: the length of the header (8 bytes, little-endian), the header (JSON: for each tensor its dtype,
// shape and range of bytes, and __metadata__), the data. __metadata__'s "crc32c" is the CRC-32C, in eight hex
// digits, of the header's canonical text (keys sorted, no spaces, without this entry) and then of the data.
// Time and memory grow with the number of tensors times its logarithm.
#pragma once
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "io/file_system.h"
#include "io/saved_parts.h"
#include "troupe/checkpoint.h"

namespace troupe {

/// A file ready to be written: the pieces in order. They refer to `header` and to the tensors' buffers.
struct EncodedTensors {
  std::string header;
  std::vector<std::pair<const void*, size_t>> data;
};

/// Errors: those of write_safetensors that concern the tensors; kInvalidArgument for metadata of a name that is taken,
/// "format", "step" or "crc32c".
Result<EncodedTensors> encode_safetensors(const TensorMap& tensors, int64_t step,
                                          const std::map<std::string, std::string>& metadata = {});

/// Errors: those of read_safetensors; with `must_be_checked` also kDataLoss where there is no check sum.
Result<TensorFile> decode_safetensors(const ReadableFile& file, const std::string& path, bool must_be_checked);

/// Whether these files hold a dtype.
bool safetensors_hold(DType dtype);

/// Whether a file begins as these files do.
bool may_be_safetensors(const ReadableFile& file);

/// Opens a file of which tensors are read one by one. Its check sum is compared before the first.
/// Errors: those of
/// read_safetensors.
Result<std::unique_ptr<PartSource>> open_safetensors(std::unique_ptr<ReadableFile> file, const std::string& path);

/// Writes a file in the place of `path`. Each value is asked for twice: for the check sum, which comes first, and for
/// the data. Errors: those of write_safetensors; kInvalidArgument for parts of tensors and names given twice; what
/// values say. On an error nothing has changed.
Status write_safetensors_file(const FileAccess& access, const std::string& path, std::span<const TensorToSave> tensors);

}  // namespace troupe
