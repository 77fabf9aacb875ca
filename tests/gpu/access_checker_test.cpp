// SPDX-License-Identifier: Apache-2.0
// The checker alone: which accesses it takes for ordered, by streams, events and the host, and what it says of others.
#include "gpu/fake/access_checker.h"

#include <catch2/catch.hpp>
#include <random>

#include "tests/repeats.h"

namespace troupe::gpu {
namespace {

using Reach = AccessChecker::Reach;

char memory[4096];

Access reads(size_t at, size_t bytes) { return {memory + at, bytes, false}; }
Access writes(size_t at, size_t bytes) { return {memory + at, bytes, true}; }

struct Checked : AccessChecker {
  int one = add_stream("stream 1", 0), two = add_stream("stream 2", 0), three = add_stream("stream 3", 1);
  void put(int stream, std::initializer_list<Access> accesses, std::string name = "kernel") {
    AccessChecker::put(stream, std::move(name), {accesses.begin(), accesses.size()}, Reach::kKernel);
  }
  void host_does(std::initializer_list<Access> accesses) { host("host code", {accesses.begin(), accesses.size()}); }
};

}  // namespace

TEST_CASE("checker: two streams may read the same bytes, or write other ones") {
  Checked c;
  c.put(c.one, {reads(0, 100), writes(200, 100)});
  c.put(c.two, {reads(50, 100), writes(300, 100), writes(150, 50)});
  c.put(c.one, {reads(0, 0), writes(350, 0)});
  CHECK(c.faults().empty());
}

TEST_CASE("checker: a write beside a read or a write in another stream is a fault that names both") {
  Checked c;
  c.put(c.one, {writes(0, 100)}, "relu");
  c.put(c.two, {reads(99, 2)}, "copy");
  REQUIRE(c.faults().size() == 1);
  CHECK(
      c.faults()[0] ==
      fmt::format("copy (work 1 of stream 2) reads 1 bytes at {:#x} that relu (work 1 of stream 1) writes, and nothing "
                  "orders the two",
                  reinterpret_cast<uintptr_t>(memory + 99)));

  Checked d;
  d.put(d.one, {reads(0, 100)});
  d.put(d.two, {writes(10, 10)});  // after a read
  d.put(d.one, {writes(15, 1)});   // after that write; of one stream with the read
  CHECK(d.faults().size() == 2);

  Checked e;
  e.put(e.one, {writes(0, 10)});
  e.put(e.one, {reads(0, 10), writes(0, 10)});  // one stream, and one piece that does both
  CHECK(e.faults().empty());
}

TEST_CASE("checker: a mark orders what stood before it, and nothing after") {
  Checked c;
  c.put(c.one, {writes(0, 100)});
  const auto mark = c.mark(c.one);
  c.put(c.one, {writes(100, 100)});
  c.wait(c.two, mark);
  c.put(c.two, {writes(0, 100)});
  CHECK(c.faults().empty());
  c.put(c.two, {reads(100, 1)});
  CHECK(c.faults().size() == 1);
}

TEST_CASE("checker: order passes by a third stream and by the host") {
  Checked c;
  c.put(c.one, {writes(0, 100)});
  c.wait(c.two, c.mark(c.one));
  c.wait(c.three, c.mark(c.two));
  c.put(c.three, {writes(0, 100)});
  c.wait(AccessChecker::kHost, c.mark(c.three));
  c.put(c.one, {reads(0, 100)});
  c.host_does({reads(0, 100)});
  CHECK(c.faults().empty());
  c.host_does({writes(0, 1)});  // stream 1 may read yet
  CHECK(c.faults().size() == 1);
}

TEST_CASE("checker: what the host did before work was put in comes before it, what it does afterwards does not") {
  Checked c;
  c.host_does({writes(0, 100)});
  c.put(c.one, {reads(0, 100)});
  CHECK(c.faults().empty());
  c.host_does({reads(0, 100)});
  CHECK(c.faults().empty());
  c.host_does({writes(50, 1)});
  REQUIRE(c.faults().size() == 1);
  CHECK(c.faults()[0].find("host code (work 3 of the host) writes 1 bytes") == 0);
}

TEST_CASE("checker: a read is remembered though a later one of another stream came in between") {
  Checked c;
  c.put(c.one, {reads(0, 10)});
  c.put(c.two, {reads(0, 10)});
  c.wait(c.three, c.mark(c.two));
  c.put(c.three, {writes(0, 10)});
  CHECK(c.faults().size() == 1);  // against stream 1
  Checked d;
  d.put(d.one, {reads(0, 10)});
  d.wait(d.two, d.mark(d.one));
  d.put(d.two, {reads(0, 10)});  // after the other, for which it stands from now on
  d.wait(d.three, d.mark(d.two));
  d.put(d.three, {writes(0, 10)});
  CHECK(d.faults().empty());
}

TEST_CASE("checker: memory of a card can be used where it is mapped, by kernels of that card and those connected") {
  Checked c;
  c.reserve(memory, 1000);
  CHECK_FALSE(c.usable(memory, 1));
  CHECK_FALSE(c.is_host(memory + 999, 10));
  CHECK(c.is_host(memory + 1000, 10));
  c.put(c.one, {reads(900, 8)});
  REQUIRE(c.faults().size() == 1);
  CHECK(c.faults()[0].find("where no memory is mapped") != std::string::npos);
  c.map(memory, 400, 0);
  c.map(memory + 400, 400, 0);
  CHECK(c.usable(memory, 800));
  CHECK_FALSE(c.usable(memory + 700, 101));
  c.put(c.one, {reads(300, 200), writes(799, 1)});
  CHECK(c.faults().size() == 1);
  c.put(c.one, {writes(799, 2)});
  CHECK(c.faults().size() == 2);
  c.host_does({reads(0, 1)});
  REQUIRE(c.faults().size() == 3);
  CHECK(c.faults()[2].find("which the host cannot") != std::string::npos);

  c.put(c.three, {reads(0, 1)});
  REQUIRE(c.faults().size() == 4);
  CHECK(c.faults()[3].find("of card 0, to which its card is not connected") != std::string::npos);
  const Access read = reads(0, 1);
  c.AccessChecker::put(c.three, "copy", {&read, 1}, Reach::kCopy);
  c.connect(1, 0);
  c.put(c.three, {reads(0, 1)});
  CHECK(c.faults().size() == 4);
}

TEST_CASE("checker: memory is unmapped after all work that uses it, and is another's when mapped again") {
  Checked c;
  c.reserve(memory, 1000);
  c.map(memory, 1000, 0);
  c.put(c.one, {reads(0, 8)});
  c.unmap(memory, 1000);
  REQUIRE(c.faults().size() == 1);
  CHECK(c.faults()[0].find("unmap") == 0);
  c.map(memory, 1000, 0);
  c.put(c.two, {writes(0, 1000)});
  CHECK(c.faults().size() == 1);
  c.forget(memory + 10, 500);
  c.put(c.one, {reads(10, 500)});
  CHECK(c.faults().size() == 1);
  c.put(c.one, {reads(9, 1)});
  CHECK(c.faults().size() == 2);
}

TEST_CASE("checker: faults are told once, under the name that work has at the end, and end at a number") {
  Checked c;
  const Access all = writes(0, 100);
  const auto work = c.AccessChecker::put(c.one, "kernel", {&all, 1}, Reach::kKernel);
  c.put(c.two, {reads(0, 10), reads(20, 10), writes(50, 10)});
  CHECK(c.faults().size() == 1);
  work->name = "gelu";
  CHECK(c.faults()[0].find("gelu (work 1 of stream 1)") != std::string::npos);
  for (size_t i = 0; i < AccessChecker::kMostFaults; ++i) c.put(i % 2 ? c.one : c.two, {writes(0, 1)});
  CHECK(c.faults().size() == AccessChecker::kMostFaults);
}

TEST_CASE("checker: it finds what a model finds that keeps each byte and each pair of work") {
  for (int seed = 0; seed < repeats(60); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](uint64_t n) { return random() % n; };
    Checked c;
    // The model: all work so far, what each comes after (transitively), and for each pair whether bytes meet.
    struct Piece {
      int stream;
      size_t at, bytes;
      bool writes;
      std::vector<bool> after;
    };
    std::vector<Piece> pieces;
    std::vector<std::vector<bool>> knows(4);
    std::vector<std::pair<AccessChecker::Clock, std::vector<bool>>> marks;
    const auto join = [](std::vector<bool>& a, const std::vector<bool>& b) {
      if (a.size() < b.size()) a.resize(b.size());
      for (size_t i = 0; i < b.size(); ++i) a[i] = a[i] || b[i];
    };
    bool clash = false;
    for (int i = 0; i < 60 && !clash; ++i) {
      const int stream = static_cast<int>(draw(4));
      switch (draw(4)) {
        case 0: {
          join(knows[stream], knows[0]);
          marks.emplace_back(c.mark(stream), knows[stream]);
          break;
        }
        case 1:
          if (!marks.empty()) {
            const auto& [clock, known] = marks[draw(marks.size())];
            c.wait(stream, clock);
            join(knows[stream], known);
          }
          break;
        default: {
          const Piece piece{stream, draw(64), 1 + draw(8), draw(3) == 0, {}};
          join(knows[stream], knows[0]);
          for (size_t k = 0; k < pieces.size(); ++k) {
            const Piece& p = pieces[k];
            const bool meet = p.at < piece.at + piece.bytes && piece.at < p.at + p.bytes;
            const bool ordered = k < knows[stream].size() && knows[stream][k];
            clash = clash || (meet && (p.writes || piece.writes) && !ordered);
          }
          knows[stream].resize(pieces.size() + 1);
          knows[stream][pieces.size()] = true;
          pieces.push_back(piece);
          const Access access{memory + piece.at, piece.bytes, piece.writes};
          if (stream == 0) c.host("host code", {&access, 1});
          else c.put(stream, {access});
        }
      }
      REQUIRE(c.faults().empty() == !clash);
    }
  }
}

}  // namespace troupe::gpu
