// SPDX-License-Identifier: Apache-2.0
// The queue of a Batcher: who waits, what is under way. Whatever is called (the session, callbacks) is called without
// the lock.
#include "troupe/batcher.h"

#include <algorithm>
#include <deque>
#include <mutex>

#include "troupe/guarded.h"

namespace troupe {
namespace {

bool same_inner_shape(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.rank() == b.rank() &&
         std::equal(a.shape().begin() + 1, a.shape().end(), b.shape().begin() + 1);
}

}  // namespace

class Batcher::State : public std::enable_shared_from_this<State> {
 public:
  State(Session& session, std::shared_ptr<Session::Prepared> prepared, std::vector<Output> feeds,
        std::vector<Output> fetches, const BatcherOptions& options)
      : session_(session), prepared_(std::move(prepared)), feeds_(std::move(feeds)), fetches_(std::move(fetches)),
        options_(options) {}

  void add(std::vector<Tensor> values, RunCallback done) {
    Request request{std::move(values), std::move(done)};
    if (Status status = check(request); !status.ok()) return answer(request, std::move(status.error()));
    for (const Tensor& t : request.values) t.freeze();
    {
      std::unique_lock lock(mutex_);
      std::optional<Error> refused;
      if (closed_) refused = make_error(Code::kCancelled, "the batcher is closed");
      else if (request.rows > options_.most_waiting - waiting_rows_)
        refused =
            make_error(Code::kResourceExhausted, "{} rows wait already; {} may", waiting_rows_, options_.most_waiting);
      if (refused) {
        lock.unlock();
        return answer(request, std::move(*refused));
      }
      waiting_rows_ += request.rows;
      waiting_.push_back(std::move(request));
    }
    launch();
  }

  void close() {
    std::deque<Request> waiting;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      waiting.swap(waiting_);
      waiting_rows_ = 0;
    }
    for (const Request& request : waiting) answer(request, make_error(Code::kCancelled, "the batcher is closed"));
  }

  Session& session() const { return session_; }
  int64_t steps() const {
    const std::lock_guard lock(mutex_);
    return steps_;
  }
  int64_t rows() const {
    const std::lock_guard lock(mutex_);
    return rows_;
  }

 private:
  struct Request {
    std::vector<Tensor> values;
    RunCallback done;
    int64_t rows = 0;
    bool alone = false;  // it was part of a batch that failed
  };

  static void answer(const Request& request, RunResult result) {
    (void)guarded_call([&] { request.done(std::move(result)); });
  }

  Status check(Request& request) const {
    const std::vector<Tensor>& values = request.values;
    if (values.size() != feeds_.size())
      return invalid_argument("a request of {} values for {} feeds", values.size(), feeds_.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const Tensor& t = values[i];
      const auto wrong = [&](const char* what) {
        return invalid_argument("the value for {} of a request is {}{}; {}", feeds_[i].name(), to_string(t.dtype()),
                                t.shape().str(), what);
      };
      if (t.dtype() == DType::kInvalid || t.dtype() == DType::kResource || t.dtype() == DType::kVariant)
        return wrong("it cannot be part of a batch");
      if (t.dtype() != feeds_[i].dtype()) return wrong("the feed has another dtype");
      if (t.rank() == 0) return wrong("it must have rows");
      if (t.dim(0) != values[0].dim(0)) return wrong("all values must have as many rows");
    }
    request.rows = values[0].dim(0);
    if (request.rows < 1 || request.rows > options_.most_rows)
      return invalid_argument("a request of {} rows; it must have 1 to {}", request.rows, options_.most_rows);
    return {};
  }

  /// Begins batches while there may be more and somebody waits. One thread at a time: a batch that ends within
  /// run_async, as without an engine, must not begin the next one within that.
  void launch() {
    for (bool first = true;; first = false) {
      std::vector<Request> batch;
      int64_t rows = 0;
      {
        const std::lock_guard lock(mutex_);
        if (first && std::exchange(launching_, true)) return;
        if (under_way_ >= options_.most_batches || waiting_.empty()) {
          launching_ = false;
          return;
        }
        batch = take(rows);
        ++under_way_;
        ++steps_;
        rows_ += rows;
      }
      begin(std::move(batch), rows);
    }
  }

  /// Under mutex_: the requests of the next batch.
  std::vector<Request> take(int64_t& rows) {
    std::vector<Request> batch;
    while (!waiting_.empty()) {
      Request& next = waiting_.front();
      if (!batch.empty()) {
        if (next.alone || batch[0].alone || rows + next.rows > options_.most_rows) break;
        bool fits = true;
        for (size_t i = 0; i < next.values.size(); ++i)
          fits = fits && same_inner_shape(batch[0].values[i], next.values[i]);
        if (!fits) break;
      }
      rows += next.rows;
      waiting_rows_ -= next.rows;
      batch.push_back(std::move(next));
      waiting_.pop_front();
    }
    return batch;
  }

  void begin(std::vector<Request> batch, int64_t rows) {
    std::vector<Tensor> values;
    for (size_t i = 0; i < feeds_.size(); ++i) {
      auto joined = joined_rows(batch, i, rows);
      if (!joined.ok()) return ended(std::move(batch), rows, std::move(joined.error()));
      values.push_back(std::move(*joined));
    }
    const auto held = std::make_shared<std::vector<Request>>(std::move(batch));
    session_.run_async(prepared_, std::move(values),
                       [state = shared_from_this(), held, rows](RunResult result) {
                         state->ended(std::move(*held), rows, std::move(result));
                       },
                       {.deadline = options_.deadline});
  }

  void ended(std::vector<Request> batch, int64_t rows, RunResult result) {
    if (result.ok())
      for (size_t i = 0; i < fetches_.size(); ++i)
        if (const Tensor& t = (*result)[i]; t.rank() == 0 || t.dim(0) != rows) {
          result = invalid_argument("{} of a batch of {} rows is {}; it must have a row for each", fetches_[i].name(),
                                    rows, t.shape().str());
          break;
        }
    bool again = false;
    {
      const std::lock_guard lock(mutex_);
      --under_way_;
      again = !result.ok() && batch.size() > 1 && !closed_;
      if (again)
        for (size_t i = batch.size(); i-- > 0;) {
          batch[i].alone = true;
          waiting_rows_ += batch[i].rows;
          waiting_.push_front(std::move(batch[i]));
        }
    }
    if (!again) {
      int64_t at = 0;
      for (const Request& request : batch) {
        answer(request, result.ok() && batch.size() > 1 ? rows_of(*result, at, at + request.rows) : result);
        at += request.rows;
      }
    }
    launch();
  }

  /// The rows of value `i` of all requests, one after the other.
  static Result<Tensor> joined_rows(const std::vector<Request>& requests, size_t i, int64_t rows) {
    const Tensor& first = requests[0].values[i];
    if (requests.size() == 1) return first;
    Shape shape = first.shape();
    shape.set(0, rows);
    TROUPE_ASSIGN(Tensor all, Tensor::make(first.dtype(), shape));
    char* target = static_cast<char*>(all.mutable_raw());
    for (const Request& request : requests) {
      const Tensor& part = request.values[i];
      copy_elements(part.dtype(), part.raw(), target, part.elements());
      target += part.bytes();
    }
    return all;
  }

  static RunResult rows_of(const std::vector<Tensor>& results, int64_t begin, int64_t end) {
    std::vector<Tensor> out;
    for (const Tensor& t : results) {
      TROUPE_ASSIGN(Tensor part, t.slice(begin, end));
      out.push_back(std::move(part));
    }
    return out;
  }

  Session& session_;
  const std::shared_ptr<Session::Prepared> prepared_;
  const std::vector<Output> feeds_, fetches_;
  const BatcherOptions options_;
  mutable std::mutex mutex_;  // guards the rest
  std::deque<Request> waiting_;
  int64_t waiting_rows_ = 0, steps_ = 0, rows_ = 0;
  int under_way_ = 0;
  bool launching_ = false;
  bool closed_ = false;
};

Result<std::unique_ptr<Batcher>> Batcher::create(Session& session, const std::vector<Output>& feeds,
                                                 const std::vector<Output>& fetches, BatcherOptions options) {
  if (feeds.empty() || fetches.empty())
    return invalid_argument("a batcher needs a feed and a fetch, got {} and {}", feeds.size(), fetches.size());
  if (options.most_rows < 1 || options.most_batches < 1 || options.most_waiting < 1)
    return invalid_argument(
        "a batcher's most_rows, most_batches and most_waiting must be at least 1, got {}, {} and {}", options.most_rows,
        options.most_batches, options.most_waiting);
  TROUPE_ASSIGN(std::shared_ptr<Session::Prepared> prepared, session.prepare(feeds, fetches));
  return std::unique_ptr<Batcher>(
      new Batcher(std::make_shared<State>(session, std::move(prepared), feeds, fetches, options)));
}

Batcher::~Batcher() { close(); }
void Batcher::close() { state_->close(); }

void Batcher::run_async(std::vector<Tensor> values, RunCallback done) {
  state_->add(std::move(values), std::move(done));
}

std::future<RunResult> Batcher::run_future(std::vector<Tensor> values) {
  auto promise = std::make_shared<std::promise<RunResult>>();
  auto future = promise->get_future();
  run_async(std::move(values), [promise](RunResult result) { promise->set_value(std::move(result)); });
  return future;
}

RunResult Batcher::run(std::vector<Tensor> values) {
  TROUPE_RETURN_IF_ERROR(state_->session().may_wait("Batcher::run"));
  return run_future(std::move(values)).get();
}

int64_t Batcher::steps() const { return state_->steps(); }
int64_t Batcher::rows() const { return state_->rows(); }

}  // namespace troupe
