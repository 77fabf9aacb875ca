// SPDX-License-Identifier: Apache-2.0
// What is not a regular file where one is read at once is an error and never waited for; streams of text and records
// may come through a FIFO. Temporary files of live and of dead saves.
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "io/byte_reader.h"
#include "io/file_system.h"
#include "io/tfrecord.h"
#include "io/whole_file.h"
#include "tests/io/temporary_directory.h"
#include "troupe/checkpoint.h"
#include "troupe/cost_model.h"
#include "troupe/dataset.h"
#include "troupe/idx.h"
#include "troupe/npy.h"

using namespace troupe;

TEST_CASE("a FIFO, a device or a directory is an error wherever a file is read at once") {
  TemporaryDirectory dir;
  const std::string fifo = dir.file("fifo");
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  for (const std::string& path : {fifo, std::string("/dev/zero"), dir.path()}) {
    INFO(path);
    const auto refused = [&](const auto& result) {
      REQUIRE(!result.ok());
      CHECK(result.error().code == Code::kInvalidArgument);
      CHECK_THAT(result.error().message, Catch::Contains(path) && Catch::Contains("not a regular file"));
    };
    refused(read_file(path));
    refused(read_npy(path));
    refused(read_npz(path));
    refused(read_idx(path));
    refused(read_safetensors(path));
    refused(ByteReader::open(path));
  }
}

TEST_CASE("writing to a FIFO that nobody reads, or over what is not a file, is an error") {
  TemporaryDirectory dir;
  const std::string fifo = dir.file("fifo");
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  for (const Status& status :
       {write_file(fifo, "x"), append_file(fifo, "x"), write_safetensors(fifo, {{"a", Tensor::scalar(1.f)}})}) {
    REQUIRE(!status.ok());
    CHECK_THAT(status.error().message, Catch::Contains(fifo));
  }
  CHECK_THAT(CostModel().save(fifo).error().message, Catch::Contains(fifo) && Catch::Contains("not a regular file"));
  CHECK_THAT(CostModel::load(fifo).error().message, Catch::Contains(fifo) && Catch::Contains("not a regular file"));
  const auto files = make_posix_file_system();
  const Status renamed = files->rename(dir.write("new", "x"), fifo);
  CHECK_THAT(renamed.error().message, Catch::Contains(fifo) && Catch::Contains("a FIFO"));
  // Nor is a link to such replaced, but one to a file or to nothing is.
  for (const auto& [to, replaced] :
       {std::pair(fifo, false), std::pair(std::string("/dev/null"), false), std::pair(dir.path(), false),
        std::pair(dir.write("old", "y"), true), std::pair(dir.file("nowhere"), true)}) {
    CAPTURE(to);
    const std::string link = dir.file("link");
    std::filesystem::remove(link);
    std::filesystem::create_symlink(to, link);
    const Status done = files->rename(dir.write("new", "x"), link);
    CHECK(done.ok() == replaced);
    if (!done.ok()) CHECK_THAT(done.error().message, Catch::Contains(link) && Catch::Contains("not a regular file"));
    CHECK(std::filesystem::is_symlink(link) == !replaced);
  }
  CHECK(TemporaryDirectory::read(dir.file("old")) == "y");
  struct stat info;
  REQUIRE(::lstat(fifo.c_str(), &info) == 0);
  CHECK(S_ISFIFO(info.st_mode));

  REQUIRE(append_file(dir.file("log"), "a").ok());
  REQUIRE(append_file(dir.file("log"), "b").ok());
  CHECK(TemporaryDirectory::read(dir.file("log")) == "ab");
}

TEST_CASE("lines and records may come through a FIFO") {
  TemporaryDirectory dir;
  const std::string fifo = dir.file("fifo");
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const bool lines = GENERATE(true, false);
  std::thread writer(
      [&] { std::ofstream(fifo) << (lines ? "one\ntwo\n" : encode_record("one") + encode_record("two")); });
  const auto data = lines ? Dataset::from_text_lines({fifo}) : Dataset::from_records({fifo});
  REQUIRE(data.ok());
  auto next = data->iterate();
  REQUIRE(next.ok());
  for (const char* word : {"one", "two"}) {
    const auto element = (*next)->next();
    REQUIRE((element.ok() && *element));
    CHECK((**element)[0].values<std::string>()[0] == word);
  }
  const auto end = (*next)->next();
  CHECK((end.ok() && !*end));
  writer.join();
}

TEST_CASE("signals that a program handles do not break what comes through a FIFO") {
  TemporaryDirectory dir;
  const std::string fifo = dir.file("fifo");
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  struct sigaction handled = {}, before = {};
  handled.sa_handler = [](int) {};  // without SA_RESTART
  REQUIRE(::sigaction(SIGUSR1, &handled, &before) == 0);
  constexpr int kLines = 200;
  std::thread writer([&, reader = ::pthread_self()] {
    std::ofstream out(fifo);
    for (int i = 0; i < kLines; ++i) {
      out << i << std::endl;
      ::pthread_kill(reader, SIGUSR1);
      std::this_thread::yield();
    }
  });
  auto next = Dataset::from_text_lines({fifo})->iterate();
  REQUIRE(next.ok());
  for (int i = 0; i < kLines; ++i) {
    const auto element = (*next)->next();
    INFO((element.ok() ? "" : element.error().str()));
    CHECK((element.ok() && *element && (**element)[0].values<std::string>()[0] == std::to_string(i)));
  }
  writer.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("temporary files of a save that goes on stay, those of a dead one go") {
  TemporaryDirectory dir;
  const auto files = make_posix_file_system();
  const std::string path = dir.file("model");
  dir.write("model.0.temporary", "left by a kill");
  dir.write("model.x.temporary", "mine");
  dir.write("other.0.temporary", "another's");
  auto live = files->create_temporary(path);
  REQUIRE(live.ok());
  CHECK(live->first == path + ".1.temporary");
  files->remove_temporaries(path);
  CHECK(!std::filesystem::exists(path + ".0.temporary"));
  CHECK(std::filesystem::exists(live->first));
  CHECK(std::filesystem::exists(path + ".x.temporary"));
  CHECK(std::filesystem::exists(dir.file("other.0.temporary")));
  REQUIRE(live->second->append("x", 1).ok());
  REQUIRE(live->second->close().ok());
  files->remove_temporaries(path);
  CHECK(!std::filesystem::exists(live->first));
}

TEST_CASE("saves to one path at once do not take one another's temporary files") {
  TemporaryDirectory dir;
  const std::string path = dir.file("model");
  std::atomic<int> faults{0};
  std::vector<std::thread> savers;
  for (int t = 0; t < 4; ++t)
    savers.emplace_back([&, t] {
      const auto files = make_posix_file_system();
      for (int i = 0; i < 200; ++i) {
        files->remove_temporaries(path);
        auto made = files->create_temporary(path);
        const std::string text = std::to_string(t);
        const bool saved = made.ok() && made->second->append(text.data(), text.size()).ok() &&
                           files->rename(made->first, path).ok() && made->second->close().ok();
        faults += !saved;
      }
    });
  for (std::thread& t : savers) t.join();
  CHECK(faults == 0);
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}
