// SPDX-License-Identifier: Apache-2.0
// Where data folders end: "..", links of each kind, and paths that are not there yet.
#include "io/data_folders.h"

#include <unistd.h>

#include <filesystem>

#include "tests/io/temporary_directory.h"

using namespace troupe;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

struct Fixture : TemporaryDirectory {
  Fixture() {
    for (const char* folder : {"data", "data/in", "database", "outside"}) fs::create_directory(file(folder));
    write("data/x", "x"), write("outside/x", "x"), write("database/x", "x");
    folders = DataFolders::make({file("data")}).value();
  }
  bool fine(const std::string& path) const { return folders->check(path).ok(); }
  bool inside(const std::string& name) const { return fine(file(name)); }
  void link(const std::string& from, const std::string& to) { fs::create_symlink(to, file(from)); }
  std::shared_ptr<const DataFolders> folders;
};

}  // namespace

TEST_CASE("paths in a data folder are fine, whether they are there or not, and others are not") {
  const Fixture f;
  for (const char* name : {"data/x", "data/new", "data/in/new", "data/not/there/yet", "data/./x", "data//x",
                           "data/in/../x", "data/not/../x", "outside/../data/x", "data/*", "data/..x", "data/in/"})
    CHECK(f.inside(name));
  for (const char* name : {"outside/x", "new", "database/x", "data/../outside/x", "data/in/../../outside/x",
                           "data/not/there/../../../outside/new", "data/../database/x", "data/..", "data*", ""})
    CHECK_FALSE(f.inside(name));
  for (const std::string& path :
       {std::string(), std::string("/"), std::string("/etc/passwd"), std::string("relative"), std::string("../x"),
        f.file("data/x") + std::string(1, '\0'), "/proc/self/root" + f.file("outside/x")})
    CHECK_FALSE(f.fine(path));
  CHECK(f.fine("/proc/self/root" + f.file("data/x")));
}

TEST_CASE("links lead where they lead") {
  Fixture f;
  f.link("data/to_file", f.file("outside/x"));
  f.link("data/to_folder", f.file("outside"));
  f.link("data/up", "..");
  f.link("data/nowhere", f.file("outside/new"));
  f.link("data/circle", "circle");
  f.link("data/within", "in");
  f.link("outside/back", f.file("data"));
  f.link("outside/to_x", f.file("data/x"));
  for (const char* name :
       {"data/to_file", "data/to_folder", "data/to_folder/x", "data/to_folder/new", "data/up/outside/x", "data/up/new",
        "data/nowhere", "data/nowhere/new", "data/circle", "data/to_folder/../x"})
    CHECK_FALSE(f.inside(name));
  CHECK(f.inside("data/within/new"));
  CHECK(f.inside("data/up/data/x"));
  CHECK(f.inside("outside/back/x"));
  // What is saved there would be made in "outside" first.
  CHECK_FALSE(f.inside("outside/to_x"));
}

TEST_CASE("a data folder may be a link, one of several, everything, or none at all") {
  Fixture f;
  f.link("link", f.file("data"));
  const auto two = DataFolders::make({f.file("outside") + "/", f.file("link")}).value();
  CHECK(two->check(f.file("data/x")).ok());
  CHECK(two->check(f.file("link/x")).ok());
  CHECK(two->check(f.file("outside/x")).ok());
  CHECK_FALSE(two->check(f.file("database/x")).ok());
  const auto all = DataFolders::make({"/"}).value();
  CHECK(all->check("/etc/passwd").ok());
  CHECK(all->check("relative").ok());
  const auto none = DataFolders::make({}).value();
  const auto refused = none->check(f.file("data/x"));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Code::kFailedPrecondition);
  CHECK(refused.error().message ==
        "the path '" + f.file("data/x") + "' is not in a data folder of this task (--data): it has none");
  CHECK(two->check("/etc/passwd").error().message ==
        "the path '/etc/passwd' is not in a data folder of this task (--data): '" + f.file("outside") + "', '" +
            f.file("data") + "'");
  CHECK(may_touch(nullptr, "/etc/passwd").ok());
  CHECK_FALSE(may_touch(none, "/etc/passwd").ok());

  CHECK(DataFolders::make({f.file("no")}).error().code == Code::kNotFound);
  CHECK_THAT(DataFolders::make({f.file("data/x")}).error().message, Contains("data/x") && Contains("is not a folder"));
}
