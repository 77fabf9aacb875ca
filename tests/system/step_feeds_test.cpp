// SPDX-License-Identifier: Apache-2.0
// `troupe run --data`: files of all kinds, row by row or in batches, and what is said of those that do not fit.
#include <fstream>
#include <numeric>

#include "io/example.pb.h"
#include "io/tfrecord.h"
#include "tests/io/temporary_directory.h"
#include "tests/system/cluster.h"
#include "troupe/graph_def.h"
#include "troupe/npy.h"
#include "troupe/ops.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"

namespace troupe::testing {
namespace {

using Catch::Contains;

/// A folder with graphs of two placeholders, x [?,2] float32 and y [?] int64.
struct FedGraph : TemporaryDirectory {
  FedGraph() {
    write("g.pbtxt", R"(
      node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } }
             attr { key: 'shape' value { shape { dim { size: -1 } dim { size: 2 } } } } }
      node { name: 'y' op: 'Placeholder' attr { key: 'dtype' value { type: DT_INT64 } }
             attr { key: 'shape' value { shape { dim { size: -1 } } } } }
      node { name: 'fixed' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } }
             attr { key: 'shape' value { shape { dim { size: 2 } dim { size: 2 } } } } }
      node { name: 's' op: 'Placeholder' attr { key: 'dtype' value { type: DT_STRING } } }
      node { name: 'b' op: 'Placeholder' attr { key: 'dtype' value { type: DT_BOOL } } }
      node { name: 'any' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } })");
    // Rows 0 to 4: x is (i, 10 i), y is i + 100.
    REQUIRE(write_npy(file("x.npy"), Tensor::of<double>({0, 0, 1, 10, 2, 20, 3, 30, 4, 40}, {5, 2})).ok());
    REQUIRE(write_npy(file("y.npy"), Tensor::of<int32_t>({100, 101, 102, 103, 104})).ok());
  }
  std::string data(const std::string& feed, const std::string& name) const { return feed + "=" + file(name); }
  Ended run(std::vector<std::string> more) const {
    std::vector<std::string> all = {"run", file("g.pbtxt")};
    all.insert(all.end(), more.begin(), more.end());
    return testing::run(all);
  }
  /// All steps of the fetches x:0 and y:0, by x and y.
  std::map<std::string, Tensor> fetch(std::vector<std::string> more) const {
    more.insert(more.end(), {"--fetch", "x:0,y:0", "--all-steps", "--out", file("out.npz")});
    const Ended ended = run(std::move(more));
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    auto out = read_npz(file("out.npz"));
    REQUIRE(out.ok());
    return {{"x", out->at("x:0")}, {"y", out->at("y:0")}};
  }
  void refused(std::vector<std::string> more, const std::vector<std::string>& parts) const {
    more.insert(more.end(), {"--fetch", "x:0,y:0"});
    check_error(run(std::move(more)), 1, parts);
  }
};

std::string example(std::initializer_list<float> x, int64_t y, const std::string& raw = {}) {
  proto::Example out;
  const auto add = [&](const char* key) {
    auto* entry = out.mutable_features()->add_feature();
    entry->set_key(key);
    return entry->mutable_value();
  };
  auto* xs = add("x")->mutable_float_list();
  for (const float v : x) xs->add_value(v);
  add("y")->mutable_int64_list()->add_value(y);
  if (!raw.empty()) add("raw")->mutable_bytes_list()->add_value(raw);
  return encode_record(out.SerializeAsString());
}

const Tensor kX4 = Tensor::of<float>({0, 0, 1, 10, 2, 20, 3, 30}, {2, 2, 2});
const Tensor kY4 = Tensor::of<int64_t>({100, 101, 102, 103}, {2, 2});

}  // namespace

TEST_CASE("a graph with placeholders trains on batches of a file") {
  const TemporaryDirectory dir;
  // y = 3 x0 - 2 x1 + 1
  std::vector<float> x, y;
  for (int i = 0; i < 200; ++i) {
    const float a = static_cast<float>(i % 20) / 10 - 1, b = static_cast<float>(i / 20) / 5 - 1;
    x.insert(x.end(), {a, b});
    y.push_back(3 * a - 2 * b + 1);
  }
  REQUIRE(write_npz(dir.file("train.npz"), {{"x", Tensor::of<float>(std::span<const float>(x), {200, 2})},
                                            {"y", Tensor::of<float>(std::span<const float>(y), {200, 1})}})
              .ok());
  {
    auto engine = Engine::create().value();
    Graph graph(engine->ops());
    Scope scope(graph);
    nn::Variables model;
    const Output in = ops::Placeholder(scope.named("x"), DType::kFloat32, {.shape = {-1, 2}});
    const Output out = ops::Placeholder(scope.named("y"), DType::kFloat32, {.shape = {-1, 1}});
    const Output error = nn::dense(scope, model, in, 1, "line") - out;
    const Output loss = ops::Mean(scope, error * error, scope.constant(Tensor::of<int32_t>({0, 1})));
    ops::Identity(scope.named("loss"), loss);
    const Node* train = nn::minimize(scope, model, nn::sgd(nn::constant_rate(0.1f)), loss);
    ops::NoOp(scope.after(std::vector{train}).named("train"));
    ops::NoOp(scope.after(model.initializers()).named("init"));
    REQUIRE(scope.status().ok());
    dir.write("g.pb", to_graph_def(graph));
  }
  const Ended ended = run({"run", dir.file("g.pb"), "--data", dir.file("train.npz"), "--batch", "32", "--shuffle",
                           "200", "--epochs", "20", "--init", "init", "--target", "train", "--fetch", "loss:0",
                           "--all-steps", "--out", dir.file("out.npz")});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  const auto fetched = read_npz(dir.file("out.npz"));
  REQUIRE(fetched.ok());
  const Tensor losses = fetched->at("loss:0");
  REQUIRE(losses.shape() == Shape{140});  // six batches of 32 and one of 8, twenty times
  CHECK(losses.data<float>()[0] > 1);
  CHECK(losses.data<float>()[139] < 1e-3);
}

TEST_CASE("arrays give a row to each step, or batches") {
  const FedGraph d;
  const auto one = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--fetch", "y:0"});
    return d.run(std::move(more));
  };
  CHECK(d.fetch({"--data", d.data("x", "x.npy"), "--data", d.data("y:0", "y.npy"), "--batch", "2", "--drop-remainder"})
            .at("x")
            .identical(kX4));
  // Without --batch the first axis is that of steps, and a step has a batch of one where it needs one.
  CHECK(d.fetch({"--data", d.data("x", "x.npy"), "--data", d.data("y", "y.npy"), "--steps", "4"})
            .at("y")
            .identical(Tensor::of<int64_t>({100, 101, 102, 103}, {4, 1})));
  // The last step has the smaller batch.
  CHECK(one({"--data", d.data("y", "y.npy"), "--batch", "2"}).out == "y:0 int64[1] [104]\n");
  REQUIRE(write_npy(d.file("steps.npy"), Tensor::of<int64_t>({1, 2, 3, 4, 5, 6}, {3, 2})).ok());
  CHECK(one({"--data", d.data("y", "steps.npy")}).out == "y:0 int64[2] [5, 6]\n");
  CHECK(one({"--data", d.data("y", "steps.npy"), "--steps", "2"}).out == "y:0 int64[2] [3, 4]\n");
  CHECK(one({"--data", d.data("y", "steps.npy"), "--steps", "5", "--epochs", "0"}).out == "y:0 int64[2] [3, 4]\n");
  REQUIRE(write_npz(d.file("all.npz"), {{"x", kX4}, {"y", kY4}}).ok());
  const auto all = d.fetch({"--data", d.file("all.npz")});
  CHECK(all.at("x").identical(kX4));
  CHECK(all.at("y").identical(kY4));
  CHECK(d.fetch({"--data", "x=" + d.file("all.npz:x"), "--data", d.data("y:0", "all.npz") + ":y"})
            .at("y")
            .identical(kY4));
}

TEST_CASE("files have float32 for what is bfloat16 in the graph") {
  const TemporaryDirectory dir;
  const std::string graph = dir.write("g.pbtxt", R"(
      node { name: 'b' op: 'Placeholder' attr { key: 'dtype' value { type: DT_BFLOAT16 } } }
      node { name: 'y' op: 'AddV2' input: 'b' input: 'b' attr { key: 'T' value { type: DT_BFLOAT16 } } })");
  const auto fed = [&](const Tensor& value) {
    REQUIRE(write_npz(dir.file("in.npz"), {{"b:0", value}}).ok());
    return run({"run", graph, "--feeds", dir.file("in.npz"), "--fetch", "y:0", "--out", dir.file("out.npz")});
  };
  REQUIRE(fed(Tensor::of<float>({1, 0.1f, -INFINITY})).status == 0);
  CHECK(read_npz(dir.file("out.npz"))->at("y:0").identical(Tensor::of<float>({2, 0.2001953125f, -INFINITY})));
  check_error(fed(Tensor::of<double>({1, 1e39})), 1, {"feed 'b:0'", "element 1", "bfloat16", "1e+39"});
  check_error(fed(Tensor::of<std::string>({"one"})), 1, {"feed 'b:0'", "string"});
}

TEST_CASE("pixels of idx files are flattened and scaled") {
  const FedGraph d;
  std::string images("\0\0\x08\3\0\0\0\4\0\0\0\1\0\0\0\2", 16), labels("\0\0\x08\1\0\0\0\4", 8);
  images += std::string("\0\0\1\xff\2\4\6\x08", 8);
  labels += std::string("\3\2\1\0", 4);
  d.write("images", images);
  d.write("labels", labels);
  const auto out =
      d.fetch({"--data", d.data("x", "images"), "--data", d.data("y", "labels"), "--batch", "4", "--scale", "x=1/2"});
  CHECK(out.at("x").identical(Tensor::of<float>({0, 0, 0.5f, 127.5f, 1, 2, 3, 4}, {1, 4, 2})));
  CHECK(out.at("y").identical(Tensor::of<int64_t>({3, 2, 1, 0}, {1, 4})));
}

TEST_CASE("columns of text are chosen by name or number") {
  const FedGraph d;
  d.write("n.csv", "id,a,b,label\r\nr0,0,0,100\r\nr1,+1, 10 ,101.0\r\n\r\n\"r,\"\"2\",2,2e1,102\r\nr3,3,30,103");
  d.write("plain.tsv", "100\t0\t0\n101\t1\t10\n102\t2\t20\n103\t3\t30\n");
  for (const std::string columns : {"a,b", "a..b", "1..2", "1,b"}) {
    const auto out =
        d.fetch({"--data", d.data("x", "n.csv:" + columns), "--data", d.data("y", "n.csv:label"), "--batch", "2"});
    CHECK(out.at("x").identical(kX4));
    CHECK(out.at("y").identical(kY4));
  }
  const auto plain = d.fetch(
      {"--data", d.data("x", "plain.tsv:1..2"), "--data", d.data("y", "plain.tsv:0"), "--batch", "2", "--steps", "2"});
  CHECK(plain.at("x").identical(kX4));
  CHECK(d.run({"--data", d.data("s", "n.csv:id"), "--fetch", "s:0", "--steps", "3"}).out ==
        "s:0 string[] \"r,\\\"2\"\n");
  // Two files, and rows of text beside those of an array.
  d.write("part-1.csv", "label\n100\n101\n");
  d.write("part-2.csv", "label\n102\n103\n104\n");
  const auto mixed = d.fetch(
      {"--data", d.data("x", "x.npy"), "--data", d.data("y", "part-*.csv:label"), "--batch", "2", "--drop-remainder"});
  CHECK(mixed.at("x").identical(kX4));
  CHECK(mixed.at("y").identical(kY4));
}

TEST_CASE("a number of a column is none of the values in the first line") {
  const FedGraph d;
  d.write("values.csv", "2,0,1,0\n3,1,5,10\n");
  const auto out =
      d.fetch({"--data", d.data("x", "values.csv:1,3"), "--data", d.data("y", "values.csv:0"), "--batch", "2"});
  CHECK(out.at("x").identical(Tensor::of<float>({0, 0, 1, 10}, {1, 2, 2})));
  CHECK(out.at("y").identical(Tensor::of<int64_t>({2, 3}, {1, 2})));
  d.write("range.csv", "1,2\n3,4\n");
  const auto range =
      d.fetch({"--data", d.data("x", "range.csv:0..1"), "--data", d.data("y", "values.csv:0"), "--batch", "2"});
  CHECK(range.at("x").identical(Tensor::of<float>({1, 2, 3, 4}, {1, 2, 2})));
  // Beside a column that is chosen by its name, it may be a name.
  d.write("years.csv", "id,1,2\n100,7,8\n");
  const auto years =
      d.fetch({"--data", d.data("x", "years.csv:1,2"), "--data", d.data("y", "years.csv:id"), "--batch", "1"});
  CHECK(years.at("x").identical(Tensor::of<float>({7, 8}, {1, 1, 2})));
}

TEST_CASE("commas in quotes, or in the texts of a .tsv file, do not part its fields") {
  const FedGraph d;
  d.write("quoted.csv", "\"a,\"\"b\";label\n\"c,d\";100\n\"e\";101\n");
  const auto run = [&](const std::string& s, const std::string& y) {
    return d.run({"--data", d.data("s", s), "--data", d.data("y", y), "--batch", "2", "--fetch", "s:0,y:0"}).out;
  };
  CHECK(run("quoted.csv:0", "quoted.csv:label") == "s:0 string[2] [\"c,d\", \"e\"]\ny:0 int64[2] [100, 101]\n");
  d.write("texts.tsv", "100\thi, you\n101\tno\n");
  CHECK(run("texts.tsv:1", "texts.tsv:0") == "s:0 string[2] [\"hi, you\", \"no\"]\ny:0 int64[2] [100, 101]\n");
}

TEST_CASE("a first line of words for bool is a row") {
  const FedGraph d;
  d.write("words.csv", "true\nFalse\n1\n");
  CHECK(d.run({"--data", d.data("b", "words.csv:0"), "--batch", "3", "--fetch", "b:0"}).out ==
        "b:0 bool[3] [true, false, true]\n");
  d.write("named.csv", "truth\nFalse\n");
  CHECK(d.run({"--data", d.data("b", "named.csv:0"), "--batch", "3", "--fetch", "b:0"}).out == "b:0 bool[1] [false]\n");
}

TEST_CASE("features of TFRecord files are fed, or the records") {
  const FedGraph d;
  d.write("r.tfrecord", example({0, 0}, 100) + example({1, 10}, 101) + example({2, 20}, 102) + example({3, 30}, 103));
  const auto out =
      d.fetch({"--data", d.data("x", "r.tfrecord:x"), "--data", d.data("y", "r.tfrecord:y"), "--batch", "2"});
  CHECK(out.at("x").identical(kX4));
  CHECK(out.at("y").identical(kY4));
  const float numbers[] = {5, 7};
  d.write("raw", example({}, 1, "\1\2") + example({}, 2, std::string(reinterpret_cast<const char*>(numbers), 8)));
  const auto raw = d.fetch({"--data", d.data("x", "raw:raw"), "--data", d.data("y", "raw:y"), "--batch", "2"});
  CHECK(raw.at("x").identical(Tensor::of<float>({1, 2, 5, 7}, {1, 2, 2})));
  d.write("words", encode_record("one") + encode_record("two"));
  CHECK(d.run({"--data", d.data("s", "words"), "--batch", "2", "--fetch", "s:0"}).out ==
        "s:0 string[2] [\"one\", \"two\"]\n");
}

TEST_CASE("of many files some may be empty") {
  const FedGraph d;
  for (const char* name : {"r-0", "r-2", "r-4", "t-1", "none-0", "none-1"}) d.write(name, "");
  d.write("r-1", example({0, 0}, 100) + example({1, 10}, 101));
  d.write("r-3", example({2, 20}, 102) + example({3, 30}, 103));
  const auto out = d.fetch({"--data", d.data("x", "r-?:x"), "--data", d.data("y", "r-?:y"), "--batch", "2"});
  CHECK(out.at("x").identical(kX4));
  CHECK(out.at("y").identical(kY4));
  d.write("t-0", "a\nb\n");
  d.write("t-2", "c\n");
  CHECK(d.run({"--data", d.data("s", "t-?:0"), "--batch", "3", "--fetch", "s:0"}).out ==
        "s:0 string[3] [\"a\", \"b\", \"c\"]\n");
  d.refused({"--data", d.data("x", "none-?:x")}, {"none-0' is empty"});
}

TEST_CASE("each pass is shuffled anew, by the seed alone") {
  const FedGraph d;
  const auto rows = [&](const std::string& seed) {
    const Tensor y = d.fetch({"--data", d.data("x", "x.npy"), "--data", d.data("y", "y.npy"), "--batch", "1",
                              "--shuffle", "5", "--epochs", "4", "--seed", seed})
                         .at("y");
    const auto values = y.values<int64_t>();
    return std::vector<int64_t>(values.begin(), values.end());
  };
  const std::vector<int64_t> first = rows("1");
  REQUIRE(first.size() == 20);
  CHECK(first == rows("1"));
  CHECK(first != rows("2"));
  std::vector<std::vector<int64_t>> passes;
  for (auto at = first.begin(); at != first.end(); at += 5) passes.emplace_back(at, at + 5);
  CHECK(std::ranges::any_of(passes, [&](const auto& pass) { return pass != passes[0]; }));
  for (auto& pass : passes) {
    std::ranges::sort(pass);
    CHECK(pass == std::vector<int64_t>{100, 101, 102, 103, 104});
  }
}

TEST_CASE("data that do not fit are one line that names feed, file, step and shapes") {
  const FedGraph d;
  const std::string x = d.data("x", "x.npy"), y = d.data("y", "y.npy");
  d.refused({"--data", x, "--data", y, "--batch", "2", "--steps", "4"}, {"end after 3 of 4 steps", "--epochs"});
  d.refused({"--data", x, "--data", y, "--batch", "6", "--drop-remainder"}, {"not enough for a batch"});
  d.refused({"--data", x, "--data", y, "--batch", "2", "--epochs", "0"}, {"--epochs 0 needs --steps"});
  REQUIRE(write_npy(d.file("wide.npy"), Tensor::of<double>({1, 2, 3}, {1, 3})).ok());
  d.refused({"--data", d.data("x", "wide.npy")}, {"step 1", "feed 'x'", "wide.npy", "float64[3]", "float32[?,2]"});
  d.refused({"--data", y, "--data", d.data("x", "y.npy"), "--batch", "2"}, {"feed 'x'", "int32[2]", "float32[?,2]"});
  REQUIRE(write_npy(d.file("turned.npy"), Tensor::of<float>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4})).ok());
  d.refused({"--data", y, "--data", d.data("x", "turned.npy"), "--batch", "2"}, {"'x'", "5 rows", "'y'", "has 2"});
  d.refused({"--data", d.data("x", "turned.npy"), "--batch", "2"}, {"float32[2,4] does not fit float32[?,2]"});
  REQUIRE(write_npy(d.file("half.npy"), Tensor::of<double>({1, 2.5})).ok());
  d.refused({"--data", d.data("y", "half.npy"), "--batch", "2"}, {"'y'", "half.npy", "element 1", "2.5", "int64"});
  REQUIRE(write_npy(d.file("scalar.npy"), Tensor::scalar(1.f)).ok());
  d.refused({"--data", d.data("x", "scalar.npy")}, {"'x'", "a scalar"});
  check_error(d.run({"--data", d.data("fixed", "x.npy"), "--batch", "2", "--fetch", "fixed:0"}), 1,
              {"'fixed'", "step 3", "last 1 of 5 rows", "float32[2,2]", "--drop-remainder"});
  d.refused({"--data", x, "--data", y, "--feeds", d.file("x.npz")}, {"x.npz"});
  d.refused({"--data", x, "--data", d.data("x:0", "x.npy")}, {"'x:0' is given twice"});
  d.refused({"--data", x, "--data", x}, {"'x' is given twice"});
  d.refused({"--data", d.data("z", "x.npy")}, {"feed 'z'"});
  d.refused({"--data", d.file("x.npy")}, {"which feed is it"});
  d.refused({"--data", d.data("x", "gone.npy")}, {"gone.npy"});
  d.refused({"--data", d.data("x", "gone-*.csv:a")}, {"no file matches"});
  d.refused({"--batch", "2"}, {"--batch", "--data"});
  d.refused({"--data", x, "--scale", "y=2"}, {"--scale y=2", "no feed 'y'"});
  d.refused({"--data", x, "--scale", "x=two"}, {"--scale x=two", "NUMBER"});
  d.refused({"--data", y, "--scale", "y=2"}, {"feed 'y'", "int64", "scaled"});
  d.refused({"--data", d.data("x", "g.pbtxt:a")}, {"no column 'a'"});
  d.write("zeros", std::string(100, '\0'));
  d.refused({"--data", d.data("x", "zeros")}, {"zeros", "not .npy, .npz, idx, TFRecord or comma-separated"});
  d.write("empty", "");
  d.refused({"--data", d.data("x", "empty")}, {"is empty"});
  CHECK(d.run({"--data", x, "--batch", "0", "--fetch", "x:0"}).status == 2);
}

TEST_CASE("a fault in text or records names the line or record and the column or feature") {
  const FedGraph d;
  d.write("bad.csv", "a,b,label\n1,2,3\n4,five,6\n7,8\n");
  const std::string bad = d.data("x", "bad.csv:a,b");
  const auto of = [&](const std::string& data, std::vector<std::string> parts, const std::string& batch = "1") {
    check_error(d.run({"--data", data, "--batch", batch, "--fetch", data.substr(0, data.find('=')) + ":0"}), 1, parts);
  };
  of(bad, {"step 2", "bad.csv:3", "feed 'x'", "column 'b'", "'five' is not a float32"});
  of(d.data("y", "bad.csv:label"), {"bad.csv:4", "2 fields where the first line has 3"});
  of(d.data("x", "bad.csv:a,c"), {"feed 'x'", "no column 'c'", "'a', 'b', 'label'"});
  of(d.data("x", "bad.csv:a..9"), {"no column '9'"});
  of(d.data("x", "bad.csv"), {"feed 'x'", "3 values are not a row of float32[?,2]"});
  d.write("half.csv", "1.5\n");
  of(d.data("y", "half.csv"), {"half.csv:1", "column 0", "'1.5' is not a int64"});
  d.write("quotes.csv", "\"1,2\n");
  of(d.data("y", "quotes.csv"), {"quotes.csv:1", "quotes", "do not end"});
  const std::string good = example({1, 2}, 1);
  d.write("few.tfrecord", good + example({1, 2, 3}, 1));
  of(d.data("x", "few.tfrecord:x"), {"step 2", fmt::format("few.tfrecord, record at {}", good.size()), "feature 'x'",
                                     "3 values are not a row of float32[?,2]"});
  of(d.data("any", "few.tfrecord:x"), {"feed 'any'", "few.tfrecord", "[3]", "[2]"}, "2");
  of(d.data("x", "few.tfrecord:z"), {"no feature 'z'", "'x', 'y'"});
  of(d.data("s", "few.tfrecord:x"), {"feature 'x'", "float32 cannot be fed for string"});
  of(d.data("x", "few.tfrecord"), {"a record is a string", "FEED=FILE:FEATURE"});
  d.write("cut.tfrecord", good + good.substr(0, 20));
  of(d.data("x", "cut.tfrecord:x"), {"step 2", "cut.tfrecord"});
  d.write("other.tfrecord", encode_record("\xff\xff\xff"));
  of(d.data("x", "other.tfrecord:x"), {"other.tfrecord, record at 0", "not a tf.train.Example"});
  d.write("rows.csv", "1\n2\n");
  check_error(
      d.run({"--data", d.data("x", "x.npy"), "--data", d.data("y", "rows.csv"), "--batch", "1", "--fetch", "y"}), 1,
      {"rows.csv", "has 2 rows", "x.npy", "more"});
}

}  // namespace troupe::testing
