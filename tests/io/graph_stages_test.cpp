// SPDX-License-Identifier: Apache-2.0
// Stages of datasets that are part of a graph: what they yield, in which order, and what errors cost.
#include "io/graph_stages.h"

#include <catch2/catch.hpp>

#include <condition_variable>
#include <numeric>
#include <thread>

using namespace troupe;

namespace {

using Numbers = std::vector<int64_t>;

StagePtr range(int64_t n) { return *make_range_stage(0, n, 1, DType::kInt64); }
int64_t number(const Tensor& t) { return t.data<int64_t>()[0]; }

/// The values of component 0 of all elements, at most `most` of them; an error shows as -1000.
Numbers drain(Result<std::unique_ptr<DatasetIterator>> iterator, size_t most = 1000) {
  INFO((iterator.ok() ? "" : iterator.error().message));
  REQUIRE(iterator.ok());
  Numbers out;
  while (out.size() < most) {
    auto next = (*iterator)->next();
    if (!next.ok()) {
      out.push_back(-1000);
      continue;
    }
    if (!*next) {
      CHECK_FALSE((*(*iterator)->next()).has_value());  // the end stays the end
      break;
    }
    const auto values = (**next)[0].values<int64_t>();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

Numbers drain(const StagePtr& stage, size_t most = 1000) { return drain(stage->iterate(), most); }

/// The first error.
std::string error_of(const StagePtr& stage) {
  auto iterator = stage->iterate();
  if (!iterator.ok()) return iterator.error().message;
  for (int i = 0; i < 100; ++i) {
    auto next = (*iterator)->next();
    if (!next.ok()) return next.error().message;
    if (!*next) break;
  }
  return "";
}

PassFn on_number(std::function<Result<Tensor>(int64_t)> fn) {
  return [fn = std::move(fn)](const Pass&, Element element) -> Result<Element> {
    TROUPE_ASSIGN(Tensor out, fn(number(element[0])));
    return Element{std::move(out)};
  };
}

/// Vectors 0 .. n - 1 of n ones, twos, ...
StagePtr growing(int64_t n) {
  return make_pass_map_stage(range(n), on_number([](int64_t i) -> Result<Tensor> {
                               const Numbers values(static_cast<size_t>(i), i);
                               return Tensor::of<int64_t>(std::span<const int64_t>(values));
                             }),
                             {DType::kInt64}, {PartialShape::unknown()});
}

const StageOfElementFn kRangeOf = [](const Pass&, Element element) -> Result<StagePtr> {
  return make_range_stage(0, number(element[0]), 1, DType::kInt64);
};

/// What calls functions, but for the functions: it has threads, which are joined at its end.
class Threads final : public FunctionCaller {
 public:
  ~Threads() override {
    for (std::thread& thread : threads_) thread.join();
  }
  Result<std::shared_ptr<GraphFunction>> prepare(const FunctionBody&) override {
    return make_error(Code::kUnimplemented, "no functions");
  }
  Status run_apart(std::function<void()> job) override {
    const std::lock_guard lock(mutex_);
    threads_.emplace_back(std::move(job));
    return {};
  }
  Result<std::unique_ptr<DatasetIterator>> iterate(const StagePtr& stage) {
    Pass pass;
    pass.functions = std::shared_ptr<FunctionCaller>(std::shared_ptr<void>(), this);
    return dynamic_cast<const FlowStage&>(*stage).iterate(std::move(pass));
  }

 private:
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

/// Counts, and waits for a count.
class Counted {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  /// Whether it was so many before a minute was over.
  bool wait_for(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return count_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

}  // namespace

TEST_CASE("a range goes either way, ends before overflow and refuses a step of 0") {
  CHECK(drain(*make_range_stage(10, -5, -4, DType::kInt64)) == Numbers{10, 6, 2, -2});
  CHECK(drain(*make_range_stage(5, 5, 1, DType::kInt64)).empty());
  CHECK(drain(*make_range_stage(INT64_MAX - 3, INT64_MAX, 2, DType::kInt64)) == Numbers{INT64_MAX - 3, INT64_MAX - 1});
  CHECK((*make_range_stage(INT64_MIN, INT64_MAX, 1, DType::kInt64))->size() == -1);
  CHECK((*make_range_stage(0, 10, 3, DType::kInt64))->size() == 4);
  CHECK_FALSE(make_range_stage(0, 1, 0, DType::kInt64).ok());
  CHECK_FALSE(make_range_stage(0, 1, 1, DType::kString).ok());
}

TEST_CASE("a map costs the elements whose function fails, and checks what it gives") {
  const auto fails_at_1 = on_number([](int64_t i) -> Result<Tensor> {
    if (i == 1) return invalid_argument("one");
    return Tensor::scalar(i * i);
  });
  CHECK(drain(make_pass_map_stage(range(4), fails_at_1, {DType::kInt64}, {PartialShape::scalar()})) ==
        Numbers{0, -1000, 4, 9});
  CHECK(error_of(make_pass_map_stage(range(1), fails_at_1, {DType::kFloat32}, {PartialShape::scalar()})) ==
        "the function gave int64[] as component 0, declared was float32[]");
}

TEST_CASE("filter and take-while go by a scalar bool") {
  const auto even = on_number([](int64_t i) -> Result<Tensor> { return Tensor::scalar(i % 2 == 0); });
  CHECK(drain(make_filter_stage(range(7), even)) == Numbers{0, 2, 4, 6});
  CHECK(drain(make_take_while_stage(range(7), even)) == Numbers{0});
  const auto wrong = on_number([](int64_t i) -> Result<Tensor> { return Tensor::scalar(i); });
  CHECK(error_of(make_filter_stage(range(1), wrong)).starts_with("the predicate must give one scalar bool"));
}

TEST_CASE("a scan hands its state on and keeps its types") {
  const PassFn sum = [](const Pass&, Element in) -> Result<Element> {
    const int64_t s = number(in[0]) + number(in[1]);
    return Element{Tensor::scalar(s), Tensor::scalar(s * 10)};
  };
  CHECK(drain(make_scan_stage(range(4), {Tensor::scalar<int64_t>(1)}, sum, {DType::kInt64},
                              {PartialShape::scalar()})) == Numbers{10, 20, 40, 70});
  const PassFn short_of = [](const Pass&, Element) -> Result<Element> { return Element{}; };
  CHECK(error_of(make_scan_stage(range(1), {Tensor::scalar<int64_t>(1)}, short_of, {DType::kInt64},
                                 {PartialShape::scalar()})) ==
        "the function gave 0 values, fewer than the 1 of its state");
}

TEST_CASE("errors are left out where they are to be, and a count is checked") {
  const auto fails_at_1 = on_number([](int64_t i) -> Result<Tensor> {
    if (i == 1) return invalid_argument("one");
    return Tensor::scalar(i);
  });
  const StagePtr mapped = make_pass_map_stage(range(3), fails_at_1, {DType::kInt64}, {PartialShape::scalar()});
  CHECK(drain(make_error_free_stage(mapped)) == Numbers{0, 2});
  CHECK(drain(make_counted_stage(range(3), 3)) == Numbers{0, 1, 2});
  CHECK(drain(make_counted_stage(range(3), -1)) == Numbers{0, 1, 2});
  for (const int64_t count : {3, 0, -1, -2}) CHECK(make_counted_stage(range(3), count)->size() == count);
  CHECK(error_of(make_counted_stage(range(3), 2)) == "2 elements were said to be there, and there are more");
  CHECK(error_of(make_counted_stage(range(3), 5)) == "5 elements were said to be there, and there are 3");
}

TEST_CASE("only the first of equal elements is unique") {
  const StagePtr twice = make_reorder_stage(growing(4), {Reorder::Kind::kRepeat, 2});
  CHECK(drain(*make_unique_stage(twice)) == Numbers{1, 2, 2, 3, 3, 3});
}

TEST_CASE("zip ends with the first that ends, and an error costs an element of each") {
  const StagePtr both = make_zip_stage({range(5), range(3)});
  CHECK(both->size() == 3);
  CHECK(both->dtypes().size() == 2);
  CHECK(drain(both) == Numbers{0, 1, 2});
  const auto fails_at_1 = on_number([](int64_t i) -> Result<Tensor> {
    if (i == 1) return invalid_argument("one");
    return Tensor::scalar(i);
  });
  const StagePtr bad = make_pass_map_stage(range(3), fails_at_1, {DType::kInt64}, {PartialShape::scalar()});
  CHECK(drain(make_zip_stage({bad, range(3)})) == Numbers{0, -1000, 2});
  CHECK(make_zip_stage({range(5), make_reorder_stage(range(1), {Reorder::Kind::kRepeat, -1})})->size() == 5);
}

TEST_CASE("concatenation goes on with the other dataset, of the same types") {
  CHECK(drain(*make_concatenate_stage(range(2), range(3))) == Numbers{0, 1, 0, 1, 2});
  CHECK((*make_concatenate_stage(range(2), range(3)))->size() == 5);
  CHECK_FALSE(make_concatenate_stage(range(2), make_zip_stage({range(1), range(1)})).ok());
  CHECK_FALSE(make_concatenate_stage(range(2), *make_range_stage(0, 1, 1, DType::kInt32)).ok());
}

TEST_CASE("interleave takes turns, and the next input takes the place of one that has ended") {
  const StageOfElementFn slow = [](const Pass&, Element element) -> Result<StagePtr> {
    return make_pass_map_stage(range(number(element[0])),
                               on_number([](int64_t i) -> Result<Tensor> { return Tensor::scalar(i); }),
                               {DType::kInt64}, {PartialShape::scalar()});
  };
  const auto turns = [&](int64_t inputs, int64_t cycle, int64_t block) {
    Numbers out = drain(
        make_interleave_stage(range(inputs), kRangeOf, cycle, block, 0, {DType::kInt64}, {PartialShape::scalar()}));
    for (const int64_t parallel : {1, 16}) {
      Threads threads;
      CHECK(drain(threads.iterate(make_interleave_stage(range(inputs), slow, cycle, block, parallel, {DType::kInt64},
                                                        {PartialShape::scalar()}))) == out);
    }
    return out;
  };
  CHECK(turns(4, 1, 1) == Numbers{0, 0, 1, 0, 1, 2});
  CHECK(turns(4, 2, 1) == Numbers{0, 0, 1, 0, 1, 2});
  CHECK(turns(5, 3, 1) == Numbers{0, 0, 0, 1, 1, 0, 2, 1, 2, 3});
  CHECK(turns(4, 2, 2) == Numbers{0, 0, 1, 0, 1, 2});
  CHECK(turns(4, INT64_MAX, 1).size() == 6);
  CHECK(turns(0, 3, 1).empty());
}

TEST_CASE("datasets that functions give nest only so deep") {
  StagePtr inner;
  const StageOfElementFn itself = [&inner](const Pass&, Element) -> Result<StagePtr> { return inner; };
  inner = make_interleave_stage(range(1), itself, 1, 1, 0, {DType::kInt64}, {PartialShape::scalar()});
  CHECK(error_of(inner) == "functions that give datasets must nest at most 64 deep");
  inner.reset();
}

TEST_CASE("a selector says whose element comes next") {
  const auto select = [](Numbers which, bool stop) {
    const StagePtr selector = make_rows_stage({Tensor::of<int64_t>(std::span<const int64_t>(which))});
    return make_directed_stage(selector, {range(2), *make_range_stage(10, 13, 1, DType::kInt64)}, stop, {DType::kInt64},
                               {PartialShape::scalar()});
  };
  CHECK(drain(select({1, 0, 0, 0, 1, 1, 1, 1}, false)) == Numbers{10, 0, 1, 11, 12});
  CHECK(drain(select({1, 0, 0, 0, 1}, true)) == Numbers{10, 0, 1});
  CHECK(error_of(select({2}, false)) == "the selector gave 2, of 2 datasets");
  CHECK(error_of(select({-1}, false)) == "the selector gave -1, of 2 datasets");
}

TEST_CASE("windows overlap, leave out and end as asked") {
  const auto windows = [](int64_t n, int64_t size, int64_t shift, int64_t stride, bool drop) {
    const GatherFn digits = [](std::vector<Element> window) -> Result<Element> {
      int64_t out = 0;
      for (const Element& element : window) out = out * 10 + number(element[0]);
      return Element{Tensor::scalar(out)};
    };
    const StagePtr stage =
        make_window_stage(range(n), size, shift, stride, drop, digits, {DType::kInt64}, {PartialShape::scalar()});
    const Numbers out = drain(stage);
    CHECK(stage->size() == std::ssize(out));
    return out;
  };
  CHECK(windows(7, 3, 3, 1, false) == Numbers{12, 345, 6});
  CHECK(windows(7, 3, 3, 1, true) == Numbers{12, 345});
  CHECK(windows(6, 3, 1, 1, true) == Numbers{12, 123, 234, 345});
  CHECK(windows(8, 3, 2, 2, true) == Numbers{24, 246});
  CHECK(windows(9, 2, 4, 1, false) == Numbers{1, 45, 8});
  CHECK(windows(0, 2, 1, 1, false).empty());
  CHECK(windows(3, INT64_MAX, 1, INT64_MAX, false) == Numbers{0, 1, 2});
  CHECK(windows(3, INT64_MAX, 1, 1, true).empty());
}

TEST_CASE("padded batches fill up to the largest, or to a size that is given") {
  const Element zero{Tensor::scalar<int64_t>(-1)};
  CHECK(drain(make_padded_batch_stage(growing(4), 3, false, {PartialShape({-1})}, zero)) ==
        Numbers{-1, -1, 1, -1, 2, 2, 3, 3, 3});
  CHECK(drain(make_padded_batch_stage(growing(3), 2, true, {PartialShape({2})}, zero)) == Numbers{-1, -1, 1, -1});
  CHECK(error_of(make_padded_batch_stage(growing(4), 4, false, {PartialShape({2})}, zero)) ==
        "component 0 is [3], larger than padded_shapes [2]");
  CHECK(error_of(make_padded_batch_stage(growing(4), 4, false, {PartialShape({2, 2})}, zero)) ==
        "component 0 is [0], and padded_shapes are [2,2]: their ranks must agree");
  CHECK(error_of(make_padded_batch_stage(growing(4), 4, false, {PartialShape({-1})}, {Tensor::scalar(1.f)})) ==
        "component 0 is int64, padding_values are float32");
}

TEST_CASE("unbatching gives rows, and passes over elements without any") {
  CHECK(drain(make_unbatch_stage(growing(4), {DType::kInt64}, {PartialShape::scalar()})) == Numbers{1, 2, 2, 3, 3, 3});
  CHECK(error_of(make_unbatch_stage(range(1), {DType::kInt64}, {PartialShape::unknown()})) ==
        "component 0 of an element is a scalar, which has no rows");
}

TEST_CASE("groups come when they are full, and the others at the end by their keys") {
  GroupFns fns;
  fns.key = on_number([](int64_t i) -> Result<Tensor> { return Tensor::scalar((i + 2) % 3); });
  fns.window_size = on_number([](int64_t key) -> Result<Tensor> { return Tensor::scalar<int64_t>(key == 1 ? 1 : 2); });
  fns.reduce = [](const Pass&, Tensor, std::vector<Element> elements) -> Result<StagePtr> {
    return make_list_stage(std::make_shared<const std::vector<Element>>(std::move(elements)), {DType::kInt64},
                           {PartialShape::scalar()});
  };
  CHECK(drain(make_group_stage(range(7), fns, {DType::kInt64}, {PartialShape::scalar()})) ==
        Numbers{2, 0, 3, 1, 4, 5, 6});
  fns.window_size = on_number([](int64_t) -> Result<Tensor> { return Tensor::scalar<int64_t>(0); });
  CHECK(error_of(make_group_stage(range(7), fns, {DType::kInt64}, {PartialShape::scalar()})) ==
        "the window of key 2 must be at least 1, got 0");
}

TEST_CASE("a drawn order has each element once in each pass, and passes overlap in the buffer") {
  const auto first = [] { return DrawFn([] { return 0u; }); };
  CHECK(drain(make_draw_stage(range(4), 2, 2, first)) == Numbers{0, 1, 2, 3, 0, 1, 2, 3});
  const auto last = [] { return DrawFn([] { return 0xfffffffeu; }); };
  Numbers out = drain(make_draw_stage(range(5), 3, 1, last));
  std::ranges::sort(out);
  CHECK(out == Numbers{0, 1, 2, 3, 4});
  CHECK(drain(make_draw_stage(range(0), 3, -1, first)).empty());
  CHECK(drain(make_draw_stage(range(2), INT64_MAX, -1, first), 5) == Numbers{0, 1, 0, 1, 0});
}

TEST_CASE("a cache takes what the first whole pass gave") {
  auto calls = std::make_shared<int>(0);
  const auto counted = on_number([calls](int64_t i) -> Result<Tensor> {
    ++*calls;
    return Tensor::scalar(i);
  });
  const StagePtr mapped = make_pass_map_stage(range(3), counted, {DType::kInt64}, {PartialShape::scalar()});
  const StagePtr stage = make_cache_stage(mapped, std::make_shared<ElementCache>());
  CHECK(drain(stage, 2) == Numbers{0, 1});
  CHECK(*calls == 2);
  CHECK(drain(stage) == Numbers{0, 1, 2});
  CHECK(*calls == 5);
  CHECK(drain(stage) == Numbers{0, 1, 2});
  CHECK(*calls == 5);
}

TEST_CASE("a stage that is made late is made once in each pass, with that pass") {
  auto made = std::make_shared<int>(0);
  const MakeStageFn make = [made](const Pass& pass) -> Result<StagePtr> {
    CHECK(pass.depth == 0);
    ++*made;
    return range(2);
  };
  const StagePtr late = make_late_stage(make, {DType::kInt64}, {PartialShape::scalar()});
  CHECK(*made == 0);
  CHECK(drain(make_reorder_stage(late, {Reorder::Kind::kRepeat, 2})) == Numbers{0, 1, 0, 1});
  CHECK(*made == 2);
}

TEST_CASE("a parallel map has several elements at work and gives them in order") {
  Threads threads;
  Counted begun;
  const auto begin = [&](const Pass&, Element element) -> BegunCall {
    const int64_t i = number(element[0]);
    begun.add();
    return [&, i]() -> Result<Element> {
      if (!begun.wait_for(i == 0 ? 3 : 1)) return make_error(Code::kInternal, "one at a time");
      if (i == 4) return make_error(Code::kInvalidArgument, "four");
      return Element{Tensor::scalar(i * i)};
    };
  };
  const StagePtr stage = make_parallel_map_stage(range(7), begin, 3, {DType::kInt64}, {PartialShape::scalar()});
  CHECK(stage->size() == 7);
  CHECK(drain(threads.iterate(stage)) == Numbers{0, 1, 4, 9, -1000, 25, 36});
}

TEST_CASE("a map without threads to work ahead gives the same") {
  const auto begin = [](const Pass&, Element element) -> BegunCall {
    return [element]() -> Result<Element> { return element; };
  };
  CHECK(drain(make_parallel_map_stage(range(3), begin, 8, {DType::kInt64}, {PartialShape::scalar()})) ==
        Numbers{0, 1, 2});
  CHECK(drain(make_parallel_map_stage(range(1), begin, 8, {DType::kInt32}, {PartialShape::scalar()})) ==
        Numbers{-1000});
}

TEST_CASE("a prefetch makes elements before they are asked for") {
  Threads threads;
  Counted made;
  const auto count = on_number([&](int64_t i) -> Result<Tensor> {
    made.add();
    if (i == 2) return make_error(Code::kInvalidArgument, "two");
    return Tensor::scalar(i);
  });
  const StagePtr slow = make_pass_map_stage(range(9), count, {DType::kInt64}, {PartialShape::scalar()});
  const StagePtr stage = make_prefetch_stage(slow, 4);
  CHECK(make_prefetch_stage(slow, 0) == slow);
  CHECK(stage->size() == 9);
  auto iterator = threads.iterate(stage);
  REQUIRE(iterator.ok());
  CHECK(number((**(*iterator)->next())[0]) == 0);
  CHECK(made.wait_for(5));
  CHECK(drain(std::move(iterator)) == Numbers{1, -1000, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("a prefetch that is dropped ends what it waits for") {
  Threads threads;  // waits at its end
  Counted waiting;
  const PassFn wait = [&](const Pass& pass, Element element) -> Result<Element> {
    if (number(element[0]) == 0) return element;
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    waiting.add();
    never.wait(lock, pass.stop, [] { return false; });
    return make_error(Code::kCancelled, "cancelled");
  };
  auto iterator = threads.iterate(
      make_prefetch_stage(make_pass_map_stage(range(9), wait, {DType::kInt64}, {PartialShape::scalar()}), 4));
  REQUIRE(iterator.ok());
  CHECK((*iterator)->next().ok());
  CHECK(waiting.wait_for(1));
}

TEST_CASE("rows come in batches of several sizes in turn") {
  const StagePtr fours = make_batch_stage(range(10), 4, false);
  const auto again = [&](std::vector<int64_t> sizes, bool drop) {
    return make_rebatch_stage(fours, std::move(sizes), drop, {DType::kInt64}, {PartialShape{-1}});
  };
  const auto sizes = [](const StagePtr& stage) {
    const auto iterator = stage->iterate();
    REQUIRE(iterator.ok());
    Numbers out;
    while (const auto element = *(*iterator)->next()) out.push_back((*element)[0].dim(0));
    return out;
  };
  CHECK(drain(again({3, 1}, false)) == Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(sizes(again({3, 1}, false)) == Numbers{3, 1, 3, 1, 2});
  CHECK(sizes(again({3, 1}, true)) == Numbers{3, 1, 3, 1});
  CHECK(sizes(again({20}, false)) == Numbers{10});
  CHECK(sizes(again({20}, true)).empty());
}

TEST_CASE("a reducer gives one element for each key, by keys") {
  ReducerFns fns;
  fns.key = on_number([](int64_t i) -> Result<Tensor> { return Tensor::scalar(-(i % 3)); });
  fns.begin = on_number([](int64_t key) -> Result<Tensor> { return Tensor::scalar(100 * key); });
  fns.reduce = [](const Pass&, Element both) -> Result<Element> {
    return Element{Tensor::scalar(number(both[0]) + number(both[1]))};
  };
  fns.end = on_number([](int64_t sum) -> Result<Tensor> { return Tensor::scalar(2 * sum); });
  const auto reduced = [&](DType dtype) {
    return make_reducer_stage(range(6), fns, {dtype}, {PartialShape::scalar()});
  };
  CHECK(drain(reduced(DType::kInt64)) == Numbers{2 * (-200 + 2 + 5), 2 * (-100 + 1 + 4), 2 * 3});
  CHECK(error_of(reduced(DType::kInt32)).find("finalize_func") != std::string::npos);
}
