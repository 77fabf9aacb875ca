// SPDX-License-Identifier: Apache-2.0
// The memory of the fake's cards: address space that may not be touched until memory is mapped, and pinned memory, of
// which only the addresses are remembered.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "gpu/fake/fake_state.h"

namespace troupe::gpu {
namespace {

constexpr int kNotANumber = 0xff;  // bytes of what nobody wrote
constexpr int kNoCard = -1;

Error no_memory(const char* name, int card, size_t bytes) {
  return make_error(Code::kResourceExhausted, "{} on card {}: no memory for {} bytes", name, card, bytes);
}

}  // namespace

FakeState::~FakeState() {
  for (const auto& [at, reservation] : reservations_) ::munmap(reservation.block, reservation.block_bytes);
  for (const auto& [at, bytes] : pins_) std::free(const_cast<char*>(at));
}

Result<void*> FakeState::reserve(Lock&, int card, size_t bytes) {
  const size_t unit = options.granularity;
  if (bytes == 0 || bytes % unit != 0)
    return make_error(Code::kInternal, "Runtime::reserve on card {}: {} bytes are not a multiple of {}", card, bytes,
                      unit);
  if (bytes > SIZE_MAX - unit) return no_memory("Runtime::reserve", card, bytes);
  void* const block = ::mmap(nullptr, bytes + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) return no_memory("Runtime::reserve", card, bytes);
  char* const at = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(block) + unit - 1) / unit * unit);
  reservations_[at] = {block, bytes + unit, bytes, card};
  checker.reserve(at, bytes);
  return static_cast<void*>(at);
}

void FakeState::unreserve(Lock&, void* at, size_t bytes) {
  const auto it = reservations_.find(static_cast<char*>(at));
  TROUPE_CHECK(it != reservations_.end() && it->second.bytes == bytes && it->second.card != kNoCard);
  const auto mapping = mappings_.lower_bound(it->first);
  TROUPE_CHECK(mapping == mappings_.end() || mapping->first >= it->first + bytes);
  checker.forget(at, bytes);
  it->second.card = kNoCard;  // the addresses stay what they are, so that work that is late uses memory of nobody
}

Status FakeState::map(Lock&, int card, void* at, size_t bytes) {
  char* const begin = static_cast<char*>(at);
  const size_t unit = options.granularity;
  auto it = reservations_.upper_bound(begin);
  if (bytes == 0 || bytes % unit != 0 || reinterpret_cast<uintptr_t>(at) % unit != 0)
    return make_error(Code::kInternal, "Runtime::map on card {}: {} bytes at {} are not multiples of {}", card, bytes,
                      at, unit);
  if (it == reservations_.begin() || (--it)->second.card != card || bytes > it->second.bytes ||
      static_cast<size_t>(begin - it->first) > it->second.bytes - bytes)
    return make_error(Code::kInternal, "Runtime::map on card {}: {} bytes at {} are not reserved", card, bytes, at);
  const auto after = mappings_.lower_bound(begin + bytes);
  if (after != mappings_.begin() && std::prev(after)->first + std::prev(after)->second.bytes > begin)
    return make_error(Code::kInternal, "Runtime::map on card {}: {} bytes at {} are mapped already", card, bytes, at);
  CardState& state = cards_state[card];
  if (static_cast<int64_t>(bytes) > options.memory - state.mapped) return no_memory("Runtime::map", card, bytes);
  if (::mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) return no_memory("Runtime::map", card, bytes);
  std::memset(at, kNotANumber, bytes);
  state.mapped += static_cast<int64_t>(bytes);
  mappings_[begin] = {bytes, card};
  checker.map(at, bytes, card);
  return {};
}

void FakeState::unmap(Lock& lock, void* at, size_t bytes) {
  const auto it = mappings_.find(static_cast<char*>(at));
  TROUPE_CHECK(it != mappings_.end() && it->second.bytes == bytes);
  const int card = it->second.card;
  checker.unmap(at, bytes);  // what comes to use it is not carried out; what does so now is a fault, but no crash
  if (!in_work())
    while (std::any_of(queues.begin(), queues.end(), [](const Queue& q) { return q->busy; })) changed_.wait(lock);
  TROUPE_CHECK(::mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == at);
  cards_state[card].mapped -= static_cast<int64_t>(bytes);
  mappings_.erase(it);
}

Result<void*> FakeState::pin(Lock&, size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t rounded = bytes > SIZE_MAX - page ? 0 : std::max((bytes + page - 1) / page * page, page);
  void* const at = rounded ? std::aligned_alloc(page, rounded) : nullptr;
  if (!at) return make_error(Code::kResourceExhausted, "Runtime::pin: no memory for {} bytes", bytes);
  std::memset(at, kNotANumber, bytes);
  pins_[static_cast<char*>(at)] = bytes;
  pinned += static_cast<int64_t>(bytes);
  return at;
}

void FakeState::unpin(Lock&, void* at, size_t bytes) {
  const auto it = pins_.find(static_cast<char*>(at));
  TROUPE_CHECK(it != pins_.end() && it->second == bytes);
  const Access all{at, bytes, true};
  checker.host("unpin", {&all, 1});
  checker.forget(at, bytes);
  pinned -= static_cast<int64_t>(bytes);
  pins_.erase(it);
  std::free(at);
}

bool FakeState::is_pinned(const void* at, size_t bytes) const {
  const auto after = pins_.upper_bound(static_cast<const char*>(at));
  if (after == pins_.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  const auto offset = static_cast<size_t>(static_cast<const char*>(at) - begin);
  return offset <= size && bytes <= size - offset;
}

}  // namespace troupe::gpu
