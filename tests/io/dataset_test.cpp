// SPDX-License-Identifier: Apache-2.0
// Dataset stages: what they yield, in which order, and what errors cost.
#include "troupe/dataset.h"

#include <zlib.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "tests/io/temporary_directory.h"

using namespace troupe;

namespace {

Dataset numbers(int n) {
  std::vector<int32_t> values(n);
  std::iota(values.begin(), values.end(), 0);
  return *Dataset::from_tensors({Tensor::of<int32_t>(std::span<const int32_t>(values))});
}

Dataset identity_map(const Dataset& d) {
  return d.map([](Element e) -> Result<Element> { return e; });
}

/// All values of component 0, flattened; an error shows as -1000.
std::vector<int> drain(const Dataset& dataset, size_t most = 1000) {
  auto it = dataset.iterate();
  REQUIRE(it.ok());
  std::vector<int> out;
  while (out.size() < most) {
    auto next = (*it)->next();
    if (!next.ok()) {
      out.push_back(-1000);
      continue;
    }
    if (!*next) {
      CHECK(!(*(*it)->next()).has_value());  // the end stays the end
      break;
    }
    const auto values = (**next)[0].values<int32_t>();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

std::vector<int> sorted(std::vector<int> v) {
  std::ranges::sort(v);
  return v;
}

using V = std::vector<int>;

}  // namespace

TEST_CASE("from_tensors yields rows and refuses what has none") {
  auto d = Dataset::from_tensors({Tensor::of<float>({1, 2, 3, 4, 5, 6}, {3, 2}), Tensor::of<int64_t>({7, 8, 9})});
  REQUIRE(d.ok());
  CHECK(d->size() == 3);
  CHECK(d->dtypes() == std::vector{DType::kFloat32, DType::kInt64});
  CHECK(d->shapes() == std::vector<PartialShape>{{2}, PartialShape::scalar()});
  auto it = std::move(*d->iterate());
  CHECK((**it->next())[1].identical(Tensor::scalar<int64_t>(7)));
  CHECK((**it->next())[0].identical(Tensor::of<float>({3, 4})));

  CHECK(Dataset::from_tensors({}).error().code == Code::kInvalidArgument);
  CHECK(Dataset::from_tensors({Tensor()}).error().code == Code::kInvalidArgument);
  CHECK(Dataset::from_tensors({Tensor::scalar(1.f)}).error().code == Code::kInvalidArgument);
  auto uneven = Dataset::from_tensors({Tensor::of<float>({1, 2}), Tensor::of<float>({1, 2, 3})});
  CHECK_THAT(uneven.error().message, Catch::Contains("2 and 3 rows"));
  CHECK(drain(numbers(0)).empty());
}

TEST_CASE("take, skip, shard, repeat and batch agree on rows and on mapped elements") {
  for (const Dataset& d : {numbers(7), identity_map(numbers(7))}) {
    CHECK(drain(d) == V{0, 1, 2, 3, 4, 5, 6});
    CHECK(drain(d.take(2)) == V{0, 1});
    CHECK(drain(d.take(0)).empty());
    CHECK(drain(d.take(-1)).size() == 7);
    CHECK(drain(d.skip(5)) == V{5, 6});
    CHECK(drain(d.skip(9)).empty());
    CHECK(drain(d.shard(3, 0)) == V{0, 3, 6});
    CHECK(drain(d.shard(3, 2)) == V{2, 5});
    CHECK(drain(d.shard(INT64_MAX, 2)) == V{2});
    CHECK(drain(d.skip(INT64_MAX)).empty());
    CHECK(drain(d.take(INT64_MAX)).size() == 7);
    CHECK(drain(d.batch(INT64_MAX)).size() == 7);
    CHECK(drain(d.take(2).repeat(3)) == V{0, 1, 0, 1, 0, 1});
    CHECK(drain(d.repeat(0)).empty());
    CHECK(drain(d.repeat(), 16) == V{0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 0, 1});
    CHECK(drain(d.skip(7).repeat()).empty());
    CHECK(drain(d.batch(3)) == V{0, 1, 2, 3, 4, 5, 6});
    CHECK(drain(d.batch(3, true)) == V{0, 1, 2, 3, 4, 5});
    CHECK(drain(d.batch(2).batch(2).take(1)) == V{0, 1, 2, 3});
    CHECK(drain(d.repeat(2).batch(14).take(1)).size() == 14);

    auto it = std::move(*d.batch(3).iterate());
    CHECK((**it->next())[0].shape() == Shape{3});
    (void)it->next().ok();
    CHECK((**it->next())[0].shape() == Shape{1});
  }
}

TEST_CASE("sizes are known as far as they can be") {
  const Dataset d = numbers(10);
  CHECK(d.take(4).size() == 4);
  CHECK(d.skip(4).size() == 6);
  CHECK(d.shard(3, 0).size() == 4);
  CHECK(d.shard(3, 1).size() == 3);
  CHECK(d.repeat(3).size() == 30);
  CHECK(d.repeat().size() == -2);
  CHECK(d.repeat().take(25).size() == 25);
  CHECK(numbers(0).repeat().size() == 0);
  CHECK(d.batch(3).size() == 4);
  CHECK(d.batch(3, true).size() == 3);
  CHECK(d.repeat(INT64_MAX).size() == -1);
  CHECK(identity_map(d.shuffle(3, 1)).size() == 10);
  CHECK(d.batch(3).shapes() == std::vector<PartialShape>{{-1}});
  CHECK(d.batch(3, true).shapes() == std::vector<PartialShape>{{3}});
}

TEST_CASE("shuffle permutes, by its seed alone, each pass anew") {
  const V all = drain(numbers(100));
  for (const Dataset& d : {numbers(100), identity_map(numbers(100))}) {
    const V once = drain(d.shuffle(100, 7));
    CHECK(once != all);
    CHECK(sorted(once) == all);
    CHECK(drain(d.shuffle(100, 7)) == once);
    CHECK(drain(d.shuffle(100, 8)) != once);
    CHECK(drain(d.shuffle(1, 7)) == all);
    CHECK(sorted(drain(d.shuffle(INT64_MAX, 7))) == all);

    const V twice = drain(d.shuffle(100, 7).repeat(2));
    const V first(twice.begin(), twice.begin() + 100), second(twice.begin() + 100, twice.end());
    CHECK(first == once);
    CHECK(second != once);
    CHECK(sorted(second) == all);
    CHECK(drain(d.shuffle(100, 7).repeat(2)) == twice);

    // Element i of a buffer of b can come no earlier than i - b + 1.
    const V near = drain(d.shuffle(10, 3));
    CHECK(sorted(near) == all);
    for (int at = 0; at < 100; ++at) CHECK(near[at] < at + 10);
  }
  CHECK(drain(numbers(100).shuffle(100, 7)) == drain(identity_map(numbers(100)).shuffle(100, 7)));
}

TEST_CASE("every position is equally likely under shuffle") {
  std::vector<std::vector<int>> counts(4, std::vector<int>(4));
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const V order = drain(numbers(4).shuffle(4, seed));
    for (int i = 0; i < 4; ++i) ++counts[i][order[i]];
  }
  for (const auto& row : counts)
    for (int n : row) CHECK(std::abs(n - 1000) < 150);  // more than five standard deviations
}

TEST_CASE("batches gather all components, strings too") {
  auto d =
      *Dataset::from_tensors({Tensor::of<std::string>({"a", "b", "c"}), Tensor::of<float>({1, 2, 3, 4, 5, 6}, {3, 2})});
  for (const Dataset& flow : {d.skip(1), identity_map(d).skip(1)}) {
    auto it = std::move(*flow.batch(4).iterate());
    const Element batch = **it->next();
    CHECK(batch[0].identical(Tensor::of<std::string>({"b", "c"})));
    CHECK(batch[1].identical(Tensor::of<float>({3, 4, 5, 6}, {2, 2})));
  }
}

TEST_CASE("parameters that make no sense are errors of iterate") {
  const Dataset d = numbers(3);
  for (const Dataset& bad : {d.batch(0), d.batch(-1), d.shuffle(0, 1), d.skip(-1), d.shard(0, 0), d.shard(1, 1),
                             d.shard(2, 2), d.shard(2, -1), d.repeat(-2), identity_map(d).repeat(-2), d.map(nullptr),
                             d.shuffle(0, 1).batch(2), identity_map(d).shard(0, 0).repeat()}) {
    auto it = bad.iterate();
    const Status status = it.ok() ? (*it)->next().status() : it.status();
    REQUIRE(!status.ok());
    CHECK(status.error().code == Code::kInvalidArgument);
  }
}

TEST_CASE("an error of a map names its element and costs that element alone") {
  const Dataset d = numbers(5).map([](Element e) -> Result<Element> {
    const int v = e[0].data<int32_t>()[0];
    if (v == 1) return invalid_argument("one is bad");
    if (v == 3) throw std::runtime_error("three throws");
    return Element{Tensor::scalar<int32_t>(v * 10)};
  });
  CHECK(drain(d) == V{0, -1000, 20, -1000, 40});
  auto it = std::move(*d.iterate());
  (void)it->next().ok();
  CHECK_THAT(it->next().error().message, Catch::Contains("element 1") && Catch::Contains("one is bad"));
  (void)it->next().ok();
  CHECK_THAT(it->next().error().message, Catch::Contains("element 3") && Catch::Contains("three throws"));
  CHECK(drain(d.batch(2)) == V{-1000, 0, 20, -1000, 40});  // the batch goes on with what it has
}

TEST_CASE("what a map returns is checked against what was declared") {
  auto to = [](std::vector<DType> dtypes, std::vector<PartialShape> shapes) {
    return numbers(1).map(
        [](Element) -> Result<Element> {
          return Element{Tensor::of<float>({1, 2})};
        },
        dtypes, shapes);
  };
  auto first = [](const Dataset& d) { return (*d.iterate())->next(); };
  CHECK(first(to({DType::kFloat32}, {})).ok());
  CHECK(first(to({DType::kFloat32}, {{-1}})).ok());
  CHECK_THAT(first(to({}, {})).error().message, Catch::Contains("float32[2]") && Catch::Contains("int32"));
  CHECK_THAT(first(to({DType::kFloat32}, {{3}})).error().message, Catch::Contains("[3]"));
  CHECK(!first(to({DType::kFloat32, DType::kFloat32}, {})).ok());
}

TEST_CASE("a batch of unequal elements is an error that names both") {
  auto grow = numbers(3).map(
      [](Element e) -> Result<Element> {
        const int v = e[0].data<int32_t>()[0];
        return Element{*Tensor::zeros(DType::kInt32, {v == 1 ? 2 : 1})};
      },
      {DType::kInt32});
  auto it = std::move(*grow.batch(3).iterate());
  CHECK_THAT(it->next().error().message,
             Catch::Contains("int32[2]") && Catch::Contains("int32[1]") && Catch::Contains("element 1"));
  CHECK((**it->next())[0].shape() == Shape{2, 1});
}

TEST_CASE("batching elements of the highest rank is an error, not a crash") {
  Shape rows{2};
  while (rows.rank() < kMaxRank) rows.push_back(1);
  const Dataset d = *Dataset::from_tensors({*Tensor::zeros(DType::kUInt8, rows)});
  CHECK(d.batch(2).shapes()[0].rank() == kMaxRank);
  auto it = std::move(*d.batch(1).batch(2).iterate());
  CHECK(it->next().error().code == Code::kInvalidArgument);
  CHECK(!d.batch(1).batch(2).shapes()[0].has_rank());
}

TEST_CASE("tensors that a stage or function of a user's keeps stay as they are, whatever a map behind writes") {
  const std::vector<Tensor> kept = {Tensor::scalar<int32_t>(0), Tensor::scalar<int32_t>(10)};
  struct Kept : Dataset::Stage {
    struct It : DatasetIterator {
      std::vector<Tensor> left;
      Result<std::optional<Element>> next() override {
        if (left.empty()) return std::optional<Element>();
        Element out = {left.front()};
        left.erase(left.begin());
        return std::optional<Element>(std::move(out));
      }
    };
    std::vector<Tensor> tensors;
    Result<std::unique_ptr<DatasetIterator>> iterate() const override {
      auto it = std::make_unique<It>();
      it->left = tensors;
      return std::unique_ptr<DatasetIterator>(std::move(it));
    }
    std::vector<DType> dtypes() const override { return {DType::kInt32}; }
    std::vector<PartialShape> shapes() const override { return {PartialShape::scalar()}; }
  };
  const auto stage = std::make_shared<Kept>();
  stage->tensors = kept;
  const auto look_up = [&](Element e) -> Result<Element> {
    return Element{kept[static_cast<size_t>(e[0].data<int32_t>()[0])]};
  };
  const auto add_one = [](Element e) -> Result<Element> {
    ++*e[0].mutable_data<int32_t>();
    return e;
  };
  for (const Dataset& d : {Dataset(stage), numbers(2).map(look_up)})
    CHECK(drain(d.map(add_one).repeat(3)) == V{1, 11, 1, 11, 1, 11});
  CHECK(kept[0].identical(Tensor::scalar<int32_t>(0)));
  CHECK(kept[1].identical(Tensor::scalar<int32_t>(10)));

  // One tensor that is written for each element, while those before wait in a buffer.
  Tensor one = Tensor::scalar<int32_t>(0);
  const auto again = [&](Element e) -> Result<Element> {
    *one.mutable_data<int32_t>() = e[0].data<int32_t>()[0];
    return Element{one};
  };
  CHECK(sorted(drain(numbers(4).map(again).shuffle(4, 1))) == V{0, 1, 2, 3});
}

TEST_CASE("a user's own stage takes part") {
  struct Two : Dataset::Stage {
    struct It : DatasetIterator {
      int at = 0;
      Result<std::optional<Element>> next() override {
        if (at == 2) return std::optional<Element>();
        return std::optional<Element>({Tensor::scalar<int32_t>(at++)});
      }
    };
    Result<std::unique_ptr<DatasetIterator>> iterate() const override {
      return std::unique_ptr<DatasetIterator>(new It);
    }
    std::vector<DType> dtypes() const override { return {DType::kInt32}; }
    std::vector<PartialShape> shapes() const override { return {PartialShape::scalar()}; }
  };
  const Dataset d(std::make_shared<Two>());
  CHECK(drain(d.repeat(2).batch(3)) == V{0, 1, 0, 1});
  CHECK(sorted(drain(d.shuffle(5, 1))) == V{0, 1});
  CHECK(d.size() == -1);
}

TEST_CASE("lines of text files, plain and gzip, in order; a bad file is one error") {
  TemporaryDirectory dir;
  const std::string a = dir.write("a", "one\ntwo\r\n\nlast");
  const std::string b = dir.file("b.gz");
  gzFile gz = gzopen(b.c_str(), "wb");
  const std::string big(200000, 'x');
  gzwrite(gz, (big + "\nend\n").data(), static_cast<unsigned>(big.size() + 5));
  gzclose(gz);
  auto it = std::move(*Dataset::from_text_lines({a, dir.file("none"), b})->iterate());
  std::vector<std::string> lines;
  int errors = 0;
  for (;;) {
    auto next = it->next();
    if (!next.ok()) {
      CHECK(next.error().code == Code::kNotFound);
      CHECK_THAT(next.error().message, Catch::Contains("none"));
      ++errors;
      continue;
    }
    if (!*next) break;
    lines.push_back((**next)[0].data<std::string>()[0]);
  }
  CHECK(errors == 1);
  CHECK(lines == std::vector<std::string>{"one", "two", "", "last", big, "end"});
  CHECK(Dataset::from_text_lines({a})->batch(2).dtypes() == std::vector{DType::kString});
}

TEST_CASE("of a gzip text that is cut off the lines before the cut come, then an error") {
  const TemporaryDirectory dir;
  const std::string path = dir.file("cut.gz");
  gzFile gz = gzopen(path.c_str(), "wb");
  gzwrite(gz, "one\ntwo\n", 8);
  gzclose(gz);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 8);  // sum and length, which end it
  auto it = std::move(*Dataset::from_text_lines({path})->iterate());
  for (const char* line : {"one", "two"}) {
    const auto next = it->next();
    REQUIRE((next.ok() && next->has_value()));
    CHECK((**next)[0].data<std::string>()[0] == line);
  }
  const auto cut = it->next();
  REQUIRE_FALSE(cut.ok());
  CHECK(cut.error().code == Code::kDataLoss);
  CHECK_THAT(cut.error().message, Catch::Contains(path) && Catch::Contains("truncated gzip stream"));
  CHECK_FALSE((*it->next()).has_value());
}

TEST_CASE("the shards of files have each element once, whatever the numbers of files and shards") {
  TemporaryDirectory dir;
  const auto read = [](const Dataset& dataset) {
    std::vector<std::string> out;
    const auto it = std::move(*dataset.iterate());
    for (auto next = it->next(); next.ok() && *next; next = it->next())
      out.push_back((**next)[0].data<std::string>()[0]);
    return out;
  };
  std::vector<std::string> files, all;
  for (int file = 0; file < 4; ++file) {
    std::string text;
    for (int line = 0; line < 1 + 2 * file; ++line) {
      all.push_back(std::to_string(file) + "." + std::to_string(line));
      text += all.back() + "\n";
    }
    files.push_back(dir.write(std::to_string(file), text));
  }
  std::swap(files[0], files[3]);  // given in any order
  for (int64_t count = 1; count <= 20; ++count) {
    std::vector<std::string> got;
    for (int64_t index = 0; index < count; ++index) {
      const auto dataset = Dataset::from_text_lines(files, Shard{count, index});
      REQUIRE(dataset.ok());
      const auto own = read(*dataset);
      got.insert(got.end(), own.begin(), own.end());
    }
    std::ranges::sort(got);
    CHECK(got == all);
  }
  // Whole files, or every so many elements of all files.
  CHECK(read(*Dataset::from_text_lines(files, Shard{3, 0})) ==
        std::vector<std::string>{"0.0", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6"});
  CHECK(read(*Dataset::from_text_lines(files, Shard{5, 1})) == std::vector<std::string>{"1.0", "2.2", "3.2"});
  CHECK(read(*Dataset::from_records({}, Shard{2, 1})).empty());
  for (const Shard& wrong : {Shard{2, 2}, Shard{2, -1}, Shard{0, 0}, Shard{-1, 0}}) {
    const auto dataset = Dataset::from_records(files, wrong);
    REQUIRE_FALSE(dataset.ok());
    CHECK(dataset.error().code == Code::kInvalidArgument);
    CHECK_THAT(dataset.error().message, Catch::Contains("shard " + std::to_string(wrong.index) + " of"));
  }
}

TEST_CASE("one description is iterated by many threads at once, each with the same elements") {
  for (const Dataset& d : {numbers(50), identity_map(numbers(50))}) {
    const Dataset all = d.shuffle(20, 3).repeat(2).batch(7);
    const V expected = drain(all);
    std::vector<V> got(4);
    {
      std::vector<std::jthread> threads;
      for (V& values : got)
        threads.emplace_back([&values, &all] {
          const auto it = std::move(*all.iterate());
          for (auto next = it->next(); next.ok() && *next; next = it->next()) {
            const auto batch = (**next)[0].values<int32_t>();
            values.insert(values.end(), batch.begin(), batch.end());
          }
        });
    }
    for (const V& values : got) CHECK(values == expected);
  }
}

TEST_CASE("an iterator outlives the datasets that it came from") {
  auto it = [] {
    const Dataset d = identity_map(numbers(4)).shuffle(1, 1).repeat(2).batch(3);
    return std::move(*d.iterate());
  }();
  CHECK((**it->next())[0].identical(Tensor::of<int32_t>({0, 1, 2})));
}

TEST_CASE("a map that gives a tensor that is not there, or no tensors, costs its element") {
  for (const Element& bad : {Element{Tensor()}, Element{}, Element{Tensor::scalar(1), Tensor::scalar(2)}}) {
    const Dataset d =
        numbers(3).map([bad](Element e) -> Result<Element> { return e[0].data<int32_t>()[0] == 1 ? bad : e; });
    CHECK(drain(d) == V{0, -1000, 2});
    CHECK(drain(d.batch(2)) == V{-1000, 0, 2});
  }
}

TEST_CASE("what a user's stage gives beside its word is an error of a batch, not a crash") {
  struct Liar : Dataset::Stage {
    explicit Liar(std::vector<Element> e) : elements(std::move(e)) {}
    struct It : DatasetIterator {
      explicit It(std::vector<Element> e) : elements(std::move(e)) {}
      std::vector<Element> elements;
      size_t at = 0;
      Result<std::optional<Element>> next() override {
        if (at == elements.size()) return std::optional<Element>();
        return std::optional<Element>(elements[at++]);
      }
    };
    Result<std::unique_ptr<DatasetIterator>> iterate() const override {
      if (elements.empty()) return std::unique_ptr<DatasetIterator>();
      return std::unique_ptr<DatasetIterator>(new It(elements));
    }
    std::vector<DType> dtypes() const override { return {DType::kInt32}; }
    std::vector<PartialShape> shapes() const override { return {}; }
    std::vector<Element> elements;
  };
  const Tensor one = Tensor::scalar(1);
  for (const std::vector<Element>& elements :
       {std::vector<Element>{{one}, {}}, {{one}, {Tensor()}}, {{Tensor()}, {Tensor()}}, {{one}, {one, one}}}) {
    const Dataset d = Dataset(std::make_shared<Liar>(elements)).batch(2);
    const auto it = std::move(*d.iterate());
    CHECK(it->next().error().code == Code::kInvalidArgument);
  }
  // No iterator at all.
  const Dataset none = Dataset(std::make_shared<Liar>(std::vector<Element>())).batch(2);
  CHECK_FALSE(none.iterate().ok());
  const auto repeated = none.repeat().iterate();
  REQUIRE(repeated.ok());
  CHECK_FALSE((*repeated)->next().ok());
  CHECK_FALSE((*(*repeated)->next()).has_value());
}

TEST_CASE("batches and shapes of the largest size there is do not overflow") {
  const Dataset d = numbers(3).batch(INT64_MAX, true);
  CHECK(d.shapes() == std::vector<PartialShape>{{INT64_MAX}});
  CHECK(d.size() == 0);
  CHECK(drain(d).empty());
  CHECK(drain(d.repeat()).empty());
  CHECK(numbers(3).prefetch(-1).prefetch_depth() == 0);
  CHECK(numbers(3).prefetch(7).batch(2).shuffle(2, 1).prefetch_depth() == 7);
}

TEST_CASE("what a stage of a user's own throws below another is an error, and in cancel() nothing") {
  struct Throwing final : Dataset::Stage {
    struct Iterator final : DatasetIterator {
      Result<std::optional<Element>> next() override { throw std::runtime_error("in next"); }
      void cancel() override { throw std::runtime_error("in cancel"); }
    };
    explicit Throwing(bool at_once) : at_once(at_once) {}
    Result<std::unique_ptr<DatasetIterator>> iterate() const override {
      if (at_once) throw std::runtime_error("in iterate");
      return std::unique_ptr<DatasetIterator>(new Iterator());
    }
    std::vector<DType> dtypes() const override { return {DType::kInt32}; }
    std::vector<PartialShape> shapes() const override { return {{}}; }
    const bool at_once;
  };
  const auto it = identity_map(Dataset(std::make_shared<Throwing>(false))).iterate();
  REQUIRE(it.ok());
  CHECK((*it)->next().error().message.find("in next") != std::string::npos);
  (*it)->cancel();
  CHECK((*it)->next().error().code == Code::kCancelled);
  const auto none = identity_map(Dataset(std::make_shared<Throwing>(true))).iterate();
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().message.find("in iterate") != std::string::npos);
}
