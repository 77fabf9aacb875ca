// SPDX-License-Identifier: Apache-2.0
// Reply answers exactly once; handles name their host.
#include <catch2/catch.hpp>
#include <set>

#include "troupe/resource.h"

using namespace troupe;

namespace {
struct Sink : ReplySink {
  std::vector<std::pair<int64_t, Status>> answers;
  void deliver(const RequestTag& tag, Result<std::vector<Tensor>> outputs) override {
    answers.emplace_back(tag.step, outputs.status());
  }
};
}  // namespace

TEST_CASE("a reply answers once, and dropped unanswered it cancels") {
  Sink sink;
  {
    Reply reply(sink, {1, 2, 3});
    CHECK(reply.tag().node == 3);
    reply(std::vector<Tensor>{});
    reply(std::vector<Tensor>{});
  }
  REQUIRE(sink.answers.size() == 1);
  CHECK(sink.answers[0].second.ok());
  { Reply dropped(sink, {1, 7, 3}); }
  REQUIRE(sink.answers.size() == 2);
  CHECK(sink.answers[1].first == 7);
  CHECK(sink.answers[1].second.error().code == Code::kCancelled);
  { Reply empty; }
  CHECK(sink.answers.size() == 2);
}

TEST_CASE("the duty moves with the reply") {
  Sink sink;
  Reply a(sink, {1, 1, 0});
  Reply b(std::move(a));
  a = Reply(sink, {1, 2, 0});
  b = std::move(a);  // drops step 1
  REQUIRE(sink.answers.size() == 1);
  CHECK(sink.answers[0].first == 1);
  Reply& self = b;
  b = std::move(self);
  CHECK(sink.answers.size() == 1);
  b(invalid_argument("no"));
  REQUIRE(sink.answers.size() == 2);
  CHECK(sink.answers[1].second.error().code == Code::kInvalidArgument);
}

TEST_CASE("variables of a container share a host, other resources have their own") {
  ResourceHandle v, w, q;
  v.type = w.type = "container";
  v.container = w.container = "model";
  v.name = "a";
  w.name = "b";
  q.type = "queue";
  q.container = "model";
  q.name = "a";
  CHECK(v.host_key() == w.host_key());
  CHECK(q.host_key() == "queue/model/a");
}

TEST_CASE("no two resources have one host, wherever slashes and backslashes are") {
  const std::string parts[] = {"", "a", "/", "\\", "a/", "/a", "a\\", "a/b", "\\/", "/\\", "a\\/b", "//"};
  std::set<std::string> keys;
  for (const std::string& container : parts)
    for (const std::string& name : parts) {
      ResourceHandle handle;
      handle.type = "queue";
      handle.container = container;
      handle.name = name;
      CHECK(keys.insert(handle.host_key()).second);
    }
  for (const std::string& container : parts) {
    ResourceHandle handle;
    handle.type = "container";
    handle.container = container;
    CHECK(keys.insert(handle.host_key()).second);
  }
}
