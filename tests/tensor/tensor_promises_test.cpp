// SPDX-License-Identifier: Apache-2.0
// Tensors where their promises are hardest to keep: frozen buffers, lists that hold tensors, memory that is refused,
// moved-from objects, and what ends the program.
#include <atomic>
#include <catch2/catch.hpp>
#include <limits>
#include <new>
#include <thread>
#include <vector>

#include "tests/aborts.h"
#include "tests/repeats.h"
#include "troupe/tensor_list.h"

using namespace troupe;

namespace {

/// Gives headers only: a tensor of any size may be made in it and none be read.
class HeadersOnly final : public Allocator {
 public:
  void* allocate(size_t) override { return std::aligned_alloc(kAlignment, 2 * kAlignment); }
  void deallocate(void* memory, size_t) noexcept override { std::free(memory); }
  AllocatorStats stats() const override { return {.in_use = 77, .limit = 99}; }
  void release() noexcept override { delete this; }
};

/// Refuses everything.
class Nothing final : public Allocator {
 public:
  void* allocate(size_t) override { return nullptr; }
  void deallocate(void*, size_t) noexcept override {}
  AllocatorStats stats() const override { return {.in_use = 77, .limit = 99}; }
  void release() noexcept override { delete this; }
};

}  // namespace

TEST_CASE("a frozen tensor that others share is copied by whoever writes, a view only its rows") {
  Tensor a = Tensor::of<int32_t>({1, 2, 3, 4});
  Tensor b = a, rows = *a.slice(1, 3);
  rows.freeze();  // through any Tensor on the buffer
  b.mutable_data<int32_t>()[0] = 9;
  CHECK_FALSE(b.shares_buffer(a));
  rows.mutable_data<int32_t>()[0] = 7;
  CHECK_FALSE(rows.shares_buffer(a));
  CHECK(rows.identical(Tensor::of<int32_t>({7, 3})));
  CHECK(b.identical(Tensor::of<int32_t>({9, 2, 3, 4})));
  CHECK(a.identical(Tensor::of<int32_t>({1, 2, 3, 4})));
  // Nobody else is left on it: written in place, and no longer frozen.
  const void* memory = a.raw();
  CHECK(a.mutable_raw() == memory);
  const Tensor late = a;
  a.mutable_data<int32_t>()[0] = 5;
  CHECK(late.data<int32_t>()[0] == 5);
}

TEST_CASE("threads that write to a frozen tensor each write to a copy of their own, or to what the last has left") {
  constexpr int kThreads = 4, kRounds = 300;
  std::atomic<int> torn{0};
  for (int round = 0; round < kRounds; ++round) {
    Tensor t = Tensor::of<int64_t>({0, 0, 0, 0});
    t.freeze();
    std::vector<std::thread> threads;
    for (int64_t me = 1; me <= kThreads; ++me)
      threads.emplace_back([mine = t, me, &torn]() mutable {
        int64_t* values = mine.mutable_data<int64_t>();
        for (int i = 0; i < 4; ++i) values[i] += me;
        for (int i = 0; i < 4; ++i) torn += mine.data<int64_t>()[i] != me;
      });
    t.reset();
    for (std::thread& thread : threads) thread.join();
  }
  CHECK(torn == 0);
}

TEST_CASE("a frozen tensor of strings is copied by value") {
  Tensor a = Tensor::of<std::string>({std::string(100, 'a'), "b"});
  a.freeze();
  Tensor b = a;
  b.mutable_data<std::string>()[0] = "changed";
  CHECK(a.data<std::string>()[0] == std::string(100, 'a'));
  CHECK(b.data<std::string>()[1] == "b");
}

TEST_CASE("make and clone say how many bytes they asked for, are in use and are allowed") {
  const auto nothing = own_allocator(new Nothing);
  const Tensor small = Tensor::of<double>({1, 2});
  for (const auto& t : {Tensor::make(DType::kFloat64, {2}, nothing), Tensor::zeros(DType::kFloat64, {2}, nothing),
                        small.clone(nothing)}) {
    REQUIRE_FALSE(t.ok());
    CHECK(t.error().code == Code::kResourceExhausted);
    CHECK_THAT(t.error().message, Catch::Contains("16 bytes") && Catch::Contains("float64[2]") &&
                                      Catch::Contains("77 in use") && Catch::Contains("limit 99"));
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose allocators abort
TEST_CASE("writing to a shared frozen tensor without memory throws bad_alloc and changes nothing") {
  const auto headers = own_allocator(new HeadersOnly);
  Tensor a = *Tensor::make(DType::kUInt8, {int64_t{1} << 55}, headers);
  a.freeze();
  Tensor b = a;
  CHECK_THROWS_AS(b.mutable_data<uint8_t>(), std::bad_alloc);
  CHECK_THROWS_AS(b.mutable_raw(), std::bad_alloc);
  CHECK(b.shares_buffer(a));
  CHECK(b.bytes() == size_t{1} << 55);
  a.reset();
  CHECK_NOTHROW(b.mutable_raw());
}
#endif

TEST_CASE("assigning an element of a list to the tensor that holds the list takes the element") {
  const auto list_of = [](Tensor element) {
    return list_tensor({.dtype = DType::kFloat32, .shape = PartialShape{3}, .elements = {std::move(element)}});
  };
  Tensor moved = list_of(Tensor::of<float>({1, 2, 3}));
  moved = std::move(moved.mutable_data<TensorListRef>()[0]->elements[0]);
  CHECK(moved.identical(Tensor::of<float>({1, 2, 3})));
  Tensor copied = list_of(Tensor::of<float>({4, 5, 6}));
  copied = copied.data<TensorListRef>()[0]->elements[0];
  CHECK(copied.identical(Tensor::of<float>({4, 5, 6})));
  CHECK(copied.unique());
}

TEST_CASE("a list goes with the last tensor that refers to it") {
  auto allocator = make_caching_allocator();
  Tensor view;
  {
    const Tensor list =
        list_tensor({DType::kFloat32, {}, -1, {*Tensor::make(DType::kFloat32, {100}, allocator), Tensor()}});
    CHECK(list.dtype() == DType::kVariant);
    CHECK(list.shape() == Shape{});
    view = *list.reshape({1});
  }
  CHECK(allocator->stats().in_use > 0);
  view = Tensor();
  CHECK(allocator->stats().in_use == 0);
}

TEST_CASE("a tensor that was moved from or reset is as an undefined one") {
  Tensor a = Tensor::of<int32_t>({1, 2, 3}), b = Tensor::of<int32_t>({4, 5});
  const Tensor taken = std::move(a);
  b.reset();
  b.reset();
  for (const Tensor& t : {std::move(a), std::move(b)}) {
    CHECK_FALSE(t.defined());
    CHECK(t.raw() == nullptr);
    CHECK(t.bytes() == 0);
    CHECK_FALSE(t.unique());
    CHECK(t.str() == "<undefined>");
    CHECK(t.slice(0, 1).error().code == Code::kInvalidArgument);
    CHECK(t.slice(0, 0).error().code == Code::kInvalidArgument);
    CHECK(t.reshape({}).error().code == Code::kInvalidArgument);
    CHECK_FALSE(t.clone()->defined());
    CHECK_NOTHROW(t.freeze());
  }
  CHECK(b.shape() == Shape{});
  a = taken;
  CHECK(a.shares_buffer(taken));
}

TEST_CASE("reshape refuses counts that overflow and signs that cancel out") {
  const Tensor t = Tensor::of<int32_t>({1, 2, 3, 4}), none = *Tensor::zeros(DType::kInt32, {0});
  Shape cancels{2, 2};
  cancels.set(0, -2);
  cancels.set(1, -2);
  const int64_t half = int64_t{1} << 32;
  for (const Shape& shape : {cancels, Shape{half, half, 4}, Shape{half, half, half, half}}) {
    CHECK(t.reshape(shape).error().code == Code::kInvalidArgument);
    CHECK(none.reshape(shape).error().code == Code::kInvalidArgument);
  }
  CHECK(none.reshape({5, 0})->shape() == Shape{5, 0});
  CHECK(Tensor::scalar(1).reshape({1, 1, 1})->rank() == 3);
}

TEST_CASE("zeros are zero in memory that was used before, and strings are empty") {
  auto allocator = make_caching_allocator();
  {
    Tensor used = *Tensor::make(DType::kUInt8, {1000}, allocator);
    std::memset(used.mutable_raw(), 0xff, used.bytes());
  }
  const Tensor zeros = *Tensor::zeros(DType::kUInt8, {1000}, allocator);
  CHECK(allocator->stats().cache_hits == 1);
  CHECK(std::ranges::all_of(zeros.values<uint8_t>(), [](uint8_t v) { return v == 0; }));
  const Tensor strings = *Tensor::zeros(DType::kString, {3}, allocator);
  CHECK(strings.identical(Tensor::of<std::string>({"", "", ""})));
}

TEST_CASE("no more elements are printed than asked, a scalar too") {
  const Tensor t = Tensor::of<int32_t>({11, 22, 33, 44}, {2, 2});
  for (int limit : {INT_MIN, -1, 0}) {
    CHECK(t.str(limit) == "int32[2,2] [...]");
    CHECK(Tensor::scalar(11).str(limit) == "int32[] ...");
  }
  CHECK(t.str(1) == "int32[2,2] [[11, ...], ...]");
  CHECK(t.str(4) == "int32[2,2] [[11, 22], [33, 44]]");
  CHECK(Tensor::scalar(11).str(1) == "int32[] 11");
}

TEST_CASE("identical looks at objects by value and at elements of views") {
  const Tensor words = Tensor::of<std::string>({"x", std::string(50, 'y'), "x", std::string(50, 'y')}, {2, 2});
  CHECK(words.slice(0, 1)->identical(*words.slice(1, 2)));
  const TensorListRef list = std::make_shared<TensorList>();
  CHECK(Tensor::scalar(list).identical(Tensor::scalar(list)));
  CHECK_FALSE(Tensor::scalar(list).identical(Tensor::scalar(std::make_shared<TensorList>())));
  CHECK_FALSE(Tensor::zeros(DType::kFloat32, {0, 2})->identical(*Tensor::zeros(DType::kFloat32, {2, 0})));
  const Tensor nan = Tensor::of<float>({std::numeric_limits<float>::quiet_NaN(), -std::nanf("")});
  CHECK_FALSE(nan.slice(0, 1)->identical(*nan.slice(1, 2)));
}

TEST_CASE("elements are read as their own type only, and values fill their shape; else the program ends") {
  const Tensor t = Tensor::of<float>({1, 2});
  CHECK_THAT(words_of_abort([&] { t.data<double>(); }), Catch::Contains("a tensor of float32 was read as float64"));
  CHECK_THAT(words_of_abort([&] { Tensor(t).mutable_data<int32_t>(); }), Catch::Contains("read as int32"));
  CHECK_THAT(words_of_abort([&] { t.values<std::string>(); }), Catch::Contains("read as string"));
  CHECK_THAT(words_of_abort([&] { Tensor().data<float>(); }), Catch::Contains("a tensor of invalid"));
  CHECK_THAT(words_of_abort([] { Tensor::of<float>({1, 2, 3}, {2}); }), Catch::Contains("3 values for shape [2]"));
  CHECK_THAT(words_of_abort([] { Tensor::of<float>({}, {}); }), Catch::Contains("0 values for shape []"));
  CHECK(words_of_abort([&] { t.data<float>(); }) == "survived");
}

TEST_CASE("copy_elements copies objects by value, and nothing when asked for nothing") {
  for (DType dtype : {DType::kFloat32, DType::kString, DType::kVariant}) copy_elements(dtype, nullptr, nullptr, 0);
  const Tensor from = Tensor::of<std::string>({"a", "b", "c"});
  Tensor to = *Tensor::zeros(DType::kString, {3});
  copy_elements(DType::kString, from.raw(), to.mutable_raw(), 2);
  CHECK(to.identical(Tensor::of<std::string>({"a", "b", ""})));
}

TEST_CASE("lists within lists go without recursion, however deep") {
  constexpr int kDepth = many(1'000'000);
  Tensor outer;
  for (int depth = 0; depth < kDepth; ++depth) {
    TensorList list;
    list.elements = {std::move(outer), Tensor::scalar(depth)};
    outer = list_tensor(std::move(list));
  }
  Tensor other = outer;
  outer = Tensor();
  const TensorList& first = *other.data<TensorListRef>()[0];
  CHECK(first.elements[1].identical(Tensor::scalar(kDepth - 1)));
  const Tensor second = first.elements[0];
  other = Tensor();
  CHECK(second.data<TensorListRef>()[0]->elements[1].identical(Tensor::scalar(kDepth - 2)));
}
