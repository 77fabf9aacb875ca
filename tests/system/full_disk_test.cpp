// SPDX-License-Identifier: Apache-2.0
// Disks that fill under a cluster: a small tmpfs in a mount namespace of its own, in which the trainer or a worker
// runs. Needs the rights to mount; without them it is skipped.
#include <set>

#include "tests/system/cluster.h"
#include "troupe/checkpoint.h"

namespace troupe::testing {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using std::chrono::minutes;

/// A disk of so many bytes at `path`, which only programs that enter() starts see. A process holds its namespace.
class SmallDisk {
 public:
  SmallDisk(std::string path, uintmax_t bytes) : path_(std::move(path)) {
    fs::create_directory(path_);
    const std::string size = "size=" + std::to_string(bytes);
    holder_ = std::make_unique<Program>(
        "/usr/bin/env", std::vector<std::string>{"unshare", "-m", "sh", "-c",
                                                 "mount -t tmpfs -o \"$1\" none \"$0\" && echo \"holds as $$.\" && "
                                                 "exec sleep 1000",
                                                 path_, size});
    if (!holder_->read_for(minutes(1), ".\n")) return;
    const size_t from = holder_->out().find("holds as ");
    if (from != std::string::npos) pid_ = std::stoi(holder_->out().substr(from + 9));
  }
  /// Whether it is there; else says that the test is skipped.
  bool there() const {
    if (pid_ < 0) WARN("skipped: no mount namespaces here: " << holder_->out() << holder_->err());
    return pid_ >= 0;
  }
  const std::string& path() const { return path_; }
  /// Where this process sees what programs see as `path()`.
  std::string from_here() const { return "/proc/" + std::to_string(pid_) + "/root" + path_; }
  std::unique_ptr<Program> enter(const std::string& program, const std::vector<std::string>& arguments) const {
    std::vector<std::string> all = {"nsenter", "--mount=/proc/" + std::to_string(pid_) + "/ns/mnt",
                                    fs::absolute(program).string()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return std::make_unique<Program>("/usr/bin/env", all);
  }

 private:
  const std::string path_;
  std::unique_ptr<Program> holder_;
  int pid_ = -1;
};

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder)) out.insert(entry.path().filename().string());
  return out;
}

uintmax_t bytes_in(const std::string& folder) {
  uintmax_t out = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) out += entry.file_size();
  return out;
}

/// Nodes on worker 0 that save ones, so many as fill the disk or a few, and that read what was saved.
std::string saving_graph(const std::string& file) {
  const std::string on = " device: '/job:worker/task:0/cpu:0' ";
  const auto constant = [&](const std::string& name, const std::string& dtype, const std::string& tensor) {
    return "node { name: '" + name + "' op: 'Const'" + on + "attr { key: 'dtype' value { type: " + dtype +
           " } } attr { key: 'value' value { tensor { dtype: " + dtype + " " + tensor + " } } } }\n";
  };
  const auto fill_and_save = [&](const std::string& name, const std::string& count) {
    return constant(name + "_size", "DT_INT32", "tensor_shape { dim { size: 1 } } int_val: " + count) +
           "node { name: '" + name + "' op: 'Fill'" + on + "input: '" + name + "_size' input: 'one' " +
           "attr { key: 'T' value { type: DT_FLOAT } } attr { key: 'index_type' value { type: DT_INT32 } } }\n" +
           "node { name: 'save_" + name + "' op: 'SaveV2'" + on + "input: 'file' input: 'names' input: 'slices' " +
           "input: '" + name + "' attr { key: 'dtypes' value { list { type: DT_FLOAT } } } }\n";
  };
  const std::string vector = "tensor_shape { dim { size: 1 } } string_val: ";
  return constant("one", "DT_FLOAT", "tensor_shape {} float_val: 1") +
         constant("file", "DT_STRING", "tensor_shape {} string_val: '" + file + "'") +
         constant("names", "DT_STRING", vector + "'v'") + constant("slices", "DT_STRING", vector + "''") +
         fill_and_save("few", "3") + fill_and_save("many", "4000000") + "node { name: 'restored' op: 'RestoreV2'" + on +
         "input: 'file' input: 'names' input: 'slices' " +
         "attr { key: 'dtypes' value { list { type: DT_FLOAT } } } }\n";
}

}  // namespace

TEST_CASE(
    "full disk: a trainer over a cluster ends with the file's name, and its last whole checkpoint is gone on from") {
  const Cluster c(2);
  const Training alone(c, "alone"), spread(c, "spread");
  const int epochs = 2;
  REQUIRE(run(alone.arguments(epochs, {"--save-seconds", "1000"}), kTrain).status == 0);
  const uintmax_t one = fs::file_size(alone.out + "/checkpoints/" + *names_in(alone.out + "/checkpoints").begin());
  // Room for three checkpoints and a half: the fourth is too much, and nothing is deleted before the sixth.
  const SmallDisk disk(c.file("disk"), 3 * one + one / 2 + bytes_in(alone.out + "/events"));
  if (!disk.there()) return;
  const auto first = c.start(0, {"--cores", "1"}), second = c.start(1, {"--cores", "1"});
  const std::vector<std::string> over = {"--cluster", c.file("cluster.json"), "--devices", "workers"};

  const Training full(c, "disk/out");
  auto every_step = over;
  every_step.insert(every_step.end(), {"--save-seconds", "0"});
  const auto client = disk.enter(kTrain, full.arguments(epochs, every_step));
  const int status = client->wait();
  INFO(client->out() << client->err());
  CHECK(status == 1);
  CHECK_THAT(client->err(), Contains("train_images: resource exhausted: ") &&
                                Contains(full.out + "/checkpoints/checkpoint-") && Contains("No space left on device"));
  CHECK(std::ranges::count(client->err(), '\n') == 1);

  // What has a checkpoint's name is a whole one, and nothing else was left.
  const std::string left = disk.from_here() + "/out/checkpoints";
  const auto entries = Checkpointer::read_list(left);
  REQUIRE(entries.ok());
  REQUIRE(entries->size() == 3);
  for (const auto& entry : *entries) {
    const auto file = read_safetensors(entry.path);
    INFO((file.ok() ? entry.path : file.error().str()));
    REQUIRE(file.ok());
    CHECK(file->checked);
    CHECK(file->step == entry.step);
  }
  for (const std::string& name : names_in(left)) CHECK_THAT(name, !Contains("partial"));

  // Where there is room, another process goes on from there, with the same workers.
  fs::create_directory(spread.out);
  fs::copy(left, spread.out + "/checkpoints", fs::copy_options::recursive);
  auto resume = over;
  resume.insert(resume.end(), {"--save-seconds", "1000", "--resume"});
  const Ended resumed = run(spread.arguments(epochs, resume), kTrain);
  INFO(resumed.out << resumed.err);
  REQUIRE(resumed.status == 0);
  CHECK_THAT(resumed.out, Contains("going on from step " + std::to_string(entries->back().step) + " of " + spread.out));
  CHECK_THAT(resumed.err, !Contains("passed over"));
  CHECK(spread.checkpoint() == alone.checkpoint());
}

TEST_CASE("full disk: a save op on a worker fails with op, device and file, and the worker serves the next step") {
  const Cluster c(1);
  const SmallDisk disk(c.file("disk"), 4 << 20);
  if (!disk.there()) return;
  const auto worker = disk.enter(kTroupePath, {"worker", "--cluster", c.file("cluster.json"), "--job", "worker",
                                               "--task", "0", "--data", disk.path()});
  REQUIRE(worker->read_for(minutes(1), " listens at "));
  const std::string file = disk.path() + "/saved";
  c.write("g.pbtxt", saving_graph(file));
  const auto step = [&](const std::string& what, const std::string& name) {
    return run({"run", c.file("g.pbtxt"), "--cluster", c.file("cluster.json"), what, name});
  };

  const Ended few = step("--target", "save_few");
  INFO(few.err);
  REQUIRE(few.status == 0);
  for (int i = 0; i < 2; ++i) {
    check_error(step("--target", "save_many"), 1,
                {"resource exhausted: ", "SaveV2", "save_many", "/job:worker/replica:0/task:0/device:cpu:0", file,
                 "No space left on device"});
    CHECK(names_in(disk.from_here()) == std::set<std::string>{"saved.data-00000-of-00001", "saved.index"});
    const Ended restored = step("--fetch", "restored");
    CHECK(restored.status == 0);
    CHECK(restored.out == "restored float32[3] [1, 1, 1]\n");
  }
  worker->signal(SIGTERM);
  CHECK(worker->wait() == 0);
}

}  // namespace troupe::testing
