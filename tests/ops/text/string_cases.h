// SPDX-License-Identifier: Apache-2.0
// Cases of strings: each op once with values worked out by hand; the golden case `strings` has more, by TensorFlow.
#pragma once
#include "tests/ops/op_case.h"

namespace troupe::testing {

inline Tensor S(std::initializer_list<std::string> v) { return Tensor::of<std::string>(v); }
inline Tensor S(std::initializer_list<std::string> v, const Shape& s) { return Tensor::of<std::string>(v, s); }
inline Tensor S(const char* v) { return Tensor::scalar<std::string>(v); }

inline Attrs ngrams(std::vector<int64_t> widths, int64_t pads, bool preserve = false) {
  return {{"separator", "-"},  {"ngram_widths", std::move(widths)},   {"left_pad", "L"}, {"right_pad", "R"},
          {"pad_width", pads}, {"preserve_short_sequences", preserve}};
}

/// Expected: TensorFlow 2.21.
inline std::vector<OpCase> ragged_string_cases() {
  const Tensor words = S({"a", "b", "c", "d"}), rows = L({0, 3, 3, 4}), smile = S({"a\xf0\x9f\x98\x80\xff"});
  const Attrs utf8 = {{"input_encoding", "UTF-8"}}, utf16 = {{"input_encoding", "UTF-16-BE"}},
              utf32 = {{"input_encoding", "UTF-32-BE"}};
  const auto with = [](Attrs attrs, const char* name, AttrValue value) {
    attrs.set(name, std::move(value));
    return attrs;
  };
  const auto bytes = [](const char* s, size_t n) { return S({std::string(s, n)}); };
  const auto out = [](const char* encoding) { return Attrs{{"output_encoding", encoding}}; };
  return {
      {"StringNGrams", {words, rows}, ngrams({2}, 0), {S({"a-b", "b-c"}), L({0, 2, 2, 2})}},
      {"StringNGrams",
       {words, rows},
       ngrams({3}, -1),
       {S({"L-L-a", "L-a-b", "a-b-c", "b-c-R", "c-R-R", "L-L-R", "L-R-R", "L-L-d", "L-d-R", "d-R-R"}),
        L({0, 5, 7, 10})}},
      {"StringNGrams",
       {words, I({0, 3, 3, 4})},
       ngrams({1, 3}, 1),
       {S({"a", "b", "c", "L-a-b", "a-b-c", "b-c-R", "d", "L-d-R"}), I({0, 6, 6, 8})}},
      {"StringNGrams", {words, rows}, ngrams({5}, 0, true), {S({"a-b-c", "d"}), L({0, 1, 1, 2})}},
      {"StringNGrams", {words, rows}, ngrams({}, 1, true), {S({"L-a-b-c-R", "L-d-R"}), L({0, 1, 1, 2})}},
      {"StringNGrams", {S({}, {0}), L({0, 0})}, ngrams({3}, -1), {S({}, {0}), L({0, 0})}},
      {"StringNGrams", {S({}, {0}), L({})}, ngrams({3}, -1), {S({}, {0}), L({})}},
      {"UnicodeDecode",
       {S({"aä€", "",
           "\xe2\x82"
           "b"},
          {3, 1})},
       utf8,
       {L({0, 3, 3, 5}), I({'a', 0xE4, 0x20AC, 0xFFFD, 'b'})}},
      {"UnicodeDecodeWithOffsets", {smile}, utf8, {L({0, 3}), I({'a', 0x1F600, 0xFFFD}), L({0, 1, 5})}},
      {"UnicodeDecodeWithOffsets",
       {S({"\xed\xa0\x80\xc0\xf0\x9f\x98"})},
       with(with(utf8, "replacement_char", int64_t{'?'}), "Tsplits", DType::kInt32),
       {I({0, 5}), I({'?', '?', '?', '?', '?'}), L({0, 1, 2, 3, 4})}},
      {"UnicodeDecodeWithOffsets",
       {S({"a\x01\xff"
           "b"})},
       with(with(utf8, "errors", "ignore"), "replace_control_characters", true),
       {L({0, 2}), I({'a', 'b'}), L({0, 3})}},
      {"UnicodeDecodeWithOffsets",
       {bytes("\xd8\x3d\xde\x00\xde\x00\x00"
              "a\xd8\x3d\xde",
              11)},
       utf16,
       {L({0, 4}), I({0x1F600, 0xFFFD, 'a', 0xFFFD}), L({0, 4, 6, 8})}},
      {"UnicodeDecodeWithOffsets",
       {bytes("\0\x01\xf6\0\0\0\xd8\0\0\x11\0\0\0", 13)},
       utf32,
       {L({0, 4}), I({0x1F600, 0xFFFD, 0xFFFD, 0xFFFD}), L({0, 4, 8, 12})}},
      {"UnicodeDecode", {S({"a\xff"})}, {{"input_encoding", "latin1"}}, {L({0, 2}), I({'a', 0xFF})}},
      {"UnicodeDecode", {S({"a\xff"})}, {{"input_encoding", "US-ASCII"}}, {L({0, 2}), I({'a', 0xFFFD})}},
      {"UnicodeDecode", {bytes("a\0", 2)}, {{"input_encoding", "UTF-16LE"}}, {L({0, 1}), I({'a'})}},
      {"UnicodeEncode",
       {I({'a', 0x1F600, 0x110000, 0xD83D}), L({0, 2, 2, 4})},
       out("UTF-8"),
       {S({"a\xf0\x9f\x98\x80", "", "\xef\xbf\xbd\xef\xbf\xbd"})}},
      {"UnicodeEncode", {I({'a', -1}), L({0, 2})}, with(out("UTF-16-BE"), "errors", "ignore"), {bytes("\0a", 2)}},
      {"UnicodeEncode", {I({}), I({0})}, out("UTF-32-BE"), {S({}, {0})}},
      {"UnicodeTranscode",
       {smile},
       with(utf8, "output_encoding", "UTF-16-BE"),
       {bytes("\0a\xd8\x3d\xde\0\xff\xfd", 8)}},
      {"UnicodeTranscode",
       {smile},
       with(with(utf8, "output_encoding", "UTF-32-BE"), "replacement_char", int64_t{'?'}),
       {bytes("\0\0\0a\0\x01\xf6\0\0\0\0?", 12)}},
      // Latin, Greek, Cyrillic, Han, Arabic, Hiragana, Hangul; common, inherited, not assigned; ends of the range
      {"UnicodeScript",
       {I({'A', 0x3B1, 0x416, 0x4E2D, 0x627, 0x3042, 0xAC00, ' ', 0x300, 0x378, 0x10FFFF, 0x110000, -1, INT32_MIN})},
       {},
       {I({25, 14, 8, 17, 2, 20, 18, 0, 1, 103, 103, -1, -1, -1})}},
      {"UnicodeScript", {I({0xE9, 0xD800, 0x1F600, 0x5D0}, {2, 2})}, {}, {I({25, 103, 0, 19}, {2, 2})}},
      {"UnicodeScript", {I({}, {0, 3})}, {}, {I({}, {0, 3})}},
  };
}

inline std::vector<OpCase> string_cases() {
  const Tensor grid = S({"a", "b", "c", "d", "e", "f"}, {2, 3}), none = S({}, {0});
  const Attrs utf8 = {{"encoding", "utf-8"}}, characters = {{"unit", "UTF8_CHAR"}}, dot = {{"separator", "."}};
  const std::string zlib = std::string("x\234KLLL\004\000\003\316\001\205", 12);
  const std::string gzip =
      std::string("\037\213\010\000\000\000\000\000\002\003KLLL\004\000E\345\230\255\004\000\000\000", 24);
  const Tensor wav =
      Tensor::scalar(std::string("RIFF,\000\000\000WAVEfmt "
                                 "\020\000\000\000\001\000\002\000D\254\000\000\020\261\002\000\004\000\020\000data\010"
                                 "\000\000\000\000@\000\200\377\177\315\014",
                                 52));
  const auto spectrum = [](int64_t window, int64_t stride) {
    return Attrs{{"window_size", window}, {"stride", stride}};
  };
  const Tensor message = Tensor::scalar(std::string("\x08\x03\x12\x04\x12\x02\x08\x01\x22\x04\x05\0\0\0", 14));
  return {
      {"StringLower", {S({"aBC", "", "ÄB"})}, {}, {S({"abc", "", "Äb"})}},
      {"StringLower", {S({"ÄΩЖ\xff"})}, utf8, {S({"äωж\xef\xbf\xbd"})}},
      {"StringUpper", {S({"aBc ä"})}, {}, {S({"ABC ä"})}},
      {"StringUpper", {S({"äωж\xc3"})}, utf8, {S({"ÄΩЖ\xef\xbf\xbd"})}},
      {"StringStrip", {S({" a b\t\n", "  ", ""}, {3, 1})}, {}, {S({"a b", "", ""}, {3, 1})}},
      {"StringLength", {S({"", "ä€", "abc"})}, {}, {I({0, 5, 3})}},
      {"StringLength", {S({"", "ä€", "abc"})}, characters, {I({0, 2, 3})}},
      {"EncodeBase64", {S({"", "a", "ab", "abc", "\xff\xfe\xfd"})}, {}, {S({"", "YQ", "YWI", "YWJj", "__79"})}},
      {"EncodeBase64", {S({"a", "ab"})}, {{"pad", true}}, {S({"YQ==", "YWI="})}},
      {"DecodeBase64", {S({"", "YQ", "YWI=", "__79"})}, {}, {S({"", "a", "ab", "\xff\xfe\xfd"})}},
      {"Substr", {S({"hello", "world"}), I(1), I(3)}, {}, {S({"ell", "orl"})}},
      {"Substr", {S({"hello", "world"}), L({-2, 5}), L({9, 1})}, {}, {S({"lo", ""})}},
      {"Substr", {S({"a€b"}), I({1, -1}), I({1, 1})}, characters, {S({"€", "b"})}},
      {"Substr",
       {S({"a€b"}), I({0, -3, 1}), I({-1, -5, -2})},
       {},
       {S({"a€b",
           "\x82\xac"
           "b",
           "€b"})}},
      {"Substr", {S({"a€b"}), I({0, 1, 2, 3}), I({-1, -3, -1, -1})}, characters, {S({"", "", "", ""})}},
      {"Substr",
       {S({"\x80"
           "a\x80"
           "b"}),
        I({0, 1, -1}), I({1, 1, 1})},
       characters,
       {S({"\x80", "a\x80", "b"})}},
      {"Substr", {none, I(0), I(3)}, {}, {none}},
      {"StringJoin", {S({"a", "b"}), S("-"), S({"c", "d"})}, dot, {S({"a.-.c", "b.-.d"})}},
      {"ReduceJoin", {grid, I({0})}, dot, {S({"a.d", "b.e", "c.f"})}},
      {"ReduceJoin", {grid, I({0, 1})}, {}, {S("adbecf")}},
      {"ReduceJoin", {grid, I({1, 0})}, {{"keep_dims", true}}, {S({"abcdef"}, {1, 1})}},
      {"ReduceJoin", {grid, I({})}, {}, {grid}},
      {"ReduceJoin", {S({}, {0, 2}), I(0)}, {}, {S({"", ""})}},
      {"UnsortedSegmentJoin", {grid, I({1, 1}), I(2)}, dot, {S({"", "", "", "a.d", "b.e", "c.f"}, {2, 3})}},
      {"StringSplit",
       {S({"a b", "", ",c"}), S(" ,")},
       {},
       {L({0, 0, 0, 1, 2, 0}, {3, 2}), S({"a", "b", "c"}), L({3, 2})}},
      {"StringSplit", {S({",c"}), S(",")}, {{"skip_empty", false}}, {L({0, 0, 0, 1}, {2, 2}), S({"", "c"}), L({1, 2})}},
      {"StringSplitV2", {S({" a  b "}), S("")}, {}, {L({0, 0, 0, 1}, {2, 2}), S({"a", "b"}), L({1, 2})}},
      {"StringSplitV2",
       {S({" a b  c ", "d", ""}), S("")},
       {{"maxsplit", int64_t{1}}},
       {L({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2}), S({"a", "b  c ", "d", ""}), L({3, 2})}},
      {"StringSplitV2",
       {S({" a ", ""}), S("")},
       {{"maxsplit", int64_t{0}}},
       {L({0, 0, 1, 0}, {2, 2}), S({" a ", ""}), L({2, 1})}},
      {"StringSplitV2",
       {S({"a--b--c"}), S("--")},
       {{"maxsplit", int64_t{1}}},
       {L({0, 0, 0, 1}, {2, 2}), S({"a", "b--c"}), L({1, 2})}},
      {"StringToNumber", {S({"1.5", " -2e1 "})}, {}, {F({1.5, -20}, {2})}},
      {"StringToNumber", {S({"+7", "-9"})}, {{"out_type", DType::kInt64}}, {L({7, -9})}},
      {"AsString", {I({1, -2})}, {{"width", int64_t{4}}, {"fill", "0"}}, {S({"0001", "-002"})}},
      {"AsString", {D({1.5})}, {{"precision", int64_t{1}}, {"scientific", true}}, {S({"1.5e+00"})}},
      {"AsString", {S({"ab", "abcdef"})}, {{"width", int64_t{5}}, {"fill", "0"}}, {S({"   ab", "abcdef"})}},
      {"AsString", {S({"ab", "abcdef"})}, {{"width", int64_t{5}}, {"fill", "-"}}, {S({"ab   ", "abcdef"})}},
      {"AsString", {B({true, false})}, {}, {S({"true", "false"})}},
      {"Fingerprint",
       {S({"ab", "hello"}), S("farmhash64")},
       {},
       {Tensor::of<uint8_t>({30, 165, 173, 66, 82, 110, 141, 170, 232, 12, 56, 49, 169, 229, 139, 180}, {2, 8})}},
      {"Fingerprint",
       {S({"ab", "hello"}, {1, 2}), S("farmhash64")},
       {},
       {Tensor::of<uint8_t>({126, 23, 208, 221, 28, 93, 30, 23}, {1, 8})}},
      {"Fingerprint",
       {I({1, 2, 3, 4}, {2, 2}), S("farmhash64")},
       {},
       {Tensor::of<uint8_t>({76, 18, 253, 133, 168, 204, 240, 10, 254, 162, 60, 240, 103, 244, 53, 255}, {2, 8})}},
      {"StringToHashBucketFast", {S({"", "a"})}, {{"num_buckets", int64_t{1} << 40}}},
      {"StringToHashBucketStrong", {S({"a"})}, {{"num_buckets", int64_t{10}}, {"key", std::vector<int64_t>{1, 2}}}},
      {"StringToHashBucket", {S({"a"})}, {{"num_buckets", int64_t{10}}}},
      {"StringFormat", {I({1, 2}), S("x")}, {{"template", "<%s|%s>"}}, {S("<[1 2]|\"x\">")}},
      {"StringFormat", {S({"\n\"'\\\x01\x7f\xff"})}, {{"template", "%s"}}, {S("[\"\\n\\\"\\'\\\\\\001\\177\xff\"]")}},
      {"StringFormat", {I({}, {2, 3, 0}), I({}, {2, 0})}, {{"template", "%s|%s"}}, {S("[\n\n ...]|[\n ...]")}},
      {"StringFormat", {I({}, {0, 2, 3}), I({})}, {{"template", "%s|%s"}}, {S("[]|[]")}},
      {"StringFormat",
       {I({1, 2, 3}), I({1, 2}, {2, 1}), I(5)},
       {{"template", "%s|%s|%s"}, {"summarize", int64_t{0}}},
       {S("[ ...]|[\n ...]|...")}},
      {"DecodeRaw",
       {S({std::string("\1\0\2\0", 4), std::string("\377\377\0\1", 4)})},
       {{"out_type", DType::kInt16}},
       {Tensor::of<int16_t>({1, 2, -1, 256}, {2, 2})}},
      {"DecodePaddedRaw",
       {S({"abcde", "f", ""}), I(4)},
       {{"out_type", DType::kUInt8}},
       {Tensor::of<uint8_t>({'a', 'b', 'c', 'd', 'f', 0, 0, 0, 0, 0, 0, 0}, {3, 4})}},
      {"DecodePaddedRaw",
       {S("\x01\x02\x03"), I(4)},
       {{"out_type", DType::kInt16}, {"little_endian", false}},
       {Tensor::of<int16_t>({0x0102, 0x0300}, {2})}},
      {"DecodeRaw", {S("")}, {{"out_type", DType::kUInt8}}, {Tensor::of<uint8_t>({}, {0})}},
      {"DecodeRaw",
       {S({std::string("\0\1", 2)})},
       {{"out_type", DType::kInt16}, {"little_endian", false}},
       {Tensor::of<int16_t>({1}, {1, 1})}},
      {"DecodeCompressed", {S({"a", ""})}, {}, {S({"a", ""})}},
      {"DecodeCompressed", {S({zlib, ""})}, {{"compression_type", "ZLIB"}}, {S({"aaaa", ""})}},
      {"DecodeCompressed", {S({gzip, gzip + gzip})}, {{"compression_type", "GZIP"}}, {S({"aaaa", "aaaaaaaa"})}},
      {"EncodeWav", {F({0.5, -2, 1.5, 0.1f}, {2, 2}), I(44100)}, {}, {wav}},
      {"DecodeWav", {wav}, {}, {F({0.5, -1, 32767.f / 32768, 3277.f / 32768}, {2, 2}), I(44100)}},
      {"DecodeWav",
       {wav},
       {{"desired_channels", int64_t{3}}, {"desired_samples", int64_t{1}}},
       {F({0.5, -1, -1}, {1, 3})}},
      {"DecodeWav",
       {wav},
       {{"desired_channels", int64_t{1}}, {"desired_samples", int64_t{3}}},
       {F({0.5, 32767.f / 32768, 0}, {3, 1})}},
      {"AudioSpectrogram", {F({1, 2, 3}, {3, 1})}, spectrum(2, 1), {F({2, 2, 3, 3}, {1, 2, 2})}},
      {"AudioSpectrogram", {F({1, 2, 3}, {1, 3})}, spectrum(3, 1), {F({}, {3, 0, 3})}},
      {"Mfcc",
       {F({1, 1, 1, 1, 1}, {1, 1, 5}), I(16000)},
       {{"filterbank_channel_count", int64_t{4}}, {"dct_coefficient_count", int64_t{3}}},
       {F({-40.05788f, -24.9037687f, 0.0453879f}, {1, 1, 3})}},
      {"SerializeTensor", {I({5})}, {}, {message}},
      {"SerializeTensor", {S({"a", "bc"})}, {}, {S("\x08\x07\x12\x04\x12\x02\x08\x02\x42\x01\x61\x42\x02\x62\x63")}},
      {"ParseTensor", {message}, {{"out_type", DType::kInt32}}, {I({5})}},
      {"DecodeCSV", {S({"1,x", ",\"a\"\"b,\""}), I({7}), S({})}, {}, {I({1, 7}), S({"x", "a\"b,"})}},
      {"DecodeCSV",
       {S("a|NA|3"), L(std::initializer_list<int64_t>{9}), L({})},
       {{"field_delim", "|"}, {"na_value", "NA"}, {"select_cols", std::vector<int64_t>{1, 2}}},
       {L(9), L(3)}},
      {"RegexFullMatch", {S({"a1", "b", ""}), S("[a-z]\\d")}, {}, {B({true, false, false})}},
      {"StaticRegexFullMatch", {S({"a1", "xa1"}, {2, 1})}, {{"pattern", "[a-z]\\d"}}, {B({true, false}, {2, 1})}},
      {"RegexReplace", {S({"a1b22", "none"}), S("([a-z])(\\d+)"), S("\\2\\1")}, {}, {S({"1a22b", "none"})}},
      {"RegexReplace", {S({"aa"}), S("a"), S("")}, {{"replace_global", false}}, {S({"a"})}},
      {"StaticRegexReplace", {S({"a b", ""})}, {{"pattern", "\\s"}, {"rewrite", "_\\0_"}}, {S({"a_ _b", ""})}},
      {"ShardedFilename", {S("a/b"), I(1), I(10)}, {}, {S("a/b-00001-of-00010")}},
      {"ShardedFilespec", {S("a/b"), I(10)}, {}, {S("a/b-\?\?\?\?\?-of-00010")}},
      {"Print", {D({1, 2}), S("unseen")}, {{"first_n", int64_t{0}}}, {D({1, 2})}},
  };
}

}  // namespace troupe::testing
