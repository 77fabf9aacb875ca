// SPDX-License-Identifier: Apache-2.0
// Readers without actors: what a reader asks of its host, and how it goes on with the answers; handles that are wrong.
#include "ops/input/file_reader.h"
#include "queues/fifo_queue.h"
#include "tests/io/temporary_directory.h"
#include "tests/ops/fake_host.h"
#include "tests/ops/state_fixture.h"

using namespace troupe;
using Catch::Contains;

namespace {

struct ReaderFixture {
  explicit ReaderFixture(OpenSource open = name_source(), bool single = true) : reader("r", std::move(open), single) {
    reader.attach(host);
  }
  uint32_t read(int64_t step = 1) {
    reader.read(queue, sink.reply(1, step));
    return sink.last();
  }
  uint32_t read_up_to(int64_t n) {
    reader.read_up_to(queue, n, sink.reply());
    return sink.last();
  }
  void name(const std::string& path) { reader.answered(host.questions, std::vector<Tensor>{Tensor::scalar(path)}); }
  void run_job() { host.run_job(reader); }
  std::string value(uint32_t request) const { return sink.outputs(request)[1].data<std::string>()[0]; }

  RecordingSink sink;
  FakeHost host;
  FileReader reader;
  const ResourceRef queue = std::make_shared<const ResourceHandle>();
};

}  // namespace

TEST_CASE("a read asks the queue, then for the file, and nothing twice") {
  ReaderFixture f;
  const auto one = f.read(), two = f.read();
  CHECK(f.host.questions == 1);
  f.name("a");
  CHECK(f.host.jobs.size() == 1);
  CHECK_FALSE(f.sink.answered(one));
  f.run_job();
  CHECK(f.value(one) == "a");
  CHECK(f.reader.records_produced() == 1);
  CHECK(f.reader.files_completed() == 1);
  CHECK(f.host.uses.size() == 2);  // the second read's
  f.name("b");
  f.run_job();
  CHECK(f.value(two) == "b");
}

TEST_CASE("a file that no thread can be had for is an error of its reads, not asked for again and again") {
  ReaderFixture f;
  const auto one = f.read();
  f.name("a");
  REQUIRE(f.host.jobs.size() == 1);
  f.reader.answered(f.host.questions, make_error(Code::kResourceExhausted, "no thread"));
  REQUIRE(f.sink.answered(one));
  CHECK(f.sink.error(one).code == Code::kResourceExhausted);
  CHECK(f.host.jobs.size() == 1);
}

TEST_CASE("a name that comes after its read was cancelled is read by the next") {
  ReaderFixture f;
  const auto gone = f.read(1), next = f.read(2);
  f.reader.cancel(1, 1);
  CHECK(f.sink.error(gone).code == Code::kCancelled);
  CHECK(f.host.withdrawn == std::vector<uint64_t>{1});
  CHECK(f.host.uses.size() == 1);  // until that is answered
  SECTION("it came all the same") { f.name("a"); }
  SECTION("it was withdrawn in time") {
    f.reader.answered(1, make_error(Code::kCancelled, "a dequeue was cancelled"));
    CHECK(f.host.uses.size() == 2);
    f.name("a");
  }
  f.run_job();
  CHECK(f.value(next) == "a");
}

TEST_CASE("a read that waits for a file may be cancelled; what was read stays") {
  const TemporaryDirectory d;
  ReaderFixture f(line_source(0), false);
  f.read(1);
  f.name(d.write("a", "one\ntwo\n"));
  f.reader.cancel(1, 1);
  CHECK(f.host.withdrawn.empty());
  f.run_job();
  CHECK(f.value(f.read(2)) == "one");
  CHECK(f.reader.records_produced() == 1);
}

TEST_CASE("several records end with their file, and a file ends when a read finds it so") {
  const TemporaryDirectory d;
  ReaderFixture f(line_source(0), false);
  const auto three = f.read_up_to(3);
  f.name(d.write("a", "1\n2\n3\n4\n5\n"));
  f.run_job();
  CHECK(f.sink.outputs(three)[1].identical(Tensor::of<std::string>({"1", "2", "3"})));
  CHECK(f.reader.files_completed() == 0);
  const auto rest = f.read_up_to(3);
  CHECK(f.sink.outputs(rest)[0].identical(Tensor::of<std::string>({d.file("a:4"), d.file("a:5")})));
  CHECK(f.reader.files_completed() == 1);
  CHECK(f.sink.outputs(f.read_up_to(0))[0].shape() == Shape{0});
  CHECK(f.sink.error(f.read_up_to(-1)).code == Code::kInvalidArgument);
  const auto past = f.read();
  f.name(d.write("empty", ""));
  f.run_job();
  f.name(d.write("b", "6"));
  f.run_job();
  CHECK(f.value(past) == "6");
  CHECK(f.reader.files_completed() == 2);
  f.reader.reset(f.sink.reply());
  CHECK(f.sink.ok(f.sink.last()));
  CHECK(f.reader.records_produced() == 0);
}

TEST_CASE("faults of queue and file fail one read; a damaged file ends the reader until it is reset") {
  const TemporaryDirectory d;
  ReaderFixture f(line_source(0), false);
  const auto closed = f.read();
  f.reader.answered(f.host.questions, make_error(Code::kOutOfRange, "closed and empty"));
  CHECK(f.sink.error(closed).code == Code::kOutOfRange);
  const auto odd = f.read();
  f.reader.answered(f.host.questions, std::vector<Tensor>{Tensor::of<std::string>({})});
  CHECK_THAT(f.sink.error(odd).message, Contains("'r'"));
  const auto missing = f.read();
  f.name(d.file("gone"));
  f.run_job();
  CHECK(f.sink.error(missing).code == Code::kNotFound);

  ReaderFixture damaged(tfrecord_source(), false);
  const auto first = damaged.read();
  damaged.name(d.write("bad", std::string(20, 'x')));
  damaged.run_job();
  CHECK(damaged.sink.error(first).code == Code::kDataLoss);
  CHECK(damaged.sink.error(damaged.read()).code == Code::kDataLoss);
  damaged.reader.reset(damaged.sink.reply());
  damaged.read();
  CHECK(damaged.host.uses.size() == 2);
}

TEST_CASE("a reader takes names from queues of strings alone") {
  ReaderFixture f;
  f.read();
  RecordingSink answers;
  const auto dequeue = [&](DType dtype, PartialShape shape) {
    auto queue = FifoQueue::make({"q", {dtype}, {std::move(shape)}}).value();
    f.host.uses[0](*queue, answers.reply());
    return answers.answered(answers.last()) ? answers.error(answers.last()).str() : "waits";
  };
  CHECK(dequeue(DType::kString, {}) == "waits");
  CHECK_THAT(dequeue(DType::kInt64, {}), Contains("'q'"));
  CHECK_THAT(dequeue(DType::kString, {2}), Contains("'q'"));
}

TEST_CASE("handles and attributes of readers that are wrong are errors") {
  StateFixture f;
  const auto reader = f.handle("IdentityReaderV2", "r", {});
  CHECK_THAT(f.run("ReaderReadV2", {reader, reader}).error().str(), Contains("input 1 must be the handle of a queue"));
  const auto make = [&](const char* op, const Attrs& attrs) {
    const Node* node = f.graph.add({op, f.graph.unique_name("bad"), {}, attrs}).value();
    KernelInit init{op, "bad", &node->attrs(), {}, {DType::kResource}, {}, {}};
    return f.kernels.make(init, DeviceKind::kCpu).error().message;
  };
  CHECK_THAT(make("TextLineReaderV2", {{"skip_header_lines", int64_t{-1}}}), Contains("-1"));
  CHECK_THAT(make("FixedLengthRecordReaderV2", {{"record_bytes", int64_t{0}}}), Contains("records of 0 bytes"));
  CHECK_THAT(make("TFRecordReaderV2", {{"compression_type", "ZLIB"}}), Contains("ZLIB"));
}
