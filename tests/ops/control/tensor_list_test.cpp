// SPDX-License-Identifier: Apache-2.0
// Lists of tensors: every op forward and backward, elements that were never set, and what is refused.
#include "troupe/tensor_list.h"

#include "tests/ops/op_case.h"
#include "tests/ops/op_graph.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

struct Lists : OpGraph {
  const Attrs type{{"element_dtype", DType::kFloat64}};

  Output op(std::string_view name, std::vector<Output> inputs) {
    const OpDef* def = graph.ops().find(name);
    REQUIRE(def);
    return OpGraph::op(name, std::move(inputs), def->find_attr("element_dtype") ? type : Attrs{});
  }
  Output any() { return of(I(-1)); }
  Output from(Output rows) { return op("TensorListFromTensor", {rows, any()}); }
  Output stack(Output list) { return op("TensorListStack", {list, any()}); }
  Output reserve(Output shape, int n) { return op("TensorListReserve", {shape, of(I(n))}); }
};

}  // namespace

TEST_CASE("a tensor goes into a list and comes back, with its gradient") {
  Lists t;
  const Output x = t.of(kRows), list = t.from(x);
  CHECK(t.run(t.stack(list)).identical(kRows));
  CHECK(t.run(t.op("TensorListLength", {list})).identical(I(3)));
  CHECK(t.run(t.op("TensorListElementShape", {list})).identical(I({2})));
  CHECK(t.gradient(t.stack(list), x, ramp({3, 2})).identical(ramp({3, 2})));
}

TEST_CASE("elements are pushed and popped, read and set") {
  Lists t;
  const Output x = t.of(kRows), y = t.of(D({7, 8}));
  const Output empty = t.op("EmptyTensorList", {t.of(I({2})), t.of(I(2))});
  const Output one = t.op("TensorListPushBack", {empty, y});
  CHECK(t.run(t.stack(one)).identical(D({7, 8}, {1, 2})));
  CHECK(t.gradient(t.stack(one), y, D({3, 5}, {1, 2})).identical(D({3, 5})));
  // A list is a value: pushing to the same one twice gives two lists.
  CHECK(t.run(t.op("TensorListLength", {t.op("TensorListPushBack", {empty, y})})).identical(I(1)));
  const Output three = t.op("TensorListPushBack", {t.op("TensorListPushBack", {one, y}), y});
  CHECK_THAT(t.error(three).message, Catch::Contains("has its 2 elements already"));

  const Node* pop = t.scope.node("TensorListPopBack", {t.from(x), t.any()}, t.type);
  CHECK(t.run(pop->out(1)).identical(D({5, 6})));
  CHECK(t.run(t.stack(pop->out(0))).identical(D({1, 2, 3, 4}, {2, 2})));
  CHECK(t.gradient(pop->out(1), x, D({1, 10})).identical(D({0, 0, 0, 0, 1, 10}, {3, 2})));
  CHECK(t.gradient(t.stack(pop->out(0)), x, D({1, 2, 3, 4}, {2, 2})).identical(D({1, 2, 3, 4, 0, 0}, {3, 2})));
  CHECK_THAT(t.error(t.op("TensorListPopBack", {empty, t.any()})).message, Catch::Contains("is empty"));

  const Output item = t.op("TensorListGetItem", {t.from(x), t.of(I(1)), t.any()});
  CHECK(t.run(item).identical(D({3, 4})));
  CHECK(t.gradient(item, x, D({1, 10})).identical(D({0, 0, 1, 10, 0, 0}, {3, 2})));
  CHECK_THAT(t.error(t.op("TensorListGetItem", {t.from(x), t.of(I(3)), t.any()})).message,
             Catch::Contains("index 3 into a list of 3"));

  const Output set = t.stack(t.op("TensorListSetItem", {t.from(x), t.of(I(1)), y}));
  CHECK(t.run(set).identical(D({1, 2, 7, 8, 5, 6}, {3, 2})));
  CHECK(t.gradient(set, x, kRows).identical(D({1, 2, 0, 0, 5, 6}, {3, 2})));
  CHECK(t.gradient(set, y, kRows).identical(D({3, 4})));
  CHECK_THAT(t.error(t.op("TensorListSetItem", {t.from(x), t.of(I(-1)), y})).message, Catch::Contains("index -1"));
  CHECK_THAT(t.error(t.op("TensorListSetItem", {t.from(x), t.of(I(0)), t.of(D({1, 2, 3}))})).message,
             Catch::Contains("[3] does not go into a list of float64[2]"));
  CHECK(t.run(t.stack(t.from(x))).identical(kRows));  // none of these changed it
}

TEST_CASE("elements that were never set are zeros of the list's shape") {
  Lists t;
  const Output list = t.op("TensorListSetItem", {t.reserve(t.any(), 3), t.of(I(1)), t.of(D({7, 8}))});
  CHECK(t.run(t.stack(list)).identical(D({0, 0, 7, 8, 0, 0}, {3, 2})));
  CHECK(t.run(t.op("TensorListGetItem", {list, t.of(I(0)), t.of(I({2}))})).identical(D({0, 0})));
  CHECK_THAT(t.error(t.op("TensorListGetItem", {list, t.of(I(0)), t.any()})).message,
             Catch::Contains("never set, and its shape <unknown> is not known"));
  CHECK_THAT(t.error(t.stack(t.reserve(t.any(), 2))).message, Catch::Contains("cannot be stacked"));
  CHECK_THAT(t.error(t.stack(t.reserve(t.any(), -2))).message,
             Catch::Contains("num_elements must not be negative: -2"));
  CHECK(t.run(t.stack(t.op("TensorListResize", {list, t.of(I(2))}))).identical(D({0, 0, 7, 8}, {2, 2})));
  CHECK(t.run(t.op("TensorListLength", {t.op("TensorListResize", {list, t.of(I(5))})})).identical(I(5)));
}

TEST_CASE("lists are gathered and scattered") {
  Lists t;
  const Output x = t.of(kRows), list = t.from(x), at = t.of(I({2, 0}));
  const Output gathered = t.op("TensorListGather", {list, at, t.any()});
  CHECK(t.run(gathered).identical(D({5, 6, 1, 2}, {2, 2})));
  CHECK(t.gradient(gathered, x, D({1, 2, 3, 4}, {2, 2})).identical(D({3, 4, 0, 0, 1, 2}, {3, 2})));
  const Output y = t.of(D({10, 20, 30, 40}, {2, 2}));
  for (const char* op : {"TensorListScatter", "TensorListScatterV2"}) {
    std::vector<Output> inputs = {y, at, t.any()};
    if (std::string(op) == "TensorListScatterV2") inputs.push_back(t.of(I(3)));
    const Output scattered = t.stack(t.op(op, inputs));
    CHECK(t.run(scattered).identical(D({30, 40, 0, 0, 10, 20}, {3, 2})));
    CHECK(t.gradient(scattered, y, kRows).identical(D({5, 6, 1, 2}, {2, 2})));
  }
  const Output into = t.stack(t.op("TensorListScatterIntoExistingList", {list, y, at}));
  CHECK(t.run(into).identical(D({30, 40, 3, 4, 10, 20}, {3, 2})));
  CHECK(t.gradient(into, x, kRows).identical(D({0, 0, 3, 4, 0, 0}, {3, 2})));
  CHECK(t.gradient(into, y, kRows).identical(D({5, 6, 1, 2}, {2, 2})));
  CHECK_THAT(t.error(t.op("TensorListScatterIntoExistingList", {list, y, t.of(I({0, 3}))})).message,
             Catch::Contains("index 3"));
  CHECK_THAT(t.error(t.op("TensorListScatter", {y, t.of(I({0, 2'000'000'000})), t.any()})).message,
             Catch::Contains("2000000000"));
}

TEST_CASE("lists are joined and parted along the first dimension") {
  Lists t;
  const Output x = t.of(kRows), lengths = t.of(L({2, 0, 1}));
  const Output parted = t.op("TensorListSplit", {x, t.of(I({-1, 2})), lengths});
  CHECK(t.run(t.op("TensorListGetItem", {parted, t.of(I(0)), t.any()})).identical(D({1, 2, 3, 4}, {2, 2})));
  for (const char* op : {"TensorListConcat", "TensorListConcatV2"}) {
    std::vector<Output> inputs = {parted};
    if (std::string(op) == "TensorListConcatV2") inputs = {parted, t.any(), t.of(L(std::initializer_list<int64_t>{}))};
    const Output joined = t.op(op, inputs);
    CHECK(t.run(joined).identical(kRows));
    CHECK(t.run({joined.node, 1}).identical(L({2, 0, 1})));
    CHECK(t.gradient(joined, x, ramp({3, 2})).identical(ramp({3, 2})));
  }
  CHECK_THAT(t.error(t.op("TensorListSplit", {x, t.any(), t.of(L({2, 2}))})).message,
             Catch::Contains("lengths 2,2 do not part 3 rows"));
  Attrs narrow = t.type;
  narrow.set("element_shape", PartialShape{2, 3});
  CHECK_THAT(t.error(t.OpGraph::op("TensorListConcat", {parted}, narrow)).message, Catch::Contains("[?,3]"));
  const Output both = t.op("TensorListConcatLists", {t.from(x), t.from(x)});
  CHECK(t.run(t.op("TensorListLength", {both})).identical(I(6)));
}

TEST_CASE("elements that were never set are as long as leading_dims says when lists are joined") {
  Lists t;
  const Output x = t.of(kRows), lengths = t.of(L({2, 1}));
  const Output parted = t.op("TensorListSplit", {x, t.of(I({-1, 2})), lengths});
  const Output second = t.op("TensorListGetItem", {parted, t.of(I(1)), t.any()});
  CHECK(t.gradient(second, x, D({1, 2}, {1, 2})).identical(D({0, 0, 0, 0, 1, 2}, {3, 2})));
  const Output list = t.op("TensorListSetItem", {t.reserve(t.any(), 3), t.of(I(1)), t.of(D({7, 8}, {1, 2}))});
  const Output joined = t.op("TensorListConcatV2", {list, t.any(), t.of(L({2, 5, 0}))});
  CHECK(t.run(joined).identical(D({0, 0, 0, 0, 7, 8}, {3, 2})));
  CHECK(t.run({joined.node, 1}).identical(L({2, 1, 0})));
  CHECK_THAT(t.error(t.op("TensorListConcatV2", {list, t.any(), t.of(L({2}))})).message,
             Catch::Contains("never set, and its shape [?,2]"));
  CHECK_THAT(t.error(t.op("TensorListConcatV2", {list, t.any(), t.of(L({-2, 1, 1}))})).message,
             Catch::Contains("never set, and its shape [?,2]"));
}

TEST_CASE("lists of one length add up, element by element") {
  Lists t;
  const Output x = t.of(kRows);
  const Output sum = t.scope.op("AddN", {t.from(x), t.from(x), t.reserve(t.any(), 3)});
  CHECK(t.run(t.stack(sum)).identical(D({2, 4, 6, 8, 10, 12}, {3, 2})));
  CHECK(t.run(t.stack(t.scope.op("ZerosLike", {t.from(x)}))).identical(D({0, 0, 0, 0, 0, 0}, {3, 2})));
  CHECK_THAT(t.error(t.scope.op("AddN", {t.from(x), t.reserve(t.any(), 2)})).message,
             Catch::Contains("3 and 2 elements"));
}

TEST_CASE("lists nest as deep as memory allows; sums and zeros of them go 1,000 deep") {
  Lists t;
  const auto nested = [](int depth) {
    TensorList empty;
    empty.dtype = DType::kFloat64;
    Tensor out = list_tensor(std::move(empty));
    for (int i = 1; i < depth; ++i) {
      TensorList list{DType::kVariant, PartialShape::scalar(), -1, {}};
      list.elements = {std::move(out)};
      out = list_tensor(std::move(list));
    }
    return out;
  };
  const Output most = t.of(nested(1000)), deep = t.of(nested(200'000));
  const Output length = t.op("TensorListLength", {t.scope.op("ZerosLike", {most})});
  CHECK(t.run(length).identical(I(1)));
  CHECK(t.run(t.op("TensorListLength", {t.scope.op("AddN", {most, most})})).identical(I(1)));
  CHECK(t.run(t.op("TensorListLength", {deep})).identical(I(1)));
  for (const Output& refused : {t.scope.op("ZerosLike", {deep}), t.scope.op("AddN", {deep, deep})})
    CHECK_THAT(t.error(refused).message, Catch::Contains("nested more than 1000 deep"));
}

TEST_CASE("an optional gives its components back, or says that it has none") {
  Lists t;
  const Output x = t.of(D({1, 2})), y = t.of(I(7));
  const Output optional = t.scope.op("OptionalFromValue", {x, y});
  CHECK(t.run(t.scope.op("OptionalHasValue", {optional})).identical(Tensor::scalar(true)));
  const Attrs types{{"output_types", std::vector<DType>{DType::kFloat64, DType::kInt32}},
                    {"output_shapes", std::vector<PartialShape>{{2}, PartialShape::scalar()}}};
  const Node* value = t.scope.node("OptionalGetValue", {optional}, types);
  REQUIRE(value);
  CHECK(t.run(value->out(0)).identical(D({1, 2})));
  CHECK(t.run(value->out(1)).identical(I(7)));
  CHECK(t.gradient(value->out(0), x, D({3, 4})).identical(D({3, 4})));
  const Output none = t.scope.op("OptionalNone", {});
  CHECK(t.run(t.scope.op("OptionalHasValue", {none})).identical(Tensor::scalar(false)));
  CHECK_THAT(t.error(t.scope.op("OptionalGetValue", {none}, types)).message, Catch::Contains("has no value"));
}
