// SPDX-License-Identifier: Apache-2.0
// Ops on whole files, on lines of CSV that are wrong, and on raw bytes of odd length; summaries.
#include "io/event.pb.h"
#include "tests/io/temporary_directory.h"
#include "tests/ops/check_op.h"
#include "tests/ops/text/string_cases.h"

namespace troupe::testing {
namespace {

using Catch::Contains;

std::string failure(const std::string& op, const std::vector<Tensor>& inputs, Attrs attrs = {}) {
  const auto got = apply_unshaped(op, inputs, std::move(attrs));
  INFO(op);
  REQUIRE_FALSE(got.ok());
  return got.error().str();
}

proto::Summary summary_of(const std::string& op, const std::vector<Tensor>& inputs, Attrs attrs = {}) {
  const auto got = apply(op, inputs, std::move(attrs));
  INFO((got.ok() ? "" : got.error().str()));
  REQUIRE(got.ok());
  proto::Summary out;
  REQUIRE(out.ParseFromString(got->data<std::string>()[0]));
  return out;
}

}  // namespace

TEST_CASE("files are written, read and found", "[files]") {
  const TemporaryDirectory directory;
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const std::string path = directory.file("new/a.txt");
  const Node* write = add_node(scope, "WriteFile", {S(path.c_str()), S("some text")});
  REQUIRE(scope.ok());
  REQUIRE(Evaluator().run({}, {}, {write}).ok());
  CHECK(apply("ReadFile", {S(path.c_str())})->identical(S("some text")));
  directory.write("new/b.txt", "");
  directory.write("new/b.log", "");
  const std::string texts = directory.file("new/*.txt"), one = directory.file("new/b.???"),
                    gone = directory.file("x/*");
  CHECK(apply("MatchingFiles", {S({one, gone})})
            ->identical(S({directory.file("new/b.log"), directory.file("new/b.txt")})));
  CHECK(apply("MatchingFiles", {S(texts.c_str())})->elements() == 2);
  CHECK_THAT(failure("ReadFile", {S(gone.c_str())}), Contains("not found"));
  CHECK_THAT(failure("MatchingFiles", {S("/a*/b")}), Contains("only the last part"));
}

TEST_CASE("lines and bytes that are wrong are errors", "[files]") {
  const auto csv = [](const char* line) {
    return failure("DecodeCSV", {S({"1,2", line}), I(std::initializer_list<int32_t>{}), I({5})});
  };
  CHECK_THAT(csv("1"), Contains("record 1: 1 fields where 2"));
  CHECK_THAT(csv("1,2,3"), Contains("3 fields"));
  CHECK_THAT(csv(",2"), Contains("field 0: it is required"));
  CHECK_THAT(csv("1,x"), Contains("field 1: \"x\" cannot be read as int32"));
  CHECK_THAT(csv("\"1,2"), Contains("quotes of field 0 do not end"));
  CHECK_THAT(csv("\""), Contains("do not end"));
  CHECK_THAT(csv("\"1\"2,3"), Contains("'2' after the quotes"));
  CHECK_THAT(csv("1,2\"3"), Contains("not in quotes"));
  CHECK_THAT(failure("DecodeCSV", {S("1"), I(1)}, {{"field_delim", ""}}), Contains("one character"));
  CHECK_THAT(failure("DecodeCSV", {S("1"), I({1, 2})}), Contains("one value or none"));
  const Attrs wide = {{"out_type", DType::kInt32}};
  CHECK_THAT(failure("DecodeRaw", {S("abc")}, wide), Contains("3 bytes"));
  CHECK_THAT(failure("DecodePaddedRaw", {S("abc"), I(3)}, wide), Contains("3 bytes"));
  CHECK_THAT(failure("DecodePaddedRaw", {S("abc"), I(0)}, wide), Contains("above 0, not 0"));
  CHECK_THAT(failure("DecodeRaw", {S({"abcd", "abcdefgh"})}, wide), Contains("string 1 has 8 bytes"));
  CHECK_THAT(failure("ParseTensor", {S("\xff")}, {{"out_type", DType::kInt32}}),
             Contains("1 bytes are not a TensorProto"));
  CHECK_THAT(failure("ParseTensor", {S("\x08\x07")}, {{"out_type", DType::kInt32}}), Contains("string, not int32"));
  CHECK_THAT(failure("ParseTensor", {S("\x08\x03\x12\x02\x12\0\x22\x01\x01")}, {{"out_type", DType::kInt32}}),
             Contains("bytes"));
}

TEST_CASE("compressed strings that are damaged or cut off are errors", "[files][bad_input]") {
  const Attrs zlib = {{"compression_type", "ZLIB"}}, gzip = {{"compression_type", "GZIP"}};
  const std::string packed = std::string("x\234KLLL\004\000\003\316\001\205", 12);
  CHECK_THAT(failure("DecodeCompressed", {S("abc")}, zlib), Contains("not zlib data"));
  CHECK_THAT(failure("DecodeCompressed", {S({packed, packed})}, gzip), Contains("not gzip data"));
  CHECK_THAT(failure("DecodeCompressed", {text(packed.substr(0, 8))}, zlib), Contains("damaged, at byte 8 of 8"));
  std::string damaged = packed;
  damaged.back() ^= 1;
  CHECK_THAT(failure("DecodeCompressed", {text(damaged)}, zlib), Contains("not zlib data, or damaged"));
  CHECK_THAT(failure("DecodeCompressed", {S("abc")}, {{"compression_type", "ZSTD"}}), Contains("not 'ZSTD'"));
}

TEST_CASE("sound that is none is an error", "[files][bad_input]") {
  const auto encoded = apply("EncodeWav", {F({0.5, -1, 1, 0}, {4, 1}), I(8000)});
  REQUIRE(encoded.ok());
  const std::string wav = encoded->data<std::string>()[0];
  const auto bad = [&](size_t at, const std::string& bytes) {
    std::string changed = wav;
    changed.replace(at, bytes.size(), bytes);
    return failure("DecodeWav", {text(changed)});
  };
  CHECK_THAT(failure("DecodeWav", {S("")}), Contains("0 bytes are not a WAV file"));
  CHECK_THAT(failure("DecodeWav", {text(wav.substr(0, 30))}), Contains("ends in its format"));
  CHECK_THAT(failure("DecodeWav", {text(wav.substr(0, 36))}), Contains("no data chunk"));
  CHECK_THAT(failure("DecodeWav", {text(wav.substr(0, 50))}), Contains("ends in its chunk 'data' of 8 bytes"));
  CHECK_THAT(bad(0, "RIFX"), Contains("52 bytes are not a WAV file"));
  CHECK_THAT(bad(8, "WAVX"), Contains("not a WAV file"));
  CHECK_THAT(bad(16, "\x11"), Contains("17 bytes, not 16 or 18"));
  CHECK_THAT(bad(20, "\x03"), Contains("audio format 3, not 1"));
  CHECK_THAT(bad(22, std::string(1, '\0')), Contains("0 channels"));
  CHECK_THAT(bad(34, "\x08"), Contains("samples of 8 bits"));
  CHECK_THAT(failure("DecodeWav", {text(wav + wav.substr(36))}), Contains("more than one data chunk"));
  CHECK_THAT(failure("DecodeWav", {text(wav)}, {{"desired_samples", int64_t{-2}}}), Contains("desired_samples is -2"));
  CHECK_THAT(failure("EncodeWav", {F({1}, {1}), I(8000)}), Contains("[length, channels], not [1]"));
  CHECK_THAT(failure("EncodeWav", {F({1}, {1, 1}), I(0)}), Contains("above 0, not 0"));
  const Tensor line = F({1, 2}, {2, 1}), spectrum = F({1, 1, 1, 1, 1}, {1, 1, 5});
  const auto windows = [](int64_t size, int64_t stride) { return Attrs{{"window_size", size}, {"stride", stride}}; };
  CHECK_THAT(failure("AudioSpectrogram", {line}, windows(1, 1)), Contains("window_size 1"));
  CHECK_THAT(failure("AudioSpectrogram", {line}, windows(2, 0)), Contains("stride 0"));
  CHECK_THAT(failure("Mfcc", {spectrum, I(0)}), Contains("sample rate of 0"));
  CHECK_THAT(failure("Mfcc", {F({1}, {1, 1, 1}), I(16000)}), Contains("a spectrum of 1 values"));
  CHECK_THAT(failure("Mfcc", {spectrum, I(16000)}, {{"lower_frequency_limit", 5000.f}}), Contains("from 5000 to 4000"));
  CHECK_THAT(failure("Mfcc", {spectrum, I(16000)}, {{"dct_coefficient_count", int64_t{41}}}), Contains("from 1 to"));
}

TEST_CASE("summaries hold numbers, histograms and pictures", "[files]") {
  const auto scalars = summary_of("ScalarSummary", {S({"a", "b"}), D({1, 2.5})});
  REQUIRE(scalars.value_size() == 2);
  CHECK(scalars.value(1).tag() == "b");
  CHECK(scalars.value(1).simple_value() == 2.5f);
  const auto histogram = summary_of("HistogramSummary", {S("h"), D({1, 2, 3})});
  CHECK(histogram.value(0).histo().num() == 3);
  CHECK(histogram.value(0).histo().sum() == 6);
  const Attrs attrs = {{"max_images", int64_t{2}}, {"bad_color", Tensor::of<uint8_t>({255, 0, 0, 255})}};
  const auto images = summary_of("ImageSummary", {S("i"), F({0, 1, -1, 2, 0, 0, NAN, 3}, {4, 2, 1, 1})}, attrs);
  REQUIRE(images.value_size() == 2);
  CHECK(images.value(1).tag() == "i/image/1");
  CHECK(images.value(0).image().height() == 2);
  CHECK_THAT(images.value(0).image().encoded_image_string(), Catch::StartsWith("\x89PNG"));
  const Attrs two_sounds = {{"sample_rate", 4.f}, {"max_outputs", int64_t{2}}};
  const auto sounds = summary_of("AudioSummary", {S("s"), F({0, 1, -2, 0.5, NAN, 0}, {3, 2})}, two_sounds);
  REQUIRE(sounds.value_size() == 2);
  CHECK(sounds.value(1).tag() == "s/audio/1");
  CHECK(sounds.value(0).audio().length_frames() == 2);
  CHECK(sounds.value(0).audio().encoded_audio_string().size() == 48);
  CHECK(sounds.value(0).audio().encoded_audio_string().substr(44) == std::string("\0\0\xff\x7f", 4));
  CHECK_THAT(failure("AudioSummaryV2", {S("s"), F({1}, {1, 1}), F({0}, {})}), Contains("above 0, not 0"));
  CHECK_THAT(failure("AudioSummaryV2", {S("s"), F({1}, {1}), F({1}, {})}), Contains("not [1]"));
  CHECK(summary_of("TensorSummaryV2", {S("t"), I({1}), S("m")}).value(0).metadata() == "m");
  const Tensor one = *apply("ScalarSummary", {S("a"), D(1)}), two = *apply("ScalarSummary", {S("b"), D(1)});
  CHECK(summary_of("MergeSummary", {one, two}).value_size() == 2);
  const Tensor not_utf8 = *apply("ScalarSummary", {S("\xff"), D(1)});
  CHECK(summary_of("MergeSummary", {one, not_utf8}).value(1).tag() == "\xff");
  CHECK_THAT(failure("MergeSummary", {one, one}), Contains("'a' is there twice"));
  CHECK_THAT(failure("MergeSummary", {S("\xff\xff")}), Contains("not a Summary"));
  CHECK_THAT(failure("ScalarSummary", {S({"a", "b"}), D(1)}), Contains("one shape"));
  CHECK_THAT(failure("HistogramSummary", {S("h"), D({1, NAN})}), Contains("element 1 is nan"));
  CHECK_THAT(failure("ImageSummary", {S("i"), F({1, 2}, {1, 1, 1, 2})}, attrs), Contains("[1,1,1,2]"));
}

}  // namespace troupe::testing
