// SPDX-License-Identifier: Apache-2.0
// Layers split over devices compute, and learn, what whole ones do.
#include "troupe/tensor_parallel.h"

#include <cmath>

#include "tests/nn/fixture.h"

namespace troupe::nn {
namespace {

Names devices_of(int n) {
  Names names;
  for (int i = 0; i < n; ++i) names.push_back(fmt::format("/cpu:{}", i));
  return names;
}

void check_close(const Tensor& got, const Tensor& wanted) {
  REQUIRE(got.shape() == wanted.shape());
  for (int64_t i = 0; i < wanted.elements(); ++i)
    CHECK(got.values<float>()[i] == Approx(wanted.values<float>()[i]).margin(1e-5));
}

// What a model shows of itself: a loss, and its variables whole, by the names of the unsplit model.
struct Model {
  Output loss;
  Output x;                                                   // gradients are taken by it too
  std::map<std::string, std::vector<std::string>> variables;  // the shares of each
  std::map<std::string, int> axis;                            // along which they are
};
using Build = std::function<Model(const Scope& scope, Variables& variables)>;

struct Training {
  std::vector<float> losses;
  Tensor dx;
  std::map<std::string, Tensor> first, last;  // variables before and after
};

std::map<std::string, Tensor> whole_variables(Fixture& f, const Model& model) {
  std::map<std::string, Tensor> result;
  Graph graph(f.engine->ops());  // beside that of the model
  const Scope s(graph);
  Session session(*f.engine, graph);
  for (const auto& [name, shares] : model.variables) {
    std::vector<Output> parts;
    for (const std::string& share : shares) parts.push_back(s.constant(f.variable(share)));
    parts.push_back(s.constant(model.axis.contains(name) ? model.axis.at(name) : 0));
    auto joined = session.run({}, {s.op("ConcatV2", parts)});
    REQUIRE(joined.ok());
    result[name] = (*joined)[0];
  }
  return result;
}

Training train(const Build& build, const Optimizer& optimizer, int steps = 4) {
  Fixture f(4);
  const Model model = build(f.s, f.variables);
  const Node* update = minimize(f.s, f.variables, optimizer, model.loss);
  Training result;
  auto by_x = gradients(f.s, {model.loss}, {model.x});
  f.initialise();
  result.first = whole_variables(f, model);
  if (by_x.ok()) result.dx = f.run({(*by_x)[0]})[0];
  for (int step = 0; step < steps; ++step) result.losses.push_back(f.run({model.loss}, {update})[0].data<float>()[0]);
  result.last = whole_variables(f, model);
  return result;
}

/// The whole model trained by each optimizer.
class Wanted {
 public:
  explicit Wanted(const Build& whole) {
    for (const Optimizer& optimizer : optimizers_) trained_.push_back(train(whole, optimizer));
  }
  void check(const Build& split) const {
    for (size_t i = 0; i < optimizers_.size(); ++i) check_same(train(split, optimizers_[i]), trained_[i]);
  }

 private:
  static void check_same(const Training& got, const Training& wanted) {
    CHECK(wanted.losses.back() < wanted.losses.front());
    for (size_t i = 0; i < wanted.losses.size(); ++i) CHECK(got.losses[i] == Approx(wanted.losses[i]).epsilon(1e-5));
    if (wanted.dx.elements() > 0) check_close(got.dx, wanted.dx);
    REQUIRE(got.first.size() == wanted.first.size());
    for (const auto& [name, value] : wanted.first) {
      INFO(name);
      const Tensor& share = got.first.at(name);
      REQUIRE(share.shape() == value.shape());
      CHECK(std::ranges::equal(share.values<float>(), value.values<float>()));
      check_close(got.last.at(name), wanted.last.at(name));
    }
  }

  const std::vector<Optimizer> optimizers_ = {sgd(constant_rate(0.5f)), adam(constant_rate(0.05f)),
                                              adagrad(constant_rate(0.1f))};
  std::vector<Training> trained_;
};

std::vector<std::string> shares(const std::string& name, size_t n) {
  std::vector<std::string> result;
  for (size_t i = 0; i < n; ++i) result.push_back(fmt::format("{}_{}", name, i));
  return result;
}

const Tensor kX = random_tensor({5, 6}), kTargets = random_tensor({5, 4}, 2);

Model whole_mlp(const Scope& s, Variables& v) {
  const Output x = s.constant(kX);
  const Output y = dense(s, v, relu(s, dense(s, v, x, 7, "up")), 4, "down");
  Model m = {mean_squared_error(s, y, s.constant(kTargets)), x, {}, {}};
  for (const char* name : {"up/kernel", "up/bias", "down/kernel", "down/bias"}) m.variables[name] = {name};
  return m;
}

Model split_mlp(const Scope& s, Variables& v, const Names& devices, bool to_all) {
  const Output x = s.constant(kX);
  const Spread hidden = each(s, dense_by_columns(s, v, x, 7, "up", devices), relu);
  Output y;
  if (to_all) {
    // Each copy makes a share of the loss, so that gradients come by all of them.
    const Spread all = dense_by_rows_to_all(s, v, hidden, 4, "down");
    y = s.op("Mul", {s.op("AddN", all.parts), s.constant(1.f / static_cast<float>(devices.size()))});
  } else {
    y = dense_by_rows(s, v, hidden, 4, "down");
  }
  Model m = {mean_squared_error(s, y, s.constant(kTargets)), x, {}, {}};
  for (const char* name : {"up/kernel", "up/bias", "down/kernel"}) m.variables[name] = shares(name, devices.size());
  m.axis["up/kernel"] = 1;
  m.variables["down/bias"] = {"down/bias"};
  return m;
}

TEST_CASE("a layer split by columns, then one by rows, are the whole layers, with even shares and uneven ones") {
  const Wanted wanted(whole_mlp);
  for (const auto& [n, to_all] : std::map<int, bool>{{1, false}, {2, true}, {3, false}, {4, true}}) {
    INFO(n << " devices, to all: " << to_all);
    wanted.check([&](const Scope& s, Variables& v) { return split_mlp(s, v, devices_of(n), to_all); });
  }
}

TEST_CASE("column, activation and row need one reduction, and one for their gradient") {
  Fixture f(2);
  const Model m = split_mlp(f.s, f.variables, devices_of(2), false);
  const auto found = variable_gradients(f.s, f.variables, m.loss);
  REQUIRE(found.ok());
  f.initialise();
  // Of the shares of kernels nothing leaves their devices: gradients are made there.
  const std::vector<Variable> trainable = f.variables.trainable();
  for (size_t i = 0; i < trainable.size(); ++i) {
    INFO(trainable[i].name);
    CHECK((*found)[i].node->device() == (trainable[i].name == "down/bias" ? "" : trainable[i].init->device()));
  }
  int sums = 0;
  for (int id = 0; id < f.graph.size(); ++id) sums += f.graph.node(id).op().name() == "AddN";
  CHECK(sums == 1);  // x is a constant, so its gradient is not asked for
}

TEST_CASE("spreading and joining: copies, shares, sums") {
  Fixture f(3);
  const Names devices = devices_of(3);
  const Output x = f.values({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {2, 5});
  const Spread parts = split_to(f.s, x, devices);
  REQUIRE(parts.parts.size() == 3);
  CHECK(f.floats(parts.parts[0]) == std::vector<float>{1, 2, 6, 7});
  CHECK(f.floats(parts.parts[2]) == std::vector<float>{5, 10});
  CHECK(f.floats(gather(f.s, parts)) == f.floats(x));
  const Spread scaled = each(f.s, copy_to(f.s, x, devices), [](const Scope& s, Output part) {
    return s.op("Mul", {part, s.constant(s.device_name() == "/cpu:2" ? 10.f : 1.f)});
  });
  for (size_t i = 0; i < 3; ++i) CHECK(scaled.parts[i].node->device() == devices[i]);
  const Spread summed = all_reduce(f.s, scaled);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(summed.parts[i].node->device() == devices[i]);
    CHECK(f.floats(summed.parts[i]) == f.floats(reduce(f.s, scaled)));
    CHECK(f.floats(summed.parts[i])[9] == 120);
  }
  CHECK(share_sizes(7, 3) == std::vector<int64_t>{3, 2, 2});
  CHECK(share_sizes(2, 2) == std::vector<int64_t>{1, 1});
}

TEST_CASE("each device sends and receives about twice its part in an all-reduce, and not more with more devices") {
  // A link moves a byte a nanosecond; arithmetic takes next to nothing.
  const DeviceRates fast = {.flops = 1e15, .memory_bandwidth = 1e15, .launch_ns = 1};
  for (const int n : {2, 4}) {
    auto engine = Engine::create({.cpu_threads = {1},
                                  .sim = {.devices = std::vector<DeviceRates>(static_cast<size_t>(n), fast),
                                          .link = {.bandwidth = 1e9, .latency_ns = 0}}});
    REQUIRE(engine.ok());
    Graph graph((*engine)->ops());
    const Scope s(graph);
    Names devices;
    Spread parts;
    std::vector<Feed> feeds;
    const Tensor part = random_tensor({250, 1000});
    for (int i = 0; i < n; ++i) {
      parts.devices.push_back(fmt::format("/sim:{}", i));
      parts.parts.push_back(
          s.device(parts.devices.back())
              .op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{250, 1000}}}));
      feeds.push_back({parts.parts.back(), part});
    }
    const Spread sums = all_reduce(s, parts);
    std::vector<const Node*> ends;
    for (const Output& sum : sums.parts) ends.push_back(sum.node);
    Session session(**engine, graph, {.default_device = "/sim:0"});
    const auto done = session.run(feeds, std::vector<Output>{}, ends);
    INFO((done.ok() ? "" : done.error().str()));
    REQUIRE(done.ok());
    const auto transfers = 2e6 * (n - 1) / n;
    const auto took = static_cast<double>((*engine)->sim_now_ns());
    CHECK(took > transfers);
    CHECK(took < 1.6 * transfers);  // in turns that do not fit together perfectly
  }
}

const Tensor kIds = Tensor::of<int32_t>({4, 0, 9, 4, 4, 2, 7, 9}, {4, 2});

Model whole_embedding(const Scope& s, Variables& v) {
  const Output rows = embedding(s, v, s.constant(kIds), 10, 5, "words");
  const Output y = dense(s, v, flatten(s, rows), 3, "out");
  Model m = {mean_squared_error(s, y, s.constant(random_tensor({4, 3}, 3))), rows, {}, {}};
  for (const char* name : {"words/table", "out/kernel", "out/bias"}) m.variables[name] = {name};
  return m;
}

TEST_CASE("an embedding split by rows or columns is the whole one") {
  const Wanted wanted(whole_embedding);
  for (const size_t n : {1, 3})
    for (const bool by_rows : {true, false}) {
      const DType ids_type = n == 1 ? DType::kInt32 : DType::kInt64;
      INFO(n << " devices, by rows: " << by_rows);
      wanted.check([&](const Scope& s, Variables& v) {
        const Names devices = devices_of(static_cast<int>(n));
        const Output ids = s.op("Cast", {s.constant(kIds)}, {{"DstT", ids_type}});
        const Output rows = by_rows ? embedding_by_rows(s, v, ids, 10, 5, "words", devices)
                                    : gather(s, embedding_by_columns(s, v, ids, 10, 5, "words", devices));
        REQUIRE(rows);
        CHECK(rows.shape() == PartialShape{4, 2, 5});
        const Output y = dense(s, v, flatten(s, rows), 3, "out");
        Model m = {mean_squared_error(s, y, s.constant(random_tensor({4, 3}, 3))), rows, {}, {}};
        m.variables["words/table"] = shares("words/table", n);
        m.axis["words/table"] = by_rows ? 0 : 1;
        for (const char* name : {"out/kernel", "out/bias"}) m.variables[name] = {name};
        return m;
      });
    }
}

TEST_CASE("an update of a table by rows sends each device its own rows, and touches no others") {
  Fixture f(2);
  const Output rows = embedding_by_rows(f.s, f.variables, f.s.constant(kIds), 10, 5, "words", devices_of(2));
  const auto found = variable_gradients(f.s, f.variables, sum_all(f.s, f.s.op("Square", {rows})));
  REQUIRE(found.ok());
  const Node* update = apply_gradients(f.s, f.variables, sgd(constant_rate(1)), *found);
  std::vector<std::string> scattered;
  for (int id = 0; id < f.graph.size(); ++id)
    if (f.graph.node(id).op().name() == "ResourceScatterSub") scattered.push_back(f.graph.node(id).device());
  CHECK(scattered == devices_of(2));
  f.initialise();
  for (const size_t share : {0, 1}) {
    const auto slices = indexed_slices(f.s, (*found)[share]);
    REQUIRE(slices);
    const auto both = f.run({slices->indices, slices->values});
    const auto at = both[0].values<int32_t>();
    CHECK(std::vector<int32_t>(at.begin(), at.end()) ==
          (share == 0 ? std::vector<int32_t>{4, 0, 4, 4, 2} : std::vector<int32_t>{4, 2, 4}));
    CHECK(both[1].shape() == Shape{both[0].dim(0), 5});
  }
  const Tensor before = f.variable("words/table_1");
  f.run({}, {update});
  const Tensor after = f.variable("words/table_1");
  for (int row = 0; row < 5; ++row) {
    const bool taken = row == 2 || row == 4;  // 7 and 9
    CHECK((after.values<float>()[row * 5] != before.values<float>()[row * 5]) == taken);
  }
}

TEST_CASE("an embedding by rows takes ids of unknown number") {
  Fixture f(2);
  const Output ids = f.s.op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape{-1, 2}}});
  const Output rows = embedding_by_rows(f.s, f.variables, ids, 5, 3, "words", devices_of(2));
  const Output whole = embedding(f.s, f.variables, ids, 5, 3, "words");
  f.initialise();
  for (const Tensor& fed : {Tensor::of<int32_t>({0, 4, 3, 1, 0, 0}, {3, 2}), Tensor::of<int32_t>({}, {0, 2})}) {
    const auto result = f.session->run({{ids, fed}}, {rows, whole});
    REQUIRE(result.ok());
    CHECK((*result)[0].shape() == Shape{fed.dim(0), 2, 3});
    check_close((*result)[0], (*result)[1]);
  }
  for (const int32_t wrong : {-1, 5, 1 << 30}) {
    const auto result = f.session->run({{ids, Tensor::of<int32_t>({0, wrong}, {1, 2})}}, {rows});
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == Code::kInvalidArgument);
    CHECK_THAT(result.error().node, Catch::Contains("words/"));
  }
}

TEST_CASE("cross entropy of logits split by columns is that of whole ones") {
  const std::vector<int32_t> labels = {0, 6, 3, 4, 2};
  const auto labels_of = [&](const Scope& s, DType type) {
    return s.op("Cast", {s.constant(Tensor::of<int32_t>(labels))}, {{"DstT", type}});
  };
  const auto scaled = [](const Scope& s, Output x) { return s.op("Mul", {x, s.constant(100.f)}); };
  for (const bool large : {false, true}) {
    const Build whole = [&](const Scope& s, Variables& v) {
      const Output x = s.constant(kX);
      Output logits = dense(s, v, x, 7, "out");
      if (large) logits = scaled(s, logits);
      Model m = {sparse_softmax_cross_entropy(s, logits, labels_of(s, DType::kInt32)), x, {}, {}};
      for (const char* name : {"out/kernel", "out/bias"}) m.variables[name] = {name};
      return m;
    };
    std::optional<Wanted> wanted;
    if (!large) wanted.emplace(whole);
    for (const size_t n : {1, 3}) {
      const Build split = [&](const Scope& s, Variables& v) {
        const Output x = s.constant(kX);
        Spread logits = dense_by_columns(s, v, x, 7, "out", devices_of(static_cast<int>(n)));
        if (large) logits = each(s, logits, scaled);
        const DType type = n == 3 ? DType::kInt64 : DType::kInt32;
        Model m = {sparse_softmax_cross_entropy(s, logits, labels_of(s, type)), x, {}, {}};
        m.variables["out/kernel"] = shares("out/kernel", n);
        m.variables["out/bias"] = shares("out/bias", n);
        m.axis["out/kernel"] = 1;
        return m;
      };
      if (!large) {
        wanted->check(split);
        continue;
      }
      // Exponentials of such logits overflow unless the largest is taken off.
      const Training wanted = train(whole, sgd(constant_rate(1e-4f)), 1),
                     got = train(split, sgd(constant_rate(1e-4f)), 1);
      CHECK(std::isfinite(got.losses[0]));
      CHECK(got.losses[0] == Approx(wanted.losses[0]).epsilon(1e-5));
    }
  }
}

TEST_CASE("a label out of range fails the step") {
  Fixture f(2);
  const Spread logits = split_to(f.s, f.values({1, 2, 3, 4, 5, 6}, {2, 3}), devices_of(2));
  const Output loss = sparse_softmax_cross_entropy(f.s, logits, f.s.constant(Tensor::of<int32_t>({0, 3})));
  const auto result = f.session->run({}, {loss});
  REQUIRE_FALSE(result.ok());
  CHECK_THAT(result.error().node, Catch::Contains("cross_entropy"));
}

TEST_CASE("split layers refuse what they cannot split") {
  using Catch::Contains;
  const auto fault = [](auto build) {
    Fixture f(4);
    const Output x =
        f.s.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1, -1}}});
    build(f, x);
    REQUIRE_FALSE(f.s.ok());
    return f.s.status().error().message;
  };
  const Names four = devices_of(4);
  const auto known = [](Fixture& f) { return f.values({1, 2, 3, 4, 5, 6}, {2, 3}); };
  CHECK_THAT(fault([&](Fixture& f, Output) { dense_by_columns(f.s, f.variables, known(f), 8, "up", Names{}); }),
             Contains("0 devices"));
  CHECK_THAT(fault([&](Fixture& f, Output) { dense_by_columns(f.s, f.variables, known(f), 3, "up", four); }),
             Contains("'up'") && Contains("3 split over 4 devices"));
  CHECK_THAT(fault([&](Fixture& f, Output x) { dense_by_columns(f.s, f.variables, x, 8, "up", four); }),
             Contains("'up'") && Contains("[?,?]"));
  CHECK_THAT(fault([&](Fixture& f, Output x) {
               dense_by_rows(f.s, f.variables, {{"/cpu:0"}, {x}}, 8, "down");
             }),
             Contains("'down'") && Contains("[?,?]"));
  CHECK_THAT(fault([&](Fixture& f, Output) { dense_by_rows(f.s, f.variables, {}, 8, "down"); }),
             Contains("'down'") && Contains("0 parts"));
  CHECK_THAT(fault([&](Fixture& f, Output x) {
               dense_by_rows_to_all(f.s, f.variables, {four, {x}}, 8, "down");
             }),
             Contains("1 parts on 4 devices"));
  CHECK_THAT(fault([&](Fixture& f, Output) { split_to(f.s, known(f), four); }), Contains("3 split over 4"));
  CHECK_THAT(fault([&](Fixture& f, Output x) { split_to(f.s, x, four); }), Contains("[?,?]"));
  CHECK_THAT(fault([&](Fixture& f, Output x) { all_reduce(f.s, {{"/cpu:0"}, {x}}); }), Contains("all_reduce"));
  const auto ids = [](Fixture& f) { return f.s.constant(Tensor::of<int32_t>({0})); };
  CHECK_THAT(fault([&](Fixture& f, Output) { embedding_by_rows(f.s, f.variables, ids(f), 3, 8, "words", four); }),
             Contains("'words'") && Contains("3 split over 4"));
  CHECK_THAT(fault([&](Fixture& f, Output) { embedding_by_columns(f.s, f.variables, ids(f), 3, 2, "words", four); }),
             Contains("'words'") && Contains("2 split over 4"));
  CHECK_THAT(fault([&](Fixture& f, Output) { embedding(f.s, f.variables, ids(f), 0, 2, "words"); }),
             Contains("'words'") && Contains("0 rows"));
  CHECK_THAT(fault([&](Fixture& f, Output x) {
               sparse_softmax_cross_entropy(f.s, {{"/cpu:0"}, {x}}, ids(f));
             }),
             Contains("[?,?]"));
  // The first use of a variable decides its shape.
  CHECK_THAT(fault([&](Fixture& f, Output) {
               dense_by_columns(f.s, f.variables, known(f), 8, "up", devices_of(2));
               f.variables.reuse();
               dense_by_columns(f.s, f.variables, known(f), 8, "up", four);
             }),
             Contains("'up/kernel_0'") && Contains("[3,4]") && Contains("[3,2]"));
}

TEST_CASE("an id out of range fails the step, whichever way the table is split") {
  for (const int64_t id : {int64_t{-1}, int64_t{5}, INT64_MIN, INT64_MAX, int64_t{1} << 32}) {
    Fixture f(2);
    const Output ids = f.s.constant(Tensor::of<int64_t>({0, id, 4}));
    const Output rows = embedding_by_rows(f.s, f.variables, ids, 5, 4, "rows", devices_of(2));
    const Spread columns = embedding_by_columns(f.s, f.variables, ids, 5, 4, "columns", devices_of(2));
    const Output whole = embedding(f.s, f.variables, ids, 5, 4, "whole");
    f.initialise();
    INFO(id);
    for (const Output& y : {rows, columns.parts[0], columns.parts[1], whole}) CHECK_FALSE(f.session->run({}, {y}).ok());
    const Spread logits = split_to(f.s, f.s.constant(random_tensor({3, 5})), devices_of(2));
    CHECK_FALSE(f.session->run({}, {sparse_softmax_cross_entropy(f.s, logits, ids)}).ok());
  }
}

TEST_CASE("each without a function, and a size of 0, are faults that say so") {
  Fixture f(2);
  const Output x = f.values({1, 2}, {1, 2});
  CHECK(each(f.s, copy_to(f.s, x, Names{"/cpu:0", "/cpu:1"}), {}).parts.empty());
  CHECK_THAT(f.s.status().error().message, Catch::Contains("each: the function is empty"));
  Fixture g(2);
  CHECK(split_to(g.s, g.values({}, {1, 0}), Names{"/cpu:0", "/cpu:1"}).parts.empty());
  CHECK_THAT(g.s.status().error().message, Catch::Contains("[1,0]; its last size must be at least 1"));
}

TEST_CASE("two split layers of one name are an error unless sharing is asked for") {
  const std::vector<std::function<bool(const Scope&, Variables&)>> layers = {
      [](const Scope& s, Variables& v) {
        return !dense_by_columns(s, v, s.constant(Tensor::of<float>({1, 2}, {1, 2})), 2, "a", Names{"/cpu:0", "/cpu:1"})
                    .parts.empty();
      },
      [](const Scope& s, Variables& v) {
        const Spread x = split_to(s, s.constant(Tensor::of<float>({1, 2}, {1, 2})), Names{"/cpu:0", "/cpu:1"});
        return static_cast<bool>(dense_by_rows(s, v, x, 2, "a"));
      },
      [](const Scope& s, Variables& v) {
        return static_cast<bool>(
            embedding_by_rows(s, v, s.constant(Tensor::of<int32_t>({1})), 4, 2, "a", Names{"/cpu:0", "/cpu:1"}));
      },
      [](const Scope& s, Variables& v) {
        return !embedding_by_columns(s, v, s.constant(Tensor::of<int32_t>({1})), 4, 2, "a", Names{"/cpu:0", "/cpu:1"})
                    .parts.empty();
      },
  };
  for (const auto& layer : layers) {
    Fixture f(2);
    REQUIRE(layer(f.s, f.variables));
    f.variables.reuse("a");
    REQUIRE(layer(f.s, f.variables));
    CHECK_FALSE(layer(f.s, f.variables));
    CHECK_THAT(f.s.status().error().message, Catch::Contains("reuse()"));
  }
}

TEST_CASE("what is spread over no devices, or is empty in a part, is a fault") {
  const auto fault = [](auto build) {
    Fixture f(2);
    build(f, f.values({1, 2, 3, 4}, {2, 2}));
    REQUIRE_FALSE(f.s.ok());
    CHECK(f.s.status().error().code == Code::kInvalidArgument);
  };
  const auto same = [](const Scope&, Output part) { return part; };
  fault([](Fixture& f, Output x) { copy_to(f.s, x, {}); });
  fault([](Fixture& f, Output x) { split_to(f.s, x, {}); });
  fault([](Fixture& f, Output) { copy_to(f.s, {}, devices_of(2)); });
  fault([](Fixture& f, Output) { split_to(f.s, {}, devices_of(2)); });
  fault([&](Fixture& f, Output) { each(f.s, {}, same); });
  fault([](Fixture& f, Output) { gather(f.s, {}); });
  fault([](Fixture& f, Output) { reduce(f.s, {}); });
  fault([](Fixture& f, Output) { all_reduce(f.s, {}); });
  const auto half = [](Output x) { return Spread{devices_of(2), {x, {}}}; };
  fault([&](Fixture& f, Output x) { each(f.s, half(x), same); });
  fault([&](Fixture& f, Output x) { gather(f.s, half(x)); });
  fault([&](Fixture& f, Output x) { reduce(f.s, half(x)); });
  fault([&](Fixture& f, Output x) { all_reduce(f.s, half(x)); });
  fault([&](Fixture& f, Output x) { dense_by_columns(f.s, f.variables, half(x), 4, "up"); });
  fault([&](Fixture& f, Output x) { dense_by_rows(f.s, f.variables, half(x), 4, "down"); });
  fault([](Fixture& f, Output) { embedding_by_rows(f.s, f.variables, {}, 4, 4, "words", devices_of(2)); });
  fault([](Fixture& f, Output) { embedding_by_columns(f.s, f.variables, {}, 4, 4, "words", devices_of(2)); });
  fault([](Fixture& f, Output x) { sparse_softmax_cross_entropy(f.s, split_to(f.s, x, devices_of(2)), {}); });
  // Partial sums of different sizes.
  fault([](Fixture& f, Output x) { all_reduce(f.s, {devices_of(2), {x, f.values({1, 2, 3}, {1, 3})}}); });
}

}  // namespace
}  // namespace troupe::nn
