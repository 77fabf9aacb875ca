// SPDX-License-Identifier: Apache-2.0
// Strings that are bad input, what Assert says, and how tensors are printed.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <fstream>
#include <sstream>

#include "ops/logging/tensor_text.h"
#include "tests/io/temporary_directory.h"
#include "tests/ops/check_op.h"
#include "tests/ops/text/string_cases.h"

namespace troupe::testing {
namespace {

using Catch::Contains;

void check_string_fails(const std::string& op, const std::vector<Tensor>& inputs, const std::string& words,
                        Attrs attrs = {}) {
  const auto got = apply_unshaped(op, inputs, attrs);
  INFO(op);
  REQUIRE_FALSE(got.ok());
  CHECK_THAT(got.error().str(), Contains(words));
}

/// Runs an op without outputs.
Status act(const std::string& op, const std::vector<Tensor>& inputs, Attrs attrs = {}) {
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const Node* node = add_node(scope, op, inputs, std::move(attrs));
  if (!scope.ok()) return scope.status();
  return Evaluator().run({}, {}, {node}).status();
}

}  // namespace

TEST_CASE("strings that cannot be used are errors", "[strings]") {
  check_string_fails("StringToNumber", {S({"1", "x1"})}, "\"x1\" cannot be read as float32 (element 1 of [2])");
  check_string_fails("StringToNumber", {S({""})}, "cannot be read as float32");
  check_string_fails("StringToNumber", {S({"2147483648"})}, "cannot be read as int32", {{"out_type", DType::kInt32}});
  check_string_fails("Substr", {S({"abc"}), I(4), I(1)}, "pos 4");
  check_string_fails("Substr", {S({"abc"}), I(-4), I(1)}, "pos -4");
  check_string_fails("Substr", {S({"abc"}), I(-1), I(-2)}, "got pos -1 and len -2", {{"unit", "UTF8_CHAR"}});
  check_string_fails("Substr", {S({"abc"}), I({1}), I({1, 2})}, "one shape");
  check_string_fails("DecodeBase64", {S({"a"})}, "not base 64");
  check_string_fails("DecodeBase64", {S({"a$=="})}, "'$'");
  check_string_fails("DecodeBase64", {S({"YQ="})}, "not base 64");
  check_string_fails("StringJoin", {S({"a"}), S({"a", "b"})}, "[1] and [2]");
  check_string_fails("ReduceJoin", {S({"a"}), I({1})}, "axis 1");
  check_string_fails("ReduceJoin", {S({"a"}), I({0, -1})}, "twice");
  check_string_fails("UnsortedSegmentJoin", {S({"a"}), I({2}), I(2)}, "segment id 2");
  check_string_fails("UnsortedSegmentJoin", {S({"a"}), I({0, 1}), I(2)}, "do not lead");
  check_string_fails("StringSplit", {S("a"), S("")}, "a vector");
  check_string_fails("AsString", {I(1)}, "fill", {{"fill", "x"}});
  check_string_fails("AsString", {I(1)}, "precision", {{"precision", int64_t{2}}});
  check_string_fails("AsString", {D(1)}, "at most", {{"width", int64_t{1} << 40}});
  check_string_fails("StringToHashBucketStrong", {S("a")}, "two numbers",
                     {{"num_buckets", int64_t{2}}, {"key", std::vector<int64_t>{1}}});
  check_string_fails("StringFormat", {I(1)}, "2 places for 1", {{"template", "%s %s"}});
  check_string_fails("RegexFullMatch", {S("a"), S("(")}, "\"(\" is not a regular expression");
  check_string_fails("StaticRegexFullMatch", {S("a")}, "missing", {{"pattern", "["}});
  check_string_fails("RegexReplace", {S("a"), S("a"), S("\\1")}, "does not fit pattern");
  check_string_fails("RegexFullMatch", {S("a"), S({"a", "b"})}, "[2]");
  const Tensor words = S({"a", "b"});
  check_string_fails("StringNGrams", {words, L({1, 2})}, "data_splits must begin with 0, got 1", ngrams({1}, 0));
  check_string_fails("StringNGrams", {words, L({0, 2, 1, 2})}, "1 follows 2 at position 2", ngrams({1}, 0));
  check_string_fails("StringNGrams", {words, L({0, 1})}, "must end with the number of values, 2, got 1",
                     ngrams({1}, 0));
  check_string_fails("StringNGrams", {words, L({})}, "must not be empty for 2 values", ngrams({1}, 0));
  check_string_fails("StringNGrams", {words, L({0, 2})}, "got 0", ngrams({0}, 0));
  check_string_fails("StringNGrams", {words, L({0, 2})}, "pad_width must be at least 0", ngrams({}, -1, true));
  check_string_fails("StringNGrams", {words, L({0, 2})}, "more than 2147483648 bytes", ngrams({INT32_MAX}, -1));
  const Attrs utf8 = {{"input_encoding", "UTF-8"}, {"output_encoding", "UTF-8"}, {"errors", "strict"}};
  Attrs controls = utf8, out = {{"output_encoding", "UTF-8"}, {"errors", "strict"}};
  controls.set("replace_control_characters", true);
  check_string_fails("UnicodeDecode", {S({"a\xff"})}, "byte 1 of", {{"input_encoding", "UTF-8"}, {"errors", "strict"}});
  check_string_fails("UnicodeDecode", {S({"a"})}, "the encoding \"shift-jis\"", {{"input_encoding", "shift-jis"}});
  check_string_fails("UnicodeTranscode", {S({"a", "\xff"})}, "(element 1 of [2])", utf8);
  check_string_fails("UnicodeTranscode", {S({"a\x01"})}, "a control character", controls);
  check_string_fails("UnicodeEncode", {I({-1}), L({0, 1})}, "-1 at position 0", out);
  check_string_fails("UnicodeEncode", {I({97}), L({})}, "must not be empty", out);
  check_string_fails("UnicodeEncode", {I({}), L({})}, "at least one", out);
  out.set("replacement_char", int64_t{0xD800});
  check_string_fails("UnicodeEncode", {I({97}), L({0, 1})}, "a code point, got 55296", out);
  CHECK_THAT(act("PrintV2", {S("x")}, {{"output_stream", "nowhere"}}).error().str(), Contains("nowhere"));
}

TEST_CASE("an assertion that fails shows its data", "[strings]") {
  const Attrs two = {{"summarize", int64_t{2}}};
  CHECK(act("Assert", {Tensor::scalar(true), S("unseen")}).ok());
  const Status failed = act("Assert", {Tensor::scalar(false), S("x is"), I({1, 2, 3})}, two);
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().code == Code::kInvalidArgument);
  CHECK_THAT(failed.error().message, Contains("assertion failed: [x is] [1 2...]"));
}

TEST_CASE("what PrintV2 writes to the log is one line", "[strings]") {
  const auto before = spdlog::default_logger();
  std::ostringstream log;
  const auto to_log = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(log));
  to_log->set_pattern("%v");
  spdlog::set_default_logger(to_log);
  const bool ok = act("PrintV2", {S("a\n\x1b[2J")}, {{"output_stream", "log(warning)"}}).ok();
  spdlog::set_default_logger(before);
  CHECK(ok);
  CHECK(log.str() == "a\\n\\x1b[2J\n");
}

TEST_CASE("PrintV2 appends to a file", "[strings]") {
  const TemporaryDirectory directory;
  const Attrs attrs = {{"output_stream", "file://" + directory.file("log")}, {"end", "!"}};
  REQUIRE(act("PrintV2", {S("a")}, attrs).ok());
  REQUIRE(act("PrintV2", {S("b")}, attrs).ok());
  CHECK(directory.read(directory.file("log")) == "a!b!");
}

TEST_CASE("tensors are printed as TensorFlow does", "[strings]") {
  const Tensor grid = Tensor::of<float>({1, 2.5f, -3, 0.1f, 1e30f, 6}, {2, 3});
  CHECK(text_of_first(grid, 3) == "[1 2.5 -3]...");
  CHECK(text_of_first(grid, 4) == "[1 2.5 -3][0.1...]...");
  CHECK(text_of_first(grid, -1) == "[1 2.5 -3][0.1 1e+30 6]");
  CHECK(text_of_first(Tensor::of<bool>({true, false}), 3) == "1 0");
  CHECK(text_of_first(Tensor::scalar<std::string>("a"), 3) == "a");
  CHECK(text_of_first(Tensor::of<int32_t>({}), 3).empty());
  CHECK(text_of_ends(grid, -1) == "[[1 2.5 -3]\n [0.1 1e+30 6]]");
  CHECK(text_of_ends(grid, 1) == "[[1 ... -3]\n [0.1 ... 6]]");
  CHECK(text_of_ends(S({"a"}), 3) == "[\"a\"]");
  CHECK(text_of_ends(Tensor::scalar(std::nan("")), 3) == "nan");
}

}  // namespace troupe::testing
