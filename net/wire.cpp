// SPDX-License-Identifier: Apache-2.0
#include "net/wire.h"

namespace troupe::net {
namespace {

/// In place of a rank: the rank is not known.
constexpr uint8_t kUnknownRank = 255;

}  // namespace

void WireWriter::text(std::string_view value) {
  u32(static_cast<uint32_t>(value.size()));
  out_.append(value);
}

void WireWriter::shape(const PartialShape& value) {
  u8(value.has_rank() ? static_cast<uint8_t>(value.rank()) : kUnknownRank);
  if (value.has_rank())
    for (const int64_t size : value.dims()) i64(size);
}

void WireWriter::task(const TaskId& value) {
  text(value.job);
  u32(static_cast<uint32_t>(value.task));
}

void WireWriter::error(const std::optional<Error>& value) {
  boolean(value.has_value());
  if (!value) return;
  u8(static_cast<uint8_t>(value->code));
  for (const std::string* part : {&value->message, &value->op, &value->node, &value->device}) text(*part);
  boolean(value->step.has_value());
  if (value->step) i64(*value->step);
}

void WireReader::fail(Error error) {
  if (!status_.ok()) return;
  status_ = std::move(error);
  rest_ = {};
}

std::string_view WireReader::take(size_t bytes) {
  if (bytes > rest_.size()) {
    fail(make_error(Code::kDataLoss, "{} bytes are due and {} are left", bytes, rest_.size()));
    return {};
  }
  const std::string_view out = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return out;
}

uint8_t WireReader::up_to(uint8_t last) {
  const uint8_t value = u8();
  if (value <= last) return value;
  fail(make_error(Code::kDataLoss, "{} where at most {} has a meaning", value, last));
  return 0;
}

bool WireReader::boolean() { return up_to(1) != 0; }

std::string WireReader::text() {
  const size_t bytes = u32();
  return std::string(take(bytes));
}

size_t WireReader::count(size_t least_bytes) {
  const size_t n = u32();
  if (n <= rest_.size() / least_bytes) return n;
  fail(make_error(Code::kDataLoss, "a list of {} elements and {} bytes are left", n, rest_.size()));
  return 0;
}

DType WireReader::dtype() {
  const auto value = static_cast<DType>(u8());
  if (value == DType::kInvalid || is_known(value)) return value;
  fail(make_error(Code::kDataLoss, "unknown dtype {}", static_cast<uint8_t>(value)));
  return DType::kInvalid;
}

PartialShape WireReader::shape() {
  const uint8_t rank = u8();
  if (rank == kUnknownRank || !ok()) return {};
  if (rank > kMaxRank) {
    fail(make_error(Code::kDataLoss, "a shape of rank {}, at most {}", rank, kMaxRank));
    return {};
  }
  int64_t sizes[kMaxRank];
  for (int i = 0; i < rank; ++i) sizes[i] = i64();
  auto made = PartialShape::make(std::span<const int64_t>(sizes, rank));
  if (made.ok()) return *made;
  fail(make_error(Code::kDataLoss, "{}", made.error().message));
  return {};
}

TaskId WireReader::task() {
  TaskId out;
  out.job = text();
  out.task = static_cast<int>(u32());
  if (!ok()) return {};
  const Status checked = out.check();
  if (checked.ok()) return out;
  fail(make_error(Code::kDataLoss, "{}", checked.error().message));
  return {};
}

std::optional<Error> WireReader::error() {
  if (!boolean()) return {};
  const auto code = enumerator(Code::kUnavailable);
  std::string message = text(), op = text(), node = text();
  // The constructor escapes what must not reach a terminal; a message that was made by it stays as it is.
  Error out(code, std::move(message), std::move(op), std::move(node));
  out.device = text();
  if (boolean()) out.step = i64();
  if (!ok()) return {};
  return out;
}

Status WireReader::finish() {
  if (ok() && !rest_.empty()) fail(make_error(Code::kDataLoss, "{} bytes are left", rest_.size()));
  return status_;
}

}  // namespace troupe::net
