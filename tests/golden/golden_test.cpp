// SPDX-License-Identifier: Apache-2.0
// The golden cases: graphs written by TensorFlow, run through the code of `troupe run`, give TensorFlow's results.
// make.py writes the cases; each is a section of the one test, so that ctest runs it by its name.
#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "cli/run.h"
#include "tests/actors/fake_cluster.h"
#include "tests/actors/socket_cluster.h"
#include "tests/gpu/fake_platform.h"
#include "tests/io/temporary_directory.h"
#include "tests/op_library.h"
#include "tests/repeats.h"
#include "troupe/npy.h"

using namespace troupe;

namespace {

namespace fs = std::filesystem;

/// Number i of a tensor; complex elements are two.
double as_double(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::kFloat32: return t.data<float>()[i];
    case DType::kFloat64: return t.data<double>()[i];
    case DType::kFloat16: return static_cast<float>(t.data<float16>()[i]);
    case DType::kComplex64: return static_cast<const float*>(t.raw())[i];
    case DType::kComplex128: return static_cast<const double*>(t.raw())[i];
    default: return 0;
  }
}

/// The largest error of an element, relative to the larger of what is expected there and the mean magnitude of all
/// that is expected: sums that cancel keep the errors of their terms. NaN and infinities must be the same.
double relative_error(const Tensor& got, const Tensor& expected) {
  double mean = 0, worst = 0;
  int64_t finite = 0;
  const int64_t n = expected.elements() * (is_complex(expected.dtype()) ? 2 : 1);
  for (int64_t i = 0; i < n; ++i)
    if (const double e = as_double(expected, i); std::isfinite(e)) mean += std::abs(e), ++finite;
  if (finite) mean /= static_cast<double>(finite);
  for (int64_t i = 0; i < n; ++i) {
    const double e = as_double(expected, i), g = as_double(got, i);
    if (e == g || (std::isnan(e) && std::isnan(g))) continue;
    if (!std::isfinite(e) || !std::isfinite(g)) return INFINITY;
    worst = std::max(worst, std::abs(e - g) / std::max(std::abs(e), mean));
  }
  return worst;
}

/// A NaN of a GPU has no sign, and its text none either.
Tensor without_signs_of_nan(const Tensor& text) {
  Tensor out = *text.clone();
  for (int64_t i = 0; i < out.elements(); ++i) {
    std::string& s = out.mutable_data<std::string>()[i];
    for (size_t at; (at = s.find("-nan")) != std::string::npos;) s.erase(at, 1);
  }
  return out;
}

void check_close(const std::string& name, const Tensor& got, const Tensor& expected, double tolerance) {
  INFO(name << "\ngot      " << got.str(24) << "\nexpected " << expected.str(24));
  REQUIRE(got.dtype() == expected.dtype());
  REQUIRE(got.shape() == expected.shape());
  if (is_floating(expected.dtype()) || is_complex(expected.dtype())) CHECK(relative_error(got, expected) <= tolerance);
  else if (expected.dtype() == DType::kString && troupe::testing::on_real_gpu())
    CHECK(without_signs_of_nan(got).identical(without_signs_of_nan(expected)));
  else CHECK(got.identical(expected));
}

/// A case: what to run, and what TensorFlow has of it.
struct Case {
  explicit Case(const fs::path& description) {
    std::ifstream in(description);
    how = nlohmann::json::parse(in);
    auto arrays = read_npz(fs::path(description).replace_extension(".npz").string());
    INFO((arrays.ok() ? "" : arrays.error().str()));
    REQUIRE(arrays.ok());
    for (auto& [name, tensor] : *arrays) {
      if (name == "graph") job.graph.assign(static_cast<const char*>(tensor.raw()), tensor.bytes());
      else if (name.starts_with("feed ")) job.feeds[name.substr(5)] = tensor;
      else expected[name.substr(name.find(' ') + 1)] = tensor;
    }
    job.engine.op_library = testing::op_library();
    job.init = how["init"];
    job.steps = how["steps"];
    job.fetches = how["fetches"];
    job.targets = how["targets"];
    job.all_steps = true;
    job.engine.cpu_threads = {1};
  }
  /// Runs it with directories of its own.
  Result<std::map<std::string, Tensor>> run() {
    const TemporaryDirectory directory;
    for (const auto& name : how.value("directories", nlohmann::json::array()))
      job.feeds[name] = Tensor::scalar(directory.path());
    return run_graph(job);
  }
  nlohmann::json how;
  GraphRun job;
  std::map<std::string, Tensor> expected;
};

void check_case(const fs::path& description) {
  Case c(description);
  const auto got = c.run();
  INFO((got.ok() ? "" : got.error().str()));
  REQUIRE(got.ok());
  REQUIRE(got->size() == c.expected.size());
  for (const auto& [name, value] : c.expected) check_close(name, got->at(name), value, c.how["tolerance"]);
}

/// With its nodes at random on the devices of a client and its tasks, it gives what one engine gives that has as many
/// devices.
void check_cut(const fs::path& description, Engine& client, uint32_t seed) {
  Case whole(description), cut(description);
  cut.job.on = &client;
  const Scatter scatter(cut.job.graph, client.ops(), client.devices(), seed);
  cut.job.graph = scatter.text;
  whole.job.engine.cpu_threads.assign(client.devices().size(), 1);
  auto engine = Engine::create(whole.job.engine);
  REQUIRE(engine.ok());
  whole.job.on = engine->get();
  whole.job.graph = scatter.on((*engine)->devices());
  const auto expected = whole.run(), got = cut.run();
  INFO((got.ok() ? "" : got.error().str()) << " / " << (expected.ok() ? "" : expected.error().str()));
  REQUIRE(got.ok() == expected.ok());
  if (!got.ok()) return;
  for (const auto& [name, value] : *expected) {
    INFO(name << "\ngot      " << got->at(name).str(24) << "\nexpected " << value.str(24));
    CHECK(got->at(name).identical(value));
  }
}

std::set<fs::path> all_cases() {
  std::set<fs::path> cases;
  for (const auto& entry : fs::directory_iterator("."))
    if (entry.path().extension() == ".json") cases.insert(entry.path());
  REQUIRE(!cases.empty());
  return cases;
}

/// It gives what TensorFlow gives: with its nodes at random on a CPU device and two of a card or of two; or, by all
/// passes, with all on one where they have kernels.
void check_on_gpus(const fs::path& description, Engine& engine, uint32_t seed, bool scattered) {
  Case c(description);
  c.job.on = &engine;
  if (scattered) {
    c.job.graph = Scatter(c.job.graph, engine.ops(), engine.devices(), seed).text;
  } else {
    c.job.default_device = "/gpu:0";
    c.job.passes = GraphPasses::all();
  }
  const auto got = c.run();
  INFO((got.ok() ? "" : got.error().str()));
  REQUIRE(got.ok());
  REQUIRE(got->size() == c.expected.size());
  for (const auto& [name, value] : c.expected) check_close(name, got->at(name), value, c.how["tolerance"]);
}

/// All cases; under a sanitizer, where each takes ten times as long, every third.
std::vector<fs::path> cases_to_cut() {
  constexpr int kStep = many(10) < 10 ? 3 : 1;
  std::vector<fs::path> out;
  int i = 0;
  for (const fs::path& one : all_cases())
    if (i++ % kStep == 0) out.push_back(one);
  return out;
}

}  // namespace

TEST_CASE("golden") {
  for (const fs::path& description : all_cases()) {
    DYNAMIC_SECTION(description.stem().string()) { check_case(description); }
  }
}

TEST_CASE("golden graphs cut at random") {
  for (const fs::path& description : cases_to_cut()) {
    const std::string name = description.stem().string();
    DYNAMIC_SECTION(name) {
      const uint32_t seed = std::accumulate(name.begin(), name.end(), 0u);
      FakeCluster cluster(seed);
      check_cut(description, *cluster.client, seed);
    }
  }
}

TEST_CASE("golden graphs on GPUs") {
  for (const fs::path& description : cases_to_cut()) {
    const std::string name = description.stem().string();
    DYNAMIC_SECTION(name) {
      const uint32_t seed = std::accumulate(name.begin(), name.end(), 3u);
      const troupe::testing::FakeGpus gpus({.seed = seed, .cards = 2});
      for (const bool scattered : {true, false}) {
        const auto engine = Engine::create(seed % 2 ? gpus.options(2, 1) : gpus.options(1, 2));
        REQUIRE(engine.ok());
        check_on_gpus(description, **engine, seed, scattered);
      }
    }
  }
}

TEST_CASE("golden graphs over sockets") {
  for (const fs::path& description : cases_to_cut()) {
    const std::string name = description.stem().string();
    DYNAMIC_SECTION(name) {
      SocketCluster cluster(3);
      check_cut(description, *cluster.client(), std::accumulate(name.begin(), name.end(), 7u));
    }
  }
}
