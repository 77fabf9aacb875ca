// SPDX-License-Identifier: Apache-2.0
// Sizes that attributes and scalars name and no input justifies: they cost neither memory nor time. A child with little
// memory, which a signal ends when it computes on and on, runs the ops.
#include <fstream>

#include "tests/child.h"
#include "tests/ops/check_op.h"
#include "tests/ops/op_case.h"

namespace troupe::testing {
namespace {

constexpr int64_t kHuge = int64_t{1} << 40;
constexpr int32_t kFar = 1 << 28;  // squared still the elements of a shape

Attrs windows(int64_t size) { return {{"window_size", size}, {"stride", int64_t{1}}, {"magnitude_squared", false}}; }

Attrs crossed(int64_t sparse) {
  return {{"N", sparse}, {"sparse_types", std::vector<DType>(static_cast<size_t>(sparse), DType::kInt64)}};
}

/// This much more memory than there is now.
void allow(int64_t bytes) {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages;
  const auto most = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + bytes);
  const rlimit limit = {most, most};
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
}

TEST_CASE("child: ops of unjustified sizes", "[.child]") {
  if (argument_of_child() < 0) return;
  (void)op_library();
  allow(int64_t{1} << 30);
  const auto is_empty = [](const std::string& op, const std::vector<Tensor>& inputs, const Attrs& attrs = {}) {
    INFO(op);
    CHECK(must(apply_unshaped(op, inputs, attrs)).elements() == 0);
  };
  is_empty("AudioSpectrogram", {*Tensor::zeros(DType::kFloat32, Shape{40, 1})}, windows(INT32_MAX));
  is_empty("AudioSpectrogram", {F({}, {40, 0})}, windows(2));
  is_empty("SparseCrossV2", {L({}, {0, 2}), L({}), L({kHuge, 1}), text("-")}, crossed(1));
  is_empty("SparseCrossV2", {L({}, {kHuge, 0}), text("-")}, crossed(0));
  is_empty("TopKV2", {F({}, {0, kHuge}), I(1)});
  is_empty("Multinomial", {F({}, {0, kHuge}), I(1)});
  is_empty("LowerBound", {F({}, {kHuge, 0}), F({}, {kHuge, 0})});
  is_empty("BatchMatMulV2", {F({}, {kHuge, 0, 0}), F({}, {kHuge, 0, 0})});
  is_empty("Einsum", {F({}, {kHuge, 0, 0}), F({}, {kHuge, 0, 0})}, {{"equation", std::string("bij,bjk->bik")}});
  const Tensor no_channel = F({}, {1, 2, 2, 0}), box = F({0, 0, 1, 1}, {1, 4});
  is_empty("CropAndResize", {no_channel, box, I({0}), I({kFar, kFar})});
  is_empty("CropAndResizeGradImage", {F({}, {1, kFar, kFar, 0}), box, I({0}), I({1, 2, 2, 0})},
           {{"T", DType::kFloat32}});
  const Tensor same = F({1, 1}, {2}), still = F({0, 0}, {2});
  is_empty("ScaleAndTranslate", {F({}, {0, 1, 1, 1}), I({1 << 28, 1 << 28}), same, still});
  is_empty("QuantizedMaxPool", {*Tensor::zeros(DType::kUInt8, Shape{1, kFar, kFar, 0}), F({0}, {}), F({1}, {})},
           {{"ksize", std::vector<int64_t>{1, 1, 1, 1}},
            {"strides", std::vector<int64_t>{1, 1, 1, 1}},
            {"padding", std::string("VALID")}});
  const Tensor spectrum = *Tensor::zeros(DType::kFloat32, Shape{1, 1, 129});
  check_always_fails("Mfcc", {spectrum, I(16000)}, "filterbank_channel_count must be at most 4096, got 2147483647",
                     {{"filterbank_channel_count", int64_t{INT32_MAX}}});
  check_kernel_fails("FixedUnigramCandidateSampler", {L({0}, {1, 1})},
                     "268435456 reserved ids and 1 counts for range_max 268435456",
                     {{"num_true", int64_t{1}},
                      {"num_sampled", int64_t{1}},
                      {"unique", false},
                      {"range_max", int64_t{1} << 28},
                      {"num_reserved_ids", int64_t{1} << 28},
                      {"unigrams", std::vector<float>{1}}});
}

}  // namespace

TEST_CASE("sizes that no input justifies cost neither memory nor time", "[bad_input]") {
  const Ended child = run_child("child: ops of unjustified sizes");
  INFO(child.output);
  CHECK(child.status == 0);
}

TEST_CASE("a cross has the rows in which every input has features", "[sparse]") {
  // Rows 1 and 5 of the first input, 0 and 5 of the second, all of the third.
  const Tensor first = L({1, 0, 5, 0, 5, 1}, {3, 2}), second = L({0, 0, 5, 0}, {2, 2}), sizes = L({6, 2});
  const Tensor dense = L({0, 10, 20, 30, 40, 50}, {6, 1});
  const std::vector<Tensor> inputs = {first, second, L({1, 2, 3}), L({4, 5}), sizes, sizes, dense, text("-")};
  CHECK(must(apply("SparseCrossV2", inputs, crossed(2), 0)).identical(L({5, 0, 5, 1}, {2, 2})));
  CHECK(must(apply("SparseCrossV2", inputs, crossed(2), 1))
            .identical(Tensor::of<std::string>({"2-5-50", "3-5-50"}, Shape{2})));
  CHECK(must(apply("SparseCrossV2", inputs, crossed(2), 2)).identical(L({6, 2})));
}

}  // namespace troupe::testing
