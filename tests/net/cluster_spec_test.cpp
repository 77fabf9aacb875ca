// SPDX-License-Identifier: Apache-2.0
// Clusters from JSON, names of tasks, addresses; each fault is an error that names key and value.
#include "net/cluster_spec.h"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::net;
using Catch::Contains;

namespace {

std::string fault(std::string_view json) {
  const auto config = ClusterConfig::parse(json);
  if (config.ok()) return "none";
  CHECK(config.error().code == Code::kInvalidArgument);
  return config.error().message;
}
std::string address_fault(std::string_view text) {
  const auto address = Address::parse(text);
  return address.ok() ? "none: " + address->str() : address.error().message;
}

}  // namespace

TEST_CASE("a cluster comes from JSON and goes back") {
  const auto spec =
      ClusterSpec::parse(R"({"cluster": {"worker": ["a:1", "b:2"], "ps": ["[::1]:3"]}, "name": "mine"})").value();
  CHECK(spec.name() == "mine");
  CHECK(spec.size() == 3);
  CHECK(spec.tasks() == std::vector<TaskId>{{"ps", 0}, {"worker", 0}, {"worker", 1}});
  CHECK(spec.address({"worker", 1})->str() == "b:2");
  CHECK(spec.find({"ps", 0})->host == "::1");
  CHECK(spec.find({"ps", 1}) == nullptr);
  CHECK(spec.to_json() == R"({"cluster":{"ps":["[::1]:3"],"worker":["a:1","b:2"]},"name":"mine"})");
  CHECK(ClusterSpec::parse(spec.to_json()).value() == spec);
}

TEST_CASE("TF_CONFIG names the task too; sparse maps of tasks may have gaps") {
  const auto config = ClusterConfig::parse(R"({
    "cluster": {"worker": {"3": "host3:2222", "0": "unix:/tmp/s"}, "chief": ["c:1"]},
    "task": {"type": "worker", "index": "3"}, "environment": "cloud",
    "job": {"job_name": "x"}, "service": {}, "master": "", "model_dir": "/m", "eval_session_master": ""})")
                          .value();
  CHECK(config.cluster.name() == "troupe");
  CHECK(config.task == TaskId{"worker", 3});
  CHECK(config.cluster.address({"worker", 0})->path == "/tmp/s");
  CHECK(ClusterSpec::parse(config.cluster.to_json()).value() == config.cluster);
  CHECK(ClusterConfig::parse(R"({"cluster": {"w": ["a:1"]}, "task": {"type": "w", "index": 0}})")->task ==
        TaskId{"w", 0});
  CHECK_FALSE(ClusterConfig::parse(R"({"cluster": {"w": ["a:1"]}})")->task);
}

TEST_CASE("faults of a cluster name key and value") {
  CHECK(fault("nonsense") == "a cluster is not a JSON object: 'nonsense'");
  CHECK_THAT(fault("[1]"), Contains("not a JSON object"));
  CHECK_THAT(fault("{}"), Contains("no 'cluster'"));
  CHECK_THAT(fault(R"({"cluster": [1]})"), Contains("no 'cluster' that maps jobs"));
  CHECK_THAT(fault(R"({"cluster": {}})"), Contains("has no jobs"));
  CHECK_THAT(fault(R"({"cluster": {"w": []}})"), Contains("job 'w' has no tasks"));
  CHECK_THAT(fault(R"({"cluster": {"w": "a:1"}})"), Contains("job 'w' is neither a list of addresses nor a map"));
  CHECK_THAT(fault(R"({"cluster": {"w": [5]}})"), Contains("/job:w/task:0 has no address but 5"));
  CHECK_THAT(fault(R"({"cluster": {"w": ["a:1", "b:99999"]}})"),
             Contains("/job:w/task:1: address 'b:99999' has no port"));
  CHECK_THAT(fault(R"({"cluster": {"w": {"x": "a:1"}}})"), Contains("job 'w': 'x' is not a number of a task"));
  CHECK_THAT(fault(R"({"cluster": {"w": {"-1": "a:1"}}})"), Contains("'-1' is not a number"));
  CHECK_THAT(fault(R"({"cluster": {"w": {"01": "a:1"}}})"), Contains("'01' is not a number"));
  CHECK_THAT(fault(R"({"cluster": {"w": {"99999999999": "a:1"}}})"), Contains("'99999999999' is not a number"));
  CHECK_THAT(fault(R"({"cluster": {"w": ["a:1"], "v": ["A:1"]}})"),
             Contains("/job:v/task:0 and /job:w/task:0 have the same address 'a:1'"));
  CHECK_THAT(fault(R"({"cluster": {"w": ["[::1]:1", "[0::1]:1"]}})"),
             Contains("/job:w/task:0 and /job:w/task:1 have the same address '[::1]:1'"));
  CHECK_THAT(fault(R"({"cluster": {"w": ["a:1"], "w": ["a:2"]}})"), Contains("has the key 'w' twice"));
  CHECK_THAT(fault(R"({"environment": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"name": 1}}}}}}}}}, "name": "c",
                       "cluster": {"w": ["a:1"]}, "name": "d"})"),
             Contains("has the key 'name' twice"));
  CHECK(fault(R"({"environment": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"name": 1}}}}}}}}}, "name": "c",
                  "cluster": {"w": ["a:1"]}})") == "none");
  CHECK_THAT(fault(R"({"cluster": {"9": ["a:1"]}})"), Contains("'9' is not a name of a job"));
  CHECK_THAT(fault(R"({"cluster": {"client": ["a:1"]}})"), Contains("no job is called 'client'"));
  CHECK_THAT(fault(R"({"cluster": {"localhost": ["a:1"]}})"), Contains("no job is called 'localhost'"));
  CHECK_THAT(fault(R"({"cluster": {"w": ["a:1"]}, "name": "a b"})"), Contains("'a b' is not a name of a cluster"));
  CHECK_THAT(fault(R"({"cluster": {"w": ["a:1"]}, "name": 3})"), Contains("name is not a text: 3"));
  CHECK_THAT(fault(R"({"cluster": {"w": ["a:1"]}, "jobs": 3})"), Contains("a cluster has no 'jobs': 3"));
  CHECK_THAT(fault(R"({"cluster": {"w": ["a:1"]}, "task": 3})"), Contains("'task' has no 'type'"));
  CHECK_THAT(fault(R"({"cluster": {"w": ["a:1"]}, "task": {"type": "w"}})"), Contains("no 'index'"));
  CHECK_THAT(fault(R"({"cluster": {"w": ["a:1"]}, "task": {"type": "w", "index": -1}})"), Contains("no 'index'"));
  CHECK_THAT(fault(R"({"cluster": {"w": ["a:1"]}, "task": {"type": "w", "index": 1}})"),
             Contains("has no /job:w/task:1: job 'w' has 1 tasks, the last is 0"));
  CHECK_THAT(fault(R"({"cluster": {"w": ["a:1"]}, "task": {"type": "ps", "index": 0}})"),
             Contains("has no job 'ps', but w"));
  CHECK_THAT(fault(std::string(2 << 20, ' ')), Contains("bytes, at most 1048576"));
  CHECK_THAT(fault(R"({"cluster": )" + std::string(100000, '[')), Contains("not a JSON object"));
}

TEST_CASE("a cluster has at most 1,000 tasks") {
  ClusterSpec::Jobs jobs;
  for (int i = 0; i < kMostTasks; ++i) jobs["w"][i] = {Address::Kind::kTcp, "h" + std::to_string(i), 1, ""};
  const auto most = ClusterSpec::make("c", jobs).value();
  CHECK(ClusterSpec::parse(most.to_json()).value() == most);
  jobs["v"][0] = {Address::Kind::kTcp, "other", 1, ""};
  CHECK_THAT(ClusterSpec::make("c", jobs).status().error().message, Contains("has 1001 tasks, at most 1000"));
}

TEST_CASE("addresses: names, IPv4, IPv6 and paths") {
  for (const char* text : {"localhost:1", "10.0.0.1:65535", "[::1]:80", "[fe80::1%eth0]:80", "a-b.c_d:2222",
                           "unix:/run/troupe.sock", "unix:/with:colon and space"}) {
    const auto address = Address::parse(text);
    REQUIRE(address.ok());
    CHECK(address->str() == text);
    CHECK(Address::parse(address->str()).value() == *address);
  }
  CHECK(Address::parse("HOST:1")->host == "host");
  // One spelling for each address, but names of interfaces are as they are.
  for (const char* text : {"[::1]:80", "[0:0:0:0:0:0:0:1]:80", "[0::1]:80", "[0000::0001]:80"})
    CHECK(Address::parse(text)->str() == "[::1]:80");
  CHECK(Address::parse("[0::0]:80")->str() == "[::]:80");
  CHECK(Address::parse("[FE80::A%enP2p1s0]:80")->str() == "[fe80::a%enP2p1s0]:80");
  CHECK(Address::parse("[::FFFF:7f00:1]:80")->str() == "[::ffff:127.0.0.1]:80");
  CHECK(address_fault("host") == "address 'host' has no port, such as host:2222");
  CHECK(address_fault("[::1]") == "address '[::1]' has no port, such as host:2222");
  for (const char* port : {"", "0", "65536", "-1", "+1", "01", "1 ", "x", "99999999999999999999"})
    CHECK_THAT(address_fault(std::string("h:") + port), Contains("has no port from 1 to 65535"));
  CHECK_THAT(address_fault(":1"), Contains("has no host"));
  CHECK_THAT(address_fault("::1:80"), Contains("IPv6 address without [ and ]"));
  CHECK_THAT(address_fault("[::1:80"), Contains("has no ']'"));
  CHECK_THAT(address_fault("[1.2.3.4]:80"), Contains("has no IPv6 address"));
  CHECK_THAT(address_fault("[fe80::1%]:80"), Contains("name of an interface"));
  CHECK_THAT(address_fault("1.2.3:80"), Contains("has no IPv4 address"));
  CHECK_THAT(address_fault("256.1.1.1:80"), Contains("has no IPv4 address"));
  CHECK_THAT(address_fault("a b:80"), Contains("has a letter that no host name has"));
  CHECK(address_fault("grpc://a:80") == "address 'grpc://a:80' is a URL, not host:port, [IPv6]:port or unix:PATH");
  CHECK_THAT(address_fault("a..b:80"), Contains("a part of 0"));
  CHECK_THAT(address_fault("-a:80"), Contains("with a '-'"));
  CHECK_THAT(address_fault(std::string(64, 'a') + ":80"), Contains("more than 63"));
  CHECK_THAT(address_fault(std::string(300, 'a') + ":80"), Contains("more than 253"));
  CHECK_THAT(address_fault("unix:"), Contains("has no path"));
  CHECK_THAT(address_fault("unix:relative"), Contains("has no path"));
  CHECK_THAT(address_fault("unix:/" + std::string(200, 'x')), Contains("more than 107 bytes"));
  CHECK_THAT(address_fault(std::string("unix:/a\0b", 9)), Contains("zero byte"));
}

TEST_CASE("tasks have names and an order") {
  const TaskId task{"worker", 12};
  CHECK(task.str() == "/job:worker/task:12");
  CHECK(TaskId::parse(task.str()).value() == task);
  CHECK(TaskId{"ps", 5} < TaskId{"worker", 0});
  CHECK(TaskId{"worker", 2} < TaskId{"worker", 10});
  for (const char* text :
       {"", "/job:w", "/job:w/task:", "/job:w/task:-1", "/job:w/task:01", "/job:/task:1", "/job:9/task:1",
        "/job:w/task:1/", "/job:w/task:4294967296", "/task:1/job:w", "job:w/task:1"})
    CHECK_THAT(TaskId::parse(text).status().error().message, Contains("is not a name of a task"));
  CHECK_THAT((TaskId{std::string(300, 'x'), 0}.check().error().message), Contains("300 letters"));
}
