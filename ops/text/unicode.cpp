// SPDX-License-Identifier: Apache-2.0
// Texts as code points: UnicodeDecode, UnicodeDecodeWithOffsets, UnicodeEncode, UnicodeTranscode.
#include "ops/text/unicode.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "ops/parts/type_dispatch.h"
#include "ops/text/register.h"
#include "ops/text/splits.h"
#include "ops/text/string_map.h"

namespace troupe {

int32_t utf8_code_point(std::string_view s, size_t& at) {
  const auto byte = [&s](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char first = byte(at++);
  if (first < 0x80) return first;
  if (first < 0xC2 || first > 0xF4) return -1;
  const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  int32_t code = first & (0x3F >> more);
  for (int i = 0; i < more; ++i, ++at) {
    if (at == s.size() || !continues_character(s[at])) return -1;
    // The second byte says whether the form is longer than needed, half of a pair, or beyond the last code point.
    if (i == 0 && ((first == 0xE0 && byte(at) < 0xA0) || (first == 0xED && byte(at) > 0x9F) ||
                   (first == 0xF0 && byte(at) < 0x90) || (first == 0xF4 && byte(at) > 0x8F)))
      return -1;
    code = code << 6 | (byte(at) & 0x3F);
  }
  return code;
}

namespace {

bool is_high_half(int64_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low_half(int64_t unit) { return unit >= 0xDC00 && unit < 0xE000; }
bool is_code_point(int64_t code) {
  return code >= 0 && code <= kMostCodePoint && !is_high_half(code) && !is_low_half(code);
}
int32_t joined_halves(int64_t high, int64_t low) {
  return static_cast<int32_t>(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
}

/// The unit of so many bytes at s[at], which moves behind it; -1 where s ends before.
template <int bytes, bool big> int64_t unit_at(std::string_view s, size_t& at) {
  if (s.size() - at < bytes) return at = s.size(), -1;
  int64_t unit = 0;
  for (int i = 0; i < bytes; ++i)
    unit = unit << 8 | static_cast<unsigned char>(s[at + static_cast<size_t>(big ? i : bytes - 1 - i)]);
  at += bytes;
  return unit;
}

template <bool big> int32_t utf16_code_point(std::string_view s, size_t& at) {
  const int64_t unit = unit_at<2, big>(s, at);
  if (!is_high_half(unit)) return is_low_half(unit) ? -1 : static_cast<int32_t>(unit);
  size_t behind = at;
  const int64_t low = behind < s.size() ? unit_at<2, big>(s, behind) : -1;
  if (is_low_half(low)) return at = behind, joined_halves(unit, low);
  if (low < 0) at = s.size();  // the end cuts the pair off
  return -1;
}

template <bool big> int32_t utf32_code_point(std::string_view s, size_t& at) {
  const int64_t unit = unit_at<4, big>(s, at);
  return is_code_point(unit) ? static_cast<int32_t>(unit) : -1;
}

template <int most> int32_t byte_code_point(std::string_view s, size_t& at) {
  const int32_t byte = static_cast<unsigned char>(s[at++]);
  return byte <= most ? byte : -1;
}

template <int bytes> void append_units(int64_t value, std::string& out) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xFF);
}

void append_utf16(int32_t code, std::string& out) {
  if (code < 0x10000) return append_units<2>(code, out);
  append_units<2>(0xD800 + ((code - 0x10000) >> 10), out);
  append_units<2>(0xDC00 + ((code - 0x10000) & 0x3FF), out);
}

void append_utf32(int32_t code, std::string& out) { append_units<4>(code, out); }

}  // namespace

void append_utf8(int32_t code, std::string& out) {
  const auto put = [&](int32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) return put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  if (code < 0x10000) put(0xE0 | code >> 12);
  else put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F));
  put(0x80 | (code >> 6 & 0x3F));
  put(0x80 | (code & 0x3F));
}

Result<DecodeOne> decoder_of(const std::string& encoding) {
  static const std::map<std::string, DecodeOne> decoders = {
      {"utf8", utf8_code_point},           {"utf16be", utf16_code_point<true>},  {"utf16le", utf16_code_point<false>},
      {"utf32be", utf32_code_point<true>}, {"utf32le", utf32_code_point<false>}, {"iso88591", byte_code_point<0xFF>},
      {"latin1", byte_code_point<0xFF>},   {"usascii", byte_code_point<0x7F>},   {"ascii", byte_code_point<0x7F>}};
  std::string name;
  for (const char c : encoding)
    if (c != '-' && c != '_' && c != ' ') name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto at = decoders.find(name);
  if (at != decoders.end()) return at->second;
  return make_error(
      Code::kUnimplemented,
      "the encoding \"{}\" is not supported; there are UTF-8, UTF-16-BE, UTF-16-LE, UTF-32-BE, UTF-32-LE, "
      "ISO-8859-1, US-ASCII",
      encoding);
}

Result<EncodeOne> encoder_of(const std::string& encoding) {
  if (encoding == "UTF-8") return append_utf8;
  if (encoding == "UTF-16-BE") return append_utf16;
  if (encoding == "UTF-32-BE") return append_utf32;
  return invalid_argument("output_encoding must be UTF-8, UTF-16-BE or UTF-32-BE, got \"{}\"", encoding);
}

namespace {

/// What becomes of bytes and numbers that are not characters.
struct BadCharacters {
  bool strict = false, ignore = false, controls = false;
  int32_t instead = kReplacement;
  bool strict_of_controls = false;

  static Result<BadCharacters> parse(const KernelInit& init) {
    const auto instead = init.attr<int64_t>("replacement_char");
    if (!is_code_point(instead)) return invalid_argument("replacement_char must be a code point, got {}", instead);
    const auto& errors = init.attr<std::string>("errors");
    return BadCharacters{errors == "strict", errors == "ignore",
                         init.attrs->get_or<bool>("replace_control_characters", false), static_cast<int32_t>(instead)};
  }
  /// Calls each(code, where it begins) for the characters of `s` as they come out. Error: one is bad, and may not be.
  template <class F> Status decode(DecodeOne decode_one, const std::string& s, F&& each) const {
    for (size_t at = 0; at < s.size();) {
      const size_t begin = at;
      int32_t code = decode_one(s, at);
      if (code < 0 || (controls && code < ' ')) {
        if (strict && (code < 0 || strict_of_controls))
          return invalid_argument("byte {} of \"{}\" begins {}", begin, s,
                                  code < 0 ? "no character of the encoding" : "a control character");
        if (ignore) continue;
        code = instead;
      }
      each(code, begin);
    }
    return {};
  }
};

class UnicodeDecode final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    TROUPE_ASSIGN(const DecodeOne decode, decoder_of(init.attr<std::string>("input_encoding")));
    TROUPE_ASSIGN(const BadCharacters bad, BadCharacters::parse(init));
    return std::unique_ptr<ComputeKernel>(
        new UnicodeDecode(decode, bad, init.attr<DType>("Tsplits"), init.output_dtypes.size() > 2));
  }
  Status compute(KernelContext& c) override {
    std::vector<int64_t> splits = {0}, starts;
    std::vector<int32_t> codes;
    for (const std::string& s : c.input(0).values<std::string>()) {
      TROUPE_RETURN_IF_ERROR(bad_.decode(decode_, s, [&](int32_t code, size_t begin) {
        codes.push_back(code);
        if (offsets_) starts.push_back(static_cast<int64_t>(begin));
      }));
      splits.push_back(std::ssize(codes));
    }
    TROUPE_ASSIGN(Tensor rows, int_tensor(splits_, splits, Shape{std::ssize(splits)}));
    c.set_output(0, std::move(rows));
    c.set_output(1, Tensor::of<int32_t>(std::span<const int32_t>(codes)));
    if (offsets_) c.set_output(2, Tensor::of<int64_t>(std::span<const int64_t>(starts)));
    return {};
  }

 private:
  UnicodeDecode(DecodeOne decode, BadCharacters bad, DType splits, bool offsets)
      : decode_(decode), bad_(bad), splits_(splits), offsets_(offsets) {}
  const DecodeOne decode_;
  const BadCharacters bad_;
  const DType splits_;
  const bool offsets_;
};

class UnicodeEncode final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    TROUPE_ASSIGN(const EncodeOne encode, encoder_of(init.attr<std::string>("output_encoding")));
    TROUPE_ASSIGN(const BadCharacters bad, BadCharacters::parse(init));
    return std::unique_ptr<ComputeKernel>(new UnicodeEncode(encode, bad));
  }
  Status compute(KernelContext& c) override {
    const Tensor& codes = c.input(0);
    if (codes.rank() != 1)
      return invalid_argument("input_values must be a vector, but has shape {}", codes.shape().str());
    TROUPE_ASSIGN(const std::vector<int64_t> splits, splits_from(c.input(1), codes.elements(), "input_splits"));
    if (splits.empty()) return invalid_argument("input_splits must have at least one element");
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kString, Shape{std::ssize(splits) - 1}));
    for (size_t row = 0; row + 1 < splits.size(); ++row) {
      std::string& out = y.mutable_data<std::string>()[row];
      for (int64_t i = splits[row]; i < splits[row + 1]; ++i) {
        int32_t code = codes.data<int32_t>()[i];
        if (!is_code_point(code)) {
          if (bad_.strict)
            return invalid_argument("input_values must be code points, but {} at position {} is not", code, i);
          if (bad_.ignore) continue;
          code = bad_.instead;
        }
        encode_(code, out);
      }
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  UnicodeEncode(EncodeOne encode, BadCharacters bad) : encode_(encode), bad_(bad) {}
  const EncodeOne encode_;
  const BadCharacters bad_;
};

class UnicodeTranscode final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    TROUPE_ASSIGN(const DecodeOne decode, decoder_of(init.attr<std::string>("input_encoding")));
    TROUPE_ASSIGN(const EncodeOne encode, encoder_of(init.attr<std::string>("output_encoding")));
    TROUPE_ASSIGN(BadCharacters bad, BadCharacters::parse(init));
    bad.strict_of_controls = true;
    return std::unique_ptr<ComputeKernel>(new UnicodeTranscode(decode, encode, bad));
  }
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(Tensor y, map_strings<std::string>(c, c.input(0), [&](const std::string& s, std::string& out) {
                    return bad_.decode(decode_, s, [&](int32_t code, size_t) { encode_(code, out); });
                  }));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  UnicodeTranscode(DecodeOne decode, EncodeOne encode, BadCharacters bad)
      : decode_(decode), encode_(encode), bad_(bad) {}
  const DecodeOne decode_;
  const EncodeOne encode_;
  const BadCharacters bad_;
};

Status decode_shape(ShapeContext& c) {
  int64_t n = c.input(0).has_rank() ? 1 : -1;
  for (int i = 0; n >= 0 && i < c.input(0).rank(); ++i) n = c.input(0)[i] < 0 ? -1 : n * c.input(0)[i];
  c.set_output(0, {n < 0 ? -1 : n + 1});
  for (int i = 1; i < c.num_outputs(); ++i) c.set_output(i, {-1});
  return {};
}

Status encode_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 1));
  TROUPE_ASSIGN(const PartialShape splits, c.with_rank(1, 1));
  c.set_output(0, {splits.has_rank() && splits[0] > 0 ? splits[0] - 1 : -1});
  return {};
}

}  // namespace

void register_unicode_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto cpu = DeviceKind::kCpu;
  const std::string bad =
      " Bytes that encode none give `replacement_char`, or nothing where `errors` is ignore; with strict they are an "
      "error. `replace_control_characters` does the same to control characters{}. Encodings: UTF-8, UTF-16 and UTF-32 "
      "with -BE or "
      "-LE, ISO-8859-1, US-ASCII.";
  const char *errors = "errors: {'strict', 'replace', 'ignore'} = 'replace'",
             *instead = "replacement_char: int = 65533", *controls = "replace_control_characters: bool = false";
  const char* output_encoding = "output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}";
  for (const bool offsets : {false, true}) {
    OpDef op(offsets ? "UnicodeDecodeWithOffsets" : "UnicodeDecode");
    op.input("input: string").output("row_splits: Tsplits").output("char_values: int32");
    if (offsets) op.output("char_to_byte_starts: int64");
    const std::string name = op.name();
    ops.add(op.attr("input_encoding: string")
                .attr(errors)
                .attr(instead)
                .attr(controls)
                .attr(type_attr("Tsplits", IndexTypes{}, "int64"))
                .shape(decode_shape)
                .doc(std::string("The code points of strings, as a ragged tensor with a row for each") +
                     (offsets ? ", and the byte where each begins." : ".") +
                     fmt::format(fmt::runtime(bad), ", but these are never an error")),
            not_differentiable(kNoGradientOfStrings));
    kernels.add(name, cpu, {}, UnicodeDecode::make);
  }
  ops.add(OpDef("UnicodeEncode")
              .input("input_values: int32")
              .input("input_splits: Tsplits")
              .output("output: string")
              .attr("errors: {'ignore', 'replace', 'strict'} = 'replace'")
              .attr(output_encoding)
              .attr(instead)
              .attr(type_attr("Tsplits", IndexTypes{}, "int64"))
              .shape(encode_shape)
              .doc("The strings that the code points of the rows of a ragged tensor make. Numbers that are not code "
                   "points give `replacement_char`, or nothing where `errors` is ignore; with strict they are an "
                   "error."),
          not_differentiable(kNoGradientOfStrings));
  kernels.add("UnicodeEncode", cpu, {}, UnicodeEncode::make);
  ops.add(OpDef("UnicodeTranscode")
              .input("input: string")
              .output("output: string")
              .attr("input_encoding: string")
              .attr(output_encoding)
              .attr(errors)
              .attr(instead)
              .attr(controls)
              .shape(unchanged_shape)
              .doc("Strings of one encoding in another." + fmt::format(fmt::runtime(bad), "")),
          not_differentiable(kNoGradientOfStrings));
  kernels.add("UnicodeTranscode", cpu, {}, UnicodeTranscode::make);
}

}  // namespace troupe
