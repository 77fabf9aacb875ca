// SPDX-License-Identifier: Apache-2.0
// The main job as its users run it: every mode, resuming, the same weights from the same seed, Ctrl-C.
#include <nlohmann/json.hpp>
#include <set>

#include "tests/repeats.h"
#include "tests/system/train_images.h"

namespace troupe::testing {
namespace {

TEST_CASE("train_images learns in every mode, and a second run goes on") {
  const Data data;
  const Directory out;
  const std::string mode = GENERATE("sync", "ring", "zero", "async", "hybrid", "local");
  if (kSlowness > 1 && (mode == "sync" || mode == "ring" || mode == "async")) return;
  std::vector<std::string> options = {"--mode", mode, "--epochs", "2"};
  if (mode == "hybrid") options.insert(options.end(), {"--replicas", "3", "--backups", "1"});
  if (mode == "async") options.insert(options.end(), {"--staleness", "1"});
  if (mode == "local") options.insert(options.end(), {"--local-steps", "5"});
  Child first(arguments(data, out, options));
  const int status = first.wait();
  INFO(first.output);
  REQUIRE(status == 0);
  CHECK_THAT(first.output,
             Catch::Contains("epoch 2/2") && Catch::Contains("test accuracy") && Catch::Contains("waited for input"));
  CHECK_FALSE(fs::is_empty(out.path / "events"));

  options[3] = "4";
  Child second(arguments(data, out, options));
  const int again = second.wait();
  INFO(second.output);
  REQUIRE(again == 0);
  CHECK_THAT(second.output,
             Catch::Contains("going on from step") && Catch::Contains("epoch 4/4") && !Catch::Contains("epoch 1/4"));
  CHECK_THAT(second.output, Catch::Contains("test accuracy 100.00 %") || Catch::Contains("test accuracy 9"));
}

TEST_CASE("train_images writes what every step did to a file that viewers open") {
  const Data data;
  const Directory out;
  const std::string file = out.path / "trace.json";
  Child run(arguments(data, out, {"--mode", "sync", "--epochs", "2", "--trace", file}));
  const int status = run.wait();
  INFO(run.output);
  REQUIRE(status == 0);
  std::ifstream in(file);
  const auto events = nlohmann::json::parse(in);
  std::set<int64_t> steps, devices;
  for (const auto& e : events)
    if (e["ph"] == "e" && e["args"]["op"] == "ResourceApplyAdam") steps.insert(e["args"]["step"].get<int64_t>());
    else if (e["ph"] == "M" && e["name"] == "thread_name") devices.insert(e["tid"].get<int64_t>());
  CHECK(steps.size() >= 2);
  CHECK(devices.size() == 3);

  Child nowhere(arguments(data, out, {"--fresh", "--trace", "/nowhere/trace.json"}));
  CHECK(nowhere.wait() == 1);
  CHECK_THAT(nowhere.output, Catch::Contains("/nowhere/trace.json"));
}

TEST_CASE("train_images learns in 16 bits, and saves variables of 32") {
  const Data data;
  const Directory out;
  const std::string dtype = GENERATE("bfloat16", "float16");
  Child child(arguments(data, out, {"--dtype", dtype, "--epochs", "3"}));
  const int status = child.wait();
  INFO(child.output);
  REQUIRE(status == 0);
  CHECK_THAT(child.output, Catch::Contains("test accuracy 100.00 %") || Catch::Contains("test accuracy 9"));
  for (const auto& [name, value] : latest(out)) CHECK(value.dtype() != DType::kBFloat16);
}

TEST_CASE("train_images gives the same weights for the same seed where replicas agree, however often it saves") {
  const Data data;
  const Directory a, b, c;
  const std::string mode = GENERATE("sync", "zero");
  const auto train = [&](const Directory& out, const char* seed, const char* save_seconds = "30") {
    Child child(
        arguments(data, out, {"--mode", mode, "--epochs", "1", "--seed", seed, "--save-seconds", save_seconds}));
    const int status = child.wait();
    INFO(child.output);
    REQUIRE(status == 0);
    return latest(out);
  };
  const TensorMap first = train(a, "1"), same = train(b, "1", "0"), other = train(c, "2");
  REQUIRE(first.size() == same.size());
  for (const auto& [name, value] : first) {
    INFO(name);
    CHECK(value.identical(same.at(name)));
  }
  CHECK_FALSE(first.at("hidden/kernel").identical(other.at("hidden/kernel")));
}

TEST_CASE("Ctrl-C saves a checkpoint and leaves with status 0; the next run goes on") {
  const Data data;
  const Directory out;
  const std::string mode = GENERATE("sync", "zero", "async", "hybrid", "local");
  if (kSlowness > 1 && (mode == "zero" || mode == "hybrid" || mode == "local")) return;
  {
    Child child(arguments(data, out, {"--mode", mode, "--epochs", "10000"}));
    const bool begun = child.read_until("epoch 1/");
    INFO(child.output);
    REQUIRE(begun);
    child.interrupt();
    const int status = child.wait();
    INFO(child.output);
    CHECK(status == 0);
    CHECK_THAT(child.output, Catch::Contains("interrupted at step"));
  }
  CHECK(latest(out).contains("hidden/kernel"));
  Child child(arguments(data, out, {"--mode", mode, "--epochs", "10000", "--resume"}));
  const bool resumed = child.read_until("going on from step") && child.read_until("epoch");
  INFO(child.output);
  REQUIRE(resumed);
  CHECK_THAT(child.output, !Catch::Contains("epoch 1/"));
  child.interrupt();
  CHECK(child.wait() == 0);
}

TEST_CASE("a synchronous run that was interrupted ends with the weights of one that was not") {
  const Data data;
  const Directory whole, parts;
  const std::vector<std::string> options = {"--mode", "sync", "--epochs", kSlowness > 1 ? "5" : "40", "--augment"};
  const auto finish = [&](const Directory& out) {
    Child child(arguments(data, out, options));
    const int status = child.wait();
    INFO(child.output);
    REQUIRE(status == 0);
    return latest(out);
  };
  for (const char* reached : {"epoch 1/", "epoch 3/"}) {
    Child child(arguments(data, parts, options));
    const bool begun = child.read_until(reached);
    child.interrupt();
    CHECK(child.wait() == 0);
    INFO(child.output);
    CHECK((begun && child.output.find("interrupted at step") != std::string::npos));
  }
  const TensorMap wanted = finish(whole), resumed = finish(parts);
  REQUIRE(wanted.size() == resumed.size());
  for (const auto& [name, value] : wanted) {
    INFO(name);
    CHECK(value.identical(resumed.at(name)));
  }
}

TEST_CASE("on a terminal a bar shows loss, accuracy, speed and the time left") {
  const Data data;
  const Directory out;
  Child child(arguments(data, out, {"--epochs", "10000"}), true);
  const bool drawn = child.read_until(" left");
  INFO(child.output);
  REQUIRE(drawn);
  CHECK_THAT(child.output, Catch::Contains("/10000 [>") && Catch::Contains("loss ") && Catch::Contains("accuracy ") &&
                               Catch::Contains(" images/s  "));
  child.end_by(SIGTERM);
  CHECK(child.wait() == 0);
  CHECK_THAT(child.output, Catch::Contains("interrupted at step"));
}

TEST_CASE("train_images explains itself and refuses wrong options") {
  Child help({"--help"});
  CHECK(help.wait() == 0);
  CHECK_THAT(help.output, Catch::Contains("--mode") && Catch::Contains("--replicas") && Catch::Contains("--resume"));
  Child wrong({"--mode", "sometimes"});
  CHECK(wrong.wait() != 0);
  CHECK_THAT(wrong.output, Catch::Contains("sometimes"));
  Child idle({"--mode", "async", "--replicas", "2", "--backups", "1"});
  CHECK(idle.wait() != 0);
  CHECK_THAT(idle.output, Catch::Contains("--backups: has no meaning in mode async"));
  Child alone({"--mode", "hybrid", "--replicas", "2", "--backups", "2"});
  CHECK(alone.wait() != 0);
  CHECK_THAT(alone.output, Catch::Contains("--backups: there must be more replicas"));
}

}  // namespace
}  // namespace troupe::testing
