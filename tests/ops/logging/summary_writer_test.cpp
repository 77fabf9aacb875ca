// SPDX-License-Identifier: Apache-2.0
// Writers of summaries: what is in the file, and what they refuse.
#include <filesystem>

#include "io/event.pb.h"
#include "io/tfrecord.h"
#include "tests/io/temporary_directory.h"
#include "tests/ops/state_fixture.h"

using namespace troupe;
using Catch::Contains;

namespace {

Tensor text(const std::string& s) { return Tensor::scalar(s); }

struct WriterFixture : StateFixture {
  Arg writer = handle("SummaryWriter", "w", {});

  Status act(const std::string& op, std::vector<Arg> args, Attrs attrs = {}) {
    args.insert(args.begin(), writer);
    return run(op, std::move(args), std::move(attrs)).status();
  }
  Status create(const std::string& suffix = ".v2", int32_t most = 10) {
    return act("CreateSummaryFileWriter",
               {text(dir.file("logs")), Tensor::scalar(most), Tensor::scalar(1 << 30), text(suffix)});
  }
  std::string file() const {
    const auto at = std::filesystem::directory_iterator(dir.file("logs"));
    return at == std::filesystem::directory_iterator() ? "" : at->path().string();
  }
  /// Without the first, which names the version.
  std::vector<proto::Event> events() const {
    std::vector<proto::Event> out;
    auto reader = RecordReader::open(file());
    REQUIRE(reader.ok());
    for (;;) {
      auto record = reader->next();
      REQUIRE(record.ok());
      if (!*record) break;
      REQUIRE(out.emplace_back().ParseFromString(**record));
    }
    REQUIRE_FALSE(out.empty());
    CHECK(out[0].file_version() == "brain.Event:2");
    out.erase(out.begin());
    return out;
  }
  TemporaryDirectory dir;
};

const Tensor kStep = Tensor::scalar<int64_t>(7);

}  // namespace

TEST_CASE("a writer of summaries writes what it is given, each as an event") {
  WriterFixture f;
  REQUIRE(f.create().ok());
  REQUIRE(f.create(".other").ok());  // it has a file
  CHECK(f.file().ends_with(".v2"));
  CHECK(f.act("WriteScalarSummary", {kStep, text("loss"), Tensor::scalar(0.5)}).ok());
  CHECK(f.act("WriteHistogramSummary", {kStep, text("w"), Tensor::of<float>({1, 2, 3})}).ok());
  const Tensor bad = Tensor::of<uint8_t>({255, 0, 0, 255});
  CHECK(f.act("WriteImageSummary", {kStep, text("pixels"), *Tensor::zeros(DType::kUInt8, {2, 3, 4, 1}), bad},
              {{"max_images", int64_t{1}}})
            .ok());
  CHECK(f.act("WriteAudioSummary",
              {kStep, text("sound"), *Tensor::zeros(DType::kFloat32, {2, 8}), Tensor::scalar(8000.f)})
            .ok());
  CHECK(f.act("WriteSummary", {kStep, Tensor::of<int32_t>({1, 2}), text("t"), text("\x0a\x01x")}).ok());
  CHECK(f.act("WriteGraphSummary", {kStep, text("graph")}).ok());
  proto::Summary a, b;
  a.add_value()->set_tag("a");
  b.add_value()->set_tag("b");
  CHECK(f.act("WriteRawProtoSummary", {kStep, Tensor::of<std::string>({a.SerializeAsString(), b.SerializeAsString()})})
            .ok());
  proto::Event event;
  event.set_wall_time(2.5);
  event.set_step(3);
  *event.mutable_summary() = a;
  CHECK(f.act("ImportEvent", {text(event.SerializeAsString())}).ok());
  CHECK(f.events().empty());  // gathered in memory
  CHECK(f.act("FlushSummaryWriter", {}).ok());
  const auto events = f.events();
  REQUIRE(events.size() == 8);
  for (size_t i = 0; i < 7; ++i) {
    CHECK(events[i].step() == 7);
    CHECK(events[i].wall_time() > 1e9);
  }
  CHECK(events[0].summary().value(0).tag() == "loss");
  CHECK(events[0].summary().value(0).simple_value() == 0.5f);
  CHECK(events[1].summary().value(0).histo().num() == 3);
  CHECK(events[2].summary().value(0).tag() == "pixels/image");
  CHECK(events[2].summary().value(0).image().width() == 4);
  CHECK(events[3].summary().value_size() == 2);
  CHECK(events[3].summary().value(1).tag() == "sound/audio/1");
  CHECK(events[4].summary().value(0).metadata() == "\x0a\x01x");
  CHECK_FALSE(events[4].summary().value(0).tensor().empty());
  CHECK(events[5].graph_def() == "graph");
  CHECK(events[6].summary().value(1).tag() == "b");
  CHECK(events[7].wall_time() == 2.5);
  CHECK(events[7].step() == 3);
}

TEST_CASE("a writer of summaries flushes after so many events, and at its close") {
  WriterFixture f;
  REQUIRE(f.create("", 1).ok());
  const auto write = [&] { CHECK(f.act("WriteScalarSummary", {kStep, text("x"), Tensor::scalar(1.f)}).ok()); };
  write();
  CHECK(f.events().empty());
  write();
  CHECK(f.events().size() == 2);
  write();
  CHECK(f.act("CloseSummaryWriter", {}).ok());
  CHECK(f.events().size() == 3);
  CHECK_THAT(f.act("CloseSummaryWriter", {}).error().str(), Contains("no file to close"));
  CHECK_THAT(f.act("FlushSummaryWriter", {}).error().str(), Contains("CreateSummaryFileWriter must run before"));
}

TEST_CASE("writes wait for one another, and a cancelled step's do not run") {
  WriterFixture f;
  REQUIRE(f.create().ok());
  const auto ask = [&](const char* tag, int64_t step) {
    return *f.ask("WriteScalarSummary", {f.writer, kStep, text(tag), Tensor::scalar(1.f)}, {}, step);
  };
  auto& resource = f.hosted(f.writer.value);
  const uint32_t first = ask("a", 2), second = ask("b", 3), third = ask("c", 4);
  CHECK(f.host.jobs.size() == 1);
  resource.cancel(1, 3);
  CHECK(f.sink.error(second).code == Code::kCancelled);
  f.host.run_job(resource);
  CHECK(f.sink.ok(first));
  f.host.run_job(resource);
  CHECK(f.sink.ok(third));
  CHECK(f.host.jobs.empty());
  const uint32_t running = ask("d", 5);
  resource.cancel(1, 5);
  CHECK(f.sink.error(running).code == Code::kCancelled);
  f.host.run_job(resource);
  CHECK(f.act("FlushSummaryWriter", {}).ok());
  CHECK(f.events().size() == 3);
}

TEST_CASE("what a writer of summaries cannot write is an error", "[bad_input]") {
  WriterFixture f;
  const auto fails = [&](const std::string& op, std::vector<StateFixture::Arg> args, const char* words,
                         Attrs attrs = {}) {
    const Status status = f.act(op, std::move(args), std::move(attrs));
    INFO(op);
    REQUIRE_FALSE(status.ok());
    CHECK_THAT(status.error().str(), Contains(words));
  };
  fails("WriteScalarSummary", {kStep, text("x"), Tensor::scalar(1.f)}, "has no file");
  CHECK_THAT(f.create("a/b").error().str(), Contains("must not have a '/'"));
  REQUIRE(f.create().ok());
  fails("WriteScalarSummary", {kStep, text("x"), Tensor::of<float>({1, 2})}, "value must be a scalar");
  fails("WriteScalarSummary", {Tensor::of<int64_t>({1, 2}), text("x"), Tensor::scalar(1.f)}, "step must be a scalar");
  fails("WriteScalarSummary", {kStep, text("\xff"), Tensor::scalar(1.f)}, "not UTF-8");
  fails("WriteHistogramSummary", {kStep, text("x"), Tensor::scalar(NAN)}, "nan");
  fails("WriteImageSummary", {kStep, text("x"), Tensor::of<uint8_t>({1}), Tensor::of<uint8_t>({0})}, "images must be");
  fails("WriteAudioSummary", {kStep, text("x"), *Tensor::zeros(DType::kFloat32, {1, 2}), Tensor::scalar(-1.f)},
        "sample_rate must be above 0");
  fails("WriteRawProtoSummary", {kStep, text("\xff\xff")}, "not a Summary");
  fails("ImportEvent", {text("\xff\xff")}, "not an Event");
  REQUIRE(f.act("FlushSummaryWriter", {}).ok());
  CHECK(f.events().empty());
}
