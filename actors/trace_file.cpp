// SPDX-License-Identifier: Apache-2.0
// Writes traces as Chrome's JSON.
#include "troupe/trace_file.h"

#include <algorithm>
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

/// The members that every kind of event has, without the closing brace.
std::string opening(const TraceEvent& e, char phase, std::string_view prefix, int64_t at_ns) {
  const std::string name = e.node ? e.node->name() : "";
  const std::string op = e.node ? e.node->op().name() : "";
  return fmt::format(R"({{"ph":"{}","name":{},"cat":{},"pid":1,"tid":{},"ts":{},"args":{{"op":{},"step":{}}})", phase,
                     json_string(std::string(prefix) + name), json_string(phase == 'X' ? op : "resource"), e.device,
                     micros(at_ns), json_string(op), e.step);
}

std::string json(const TraceEvent& e, int64_t origin_ns) {
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
    case TraceEvent::Kind::kAnswer: break;
  }
  return edge('e');
}

}  // namespace

struct TraceFile::State {
  std::unique_ptr<WritableFile> file;
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
  for (size_t i = 0; i < devices.size(); ++i)
    text += fmt::format(",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":{},\"args\":{{\"name\":{}}}}}", i,
                        json_string(devices[i]));
  TROUPE_RETURN_IF_ERROR(state->file->append(text.data(), text.size()));
  return std::unique_ptr<TraceFile>(new TraceFile(std::move(state)));
}

Status TraceFile::write(std::span<const TraceEvent> events) {
  if (!events.empty() && !state_->origin_ns)
    state_->origin_ns = std::ranges::min(events, {}, &TraceEvent::begin_ns).begin_ns;
  std::string text;
  for (const TraceEvent& e : events) text += ",\n" + json(e, *state_->origin_ns);
  return state_->file->append(text.data(), text.size());
}

Status TraceFile::close() {
  if (std::exchange(state_->closed, true)) return {};
  TROUPE_RETURN_IF_ERROR(state_->file->append("]\n", 2));
  return state_->file->close();
}

}  // namespace troupe
