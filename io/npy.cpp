// SPDX-License-Identifier: Apache-2.0
// The .npy format: magic, version, length of the header, the header (a Python dictionary), elements. Source:
// numpy.lib.format. The header is parsed by a reader of just the literals that NumPy writes.
#include "troupe/npy.h"
#include "base/join.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <exception>
#include <optional>

#include "io/pickled_texts.h"
#include "io/whole_file.h"

namespace troupe {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMostOfRepeatedTexts = size_t{1} << 30;

/// How elements lie in the file.
struct Layout {
  DType dtype = DType::kInvalid;
  size_t width = 0;  // bytes of one element in the file
  bool swapped = false;
  bool unicode = false;  // a text as code points of four bytes each
};

struct NpyHeader {
  std::optional<std::string> descr;
  std::optional<bool> fortran;
  std::optional<std::vector<int64_t>> shape;
};

/// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }; false where the text is anything else.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  bool parse(NpyHeader& out) {
    if (!take('{')) return false;
    while (!take('}')) {
      std::string key;
      if (!quoted(key) || !take(':')) return false;
      if (key == "descr" && !out.descr) {
        if (!quoted(out.descr.emplace())) return false;
      } else if (key == "fortran_order" && !out.fortran) {
        if (word("True")) out.fortran = true;
        else if (word("False")) out.fortran = false;
        else return false;
      } else if (key == "shape" && !out.shape) {
        if (!tuple(out.shape.emplace())) return false;
      } else {
        return false;
      }
      if (!take(',') && !next_is('}')) return false;
    }
    return skip_space(), at_ == text_.size() && out.descr && out.fortran && out.shape;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool next_is(char c) { return skip_space(), at_ < text_.size() && text_[at_] == c; }
  bool take(char c) { return next_is(c) && ++at_; }
  bool word(std::string_view w) {
    skip_space();
    if (!text_.substr(at_).starts_with(w)) return false;
    at_ += w.size();
    return true;
  }
  bool quoted(std::string& out) {
    skip_space();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return false;
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return false;
    out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }
  bool tuple(std::vector<int64_t>& out) {
    if (!take('(')) return false;
    while (!take(')')) {
      skip_space();
      int64_t value = 0;
      const auto [end, code] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (code != std::errc() || value < 0 || out.size() > 64) return false;
      out.push_back(value);
      at_ = static_cast<size_t>(end - text_.data());
      (void)word("L");  // Python 2 wrote long sizes so
      if (!take(',') && !next_is(')')) return false;
    }
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

constexpr std::pair<DType, const char*> kNpyTypes[] = {
    {DType::kFloat16, "f2"},     {DType::kFloat32, "f4"}, {DType::kFloat64, "f8"}, {DType::kComplex64, "c8"},
    {DType::kComplex128, "c16"}, {DType::kInt8, "i1"},    {DType::kInt16, "i2"},   {DType::kInt32, "i4"},
    {DType::kInt64, "i8"},       {DType::kUInt8, "u1"},   {DType::kUInt16, "u2"},  {DType::kUInt32, "u4"},
    {DType::kUInt64, "u8"},      {DType::kBool, "b1"}};

std::optional<Layout> parse_descr(std::string_view descr) {
  if (descr.size() < 2) return std::nullopt;
  Layout out;
  const char order = descr[0];
  if (order != '<' && order != '>' && order != '|' && order != '=') return std::nullopt;
  descr.remove_prefix(1);
  if (descr[0] == 'S' || descr[0] == 'U') {
    const auto [end, code] = std::from_chars(descr.data() + 1, descr.data() + descr.size(), out.width);
    if (code != std::errc() || end != descr.data() + descr.size() || out.width == 0 || out.width > INT32_MAX)
      return std::nullopt;
    out.dtype = DType::kString;
    out.unicode = descr[0] == 'U';
    if (out.unicode) out.width *= 4;
    out.swapped = order == '>';
    return out;
  }
  const auto known = std::ranges::find_if(kNpyTypes, [descr](const auto& e) { return descr == e.second; });
  if (known == std::end(kNpyTypes)) return std::nullopt;
  out.dtype = known->first;
  out.width = size_of(out.dtype);
  out.swapped = order == '>';
  return out;
}

char32_t code_point(const Layout& layout, const char* at) {
  char32_t code = 0;
  for (int i = 0; i < 4; ++i) code = code << 8 | static_cast<unsigned char>(at[layout.swapped ? i : 3 - i]);
  return code;
}

constexpr char32_t kLastCodePoint = 0x10FFFF;

/// A code point's bytes of UTF-8; those of half a pair are written as any other's.
void append_code_point(char32_t code, std::string& out) {
  const auto continued = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    continued(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    continued(6), continued(0);
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    continued(12), continued(6), continued(0);
  }
}

/// Element `from` of the file to element `to` of the tensor.
void copy_element(const Layout& layout, const char* data, int64_t from, Tensor& tensor, int64_t to) {
  const char* source = data + static_cast<size_t>(from) * layout.width;
  if (layout.unicode) {
    size_t length = layout.width;
    while (length > 0 && code_point(layout, source + length - 4) == 0) length -= 4;
    std::string& text = tensor.mutable_data<std::string>()[to];
    for (size_t i = 0; i < length; i += 4) append_code_point(code_point(layout, source + i), text);
    return;
  }
  if (layout.dtype == DType::kString) {
    size_t length = layout.width;
    while (length > 0 && source[length - 1] == '\0') --length;
    tensor.mutable_data<std::string>()[to].assign(source, length);
    return;
  }
  char* target = static_cast<char*>(tensor.mutable_raw()) + static_cast<size_t>(to) * layout.width;
  std::memcpy(target, source, layout.width);
  const size_t word = is_complex(layout.dtype) ? layout.width / 2 : layout.width;
  if (layout.swapped)
    for (size_t i = 0; i < layout.width; i += word) std::reverse(target + i, target + i + word);
}

void copy_all(const Layout& layout, bool fortran, const char* data, Tensor& tensor) {
  const int64_t n = tensor.elements();
  if (!fortran || tensor.rank() < 2) {
    if (layout.dtype != DType::kString && !layout.swapped) {
      if (n > 0) std::memcpy(tensor.mutable_raw(), data, tensor.bytes());
      return;
    }
    for (int64_t i = 0; i < n; ++i) copy_element(layout, data, i, tensor, i);
    return;
  }
  // Counts through the indices of the tensor; `from` follows with the file's strides.
  const Shape& shape = tensor.shape();
  int64_t strides[kMaxRank], index[kMaxRank] = {}, from = 0;
  for (int64_t d = 0, stride = 1; d < shape.rank(); ++d) {
    strides[d] = stride;
    stride *= shape[static_cast<int>(d)];
  }
  for (int64_t i = 0; i < n; ++i) {
    copy_element(layout, data, from, tensor, i);
    for (int d = shape.rank() - 1; d >= 0; --d) {
      from += strides[d];
      if (++index[d] < shape[d]) break;
      from -= strides[d] * shape[d];
      index[d] = 0;
    }
  }
}

bool ends_in_zero(const std::string& s) { return s.ends_with('\0'); }

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// An array of objects that are texts; its order is that of C also where the header has Fortran's.
Result<Tensor> decode_objects(std::string_view pickle, const Shape& shape, const std::string& name) {
  std::vector<std::string_view> texts;
  if (!pickled_texts(pickle, texts))
    return make_error(Code::kUnimplemented, "'{}' has Python objects that are not all bytes or str", name);
  if (std::ssize(texts) != shape.elements())
    return make_error(Code::kDataLoss, "'{}' is not a sound .npy file: {} objects for the shape {}", name, texts.size(),
                      shape.str());
  // A pickle tells of a text that comes again in two bytes.
  size_t bytes = 0;
  for (const std::string_view text : texts) bytes += text.size();
  if (bytes > std::max(pickle.size(), kMostOfRepeatedTexts))
    return make_error(Code::kResourceExhausted, "'{}' repeats its texts until they are {} bytes", name, bytes);
  TROUPE_ASSIGN(Tensor tensor, Tensor::make(DType::kString, shape));
  std::ranges::copy(texts, tensor.mutable_data<std::string>());
  return tensor;
}

}  // namespace

Result<Tensor> decode_npy(std::string_view bytes, const std::string& name) {
  auto damaged = [&name](const std::string& what) {
    return make_error(Code::kDataLoss, "'{}' is not a sound .npy file: {}", name, what);
  };
  if (bytes.size() < 10 || !bytes.starts_with(kMagic)) return damaged("it does not begin as one");
  const int version = bytes[6];
  if (version < 1 || version > 3) return damaged(fmt::format("version {}.{} is unknown", version, int{bytes[7]}));
  const size_t field = version == 1 ? 2 : 4;
  if (bytes.size() < 8 + field) return damaged("truncated header");
  const uint64_t length = little_endian(bytes.substr(8, field));
  const size_t begin = 8 + field;
  if (length > bytes.size() - begin) return damaged("truncated header");
  NpyHeader header;
  const std::string_view text = bytes.substr(begin, length);
  if (text.find("'descr': [") != text.npos)
    return make_error(Code::kUnimplemented, "'{}' holds records of several fields, which are not supported", name);
  if (!HeaderParser(text).parse(header))
    return damaged(fmt::format("its header is not {{descr, fortran_order, shape}}"));
  const bool objects = *header.descr == "|O";
  const std::optional<Layout> layout = parse_descr(*header.descr);
  if (!layout && !objects)
    return make_error(Code::kUnimplemented, "'{}' has dtype '{}', which is not supported", name, *header.descr);
  auto shape = Shape::make(*header.shape);
  if (!shape.ok()) return damaged(shape.error().message);
  if (objects) return decode_objects(bytes.substr(begin + length), *shape, name);
  const std::string_view data = bytes.substr(begin + length);
  const auto elements = static_cast<uint64_t>(shape->elements());
  if (elements > data.size() / layout->width || elements * layout->width != data.size())
    return damaged(fmt::format("{}{} does not fill {} bytes of data", *header.descr, shape->str(), data.size()));
  if (layout->dtype == DType::kBool && std::ranges::any_of(data, [](char c) { return c != 0 && c != 1; }))
    return damaged("a bool is neither 0 nor 1");
  if (layout->unicode)
    for (size_t i = 0; i < data.size(); i += 4)
      if (const char32_t code = code_point(*layout, data.data() + i); code > kLastCodePoint)
        return damaged(fmt::format("a text has the code point {:#x}", static_cast<uint32_t>(code)));
  TROUPE_ASSIGN(Tensor tensor, Tensor::make(layout->dtype, *shape));
  copy_all(*layout, *header.fortran, data.data(), tensor);
  return tensor;
}

Result<std::string> encode_npy(const Tensor& tensor, const std::string& name) {
  std::string descr;
  size_t width = size_of(tensor.dtype());
  // Elements of fixed width lose zero bytes at their ends.
  const bool objects =
      tensor.dtype() == DType::kString && std::ranges::any_of(tensor.values<std::string>(), ends_in_zero);
  if (objects) {
    descr = "|O";
  } else if (tensor.dtype() == DType::kString) {
    width = 1;
    for (const std::string& s : tensor.values<std::string>()) width = std::max(width, s.size());
    descr = fmt::format("|S{}", width);
  } else {
    const auto known = std::ranges::find_if(kNpyTypes, [&tensor](const auto& e) { return tensor.dtype() == e.first; });
    if (known == std::end(kNpyTypes))
      return invalid_argument("'{}': NumPy has no dtype {}", name, to_string(tensor.dtype()));
    descr = fmt::format("{}{}", width == 1 ? '|' : '<', known->second);
  }
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr,
                                   join(tensor.shape().dims(), ", "), tensor.rank() == 1 ? "," : "");
  while ((kMagic.size() + 4 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  size_t total = 0;  // beyond what a string holds where it would overflow
  if (__builtin_mul_overflow(static_cast<size_t>(tensor.elements()), width, &total) ||
      __builtin_add_overflow(total, kMagic.size() + 4 + header.size(), &total))
    total = SIZE_MAX;
  std::string out;
  try {
    out.reserve(total);
  } catch (const std::exception&) {
    return make_error(Code::kResourceExhausted, "no memory for the bytes of '{}': {} elements of {} bytes", name,
                      tensor.elements(), width);
  }
  out += kMagic;
  out += {1, 0, static_cast<char>(header.size()), static_cast<char>(header.size() >> 8)};
  out += header;
  if (objects) {
    out += pickle_texts(tensor.values<std::string>(), tensor.shape());
  } else if (tensor.dtype() == DType::kString) {
    for (const std::string& s : tensor.values<std::string>()) out.append(s).append(width - s.size(), '\0');
  } else {
    out.append(static_cast<const char*>(tensor.raw()), tensor.bytes());
  }
  return out;
}

Result<Tensor> read_npy(const std::string& path) {
  TROUPE_ASSIGN(const std::string bytes, read_file(path));
  return decode_npy(bytes, path);
}

Status write_npy(const std::string& path, const Tensor& tensor) {
  TROUPE_ASSIGN(const std::string bytes, encode_npy(tensor, path));
  return write_file(path, bytes);
}

}  // namespace troupe
