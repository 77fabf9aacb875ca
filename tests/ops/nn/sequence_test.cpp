// SPDX-License-Identifier: Apache-2.0
// Losses of label sequences, and candidate samplers: gradients, distributions, what is refused.
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/ops/check_op.h"
#include "tests/ops/op_case.h"

namespace troupe::testing {
namespace {

void check_error(const Result<Tensor>& result, const std::string& text) {
  REQUIRE_FALSE(result.ok());
  INFO(result.error().str());
  CHECK(result.error().str().find(text) != std::string::npos);
}

/// -log P(labels) by adding up every path of classes; the blank is the last class.
double loss_by_hand(const Tensor& logits, const std::vector<int>& labels) {
  const int64_t time = logits.shape()[0], classes = logits.shape()[2];
  double total = 0;
  const auto paths = static_cast<int64_t>(std::pow(classes, time));
  for (int64_t path = 0; path < paths; ++path) {
    double p = 1;
    std::vector<int> seen;
    int before = -1;
    for (int64_t t = 0, rest = path; t < time; ++t, rest /= classes) {
      const int k = static_cast<int>(rest % classes);
      const double* row = logits.data<double>() + t * classes;
      double sum = 0;
      for (int64_t j = 0; j < classes; ++j) sum += std::exp(row[j]);
      p *= std::exp(row[k]) / sum;
      if (k != classes - 1 && k != before) seen.push_back(k);
      before = k;
    }
    if (seen == labels) total += p;
  }
  return -std::log(total);
}

const Tensor kPlaces = L({0, 0, 0, 1}, {2, 2});

TEST_CASE("CTCLoss is the sum over all alignments, and so is its gradient") {
  const Tensor logits = random_tensor<double>({4, 1, 3}, 3);
  for (const std::vector<int>& labels : {std::vector<int>{1, 0}, {1, 1}}) {
    const Tensor values = I({labels[0], labels[1]});
    const Tensor y = *apply("CTCLoss", {logits, kPlaces, values, I({4})});
    CHECK(*y.data<double>() == Approx(loss_by_hand(logits, labels)));
    check_gradients("CTCLoss", {logits, kPlaces, values, I({4})});
  }
  const Tensor batch = random_tensor<double>({5, 2, 4}, 4), places = L({0, 0, 0, 1, 1, 0}, {3, 2});
  for (const char* attr : {"ctc_merge_repeated", "preprocess_collapse_repeated"})
    check_gradients("CTCLoss", {batch, places, I({1, 1, 0}), I({5, 3})}, {{attr, attr[0] == 'p'}});
}

TEST_CASE("CTCLoss refuses labels that do not fit and takes those that no path has") {
  const Tensor logits = random_tensor<double>({4, 1, 3}, 3);
  check_error(apply("CTCLoss", {logits, kPlaces, I({1, 0}), I({5})}), "sequence_length 5");
  check_error(apply("CTCLoss", {logits, kPlaces, I({1, 0}), I({1})}), "2 labels, its length is 1");
  check_error(apply("CTCLoss", {logits, kPlaces, I({2, 0}), I({4})}), "label 0 after one that is not a class");
  check_error(apply("CTCLoss", {logits, kPlaces, I({-1, 0}), I({4})}), "label -1");
  check_error(apply("CTCLoss", {logits, L({1, 0, 0, 0}, {2, 2}), I({1, 0}), I({4})}), "sequence 1 in a batch of 1");
  const Tensor none = *apply("CTCLoss", {logits, kPlaces, I({1, 1}), I({2})});
  CHECK(std::isinf(*none.data<double>()));
  const Attrs ignore = {{"ignore_longer_outputs_than_inputs", true}};
  CHECK(*apply("CTCLoss", {logits, kPlaces, I({1, 0}), I({1})}, ignore)->data<double>() == 0);
}

TEST_CASE("a wide enough beam finds the likeliest labels with the probability of all their paths") {
  for (int seed = 1; seed < 6; ++seed) {
    const Tensor logits = random_tensor<double>({4, 1, 3}, seed);
    const Attrs attrs = {{"beam_width", int64_t{100}}, {"top_paths", int64_t{3}}, {"merge_repeated", false}};
    std::vector<std::pair<double, std::vector<int>>> all;
    for (int length = 0; length <= 4; ++length)
      for (int bits = 0; bits < 1 << length; ++bits) {
        std::vector<int> labels;
        for (int i = 0; i < length; ++i) labels.push_back(bits >> i & 1);
        all.emplace_back(loss_by_hand(logits, labels), labels);
      }
    std::ranges::sort(all);
    const Tensor scores = *apply("CTCBeamSearchDecoder", {logits, I({4})}, attrs, 9);
    for (int p = 0; p < 3; ++p) {
      CHECK(scores.data<double>()[p] == Approx(-all[p].first));
      const Tensor labels = *apply("CTCBeamSearchDecoder", {logits, I({4})}, attrs, 3 + p);
      CHECK(std::ranges::equal(labels.values<int64_t>(), all[p].second));
    }
  }
}

TEST_CASE("a narrow beam does not go on from a prefix that it dropped and refused in one step") {
  const Tensor logits = D({5, 1, 2, 5, 0, 2, 0, 1, 1, 4, 2, 0}, {4, 1, 3});  // what TensorFlow finds
  const Attrs attrs = {{"beam_width", int64_t{2}}, {"top_paths", int64_t{2}}, {"merge_repeated", false}};
  const Tensor best = *apply("CTCBeamSearchDecoder", {logits, I({4})}, attrs, 2);
  CHECK(std::ranges::equal(best.values<int64_t>(), std::vector<int64_t>{0, 0}));
  const Tensor scores = *apply("CTCBeamSearchDecoder", {logits, I({4})}, attrs, 6);
  CHECK(scores.data<double>()[0] == Approx(-1.030872615));
  CHECK(scores.data<double>()[1] == Approx(-2.009116112));
}

TEST_CASE("decoders take sequences without steps or numbers and refuse paths that are not there") {
  const Tensor nan = D({NAN, NAN}, {1, 1, 2});
  Attrs attrs = {{"beam_width", int64_t{2}}, {"top_paths", int64_t{1}}};
  for (const char* op : {"CTCGreedyDecoder", "CTCBeamSearchDecoder"}) {
    INFO(op);
    const Attrs own = op[3] == 'B' ? attrs : Attrs();
    CHECK(apply(op, {nan, I({0})}, own, 1)->elements() == 0);
    CHECK(apply(op, {nan, I({1})}, own, 1).ok());
    check_error(apply(op, {nan, I({2})}, own, 1), "sequence_length 2");
  }
  attrs.set("top_paths", int64_t{2});
  check_error(apply("CTCBeamSearchDecoder", {nan, I({0})}, attrs), "only 1 paths");
  attrs.set("top_paths", int64_t{3});
  check_error(apply("CTCBeamSearchDecoder", {nan, I({1})}, attrs), "top_paths 3 of beam_width 2");
}

TEST_CASE("samplers draw by their distribution and say how often to expect a class") {
  const Tensor truth = L({0, 4}, {1, 2});
  Attrs attrs = {{"num_true", int64_t{2}},
                 {"num_sampled", int64_t{20000}},
                 {"unique", false},
                 {"range_max", int64_t{5}},
                 {"seed", int64_t{7}}};
  const auto check = [&](const char* op, const std::vector<double>& p) {
    INFO(op);
    const auto drawn = apply(op, {truth}, attrs), expected = apply(op, {truth}, attrs, 1),
               of_drawn = apply(op, {truth}, attrs, 2);
    REQUIRE((drawn.ok() && expected.ok() && of_drawn.ok()));
    std::vector<double> share(p.size());
    for (int64_t k : drawn->values<int64_t>()) share.at(static_cast<size_t>(k)) += 1 / 20000.0;
    for (size_t k = 0; k < p.size(); ++k) CHECK(share[k] == Approx(p[k]).margin(0.015));
    CHECK(expected->data<float>()[0] == Approx(20000 * p[0]));
    CHECK(expected->data<float>()[1] == Approx(20000 * p[4]));
    CHECK(of_drawn->data<float>()[0] == Approx(20000 * p[drawn->data<int64_t>()[0]]));
  };
  check("UniformCandidateSampler", {0.2, 0.2, 0.2, 0.2, 0.2});
  std::vector<double> zipf;
  for (int k = 0; k < 5; ++k) zipf.push_back(std::log((k + 2.0) / (k + 1.0)) / std::log(6.0));
  check("LogUniformCandidateSampler", zipf);
  check("LearnedUnigramCandidateSampler", {0.2, 0.2, 0.2, 0.2, 0.2});
  attrs.set("unigrams", std::vector<float>{1, 0, 2, 3, 4});
  check("FixedUnigramCandidateSampler", {0.1, 0, 0.2, 0.3, 0.4});
  attrs.set("unigrams", std::vector<float>{4, 9, 16});
  attrs.set("num_reserved_ids", int64_t{2});
  attrs.set("distortion", 0.5f);
  check("FixedUnigramCandidateSampler", {0, 0, 2 / 9.0, 3 / 9.0, 4 / 9.0});
}

TEST_CASE("different samples are different, and impossible ones refused") {
  Attrs attrs = {{"num_true", int64_t{1}}, {"num_sampled", int64_t{5}}, {"unique", true}, {"range_max", int64_t{5}}};
  const Tensor truth = L({3}, {1, 1});
  for (const char* op : {"UniformCandidateSampler", "LogUniformCandidateSampler", "LearnedUnigramCandidateSampler"}) {
    const Tensor drawn = *apply(op, {truth}, attrs);
    CHECK(std::set<int64_t>(drawn.data<int64_t>(), drawn.data<int64_t>() + 5).size() == 5);
    check_error(apply(op, {L({5}, {1, 1})}, attrs), "index 5");
  }
  attrs.set("num_sampled", int64_t{6});
  check_error(apply("UniformCandidateSampler", {truth}, attrs), "6 different samples of 5 classes");
  attrs.set("num_sampled", int64_t{2});
  attrs.set("unigrams", std::vector<float>{1, 0, 0, 0, 0});
  check_error(apply("FixedUnigramCandidateSampler", {truth}, attrs), "2 different samples of 1 classes");
  attrs.set("unigrams", std::vector<float>{1, 2});
  check_error(apply("FixedUnigramCandidateSampler", {truth}, attrs), "range_max 5");
}

TEST_CASE("a learned sampler comes to draw the true classes") {
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const Attrs attrs = {{"num_true", int64_t{1}},
                       {"num_sampled", int64_t{1000}},
                       {"unique", false},
                       {"range_max", int64_t{10}},
                       {"seed", int64_t{1}}};
  const Tensor truth = *Tensor::zeros(DType::kInt64, {990, 1});
  const Node* node = scope.node("LearnedUnigramCandidateSampler", {scope.constant(truth)}, attrs);
  REQUIRE(scope.ok());
  Evaluator evaluator;
  int64_t zeros[2];
  for (int64_t& n : zeros) {
    const auto drawn = evaluator.run({node->out(0)});
    REQUIRE(drawn.ok());
    n = std::ranges::count((*drawn)[0].values<int64_t>(), 0);
  }
  CHECK(zeros[0] < 200);
  CHECK(zeros[1] > 950);
}

TEST_CASE("unigrams are read from a file, whose faults are named") {
  const auto path = std::filesystem::temp_directory_path() / "troupe_unigrams.txt";
  const auto run = [&](const std::string& text) {
    std::ofstream(path) << text;
    const Attrs attrs = {{"num_true", int64_t{1}},
                         {"num_sampled", int64_t{2}},
                         {"unique", false},
                         {"range_max", int64_t{2}},
                         {"vocab_file", path.string()}};
    return apply("FixedUnigramCandidateSampler", {L({1}, {1, 1})}, attrs, 1);
  };
  CHECK(*run("the,30\na,b,10\n")->data<float>() == Approx(0.5));
  check_error(run("the,30\na,ten\n"), "line 2");
  check_error(run("the,30\n"), "range_max 2");
  std::filesystem::remove(path);
  const Attrs gone = {{"num_true", int64_t{1}},
                      {"num_sampled", int64_t{2}},
                      {"unique", false},
                      {"range_max", int64_t{2}},
                      {"vocab_file", std::string("/nowhere/words")}};
  check_error(apply("FixedUnigramCandidateSampler", {L({1}, {1, 1})}, gone), "/nowhere/words");
}

}  // namespace
}  // namespace troupe::testing
