// SPDX-License-Identifier: Apache-2.0
// SaveV2, RestoreV2 and the former versions: what is written comes back; damage, wrong names and wrong types are
// errors.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/op_library.h"
#include "tests/ops/state_fixture.h"
#include "troupe/blocking_kernel.h"

using namespace troupe;
using Catch::Contains;

namespace {

/// A directory of its own, gone with the test.
struct Directory {
  std::string path;
  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe_save_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path = name;
  }
  ~Directory() { std::filesystem::remove_all(path); }
};

Tensor texts(std::initializer_list<std::string> s) { return Tensor::of<std::string>(s); }

Result<std::vector<Tensor>> run(const std::string& op, std::vector<Tensor> values, const Attrs& attrs,
                                std::vector<DType> outputs, std::shared_ptr<Allocator> allocator = system_allocator()) {
  const auto& [ops, kernels] = *testing::op_library();
  KernelInit init{op, "node", &attrs, {}, std::move(outputs), {}, {}};
  TROUPE_ASSIGN(const auto kernel, kernels.make(init, DeviceKind::kCpu));
  return dynamic_cast<BlockingKernel&>(*kernel).run({std::move(values), std::move(allocator), 4});
}

/// Runs SaveV2 or RestoreV2 on these inputs.
Result<std::vector<Tensor>> run(const std::string& op, std::vector<Tensor> values, std::vector<DType> dtypes,
                                std::shared_ptr<Allocator> allocator = system_allocator()) {
  return run(op, std::move(values), {{"dtypes", dtypes}}, op == "RestoreV2" ? dtypes : std::vector<DType>{},
             std::move(allocator));
}

}  // namespace

TEST_CASE("tensors saved are restored under their names") {
  const Directory d;
  const Tensor path = Tensor::scalar<std::string>(d.path + "/new/model.safetensors");
  const Tensor w = Tensor::of<float>({1, 2, 3, 4}, {2, 2}), n = Tensor::scalar<int64_t>(9);
  const Tensor both = texts({"fc/w", "n"}), whole = texts({"", ""});
  REQUIRE(run("SaveV2", {path, both, whole, w, n}, {DType::kFloat32, DType::kInt64}).ok());
  REQUIRE(run("SaveV2", {path, both, whole, w, n}, {DType::kFloat32, DType::kInt64}).ok());  // over the old one
  CHECK(std::distance(std::filesystem::directory_iterator(d.path + "/new"), {}) == 1);
  const auto back = run("RestoreV2", {path, texts({"n", "fc/w"}), whole}, {DType::kInt64, DType::kFloat32});
  REQUIRE(back.ok());
  CHECK(back->at(0).identical(n));
  CHECK(back->at(1).identical(w));

  const auto missing = run("RestoreV2", {path, texts({"x"}), texts({""})}, {DType::kFloat32});
  CHECK(missing.error().code == Code::kNotFound);
  CHECK_THAT(missing.error().message, Contains("'x'"));
  CHECK_THAT(run("RestoreV2", {path, texts({"n"}), texts({""})}, {DType::kFloat32}).error().message,
             Contains("int64") && Contains("float32"));
  CHECK_THAT(run("RestoreV2", {path, texts({"n"}), texts({"2 0,1"})}, {DType::kInt64}).error().message,
             Contains("tensor 'n': a slice of [2] of a tensor of shape []"));
  CHECK_FALSE(run("SaveV2", {path, texts({"a", "a"}), whole, w, n}, {DType::kFloat32, DType::kInt64}).ok());
  CHECK_FALSE(run("SaveV2", {path, texts({"a"}), texts({""}), texts({"s"})}, {DType::kString}).ok());

  const std::string file = path.data<std::string>()[0];
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  CHECK(run("RestoreV2", {path, both, whole}, {DType::kFloat32, DType::kInt64}).error().code == Code::kDataLoss);
  std::filesystem::remove(file);
  CHECK(run("RestoreV2", {path, both, whole}, {DType::kFloat32, DType::kInt64}).error().code == Code::kNotFound);
}

TEST_CASE("what a killed save left goes with the next one; a FIFO is an error in both directions") {
  const Directory d;
  const Tensor w = Tensor::of<float>({1, 2}), names = texts({"w"}), whole = texts({""});
  const auto save = [&](const std::string& path) {
    return run("SaveV2", {Tensor::scalar(path), names, whole, w}, {DType::kFloat32});
  };
  for (const char* left : {"/model.index.4.temporary", "/model.data.0.temporary"})
    std::ofstream(d.path + left) << "half";
  REQUIRE(save(d.path + "/model").ok());
  CHECK(std::distance(std::filesystem::directory_iterator(d.path), {}) == 2);
  const std::string fifo = d.path + "/fifo", index = fifo + ".index";
  REQUIRE(mkfifo(index.c_str(), 0600) == 0);
  for (const auto& result : {save(fifo), run("RestoreV2", {Tensor::scalar(fifo), names, whole}, {DType::kFloat32})}) {
    REQUIRE_FALSE(result.ok());
    CHECK_THAT(result.error().message, Contains(index) && Contains("a FIFO"));
  }
  CHECK(std::filesystem::is_fifo(index));
  CHECK(std::distance(std::filesystem::directory_iterator(d.path), {}) == 3);
}

TEST_CASE("tensors are saved in parts and restored in others") {
  const Directory d;
  Tensor path;
  const Tensor top = Tensor::of<float>({1, 2, 3}, {1, 3}), rest = Tensor::of<float>({4, 5, 6, 7, 8, 9}, {2, 3});
  const Tensor names = texts({"w", "n", "w"}), n = Tensor::scalar<float>(9);
  const std::vector<DType> three(3, DType::kFloat32);
  const auto save = [&](const std::string& op, const std::string& first, const std::string& second) {
    Attrs attrs = {{op == "SaveV2" ? "dtypes" : "T", three}};
    return run(op, {path, names, texts({first, "", second}), top, n, rest}, attrs, {});
  };
  for (const auto& [op, name] :
       {std::pair("SaveV2", "/v2"), std::pair("SaveSlices", "/v1"), std::pair("SaveV2", "/model.safetensors"),
        std::pair("SaveSlices", "/v1.safetensors")}) {
    path = Tensor::scalar<std::string>(d.path + name);
    REQUIRE(save(op, "3 3 0,1:-", "3 3 1,2:0,3").ok());
    const auto back = run("RestoreV2", {path, texts({"w", "w", "n"}), texts({"3 3 -:1,2", "", ""})}, three);
    REQUIRE(back.ok());
    CHECK(back->at(0).identical(Tensor::of<float>({2, 3, 5, 6, 8, 9}, {3, 2})));
    CHECK(back->at(1).identical(Tensor::of<float>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3})));
    CHECK(back->at(2).identical(n));
  }
  const auto fails = [&](const std::string& first, const std::string& second, const std::string& words) {
    INFO(first << " and " << second);
    CHECK_THAT(save("SaveV2", first, second).error().message, Contains("tensor 'w'") && Contains(words));
  };
  for (const char* name : {"/bad", "/bad.safetensors"}) {
    path = Tensor::scalar<std::string>(d.path + name);
    fails("3 3 0,1:-", "3 3 0,2:-", "overlap");
    fails("3 3 0,1:-", "4 3 1,2:-", "a part of float32 [3,3] and one of float32 [4,3]");
    fails("3 3 0,2:-", "3 3 2,1:-", "a slice of shape [2,3] is given");
  }
  fails("4 3 0,1:-", "4 3 1,2:-", "9 of the 12 elements");
  for (const char* bad : {"3 3", "3 3 0,1", "3 3 0,1:-:-", "3 x 0,1:-", "3 3 0,4:-", "3 3 -1,1:-", "3 3 0,1,1:-", " ",
                          "9223372036854775807 9223372036854775807 -:-", "3 3 3,9223372036854775807:-"})
    CHECK_FALSE(save("SaveV2", bad, "3 3 1,2:-").ok());
}

TEST_CASE("the former versions save and restore too, from several files by a pattern") {
  const Directory d;
  const auto path = [&](const std::string& name) { return Tensor::scalar(d.path + "/" + name); };
  const auto name = [](const std::string& s) { return Tensor::scalar(s); };
  const Tensor a = Tensor::of<float>({1, 2, 3, 4}, {2, 2}), b = Tensor::scalar<int64_t>(5);
  REQUIRE(run("Save", {path("m-0"), texts({"a"}), a}, {{"T", std::vector{DType::kFloat32}}}, {}).ok());
  REQUIRE(run("Save", {path("m-1"), texts({"b"}), b}, {{"T", std::vector{DType::kInt64}}}, {}).ok());
  const auto restore = [&](const std::string& file, const std::string& tensor, DType dtype) {
    return run("Restore", {path(file), name(tensor)}, {{"dt", dtype}, {"preferred_shard", int64_t{-1}}}, {dtype});
  };
  REQUIRE(restore("m-0", "a", DType::kFloat32).ok());
  CHECK(restore("m-?", "b", DType::kInt64)->at(0).identical(b));
  CHECK(restore("x-?", "b", DType::kInt64).error().code == Code::kNotFound);
  CHECK(restore("m-0", "b", DType::kInt64).error().code == Code::kNotFound);
  const auto row = run("RestoreSlice", {path("m-*"), name("a"), name("2 2 1,1:-")},
                       {{"dt", DType::kFloat32}, {"preferred_shard", int64_t{-1}}}, {DType::kFloat32});
  REQUIRE(row.ok());
  CHECK(row->at(0).identical(Tensor::of<float>({3, 4}, {1, 2})));
}

TEST_CASE("ops write TensorFlow's formats: texts too, one file or two; names that are missing are all listed") {
  const Directory d;
  const Tensor s = texts({"x", "", "three"}), b = Tensor::of<bool>({true, false});
  const auto path = [&](const char* name) { return Tensor::scalar(d.path + "/" + name); };
  const std::vector<DType> types = {DType::kString, DType::kBool};
  REQUIRE(run("SaveV2", {path("v2"), texts({"s", "b"}), texts({"", ""}), s, b}, types).ok());
  REQUIRE(run("Save", {path("v1"), texts({"s", "b"}), s, b}, {{"T", types}}, {}).ok());
  for (const char* name : {"v2.index", "v2.data-00000-of-00001", "v1"})
    CHECK(std::filesystem::is_regular_file(d.path + "/" + name));
  CHECK(std::distance(std::filesystem::directory_iterator(d.path), {}) == 3);
  for (const char* name : {"v1", "v2"}) {
    const auto back = run("RestoreV2", {path(name), texts({"s", "b"}), texts({"", "2 1,1"})}, types);
    REQUIRE(back.ok());
    CHECK(back->at(0).identical(s));
    CHECK(back->at(1).identical(Tensor::of<bool>({false})));
    const auto missing = run("RestoreV2", {path(name), texts({"x", "y"}), texts({"", ""})}, types);
    CHECK(missing.error().code == Code::kNotFound);
    CHECK_THAT(missing.error().message, Contains("has no tensor 'x', 'y' (it has 2 others)"));
  }
  CHECK(run("Restore", {path("v?"), Tensor::scalar<std::string>("s")},
            {{"dt", DType::kString}, {"preferred_shard", int64_t{-1}}}, {DType::kString})
            ->at(0)
            .identical(s));
  const Tensor nowhere = Tensor::scalar<std::string>("");
  CHECK_THAT(run("SaveV2", {nowhere, texts({"b"}), texts({""}), b}, {DType::kBool}).error().message,
             Contains("is empty"));
  std::ofstream(d.path + "/picture") << "\x89PNG\r\n";
  CHECK_THAT(run("RestoreV2", {path("picture"), texts({"s", "b"}), texts({"", ""})}, types).error().message,
             Contains("is not a checkpoint but a PNG picture"));
}

TEST_CASE("what is restored counts against the device's limit, the rest of the file does not") {
  const Directory d;
  const Tensor path = Tensor::scalar<std::string>(d.path + "/model.safetensors");
  const Tensor big = *Tensor::zeros(DType::kFloat32, Shape{4096}), small = Tensor::scalar<int64_t>(9);
  REQUIRE(run("SaveV2", {path, texts({"big", "small"}), texts({"", ""}), big, small}, {DType::kFloat32, DType::kInt64})
              .ok());
  const auto limited = make_caching_allocator(4096);
  const auto fits = run("RestoreV2", {path, texts({"small"}), texts({""})}, {DType::kInt64}, limited);
  REQUIRE(fits.ok());
  CHECK(fits->at(0).identical(small));
  CHECK(limited->stats().in_use > 0);
  const auto not_fits = run("RestoreV2", {path, texts({"big"}), texts({""})}, {DType::kFloat32}, limited);
  CHECK(not_fits.error().code == Code::kResourceExhausted);
}

TEST_CASE("several files become one, and the several go") {
  const Directory d;
  const auto path = [&](const std::string& name) { return Tensor::scalar(d.path + "/" + name); };
  const auto save = [&](const std::string& file, const std::string& name, float value) {
    REQUIRE(run("SaveV2", {path(file), texts({name}), texts({""}), Tensor::scalar(value)}, {DType::kFloat32}).ok());
  };
  const auto merge = [&](std::initializer_list<std::string> files, bool delete_directories, bool may_miss) {
    std::vector<std::string> paths;
    for (const std::string& f : files) paths.push_back(d.path + "/" + f);
    return run("MergeV2Checkpoints", {Tensor::of<std::string>(std::span<const std::string>(paths)), path("model")},
               {{"delete_old_dirs", delete_directories}, {"allow_missing_files", may_miss}}, {});
  };
  const auto exists = [&](const std::string& name) { return std::filesystem::exists(d.path + "/" + name); };
  save("temp/1", "a", 1);
  save("temp/2", "b", 2);
  CHECK(merge({"temp/1", "temp/2", "temp/3"}, true, false).error().code == Code::kNotFound);
  CHECK(exists("temp/1.index"));
  CHECK_FALSE(exists("model.index"));
  REQUIRE(merge({"temp/1", "temp/2", "temp/3"}, true, true).ok());
  CHECK_FALSE(exists("temp"));
  const auto back =
      run("RestoreV2", {path("model"), texts({"b", "a"}), texts({"", ""})}, {DType::kFloat32, DType::kFloat32});
  REQUIRE(back.ok());
  CHECK(back->at(0).identical(Tensor::scalar(2.f)));

  save("temp/1", "c", 3);
  REQUIRE(merge({"model", "temp/1"}, false, false).ok());  // one of them is the result
  CHECK(exists("model.index"));
  CHECK(exists("temp"));
  CHECK_FALSE(exists("temp/1.index"));
  save("temp/1", "a", 4);
  CHECK_THAT(merge({"model", "temp/1"}, true, false).error().message, Contains("tensor 'a'"));

  save("one.safetensors", "x", 5);  // of other formats
  save("two.safetensors", "y", 6);
  REQUIRE(merge({"one.safetensors", "two.safetensors"}, true, false).ok());
  CHECK_FALSE(exists("one.safetensors"));
  CHECK(run("RestoreV2", {path("model"), texts({"y"}), texts({""})}, {DType::kFloat32})
            ->at(0)
            .identical(Tensor::scalar(6.f)));
  CHECK(merge({"x", "y"}, true, true).error().code == Code::kNotFound);
  CHECK_FALSE(run("MergeV2Checkpoints", {texts({}), texts({"a", "b"})},
                  {{"delete_old_dirs", true}, {"allow_missing_files", true}}, {})
                  .ok());
}
