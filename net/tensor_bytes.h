// SPDX-License-Identifier: Apache-2.0
// Tensors as bytes: the entry that says what a tensor is, and its contents. Of frames, and of messages that a program
// sends itself. Implemented in net/tensor_bytes.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "troupe/error.h"
#include "troupe/tensor.h"

namespace troupe::net {

/// An entry without its sizes: dtype, rank, two bytes of 0, eight of the tensor's bytes.
inline constexpr size_t kEntryBytes = 12;

/// What an entry says of a tensor.
struct TableEntry {
  DType dtype = DType::kInvalid;
  uint64_t bytes = 0;
  Shape shape;
};

/// Error: kInvalidArgument for one of kResource or kVariant, which no other process can use.
Status check_travels(const Tensor& tensor);
/// Appends the entry of a tensor whose contents are so many bytes.
void put_entry(const Tensor& tensor, uint64_t bytes, std::string& out);
/// Takes one entry from the front of `table`. Errors: kDataLoss for an unknown dtype, kResource, kVariant, a negative
/// size, a product of sizes that overflows, bytes that disagree with dtype and shape, a table that is too short.
Result<TableEntry> take_entry(std::string_view& table);

/// The contents of a tensor of strings: the length of each, then their bytes.
std::string string_blob(const Tensor& tensor);
/// Whether these lengths of strings, one behind the other, are those of `bytes` bytes. Error: kDataLoss.
Status check_lengths(std::string_view lengths, uint64_t bytes);
/// Fills a tensor of strings from a blob that is as long as its entry says. Error: kDataLoss for lengths that disagree.
Status take_strings(std::string_view blob, Tensor& tensor);
/// Error: kDataLoss for an element that is neither 0 nor 1.
Status check_bools(const Tensor& tensor);

}  // namespace troupe::net
