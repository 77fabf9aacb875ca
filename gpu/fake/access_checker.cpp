// SPDX-License-Identifier: Apache-2.0
// The checker's cells cover memory without overlap. A cell is cut where an access begins or ends in it.
#include "gpu/fake/access_checker.h"

#include <algorithm>

#include <fmt/format.h>

namespace troupe::gpu {
namespace {

void join(AccessChecker::Clock& clock, const AccessChecker::Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

std::string text_of(uintptr_t begin, uintptr_t end) { return fmt::format("{} bytes at {:#x}", end - begin, begin); }

}  // namespace

AccessChecker::AccessChecker() { streams_.push_back({"the host", -1, Clock(1)}); }

int AccessChecker::add_stream(std::string name, int card) {
  const int stream = static_cast<int>(streams_.size());
  streams_.push_back({std::move(name), card, Clock(streams_.size() + 1)});
  return stream;
}

void AccessChecker::connect(int card, int peer) { connected_.emplace(card, peer); }

AccessChecker::Bytes AccessChecker::bytes_of(const void* at, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(at);
  return {begin, begin + std::min<uintptr_t>(bytes, UINTPTR_MAX - begin)};
}

AccessChecker::Piece AccessChecker::begin(int stream, std::string name) {
  Stream& s = streams_[stream];
  if (stream != kHost) join(s.clock, streams_[kHost].clock);
  return std::make_shared<Work>(Work{stream, ++s.clock[stream], std::move(name)});
}

AccessChecker::Piece AccessChecker::put(int stream, std::string name, std::span<const Access> accesses, Reach reach) {
  const Piece work = begin(stream, std::move(name));
  for (const Access& access : accesses) {
    check_memory(work, access, reach);
    use(work, access);
  }
  return work;
}

AccessChecker::Piece AccessChecker::host(std::string name, std::span<const Access> accesses, bool as_runtime) {
  const Piece work = begin(kHost, std::move(name));
  for (const Access& access : accesses) {
    if (!as_runtime) check_memory(work, access, Reach::kKernel);
    use(work, access);
  }
  return work;
}

AccessChecker::Clock AccessChecker::mark(int stream) {
  join(streams_[stream].clock, streams_[kHost].clock);
  return streams_[stream].clock;
}

void AccessChecker::wait(int stream, const Clock& clock) { join(streams_[stream].clock, clock); }

void AccessChecker::reserve(const void* at, size_t bytes) {
  const Bytes b = bytes_of(at, bytes);
  reserved_[b.begin] = b.end;
}

void AccessChecker::map(const void* at, size_t bytes, int card) {
  const Bytes b = bytes_of(at, bytes);
  mapped_[b.begin] = {b.end, card};
  const Access all{at, bytes, true};
  host("map", {&all, 1}, true);
}

void AccessChecker::unmap(const void* at, size_t bytes) {
  const Access all{at, bytes, true};
  host("unmap", {&all, 1}, true);
  mapped_.erase(bytes_of(at, bytes).begin);
}

bool AccessChecker::is_host(const void* at, size_t bytes) const {
  const Bytes b = bytes_of(at, bytes);
  const auto after = reserved_.lower_bound(b.end);
  return after == reserved_.begin() || std::prev(after)->second <= b.begin;
}

bool AccessChecker::usable(const void* at, size_t bytes) const {
  if (is_host(at, bytes)) return true;
  auto [begin, end] = bytes_of(at, bytes);
  while (begin < end) {
    const auto after = mapped_.upper_bound(begin);
    if (after == mapped_.begin() || std::prev(after)->second.end <= begin) return false;
    begin = std::prev(after)->second.end;
  }
  return true;
}

void AccessChecker::check_memory(const Piece& work, const Access& access, Reach reach) {
  if (access.bytes == 0 || is_host(access.at, access.bytes)) return;
  const Bytes b = bytes_of(access.at, access.bytes);
  const auto complain = [&](std::string what) {
    if (faults_.size() < kMostFaults && told_.emplace(work.get(), nullptr).second)
      faults_.push_back({work, nullptr, b, access.writes, false, std::move(what)});
  };
  const int card = streams_[work->stream].card;
  if (card < 0) return complain("which the host cannot");
  if (!usable(access.at, access.bytes)) return complain("where no memory is mapped");
  if (reach == Reach::kCopy) return;
  for (auto it = std::prev(mapped_.upper_bound(b.begin)); it != mapped_.end() && it->first < b.end; ++it)
    if (it->second.card != card && !connected_.contains({card, it->second.card}))
      return complain(fmt::format("of card {}, to which its card is not connected", it->second.card));
}

void AccessChecker::cut(uintptr_t at) {
  auto it = cells_.upper_bound(at);
  if (it == cells_.begin()) return;
  --it;
  if (it->first == at || it->second.end <= at) return;
  Cell rest = it->second;
  it->second.end = at;
  cells_.emplace_hint(std::next(it), at, std::move(rest));
}

void AccessChecker::use(const Piece& work, const Access& access) {
  if (access.bytes == 0) return;
  const Bytes b = bytes_of(access.at, access.bytes);
  cut(b.begin);
  cut(b.end);
  if (access.writes) write(work, b);
  else read(work, b);
}

void AccessChecker::read(const Piece& work, Bytes bytes) {
  uintptr_t at = bytes.begin;
  for (auto it = cells_.lower_bound(at); at < bytes.end; ++it) {
    if (it == cells_.end() || it->first > at) {  // bytes that nobody used so far
      const uintptr_t end = it == cells_.end() ? bytes.end : std::min(bytes.end, it->first);
      it = cells_.emplace_hint(it, at, Cell{end, nullptr, {}});
    }
    Cell& cell = it->second;
    check_order(work, false, cell.write, true, {at, cell.end});
    std::erase_if(cell.reads, [&](const Piece& earlier) { return comes_after(work, earlier); });
    cell.reads.push_back(work);
    at = cell.end;
  }
}

void AccessChecker::write(const Piece& work, Bytes bytes) {
  const auto first = cells_.lower_bound(bytes.begin), last = cells_.lower_bound(bytes.end);
  for (auto it = first; it != last; ++it) {
    check_order(work, true, it->second.write, true, {it->first, it->second.end});
    for (const Piece& reader : it->second.reads) check_order(work, true, reader, false, {it->first, it->second.end});
  }
  cells_.erase(first, last);
  cells_.emplace(bytes.begin, Cell{bytes.end, work, {}});
}

bool AccessChecker::comes_after(const Piece& work, const Piece& earlier) const {
  if (work == earlier) return true;  // it reads and writes the same bytes
  const Clock& clock = streams_[work->stream].clock;
  return static_cast<size_t>(earlier->stream) < clock.size() && clock[earlier->stream] >= earlier->number;
}

void AccessChecker::check_order(const Piece& work, bool writes, const Piece& earlier, bool earlier_writes,
                                Bytes bytes) {
  if (!earlier || comes_after(work, earlier) || faults_.size() >= kMostFaults) return;
  if (!told_.emplace(work.get(), earlier.get()).second) return;
  faults_.push_back({work, earlier, bytes, writes, earlier_writes, {}});
}

void AccessChecker::forget(const void* at, size_t bytes) {
  const Bytes b = bytes_of(at, bytes);
  cut(b.begin);
  cut(b.end);
  cells_.erase(cells_.lower_bound(b.begin), cells_.lower_bound(b.end));
}

std::string AccessChecker::name_of(const Work& work) const {
  return fmt::format("{} (work {} of {})", work.name, work.number, streams_[work.stream].name);
}

std::vector<std::string> AccessChecker::faults() const {
  std::vector<std::string> out;
  for (const Fault& f : faults_) {
    const std::string bytes = text_of(f.bytes.begin, f.bytes.end);
    const char* const does = f.writes ? "writes" : "reads";
    if (!f.earlier) out.push_back(fmt::format("{} {} {}, {}", name_of(*f.work), does, bytes, f.what));
    else
      out.push_back(fmt::format("{} {} {} that {} {}, and nothing orders the two", name_of(*f.work), does, bytes,
                                name_of(*f.earlier), f.earlier_writes ? "writes" : "reads"));
  }
  return out;
}

}  // namespace troupe::gpu
