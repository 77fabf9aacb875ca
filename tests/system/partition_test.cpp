// SPDX-License-Identifier: Apache-2.0
// Networks that are cut and heal under a cluster: two network namespaces with a wire between them, the client and a
// worker on one side, a worker on the other. Needs the rights to make namespaces; without them it is skipped.
#include "tests/repeats.h"
#include "tests/system/cluster.h"

namespace troupe::testing {
namespace {

using Catch::Contains;

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

/// Two namespaces, "left" and "right", with 10.99.0.1 and 10.99.0.2.
class Wire {
 public:
  Wire() {
    for (const std::string& side : sides_)
      if (!ip("netns add " + side)) return;
    if (!ip("link add wire netns " + sides_[0] + " type veth peer name wire netns " + sides_[1])) return;
    for (int i : {0, 1}) {
      const std::string on = "-n " + sides_[i];
      if (!ip(on + " addr add 10.99.0." + std::to_string(i + 1) + "/24 dev wire") || !ip(on + " link set wire up") ||
          !ip(on + " link set lo up"))
        return;
    }
    there_ = true;
  }
  ~Wire() {
    for (const std::string& side : sides_) run(words("ip netns del " + side), "/usr/bin/env");
  }
  /// Whether it is there; else says that the test is skipped.
  bool there() const {
    if (!there_) WARN("skipped: no network namespaces here: " << why_);
    return there_;
  }
  void cut() { REQUIRE(ip("-n " + sides_[1] + " link set wire down")); }
  void heal() { REQUIRE(ip("-n " + sides_[1] + " link set wire up")); }
  /// Whether the wire is slow and loses packets from now on; else says that this is skipped.
  bool spoil() {
    for (const std::string& side : sides_) {
      const Ended ended =
          run(words("ip netns exec " + side + " tc qdisc add dev wire root netem delay 50ms loss 5%"), "/usr/bin/env");
      if (ended.status == 0) continue;
      WARN("skipped: no netem here: " << ended.err);
      return false;
    }
    return true;
  }
  std::unique_ptr<Program> start(int side, const std::string& path, const std::vector<std::string>& arguments) const {
    std::vector<std::string> all = {"ip", "netns", "exec", sides_[side], path};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return std::make_unique<Program>("/usr/bin/env", all);
  }

 private:
  bool ip(const std::string& text) {
    const Ended ended = run(words("ip " + text), "/usr/bin/env");
    if (ended.status != 0) why_ = "ip " + text + ": " + ended.err;
    return ended.status == 0;
  }
  const std::string sides_[2] = {"troupe-left-" + std::to_string(::getpid()),
                                 "troupe-right-" + std::to_string(::getpid())};
  std::string why_;
  bool there_ = false;
};

/// Two workers, one on each side, and train_images on the left, with both of them.
struct WiredTraining {
  WiredTraining(const Wire& wire, int epochs, const std::string& silence)
      : alone(folder, "alone"), spread(folder, "spread") {
    REQUIRE(run(alone.arguments(epochs), kTrain).status == 0);
    const std::string json = R"({"cluster": {"worker": ["10.99.0.1:4000", "10.99.0.2:4000"]}})";
    for (int i : {0, 1}) {
      workers[i] = wire.start(i, kTroupePath,
                              {"worker", "--cluster", json, "--job", "worker", "--task", std::to_string(i),
                               "--insecure", "--silence", silence, "--cores", "1"});
      REQUIRE(workers[i]->read_for(std::chrono::minutes(1), " listens at "));
    }
    client = wire.start(0, kTrain,
                        spread.arguments(epochs, {"--cluster", json, "--devices", "workers", "--silence", silence}));
  }
  /// Until it is done; whether all went well.
  void check_end() {
    const int status = client->wait();
    INFO(client->out() << client->err());
    REQUIRE(status == 0);
    CHECK(spread.checkpoint() == alone.checkpoint());
    for (const auto& worker : workers) {
      worker->signal(SIGTERM);
      CHECK(worker->wait() == 0);
    }
  }
  int clients_of(int worker) const {
    const std::string& told = workers[worker]->err();
    int out = 0;
    for (size_t at = 0; (at = told.find("/job:client/", at)) != std::string::npos; ++at)
      out += told.substr(at, told.find('\n', at) - at).ends_with(" has come");
    return out;
  }
  const Cluster folder = Cluster(1);
  const Training alone, spread;
  std::unique_ptr<Program> workers[2], client;
};

}  // namespace

TEST_CASE("partition: a cut of a second loses no step and restarts nothing") {
  Wire wire;
  if (!wire.there()) return;
  WiredTraining training(wire, 8, "5000");  // machines of tests are busy
  REQUIRE(training.client->read_for(std::chrono::minutes(1), "epoch 1/"));
  wire.cut();
  CHECK_FALSE(training.client->read_for(std::chrono::seconds(1), " waited for input "));
  wire.heal();
  training.check_end();
  CHECK(training.client->out().find("lost") == std::string::npos);
  CHECK(training.clients_of(0) == 1);
  CHECK(training.clients_of(1) == 1);
}

TEST_CASE("partition: a cut that is longer than the time-out ends steps, and training goes on after it") {
  Wire wire;
  if (!wire.there()) return;
  WiredTraining training(wire, 8, "1000");
  REQUIRE(training.client->read_for(std::chrono::minutes(1), "epoch 1/"));
  wire.cut();
  CHECK(training.client->read_for(std::chrono::minutes(1), "/job:worker/replica:0/task:1: nothing came from it for"));
  // The other side has noticed too.
  CHECK(training.workers[1]->read_for(std::chrono::minutes(1), " has gone"));
  wire.heal();
  CHECK(training.client->read_for(std::chrono::minutes(1), "back after "));
  training.check_end();
  CHECK_THAT(training.client->out(), Contains("lost at step ") && Contains("/job:worker/replica:0/task:1: "));
  CHECK(training.clients_of(1) == 2);
}

TEST_CASE("partition: a slow wire that loses packets changes no bit") {
  Wire wire;
  if (!wire.there() || !wire.spoil()) return;
  WiredTraining training(wire, 1, "5000");
  training.check_end();
  CHECK(training.client->out().find("lost") == std::string::npos);
}

}  // namespace troupe::testing
