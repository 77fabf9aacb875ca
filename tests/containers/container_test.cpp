// SPDX-License-Identifier: Apache-2.0
// Container: reads, copy on write, exactly-once updates, snapshots against a simple model.
#include "containers/container.h"

#include <catch2/catch.hpp>
#include <random>

using namespace troupe;

namespace {

ResourceHandle variable(std::string name, PartialShape shape = {}, DType dtype = DType::kFloat32) {
  ResourceHandle h;
  h.type = "container";
  h.name = std::move(name);
  h.dtype = dtype;
  h.shape = shape;
  return h;
}

Status add(Container& c, const ResourceHandle& h, float x, std::optional<UpdateId> id = {}) {
  const ResourceHandle* handle = &h;
  return c.update(
      {&handle, 1}, system_allocator(),
      [&](std::span<Tensor* const> t) -> Status {
        for (float& v : std::span(t[0]->mutable_data<float>(), t[0]->elements())) v += x;
        return {};
      },
      id);
}

}  // namespace

TEST_CASE("a variable without a value is an error that names it") {
  Container c("weights");
  const auto h = variable("w");
  const auto read = c.read(h);
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().code == Code::kFailedPrecondition);
  CHECK_THAT(read.error().message, Catch::Contains("'w'") && Catch::Contains("initialiser"));
  CHECK(add(c, h, 1).error().code == Code::kFailedPrecondition);
  CHECK_FALSE(*c.initialized(h));
  CHECK(c.snapshot().empty());
  CHECK(c.version("w") == 0);
}

TEST_CASE("handles and values must agree in dtype and shape") {
  Container c;
  REQUIRE(c.assign(variable("w", {2, -1}), Tensor::of<float>({1, 2}, {2, 1})).ok());
  CHECK(c.read(variable("w", {2, -1})).ok());
  CHECK_THAT(c.read(variable("w", {3, -1})).error().message, Catch::Contains("[2,?]") && Catch::Contains("[3,?]"));
  CHECK_THAT(c.read(variable("w", {2, -1}, DType::kInt32)).error().message, Catch::Contains("int32"));
  CHECK_THAT(c.assign(variable("w", {2, -1}), Tensor::of<float>({1, 2, 3}, {3, 1})).error().message,
             Catch::Contains("[3,1]"));
  CHECK(c.assign(variable("w"), Tensor::of<int32_t>({1, 2}, {2, 1})).error().code == Code::kInvalidArgument);
  CHECK(c.assign(variable("w"), Tensor::of<float>({1, 2, 3, 4}, {2, 2}), true).error().code == Code::kInvalidArgument);
  CHECK(c.assign(variable("w"), Tensor::of<float>({1, 2, 3, 4}, {2, 2})).ok());
  CHECK(c.version("w") == 2);
  CHECK(c.read(variable("no dtype", {}, DType::kInvalid)).error().code == Code::kInvalidArgument);
}

TEST_CASE("a handle in the place of one that is gone names its own variable") {
  Container c;
  ResourceHandle h = variable("a", PartialShape::scalar());
  REQUIRE(c.assign(h, Tensor::scalar(1.f)).ok());
  CHECK(c.read(h)->data<float>()[0] == 1);
  h = variable("b", PartialShape::scalar());
  CHECK(c.read(h).error().code == Code::kFailedPrecondition);
  REQUIRE(c.assign(h, Tensor::scalar(2.f)).ok());
  CHECK(c.read(h)->data<float>()[0] == 2);
  h = variable("a", {2});
  CHECK(c.read(h).error().code == Code::kInvalidArgument);
  h = variable("b", PartialShape::scalar(), DType::kInt32);
  CHECK(c.read(h).error().code == Code::kInvalidArgument);
}

TEST_CASE("a handle that was used finds a variable that was forgotten and made anew, and that of a copy") {
  Container c;
  const auto h = variable("a", PartialShape::scalar()),
             step = variable(temporary_name("t", 7, 0), PartialShape::scalar());
  REQUIRE(c.assign(h, Tensor::scalar(1.f)).ok());
  CHECK(c.read(h).ok());
  REQUIRE(c.erase(h).ok());
  CHECK(c.read(h).error().code == Code::kFailedPrecondition);
  REQUIRE(c.assign(h, Tensor::scalar(2.f)).ok());
  CHECK(c.read(h)->data<float>()[0] == 2);

  REQUIRE(c.assign(step, Tensor::scalar(3.f)).ok());
  CHECK(c.read(step).ok());
  c.drop_temporaries(7);
  CHECK(c.read(step).error().code == Code::kFailedPrecondition);

  auto original = std::make_unique<Container>(c);
  REQUIRE(add(*original, h, 1).ok());
  Container copy(*original);
  REQUIRE(add(copy, h, 10).ok());
  REQUIRE(add(*original, h, 100).ok());
  CHECK(original->read(h)->data<float>()[0] == 103);
  original.reset();
  CHECK(copy.read(h)->data<float>()[0] == 13);
  CHECK(c.read(h)->data<float>()[0] == 2);
}

TEST_CASE("an update writes in place, or a copy while the buffer is shared") {
  Container c;
  const auto h = variable("w", {2});
  REQUIRE(c.assign(h, Tensor::of<float>({1, 2})).ok());
  const void* buffer = c.read(h)->raw();
  REQUIRE(add(c, h, 1).ok());
  CHECK(c.read(h)->raw() == buffer);
  {
    const Tensor held = *c.read(h);
    REQUIRE(add(c, h, 1).ok());
    CHECK(held.identical(Tensor::of<float>({2, 3})));
    CHECK(c.read(h)->raw() != buffer);
  }
  CHECK(c.read(h)->identical(Tensor::of<float>({3, 4})));
  CHECK(c.version("w") == 3);
}

TEST_CASE("a rewrite writes in place, or straight to a new buffer while the old one is shared") {
  Container c;
  const auto h = variable("w", {2});
  const ResourceHandle* handles[] = {&h};
  const auto twice = [](std::span<const Container::Rewritten> v) -> Status {
    for (int i = 0; i < 2; ++i) v[0].to->mutable_data<float>()[i] = 2 * v[0].from->data<float>()[i];
    return {};
  };
  REQUIRE(c.assign(h, Tensor::of<float>({1, 2})).ok());
  const void* buffer = c.read(h)->raw();
  REQUIRE(c.rewrite(handles, system_allocator(), twice).ok());
  CHECK(c.read(h)->raw() == buffer);
  const Tensor held = *c.read(h);
  REQUIRE(c.rewrite(handles, system_allocator(), twice, UpdateId{1, 1}).ok());
  REQUIRE(c.rewrite(handles, system_allocator(), twice, UpdateId{1, 1}).ok());  // repeated: applied once
  CHECK(held.identical(Tensor::of<float>({2, 4})));
  CHECK(c.read(h)->identical(Tensor::of<float>({4, 8})));
  CHECK(c.version("w") == 3);
  const Tensor held_too = *c.read(h);
  auto refuse = [](std::span<const Container::Rewritten>) -> Status { return invalid_argument("refused"); };
  CHECK(c.rewrite(handles, system_allocator(), refuse).error().message == "refused");
  CHECK(c.read(h)->shares_buffer(held_too));
  CHECK(c.version("w") == 3);
}

TEST_CASE("a failed update changes nothing") {
  Container c;
  const auto a = variable("a"), b = variable("b");
  REQUIRE(c.assign(a, Tensor::of<float>({1})).ok());
  const ResourceHandle* both[] = {&a, &b};
  bool called = false;
  auto fn = [&](std::span<Tensor* const>) -> Status { return called = true, invalid_argument("refused"); };
  CHECK_THAT(c.update(both, system_allocator(), fn).error().message, Catch::Contains("'b'"));
  CHECK_FALSE(called);
  REQUIRE(c.assign(b, Tensor::of<float>({2})).ok());
  CHECK(c.update(both, system_allocator(), fn, UpdateId{1, 1}).error().message == "refused");
  CHECK_FALSE(c.applied({1, 1}));
  CHECK(c.version("a") == 1);
  const ResourceHandle* twice[] = {&a, &a};
  CHECK_THAT(c.update(twice, system_allocator(), fn).error().message, Catch::Contains("twice"));
}

TEST_CASE("repeated updates of a worker apply once, in whatever order they come") {
  Container c;
  const auto h = variable("w");
  REQUIRE(c.assign(h, Tensor::scalar(0.f)).ok());
  std::mt19937 random(7);
  std::vector<UpdateId> sends;
  for (uint64_t worker = 1; worker <= 3; ++worker)
    for (uint64_t sequence = 1; sequence <= 200; ++sequence)
      for (int copies = 0; copies < 3; ++copies) sends.push_back({worker, sequence});
  std::shuffle(sends.begin(), sends.end(), random);
  for (const UpdateId& id : sends) REQUIRE(add(c, h, 1, id).ok());
  CHECK(c.read(h)->data<float>()[0] == 600);
  CHECK(c.version("w") == 601);
  c.forget_worker(2);
  REQUIRE(add(c, h, 1, UpdateId{2, 5}).ok());
  CHECK(c.read(h)->data<float>()[0] == 601);
}

TEST_CASE("the update log is bounded when sequences are missing") {
  Container c;
  const auto h = variable("w");
  REQUIRE(c.assign(h, Tensor::scalar(0.f)).ok());
  for (uint64_t i = 1; i <= 5000; ++i) REQUIRE(add(c, h, 1, UpdateId{1, 2 * i}).ok());
  CHECK(c.read(h)->data<float>()[0] == 5000);
  CHECK(c.applied({1, 3}));  // too old to tell
  CHECK_FALSE(c.applied({1, 9999}));
}

TEST_CASE("a snapshot is one moment and does not change; restore is all or nothing") {
  Container c;
  const auto a = variable("a", {2}), b = variable("b", {2});
  REQUIRE(c.assign(a, Tensor::of<float>({1, 1})).ok());
  REQUIRE(c.assign(b, Tensor::of<float>({2, 2})).ok());
  const auto cut = c.snapshot();
  REQUIRE(add(c, a, 5).ok());
  REQUIRE(add(c, b, 5).ok());
  CHECK(cut.at("a").identical(Tensor::of<float>({1, 1})));
  CHECK(cut.at("b").identical(Tensor::of<float>({2, 2})));

  auto bad = cut;
  bad["b"] = Tensor::of<float>({1, 2, 3});
  bad["new"] = Tensor::scalar(1.f);
  const Status refused = c.restore(bad);
  CHECK_THAT(refused.error().message, Catch::Contains("'b'") && Catch::Contains("[3]"));
  CHECK(c.read(a)->identical(Tensor::of<float>({6, 6})));
  CHECK(c.size() == 2);

  auto good = cut;
  good["new"] = Tensor::of<float>({1, 2, 3});
  REQUIRE(c.restore(good).ok());
  CHECK(c.read(a)->identical(Tensor::of<float>({1, 1})));
  CHECK(c.read(variable("new", {-1}))->elements() == 3);
  CHECK(c.assign(variable("new", {-1}), Tensor::of<float>({1})).ok());  // the handle's shape counts from then on
  REQUIRE(c.erase(a).ok());
  CHECK(c.erase(a).error().code == Code::kNotFound);
}

TEST_CASE("random requests agree with a model of plain vectors") {
  std::mt19937 random(GENERATE(1, 2, 3));
  Container c;
  std::map<std::string, std::vector<float>> model;
  std::vector<std::pair<std::map<std::string, Tensor>, std::map<std::string, std::vector<float>>>> cuts;
  std::vector<std::pair<Tensor, std::vector<float>>> held;
  const auto equal = [](const Tensor& t, const std::vector<float>& v) {
    return t.identical(Tensor::of<float>(std::span(v)));
  };
  for (int i = 0; i < 3000; ++i) {
    const auto h = variable("v" + std::to_string(random() % 6));
    const auto x = static_cast<float>(random() % 100);
    switch (random() % 6) {
      case 0:
        REQUIRE(c.assign(h, Tensor::of<float>({x, x + 1})).ok());
        model[h.name] = {x, x + 1};
        break;
      case 1:
      case 2:
        REQUIRE(add(c, h, x).ok() == model.contains(h.name));
        if (auto at = model.find(h.name); at != model.end())
          for (float& v : at->second) v += x;
        break;
      case 3: {
        const auto t = c.read(h);
        REQUIRE(t.ok() == model.contains(h.name));
        if (!t.ok()) break;
        REQUIRE(equal(*t, model[h.name]));
        held.emplace_back(*t, model[h.name]);
        if (held.size() > 5) held.erase(held.begin() + random() % held.size());
        break;
      }
      case 4:
        if (random() % 10 == 0) cuts.emplace_back(c.snapshot(), model);
        break;
      case 5:
        if (random() % 20 == 0 && !cuts.empty()) {
          const auto& cut = cuts[random() % cuts.size()];
          REQUIRE(c.restore(cut.first).ok());
          for (const auto& [name, v] : cut.second) model[name] = v;
        }
        break;
    }
    for (const auto& [t, v] : held) REQUIRE(equal(t, v));
  }
  for (const auto& [cut, then] : cuts) {
    REQUIRE(cut.size() == then.size());
    for (const auto& [name, v] : then) REQUIRE(equal(cut.at(name), v));
  }
}
