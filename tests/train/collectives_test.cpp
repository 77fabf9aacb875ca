// SPDX-License-Identifier: Apache-2.0
// Collectives against sums made by hand: sizes that part evenly and not, types, shapes known and not, their bounds.
#include "troupe/collectives.h"

#include "graph/passes/expand_collectives.h"
#include "tests/gpu/fake_platform.h"
#include "tests/nn/fixture.h"
#include "troupe/gradients.h"

namespace troupe::nn {
namespace {

using troupe::testing::FakeGpus;

enum class Place { kCpus, kOneCard, kCards };
const Place kPlaces[] = {Place::kCpus, Place::kOneCard, Place::kCards};

/// Devices of a kind: CPUs and those of one GPU take rings, GPUs by themselves a library.
struct Devices {
  Place place;
  FakeGpus gpus;
  std::unique_ptr<Engine> engine;
  Graph graph;
  Scope s;
  std::vector<std::string> names;

  explicit Devices(int n, Place at = Place::kCpus)
      : place(at), gpus({.cards = at == Place::kCards ? n : 1}), engine(make(n)), graph(engine->ops()), s(graph) {
    for (const std::string& name : engine->devices())
      if (at == Place::kCpus || name.find("gpu") != std::string::npos) names.push_back(name);
    REQUIRE(names.size() >= static_cast<size_t>(n));
    names.resize(static_cast<size_t>(n));  // real cards may be fewer, with more devices on each
  }
  std::unique_ptr<Engine> make(int n) const {
    if (place == Place::kCpus) return engine_of(n);
    auto made = Engine::create(place == Place::kCards ? gpus.options(n, 1) : gpus.options(1, n));
    INFO((made.ok() ? std::string() : made.error().str()));
    REQUIRE(made.ok());
    return std::move(*made);
  }
  /// Whether collectives of numbers are the library's.
  void check_library(bool used) const {
    if (gpus.collectives) CHECK((gpus.collectives->counts().launched > 0) == used);
  }

  std::vector<Tensor> run(const std::vector<Output>& fetches, const std::vector<Feed>& feeds = {}) {
    INFO("place " << static_cast<int>(place));
    INFO((s.ok() ? std::string() : s.status().error().str()));
    REQUIRE(s.ok());
    Session session(*engine, graph, {.soft_placement = place != Place::kCpus});
    auto result = session.run(feeds, fetches);
    INFO((result.ok() ? std::string() : result.error().str()));
    REQUIRE(result.ok());
    return std::move(*result);
  }
  /// A tensor on each device: a placeholder of `shape`, fed i * 1000 + its elements' numbers.
  std::vector<Output> put(DType dtype, const PartialShape& shape) {
    std::vector<Output> out;
    for (const std::string& name : names)
      out.push_back(s.device(name).op("Placeholder", {}, {{"dtype", dtype}, {"shape", shape}}));
    return out;
  }
};

template <class T> Tensor numbered(const Shape& shape, int64_t from) {
  std::vector<T> values;
  for (int64_t i = 0; i < shape.elements(); ++i) values.push_back(static_cast<T>(from + i));
  return Tensor::of<T>(std::span<const T>(values), shape);
}

template <class T> std::vector<Feed> feeds_of(const std::vector<Output>& xs, const Shape& shape) {
  std::vector<Feed> out;
  for (size_t i = 0; i < xs.size(); ++i) out.push_back({xs[i], numbered<T>(shape, static_cast<int64_t>(i) * 1000)});
  return out;
}

template <class T> void check_sums(int n, Place place, const Shape& shape, const PartialShape& known) {
  INFO(n << " devices, " << shape.str() << " known as " << known.str());
  Devices d(n, place);
  const auto xs = d.put(dtype_of<T>, known);
  const auto sums = all_reduce(d.s, d.names, xs);
  const auto results = d.run(sums, feeds_of<T>(xs, shape));
  REQUIRE(results.size() == static_cast<size_t>(n));
  for (const Tensor& t : results) {
    CHECK(t.shape() == shape);
    CHECK(t.identical(results[0]));
    for (int64_t i = 0; i < t.elements(); ++i) CHECK(t.data<T>()[i] == T(1000 * n * (n - 1) / 2 + n * i));
  }
  d.check_library(place == Place::kCards && n > 1 && shape.elements() > 0);
}

TEST_CASE("chunks are as even as may be") {
  CHECK(chunk_sizes(10, 4) == std::vector<int64_t>{3, 3, 2, 2});
  CHECK(chunk_sizes(2, 3) == std::vector<int64_t>{1, 1, 0});
  CHECK(chunk_sizes(0, 2) == std::vector<int64_t>{0, 0});
}

TEST_CASE("an all-reduce gives every device the sum, whatever the sizes") {
  const Place place = GENERATE(from_range(std::begin(kPlaces), std::end(kPlaces)));
  for (const int n : {1, 2, 3, 4}) {
    for (const Shape& shape : {Shape{12}, Shape{5, 7}, Shape{}, Shape{2}, Shape{0, 3}}) {
      check_sums<float>(n, place, shape, shape);
      check_sums<float>(n, place, shape, PartialShape::unknown());
    }
    check_sums<double>(n, place, {4, 2}, {-1, 2});
    check_sums<int32_t>(n, place, {7}, {7});
    check_sums<int64_t>(n, place, {7}, {-1});
  }
}

TEST_CASE("an all-reduce sums each chunk in the order that the header says") {
  // 1e8 + 1 - 1e8 is 0 or 1, by the order. The fake of NCCL takes the same order, NCCL what it likes.
  Devices d(3, GENERATE(from_range(std::begin(kPlaces), std::end(kPlaces))));
  if (d.place == Place::kCards && !d.gpus.collectives) return;
  std::vector<Output> xs;
  const float values[] = {1e8f, 1, -1e8f};
  for (size_t i = 0; i < 3; ++i)
    xs.push_back(d.s.device(d.names[i]).constant(Tensor::of<float>({values[i], values[i], values[i]})));
  const auto results = d.run(all_reduce(d.s, d.names, xs));
  for (const Tensor& t : results)
    for (size_t c = 0; c < 3; ++c) CHECK(t.data<float>()[c] == (values[(c + 1) % 3] + values[(c + 2) % 3]) + values[c]);
}

TEST_CASE("means are of floating-point types") {
  Devices d(4, GENERATE(from_range(std::begin(kPlaces), std::end(kPlaces))));
  const auto xs = d.put(DType::kFloat32, {6});
  for (const Tensor& t : d.run(all_reduce(d.s, d.names, xs, Reduction::kMean), feeds_of<float>(xs, {6})))
    for (int64_t i = 0; i < 6; ++i) CHECK(t.data<float>()[i] == Approx(1500 + i));
  std::vector<Output> halves;
  for (const std::string& name : d.names)
    halves.push_back(d.s.device(name).constant(Tensor::of<float16>({float16(2.0f), float16(8.0f)})));
  CHECK(static_cast<float>(d.run(all_reduce(d.s, d.names, halves, Reduction::kMean))[3].data<float16>()[1]) == 8.0f);
  const auto ints = d.put(DType::kInt32, {6});
  CHECK(all_reduce(d.s, d.names, ints, Reduction::kMean).empty());
  CHECK_THAT(d.s.status().error().message, Catch::Contains("int32") && Catch::Contains("mean"));
}

TEST_CASE("reduce-scatter leaves a chunk on each device, all-gather joins what is there") {
  const int axis = GENERATE(0, 1, -1);
  const bool known = GENERATE(true, false);
  Devices d(3, GENERATE(from_range(std::begin(kPlaces), std::end(kPlaces))));
  const Shape shape{5, 4};
  const auto xs = d.put(DType::kFloat32, known ? PartialShape(shape) : PartialShape::of_rank(2));
  const auto parts = reduce_scatter(d.s, d.names, xs, Reduction::kSum, axis);
  const auto back = all_gather(d.s, d.names, parts, axis);
  std::vector<Output> fetches = parts;
  fetches.insert(fetches.end(), back.begin(), back.end());
  const auto results = d.run(fetches, feeds_of<float>(xs, shape));
  const auto sizes = chunk_sizes(axis == 0 ? 5 : 4, 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(results[i].dim(axis) == sizes[i]);
    CHECK(parts[i].node->device() == d.names[i]);
    REQUIRE(results[3 + i].shape() == shape);
    for (int64_t k = 0; k < 20; ++k) CHECK(results[3 + i].data<float>()[k] == static_cast<float>(3000 + 3 * k));
  }
}

TEST_CASE("all-gather takes pieces of any size and type, broadcast any tensor") {
  Devices d(3, GENERATE(from_range(std::begin(kPlaces), std::end(kPlaces))));
  std::vector<Output> rows;
  for (int i = 0; i < 3; ++i)
    rows.push_back(d.s.device(d.names[static_cast<size_t>(i)]).constant(numbered<int64_t>({i, 2}, 10 * i)));
  for (const Tensor& t : d.run(all_gather(d.s, d.names, rows)))
    CHECK(t.identical(Tensor::of<int64_t>({10, 11, 20, 21, 22, 23}, {3, 2})));
  const bool known = GENERATE(true, false);
  const Output x =
      d.s.device(d.names[1])
          .op("Placeholder", {},
              {{"dtype", DType::kString}, {"shape", known ? PartialShape{2, 2} : PartialShape::unknown()}});
  const Tensor words = Tensor::of<std::string>({"a", "b", "c", "d"}, {2, 2});
  const auto there = broadcast(d.s, d.names, x, 1);
  const auto results = d.run(there, {{x, words}});
  REQUIRE(results.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(results[i].identical(words));
    CHECK(there[i].node->device() == d.names[i]);
  }
  const Output y = d.s.device(d.names[2]).op("Placeholder", {}, {{"dtype", DType::kBool}, {"shape", PartialShape{3}}});
  const Tensor flags = Tensor::of<bool>({true, false, true});
  for (const Tensor& t : d.run(broadcast(d.s, d.names, y, 2), {{y, flags}})) CHECK(t.identical(flags));
}

TEST_CASE("a chunk goes from each device to the next alone") {
  Devices d(4);
  const auto xs = d.put(DType::kFloat32, {8});
  const auto sums = all_reduce(d.s, d.names, xs);
  REQUIRE(d.s.ok());
  StepGraph step(d.graph, {}, sums, {});
  REQUIRE(expand_collectives(step).ok());
  const auto number = [&](const std::string& device) { return std::ranges::find(d.names, device) - d.names.begin(); };
  int crossing = 0;
  for (const Node* node : step.nodes())
    for (const Output& written : node->inputs()) {
      const Output in = step.now(written);
      if (in.node->op().name() == "Const" || in.node->device() == node->device()) continue;
      ++crossing;
      CHECK((number(in.node->device()) + 1) % 4 == number(node->device()));
    }
  CHECK(crossing == 2 * 3 * 4);  // of chunks of a fourth: 2 (n-1)/n of the tensor over each of four links
}

TEST_CASE("a sum over devices has a gradient") {
  Devices d(3, GENERATE(from_range(std::begin(kPlaces), std::end(kPlaces))));
  const auto xs = d.put(DType::kFloat32, {4});
  const auto sums = all_reduce(d.s, d.names, xs, Reduction::kMean);
  std::vector<Output> ys;
  for (size_t i = 0; i < 3; ++i)
    ys.push_back(d.s.device(d.names[i]).op("Mul", {sums[i], d.s.constant(static_cast<float>(i + 1))}));
  auto found = gradients(d.s, ys, xs);
  REQUIRE(found.ok());
  for (const Tensor& t : d.run(*found, feeds_of<float>(xs, {4})))
    for (int64_t i = 0; i < 4; ++i) CHECK(t.data<float>()[i] == Approx(2.0f));
}

TEST_CASE("what does not fit a collective is an error that names it") {
  Devices d(2);
  const auto floats = d.put(DType::kFloat32, {4});
  const auto refused = [&](const std::string& text, auto&& make) {
    const Scope s(d.graph);
    CHECK(make(s).empty());
    REQUIRE_FALSE(s.ok());
    CHECK(s.status().error().code == Code::kInvalidArgument);
    CHECK_THAT(s.status().error().message, Catch::Contains(text));
  };
  const Output other = d.s.device(d.names[1]).constant(Tensor::of<float>({1, 2, 3}));
  const Output ints = d.s.device(d.names[1]).constant(Tensor::of<int32_t>({1, 2, 3, 4}));
  const Output word = d.s.constant(Tensor::of<std::string>({"a"}));
  refused("no devices", [&](const Scope& s) { return all_reduce(s, {}, {}); });
  refused("1 tensors for 2 devices", [&](const Scope& s) { return all_reduce(s, d.names, {floats[0]}); });
  refused("tensor 1 is empty", [&](const Scope& s) { return all_reduce(s, d.names, {floats[0], {}}); });
  refused("[3]", [&](const Scope& s) { return all_reduce(s, d.names, {floats[0], other}); });
  refused("int32", [&](const Scope& s) { return all_gather(s, d.names, {floats[0], ints}); });
  refused("string", [&](const Scope& s) { return all_reduce(s, {d.names[0]}, {word}); });
  refused("axis 1", [&](const Scope& s) { return reduce_scatter(s, d.names, floats, Reduction::kSum, 1); });
  refused("axis -2", [&](const Scope& s) { return all_gather(s, d.names, floats, -2); });
  refused("device 2 of 2", [&](const Scope& s) { return broadcast(s, d.names, floats[0], 2); });
}

TEST_CASE("shapes that turn out to differ when the step runs are an error of a node") {
  Devices d(2, GENERATE(from_range(std::begin(kPlaces), std::end(kPlaces))));
  const auto unknown = d.put(DType::kFloat32, PartialShape::unknown());
  const auto sums = all_reduce(d.s, d.names, unknown);
  REQUIRE(d.s.ok());
  Session session(*d.engine, d.graph, {.soft_placement = true});
  auto result = session.run({{unknown[0], numbered<float>({4}, 0)}, {unknown[1], numbered<float>({6}, 0)}}, sums);
  REQUIRE_FALSE(result.ok());
  CHECK_THAT(result.error().node, Catch::Contains("all_reduce"));
}

TEST_CASE("a ring of simulated devices keeps to its bound") {
  constexpr int kDevices = 8;
  constexpr int64_t kElements = 25'000'000;  // 100 MB
  const DeviceRates rates{.flops = 1e15, .memory_bandwidth = 5e12, .launch_ns = 10};
  const LinkRates link{.bandwidth = 10e9, .latency_ns = 100};
  auto engine =
      Engine::create({.cpu_threads = {1},
                      .sim = {.devices = std::vector<DeviceRates>(kDevices, rates), .link = link, .compute = false}});
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  const Scope s(graph);
  std::vector<std::string> names;
  std::vector<Output> xs;
  std::vector<const Node*> done;
  for (int i = 0; i < kDevices; ++i) {
    names.push_back(fmt::format("/sim:{}", i));
    xs.push_back(
        s.device(names.back())
            .op("RandomUniform", {s.constant(Tensor::of<int64_t>({kElements}))}, {{"dtype", DType::kFloat32}}));
  }
  const std::vector<Output> sums = all_reduce(s, names, xs);
  REQUIRE(s.ok());
  for (int i = 0; i < kDevices; ++i) done.push_back(sums[static_cast<size_t>(i)].node);
  std::vector<const Node*> made;
  for (const Output& x : xs) made.push_back(x.node);
  Session session(**engine, graph, {.default_device = names[0]});
  const auto time = [&](const std::vector<const Node*>& targets) {
    const int64_t before = (*engine)->sim_now_ns();
    auto hold = (*engine)->hold_sim();  // all devices start at once
    auto future = session.run_future({}, {}, targets);
    hold.reset();
    auto result = future.get();
    INFO((result.ok() ? std::string() : result.error().str()));
    REQUIRE(result.ok());
    return static_cast<double>((*engine)->sim_now_ns() - before);
  };
  const double without = time(made);
  const double bound = 2.0 * (kDevices - 1) / kDevices * 4 * kElements / link.bandwidth * 1e9;
  const double ring = time(done) - without;
  CHECK(ring >= bound);
  CHECK(ring <= 1.05 * bound);
}

TEST_CASE("tensors of different rank are refused, whichever of them is known") {
  Devices d(3);
  const auto on = [&](size_t device, const PartialShape& shape) {
    return d.s.device(d.names[device]).op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", shape}});
  };
  const std::vector<PartialShape> shapes = {{4}, {4, 4}, PartialShape::unknown()};
  for (size_t first = 0; first < 3; ++first) {
    std::vector<Output> xs;
    for (size_t i = 0; i < 3; ++i) xs.push_back(on(i, shapes[(first + i) % 3]));
    for (const int axis : {0, 1, -1, -2, 2}) {
      const Scope gather(d.graph), scatter(d.graph);
      CHECK(all_gather(gather, d.names, xs, axis).empty());
      CHECK_FALSE(gather.ok());
      CHECK(reduce_scatter(scatter, d.names, xs, Reduction::kSum, axis).empty());
      CHECK_FALSE(scatter.ok());
    }
    const Scope sum(d.graph);
    CHECK(all_reduce(sum, d.names, xs).empty());
    CHECK_FALSE(sum.ok());
  }
}

TEST_CASE("tensors of as many elements in other shapes are an error of the step") {
  Devices d(2, GENERATE(from_range(std::begin(kPlaces), std::end(kPlaces))));
  const auto unknown = d.put(DType::kFloat32, PartialShape::unknown());
  const auto sums = all_reduce(d.s, d.names, unknown);
  const auto parts = reduce_scatter(d.s, d.names, unknown);
  REQUIRE(d.s.ok());
  Session session(*d.engine, d.graph, {.soft_placement = true});
  for (const auto& [a, b] : {std::pair(Shape{2, 3}, Shape{3, 2}),
                             {Shape{6}, Shape{1, 6}},
                             {Shape{1}, Shape{1, 1}},
                             {Shape{}, Shape{1}},
                             {Shape{0, 2}, Shape{0, 3}}}) {
    INFO(a.str() << " and " << b.str());
    const std::vector<Feed> feeds = {{unknown[0], numbered<float>(a, 0)}, {unknown[1], numbered<float>(b, 0)}};
    const auto result = session.run(feeds, {sums[0]});
    REQUIRE_FALSE(result.ok());
    CHECK_THAT(result.error().node, Catch::Contains("all_reduce"));
    CHECK_FALSE(session.run(feeds, {sums[1]}).ok());
    if (a.rank() > 0 && b.rank() > 0) CHECK_FALSE(session.run(feeds, parts).ok());
  }
  CHECK(session.run({{unknown[0], numbered<float>({2, 3}, 0)}, {unknown[1], numbered<float>({2, 3}, 0)}}, sums).ok());
}

TEST_CASE("a device may stand in the ring more than once, and one alone gets its tensor back") {
  Devices d(1);
  const Output x = d.s.constant(Tensor::of<float>({1, 2, 3}));
  const std::vector<std::string> twice = {d.names[0], d.names[0]};
  for (const Tensor& t : d.run(all_reduce(d.s, twice, {x, x}, Reduction::kMean)))
    CHECK(t.identical(Tensor::of<float>({1, 2, 3})));
  CHECK(all_reduce(d.s, d.names, {x}) == std::vector{x});
  CHECK(reduce_scatter(d.s, d.names, {x}, Reduction::kMean) == std::vector{x});
  CHECK(all_gather(d.s, d.names, {x}) == std::vector{x});
  CHECK(broadcast(d.s, d.names, x) == std::vector{x});
}

}  // namespace
}  // namespace troupe::nn
