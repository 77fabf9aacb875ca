// SPDX-License-Identifier: Apache-2.0
// Tensors, and what holds them, as messages that CAF sends to other nodes: the entry of a tensor as in a frame
// (docs/wire_protocol.md), then its contents.
#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>

#include <algorithm>
#include <new>

#include "net/tensor_bytes.h"
#include "net/wire.h"
#include "troupe/embed.h"

namespace troupe {
namespace {

/// What a source that cannot tell how much is left is read by.
constexpr uint64_t kPiece = uint64_t{1} << 20;

caf::error cannot(const std::string& why) { return caf::make_error(caf::sec::invalid_argument, why); }

caf::error write(caf::serializer& to, std::string_view bytes) {
  return bytes.empty() ? caf::none : to.apply_raw(bytes.size(), const_cast<char*>(bytes.data()));
}

/// The next `size` bytes: where the source has them, else in `kept`. Takes no memory for more than there is.
caf::error read(caf::deserializer& from, uint64_t size, std::string& kept, std::string_view& out) {
  if (auto* const binary = dynamic_cast<caf::binary_deserializer*>(&from)) {
    if (size > binary->remaining())
      return cannot(fmt::format("{} bytes of a tensor are due and {} are left", size, binary->remaining()));
    out = {reinterpret_cast<const char*>(binary->remainder().data()), static_cast<size_t>(size)};
    binary->skip(static_cast<size_t>(size));
    return caf::none;
  }
  kept.clear();
  while (kept.size() < size) {
    const size_t before = kept.size();
    const auto piece = static_cast<size_t>(std::min(kPiece, size - before));
    kept.resize(before + piece);
    if (caf::error error = from.apply_raw(piece, kept.data() + before)) return error;
  }
  out = kept;
  return caf::none;
}

caf::error read_tensor(caf::deserializer& from, Tensor& tensor) {
  std::string kept, sizes;
  std::string_view bytes;
  if (caf::error error = read(from, net::kEntryBytes, kept, bytes)) return error;
  std::string head(bytes);
  const auto rank = static_cast<uint8_t>(head[1]);
  if (caf::error error = read(from, uint64_t{rank} * 8, sizes, bytes)) return error;
  head += bytes;
  std::string_view table = head;
  const auto entry = net::take_entry(table);
  if (!entry.ok()) return cannot("a tensor: " + entry.error().message);
  if (caf::error error = read(from, entry->bytes, kept, bytes)) return error;
  Tensor out;
  Status status;
  if (entry->dtype != DType::kInvalid) {
    auto made = Tensor::make(entry->dtype, entry->shape);
    if (!made.ok()) return cannot(made.error().message);
    out = std::move(*made);
    if (entry->dtype == DType::kString) status = net::take_strings(bytes, out);
    else if (!bytes.empty()) std::memcpy(out.mutable_raw(), bytes.data(), bytes.size());
    if (entry->dtype == DType::kBool) status = net::check_bools(out);
  }
  if (!status.ok()) return cannot("a tensor: " + status.error().message);
  tensor = std::move(out);
  return caf::none;
}

template <class F> caf::error without_exceptions(F&& read) try { return read(); } catch (const std::bad_alloc&) {
  return cannot("no memory for tensors that came");
}

}  // namespace

caf::error inspect(caf::serializer& to, Tensor& tensor) {
  if (const Status travels = net::check_travels(tensor); !travels.ok())
    return cannot("a tensor is " + travels.error().message);
  const std::string blob = tensor.dtype() == DType::kString ? net::string_blob(tensor) : std::string();
  const std::string_view contents = tensor.dtype() == DType::kString ? std::string_view(blob)
                                    : tensor.defined()
                                        ? std::string_view(static_cast<const char*>(tensor.raw()), tensor.bytes())
                                        : std::string_view();
  std::string entry;
  net::put_entry(tensor, contents.size(), entry);
  if (caf::error error = write(to, entry)) return error;
  return write(to, contents);
}

caf::error inspect(caf::deserializer& from, Tensor& tensor) {
  return without_exceptions([&] { return read_tensor(from, tensor); });
}

caf::error inspect(caf::serializer& to, RunRequest& request) { return to(request.tag, request.values); }

caf::error inspect(caf::deserializer& from, RunRequest& request) {
  return without_exceptions([&] { return from(request.tag, request.values); });
}

// An answer is its tag, the bytes of an error (net/wire.h) behind their number, then the fetches.

caf::error inspect(caf::serializer& to, RunAnswer& answer) {
  net::WireWriter writer;
  writer.error(answer.result.ok() ? std::nullopt : std::optional(answer.result.error()));
  const std::string text = writer.take();
  auto size = static_cast<uint32_t>(text.size());
  if (caf::error error = to(answer.tag, size)) return error;
  if (caf::error error = write(to, text)) return error;
  std::vector<Tensor> none;
  return to(answer.result.ok() ? *answer.result : none);
}

caf::error inspect(caf::deserializer& from, RunAnswer& answer) {
  return without_exceptions([&]() -> caf::error {
    uint32_t size = 0;
    if (caf::error error = from(answer.tag, size)) return error;
    std::string kept;
    std::string_view bytes;
    if (caf::error error = read(from, size, kept, bytes)) return error;
    net::WireReader reader(bytes);
    std::optional<Error> failed = reader.error();
    if (const Status whole = reader.finish(); !whole.ok()) return cannot("an answer: " + whole.error().message);
    std::vector<Tensor> tensors;
    if (caf::error error = from(tensors)) return error;
    if (failed && !tensors.empty())
      return cannot(fmt::format("an answer with an error and {} tensors", tensors.size()));
    if (failed) answer.result = std::move(*failed);
    else answer.result = std::move(tensors);
    return caf::none;
  });
}

}  // namespace troupe
