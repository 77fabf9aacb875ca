// SPDX-License-Identifier: Apache-2.0
// The two forms in which TensorFlow prints tensors.
#include "ops/logging/tensor_text.h"

#include <cmath>
#include <cstdlib>
#include <map>

#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

template <class T> std::string shortest(T value, int digits, int all_digits) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string out = fmt::format("{:.{}g}", value, digits);
  if (static_cast<T>(std::strtod(out.c_str(), nullptr)) != value) out = fmt::format("{:.{}g}", value, all_digits);
  return out;
}

/// As a string of C: quotes and control characters escaped, other bytes as they are.
std::string quoted_text(const std::string& s) {
  static const std::map<char, char> letters = {{'\n', 'n'}, {'\r', 'r'},  {'\t', 't'},
                                               {'"', '"'},  {'\'', '\''}, {'\\', '\\'}};
  std::string out = "\"";
  for (const char c : s) {
    const auto letter = letters.find(c);
    if (letter != letters.end()) out += fmt::format("\\{}", letter->second);
    else if ((c >= 0 && c < ' ') || c == '\x7f') out += fmt::format("\\{:03o}", static_cast<int>(c));
    else out += c;
  }
  return out + '"';
}

std::string element(const Tensor& t, int64_t i, bool quoted) {
  std::string out;
  if (t.dtype() == DType::kString) {
    const std::string& s = t.data<std::string>()[i];
    return quoted ? quoted_text(s) : s;
  }
  if (t.dtype() == DType::kBool) return t.data<bool>()[i] ? "1" : "0";
  with_type(t.dtype(), NumberOrComplexTypes{}, [&]<class T>() {
    const auto v = widen(t.data<T>()[i]);
    if constexpr (is_complex_type<T>) out = fmt::format("({},{})", number_text(v.real()), number_text(v.imag()));
    else if constexpr (std::is_integral_v<T>) out = std::to_string(v);
    else out = number_text(v);
  });
  return out.empty() ? std::string("?") : out;
}

/// What is left of a tensor to be printed in the short form.
struct First {
  const Tensor& t;
  const int64_t most;
  int64_t next = 0;
  std::string out = {};

  void row(int axis) {
    const int64_t n = t.dim(axis);
    const bool last = axis + 1 == t.rank();
    for (int64_t i = 0; i < n && (last || next < most); ++i) {
      if (!last) {
        out += '[';
        row(axis + 1);
        out += ']';
      } else if (next < most) {
        if (i > 0) out += ' ';
        out += element(t, next++, false);
      } else {
        if (axis > 0) out += "...";
        return;
      }
    }
  }
};

void ends_of(const Tensor& t, int64_t ends, int axis, int64_t at, std::string& out) {
  if (axis == t.rank()) {
    out += element(t, at, true);
    return;
  }
  const int64_t n = t.dim(axis);
  int64_t step = 1;
  for (int d = axis + 1; d < t.rank(); ++d) step *= t.dim(d);
  const auto space = [&] {
    if (axis + 1 == t.rank()) out += ' ';
    else
      out +=
          std::string(static_cast<size_t>(t.rank() - axis - 1), '\n') + std::string(static_cast<size_t>(axis) + 1, ' ');
  };
  out += '[';
  const bool all = n <= 2 * ends;
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0 || ends == 0) space();
    if (!all && i == ends) {
      out += "...";
      i = n - ends - 1;
      continue;
    }
    ends_of(t, ends, axis + 1, at + i * step, out);
  }
  out += ']';
}

}  // namespace

std::string number_text(double value) { return shortest(value, 15, 17); }
std::string number_text(float value) { return shortest(value, 6, 9); }

std::string text_of_first(const Tensor& t, int64_t most) {
  const int64_t n = t.elements();
  First text{t, most < 0 ? n : std::min(most, n)};
  if (t.rank() > 0) text.row(0);
  else if (text.most > 0) text.out = element(t, 0, false);
  if (n > text.most) text.out += "...";
  return text.out;
}

std::string text_of_ends(const Tensor& t, int64_t ends) {
  const int64_t n = t.elements(), most = ends < 0 ? n : std::min(ends, n);
  if (t.rank() == 0 && most == 0) return "...";
  std::string out;
  ends_of(t, most, 0, 0, out);
  return out;
}

}  // namespace troupe
