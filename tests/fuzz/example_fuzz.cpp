// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as a tf.Example record, alone and twice in a batch. What the batch gives of each is what
// the record gives alone.
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "tests/ops/evaluate.h"

using namespace troupe;

namespace {

/// Parses records by one feature of each kind: "s" sparse, "d" dense, "v" dense of any length, "r" ragged.
class Parser {
 public:
  Parser() {
    records_ = scope_.op("Placeholder", {}, {{"dtype", DType::kString}});
    const auto strings = [&](std::initializer_list<std::string> v) {
      return scope_.constant(Tensor::of<std::string>(v));
    };
    const Node* node =
        scope_.node("ParseExampleV2",
                    {records_, strings({}), strings({"s"}), strings({"d", "v"}), strings({"r"}),
                     scope_.constant(Tensor::of<float>({1, 2})), scope_.constant(Tensor::of<int64_t>({}, {0}))},
                    {{"num_sparse", int64_t{1}},
                     {"sparse_types", std::vector<DType>{DType::kString}},
                     {"Tdense", std::vector<DType>{DType::kFloat32, DType::kInt64}},
                     {"dense_shapes", std::vector<PartialShape>{{2}, {-1, 2}}},
                     {"ragged_value_types", std::vector<DType>{DType::kInt64}},
                     {"ragged_split_types", std::vector<DType>{DType::kInt32}}});
    if (!scope_.ok()) std::abort();
    for (const int port : {1, 3, 4, 5}) values_.push_back(node->out(port));  // values, without indices and sizes
  }
  Result<std::vector<Tensor>> parse(const Tensor& records) { return evaluator_.run(values_, {{records_, records}}); }

 private:
  Graph graph_{testing::op_library()->ops};
  Scope scope_{graph_};
  Output records_;
  std::vector<Output> values_;
  testing::Evaluator evaluator_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto parser = std::make_unique<Parser>();
  const std::string record(reinterpret_cast<const char*>(data), size);
  const auto one = parser->parse(Tensor::scalar(record)),
             two = parser->parse(Tensor::of<std::string>({record, record}));
  if (one.ok() != two.ok()) std::abort();
  for (size_t i = 0; one.ok() && i < one->size(); ++i) {
    const Tensor &single = (*one)[i], &batch = (*two)[i];
    const int64_t n = single.elements();
    if (batch.elements() != 2 * n) std::abort();
    const Shape all{n}, both{2 * n};
    const Tensor flat = batch.reshape(both).value(), want = single.reshape(all).value();
    for (const int64_t begin : {int64_t{0}, n})
      if (!flat.slice(begin, begin + n)->identical(want)) std::abort();
  }
  return 0;
}
