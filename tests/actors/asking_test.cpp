// SPDX-License-Identifier: Apache-2.0
// Resources that ask others: a reader that waits for a queue's names holds up nobody.
#include "tests/actors/fixtures.h"
#include "tests/io/temporary_directory.h"

namespace troupe {
namespace {

struct Reading {
  explicit Reading(const std::string& op) : t({1}) {
    queue = t.queue("q", DType::kString);
    reader = t.scope.named("r").op(op, {}, {});
    record = t.scope.named("read").node("ReaderReadV2", {reader, queue});
    name = t.placeholder(DType::kString, {}, "name");
    put = t.scope.node("QueueEnqueueV2", {queue, name});
    close = t.scope.node("QueueCloseV2", {queue});
  }
  void enqueue(const std::string& path) { REQUIRE(t.session->run({{name, Tensor::scalar(path)}}, {}, {put}).ok()); }

  TestEngine t;
  Output queue, reader, name;
  const Node *record, *put, *close;
};

TEST_CASE("a reader waits for a name and its file while other steps run") {
  const TemporaryDirectory d;
  Reading r("TextLineReaderV2");
  auto waiting = r.t.session->run_future(std::vector<Feed>{}, {r.record->out(0), r.record->out(1)});
  r.enqueue(d.write("a", "one\ntwo\n"));
  const auto first = waiting.get();
  REQUIRE(first.ok());
  CHECK((*first)[0].identical(Tensor::scalar(d.file("a:1"))));
  CHECK((*first)[1].identical(Tensor::scalar(std::string("one"))));
  const auto second = r.t.session->run(std::vector<Feed>{}, {r.record->out(1)});
  CHECK((*second)[0].identical(Tensor::scalar(std::string("two"))));
  REQUIRE(r.t.session->run(std::vector<Feed>{}, {}, {r.close}).ok());
  const auto end = r.t.session->run(std::vector<Feed>{}, {r.record->out(1)});
  CHECK(end.error().code == Code::kOutOfRange);
  CHECK(end.error().node == "read");
}

TEST_CASE("a read that is cancelled gives up its place at the queue") {
  Reading r("IdentityReaderV2");
  CancelToken token;
  auto waiting = r.t.session->run_future(std::vector<Feed>{}, {r.record->out(1)}, {}, {.cancel = token});
  // The reader answers this behind the read, so the read waits by then.
  const Output count = r.t.scope.op("ReaderNumRecordsProducedV2", {r.reader});
  REQUIRE(r.t.session->run(std::vector<Feed>{}, {count}).ok());
  token.cancel();
  CHECK(waiting.get().error().code == Code::kCancelled);
  r.enqueue("a");
  CHECK((*r.t.session->run(std::vector<Feed>{}, {r.record->out(1)}))[0].identical(Tensor::scalar(std::string("a"))));
  CHECK((*r.t.session->run(std::vector<Feed>{}, {count}))[0].identical(Tensor::scalar<int64_t>(1)));
}

TEST_CASE("an engine ends, and a container is reset, while a reader waits for a queue") {
  for (const bool reset : {true, false}) {
    Reading r("IdentityReaderV2");
    auto waiting = r.t.session->run_future(std::vector<Feed>{}, {r.record->out(1)});
    const Output count = r.t.scope.op("ReaderNumRecordsProducedV2", {r.reader});
    REQUIRE(r.t.session->run(std::vector<Feed>{}, {count}).ok());
    if (reset) {
      r.t.engine->reset_container("");
      CHECK_FALSE(waiting.get().ok());
    } else {
      r.t.session.reset();
    }
  }
}

TEST_CASE("a reader of a queue that is not there says so") {
  TestEngine t({1});
  ResourceHandle handle;
  handle.type = "queue";
  handle.name = "nobody's";
  const Output queue = t.placeholder(DType::kResource, {}, "queue");
  const Node* read = t.scope.node("ReaderReadV2", {t.scope.op("IdentityReaderV2", {}, {}), queue});
  const auto got = t.session->run(
      {{queue, Tensor::scalar<ResourceRef>(std::make_shared<const ResourceHandle>(handle))}}, {read->out(0)});
  REQUIRE_FALSE(got.ok());
  CHECK_THAT(got.error().str(), Catch::Contains("nobody's"));
}

}  // namespace
}  // namespace troupe
