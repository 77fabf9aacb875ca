// SPDX-License-Identifier: Apache-2.0
// Frames from bytes. Nothing is believed before it is checked: lengths by the limits, the table against itself, and
// contents against the table.
#include <algorithm>
#include <cstring>
#include <new>

#include "net/frame.h"
#include "net/frame_layout.h"
#include "net/tensor_bytes.h"

namespace troupe::net {

class FrameReader::State {
 public:
  State(FrameLimits limits, std::shared_ptr<Allocator> allocator) : limits_(limits), allocator_(std::move(allocator)) {}

  Result<size_t> feed(std::span<const char> bytes) {
    size_t taken = 0;
    while (taken < bytes.size() && stage_ != Stage::kComplete) {
      const std::span<const char> rest = bytes.subspan(taken);
      const auto n = static_cast<size_t>(std::min<uint64_t>(rest.size(), due()));
      if (stage_ == Stage::kRaw) std::memcpy(raw_ + got_, rest.data(), n);
      else if (stage_ == Stage::kString) strings_[string_].append(rest.data(), n);
      else text_.append(rest.data(), n);
      taken += n;
      TROUPE_RETURN_IF_ERROR(filled(n));
    }
    return taken;
  }

  std::span<char> direct() {
    if (stage_ != Stage::kRaw) return {};
    return {raw_ + got_, static_cast<size_t>(due())};
  }

  Status filled(size_t bytes) {
    got_ += bytes;
    while (stage_ != Stage::kComplete && due() == 0) TROUPE_RETURN_IF_ERROR(go_on());
    return {};
  }

  std::optional<ReceivedFrame> take() {
    if (stage_ != Stage::kComplete) return {};
    std::optional<ReceivedFrame> out(ReceivedFrame{header_, std::move(frame_)});
    frame_ = {};
    enter(Stage::kHeader, FrameHeader::kBytes);
    return out;
  }

  bool in_frame() const { return stage_ != Stage::kHeader || got_ > 0; }

  std::string progress() const {
    if (stage_ == Stage::kHeader) return fmt::format("{} of {} bytes of a header", got_, size_);
    if (stage_ == Stage::kComplete) return to_string(header_.type) + ", complete";
    if (stage_ == Stage::kHead)
      return fmt::format("{} of {} bytes of the body of {}", got_, size_, to_string(header_.type));
    const auto of = [&](const std::string& what, size_t tensor) {
      return fmt::format("{} of {} bytes of {}tensor {} of {}", got_, size_, what, tensor, to_string(header_.type));
    };
    if (stage_ == Stage::kLengths) return of("the lengths of ", frame_.tensors.size());
    const std::string what = stage_ == Stage::kString ? fmt::format("string {} of ", string_) : std::string();
    return of(what, frame_.tensors.size() - 1);
  }

 private:
  /// Of a tensor of strings first all lengths come, and then one string after the other.
  enum class Stage { kHeader, kHead, kRaw, kLengths, kString, kComplete };

  uint64_t due() const { return size_ - got_; }

  void enter(Stage stage, uint64_t size) {
    stage_ = stage;
    size_ = size;
    got_ = 0;
    if (stage == Stage::kRaw) return;
    text_.clear();
    if (text_.capacity() > kKeptText) text_.shrink_to_fit();
  }

  /// What is due has come.
  Status go_on() {
    switch (stage_) {
      case Stage::kHeader: {
        TROUPE_ASSIGN(header_, FrameHeader::decode(std::span<const char, FrameHeader::kBytes>(text_), limits_));
        frame_.type = header_.type;
        enter(Stage::kHead, uint64_t{header_.body} + header_.table);
        return {};
      }
      case Stage::kHead: {
        TROUPE_RETURN_IF_ERROR(read_table(std::string_view(text_).substr(header_.body)));
        frame_.body = text_.substr(0, header_.body);
        return next_tensor();
      }
      case Stage::kRaw:
        if (frame_.tensors.back().dtype() == DType::kBool)
          TROUPE_RETURN_IF_ERROR(of_tensor(frame_.tensors.size() - 1, check_bools(frame_.tensors.back())));
        return next_tensor();
      case Stage::kLengths: {
        const size_t tensor = frame_.tensors.size();
        TROUPE_RETURN_IF_ERROR(of_tensor(tensor, check_lengths(text_, table_[tensor].bytes - text_.size())));
        lengths_.swap(text_);
        TROUPE_RETURN_IF_ERROR(make_tensor());
        strings_ = frame_.tensors.back().mutable_data<std::string>();
        string_ = 0;
        return next_string();
      }
      case Stage::kString: ++string_; return next_string();
      case Stage::kComplete: break;
    }
    return {};
  }

  Status of_tensor(size_t i, Status status) const {
    if (status.ok()) return {};
    return make_error(status.error().code, "tensor {} of {}: {}", i, to_string(header_.type), status.error().message);
  }

  Status read_table(std::string_view table) {
    table_.clear();
    uint64_t payload = 0;
    for (uint32_t i = 0; i < header_.tensors; ++i) {
      auto entry = take_entry(table);
      if (!entry.ok()) return of_tensor(i, std::move(entry).failure());
      if (__builtin_add_overflow(payload, entry->bytes, &payload) || payload > header_.payload)
        return make_error(Code::kDataLoss, "{}: its tensors up to {} have more bytes than the {} of its header",
                          to_string(header_.type), i, header_.payload);
      table_.push_back(*entry);
    }
    if (!table.empty() || payload != header_.payload)
      return make_error(Code::kDataLoss, "{}: {} bytes behind its table, and {} of {} bytes of tensors in it",
                        to_string(header_.type), table.size(), payload, header_.payload);
    frame_.tensors.reserve(table_.size());
    return {};
  }

  /// Begins the next tensor, of which none is due that has no bytes.
  Status next_tensor() {
    while (frame_.tensors.size() < table_.size()) {
      const TableEntry& entry = table_[frame_.tensors.size()];
      if (entry.dtype == DType::kString && entry.bytes > 0) {
        // Its objects take memory only once their lengths have come.
        enter(Stage::kLengths, static_cast<uint64_t>(entry.shape.elements()) * 8);
        return {};
      }
      TROUPE_RETURN_IF_ERROR(make_tensor());
      if (entry.bytes == 0) continue;
      raw_ = static_cast<char*>(frame_.tensors.back().mutable_raw());
      enter(Stage::kRaw, entry.bytes);
      return {};
    }
    enter(Stage::kComplete, 0);
    return {};
  }

  /// Begins the next string, of which none is due that has no bytes. It gets its memory now and is filled as its bytes
  /// come: to fill a large tensor all at once takes so long that this side would seem to be lost.
  Status next_string() {
    for (; string_ < lengths_.size() / 8; ++string_) {
      const auto length = load_number<uint64_t>(lengths_.data() + 8 * string_);
      if (length == 0) continue;
      strings_[string_].reserve(length);
      enter(Stage::kString, length);
      return {};
    }
    lengths_.clear();
    if (lengths_.capacity() > kKeptText) lengths_.shrink_to_fit();
    return next_tensor();
  }

  Status make_tensor() {
    const TableEntry& entry = table_[frame_.tensors.size()];
    if (entry.dtype == DType::kInvalid) {
      frame_.tensors.emplace_back();
      return {};
    }
    auto made = Tensor::make(entry.dtype, entry.shape, allocator_);
    if (!made.ok()) return of_tensor(frame_.tensors.size(), std::move(made).failure());
    frame_.tensors.push_back(std::move(*made));
    return {};
  }

  /// A buffer up to this size is kept for the next frame.
  static constexpr size_t kKeptText = size_t{1} << 16;

  const FrameLimits limits_;
  const std::shared_ptr<Allocator> allocator_;
  Stage stage_ = Stage::kHeader;
  uint64_t size_ = FrameHeader::kBytes, got_ = 0;  // of the stage, in bytes
  std::string text_;                               // header, head or lengths, as far as they have come
  char* raw_ = nullptr;                            // the tensor that is due
  std::string lengths_;                            // of the strings of the tensor that is due
  std::string* strings_ = nullptr;                 // of it
  size_t string_ = 0;                              // the one that is due
  FrameHeader header_;
  std::vector<TableEntry> table_;
  Frame frame_;
};

FrameReader::FrameReader(FrameLimits limits, std::shared_ptr<Allocator> allocator)
    : state_(std::make_unique<State>(limits, std::move(allocator))) {}
FrameReader::~FrameReader() = default;
FrameReader::FrameReader(FrameReader&&) noexcept = default;

Result<size_t> FrameReader::feed(std::span<const char> bytes) try {
  return state_->feed(bytes);
} catch (const std::bad_alloc&) {
  return make_error(Code::kResourceExhausted, "no memory for a frame: {}", state_->progress());
}
Status FrameReader::filled(size_t bytes) try { return state_->filled(bytes); } catch (const std::bad_alloc&) {
  return make_error(Code::kResourceExhausted, "no memory for a frame: {}", state_->progress());
}
std::span<char> FrameReader::direct() { return state_->direct(); }
std::optional<ReceivedFrame> FrameReader::take() { return state_->take(); }
bool FrameReader::in_frame() const { return state_->in_frame(); }
std::string FrameReader::progress() const { return state_->progress(); }

}  // namespace troupe::net
