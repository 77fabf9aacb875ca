// SPDX-License-Identifier: Apache-2.0
// Blocks of threads on fibers.
#include "gpu/fake/block.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "gpu/fake/fibers.h"

namespace troupe::gpu::fake {
namespace {

constexpr size_t kSharedBytes = 48 << 10;  // that a block may have without asking for more
constexpr size_t kMostFaults = 100;

struct Faults {
  std::mutex mutex;
  std::vector<std::string> texts;
};
/// Of the process: kernels have no other way to a test.
Faults& faults() {
  static Faults all;
  return all;
}

std::atomic<uint64_t>& launch_seed() {
  static std::atomic<uint64_t> seed{1};
  return seed;
}

/// A small generator, since one is made for each launch.
class Draw {
 public:
  using result_type = uint64_t;
  explicit Draw(uint64_t seed) : state_(seed) {}
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }
  uint64_t operator()() {  // SplitMix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }

 private:
  uint64_t state_;
};

std::string place(std::source_location where) {
  std::string_view file = where.file_name();
  if (const auto slash = file.rfind('/'); slash != file.npos) file.remove_prefix(slash + 1);
  return fmt::format("{}:{}", file, where.line());
}

bool same_place(std::source_location a, std::source_location b) {
  return a.line() == b.line() && a.column() == b.column() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

/// Lanes of a warp that wait for one another.
struct Exchange {
  unsigned mask = 0, arrived = 0, votes = 0;
  std::source_location where;
  uint64_t values[32];
  int sources[32];
};

struct Warp {
  std::vector<Exchange> open;
  unsigned there = 0;  // lanes that have not returned
};

enum class Wait : uint8_t { kNothing, kBlock, kWarp };

struct Thread {
  Fiber* fiber = nullptr;  // while it is paused
  Wait wait = Wait::kNothing;
  bool done = false;
  std::source_location where;
  uint64_t result = 0;  // of an exchange
};

/// Fibers of one thread of the host, which wait for the next launch: to make them takes longer than most blocks.
std::vector<std::unique_ptr<Fiber>>& idle_fibers() {
  static thread_local std::vector<std::unique_ptr<Fiber>> idle;
  return idle;
}

struct SharedVariable {
  const void* variable;
  std::unique_ptr<char[]> memory;
  size_t bytes;
};

/// All blocks of one launch, one after the other.
class Grid {
 public:
  Grid(const Launch& launch, void (*thread)(void*), void* argument)
      : launch_(launch), thread_(thread), argument_(argument), draw_(launch.seed),
        size_(launch.threads.x * launch.threads.y * launch.threads.z), threads_(size_), warps_((size_ + 31) / 32) {
    at_.block_size = launch.threads;
    at_.grid_size = launch.blocks;
    if (launch.shared_bytes > 0) dynamic_ = std::make_unique<char[]>(launch.shared_bytes);
    order_.resize(size_);
    for (unsigned i = 0; i < size_; ++i) order_[i] = i;
    fibers_.swap(idle_fibers());
    for (const auto& fiber : fibers_) idle_.push_back(fiber.get());
    // Sometimes the order that a GPU's programmer thinks of, or its reverse.
    if (const auto kind = draw_() % 8; kind == 1) std::ranges::reverse(order_);
    else if (kind != 0) std::ranges::shuffle(order_, draw_);
  }

  /// All fibers have returned by then.
  ~Grid() { fibers_.swap(idle_fibers()); }

  void run() {
    const uint64_t count = uint64_t{launch_.blocks.x} * launch_.blocks.y * launch_.blocks.z;
    // Blocks in the order of multiples of a number that has no factor in common with their count.
    uint64_t step = count > 2 ? draw_() % (count - 1) + 1 : 1;
    while (std::gcd(step, count) != 1) ++step;
    uint64_t at = draw_() % count;
    for (uint64_t i = 0; i < count; ++i, at = (at + step) % count) run_block(at);
  }

  const Position& at() const { return at_; }
  unsigned linear() const {
    return at_.thread.x + launch_.threads.x * (at_.thread.y + launch_.threads.y * at_.thread.z);
  }

  void* shared(const void* variable, size_t bytes) {
    for (const SharedVariable& s : shared_)
      if (s.variable == variable) return s.memory.get();
    shared_bytes_ += bytes;
    if (shared_bytes_ + launch_.shared_bytes > kSharedBytes) fault("takes more than 48 KiB of shared memory");
    shared_.push_back({variable, std::make_unique<char[]>(bytes), bytes});
    std::memset(shared_.back().memory.get(), 0xff, bytes);
    return shared_.back().memory.get();
  }
  void* dynamic_shared() {
    if (!dynamic_) fault("has no dynamic shared memory");
    return dynamic_.get();
  }

  void wait_block(std::source_location where) { pause(Wait::kBlock, where); }
  int vote_block(bool value, Vote vote, std::source_location where) {
    if (value) ++votes_;
    pause(Wait::kBlock, where);
    // Told when the barrier opened: the next vote may have begun.
    const auto yes = static_cast<unsigned>(threads_[linear()].result);
    return vote == Vote::kCount ? static_cast<int>(yes) : vote == Vote::kAnd ? yes == size_ : yes > 0;
  }

  uint64_t exchange(unsigned mask, uint64_t value, bool vote, int source, std::source_location where, bool ballot) {
    const unsigned me = linear();
    Warp& warp = warps_[me / 32];
    const unsigned bit = 1u << me % 32;
    if (!(mask & bit)) {
      fault(fmt::format("lane {} is not in its own mask {:#x} at {}", me % 32, mask, place(where)));
      return value;
    }
    auto open =
        std::ranges::find_if(warp.open, [&](const Exchange& e) { return e.mask == mask && !(e.arrived & bit); });
    if (open == warp.open.end()) {
      warp.open.push_back({});
      open = warp.open.end() - 1;
      open->mask = mask;
      open->where = where;
    } else if (!same_place(open->where, where)) {
      fault(fmt::format("lanes of a warp meet at {} and {}", place(open->where), place(where)));
    }
    open->arrived |= bit;
    open->values[me % 32] = value;
    open->sources[me % 32] = ballot ? -1 : source;
    if (vote) open->votes |= bit;
    if (open->arrived == (mask & (warp.there | open->arrived))) {
      finish(me / 32, open - warp.open.begin(), me);
      return threads_[me].result;
    }
    pause(Wait::kWarp, where);
    return threads_[me].result;
  }

  void fault(std::string_view what) {
    add_fault(
        fmt::format("kernel {}, block {},{},{}: {}", launch_.kernel, at_.block.x, at_.block.y, at_.block.z, what));
  }

 private:
  void run_block(uint64_t block) {
    at_.block = dim3(static_cast<unsigned>(block % launch_.blocks.x),
                     static_cast<unsigned>(block / launch_.blocks.x % launch_.blocks.y),
                     static_cast<unsigned>(block / launch_.blocks.x / launch_.blocks.y));
    for (SharedVariable& s : shared_) std::memset(s.memory.get(), 0xff, s.bytes);
    if (dynamic_) std::memset(dynamic_.get(), 0xff, launch_.shared_bytes);
    std::ranges::fill(threads_, Thread());
    for (unsigned w = 0; w < warps_.size(); ++w) {
      warps_[w].open.clear();
      warps_[w].there = size_ - w * 32 >= 32 ? ~0u : (1u << (size_ - w * 32)) - 1;
    }
    next_ = 0;
    left_ = size_;
    waiting_ = 0;
    votes_ = 0;
    ready_.clear();
    while (left_ > 0) {
      if (next_ < size_) {
        begin_threads();
      } else if (!ready_.empty()) {
        const size_t i = ready_.size() > 1 ? draw_() % ready_.size() : 0;
        const unsigned thread = ready_[i];
        ready_[i] = ready_.back();
        ready_.pop_back();
        go_on(thread);
      } else {
        open_barrier();
      }
    }
  }

  /// Runs threads that have not begun, one after the other on one fiber, until one of them waits.
  void begin_threads() {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>());
      idle_.push_back(fibers_.back().get());
    }
    running_ = idle_.back();
    idle_.pop_back();
    if (running_->resume(run_threads, this)) idle_.push_back(running_);
  }
  static void run_threads(void* self) { static_cast<Grid*>(self)->run_threads(); }
  void run_threads() {
    Fiber* const fiber = running_;
    while (next_ < size_) {
      const unsigned thread = order_[next_++];
      set_thread(thread);
      thread_(argument_);
      // It may have gone on much later, with others begun on other fibers.
      running_ = fiber;
      Thread& t = threads_[linear()];
      t.done = true;
      --left_;
      warps_[linear() / 32].there &= ~(1u << linear() % 32);
      if (t.fiber) return;  // who let it go on chooses what comes next
    }
  }
  void go_on(unsigned thread) {
    set_thread(thread);
    running_ = threads_[thread].fiber;
    if (running_->resume(nullptr, nullptr)) idle_.push_back(running_);
  }
  void set_thread(unsigned thread) {
    at_.thread = dim3(thread % launch_.threads.x, thread / launch_.threads.x % launch_.threads.y,
                      thread / launch_.threads.x / launch_.threads.y);
  }

  void pause(Wait wait, std::source_location where) {
    Thread& t = threads_[linear()];
    t.fiber = running_;
    t.wait = wait;
    t.where = where;
    ++waiting_;
    running_->pause();
  }
  void release(unsigned thread) {
    threads_[thread].wait = Wait::kNothing;
    --waiting_;
    ready_.push_back(thread);
  }

  /// All threads wait or have returned, so somebody goes on now, with a fault if CUDA would wait for ever.
  void open_barrier() {
    bool warps = false;
    for (unsigned w = 0; w < warps_.size(); ++w)
      for (size_t i = 0; i < warps_[w].open.size();) {
        warps = true;
        const Exchange& e = warps_[w].open[i];
        // Lanes that have returned are not waited for.
        if (const unsigned missing = e.mask & warps_[w].there & ~e.arrived)
          fault(fmt::format("lanes {:#x} of mask {:#x} never come to {}", missing, e.mask, place(e.where)));
        finish(w, i, ~0u);
      }
    if (warps) return;
    if (waiting_ < size_) {
      const auto waits = std::ranges::find_if(threads_, [](const Thread& t) { return t.wait == Wait::kBlock; });
      fault(fmt::format("{} of {} threads wait at the barrier {}; the others have returned", waiting_, size_,
                        place(waits->where)));
    }
    const Thread* first = nullptr;
    for (unsigned i = 0; i < size_; ++i) {
      if (threads_[i].wait != Wait::kBlock) continue;
      if (first && !same_place(first->where, threads_[i].where)) {
        fault(fmt::format("threads meet at the barriers {} and {}", place(first->where), place(threads_[i].where)));
        first = &threads_[i];
      }
      if (!first) first = &threads_[i];
      threads_[i].result = votes_;
      release(i);
    }
    votes_ = 0;
  }

  /// Gives the lanes of an exchange what they get; `last` goes on by itself.
  void finish(unsigned w, size_t index, unsigned last) {
    Warp& warp = warps_[w];
    const Exchange e = warp.open[index];
    warp.open.erase(warp.open.begin() + static_cast<std::ptrdiff_t>(index));
    for (unsigned l = 0; l < 32; ++l) {
      if (!(e.arrived >> l & 1)) continue;
      Thread& t = threads_[w * 32 + l];
      if (e.sources[l] < 0) {
        t.result = e.votes;
      } else if (e.arrived >> e.sources[l] & 1) {
        t.result = e.values[e.sources[l]];
      } else {
        fault(fmt::format("lane {} reads lane {}, which takes no part, at {}", l, e.sources[l], place(e.where)));
        t.result = ~uint64_t{0};
      }
      if (w * 32 + l != last) release(w * 32 + l);
    }
  }

  const Launch& launch_;
  void (*const thread_)(void*);
  void* const argument_;
  Draw draw_;
  const unsigned size_;  // threads of a block
  Position at_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<unsigned> order_;  // in which threads begin
  std::vector<unsigned> ready_;  // have begun and can go on
  unsigned next_ = 0;            // of order_
  unsigned left_ = 0, waiting_ = 0, votes_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  Fiber* running_ = nullptr;
  std::vector<SharedVariable> shared_;
  std::unique_ptr<char[]> dynamic_;
  size_t shared_bytes_ = 0;
};

thread_local Grid* current = nullptr;

}  // namespace

std::vector<std::string> take_faults() {
  const std::lock_guard lock(faults().mutex);
  return std::exchange(faults().texts, {});
}

void add_fault(std::string text) {
  const std::lock_guard lock(faults().mutex);
  if (faults().texts.size() < kMostFaults) faults().texts.push_back(std::move(text));
}

void seed_launches(uint64_t seed) { launch_seed() = seed; }

bool prepare(Launch& launch) {
  const dim3 b = launch.blocks, t = launch.threads;
  const uint64_t threads = uint64_t{t.x} * t.y * t.z;
  const bool ok = b.x > 0 && b.x < 1u << 31 && b.y > 0 && b.y < 1u << 16 && b.z > 0 && b.z < 1u << 16 && threads > 0 &&
                  threads <= 1024 && t.z <= 64 && launch.shared_bytes <= kSharedBytes;
  if (!ok)
    add_fault(fmt::format("kernel {}: {}x{}x{} blocks of {}x{}x{} threads with {} bytes of shared memory",
                          launch.kernel, b.x, b.y, b.z, t.x, t.y, t.z, launch.shared_bytes));
  if (launch.seed == 0) launch.seed = launch_seed().fetch_add(0x9e3779b97f4a7c15);
  return ok;
}

void run_blocks(const Launch& launch, void (*thread)(void*), void* argument) {
  Grid grid(launch, thread, argument);
  Grid* const before = std::exchange(current, &grid);
  grid.run();
  current = before;
}

const Position& position() { return current->at(); }
void* shared_memory(const void* variable, size_t bytes) { return current->shared(variable, bytes); }
void* dynamic_shared_memory() { return current->dynamic_shared(); }
void wait_block(std::source_location where) { current->wait_block(where); }
int vote_block(bool value, Vote vote, std::source_location where) { return current->vote_block(value, vote, where); }
uint64_t exchange(unsigned mask, uint64_t value, int source, std::source_location where) {
  return current->exchange(mask, value, false, source, where, false);
}
unsigned ballot(unsigned mask, bool value, std::source_location where) {
  return static_cast<unsigned>(current->exchange(mask, 0, value, 0, where, true));
}
int lane() { return static_cast<int>(current->linear() % 32); }

}  // namespace troupe::gpu::fake
