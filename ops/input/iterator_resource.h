// SPDX-License-Identifier: Apache-2.0
// IteratorResource: an iterator over a dataset, which produces elements ahead of those who ask. Implemented in
// ops/input/iterator_resource.cpp.
//
// A dataset that never waits produces at the host, between requests. Any other produces in a job of the host's, on a
// thread where it may wait: the job fills a buffer that it shares with the resource and ends when that is full, so a
// request finds its element ready, without a message to anybody. Only when somebody waits does the job wake the host.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "devices/hosted_resource.h"
#include "io/dataset_stages.h"
#include "troupe/dataset.h"
#include "troupe/kernel.h"

namespace troupe {

/// ResourceHandle::host_key of the iterator over the dataset of that name.
std::string iterator_key(const std::string& name);

/// A passive core (see Resource): its host calls it, one call at a time. When it goes, or starts again, while next()
/// waits, that iterator is cancelled and left to its job: an element that it still gives is dropped.
class IteratorResource final : public HostedResource {
 public:
  enum class Begin { kAtOnce, kWhenAsked };
  /// With kWhenAsked nothing of the dataset is read, and no file opened, before the first request: what is read then is
  /// what is there then. Throws what the dataset's may_wait() throws.
  explicit IteratorResource(Dataset dataset, Begin begin = Begin::kAtOnce);
  /// Over no dataset yet: `name` is what errors call it.
  explicit IteratorResource(std::string name);
  /// Over a dataset of a graph, whose functions the host calls; see set_dataset().
  IteratorResource(StagePtr stage, int64_t ahead);
  ~IteratorResource() override;
  /// Answers with the next element, kOutOfRange at the end, or the element's error; in the order of asking.
  void get_next(Reply reply);
  /// Starts again from the first element; what was produced ahead is dropped, those that wait go on waiting.
  void restart();
  /// From now on over the elements of `stage`, from the first one on: `ahead` of them are produced before they are
  /// asked for, and as many more as a dataset that a function gives asks for (Pass::ahead).
  void set_dataset(StagePtr stage, int64_t ahead);
  /// Over no dataset any more.
  void clear();
  /// Its host is not asked for anything any more: it may go before this.
  void detach() { host_ = nullptr; }

  void attach(ResourceHost& host) override;
  void cancel(uint64_t requester, int64_t step) override;
  void woken() override { serve(); }
  bool wants_work() const override;
  /// Of a dataset that never waits: produces one element, for the request that waits longest, else ahead.
  void work() override;

 private:
  class Producer;
  void serve();
  /// Ends the iterator, on a thread where that may take its time.
  void let_go(std::shared_ptr<Producer> producer);

  /// A dataset, and how many of its elements are wanted ahead.
  struct Source {
    Dataset dataset;
    std::shared_ptr<const std::atomic<int64_t>> ahead;
    bool may_wait = true;  // as the dataset says
  };
  Source bind(StagePtr stage, int64_t ahead);

  const std::string name_;
  std::optional<Source> source_;
  StagePtr unbound_;   // of a graph, until there is a host
  int64_t ahead_ = 0;  // of unbound_
  friend class AnonymousIterators;
  std::atomic<uint64_t> of_ = 0;  // AnonymousIterators::number_ of those that call it; 0: none, or another host
  ResourceHost* host_ = nullptr;
  std::shared_ptr<Producer> producer_;  // where there is a source
  std::deque<Reply> waiting_;
  bool begun_ = true;
};

/// A handle of an iterator without a name, which lives as long as its handle.
struct AnonymousIterator final : ResourceHandle {
  AnonymousIterator();
  const std::shared_ptr<IteratorResource> core;
};

/// The host of all iterators without a name: a passive core that calls theirs.
class AnonymousIterators final : public HostedResource {
 public:
  AnonymousIterators();
  /// The core of a handle. Error: others have used it, of another engine or before the container was reset.
  Result<IteratorResource*> use(const AnonymousIterator& handle);
  void cancel(uint64_t requester, int64_t step) override;
  void woken() override;
  bool wants_work() const override;
  void work() override;

 private:
  const uint64_t number_;  // of all that a process makes; an address might come again
  std::vector<std::weak_ptr<IteratorResource>> known_;
};

/// The iterator that a request is for. Otherwise replies an error and returns nullptr.
IteratorResource* iterator_of(Resource& resource, ResourceRequest& request);

}  // namespace troupe
