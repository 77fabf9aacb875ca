// SPDX-License-Identifier: Apache-2.0
// TraceFile: traces in files that Perfetto and chrome://tracing open. Implemented in actors/trace_file.cpp.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "troupe/engine.h"
#include "troupe/export.h"
#include "troupe/trace.h"

namespace TROUPE_API troupe {

/// A file in Chrome's trace format: devices are threads, nodes slices, requests to resources arrows of their own from
/// asking to answer. Written as it goes, so that a long run needs no memory for it. One thread at a time.
/// Errors of each function: those of writing the file, kResourceExhausted when the disk is full.
class TraceFile {
 public:
  static Result<std::unique_ptr<TraceFile>> create(const std::string& path, const Engine& engine);
  /// Closes the file; without close() its last line is missing, which viewers forgive.
  ~TraceFile();
  Status write(std::span<const TraceEvent> events);
  Status close();

 private:
  struct State;
  explicit TraceFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace troupe
