// SPDX-License-Identifier: Apache-2.0
// Strings one by one: StringLower, StringUpper, StringStrip, StringLength, Substr, EncodeBase64, DecodeBase64.
#include <array>
#include <cctype>
#include <clocale>
#include <cwctype>

#include "ops/parts/broadcast.h"
#include "ops/parts/type_dispatch.h"
#include "ops/text/register.h"
#include "ops/text/string_map.h"
#include "ops/text/unicode.h"

namespace troupe {
namespace {

// -- upper and lower case ---------------------------------------------------------------------------------------------

constexpr int32_t kSharpS = 0xDF;  // the one letter in common use whose upper case is two

/// Of ASCII letters; of all letters where the encoding is UTF-8. Bytes that are no UTF-8 become U+FFFD.
template <bool kUpper> class ChangeCase {
 public:
  explicit ChangeCase(const KernelInit& init) {
    if (init.attr<std::string>("encoding") != "utf-8") return;
    locale_ =
        std::shared_ptr<std::remove_pointer_t<locale_t>>(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr), [](locale_t l) {
          if (l) freelocale(l);
        });
    utf8_ = true;
  }
  Status operator()(const std::string& x, std::string& y) const {
    y.clear();
    if (!utf8_) {
      for (const char c : x) {
        const bool letter = kUpper ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z';
        y += letter ? static_cast<char>(c ^ 0x20) : c;
      }
      return {};
    }
    if (!locale_) return make_error(Code::kInternal, "the system has no locale C.UTF-8");
    for (size_t at = 0; at < x.size();) {
      const int32_t code = utf8_code_point(x, at);
      const auto wide = static_cast<wint_t>(code);
      if (code < 0) append_utf8(kReplacement, y);
      else if (kUpper && code == kSharpS) y += "SS";
      else
        append_utf8(static_cast<int32_t>(kUpper ? towupper_l(wide, locale_.get()) : towlower_l(wide, locale_.get())),
                    y);
    }
    return {};
  }

 private:
  std::shared_ptr<std::remove_pointer_t<locale_t>> locale_;
  bool utf8_ = false;
};

// -- parts ------------------------------------------------------------------------------------------------------------

struct Strip {
  Status operator()(const std::string& x, std::string& y) const {
    constexpr const char* kSpace = " \t\n\v\f\r";
    const size_t begin = x.find_first_not_of(kSpace);
    y = begin == std::string::npos ? "" : x.substr(begin, x.find_last_not_of(kSpace) - begin + 1);
    return {};
  }
};

struct Length {
  explicit Length(const KernelInit& init) : utf8(init.attr<std::string>("unit") == "UTF8_CHAR") {}
  Status operator()(const std::string& x, int32_t& y) const {
    y = static_cast<int32_t>(utf8 ? utf8_characters(x) : static_cast<int64_t>(x.size()));
    return {};
  }
  const bool utf8;
};

/// Where the character behind the next `characters` of s begins, from that at `at` on; bytes that continue one are part
/// of it.
size_t skip_characters(const std::string& s, size_t at, int64_t characters) {
  for (; characters > 0 && at < s.size(); --characters) do
      ++at;
    while (at < s.size() && continues_character(s[at]));
  return at;
}

/// `length` units of s from `pos`, which counts from the end where it is negative. A negative length takes all bytes up
/// to the end, but no characters, of which TensorFlow allows it only from a position that counts from the start.
Result<std::string> part_of(const std::string& s, int64_t pos, int64_t length, bool utf8) {
  const int64_t size = utf8 ? utf8_characters(s) + (!s.empty() && continues_character(s[0])) : std::ssize(s);
  if (pos > size || pos < -size) return invalid_argument("pos {} is out of range of \"{}\"", pos, s);
  if (utf8 && pos < 0 && length < 0)
    return invalid_argument("len must be at least 0 where pos counts characters from the end, got pos {} and len {}",
                            pos, length);
  if (pos < 0) pos += size;
  if (!utf8) return s.substr(static_cast<size_t>(pos), length < 0 ? std::string::npos : static_cast<size_t>(length));
  const size_t begin = skip_characters(s, 0, pos);
  return s.substr(begin, skip_characters(s, begin, length) - begin);
}

template <class I> class Substr final : public ComputeKernel {
 public:
  explicit Substr(const KernelInit& init) : utf8_(init.attr<std::string>("unit") == "UTF8_CHAR") {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &pos = c.input(1), &length = c.input(2);
    if (!(pos.shape() == length.shape()))
      return invalid_argument("pos {} and len {} must have one shape", pos.shape().str(), length.shape().str());
    TROUPE_ASSIGN(const Broadcast plan, plan_broadcast(x.shape(), pos.shape()));
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kString, plan.shape));
    Status status;
    const int last = plan.rank - 1;
    for_each_run(plan, 1, kCheapGrain, [&](int64_t out, const auto& in, int64_t n) {
      for (int64_t i = 0; i < n && status.ok(); ++i) {
        const int64_t at = in[1] + i * plan.stride[1][last];
        auto part = part_of(x.data<std::string>()[in[0] + i * plan.stride[0][last]], pos.data<I>()[at],
                            length.data<I>()[at], utf8_);
        if (part.ok()) y.mutable_data<std::string>()[out + i] = std::move(*part);
        else status = part.status();
      }
    });
    TROUPE_RETURN_IF_ERROR(status);
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool utf8_;
};

// -- base 64 ----------------------------------------------------------------------------------------------------------

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

struct Encode64 {
  explicit Encode64(const KernelInit& init) : pad(init.attr<bool>("pad")) {}
  Status operator()(const std::string& x, std::string& y) const {
    y.clear();
    for (size_t i = 0; i < x.size(); i += 3) {
      const size_t n = std::min<size_t>(3, x.size() - i);
      uint32_t bits = 0;
      for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < n ? static_cast<unsigned char>(x[i + k]) : 0);
      for (size_t k = 0; k <= n; ++k) y += kDigits[bits >> (18 - 6 * k) & 63];
      if (pad) y.append(3 - n, '=');
    }
    return {};
  }
  const bool pad;
};

struct Decode64 {
  Status operator()(const std::string& x, std::string& y) const {
    std::string_view digits = x;
    size_t padding = 0;
    for (; padding < 2 && digits.ends_with('='); ++padding) digits.remove_suffix(1);
    if (digits.size() % 4 == 1 || (padding > 0 && x.size() % 4 != 0))
      return invalid_argument("{} characters are not base 64", x.size());
    y.clear();
    uint32_t bits = 0;
    int count = 0;
    for (const char c : digits) {
      const size_t digit = kDigits.find(c);
      if (digit == std::string_view::npos) return invalid_argument("'{}' is not a digit of web-safe base 64", c);
      bits = bits << 6 | static_cast<uint32_t>(digit);
      count += 6;
      if (count < 8) continue;
      count -= 8;
      y += static_cast<char>(bits >> count & 0xFF);
    }
    return {};
  }
};

Status substr_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape both, PartialShape::merge(c.input(1), c.input(2)));
  TROUPE_ASSIGN(const PartialShape out, broadcast(c.input(0), both));
  c.set_output(0, out);
  return {};
}

}  // namespace

void register_string_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto add = [&](OpDef op, const char* doc) {
    ops.add(op.input("input: string").shape(unchanged_shape).doc(doc), not_differentiable(kNoGradientOfStrings));
  };
  const auto cpu = DeviceKind::kCpu;
  const char* encoding = "encoding: {'', 'utf-8'} = ''";
  const char* unit = "unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'";
  add(OpDef("StringLower").output("output: string").attr(encoding),
      "Letters in lower case: those of ASCII, or all with the encoding utf-8.");
  add(OpDef("StringUpper").output("output: string").attr(encoding),
      "Letters in upper case: those of ASCII, or all with the encoding utf-8.");
  add(OpDef("StringStrip").output("output: string"), "Strings without white space at their ends.");
  add(OpDef("StringLength").output("output: int32").attr(unit), "How many bytes, or characters of UTF-8, there are.");
  add(OpDef("EncodeBase64").output("output: string").attr("pad: bool = false"),
      "Web-safe base 64 (- and _ in place of + and /), filled up with = where `pad`.");
  add(OpDef("DecodeBase64").output("output: string"),
      "What web-safe base 64 stands for, with or without = at the end. Other characters are errors.");
  kernels.add<StringMap<std::string, ChangeCase<false>>>("StringLower", cpu, {});
  kernels.add<StringMap<std::string, ChangeCase<true>>>("StringUpper", cpu, {});
  kernels.add<StringMap<std::string, Strip>>("StringStrip", cpu, {});
  kernels.add<StringMap<int32_t, Length>>("StringLength", cpu, {});
  kernels.add<StringMap<std::string, Encode64>>("EncodeBase64", cpu, {});
  kernels.add<StringMap<std::string, Decode64>>("DecodeBase64", cpu, {});
  ops.add(OpDef("Substr")
              .input("input: string")
              .input("pos: T")
              .input("len: T")
              .output("output: string")
              .attr(type_attr("T", IndexTypes{}))
              .attr(unit)
              .shape(substr_shape)
              .doc("The `len` bytes, or characters of UTF-8, from `pos` on, fewer at the end; `pos` may count from the "
                   "end (-1: the last). A negative `len` takes all bytes up to the end, but no characters. The shape "
                   "of `pos` and `len` broadcasts with that of `input`. Fails where `pos` is outside the string, and "
                   "of characters where `pos` and `len` are both negative."),
          not_differentiable(kNoGradientOfStrings));
  add_cpu_kernels<Substr>(kernels, "Substr", IndexTypes{});
}

}  // namespace troupe
