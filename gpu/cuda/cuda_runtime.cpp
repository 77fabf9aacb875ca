// SPDX-License-Identifier: Apache-2.0
// CUDA behind gpu/runtime.h: cudart, which is linked statically and loads the driver by itself, and the driver's
// functions for virtual memory.
//
// It has run on one H100. Not seen on a card yet: the errors that lose one, mapping with access by peers, copies
// between cards that are not connected.
#include "gpu/cuda_runtime.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <vector>

#include "base/check.h"
#include "gpu/cuda/cuda_calls.h"

namespace troupe::gpu {
namespace {

class CudaEvent final : public Event {
 public:
  CudaEvent(CudaCalls& calls, cudaEvent_t event) : calls_(calls), event_(event) {}
  ~CudaEvent() override { (void)cudaEventDestroy(event_); }

  Result<bool> done() override {
    TROUPE_RETURN_IF_ERROR(calls_.enter("Event::done"));
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    TROUPE_RETURN_IF_ERROR(calls_.check(state, "Event::done"));
    return true;
  }

  Status wait() override {
    TROUPE_RETURN_IF_ERROR(calls_.enter("Event::wait"));
    return calls_.check(cudaEventSynchronize(event_), "Event::wait");
  }

  Result<double> us_since(const Event& earlier) const override {
    TROUPE_RETURN_IF_ERROR(calls_.enter("Event::us_since"));
    float ms = 0;
    const auto& start = static_cast<const CudaEvent&>(earlier);
    TROUPE_RETURN_IF_ERROR(calls_.check(cudaEventElapsedTime(&ms, start.event_, event_), "Event::us_since"));
    return double{ms} * 1000;
  }

  cudaEvent_t native() const { return event_; }

 private:
  CudaCalls& calls_;
  const cudaEvent_t event_;
};

/// One card, and whose streams may use its memory.
struct CudaCard {
  explicit CudaCard(int card) : calls(card) {}
  CudaCalls calls;
  size_t granularity = 0;
  std::set<int> used_by;  // itself, and cards that were connected to it
};

class CudaRuntime final : public Runtime {
 public:
  Status open();

  std::span<const Card> cards() const override { return cards_; }
  Result<std::unique_ptr<Stream>> make_stream(int card, bool urgent) override;
  Result<std::unique_ptr<Event>> make_event(int card, bool timed) override;
  Result<bool> connect(int card, int peer) override;
  Result<void*> reserve(int card, size_t bytes) override;
  void unreserve(void* at, size_t bytes) override;
  Status map(int card, void* at, size_t bytes) override;
  void unmap(void* at, size_t bytes) override;
  size_t granularity(int card) const override { return states_[card]->granularity; }
  Result<int64_t> free_memory(int card) const override;
  Result<void*> pin(size_t bytes) override;
  void unpin(void* at, size_t bytes) override;

  /// The card at whose reserved addresses `at` lies; -1: at none.
  int card_of(const void* at) const;
  bool may_use(int card, int owner) const;

 private:
  Status enter(int card, const char* call) const;
  Result<Card> describe(int card) const;
  /// One that is in use and not lost, if there is such.
  int pinning_card() const;

  std::vector<Card> cards_;
  std::vector<std::unique_ptr<CudaCard>> states_;
  CudaDriver driver_;
  std::vector<std::atomic<bool>> in_use_;  // by card: it has a stream; pinning makes a context of its card
  mutable std::shared_mutex mutex_;        // for used_by and:
  std::map<const char*, std::pair<size_t, int>> reserved_;
};

class CudaStream final : public Stream {
 public:
  CudaStream(CudaRuntime& runtime, CudaCalls& calls, int card, cudaStream_t stream)
      : runtime_(runtime), calls_(calls), card_(card), stream_(stream) {}
  ~CudaStream() override {
    (void)cudaSetDevice(card_);
    if (!calls_.lost()) (void)calls_.check(cudaStreamSynchronize(stream_), "the end of a stream");
    (void)calls_.check(cudaStreamDestroy(stream_), "the end of a stream");
  }

  int card() const override { return card_; }
  /// For each launch: asking which card the thread has takes a part of what setting it does. What the thread's last
  /// error was before, perhaps of another card that is lost, is not the launch's.
  void* native() const override {
    int card = -1;
    if (cudaGetDevice(&card) != cudaSuccess || card != card_) (void)cudaSetDevice(card_);
    (void)cudaGetLastError();
    return stream_;
  }

  Status record(Event& event) override {
    TROUPE_RETURN_IF_ERROR(calls_.enter("Stream::record"));
    return calls_.check(cudaEventRecord(static_cast<CudaEvent&>(event).native(), stream_), "Stream::record");
  }

  Status wait(const Event& event) override {
    TROUPE_RETURN_IF_ERROR(calls_.enter("Stream::wait"));
    return calls_.check(cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).native(), 0), "Stream::wait");
  }

  Status copy(void* to, const void* from, size_t bytes) override {
    TROUPE_RETURN_IF_ERROR(calls_.enter("Stream::copy"));
    const int to_card = runtime_.card_of(to), from_card = runtime_.card_of(from);
    // Memory that the driver mapped for one card alone is another's to copy only by the call that names both.
    const bool between = to_card >= 0 && from_card >= 0 && to_card != from_card;
    if (between && !(runtime_.may_use(card_, to_card) && runtime_.may_use(card_, from_card)))
      return calls_.check(cudaMemcpyPeerAsync(to, to_card, from, from_card, bytes, stream_), "Stream::copy");
    return calls_.check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "Stream::copy");
  }

  Status fill(void* at, int byte, size_t bytes) override {
    TROUPE_RETURN_IF_ERROR(calls_.enter("Stream::fill"));
    return calls_.check(cudaMemsetAsync(at, byte, bytes, stream_), "Stream::fill");
  }

  Status check_launch(const char* kernel) override {
    const cudaError_t launched = cudaGetLastError();
    if (calls_.lost()) return calls_.enter(kernel);
    return calls_.check(launched, kernel);
  }

  void uses(std::span<const Access>) override {}
  void enqueue(std::function<void()>) override { TROUPE_CHECK(!"work of the host is for the fake"); }

 private:
  CudaRuntime& runtime_;
  CudaCalls& calls_;
  const int card_;
  const cudaStream_t stream_;
};

Error no_cuda(std::string_view why) { return make_error(Code::kUnavailable, "CUDA: {}", why); }

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

Status CudaRuntime::open() {
  int driver = 0, built = 0, count = 0;
  (void)cudaRuntimeGetVersion(&built);
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    (void)cudaGetLastError();
    return no_cuda(fmt::format("there is no driver; one for CUDA {} or later is needed", version_text(built)));
  }
  const cudaError_t counted = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (counted == cudaErrorInsufficientDriver)
    return no_cuda(fmt::format("the driver is for CUDA {}, and one for CUDA {} or later is needed",
                               version_text(driver), version_text(built)));
  if (counted == cudaErrorNoDevice || (counted == cudaSuccess && count == 0)) return no_cuda("there is no card");
  if (counted != cudaSuccess) return no_cuda(cudaGetErrorString(counted));
  TROUPE_RETURN_IF_ERROR(driver_.load());
  for (int i = 0; i < count; ++i) {
    auto state = std::make_unique<CudaCard>(i);
    state->used_by.insert(i);
    const CUmemAllocationProp_v1 memory = memory_of(i);
    TROUPE_RETURN_IF_ERROR(state->calls.check(
        driver_.granularity(&state->granularity, &memory, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "Runtime::granularity"));
    states_.push_back(std::move(state));
    TROUPE_ASSIGN(Card card, describe(i));
    cards_.push_back(std::move(card));
  }
  in_use_ = std::vector<std::atomic<bool>>(cards_.size());
  return {};
}

Result<Card> CudaRuntime::describe(int card) const {
  const char* const call = "Runtime::cards";
  cudaDeviceProp properties;
  int clock_khz = 0, memory_khz = 0, bus_bits = 0;
  CudaCalls& calls = states_[card]->calls;
  TROUPE_RETURN_IF_ERROR(calls.check(cudaGetDeviceProperties(&properties, card), call));
  TROUPE_RETURN_IF_ERROR(calls.check(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, card), call));
  TROUPE_RETURN_IF_ERROR(calls.check(cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, card), call));
  TROUPE_RETURN_IF_ERROR(calls.check(cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, card), call));
  Card out{properties.name, properties.major, properties.minor, properties.multiProcessorCount};
  out.memory = static_cast<int64_t>(properties.totalGlobalMem);
  // Units for float32 of a multiprocessor: 64 in Volta, Turing and the A100, else 128. Two operations each; memory
  // moves twice a clock.
  const int units = out.major == 7 || (out.major == 8 && out.minor == 0) ? 64 : 128;
  out.flops = 2.0 * units * out.multiprocessors * clock_khz * 1000.0;
  out.memory_bandwidth = 2.0 * memory_khz * 1000.0 * bus_bits / 8;
  return out;
}

Status CudaRuntime::enter(int card, const char* call) const {
  if (card < 0 || card >= static_cast<int>(states_.size()))
    return make_error(Code::kInternal, "{} on card {}: there are {} cards", call, card, states_.size());
  return states_[card]->calls.enter(call);
}

Result<std::unique_ptr<Stream>> CudaRuntime::make_stream(int card, bool urgent) {
  const char* const call = "Runtime::make_stream";
  TROUPE_RETURN_IF_ERROR(enter(card, call));
  CudaCalls& calls = states_[card]->calls;
  int last = 0, first = 0;
  TROUPE_RETURN_IF_ERROR(calls.check(cudaDeviceGetStreamPriorityRange(&last, &first), call));
  cudaStream_t stream = nullptr;
  TROUPE_RETURN_IF_ERROR(
      calls.check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? first : last), call));
  in_use_[card] = true;
  return std::unique_ptr<Stream>(new CudaStream(*this, calls, card, stream));
}

Result<std::unique_ptr<Event>> CudaRuntime::make_event(int card, bool timed) {
  const char* const call = "Runtime::make_event";
  TROUPE_RETURN_IF_ERROR(enter(card, call));
  CudaCalls& calls = states_[card]->calls;
  cudaEvent_t event = nullptr;
  const unsigned flags = cudaEventBlockingSync | (timed ? 0 : cudaEventDisableTiming);
  TROUPE_RETURN_IF_ERROR(calls.check(cudaEventCreateWithFlags(&event, flags), call));
  return std::unique_ptr<Event>(new CudaEvent(calls, event));
}

Result<bool> CudaRuntime::connect(int card, int peer) {
  const char* const call = "Runtime::connect";
  TROUPE_RETURN_IF_ERROR(enter(peer, call));
  TROUPE_RETURN_IF_ERROR(enter(card, call));
  int can = 0;
  TROUPE_RETURN_IF_ERROR(states_[card]->calls.check(cudaDeviceCanAccessPeer(&can, card, peer), call));
  if (can == 0) return false;
  std::lock_guard guard(mutex_);
  states_[peer]->used_by.insert(card);
  return true;
}

bool CudaRuntime::may_use(int card, int owner) const {
  std::shared_lock lock(mutex_);
  return states_[owner]->used_by.contains(card);
}

int CudaRuntime::card_of(const void* at) const {
  std::shared_lock lock(mutex_);
  const auto after = reserved_.upper_bound(static_cast<const char*>(at));
  if (after == reserved_.begin()) return -1;
  const auto& [begin, range] = *std::prev(after);
  return static_cast<const char*>(at) < begin + range.first ? range.second : -1;
}

Result<void*> CudaRuntime::reserve(int card, size_t bytes) {
  const char* const call = "Runtime::reserve";
  TROUPE_RETURN_IF_ERROR(enter(card, call));
  CUdeviceptr at = 0;
  TROUPE_RETURN_IF_ERROR(states_[card]->calls.check(driver_.reserve(&at, bytes, 0, 0, 0), call));
  std::lock_guard guard(mutex_);
  reserved_[reinterpret_cast<const char*>(at)] = {bytes, card};
  return reinterpret_cast<void*>(at);
}

void CudaRuntime::unreserve(void* at, size_t bytes) {
  {
    std::lock_guard guard(mutex_);
    reserved_.erase(static_cast<const char*>(at));
  }
  (void)driver_.unreserve(reinterpret_cast<CUdeviceptr>(at), bytes);
}

Status CudaRuntime::map(int card, void* at, size_t bytes) {
  const char* const call = "Runtime::map";
  TROUPE_RETURN_IF_ERROR(enter(card, call));
  CudaCalls& calls = states_[card]->calls;
  const auto address = reinterpret_cast<CUdeviceptr>(at);
  const CUmemAllocationProp_v1 memory = memory_of(card);
  std::vector<CUmemAccessDesc_v1> access;
  {
    std::shared_lock lock(mutex_);
    for (const int user : states_[card]->used_by)
      access.push_back({memory_of(user).location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  CUmemGenericAllocationHandle_v1 handle = 0;
  TROUPE_RETURN_IF_ERROR(calls.check(driver_.create(&handle, bytes, &memory, 0), call));
  const CUresult mapped = driver_.map(address, bytes, 0, handle, 0);
  (void)driver_.release(handle);  // the mapping keeps the memory
  TROUPE_RETURN_IF_ERROR(calls.check(mapped, call));
  Status allowed = calls.check(driver_.set_access(address, bytes, access.data(), access.size()), call);
  if (!allowed.ok()) (void)driver_.unmap(address, bytes);
  return allowed;
}

void CudaRuntime::unmap(void* at, size_t bytes) {
  const int card = card_of(at);
  TROUPE_CHECK(card >= 0);
  (void)states_[card]->calls.check(driver_.unmap(reinterpret_cast<CUdeviceptr>(at), bytes), "Runtime::unmap");
}

Result<int64_t> CudaRuntime::free_memory(int card) const {
  const char* const call = "Runtime::free_memory";
  TROUPE_RETURN_IF_ERROR(enter(card, call));
  size_t free = 0, all = 0;
  TROUPE_RETURN_IF_ERROR(states_[card]->calls.check(cudaMemGetInfo(&free, &all), call));
  return static_cast<int64_t>(free);
}

int CudaRuntime::pinning_card() const {
  for (size_t card = 0; card < cards_.size(); ++card)
    if (in_use_[card] && !states_[card]->calls.lost()) return static_cast<int>(card);
  return 0;
}

Result<void*> CudaRuntime::pin(size_t bytes) {
  const char* const call = "Runtime::pin";
  for (int before = -1;;) {
    const int card = pinning_card();
    void* at = nullptr;
    Status status = enter(card, call);
    if (status.ok())
      status = states_[card]->calls.check(cudaHostAlloc(&at, std::max<size_t>(bytes, 1), cudaHostAllocPortable), call);
    if (status.ok()) return at;
    // Where the card turns out to be lost only now, another serves.
    if (status.error().code != Code::kUnavailable || card == before || pinning_card() == card)
      return std::move(status.error());
    before = card;
  }
}

void CudaRuntime::unpin(void* at, size_t) {
  const int card = pinning_card();
  if (enter(card, "Runtime::unpin").ok()) (void)states_[card]->calls.check(cudaFreeHost(at), "Runtime::unpin");
}

}  // namespace

Result<std::shared_ptr<Runtime>> make_cuda_runtime() {
  auto runtime = std::make_shared<CudaRuntime>();
  TROUPE_RETURN_IF_ERROR(runtime->open());
  return std::shared_ptr<Runtime>(std::move(runtime));
}

}  // namespace troupe::gpu
