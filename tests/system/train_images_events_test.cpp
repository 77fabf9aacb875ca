// SPDX-License-Identifier: Apache-2.0
// The event file of the main job, read back: scalars, histograms, images and the graph, as TensorBoard shows them.
#include <map>
#include <set>

#include "graph/graph_def/graph.pb.h"
#include "io/event.pb.h"
#include "io/tfrecord.h"
#include "tests/system/train_images.h"

namespace troupe::testing {
namespace {

struct Read {
  std::map<std::string, std::vector<int64_t>> steps;  // of each tag, in the order of the file
  std::map<std::string, proto::Summary::Value> last;
  std::string graph;
  int files = 0;
};

Read read_events(const fs::path& directory) {
  Read read;
  for (const auto& entry : fs::directory_iterator(directory)) {
    ++read.files;
    auto reader = RecordReader::open(entry.path().string());
    REQUIRE(reader.ok());
    for (bool first = true;; first = false) {
      auto record = reader->next();
      REQUIRE(record.ok());  // lengths and check sums agree
      if (!*record) break;
      proto::Event event;
      REQUIRE(event.ParseFromString(**record));
      CHECK((event.file_version() == "brain.Event:2") == first);
      CHECK(event.wall_time() > 1e9);
      if (!event.graph_def().empty()) read.graph = event.graph_def();
      for (const auto& value : event.summary().value()) {
        read.steps[value.tag()].push_back(event.step());
        read.last[value.tag()] = value;
      }
    }
  }
  return read;
}

}  // namespace

TEST_CASE("the main job's event file holds scalars, histograms, images and the graph") {
  const Data data;
  const Directory out;
  Child child(arguments(data, out, {"--epochs", "2"}));
  INFO(child.output);
  REQUIRE(child.wait() == 0);
  const Read read = read_events(out.path / "events");
  CHECK(read.files == 1);

  for (const char* tag : {"train/loss", "train/accuracy", "images_per_second", "test/loss", "test/accuracy"}) {
    INFO(tag);
    REQUIRE(read.steps.count(tag));
    CHECK(read.last.at(tag).value_case() == proto::Summary::Value::kSimpleValue);
    const auto& steps = read.steps.at(tag);
    CHECK(std::set<int64_t>(steps.begin(), steps.end()).size() == steps.size());
    CHECK(std::is_sorted(steps.begin(), steps.end()));
  }
  CHECK(read.steps.at("test/loss").size() == 2);  // one for each epoch
  CHECK(read.last.at("train/loss").simple_value() > 0);

  for (const char* tag : {"hidden/kernel", "hidden/bias"}) REQUIRE(read.last.count(tag));
  const auto& histogram = read.last.at("hidden/kernel").histo();
  CHECK(histogram.min() < 0);
  CHECK(histogram.max() > 0);
  double sum = 0;
  for (const double bucket : histogram.bucket()) sum += bucket;
  CHECK(sum == histogram.num());
  CHECK(sum > 0);
  CHECK(histogram.bucket_size() == histogram.bucket_limit_size());

  const auto image = read.last.lower_bound("train/images");
  REQUIRE(image != read.last.end());
  REQUIRE(image->first.starts_with("train/images"));
  CHECK(image->second.image().width() == 12);
  CHECK(image->second.image().height() == 12);
  CHECK(image->second.image().encoded_image_string().starts_with("\x89PNG"));

  proto::GraphDef graph;
  REQUIRE(graph.ParseFromString(read.graph));
  std::set<std::string> names;
  bool product = false;
  for (const auto& node : graph.node()) {
    names.insert(node.name());
    product |= node.op() == "MatMul";
  }
  CHECK(product);
  for (const auto& node : graph.node())
    for (std::string input : node.input()) {
      if (input.starts_with("^")) input.erase(0, 1);
      CHECK(names.count(input.substr(0, input.find(':'))));
    }
}

}  // namespace troupe::testing
