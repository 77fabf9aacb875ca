// SPDX-License-Identifier: Apache-2.0
// Bytes and lines to tensors: DecodeRaw, DecodePaddedRaw, DecodeCSV, ParseTensor, DecodeCompressed; tensors to bytes:
// SerializeTensor.
#include <algorithm>
#include <bit>

#include "io/inflate.h"
#include "ops/input/register.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/tensor_bytes.h"
#include "ops/parts/type_dispatch.h"
#include "ops/text/string_map.h"
#include "ops/text/string_numbers.h"

namespace troupe {
namespace {

using RawTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t, bool,
                          complex64, complex128>;

using PaddedTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t>;

class DecodeRaw final : public ComputeKernel {
 public:
  explicit DecodeRaw(const KernelInit& init)
      : dtype_(init.output_dtypes[0]),
        swap_(init.attr<bool>("little_endian") != (std::endian::native == std::endian::little)) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    const auto values = x.values<std::string>();
    const bool padded = c.num_inputs() == 2;
    size_t bytes = values.empty() ? 0 : values[0].size(), size = size_of(dtype_);
    if (padded) {
      TROUPE_ASSIGN(const int64_t length, int_scalar(c.input(1), "fixed_length"));
      if (length <= 0) return invalid_argument("fixed_length must be above 0, not {}", length);
      bytes = static_cast<size_t>(length);
    }
    for (size_t i = 0; i < values.size() && !padded; ++i)
      if (values[i].size() != bytes)
        return invalid_argument("string {} has {} bytes, string 0 has {}: they must be equally long", i,
                                values[i].size(), bytes);
    if (bytes % size != 0) return invalid_argument("{} bytes are not a whole number of {}", bytes, to_string(dtype_));
    if (x.rank() == kMaxRank) return invalid_argument("input {} has no room for a dimension", x.shape().str());
    std::vector<int64_t> sizes(x.shape().begin(), x.shape().end());
    sizes.push_back(static_cast<int64_t>(bytes / size));
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor y, padded ? Tensor::zeros(dtype_, shape, c.device().allocator) : c.allocate(dtype_, shape));
    auto* out = static_cast<char*>(y.mutable_raw());
    for (const std::string& s : values) {
      if (dtype_ == DType::kBool)
        std::ranges::transform(s, reinterpret_cast<bool*>(out), [](char b) { return b != 0; });
      else std::copy_n(s.data(), std::min(bytes, s.size()), out);
      out += bytes;
    }
    const size_t word = is_complex(dtype_) ? size / 2 : size;
    auto* begin = static_cast<char*>(y.mutable_raw());
    if (swap_ && word > 1)
      for (char* at = begin; at != out; at += word) std::reverse(at, at + word);
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const DType dtype_;
  const bool swap_;
};

Status raw_shape(ShapeContext& c) {
  if (!c.input(0).has_rank() || c.input(0).rank() == kMaxRank) return {};
  PartialShape shape = c.input(0);
  shape.push_back(-1);
  c.set_output(0, shape);
  return c.num_inputs() == 2 ? c.with_rank(1, 0).status() : Status();
}

// -- CSV --------------------------------------------------------------------------------------------------------------

class DecodeCsv final : public ComputeKernel {
 public:
  explicit DecodeCsv(const KernelInit& init)
      : dtypes_(init.output_dtypes), delimiter_(init.attr<std::string>("field_delim")[0]),
        quotes_(init.attr<bool>("use_quote_delim")), missing_(init.attr<std::string>("na_value")),
        columns_(init.attr<std::vector<int64_t>>("select_cols")) {}

  Status compute(KernelContext& c) override {
    const Tensor& records = c.input(0);
    std::vector<Tensor> out;
    for (size_t i = 0; i < dtypes_.size(); ++i) {
      const Tensor& otherwise = c.input(static_cast<int>(i) + 1);
      if (otherwise.rank() > 1 || otherwise.elements() > 1)
        return invalid_argument("the default of field {} must be one value or none, not {}", i, otherwise.str());
      TROUPE_ASSIGN(Tensor t, c.allocate(dtypes_[i], records.shape()));
      out.push_back(std::move(t));
    }
    for (int64_t r = 0; r < records.elements(); ++r) {
      auto fields = split(records.data<std::string>()[r]);
      if (fields.ok() && fields->size() != dtypes_.size())
        fields = invalid_argument("{} fields where {} are expected", fields->size(), dtypes_.size());
      if (!fields.ok()) return in_record(r, fields.status());
      for (size_t i = 0; i < dtypes_.size(); ++i)
        if (Status status = set(out[i], r, (*fields)[i], c.input(static_cast<int>(i) + 1)); !status.ok()) {
          status.error().message = fmt::format("field {}: {}", i, status.error().message);
          return in_record(r, std::move(status));
        }
    }
    for (size_t i = 0; i < out.size(); ++i) c.set_output(static_cast<int>(i), std::move(out[i]));
    return {};
  }

 private:
  static Status in_record(int64_t r, Status status) {
    status.error().message = fmt::format("record {}: {}", r, status.error().message);
    return status;
  }

  /// The fields that are wanted; in quotes there may be delimiters, line ends, and quotes twice.
  Result<std::vector<std::string>> split(const std::string& s) const {
    std::vector<std::string> out;
    int64_t column = 0;
    const auto keep = [&](std::string field) {
      if (columns_.empty() || std::ranges::find(columns_, column) != columns_.end()) out.push_back(std::move(field));
      ++column;
    };
    for (size_t at = 0;; ++at) {
      std::string field;
      if (quotes_ && at < s.size() && s[at] == '"') {
        for (++at;; ++at) {
          if (at >= s.size()) return invalid_argument("the quotes of field {} do not end", column);
          if (s[at] == '"' && (at + 1 >= s.size() || s[++at] != '"')) break;
          field += s[at];
        }
        if (s[at] == '"') ++at;  // at the end of the record
        if (at < s.size() && s[at] != delimiter_)
          return invalid_argument("'{}' after the quotes of field {}", s[at], column);
      } else {
        const size_t end = std::min(s.find(delimiter_, at), s.size());
        field = s.substr(at, end - at);
        if (quotes_ && field.find_first_of("\"\r\n") != std::string::npos)
          return invalid_argument("field {} has quotes or line ends but is not in quotes", column);
        at = end;
      }
      keep(std::move(field));
      if (at >= s.size()) return out;
    }
  }

  Status set(Tensor& out, int64_t at, const std::string& field, const Tensor& otherwise) const {
    if (!field.empty() && field != missing_) return set_from_text(out, at, field);
    if (otherwise.elements() == 0) return invalid_argument("it is required but missing");
    with_type(out.dtype(), Types{}, [&]<class T>() { out.mutable_data<T>()[at] = otherwise.data<T>()[0]; });
    return {};
  }
  using Types = TypeList<float, double, int32_t, int64_t, std::string>;

  const std::vector<DType> dtypes_;
  const char delimiter_;
  const bool quotes_;
  const std::string missing_;
  const std::vector<int64_t> columns_;
};

class SerializeTensor final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(std::string bytes, tensor_bytes(c.input(0)));
    c.set_output(0, Tensor::scalar(std::move(bytes)));
    return {};
  }
};

class ParseTensor final : public ComputeKernel {
 public:
  explicit ParseTensor(const KernelInit& init) : dtype_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    const Tensor& bytes = c.input(0);
    if (bytes.rank() != 0) return invalid_argument("serialized must be a scalar, not {}", bytes.shape().str());
    TROUPE_ASSIGN(Tensor parsed, tensor_of_bytes(bytes.data<std::string>()[0]));
    if (parsed.dtype() != dtype_)
      return invalid_argument("the tensor in it is {}, not {}", to_string(parsed.dtype()), to_string(dtype_));
    c.set_output(0, std::move(parsed));
    return {};
  }

 private:
  const DType dtype_;
};

/// Of each string what was compressed.
class DecodeCompressed final : public ComputeKernel {
 public:
  explicit DecodeCompressed(const KernelInit& init) : type_(init.attr<std::string>("compression_type")) {}
  Status compute(KernelContext& c) override {
    if (!type_.empty() && type_ != "ZLIB" && type_ != "GZIP")
      return invalid_argument("compression_type must be 'ZLIB', 'GZIP' or '', not '{}'", type_);
    if (type_.empty()) {
      c.set_output(0, c.input(0));
      return {};
    }
    const auto inflate = [&](const std::string& in, std::string& out) -> Status {
      if (in.empty()) return {};
      TROUPE_ASSIGN(out, inflated(in, type_ == "GZIP"));
      return {};
    };
    TROUPE_ASSIGN(Tensor y, map_strings<std::string>(c, c.input(0), inflate));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const std::string type_;
};

Status csv_shape(ShapeContext& c) {
  if (c.attr<std::string>("field_delim").size() != 1)
    return invalid_argument("field_delim \"{}\" must be one character", c.attr<std::string>("field_delim"));
  const auto& columns = c.attr<std::vector<int64_t>>("select_cols");
  if (!columns.empty() && static_cast<int>(columns.size()) != c.num_outputs())
    return invalid_argument("{} select_cols for {} fields", columns.size(), c.num_outputs());
  if (!std::ranges::is_sorted(columns)) return invalid_argument("select_cols must grow");
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.input(0));
  return {};
}

}  // namespace

void register_decode_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("DecodeRaw")
              .input("bytes: string")
              .output("output: out_type")
              .attr(type_attr("out_type", RawTypes{}))
              .attr("little_endian: bool = true")
              .shape(raw_shape)
              .doc("The bytes of equally long strings as numbers, on a new last dimension."),
          not_differentiable(kNoGradientOfStrings));
  kernels.add<DecodeRaw>("DecodeRaw", DeviceKind::kCpu, {});
  ops.add(OpDef("DecodePaddedRaw")
              .input("input_bytes: string")
              .input("fixed_length: int32")
              .output("output: out_type")
              .attr(type_attr("out_type", PaddedTypes{}))
              .attr("little_endian: bool = true")
              .shape(raw_shape)
              .doc("The bytes of strings as numbers, on a new last dimension: fixed_length bytes of each, zeros after "
                   "those that are shorter. Error for a fixed_length that is not a whole number of numbers."),
          not_differentiable(kNoGradientOfStrings));
  kernels.add<DecodeRaw>("DecodePaddedRaw", DeviceKind::kCpu, {});
  ops.add(OpDef("DecodeCSV")
              .input("records: string")
              .input("record_defaults: OUT_TYPE")
              .output("output: OUT_TYPE")
              .attr("OUT_TYPE: list({float32, float64, int32, int64, string}) >= 1")
              .attr("field_delim: string = ','")
              .attr("use_quote_delim: bool = true")
              .attr("na_value: string = ''")
              .attr("select_cols: list(int) = []")
              .shape(csv_shape)
              .doc("The fields of lines (RFC 4180), each as its type, those of `select_cols` alone where given. A "
                   "field that "
                   "is empty or `na_value` gets its default; without one it is an error, as is what is not a number."),
          not_differentiable(kNoGradientOfStrings));
  kernels.add<DecodeCsv>("DecodeCSV", DeviceKind::kCpu, {});
  ops.add(OpDef("SerializeTensor")
              .input("tensor: T")
              .output("serialized: string")
              .attr("T: type")
              .shape(scalar_shape)
              .doc("A tensor as the bytes of a TensorProto. Handles and lists are errors."),
          not_differentiable(kNoGradientOfStrings));
  kernels.add<SerializeTensor>("SerializeTensor", DeviceKind::kCpu, {});
  ops.add(OpDef("ParseTensor")
              .input("serialized: string")
              .output("output: out_type")
              .attr("out_type: type")
              .shape([](ShapeContext& c) { return c.with_rank(0, 0).status(); })
              .doc("The tensor that the bytes of a TensorProto hold. Fails for other bytes, and for a tensor of "
                   "another type."),
          not_differentiable(kNoGradientOfStrings));
  kernels.add<ParseTensor>("ParseTensor", DeviceKind::kCpu, {});
  ops.add(
      OpDef("DecodeCompressed")
          .input("bytes: string")
          .output("output: string")
          .attr("compression_type: string = ''")
          .shape(unchanged_shape)
          .doc("What each string has packed by compression_type 'ZLIB' or 'GZIP'; the strings themselves where that "
               "is ''. Error for one that is damaged or cut off."),
      not_differentiable(kNoGradientOfStrings));
  kernels.add<DecodeCompressed>("DecodeCompressed", DeviceKind::kCpu, {});
}

}  // namespace troupe
