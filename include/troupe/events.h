// SPDX-License-Identifier: Apache-2.0
// EventWriter: scalars, histograms, images and the graph in files that TensorBoard shows. Implemented in io/events.cpp.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "troupe/export.h"
#include "troupe/tensor.h"

namespace TROUPE_API troupe {

/// Seconds since 1970.
using WallClock = std::function<double()>;

/// Writes one event file of a directory. Thread-safe: any thread may call any function.
/// Events are gathered and written when there are 64 KiB of them, by flush(), as flush_after() says, and at the end.
/// Errors of each function: kInvalidArgument for what cannot be shown, naming the tag (nothing is written then): a tag
/// that is not UTF-8 too; kInternal for what the clock throws; else those of writing the file, kResourceExhausted when
/// the disk is full. What could not be written may end within an event, so all later calls return that error too.
class EventWriter {
 public:
  /// A new file "events.out.tfevents.<time>.<host>.<process>.<n>" in `directory`, which is made where there is none.
  /// `clock` gives the wall time of events; left out, it is the system's. It is called by one thread at a time, and
  /// must not call the writer. `suffix` is added to the name, and must not have a '/'.
  static Result<std::unique_ptr<EventWriter>> open(const std::string& directory, WallClock clock = {},
                                                   const std::string& suffix = {});
  /// Flushes; errors go to the log.
  ~EventWriter();

  Status scalar(std::string_view tag, int64_t step, float value);
  /// The distribution of all elements of a numeric tensor, in TensorFlow's buckets. NaN and infinity are errors.
  Status histogram(std::string_view tag, int64_t step, const Tensor& values);
  /// Images [height, width], [height, width, channels] or a batch [n, height, width, channels], of which the first
  /// `most` are written as "<tag>/0", ...; channels are 1, 3 or 4; uint8, or floats clamped to [0, 1].
  Status image(std::string_view tag, int64_t step, const Tensor& images, int64_t most = 3);
  /// The graph, as the bytes of a GraphDef, which are written as they are.
  Status graph(std::string_view graph_def, int64_t step = 0);
  /// The bytes of a Summary, as the ops of summaries give them. Error: kDataLoss for other bytes.
  Status summary(int64_t step, std::string_view bytes);
  /// The bytes of an Event, with the wall time and step that it has. Error: kDataLoss for other bytes.
  Status event(std::string_view bytes);
  /// Points of `step` and later that were written before, to this file or another one of the directory, count no more,
  /// since training went back and writes them again: TensorBoard leaves them out. TensorFlow's SessionLog START.
  Status begin_again(int64_t step);
  Status flush();
  /// From now on an event flushes after more than `events` since the last flush, or more than `seconds`.
  void flush_after(int64_t events, double seconds);

  const std::string& path() const;

 private:
  struct State;
  explicit EventWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace troupe
