// SPDX-License-Identifier: Apache-2.0
// troupe launch with real workers: what it passes on, how it ends, and what it says of workers that die.
#include "tests/system/cluster.h"
#include "tests/system/train_images.h"

namespace troupe::testing {
namespace {

using Catch::Contains;
using std::chrono::minutes;

/// What `sh -c` runs first under launch: prints its brothers, the workers, "<pid> <pid> ... ".
const std::string kBrothers = "read all < /proc/$PPID/task/$PPID/children; echo \"brothers $all\"; ";

TEST_CASE("cluster: launch's tasks have no TLS, whatever the environment says of other clusters") {
  const auto ended =
      run({"TROUPE_TLS=/no/such", kTroupePath, "launch", "-n", "1", "--", kTroupePath, "cluster", "status"},
          "/usr/bin/env");
  INFO(ended.err);
  CHECK(ended.status == 0);
}

TEST_CASE("cluster: launch runs a program over its workers and leaves nothing behind") {
  const Cluster c(2);  // for its folder
  c.write("g.pbtxt", kGraph);
  const auto ran = run({"launch", "-n", "2", "--servers", "1", "--", kTroupePath, "run", c.file("g.pbtxt"), "--init",
                        "init", "--fetch", "sum"});
  INFO(ran.err);
  CHECK(ran.status == 0);
  CHECK(ran.out == "sum float32[2] [0, 0]\n");
  CHECK(ran.err.empty());

  // That run() saw the end of both streams says that no process is left which has them.
  const auto told = run({"launch", "-n", "2", "--servers", "1", "--", "sh", "-c",
                         "echo \"$TROUPE_CLUSTER\"; for f in \"$0\"; do echo \"$f\"; done; exit 7", "--help"});
  CHECK(told.status == 7);
  CHECK(told.err.empty());
  CHECK_THAT(told.out, Contains(R"("ps":["unix:)") && Contains("\n--help\n"));
  const size_t from = told.out.find("unix:") + 5;
  const std::filesystem::path socket = told.out.substr(from, told.out.find('"', from) - from);
  CHECK(socket.filename() == "ps-0");
  CHECK(!std::filesystem::exists(socket.parent_path()));

  CHECK(run({"launch", "-n", "1", "--", "sh", "-c", "kill -TERM $$"}).status == 128 + SIGTERM);
  check_error(run({"launch", "-n", "1", "--", c.file("none")}), 1, {c.file("none"), "No such file"});
  check_error(run({"launch", "-n", "1"}), 2, {"CMD"});
  check_error(run({"launch", "-n", "0", "--", "true"}), 2, {"--workers"});
  check_error(run({"launch", "--devices", "cpu=0", "--", "true"}), 2, {"cpu=0"});
}

TEST_CASE("cluster: launch passes signals on, and its workers end with it however it ends") {
  Program passed(kTroupePath, {"launch", "-n", "1", "--", "sh", "-c",
                               "sleep 1000 & trap \"kill $!; exit 3\" TERM; echo ready; wait"});
  REQUIRE(passed.read_for(minutes(1), "ready"));
  passed.signal(SIGTERM);
  CHECK(passed.wait() == 3);
  CHECK(passed.err().empty());

  Program killed(kTroupePath, {"launch", "-n", "2", "--", "sh", "-c", "echo \"$TROUPE_CLUSTER\"; exec sleep 1000"});
  REQUIRE(killed.read_for(minutes(1), "\n"));
  killed.signal(SIGKILL);
  CHECK(killed.wait() == -1);  // its workers had its standard error
  CHECK(killed.died_of() == SIGKILL);
  const size_t from = killed.out().find("unix:") + 5;  // nobody is left to remove that
  const std::filesystem::path socket = killed.out().substr(from, killed.out().find('"', from) - from);
  std::filesystem::remove_all(socket.parent_path());
}

TEST_CASE("cluster: launch passes on what graphs print on its workers") {
  const Cluster c(1);  // for its folder
  const std::string on = " device: '/job:worker/task:0/cpu:0'";
  const std::string long_text(300'000, 'x');  // more than a pipe holds
  std::string graph;
  const auto print = [&](const std::string& name, const std::string& text, const std::string& after,
                         const std::string& attrs) {
    graph += "node { name: '" + name + "/text' op: 'Const'" + on +
             " attr { key: 'dtype' value { type: DT_STRING } } attr { key: 'value' value { tensor { dtype: DT_STRING "
             "tensor_shape { } string_val: '" +
             text + "' } } } } node { name: '" + name + "' op: 'PrintV2' input: '" + name + "/text'" + after + on +
             attrs + " }";
  };
  const std::string out = " attr { key: 'output_stream' value { s: 'stdout' } }";
  print("first", long_text, "", out);
  print("second", "/job:a", " input: '^first'", out);
  print("third", "no end", " input: '^second'", out + " attr { key: 'end' value { s: '' } }");
  print("fourth", "aside", " input: '^third'", "");
  c.write("g.pbtxt", graph);
  const auto ran =
      run({"launch", "-n", "1", "--", kTroupePath, "run", c.file("g.pbtxt"), "--target", "fourth", "--steps", "2"});
  CHECK(ran.status == 0);
  CHECK(ran.err == "aside\naside\n");
  const std::string step = long_text + "\n/job:a\nno end";
  CHECK(ran.out == step + step);
}

TEST_CASE("cluster: launch binds tasks to cores of their own where it is told to") {
  const std::string where = "grep -h Cpus_allowed: /proc/self/status";
  const std::string all = run({"-c", where}, "/bin/sh").out;
  const auto cores = [&](std::vector<std::string> options) {
    options.insert(options.begin(), "launch");
    for (const std::string& a :
         {std::string("-n"), std::string("2"), std::string("--"), std::string("sh"), std::string("-c"),
          kBrothers +
              "for pid in $all; do grep -h Cpus_allowed: "
              "/proc/$pid/status; done; " +
              where})
      options.push_back(a);
    const Ended ended = run(options);
    INFO(ended.err);
    CHECK(ended.status == 0);
    std::vector<std::string> lines;  // brothers, the two workers and the program, and what the program started
    std::istringstream in(ended.out);
    for (std::string line; std::getline(in, line);) lines.push_back(line + "\n");
    REQUIRE(lines.size() == 5);
    CHECK((lines[3] == all && lines[4] == all));
    return std::pair(lines[1], lines[2]);
  };
  const auto anywhere = cores({}), bound = cores({"--bind"});
  CHECK((anywhere.first == all && anywhere.second == all));
  cpu_set_t own;
  if (sched_getaffinity(0, sizeof own, &own) == 0 && CPU_COUNT(&own) > 1) {
    CHECK(bound.first != bound.second);
    CHECK((bound.first != all && bound.second != all));
  }
}

TEST_CASE("cluster: launch says where its sockets have no room") {
  const TemporaryDirectory here;
  const std::string folder = here.file(std::string(100, 'd'));
  std::filesystem::create_directory(folder);
  check_error(run({"TMPDIR=" + folder, kTroupePath, "launch", "-n", "1", "--", "true"}, "/usr/bin/env"), 1,
              {folder, "more than 107 bytes", "TMPDIR"});
  CHECK(std::filesystem::is_empty(folder));
}

TEST_CASE("cluster: where one worker cannot begin, launch tells of that one alone") {
  const auto ended = run({"launch", "-n", "3", "--devices", "gpu=64", "--", "true"});  // more cards than there are
  INFO(ended.err);
  CHECK(ended.status == 1);
  CHECK_THAT(ended.err, Contains(" before it began\n"));
  CHECK_THAT(ended.err, !Contains("interrupted by a signal"));
}

TEST_CASE("cluster: launch names a worker that dies, and --restart starts it again") {
  const std::string kill_one = kBrothers + "kill -9 ${all%% *}; exec ../cli/troupe cluster status --timeout ";
  Program gone(kTroupePath, {"launch", "-n", "2", "--", "sh", "-c", kill_one + "0.5"});
  CHECK(gone.wait() == 1);
  CHECK_THAT(gone.err(),
             Contains("troupe: /job:worker/task:0 (process ") && Contains(" ended with signal 9 (Killed)\n"));
  CHECK_THAT(gone.out(), Contains("-0  down "));

  Program back(kTroupePath, {"launch", "-n", "2", "--restart", "--", "sh", "-c", kill_one + "60"});
  const int status = back.wait();
  INFO(back.out() << back.err());
  CHECK(status == 0);
  CHECK_THAT(back.err(), Contains(" ended with signal 9 (Killed); it is started again\n"));
}

TEST_CASE("cluster: a signal that launch passes on, and that came to its group as well, is one") {
  check_sent_at_once({kTroupePath, "launch", "-n", "1", "--"});
}

}  // namespace
}  // namespace troupe::testing
