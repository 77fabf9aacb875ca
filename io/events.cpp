// SPDX-License-Identifier: Apache-2.0
// Event files: one Event message a record. The writer's mutex covers the file alone; messages are made outside it.
#include "troupe/events.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <mutex>

#include "base/log.h"
#include "base/printable.h"
#include "io/event.pb.h"
#include "io/file_system.h"
#include "io/numbers.h"
#include "io/summary.h"
#include "io/tfrecord.h"
#include "troupe/guarded.h"

namespace troupe {
namespace {

double system_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

constexpr double kMostSeconds = 1e15;

/// Makes a file of this name; false where there is one. Other faults are left to whoever opens it.
bool claim(const std::string& path) {
  int fd;
  do fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) return errno != EEXIST;
  ::close(fd);
  return true;
}

/// kInvalidArgument for a tag that is not UTF-8, for which readers refuse the whole file.
Status check_tag(std::string_view tag) {
  for (size_t at = 0; at < tag.size();) {
    const size_t bytes = utf8_character(tag.substr(at));
    if (bytes == 0) return invalid_argument("tag '{}' is not UTF-8 at byte {}", tag, at);
    at += bytes;
  }
  return {};
}

/// Bytes of pixels, whatever the images' dtype.
Result<Tensor> to_pixels(const Tensor& images) {
  if (images.dtype() == DType::kUInt8) return images;
  TROUPE_ASSIGN(Tensor out, Tensor::make(DType::kUInt8, images.shape()));
  const std::vector<double> values = as_doubles(images);
  uint8_t* pixel = out.mutable_data<uint8_t>();
  for (const double v : values)
    *pixel++ = v > 0 ? static_cast<uint8_t>(std::lround(std::min(v, 1.0) * 255)) : uint8_t{0};
  return out;
}

}  // namespace

struct EventWriter::State {
  State(RecordWriter w, std::string p, WallClock c) : writer(std::move(w)), path(std::move(p)), clock(std::move(c)) {}
  std::mutex mutex;  // guards writer and clock
  RecordWriter writer;
  const std::string path;
  WallClock clock;
  int64_t most_events = INT64_MAX, events = 0;  // since the last flush
  double most_seconds = kMostSeconds, flushed = 0;

  Status write(proto::Event event, bool stamp = true) {
    std::lock_guard guard(mutex);
    double now = 0;
    TROUPE_RETURN_IF_ERROR(guarded_call([&] { now = clock(); }));
    if (stamp) event.set_wall_time(now);
    TROUPE_RETURN_IF_ERROR(writer.write(event.SerializeAsString()));
    if (++events <= most_events && now - flushed <= most_seconds) return {};
    flushed = now;
    return flush();
  }
  /// Under the mutex.
  Status flush() {
    events = 0;
    return writer.flush();
  }
};

EventWriter::EventWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

EventWriter::~EventWriter() {
  if (Status status = flush(); !status.ok()) log_warning("events lost: {}", status.error().str());
}

Result<std::unique_ptr<EventWriter>> EventWriter::open(const std::string& directory, WallClock clock,
                                                       const std::string& suffix) {
  if (suffix.find('/') != std::string::npos)
    return invalid_argument("the suffix of an event file must not have a '/', got \"{}\"", suffix);
  if (!clock) clock = system_seconds;
  const auto files = make_posix_file_system();
  TROUPE_RETURN_IF_ERROR(files->make_directories(directory));
  TROUPE_ASSIGN(const double now, guarded([&] { return Result<double>(clock()); }));
  if (!(std::abs(now) < kMostSeconds)) return invalid_argument("the clock of event files gives {} seconds", now);
  const std::string stem =
      fmt::format("{}/events.out.tfevents.{:010}.{}.{}", directory, static_cast<int64_t>(now), host_name(), ::getpid());
  std::string path;
  for (int n = 0; path.empty() || !claim(path); ++n) path = fmt::format("{}.{}{}", stem, n, suffix);
  TROUPE_ASSIGN(RecordWriter writer, RecordWriter::create(*files, path));
  std::unique_ptr<EventWriter> out(new EventWriter(std::make_unique<State>(std::move(writer), path, std::move(clock))));
  out->state_->flushed = now;
  proto::Event event;
  event.set_file_version("brain.Event:2");
  TROUPE_RETURN_IF_ERROR(out->state_->write(std::move(event)));
  TROUPE_RETURN_IF_ERROR(out->flush());
  return out;
}

Status EventWriter::scalar(std::string_view tag, int64_t step, float value) {
  TROUPE_RETURN_IF_ERROR(check_tag(tag));
  proto::Event event;
  event.set_step(step);
  auto* v = event.mutable_summary()->add_value();
  v->set_tag(std::string(tag));
  v->set_simple_value(value);
  return state_->write(std::move(event));
}

Status EventWriter::histogram(std::string_view tag, int64_t step, const Tensor& values) {
  TROUPE_RETURN_IF_ERROR(check_tag(tag));
  proto::Event event;
  event.set_step(step);
  TROUPE_RETURN_IF_ERROR(add_histogram(tag, values, *event.mutable_summary()));
  return state_->write(std::move(event));
}

Status EventWriter::image(std::string_view tag, int64_t step, const Tensor& images, int64_t most) {
  TROUPE_RETURN_IF_ERROR(check_tag(tag));
  const int rank = images.rank();
  const bool batch = rank == 4;
  const int at = batch ? 1 : 0;  // of the height
  const int64_t channels = rank >= 3 ? images.dim(-1) : 1;
  constexpr int64_t kMostSide = 1 << 15;
  if (rank < 2 || rank > 4 || (channels != 1 && channels != 3 && channels != 4) ||
      !(images.dtype() == DType::kUInt8 || is_floating(images.dtype())) || images.dim(at) < 1 ||
      images.dim(at + 1) < 1 || images.dim(at) > kMostSide || images.dim(at + 1) > kMostSide)
    return invalid_argument(
        "image '{}' of {}{}: it needs uint8 or floats [height, width], [height, width, 1|3|4] or a batch", tag,
        to_string(images.dtype()), images.shape().str());
  const int64_t height = images.dim(at), width = images.dim(at + 1);
  const int64_t count = batch ? std::clamp<int64_t>(most, 0, images.dim(0)) : 1;
  Tensor wanted = images;
  if (batch) {
    TROUPE_ASSIGN(wanted, images.slice(0, count));
  }
  TROUPE_ASSIGN(const Tensor pixels, to_pixels(wanted));
  proto::Event event;
  event.set_step(step);
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* first = pixels.data<uint8_t>() + i * height * width * channels;
    TROUPE_RETURN_IF_ERROR(add_image(batch ? fmt::format("{}/{}", tag, i) : std::string(tag), first, height, width,
                                     channels, *event.mutable_summary()));
  }
  return count > 0 ? state_->write(std::move(event)) : Status();
}

Status EventWriter::graph(std::string_view graph_def, int64_t step) {
  proto::Event event;
  event.set_step(step);
  event.set_graph_def(std::string(graph_def));
  return state_->write(std::move(event));
}

Status EventWriter::begin_again(int64_t step) {
  proto::Event event;
  event.set_step(step);
  event.mutable_session_log()->set_status(proto::SessionLog::START);
  return state_->write(std::move(event));
}

Status EventWriter::summary(int64_t step, std::string_view bytes) {
  proto::Event event;
  event.set_step(step);
  if (bytes.size() > INT32_MAX ||
      !event.mutable_summary()->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return make_error(Code::kDataLoss, "{} bytes are not a Summary", bytes.size());
  for (const auto& value : event.summary().value()) TROUPE_RETURN_IF_ERROR(check_tag(value.tag()));
  return state_->write(std::move(event));
}

Status EventWriter::event(std::string_view bytes) {
  proto::Event event;
  if (bytes.size() > INT32_MAX || !event.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return make_error(Code::kDataLoss, "{} bytes are not an Event", bytes.size());
  for (const auto& value : event.summary().value()) TROUPE_RETURN_IF_ERROR(check_tag(value.tag()));
  return state_->write(std::move(event), false);
}

Status EventWriter::flush() {
  std::lock_guard guard(state_->mutex);
  return state_->flush();
}

void EventWriter::flush_after(int64_t events, double seconds) {
  std::lock_guard guard(state_->mutex);
  state_->most_events = events;
  state_->most_seconds = seconds;
}

const std::string& EventWriter::path() const { return state_->path; }

}  // namespace troupe
