// SPDX-License-Identifier: Apache-2.0
// Reads, the queue they take names from, and the file they read.
#include "ops/input/file_reader.h"

#include "queues/queue.h"

namespace troupe {
namespace {

/// What is read at once, so that small records do not cost a message each.
constexpr size_t kMostRecords = 256, kMostRecordBytes = 1 << 20;

Tensor strings(std::vector<Record>& records, std::string Record::*part, bool scalar) {
  std::vector<std::string> out;
  for (Record& r : records) out.push_back(std::move(r.*part));
  return scalar ? Tensor::scalar(std::move(out[0])) : Tensor::of<std::string>(std::span<const std::string>(out));
}

}  // namespace

void FileReader::read(ResourceRef queue, Reply reply) {
  requests_.push_back({Kind::kOne, 1, std::move(queue), std::move(reply)});
  serve();
}

void FileReader::read_up_to(ResourceRef queue, int64_t n, Reply reply) {
  if (n < 0) return reply(invalid_argument("reader '{}' was asked for {} records", name_, n));
  requests_.push_back({Kind::kUpTo, n, std::move(queue), std::move(reply)});
  serve();
}

void FileReader::reset(Reply reply) {
  requests_.push_back({Kind::kReset, 0, nullptr, std::move(reply)});
  serve();
}

void FileReader::cancel(uint64_t requester, int64_t step) {
  const auto is_cancelled = [&](const Request& r) {
    return r.reply.tag().requester == requester && r.reply.tag().step == step;
  };
  if (waiting_ == Waiting::kQueue && !asker_gone_ && is_cancelled(requests_.front())) {
    asker_gone_ = true;
    host().withdraw(question_);
  }
  std::vector<Reply> cancelled;
  std::erase_if(requests_, [&](Request& r) {
    if (!is_cancelled(r)) return false;
    cancelled.push_back(std::move(r.reply));
    return true;
  });
  for (Reply& reply : cancelled) reply(make_error(Code::kCancelled, "a read of reader '{}' was cancelled", name_));
  serve();
}

void FileReader::answered(uint64_t question, Result<std::vector<Tensor>> outputs) {
  if (waiting_ == Waiting::kNobody || question != question_) return;
  const bool from_queue = std::exchange(waiting_, Waiting::kNobody) == Waiting::kQueue;
  const bool asker_gone = std::exchange(asker_gone_, false);
  if (from_queue && outputs.ok() && (*outputs)[0].elements() != 1)
    outputs = invalid_argument("a queue gave reader '{}' {} instead of the name of a file", name_, (*outputs)[0].str());
  if (from_queue && outputs.ok()) {
    file_ = std::make_shared<File>();
    file_->path = (*outputs)[0].data<std::string>()[0];
  } else if (from_queue && !asker_gone) {
    answer_first(outputs.status());
  } else if (!from_queue && !outputs.ok()) {  // the job did not run, or threw
    file_->status = outputs.status();
  }
  serve();
}

void FileReader::serve() {
  while (!requests_.empty() && waiting_ == Waiting::kNobody && serve_first()) {
  }
}

bool FileReader::serve_first() {
  Request& r = requests_.front();
  if (r.kind == Kind::kReset) {
    file_.reset();
    produced_ = completed_ = 0;
    answer_first({});
  } else if (static_cast<int64_t>(r.records.size()) == r.wanted) {
    answer_first({});
  } else if (!file_) {
    ask_queue(r.queue);
    return false;
  } else if (!file_->records.empty()) {
    r.records.push_back(std::move(file_->records.front()));
    file_->records.pop_front();
    ++produced_;
    if (single_) finish_file();
    if (single_) answer_first({});
  } else if (!file_->status.ok()) {
    const Status status = file_->status;
    if (!file_->source) file_.reset();  // it could not be opened; else it stays, and so does its fault
    answer_first(status);
  } else if (file_->ended) {
    finish_file();
    if (!r.records.empty()) answer_first({});
  } else {
    ask_file();
    return false;
  }
  return true;
}

void FileReader::ask_queue(const ResourceRef& queue) {
  waiting_ = Waiting::kQueue;
  question_ = host().ask(queue, [](Resource& resource, Reply reply) {
    auto* queue = dynamic_cast<Queue*>(&resource);
    if (!queue) return reply(invalid_argument("input 1 is not a queue"));
    const QueueOptions& options = queue->options();
    if (options.dtypes != std::vector{DType::kString} ||
        (!options.shapes.empty() && !options.shapes[0].compatible(Shape())))
      return reply(
          invalid_argument("{} '{}' has other components than the name of a file", queue->kind(), options.name));
    queue->dequeue(std::move(reply));
  });
}

void FileReader::ask_file() {
  waiting_ = Waiting::kFile;
  question_ = host().run_blocking([file = file_, open = open_] {
    if (!file->source) {
      auto source = open(file->path);
      if (!source.ok()) {
        file->status = source.status();
        return;
      }
      file->source = std::move(*source);
    }
    for (size_t bytes = 0; file->records.size() < kMostRecords && bytes < kMostRecordBytes;) {
      auto record = file->source->next();
      if (!record.ok()) file->status = record.status();
      file->ended = !record.ok() || !*record;
      if (file->ended) return;
      bytes += (*record)->value.size();
      file->records.push_back(std::move(**record));
    }
  });
}

void FileReader::answer_first(Status status) {
  Request r = std::move(requests_.front());
  requests_.pop_front();
  if (!status.ok()) return r.reply(std::move(status.error()));
  std::vector<Tensor> out;
  if (r.kind != Kind::kReset) {
    const bool scalar = r.kind == Kind::kOne;
    out.push_back(strings(r.records, &Record::key, scalar));
    out.push_back(strings(r.records, &Record::value, scalar));
  }
  r.reply(std::move(out));
}

void FileReader::finish_file() {
  file_.reset();
  ++completed_;
}

}  // namespace troupe
