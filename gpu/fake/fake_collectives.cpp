// SPDX-License-Identifier: Apache-2.0
// A collective is a meeting: each rank brings its input, and whoever comes last opens a gate that all streams wait at.
#include "gpu/fake/fake_collectives.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>

#include "gpu/fake/block.h"
#include "gpu/fake/take_due.h"

namespace troupe::gpu {
namespace {

/// The sum of two as kernels of AddN take it.
template <class T> T sum_of_two(T a, T b) {
  if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
    return T(static_cast<float>(a) + static_cast<float>(b));
  else if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else return a + b;
}

template <class T> void add_elements(void* to, const void* from, int64_t count) {
  T* const sums = static_cast<T*>(to);
  const T* const terms = static_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) sums[i] = sum_of_two(sums[i], terms[i]);
}

/// Adds elements to others.
void add_elements(DType dtype, void* to, const void* from, int64_t count) {
  switch (dtype) {
    case DType::kInt8: return add_elements<int8_t>(to, from, count);
    case DType::kUInt8: return add_elements<uint8_t>(to, from, count);
    case DType::kInt32: return add_elements<int32_t>(to, from, count);
    case DType::kUInt32: return add_elements<uint32_t>(to, from, count);
    case DType::kInt64: return add_elements<int64_t>(to, from, count);
    case DType::kUInt64: return add_elements<uint64_t>(to, from, count);
    case DType::kFloat16: return add_elements<float16>(to, from, count);
    case DType::kBFloat16: return add_elements<bfloat16>(to, from, count);
    case DType::kFloat32: return add_elements<float>(to, from, count);
    case DType::kFloat64: return add_elements<double>(to, from, count);
    case DType::kComplex64: return add_elements<complex64>(to, from, count);
    case DType::kComplex128: return add_elements<complex128>(to, from, count);
    default: return;  // launch() has refused it
  }
}

/// One collective under way. The streams' work holds it.
struct Meeting {
  Collective collective;
  std::vector<std::vector<char>> inputs;  // by rank, as it brought them
  std::unique_ptr<Event> gate;
  std::atomic<size_t> left{0};      // ranks that have not come
  std::atomic<bool> broken{false};  // it was ended before

  /// Elements [begin, begin + count) of the sum, in the order of the ranks from `first` on.
  void sum(int64_t begin, int64_t count, size_t first, char* to) const {
    const size_t n = inputs.size(), size = size_of(collective.dtype);
    const auto at = [&](size_t rank) { return inputs[rank % n].data() + static_cast<size_t>(begin) * size; };
    std::memcpy(to, at(first), static_cast<size_t>(count) * size);
    for (size_t i = 1; i < n; ++i) add_elements(collective.dtype, to, at(first + i), count);
  }
  void put_out(size_t rank) const {
    const Collective& c = collective;
    const size_t n = inputs.size(), size = size_of(c.dtype);
    char* const to = static_cast<char*>(c.ranks[rank].output);
    if (broken) {
      std::memset(to, 0xff, static_cast<size_t>(output_elements(c, rank)) * size);
      return;
    }
    switch (c.kind) {
      case Collective::Kind::kAllReduce: {
        const auto all = c.counts[0], chunks = static_cast<int64_t>(n);
        for (int64_t chunk = 0, begin = 0; chunk < chunks; ++chunk) {
          const int64_t count = all / chunks + (chunk < all % chunks ? 1 : 0);
          sum(begin, count, static_cast<size_t>(chunk) + 1, to + static_cast<size_t>(begin) * size);
          begin += count;
        }
        break;
      }
      case Collective::Kind::kReduceScatter: {
        const auto at = c.counts.begin() + static_cast<ptrdiff_t>(rank);
        sum(std::accumulate(c.counts.begin(), at, int64_t{0}), *at, rank + 1, to);
        break;
      }
      case Collective::Kind::kAllGather: {
        char* next = to;
        for (const std::vector<char>& input : inputs) next = std::copy(input.begin(), input.end(), next);
        break;
      }
      case Collective::Kind::kBroadcast: std::ranges::copy(inputs[static_cast<size_t>(c.root)], to); break;
    }
  }
};

}  // namespace

struct FakeCollectives::Shared {
  struct Fault {
    FakeCollectiveCall call;
    int64_t after;
    Code code;
  };
  struct Trouble {  // of a collective
    int64_t after;
    int card;  // that hangs; -1: all do
    Code code;
  };

  Status enter(FakeCollectiveCall call, const char* name) {
    const std::lock_guard lock(mutex);
    const auto due = take_due(faults, [&](const Fault& fault) { return fault.call == call; });
    return due ? Status(make_error(due->code, "{}: failed as the test asked", name)) : Status();
  }
  /// A call that older libraries lack; it is counted.
  Status enter_new(const char* name, int Counts::*count) {
    const std::lock_guard lock(mutex);
    if (old) return make_error(Code::kUnimplemented, "{}: the library is too old", name);
    ++(counts.*count);
    return {};
  }
  /// What befalls the collective that is launched now.
  std::optional<Trouble> trouble() {
    const std::lock_guard lock(mutex);
    ++counts.launched;
    return take_due(troubles, [](const Trouble&) { return true; });
  }
  template <class F> auto locked(F&& f) {
    const std::lock_guard lock(mutex);
    return f();
  }

  std::shared_ptr<FakeRuntime> runtime;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Fault> faults;
  std::vector<Trouble> troubles;
  int polls = 0;
  bool aborts_blocked = false, old = false;
  Counts counts;
};

class FakeCollectives::Comm final : public Communicator {
 public:
  Comm(std::shared_ptr<Shared> shared, std::vector<int> cards) : shared_(std::move(shared)), cards_(std::move(cards)) {
    shared_->locked([&] { ++shared_->counts.alive; });
    begin();
  }
  ~Comm() override {
    if (!aborted_) fake::add_fault("a communicator went without an abort");
    shared_->locked([&] { --shared_->counts.alive; });
  }

  std::span<const int> cards() const override { return cards_; }

  Result<bool> ready() override {
    TROUPE_RETURN_IF_ERROR(shared_->enter(FakeCollectiveCall::kReady, "Communicator::ready"));
    std::erase_if(meetings_, [](const auto& meeting) { return meeting.expired(); });
    if (!revoked_) {
      for (const int card : cards_)
        if (shared_->runtime->is_lost(card))
          return make_error(Code::kUnavailable, "Communicator::ready: card {} is lost", card);
      TROUPE_RETURN_IF_ERROR(told_);
    }
    return polls_ == 0 || polls_-- == 0;
  }

  Status launch(const Collective& c, std::span<Stream* const> streams) override {
    TROUPE_RETURN_IF_ERROR(shared_->enter(FakeCollectiveCall::kLaunch, "Communicator::launch"));
    TROUPE_RETURN_IF_ERROR(check(c, streams));
    auto meeting = std::make_shared<Meeting>();
    meeting->collective = c;
    meeting->inputs.resize(cards_.size());
    meeting->left = cards_.size();
    TROUPE_ASSIGN(meeting->gate, shared_->runtime->make_gate(cards_[0]));
    meetings_.push_back(meeting);
    const auto trouble = shared_->trouble();
    if (trouble && trouble->card < 0)
      told_ = make_error(trouble->code, "Communicator::ready: failed as the test asked");
    for (size_t rank = 0; rank < cards_.size(); ++rank) {
      const bool hangs = trouble && (trouble->card < 0 || trouble->card == cards_[rank]);
      TROUPE_RETURN_IF_ERROR(put(meeting, rank, *streams[rank], hangs));
    }
    begin();
    return {};
  }

  Status revoke() override {
    TROUPE_RETURN_IF_ERROR(shared_->enter(FakeCollectiveCall::kRevoke, "Communicator::revoke"));
    TROUPE_RETURN_IF_ERROR(shared_->enter_new("Communicator::revoke", &Counts::revoked));
    end_meetings();
    revoked_ = true;
    begin();
    return {};
  }

  Result<std::unique_ptr<Communicator>> shrink(std::span<const int> without) override {
    TROUPE_RETURN_IF_ERROR(shared_->enter(FakeCollectiveCall::kShrink, "Communicator::shrink"));
    TROUPE_RETURN_IF_ERROR(shared_->enter_new("Communicator::shrink", &Counts::shrunk));
    std::vector<int> left;
    for (size_t rank = 0; rank < cards_.size(); ++rank)
      if (std::ranges::find(without, static_cast<int>(rank)) == without.end()) left.push_back(cards_[rank]);
    if (left.size() < 2 || left.size() == cards_.size())
      return make_error(Code::kInternal, "Communicator::shrink from {} ranks to {}", cards_.size(), left.size());
    return std::unique_ptr<Communicator>(new Comm(shared_, std::move(left)));
  }

  void abort() override {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait(lock, [&] { return !shared_->aborts_blocked; });
    ++shared_->counts.aborted;
    aborted_ = true;
    lock.unlock();
    end_meetings();
  }

 private:
  /// Something is in progress from now on.
  void begin() {
    polls_ = shared_->locked([&] { return shared_->polls; });
  }

  Status check(const Collective& c, std::span<Stream* const> streams) const {
    const bool sums = c.kind == Collective::Kind::kAllReduce || c.kind == Collective::Kind::kReduceScatter;
    const bool chunks = c.kind == Collective::Kind::kReduceScatter || c.kind == Collective::Kind::kAllGather;
    const size_t n = cards_.size();
    bool right = c.ranks.size() == n && streams.size() == n && c.counts.size() == (chunks ? n : 1) && c.root >= 0 &&
                 c.root < static_cast<int>(n) && (!sums || can_sum(c.dtype)) && !is_object(c.dtype);
    for (size_t i = 0; right && i < n; ++i) right = streams[i]->card() == cards_[i];
    if (right && std::ranges::all_of(c.counts, [](int64_t count) { return count >= 0; })) return {};
    fake::add_fault(fmt::format("a {} of {} that libraries do not have", to_string(c.kind), to_string(c.dtype)));
    return make_error(Code::kInternal, "no such collective");
  }

  Status put(const std::shared_ptr<Meeting>& meeting, size_t rank, Stream& stream, bool hangs) {
    const Collective& c = meeting->collective;
    const bool reads = c.kind != Collective::Kind::kBroadcast || static_cast<int>(rank) == c.root;
    const size_t in = reads ? static_cast<size_t>(input_elements(c, rank)) * size_of(c.dtype) : 0;
    const bool writes = c.kind != Collective::Kind::kBroadcast || !reads;
    const size_t out = writes ? static_cast<size_t>(output_elements(c, rank)) * size_of(c.dtype) : 0;
    const Access input{c.ranks[rank].input, in, false}, output{c.ranks[rank].output, out, true};
    if (!hangs) {
      stream.uses({&input, in > 0 ? size_t{1} : 0});
      stream.enqueue([meeting, rank, in, known = std::weak_ptr(shared_->runtime)] {
        const auto* from = static_cast<const char*>(meeting->collective.ranks[rank].input);
        if (in > 0) meeting->inputs[rank].assign(from, from + in);
        const auto runtime = known.lock();
        if (meeting->left.fetch_sub(1) == 1 && runtime) runtime->open(*meeting->gate);
      });
    }
    Status waits = stream.wait(*meeting->gate);
    stream.uses({&output, out > 0 ? size_t{1} : 0});
    stream.enqueue([meeting, rank, writes] {
      if (writes) meeting->put_out(rank);
    });
    stream.uses({});
    TROUPE_RETURN_IF_ERROR(std::move(waits));
    return stream.check_launch(to_string(c.kind));
  }

  void end_meetings() {
    for (const auto& known : meetings_)
      if (const auto meeting = known.lock(); meeting && meeting->left > 0) {
        meeting->broken = true;
        shared_->runtime->open(*meeting->gate);
      }
    meetings_.clear();
  }

  const std::shared_ptr<Shared> shared_;
  const std::vector<int> cards_;
  std::vector<std::weak_ptr<Meeting>> meetings_;
  Status told_;    // what ready() tells
  int polls_ = 0;  // calls of ready() until it says true
  bool revoked_ = false, aborted_ = false;
};

FakeCollectives::FakeCollectives(std::shared_ptr<FakeRuntime> runtime) : shared_(std::make_shared<Shared>()) {
  shared_->runtime = std::move(runtime);
}

FakeCollectives::~FakeCollectives() = default;

Result<std::unique_ptr<Communicator>> FakeCollectives::make(std::span<const int> cards) {
  TROUPE_RETURN_IF_ERROR(shared_->enter(FakeCollectiveCall::kMake, "Collectives::make"));
  std::vector<int> sorted(cards.begin(), cards.end());
  std::ranges::sort(sorted);
  const auto there = static_cast<int>(shared_->runtime->cards().size());
  if (sorted.size() < 2 || sorted.front() < 0 || sorted.back() >= there ||
      std::ranges::adjacent_find(sorted) != sorted.end())
    return make_error(Code::kInternal, "Collectives::make: not of distinct cards of {}", there);
  for (const int card : sorted)
    if (shared_->runtime->is_lost(card))
      return make_error(Code::kUnavailable, "Collectives::make: card {} is lost", card);
  shared_->locked([&] { ++shared_->counts.made; });
  return std::unique_ptr<Communicator>(new Comm(shared_, {cards.begin(), cards.end()}));
}

void FakeCollectives::fail(FakeCollectiveCall call, int64_t n, Code code) {
  shared_->locked([&] { shared_->faults.push_back({call, n, code}); });
}

void FakeCollectives::hang(int card, int64_t n) {
  shared_->locked([&] { shared_->troubles.push_back({n, card, Code::kInternal}); });
}

void FakeCollectives::break_down(int64_t n, Code code) {
  shared_->locked([&] { shared_->troubles.push_back({n, -1, code}); });
}

void FakeCollectives::be_slow(int polls) {
  shared_->locked([&] { shared_->polls = polls; });
}

void FakeCollectives::block_aborts(bool block) {
  shared_->locked([&] { shared_->aborts_blocked = block; });
  shared_->changed.notify_all();
}

void FakeCollectives::be_old() {
  shared_->locked([&] { shared_->old = true; });
}

FakeCollectives::Counts FakeCollectives::counts() const {
  return shared_->locked([&] { return shared_->counts; });
}

}  // namespace troupe::gpu
