// SPDX-License-Identifier: Apache-2.0
// TaskDatasets: which visits find datasets at their first element, in whatever order clients come and go.
#include "actors/task_datasets.h"

#include "actors/engine_impl.h"
#include "tests/engine/fixtures.h"

using namespace troupe;

namespace {

struct Datasets {
  Datasets() {
    REQUIRE(datasets.begin().ok());
    const std::vector<DType> dtypes = {DType::kInt32};
    const std::vector<PartialShape> shapes = {PartialShape::scalar()};
    const Output iterator =
        t.scope.op("IteratorV2", {}, {{"shared_name", "numbers"}, {"output_types", dtypes}, {"output_shapes", shapes}});
    next = t.scope.op("IteratorGetNext", {iterator}, {{"output_types", dtypes}, {"output_shapes", shapes}});
  }
  int read() { return t.value({}, next).data<int32_t>()[0]; }

  TestEngine t;
  TaskDatasets datasets{{{"numbers", *Dataset::from_tensors({Tensor::of<int32_t>({0, 1, 2, 3, 4, 5})})}},
                        t.engine->impl().directory};
  Output next;
};

}  // namespace

TEST_CASE("each visit begins at the first element, and asking again is the same visit") {
  Datasets d;
  d.datasets.came(1);
  CHECK(d.read() == 0);
  CHECK(d.read() == 1);
  d.datasets.came(1);
  CHECK(d.read() == 2);
  d.datasets.went(1);
  CHECK(d.read() == 0);
  d.datasets.came(2);
  CHECK(d.read() == 1);  // nobody had come between
}

TEST_CASE("a client whose end is heard of late takes nothing from the next one") {
  Datasets d;
  d.datasets.came(1);
  CHECK(d.read() == 0);
  d.datasets.came(2);
  CHECK(d.read() == 0);
  d.datasets.went(1);
  CHECK(d.read() == 1);
  d.datasets.came(1);
  CHECK(d.read() == 2);
  d.datasets.went(2);
  CHECK(d.read() == 0);
  d.datasets.went(2);
  CHECK(d.read() == 1);
}

TEST_CASE("a reset brings back what was removed, and the visit goes on") {
  Datasets d;
  d.datasets.came(1);
  CHECK(d.read() == 0);
  REQUIRE(d.t.engine->remove_dataset("numbers").ok());
  refused(d.t.session->run({}, {d.next}), Code::kNotFound, "there is no dataset 'numbers'");
  d.datasets.reset();
  CHECK(d.read() == 0);
  d.datasets.came(1);
  CHECK(d.read() == 1);
}
