// SPDX-License-Identifier: Apache-2.0
// Tensors: making, sharing, views, copies, comparison, printing.
#include "troupe/tensor.h"

#include <catch2/catch.hpp>
#include <thread>

#include "troupe/resource.h"

using namespace troupe;

TEST_CASE("make gives aligned memory of the asked shape, for every dtype") {
  for (int d = -1; d < 64; ++d) {
    const auto dtype = static_cast<DType>(d);
    auto t = Tensor::zeros(dtype, {3, 5});
    if (!is_known(dtype)) {
      CHECK(t.error().code == Code::kInvalidArgument);
      continue;
    }
    REQUIRE(t.ok());
    CHECK(t->defined());
    CHECK(t->dtype() == dtype);
    CHECK(t->shape() == Shape{3, 5});
    CHECK(t->bytes() == 15 * size_of(dtype));
    CHECK(reinterpret_cast<uintptr_t>(t->raw()) % kAlignment == 0);
    CHECK(t->identical(*t->clone()));
    CHECK(!t->str().empty());
  }
  CHECK(Tensor::make(DType::kFloat32, {0, 7})->elements() == 0);
  CHECK(!Tensor().defined());
  CHECK(Tensor().str() == "<undefined>");
}

TEST_CASE("memory comes from the allocator, within its limit, and goes back") {
  auto allocator = make_caching_allocator(1 << 16);
  {
    auto t = Tensor::make(DType::kFloat32, {100}, allocator);
    REQUIRE(t.ok());
    CHECK(allocator->stats().in_use >= 400);
    auto too_much = Tensor::make(DType::kFloat64, {1 << 20}, allocator);
    REQUIRE(!too_much.ok());
    CHECK(too_much.error().code == Code::kResourceExhausted);
    CHECK_THAT(too_much.error().message,
               Catch::Contains("8388608") && Catch::Contains("65536") && Catch::Contains("float64[1048576]"));
    CHECK(!t->clone(make_caching_allocator(64)).ok());
  }
  CHECK(allocator->stats().in_use == 0);
}

TEST_CASE("a shape whose bytes no memory holds is refused, not wrapped around") {
  for (const Shape& shape : {Shape{INT64_MAX / 64}, Shape{int64_t{1} << 28, int64_t{1} << 28}}) {
    for (DType dtype : {DType::kUInt8, DType::kFloat64, DType::kString}) {
      auto t = Tensor::make(dtype, shape, make_caching_allocator());
      REQUIRE(!t.ok());
      CHECK(t.error().code == Code::kResourceExhausted);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose allocators abort
      CHECK(!Tensor::make(dtype, shape).ok());
#endif
    }
  }
}

TEST_CASE("a shape whose elements no int64 counts is refused, however it was made") {
  Shape large{2, 3};
  large.insert(0, INT64_MAX);
  Shape negative{2};
  negative.set(0, -1);
  for (const Shape& shape : {large, negative}) {
    const auto t = Tensor::make(DType::kFloat64, shape);
    REQUIRE(!t.ok());
    CHECK(t.error().code == Code::kInvalidArgument);
    CHECK(t.error().message.find(std::to_string(shape[0])) != std::string::npos);
  }
}

TEST_CASE("copies share, moves hand over, and unique tells") {
  Tensor a = Tensor::of<int32_t>({1, 2, 3});
  CHECK(a.unique());
  Tensor b = a;
  CHECK(!a.unique());
  CHECK(a.shares_buffer(b));
  Tensor c = std::move(b);
  CHECK(!b.defined());
  CHECK(b.raw() == nullptr);
  CHECK(!a.unique());
  c = Tensor();
  CHECK(a.unique());
  Tensor& self = a;
  a = self;
  a = std::move(self);
  CHECK(a.values<int32_t>()[2] == 3);
  CHECK(!Tensor().unique());
  CHECK(!Tensor().shares_buffer(Tensor()));
}

TEST_CASE("views share the buffer; rows and shapes are checked") {
  const Tensor t = Tensor::of<int32_t>({1, 2, 3, 4, 5, 6}, {3, 2});
  auto rows = t.slice(1, 3);
  REQUIRE(rows.ok());
  CHECK(rows->shares_buffer(t));
  CHECK(rows->identical(Tensor::of<int32_t>({3, 4, 5, 6}, {2, 2})));
  CHECK(rows->slice(1, 2)->identical(Tensor::of<int32_t>({5, 6}, {1, 2})));
  CHECK(t.slice(3, 3)->elements() == 0);
  CHECK(t.reshape({2, 3})->identical(Tensor::of<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3})));
  CHECK(rows->reshape({4})->identical(Tensor::of<int32_t>({3, 4, 5, 6})));
  for (auto [begin, end] : {std::pair<int64_t, int64_t>{-1, 1}, {2, 1}, {0, 4}, {4, 4}, {INT64_MIN, INT64_MAX}}) {
    auto bad = t.slice(begin, end);
    REQUIRE(!bad.ok());
    CHECK_THAT(bad.error().message, Catch::Contains("[3,2]"));
  }
  CHECK(!Tensor::scalar(1.f).slice(0, 1).ok());
  auto bad = t.reshape({7});
  REQUIRE(!bad.ok());
  CHECK_THAT(bad.error().message, Catch::Contains("[3,2]") && Catch::Contains("[7]"));
  CHECK(Tensor::zeros(DType::kFloat32, {0, 3})->slice(0, 0)->shape() == Shape{0, 3});
}

TEST_CASE("a view may be of another dtype where the bytes are as many and begin well") {
  const Tensor t = Tensor::of<int32_t>({1, 0x40000000, -1, 0}, {2, 2});
  const auto wide = t.bitcast(DType::kInt64, {2});
  REQUIRE(wide.ok());
  CHECK(wide->shares_buffer(t));
  CHECK(wide->identical(Tensor::of<int64_t>({0x4000000000000001, 0xFFFFFFFF})));
  CHECK(t.bitcast(DType::kFloat32, {4})->data<float>()[1] == 2.F);
  CHECK(t.slice(0, 0)->bitcast(DType::kBool, {0, 7})->shape() == Shape{0, 7});
  for (const Shape& shape : {Shape{3}, Shape{}, Shape{-2, -1}, Shape{INT64_MAX, 2}}) {
    INFO(shape.str());
    CHECK(!t.bitcast(DType::kInt64, shape).ok());
  }
  const Tensor bytes = *Tensor::zeros(DType::kUInt8, {9});
  CHECK_THAT(bytes.slice(1, 9)->bitcast(DType::kInt64, {1}).error().message, Catch::Contains("within an element"));
  CHECK(!t.bitcast(DType::kString, {2}).ok());
  CHECK(!t.bitcast(DType::kInvalid, {2}).ok());
  CHECK(!Tensor::of<std::string>({"a"}).bitcast(DType::kUInt8, {32}).ok());
  CHECK(!Tensor().bitcast(DType::kUInt8, {0}).ok());
}

TEST_CASE("slicing and reshaping an undefined tensor is an error") {
  CHECK(!Tensor().slice(0, 0).ok());
  CHECK(!Tensor().reshape({1}).ok());
  CHECK(!Tensor().clone()->defined());
}

TEST_CASE("a clone has memory of its own, strings too") {
  Tensor t = Tensor::of<std::string>({"a", std::string(100, 'b')});
  Tensor copy = *t.clone();
  CHECK(!copy.shares_buffer(t));
  CHECK(copy.identical(t));
  copy.mutable_data<std::string>()[0] = "changed";
  CHECK(t.data<std::string>()[0] == "a");
  CHECK(!copy.identical(t));
}

TEST_CASE("identical compares dtype, shape and bits") {
  const Tensor t = Tensor::of<float>({1, 2});
  CHECK(t.identical(Tensor::of<float>({1, 2})));
  CHECK(!t.identical(Tensor::of<float>({1, 3})));
  CHECK(!t.identical(Tensor::of<float>({1, 2}, {2, 1})));
  CHECK(!t.identical(Tensor::of<double>({1, 2})));
  CHECK(!Tensor::scalar(0.f).identical(Tensor::scalar(-0.f)));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(Tensor::scalar(nan).identical(Tensor::scalar(nan)));
  CHECK(Tensor().identical(Tensor()));
  auto handle = std::make_shared<const ResourceHandle>();
  CHECK(Tensor::scalar<ResourceRef>(handle).identical(Tensor::scalar<ResourceRef>(handle)));
  CHECK(!Tensor::scalar<ResourceRef>(handle).identical(Tensor::scalar<ResourceRef>(nullptr)));
}

TEST_CASE("strings and handles are destroyed with the last tensor on them") {
  auto handle = std::make_shared<const ResourceHandle>();
  {
    Tensor t = Tensor::of<ResourceRef>({handle, handle});
    Tensor view = *t.slice(1, 2);
    t = Tensor();
    CHECK(handle.use_count() == 3);  // the view keeps the whole buffer
  }
  CHECK(handle.use_count() == 1);
}

TEST_CASE("printing shows dtype, shape and at most the asked elements") {
  CHECK(Tensor::of<float>({1, 2.5, -3, 4}, {2, 2}).str() == "float32[2,2] [[1, 2.5], [-3, 4]]");
  CHECK(Tensor::scalar<int64_t>(7).str() == "int64[] 7");
  CHECK(Tensor::scalar(true).str() == "bool[] true");
  CHECK(Tensor::of<std::string>({"a"}).str() == "string[1] [\"a\"]");
  CHECK(Tensor::of<std::string>({"\"ä\"\n\x1b", std::string(1, '\0')}).str() == R"(string[2] ["\"ä\"\n\x1b", "\x00"])");
  CHECK(Tensor::scalar(float16(1.5f)).str() == "float16[] 1.5");
  CHECK(Tensor::scalar(complex64(1, -2)).str() == "complex64[] 1-2i");
  CHECK(Tensor::scalar(complex128(0.5, 1)).str() == "complex128[] 0.5+1i");
  CHECK(Tensor::zeros(DType::kInt8, {0})->str() == "int8[0] []");
  CHECK(Tensor::zeros(DType::kInt8, {1 << 30, 0})->str() == "int8[1073741824,0] []");
  CHECK(Tensor::of<int32_t>({1, 2, 3, 4}).str(2) == "int32[4] [1, 2, ...]");
  CHECK(Tensor::zeros(DType::kUInt8, {1000, 1000})->str().size() < 200);
}

TEST_CASE("threads may share and drop a tensor") {
  auto allocator = make_caching_allocator();
  {
    Tensor t = *Tensor::zeros(DType::kInt64, {64}, allocator);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([t] {
        int64_t sum = 0;
        for (int k = 0; k < 20000; ++k) {
          const Tensor copy = t;
          const Tensor view = *copy.slice(0, 32);
          sum += view.data<int64_t>()[k % 32];
        }
        if (sum != 0) std::abort();
      });
    t = Tensor();
    for (auto& thread : threads) thread.join();
  }
  CHECK(allocator->stats().in_use == 0);
}
