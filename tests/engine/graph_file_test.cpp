// SPDX-License-Identifier: Apache-2.0
// Graphs from files, good and bad.
#include "troupe/graph_file.h"

#include <catch2/catch.hpp>

#include "io/whole_file.h"
#include "tests/io/temporary_directory.h"
#include "troupe/engine.h"
#include "troupe/graph_def.h"
#include "troupe/scope.h"

using namespace troupe;

TEST_CASE("a graph is read from its file, binary or text, and stays when the file changes") {
  const auto engine = std::move(Engine::create({})).value();
  Graph graph(engine->ops());
  const Scope scope(graph);
  const Tensor weights = *Tensor::zeros(DType::kFloat32, {64, 64});
  scope.named("w").constant(weights);
  REQUIRE(scope.ok());
  const TemporaryDirectory folder;
  const std::string path = folder.file("graph.pb");
  for (const std::string& bytes : {to_graph_def(graph), to_graph_def_text(graph)}) {
    REQUIRE(write_file(path, bytes).ok());
    Graph read(engine->ops());
    REQUIRE(read_graph_def(path, read, "copy").ok());
    REQUIRE(write_file(path, std::string(bytes.size(), 'x')).ok());
    CHECK(read.find("copy/w")->attrs().get<Tensor>("value")->identical(weights));
    Graph bad(engine->ops());
    CHECK(read_graph_def(path, bad).error().code == Code::kDataLoss);
  }
  Graph none(engine->ops());
  CHECK(read_graph_def(folder.file("none.pb"), none).error().code == Code::kNotFound);
  CHECK_THAT(read_graph_def(folder.path(), none).error().message, Catch::Contains(folder.path()));
}
