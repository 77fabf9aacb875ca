// SPDX-License-Identifier: Apache-2.0
#include "queues/event_count.h"

#include "tests/queues/recording_sink.h"

namespace troupe {
namespace {

TEST_CASE("who awaits a count is answered when it is reached") {
  RecordingSink sink;
  EventCount events;
  events.await(0, sink.reply());
  CHECK(sink.ok(1));  // there already
  events.await(2, sink.reply());
  events.await(1, sink.reply());
  events.await(2, sink.reply());
  CHECK(sink.order == std::vector<uint32_t>{1});
  events.advance();
  CHECK(sink.order == std::vector<uint32_t>{1, 3});
  events.advance();
  CHECK(sink.order == std::vector<uint32_t>{1, 3, 2, 4});
  CHECK(events.count() == 2);
  events.await(-5, sink.reply());
  CHECK(sink.ok(5));
  CHECK(sink.outputs(5).empty());
}

TEST_CASE("cancelling answers the waits of one step alone") {
  RecordingSink sink;
  EventCount events;
  events.await(1, sink.reply(1, 7));
  events.await(1, sink.reply(1, 8));
  events.await(1, sink.reply(2, 7));
  events.cancel(1, 7);
  CHECK(sink.error(1).code == Code::kCancelled);
  CHECK_FALSE(sink.answered(2));
  events.advance();
  CHECK(sink.ok(2));
  CHECK(sink.ok(3));
}

TEST_CASE("a count that goes answers who still waits") {
  RecordingSink sink;
  {
    EventCount events;
    events.await(1, sink.reply());
  }
  CHECK(sink.error(1).code == Code::kCancelled);
}

}  // namespace
}  // namespace troupe
