// SPDX-License-Identifier: Apache-2.0
// AccessChecker: finds work that uses the same memory without an order between the two. It keeps a vector clock for
// each stream and one for the host, and for each byte who wrote it last and who read it since. What it finds depends on
// what was put in and on what the host waited for, never on the order in which work happened to run.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/runtime.h"

namespace troupe::gpu {

/// Not thread-safe. All threads of the host count as one: what one of them knows to be done, all know.
class AccessChecker {
 public:
  /// How many pieces of each stream's work are known to be done: element 0 is the host's, element s that of stream s.
  using Clock = std::vector<uint64_t>;
  static constexpr int kHost = 0;
  /// What memory a piece of work may use at all: a kernel that of its card and of those it is connected to, a copy all.
  enum class Reach { kKernel, kCopy };

  /// One piece of work. It is known as long as faults may name it.
  struct Work {
    int stream = kHost;
    uint64_t number = 0;  // of its stream, from 1 on
    std::string name;     // "copy", "kernel relu"
  };

  AccessChecker();

  /// A stream of a card: its number, from 1 on. The name is for faults: "stream 2 (card 0)".
  int add_stream(std::string name, int card);
  /// Kernels of `card` may use the memory of `peer` from now on.
  void connect(int card, int peer);

  /// Work that is put into a stream: it comes after what the stream held, what the stream waits for, and what the host
  /// knew at that time.
  std::shared_ptr<Work> put(int stream, std::string name, std::span<const Access> accesses, Reach reach);
  /// What the host does now. It may use no memory of a card, but as the runtime itself, which maps it.
  std::shared_ptr<Work> host(std::string name, std::span<const Access> accesses, bool as_runtime = false);

  /// What is done when a mark is passed that is put into the stream now.
  Clock mark(int stream);
  /// What is put into the stream from now on (kHost: what the host does) comes after what the clock says.
  void wait(int stream, const Clock& clock);

  /// Addresses of a card, without memory at first.
  void reserve(const void* at, size_t bytes);
  /// Both count as writing: nothing else may use the memory meanwhile.
  void map(const void* at, size_t bytes, int card);
  void unmap(const void* at, size_t bytes);
  /// Whether all bytes may be used: they are in no reservation, or memory was mapped behind each.
  bool usable(const void* at, size_t bytes) const;
  /// Whether they are in no reservation.
  bool is_host(const void* at, size_t bytes) const;
  /// Who used the bytes is not known any more: they went back to the system.
  void forget(const void* at, size_t bytes);

  /// One line each, without repetitions, at most kMostFaults of them.
  std::vector<std::string> faults() const;
  static constexpr size_t kMostFaults = 1000;

 private:
  using Piece = std::shared_ptr<Work>;
  struct Bytes {
    uintptr_t begin, end;
  };
  struct Cell {  // bytes that the same work used
    uintptr_t end = 0;
    Piece write;
    std::vector<Piece> reads;  // since then, but those that a later one comes after
  };
  struct Stream {
    std::string name;
    int card = -1;  // of the host
    Clock clock;
  };
  struct Mapped {
    uintptr_t end = 0;
    int card = 0;
  };
  struct Fault {
    Piece work, earlier;  // the latter null: the memory itself is wrong
    Bytes bytes;
    bool writes = false, earlier_writes = false;
    std::string what;  // where `earlier` is null
  };
  using Cells = std::map<uintptr_t, Cell>;

  static Bytes bytes_of(const void* at, size_t bytes);
  Piece begin(int stream, std::string name);
  void use(const Piece& work, const Access& access);
  void check_memory(const Piece& work, const Access& access, Reach reach);
  /// Cuts the cell that `at` is amid in two.
  void cut(uintptr_t at);
  void read(const Piece& work, Bytes bytes);
  void write(const Piece& work, Bytes bytes);
  bool comes_after(const Piece& work, const Piece& earlier) const;
  void check_order(const Piece& work, bool writes, const Piece& earlier, bool earlier_writes, Bytes bytes);
  std::string name_of(const Work& work) const;

  std::vector<Stream> streams_;
  std::set<std::pair<int, int>> connected_;
  std::map<uintptr_t, uintptr_t> reserved_;
  std::map<uintptr_t, Mapped> mapped_;
  Cells cells_;
  std::vector<Fault> faults_;
  std::set<std::pair<const Work*, const Work*>> told_;  // those in faults_
};

}  // namespace troupe::gpu
