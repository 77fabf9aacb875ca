// SPDX-License-Identifier: Apache-2.0
// Numbers to strings and back: AsString, StringToNumber.
#include <charconv>
#include <cstdlib>

#include "ops/parts/type_dispatch.h"
#include "ops/text/register.h"
#include "ops/text/string_map.h"
#include "ops/text/string_numbers.h"

namespace troupe {

template <class T> bool read_number(std::string_view s, T& out) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const size_t begin = s.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return false;
  s = s.substr(begin, s.find_last_not_of(kSpace) - begin + 1);
  if constexpr (std::is_floating_point_v<T>) {
    const std::string text(s);  // with a zero at its end
    char* end = nullptr;
    out = std::is_same_v<T, float> ? static_cast<T>(std::strtof(text.c_str(), &end))
                                   : static_cast<T>(std::strtod(text.c_str(), &end));
    return end == text.c_str() + text.size();
  } else {
    if (s.size() > 1 && s[0] == '+' && s[1] != '-') s.remove_prefix(1);
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), out);
    return error == std::errc() && end == s.data() + s.size();
  }
}
template bool read_number(std::string_view, float&);
template bool read_number(std::string_view, double&);
template bool read_number(std::string_view, int32_t&);
template bool read_number(std::string_view, int64_t&);
template bool read_number(std::string_view, uint32_t&);
template bool read_number(std::string_view, uint64_t&);

namespace {

template <class T> struct ReadNumber {
  Status operator()(const std::string& x, T& y) const {
    if (read_number<T>(x, y)) return {};
    return invalid_argument("\"{}\" cannot be read as {}", x, to_string(dtype_of<T>));
  }
};
template <class T> class ReadNumbers final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(Tensor y, map_strings<T>(c, c.input(0), ReadNumber<T>()));
    c.set_output(0, std::move(y));
    return {};
  }
};

using PrintableTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                                uint32_t, uint64_t, bool, complex64, complex128, std::string>;

class AsString final : public ComputeKernel {
 public:
  explicit AsString(const KernelInit& init) {
    const int64_t width = init.attr<int64_t>("width"), precision = init.attr<int64_t>("precision");
    const std::string flags = "%" + init.attr<std::string>("fill") + (width > -1 ? std::to_string(width) : "");
    const char real = init.attr<bool>("scientific") ? 'e' : init.attr<bool>("shortest") ? 'g' : 'f';
    real_ = flags + (precision > -1 ? "." + std::to_string(precision) : "") + real;
    integer_ = flags;
    width_ = static_cast<size_t>(std::max<int64_t>(width, 0));
    left_ = init.attr<std::string>("fill") == "-";
  }
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kString, x.shape()));
    with_type(x.dtype(), PrintableTypes{}, [&]<class T>() {
      for (int64_t i = 0; i < x.elements(); ++i) y.mutable_data<std::string>()[i] = text(x.data<T>()[i]);
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  template <class V> static std::string format(const std::string& how, V value) {
    const int size = std::snprintf(nullptr, 0, how.c_str(), value);
    std::string out(static_cast<size_t>(std::max(size, 0)), '\0');
    std::snprintf(out.data(), out.size() + 1, how.c_str(), value);
    return out;
  }
  template <class T> std::string text(const T& value) const {
    if constexpr (std::is_same_v<T, std::string>) return padded(value);
    else if constexpr (std::is_same_v<T, bool>) return value ? "true" : "false";
    else if constexpr (is_complex_type<T>)
      return "(" + format(real_, static_cast<double>(value.real())) + "," +
             format(real_, static_cast<double>(value.imag())) + ")";
    else if constexpr (!std::is_integral_v<T>) return format(real_, static_cast<double>(widen(value)));
    else if constexpr (std::is_signed_v<T>) return format(integer_ + "lld", static_cast<long long>(value));
    else return format(integer_ + "llu", static_cast<unsigned long long>(value));
  }
  /// As %s of the width; of other flags than - it knows nothing.
  std::string padded(const std::string& value) const {
    const std::string gap(width_ - std::min(width_, value.size()), ' ');
    return left_ ? value + gap : gap + value;
  }
  std::string real_, integer_;  // printf's formats, of known parts only
  size_t width_ = 0;
  bool left_ = false;
};

Status as_string_shape(ShapeContext& c) {
  constexpr int64_t kMost = 1024;
  const auto& fill = c.attr<std::string>("fill");
  const int64_t width = c.attr<int64_t>("width"), precision = c.attr<int64_t>("precision");
  if (fill.size() > 1 || (!fill.empty() && std::string_view(" +-0#").find(fill[0]) == std::string_view::npos))
    return invalid_argument("fill '{}' must be one of ' ', '+', '-', '0', '#'", fill);
  if (c.attr<bool>("scientific") && c.attr<bool>("shortest"))
    return invalid_argument("scientific and shortest exclude one another");
  if (width > kMost || precision > kMost)
    return invalid_argument("width {} and precision {} may be at most {}", width, precision, kMost);
  const DType dtype = c.input_dtype(0);
  const bool real = is_floating(dtype) || is_complex(dtype);
  if (!real && (c.attr<bool>("scientific") || c.attr<bool>("shortest") || precision > -1))
    return invalid_argument("scientific, shortest and precision are for real numbers, not {}", to_string(dtype));
  return unchanged_shape(c);
}

}  // namespace

void register_string_number_ops(OpRegistry& ops, KernelRegistry& kernels) {
  using Numbers = TypeList<float, double, int32_t, int64_t, uint32_t, uint64_t>;
  ops.add(
      OpDef("StringToNumber")
          .input("string_tensor: string")
          .output("output: out_type")
          .attr(type_attr("out_type", Numbers{}, "float32"))
          .shape(unchanged_shape)
          .doc(
              "The number that each string is, with or without white space around it. Fails for other strings, and for "
              "integers that do not fit."),
      not_differentiable(kNoGradientOfStrings));
  add_cpu_kernels<ReadNumbers>(kernels, "StringToNumber", Numbers{}, "out_type");
  ops.add(
      OpDef("AsString")
          .input("input: T")
          .output("output: string")
          .attr(type_attr("T", PrintableTypes{}))
          .attr("precision: int = -1")
          .attr("scientific: bool = false")
          .attr("shortest: bool = false")
          .attr("width: int = -1")
          .attr("fill: string = ''")
          .shape(as_string_shape)
          .doc("Numbers as printf writes them: with `precision` digits after the point, as %e when `scientific`, as %g "
               "when `shortest`, filled up to `width` by the flag `fill`."),
      not_differentiable("it gives strings"));
  kernels.add<AsString>("AsString", DeviceKind::kCpu, {});
}

Status set_from_text(Tensor& t, int64_t at, std::string_view text) {
  const auto number = [&]<class T>(T* out) -> Status {
    if (read_number<T>(text, out[at])) return {};
    return invalid_argument("\"{}\" cannot be read as {}", text, to_string(t.dtype()));
  };
  switch (t.dtype()) {
    case DType::kString: t.mutable_data<std::string>()[at] = text; return {};
    case DType::kInt64: return number(t.mutable_data<int64_t>());
    case DType::kInt32: return number(t.mutable_data<int32_t>());
    case DType::kFloat32: return number(t.mutable_data<float>());
    case DType::kFloat64: return number(t.mutable_data<double>());
    default: return invalid_argument("{} cannot be read from text", to_string(t.dtype()));
  }
}

}  // namespace troupe
