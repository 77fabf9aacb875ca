// SPDX-License-Identifier: Apache-2.0
// Event files: read back record by record, and written by many threads.
#include "troupe/events.h"

#include <png.h>

#include <cmath>
#include <latch>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "io/event.pb.h"
#include "io/histogram.h"
#include "io/tfrecord.h"
#include "tests/io/temporary_directory.h"

using namespace troupe;

namespace {

std::vector<proto::Event> read_events(const std::string& path) {
  std::vector<proto::Event> out;
  auto reader = RecordReader::open(path);
  REQUIRE(reader.ok());
  for (;;) {
    auto record = reader->next();
    REQUIRE(record.ok());
    if (!*record) return out;
    REQUIRE(out.emplace_back().ParseFromString(**record));
  }
}

}  // namespace

TEST_CASE("an event file holds its version, scalars, histograms, images and the graph, at the clock's times") {
  TemporaryDirectory dir;
  double now = 1000;
  std::string path;
  {
    auto opened = EventWriter::open(dir.file("logs/run"), [&now] { return now; });
    REQUIRE(opened.ok());
    EventWriter& w = **opened;
    path = w.path();
    CHECK_THAT(path, Catch::Contains("/events.out.tfevents.0000001000."));
    now = 1001;
    REQUIRE(w.scalar("loss", 3, 0.5f).ok());
    REQUIRE(w.histogram("weights", 4, Tensor::of<double>({-1, 0, 2, 2})).ok());
    REQUIRE(w.image("sample", 5, Tensor::of<uint8_t>({0, 128, 255, 7}, {2, 2})).ok());
    REQUIRE(w.image("batch", 6, *Tensor::zeros(DType::kFloat32, {5, 4, 2, 3}), 2).ok());
    REQUIRE(w.graph("graph bytes").ok());
    REQUIRE(w.begin_again(7).ok());
    REQUIRE(w.flush().ok());
    CHECK(read_events(path).size() == 7);
    REQUIRE(w.scalar("late", 9, 1).ok());
  }
  const auto events = read_events(path);
  REQUIRE(events.size() == 8);  // the destructor flushes
  CHECK(events[6].session_log().status() == proto::SessionLog::START);
  CHECK(events[6].step() == 7);
  CHECK(events[0].file_version() == "brain.Event:2");
  CHECK(events[0].wall_time() == 1000);
  CHECK(events[1].wall_time() == 1001);
  CHECK(events[1].step() == 3);
  CHECK(events[1].summary().value(0).tag() == "loss");
  CHECK(events[1].summary().value(0).simple_value() == 0.5f);
  const auto& histo = events[2].summary().value(0).histo();
  CHECK(histo.min() == -1);
  CHECK(histo.max() == 2);
  CHECK(histo.num() == 4);
  CHECK(histo.sum() == 3);
  CHECK(histo.sum_squares() == 9);
  const auto& image = events[3].summary().value(0).image();
  CHECK(image.height() == 2);
  CHECK(image.colorspace() == 1);
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  const std::string& bytes = image.encoded_image_string();
  REQUIRE(png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()));
  png.format = PNG_FORMAT_GRAY;
  uint8_t pixels[4];
  REQUIRE(png_image_finish_read(&png, nullptr, pixels, 0, nullptr));
  CHECK(pixels[1] == 128);
  CHECK(pixels[3] == 7);
  REQUIRE(events[4].summary().value_size() == 2);
  CHECK(events[4].summary().value(1).tag() == "batch/1");
  CHECK(events[4].summary().value(1).image().colorspace() == 3);
  CHECK(events[5].graph_def() == "graph bytes");
}

TEST_CASE("histogram buckets hold what lies below their limits, down to the last double") {
  constexpr double kBiggest = std::numeric_limits<double>::max();
  const std::vector<double> values = {-kBiggest, -3, -1e-13, 0, 1e-13, 0.5, 0.5, 7, kBiggest};
  const Histogram h = make_histogram(values);
  REQUIRE(h.limits.size() == h.counts.size());
  CHECK(std::ranges::is_sorted(h.limits));
  CHECK(h.limits.back() == kBiggest);
  std::vector<double> counts(h.limits.size());
  for (double v : values) {
    const auto at = std::ranges::upper_bound(h.limits, v) - h.limits.begin();
    counts[std::min<size_t>(at, counts.size() - 1)] += 1;
  }
  CHECK(counts == h.counts);
  for (size_t i = 0; i + 1 < h.counts.size(); ++i) CHECK((h.counts[i] > 0 || h.counts[i + 1] > 0));
  const std::vector<double> all = histogram_limits();
  CHECK(std::ranges::is_sorted(all));
  CHECK(all.size() > 1500);
  CHECK(make_histogram({}).counts.size() == 1);
}

TEST_CASE("what cannot be shown is an error that names the tag, and writes nothing") {
  TemporaryDirectory dir;
  auto opened = EventWriter::open(dir.path());
  REQUIRE(opened.ok());
  EventWriter& w = **opened;
  const float nan = std::nanf("");
  CHECK_THAT(w.histogram("h", 1, Tensor::of<float>({1, nan})).error().message,
             Catch::Contains("'h'") && Catch::Contains("element 1"));
  CHECK(!w.histogram("h", 1, Tensor::of<std::string>({"x"})).ok());
  CHECK(!w.histogram("h", 1, Tensor()).ok());
  CHECK_THAT(w.image("i", 1, *Tensor::zeros(DType::kUInt8, {2, 2, 2})).error().message,
             Catch::Contains("'i'") && Catch::Contains("[2,2,2]"));
  CHECK(!w.image("i", 1, *Tensor::zeros(DType::kUInt8, {4})).ok());
  CHECK(!w.image("i", 1, *Tensor::zeros(DType::kUInt8, {0, 4})).ok());
  CHECK(!w.image("i", 1, *Tensor::zeros(DType::kInt32, {4, 4})).ok());
  CHECK(!w.image("i", 1, Tensor()).ok());
  CHECK(w.image("i", 1, *Tensor::zeros(DType::kUInt8, {0, 4, 4, 1})).ok());
  CHECK(w.image("i", 1, Tensor::of<float>({nan, -1, 2, 0.5}, {2, 2})).ok());
  REQUIRE(w.flush().ok());
  CHECK(read_events(w.path()).size() == 2);
}

TEST_CASE("two writers of one second take two files; a directory that is a file is an error") {
  TemporaryDirectory dir;
  auto a = EventWriter::open(dir.path(), [] { return 5.0; });
  auto b = EventWriter::open(dir.path(), [] { return 5.0; });
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK((*a)->path() != (*b)->path());
  CHECK(!EventWriter::open(dir.write("file", "x")).ok());
}

TEST_CASE("threads may write at once") {
  TemporaryDirectory dir;
  auto opened = EventWriter::open(dir.path(), [] { return 1.0; });
  REQUIRE(opened.ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&w = **opened, t] {
      for (int i = 0; i < 500; ++i) (void)w.scalar("t" + std::to_string(t), i, static_cast<float>(i)).ok();
    });
  for (auto& t : threads) t.join();
  REQUIRE((*opened)->flush().ok());
  std::map<std::string, int64_t> next;
  const auto events = read_events((*opened)->path());
  REQUIRE(events.size() == 2001);
  for (size_t i = 1; i < events.size(); ++i) CHECK(events[i].step() == next[events[i].summary().value(0).tag()]++);
}

TEST_CASE("events are written when there are 64 KiB of them, and by flush") {
  TemporaryDirectory dir;
  auto w = EventWriter::open(dir.path()).value();
  const auto size = [&] { return std::filesystem::file_size(w->path()); };
  const auto empty = size();
  REQUIRE(w->scalar("a", 1, 1).ok());
  CHECK(size() == empty);
  REQUIRE(w->flush().ok());
  const auto one = size() - empty;
  CHECK(one > 0);
  for (size_t i = 0; i < (1 << 16) / one - 1; ++i) REQUIRE(w->scalar("a", 1, 1).ok());
  CHECK(size() == empty + one);
  REQUIRE(w->scalar("a", 1, 1).ok());
  REQUIRE(w->scalar("a", 1, 1).ok());
  CHECK(size() >= empty + one + (1 << 16));
}

TEST_CASE("of a batch as many images are written as asked for and there, never less than none") {
  TemporaryDirectory dir;
  auto w = EventWriter::open(dir.path()).value();
  const Tensor batch = *Tensor::zeros(DType::kUInt8, {2, 3, 3, 1});
  for (const int64_t most : {int64_t{-1}, int64_t{0}, std::numeric_limits<int64_t>::min()})
    CHECK(w->image("none", 1, batch, most).ok());
  CHECK(w->image("all", 2, batch, std::numeric_limits<int64_t>::max()).ok());
  CHECK(w->image("single", 3, *Tensor::zeros(DType::kUInt8, {3, 3, 4}), 0).ok());  // no batch: `most` says nothing
  REQUIRE(w->flush().ok());
  const auto events = read_events(w->path());
  REQUIRE(events.size() == 3);
  CHECK(events[1].summary().value_size() == 2);
  CHECK(events[2].summary().value(0).tag() == "single");
}

TEST_CASE("steps, tags and scalars of any value come back") {
  TemporaryDirectory dir;
  auto w = EventWriter::open(dir.path(), [] { return -1.5; }).value();
  const float values[] = {std::nanf(""), INFINITY, -INFINITY, -0.f};
  for (const float v : values) REQUIRE(w->scalar("", std::numeric_limits<int64_t>::min(), v).ok());
  REQUIRE(w->scalar(std::string(100'000, 't'), -1, 1).ok());
  CHECK_FALSE(w->histogram("h", 1, Tensor::of<float>({1, INFINITY})).ok());
  REQUIRE(w->histogram("none", 1, *Tensor::zeros(DType::kFloat32, {0})).ok());
  REQUIRE(w->histogram("truths", 1, Tensor::of<int8_t>({-128, 127})).ok());
  REQUIRE(w->flush().ok());
  const auto events = read_events(w->path());
  REQUIRE(events.size() == 8);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(events[i + 1].step() == std::numeric_limits<int64_t>::min());
    const float back = events[i + 1].summary().value(0).simple_value();
    CHECK((std::isnan(back) ? std::isnan(values[i]) : back == values[i]));
  }
  CHECK(events[5].summary().value(0).tag().size() == 100'000);
}

TEST_CASE("writers that threads open in one second take files of their own") {
  TemporaryDirectory dir;
  constexpr int kThreads = 8;
  std::vector<std::unique_ptr<EventWriter>> writers(kThreads);
  {
    std::latch start(kThreads);
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        start.arrive_and_wait();
        auto opened = EventWriter::open(dir.path(), [] { return 5.0; });
        if (!opened.ok() || !(*opened)->scalar("t", t, 1).ok()) return;
        writers[static_cast<size_t>(t)] = std::move(*opened);
      });
  }
  std::set<std::string> paths;
  for (int t = 0; t < kThreads; ++t) {
    auto& w = writers[static_cast<size_t>(t)];
    REQUIRE(w);
    CHECK(paths.insert(w->path()).second);
    REQUIRE(w->flush().ok());
    const auto events = read_events(w->path());
    REQUIRE(events.size() == 2);
    CHECK(events[1].step() == t);
  }
}

TEST_CASE("a tag that is not UTF-8 is an error, and the file stays whole") {
  TemporaryDirectory dir;
  auto opened = EventWriter::open(dir.path());
  REQUIRE(opened.ok());
  EventWriter& w = **opened;
  const Tensor picture = *Tensor::zeros(DType::kUInt8, {2, 2});
  for (const std::string bad : {"\x80", "a\xff", "\xc0\x80", "\xc3", "\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                "\xe0\x80\x80", "\xf0\x80\x80\x80", "\xf8\x88\x80\x80\x80", "\xc3(", "\xf0\x9f\x98("}) {
    CHECK(w.scalar(bad, 1, 1).error().code == Code::kInvalidArgument);
    CHECK(w.histogram(bad, 1, Tensor::scalar(1.f)).error().code == Code::kInvalidArgument);
    CHECK(w.image(bad, 1, picture).error().code == Code::kInvalidArgument);
  }
  const std::string good[] = {"",
                              "loss",
                              "\xc3\xa4",
                              "\xe2\x82\xac",
                              "\xed\x9f\xbf",
                              "\xee\x80\x80",
                              "\xf0\x9f\x98\x80",
                              "\xf4\x8f\xbf\xbf",
                              std::string("nul\0tag", 7)};
  for (const std::string& tag : good) CHECK(w.scalar(tag, 1, 1).ok());
  REQUIRE(w.flush().ok());
  const auto events = read_events(w.path());
  REQUIRE(events.size() == 1 + std::size(good));
  for (size_t i = 0; i < std::size(good); ++i) CHECK(events[i + 1].summary().value(0).tag() == good[i]);
}

TEST_CASE("a clock that throws or gives no number is an error of the call") {
  TemporaryDirectory dir;
  const auto thrown = EventWriter::open(dir.path(), []() -> double { throw std::runtime_error("no time"); });
  REQUIRE_FALSE(thrown.ok());
  CHECK_THAT(thrown.error().message, Catch::Contains("no time"));
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e300})
    CHECK(EventWriter::open(dir.path(), [bad] { return bad; }).error().code == Code::kInvalidArgument);
  bool broken = false;
  auto opened = EventWriter::open(dir.path(), [&broken]() -> double {
    if (broken) throw 7;
    return 1;
  });
  REQUIRE(opened.ok());
  broken = true;
  CHECK((*opened)->scalar("a", 1, 1).error().code == Code::kInternal);
  CHECK((*opened)->graph("bytes").error().code == Code::kInternal);
  broken = false;
  CHECK((*opened)->scalar("b", 2, 1).ok());
  REQUIRE((*opened)->flush().ok());
  const auto events = read_events((*opened)->path());
  REQUIRE(events.size() == 2);
  CHECK(events[1].summary().value(0).tag() == "b");
}

TEST_CASE("images of every kind of float, and the first few of a batch") {
  TemporaryDirectory dir;
  auto opened = EventWriter::open(dir.path());
  REQUIRE(opened.ok());
  EventWriter& w = **opened;
  const float inf = HUGE_VALF;
  CHECK(w.image("inf", 1, Tensor::of<float>({inf, -inf}, {1, 2})).ok());
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBFloat16})
    CHECK(w.image("zeros", 1, *Tensor::zeros(dtype, {2, 2, 4})).ok());
  const Tensor batch = *Tensor::zeros(DType::kUInt8, {2, 1, 1, 3});
  CHECK(w.image("none", 1, batch, 0).ok());
  CHECK(w.image("none", 1, batch, -1).ok());
  CHECK(w.image("all", 1, batch, INT64_MAX).ok());
  CHECK(w.histogram("nothing", 1, *Tensor::zeros(DType::kFloat32, {0})).ok());
  CHECK_FALSE(w.histogram("inf", 1, Tensor::scalar(inf)).ok());
  CHECK_FALSE(w.histogram("inf", 1, Tensor::scalar(-HUGE_VAL)).ok());
  REQUIRE(w.flush().ok());
  const auto events = read_events(w.path());
  REQUIRE(events.size() == 1 + 4 + 1 + 1);
  CHECK(events[5].summary().value_size() == 2);
}
