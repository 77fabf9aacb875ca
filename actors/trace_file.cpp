// SPDX-License-Identifier: Apache-2.0
// Writes traces as Chrome's JSON.
#include "troupe/trace_file.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/printable.h"
#include "io/file_system.h"

namespace troupe {
namespace {

/// JSON takes neither control characters nor what is not UTF-8, so these show escaped.
std::string json_string(std::string_view text) { return in_quotes(printable(text), '"'); }

/// Nanoseconds as the format's microseconds.
std::string micros(int64_t ns) {
  const uint64_t size = ns < 0 ? -static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", size / 1000, size % 1000);
}

/// What a device does shows in rows of their own where several things may go on at once: beside nodes, on a GPU what
/// the host puts in and what is copied.
enum class Row : uint8_t { kNodes, kLaunches, kCopiesIn, kCopiesOut };
constexpr std::array<std::string_view, 4> kRows = {"", " launches", " copies in", " copies out"};

Row row_of(TraceEvent::Kind kind) {
  switch (kind) {
    case TraceEvent::Kind::kLaunch: return Row::kLaunches;
    case TraceEvent::Kind::kCopyIn: return Row::kCopiesIn;
    case TraceEvent::Kind::kCopyOut: return Row::kCopiesOut;
    default: return Row::kNodes;
  }
}

/// Writes events of an engine with so many devices.
struct EventText {
  size_t devices;

  size_t row_id(size_t device, Row row) const { return device + devices * static_cast<size_t>(row); }
  std::string row_name(size_t device, Row row, const std::string& name) const;
  std::string opening(const TraceEvent& e, char phase, std::string_view prefix, int64_t at_ns) const;
  std::string event(const TraceEvent& e, int64_t origin_ns) const;
};

std::string EventText::row_name(size_t device, Row row, const std::string& name) const {
  return fmt::format(",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":{},\"args\":{{\"name\":{}}}}}",
                     row_id(device, row), json_string(fmt::format("{}{}", name, kRows[static_cast<size_t>(row)])));
}

/// The members that every kind of event has, without the closing brace.
std::string EventText::opening(const TraceEvent& e, char phase, std::string_view prefix, int64_t at_ns) const {
  const std::string name = e.node ? e.node->name() : "";
  const std::string op = e.node ? e.node->op().name() : "";
  return fmt::format(R"({{"ph":"{}","name":{},"cat":{},"pid":1,"tid":{},"ts":{},"args":{{"op":{},"step":{}}})", phase,
                     json_string(std::string(prefix) + name), json_string(phase == 'X' ? op : "resource"),
                     row_id(e.device, row_of(e.kind)), micros(at_ns), json_string(op), e.step);
}

std::string EventText::event(const TraceEvent& e, int64_t origin_ns) const {
  const int64_t begin = e.begin_ns - origin_ns;
  const auto slice = [&](std::string_view prefix) {
    return opening(e, 'X', prefix, begin) + fmt::format(R"(,"dur":{}}})", micros(e.end_ns - e.begin_ns));
  };
  const auto edge = [&](char phase) {
    return opening(e, phase, "", begin) + fmt::format(R"(,"id":"{}.{}"}})", e.step, e.node ? e.node->id() : -1);
  };
  switch (e.kind) {
    case TraceEvent::Kind::kRun: return slice("");
    case TraceEvent::Kind::kSend: return slice("send ");
    case TraceEvent::Kind::kReceive: return slice("receive ");
    case TraceEvent::Kind::kAsk: return edge('b');
    case TraceEvent::Kind::kLaunch: return slice("launch ");
    case TraceEvent::Kind::kCopyIn: return slice("copy in ");
    case TraceEvent::Kind::kCopyOut: return slice("copy out ");
    case TraceEvent::Kind::kAnswer: break;
  }
  return edge('e');
}

}  // namespace

struct TraceFile::State {
  std::unique_ptr<WritableFile> file;
  size_t devices = 0;
  std::optional<int64_t> origin_ns = {};  // the first event that was written first: times start at zero
  bool closed = false;
};

TraceFile::TraceFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
TraceFile::~TraceFile() = default;

Result<std::unique_ptr<TraceFile>> TraceFile::create(const std::string& path, const Engine& engine) {
  auto state = std::make_unique<State>();
  TROUPE_ASSIGN(state->file, make_posix_file_system()->create(path));
  std::string text = R"([{"ph":"M","name":"process_name","pid":1,"args":{"name":"troupe"}})";
  const std::vector<std::string> devices = engine.devices();
  state->devices = devices.size();
  const EventText rows{devices.size()};
  for (size_t i = 0; i < devices.size(); ++i) {
    text += rows.row_name(i, Row::kNodes, devices[i]);
    if (devices[i].find("/device:gpu:") == std::string::npos) continue;
    for (const Row row : {Row::kLaunches, Row::kCopiesIn, Row::kCopiesOut}) text += rows.row_name(i, row, devices[i]);
  }
  TROUPE_RETURN_IF_ERROR(state->file->append(text.data(), text.size()));
  return std::unique_ptr<TraceFile>(new TraceFile(std::move(state)));
}

Status TraceFile::write(std::span<const TraceEvent> events) {
  if (!events.empty() && !state_->origin_ns)
    state_->origin_ns = std::ranges::min(events, {}, &TraceEvent::begin_ns).begin_ns;
  std::string text;
  for (const TraceEvent& e : events) text += ",\n" + EventText{state_->devices}.event(e, *state_->origin_ns);
  return state_->file->append(text.data(), text.size());
}

Status TraceFile::close() {
  if (std::exchange(state_->closed, true)) return {};
  TROUPE_RETURN_IF_ERROR(state_->file->append("]\n", 2));
  return state_->file->close();
}

}  // namespace troupe
