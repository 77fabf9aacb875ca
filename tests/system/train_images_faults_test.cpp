// SPDX-License-Identifier: Apache-2.0
// The main job where something is wrong: broken data, damaged checkpoints, a full disk, a kill, a loss that is no
// number.
#include "tests/system/train_images.h"

#include <algorithm>

namespace troupe::testing {
namespace {

TEST_CASE("train_images names what is wrong in one line, with status 1") {
  Data data;
  const Directory out;
  const auto fails = [&](std::vector<std::string> options) {
    Child child(arguments(data, out, std::move(options)));
    const int status = child.wait();
    INFO(child.output);
    CHECK(status == 1);
    CHECK(std::count(child.output.begin(), child.output.end(), '\n') == 1);
    return child.output;
  };
  const fs::path images = data.path / "train-images-idx3-ubyte";
  SECTION("a truncated file") {
    fs::resize_file(images, 1000);
    CHECK_THAT(fails({}), Catch::Contains(images.string()));
  }
  SECTION("a file whose gzip stream is broken") {
    const fs::path packed = images.string() + ".gz";
    fs::remove(images);
    std::ofstream(packed, std::ios::binary) << "\x1f\x8b\x08 and then nothing that inflates";
    CHECK_THAT(fails({}), Catch::Contains(packed.string()));
  }
  SECTION("a missing file") {
    fs::remove(data.path / "t10k-labels-idx1-ubyte");
    CHECK_THAT(fails({}), Catch::Contains("t10k-labels-idx1-ubyte"));
  }
  SECTION("nothing to resume") { CHECK_THAT(fails({"--resume"}), Catch::Contains(out.path.string())); }
  SECTION("a batch larger than the data") { CHECK_THAT(fails({"--batch", "1000"}), Catch::Contains("1000")); }
}

TEST_CASE("train_images killed while it saves goes on from its last checkpoint") {
  const Data data;
  const Directory out;
  const std::vector<std::string> options = {"--mode", "sync", "--epochs", "10000", "--save-seconds", "0"};
  int64_t reached = 0;
  for (int round = 0; round < 4; ++round) {
    Child child(arguments(data, out, options));
    // Each step is saved, so the kill comes at any point of a save.
    const bool begun = child.read_until(fmt::format("epoch {}/", reached / 20 + 2 + round));
    child.end_by(SIGKILL);
    CHECK(child.wait() == -1);
    INFO(child.output);
    REQUIRE(begun);
    if (round > 0) CHECK_THAT(child.output, Catch::Contains("going on from step") && !Catch::Contains("passed over"));
    const int64_t step = latest(out).at("global_step").data<int64_t>()[0];
    CHECK(step > reached);
    reached = step;
  }
}

TEST_CASE("train_images goes on from the checkpoint before a damaged one, and says so") {
  const Data data;
  const Directory out;
  for (const char* epochs : {"1", "2"}) {
    Child child(arguments(data, out, {"--epochs", epochs}));
    REQUIRE(child.wait() == 0);
  }
  const auto there = Checkpointer::read_list((out.path / "checkpoints").string());
  REQUIRE((there.ok() && there->size() == 2));
  fs::resize_file(there->back().path, fs::file_size(there->back().path) / 2);
  Child child(arguments(data, out, {"--epochs", "2", "--resume"}));
  const int status = child.wait();
  INFO(child.output);
  CHECK(status == 0);
  CHECK_THAT(child.output, Catch::Contains("passed over") && Catch::Contains(there->back().path) &&
                               Catch::Contains(fmt::format("going on from step {}", there->front().step)));
}

TEST_CASE("train_images on a full disk ends with an error and keeps what was saved") {
  const Data data;
  const Directory out;
  Child first(arguments(data, out, {"--epochs", "1"}));
  REQUIRE(first.wait() == 0);
  const TensorMap saved = latest(out);
  const long bytes = GENERATE(0L, 4096L, 100'000L);  // for events; for events, not for a checkpoint
  Child child(arguments(data, out, {"--epochs", "3"}), false, bytes);
  const int status = child.wait();
  INFO(child.output);
  CHECK(status == 1);
  CHECK_THAT(child.output, Catch::Contains("train_images: resource exhausted") && Catch::Contains(out.path.string()));
  const TensorMap after = latest(out);
  for (const auto& [name, value] : saved) {
    INFO(name);
    CHECK(value.identical(after.at(name)));
  }
}

TEST_CASE("train_images stops at a loss that is not a number, with the step and the node") {
  const Data data;
  const Directory out;
  const std::vector<std::string> options = {"--optimizer", "sgd", "--lr", "1e30"};
  Child child(arguments(data, out, options));
  CHECK(child.wait() == 1);
  CHECK_THAT(child.output, Catch::Contains("train_images: ") && Catch::Contains("step ") && Catch::Contains("loss"));
  std::vector<std::string> checked = options;
  checked.push_back("--check-numerics");
  Child checking(arguments(data, out, checked));
  CHECK(checking.wait() == 1);
  CHECK_THAT(checking.output, Catch::Contains("is the first with a NaN or infinity"));
}

}  // namespace
}  // namespace troupe::testing
