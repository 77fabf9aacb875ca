// SPDX-License-Identifier: Apache-2.0
// Walks the wire format down to the raw bytes of constants; protobuf parses what is left when these are taken out.
#include "graph/graph_def/large_constants.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include "graph/graph_def/import_graph.h"

namespace troupe {
namespace {

using google::protobuf::internal::WireFormatLite;
namespace io = google::protobuf::io;

/// Raw bytes from here on go apart, in messages of at least as many.
constexpr int kBytesApart = 4096;

constexpr uint32_t message_tag(int field) {
  return static_cast<uint32_t>(field) << 3 | WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
}

/// The fields that lead from a GraphDef to the raw bytes of a constant.
constexpr uint32_t kWay[] = {
    message_tag(proto::GraphDef::kNodeFieldNumber), message_tag(proto::NodeDef::kAttrFieldNumber),
    message_tag(proto::AttrEntry::kValueFieldNumber), message_tag(proto::AttrValue::kTensorFieldNumber),
    message_tag(proto::TensorProto::kTensorContentFieldNumber)};
constexpr size_t kContent = std::size(kWay) - 1;
constexpr uint32_t kContentApart = proto::TensorProto::kContentApartFieldNumber << 3 | WireFormatLite::WIRETYPE_VARINT;

/// A ByteSource as protobuf reads it.
class SourceStream final : public io::CopyingInputStream {
 public:
  explicit SourceStream(const ByteSource& source) : source_(source) {}
  int Read(void* to, int size) override {
    const int64_t bytes = std::min<int64_t>(size, source_.size - at_);
    if (bytes > 0) status_ = source_.read(at_, to, static_cast<size_t>(bytes));
    if (!status_.ok()) return -1;
    at_ += bytes;
    return static_cast<int>(bytes);
  }
  int Skip(int count) override {
    const int64_t bytes = std::min<int64_t>(count, source_.size - at_);
    at_ += bytes;
    return static_cast<int>(bytes);
  }
  const Status& status() const { return status_; }

 private:
  const ByteSource& source_;
  int64_t at_ = 0;
  Status status_;
};

class Walk {
 public:
  Walk(const ByteSource& source, io::CodedInputStream& in, std::vector<Tensor>& apart)
      : source_(source), in_(in), apart_(apart) {}

  /// Copies what is left of the message of level `depth` to `to`, without the contents that go apart. False where it is
  /// malformed, or with an error.
  bool message(size_t depth, std::string& to) {
    io::StringOutputStream stream(&to);
    io::CodedOutputStream out(&stream);
    while (const uint32_t tag = in_.ReadTag()) {
      if (tag != kWay[depth]) {
        if (!WireFormatLite::SkipField(&in_, tag, &out)) return false;
        continue;
      }
      int length = 0;
      if (!in_.ReadVarintSizeAsInt(&length) || length > in_.BytesUntilLimit()) return false;
      if (depth == kContent && length >= kBytesApart) {
        if (!content(length)) return false;
        out.WriteTag(kContentApart);
        out.WriteVarint32(static_cast<uint32_t>(apart_.size()));
        continue;
      }
      std::string inner;
      if (length < kBytesApart) {
        if (!in_.ReadString(&inner, length)) return false;
      } else {
        const auto limit = in_.PushLimit(length);
        if (!message(depth + 1, inner) || in_.BytesUntilLimit() > 0) return false;
        in_.PopLimit(limit);
      }
      out.WriteTag(tag);
      out.WriteVarint32(static_cast<uint32_t>(inner.size()));
      out.WriteString(inner);
    }
    return in_.ConsumedEntireMessage();
  }

  const Status& status() const { return status_; }

 private:
  bool content(int length) {
    auto made = Tensor::make(DType::kUInt8, {length});
    if (!made.ok()) return status_ = std::move(made.error()), false;
    status_ = source_.read(in_.CurrentPosition(), made->mutable_raw(), static_cast<size_t>(length));
    apart_.push_back(std::move(*made));
    return status_.ok() && in_.Skip(length);
  }

  const ByteSource& source_;
  io::CodedInputStream& in_;
  std::vector<Tensor>& apart_;
  Status status_;
};

}  // namespace

Result<bool> parse_apart(const ByteSource& source, proto::GraphDef& def, std::vector<Tensor>& apart) {
  SourceStream file(source);
  io::CopyingInputStreamAdaptor stream(&file);
  io::CodedInputStream in(&stream);
  in.PushLimit(static_cast<int>(source.size));
  Walk walk(source, in, apart);
  std::string rest;
  const bool whole = walk.message(0, rest);
  TROUPE_RETURN_IF_ERROR(file.status());
  TROUPE_RETURN_IF_ERROR(walk.status());
  return whole && parse_wire(rest, def);
}

}  // namespace troupe
