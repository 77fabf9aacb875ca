// SPDX-License-Identifier: Apache-2.0
// FileReader: the records of files whose names come from a queue, for TextLineReader and its kin. Implemented in
// ops/input/file_reader.cpp. Source: TensorFlow's ReaderBase.
//
// It waits for nothing: a read that finds no record asks the queue's host for a name, or has the next records of the
// file read where that may wait, and goes on with the answer. One such question is out at a time.
//
// States of the file: none -> (a name came) named -> (its first records came) open -> none at its end. Invariants:
//  1. Requests are answered in the order they came.
//  2. A name taken from a queue is read even when the read that asked for it was cancelled.
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "devices/hosted_resource.h"
#include "io/record_source.h"

namespace troupe {

/// A passive core (see Resource): its host calls it, one call at a time.
class FileReader final : public HostedResource {
 public:
  /// `single`: a file is one record, so it is done with once that is given.
  FileReader(std::string name, OpenSource open, bool single)
      : name_(std::move(name)), open_(std::move(open)), single_(single) {}

  /// Reply: key and value of the next record, scalars. Errors: those of the queue (kOutOfRange once it is closed and
  /// empty) and of the file.
  void read(ResourceRef queue, Reply reply);
  /// Reply: keys and values of up to `n` records, vectors; fewer where a file ends, but at least one of n > 0.
  void read_up_to(ResourceRef queue, int64_t n, Reply reply);
  /// Forgets file and counts, after the reads that came before it.
  void reset(Reply reply);
  int64_t records_produced() const { return produced_; }
  int64_t files_completed() const { return completed_; }

  void cancel(uint64_t requester, int64_t step) override;
  void answered(uint64_t question, Result<std::vector<Tensor>> outputs) override;

 private:
  enum class Kind { kOne, kUpTo, kReset };
  struct Request {
    Kind kind;
    int64_t wanted;
    ResourceRef queue;
    Reply reply;
    std::vector<Record> records = {};
  };
  /// The file at work. While records of it are read elsewhere, it is not touched here.
  struct File {
    std::string path;
    std::unique_ptr<RecordSource> source;
    std::deque<Record> records;  // read, not given yet
    Status status;               // why there are no more
    bool ended = false;
  };
  enum class Waiting { kNobody, kQueue, kFile };

  /// Goes on with the first request until it is answered or must wait; then with the next.
  void serve();
  /// False: it must wait.
  bool serve_first();
  void ask_queue(const ResourceRef& queue);
  void ask_file();
  void answer_first(Status status);
  void finish_file();

  const std::string name_;
  const OpenSource open_;
  const bool single_;
  std::deque<Request> requests_;
  std::shared_ptr<File> file_;
  Waiting waiting_ = Waiting::kNobody;
  uint64_t question_ = 0;
  bool asker_gone_ = false;  // the read that asked the queue was cancelled
  int64_t produced_ = 0, completed_ = 0;
};

}  // namespace troupe
