// SPDX-License-Identifier: Apache-2.0
// The encodings of attributes and tensors in GraphDef.
#include "graph/graph_def/attr_proto.h"

#include <algorithm>

namespace troupe {
namespace {

proto::DataType type_number(DType t) { return static_cast<proto::DataType>(t); }

void write(const PartialShape& shape, proto::TensorShapeProto& out) {
  if (!shape.has_rank()) return out.set_unknown_rank(true);
  for (int64_t d : shape.dims()) out.add_dim()->set_size(d);
}

void write(const Tensor& t, proto::TensorProto& out) {
  out.set_dtype(type_number(t.dtype()));
  write(PartialShape(t.shape()), *out.mutable_tensor_shape());
  if (t.dtype() == DType::kString) {
    for (const std::string& s : t.values<std::string>()) out.add_string_val(s);
  } else if (t.defined() && !is_object(t.dtype())) {
    out.set_tensor_content(t.raw(), t.bytes());
  }
}

struct Writer {
  proto::AttrValue& out;
  void operator()(int64_t v) { out.set_i(v); }
  void operator()(float v) { out.set_f(v); }
  void operator()(bool v) { out.set_b(v); }
  void operator()(const std::string& v) { out.set_s(v); }
  void operator()(DType v) { out.set_type(type_number(v)); }
  void operator()(const PartialShape& v) { write(v, *out.mutable_shape()); }
  void operator()(const Tensor& v) { write(v, *out.mutable_tensor()); }
  template <class T> void operator()(const std::vector<T>& values) {
    proto::AttrValue::ListValue& list = *out.mutable_list();
    for (const T& v : values) add(list, v);
  }
  static void add(proto::AttrValue::ListValue& list, int64_t v) { list.add_i(v); }
  static void add(proto::AttrValue::ListValue& list, float v) { list.add_f(v); }
  static void add(proto::AttrValue::ListValue& list, bool v) { list.add_b(v); }
  static void add(proto::AttrValue::ListValue& list, const std::string& v) { list.add_s(v); }
  static void add(proto::AttrValue::ListValue& list, DType v) { list.add_type(type_number(v)); }
  static void add(proto::AttrValue::ListValue& list, const PartialShape& v) { write(v, *list.add_shape()); }
};

/// Quantised integers are the integers that they are made of.
int without_quantization(int number) {
  switch (number) {
    case proto::DT_QINT8: return proto::DT_INT8;
    case proto::DT_QUINT8: return proto::DT_UINT8;
    case proto::DT_QINT16: return proto::DT_INT16;
    case proto::DT_QUINT16: return proto::DT_UINT16;
    case proto::DT_QINT32: return proto::DT_INT32;
    default: return number;
  }
}

Result<DType> read_type(int number) {
  number = without_quantization(number);
  const auto type = static_cast<DType>(number);
  if (number >= 0 && number < 128 && is_known(type)) return type;
  const std::string name = proto::DataType_Name(static_cast<proto::DataType>(number));
  return make_error(Code::kUnimplemented, "type {} is not supported", name.empty() ? std::to_string(number) : name);
}

std::vector<int64_t> sizes(const proto::TensorShapeProto& shape) {
  std::vector<int64_t> out;
  for (const auto& d : shape.dim()) out.push_back(d.size());
  return out;
}

Result<PartialShape> read_shape(const proto::TensorShapeProto& shape) {
  if (shape.unknown_rank()) return PartialShape::unknown();
  return PartialShape::make(sizes(shape));
}

/// Fills `t` from `values`; the last is repeated, none at all means zeros.
template <class T, class Values> void fill(Tensor& t, const Values& values) {
  T* out = t.mutable_data<T>();
  const int64_t n = t.elements();
  T last{};
  for (int64_t i = 0; i < n; ++i) {
    if (i < values.size()) {
      if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) last.bits = values[static_cast<int>(i)];
      else last = static_cast<T>(values[static_cast<int>(i)]);
    }
    out[i] = last;
  }
}

template <class R> void fill_complex(Tensor& t, const google::protobuf::RepeatedField<R>& values) {
  auto* out = t.mutable_data<std::complex<R>>();
  std::complex<R> last{};
  for (int64_t i = 0; i < t.elements(); ++i) {
    if (2 * i + 1 < values.size()) last = {values[static_cast<int>(2 * i)], values[static_cast<int>(2 * i + 1)]};
    out[i] = last;
  }
}

void fill_values(Tensor& t, const proto::TensorProto& value) {
  switch (t.dtype()) {
    case DType::kFloat32: return fill<float>(t, value.float_val());
    case DType::kFloat64: return fill<double>(t, value.double_val());
    case DType::kInt32: return fill<int32_t>(t, value.int_val());
    case DType::kUInt8: return fill<uint8_t>(t, value.int_val());
    case DType::kInt16: return fill<int16_t>(t, value.int_val());
    case DType::kInt8: return fill<int8_t>(t, value.int_val());
    case DType::kUInt16: return fill<uint16_t>(t, value.int_val());
    case DType::kInt64: return fill<int64_t>(t, value.int64_val());
    case DType::kBool: return fill<bool>(t, value.bool_val());
    case DType::kBFloat16: return fill<bfloat16>(t, value.half_val());
    case DType::kFloat16: return fill<float16>(t, value.half_val());
    case DType::kUInt32: return fill<uint32_t>(t, value.uint32_val());
    case DType::kUInt64: return fill<uint64_t>(t, value.uint64_val());
    case DType::kString: return fill<std::string>(t, value.string_val());
    case DType::kComplex64: return fill_complex(t, value.scomplex_val());
    case DType::kComplex128: return fill_complex(t, value.dcomplex_val());
    default: return;
  }
}

/// How many elements the typed field of this dtype holds.
int64_t count_values(DType dtype, const proto::TensorProto& value) {
  switch (dtype) {
    case DType::kFloat32: return value.float_val_size();
    case DType::kFloat64: return value.double_val_size();
    case DType::kInt64: return value.int64_val_size();
    case DType::kBool: return value.bool_val_size();
    case DType::kBFloat16:
    case DType::kFloat16: return value.half_val_size();
    case DType::kUInt32: return value.uint32_val_size();
    case DType::kUInt64: return value.uint64_val_size();
    case DType::kString: return value.string_val_size();
    case DType::kComplex64: return value.scomplex_val_size() / 2;
    case DType::kComplex128: return value.dcomplex_val_size() / 2;
    default: return value.int_val_size();
  }
}

Result<uint32_t> take_varint(std::string_view& bytes) {
  uint32_t out = 0;
  for (int shift = 0; shift < 35 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(1);
    out |= static_cast<uint32_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return out;
  }
  return invalid_argument("tensor of strings: its lengths end early");
}

/// Strings as raw bytes: the lengths of all as varints, then all characters.
Result<Tensor> strings_from_content(std::string_view content, const Shape& shape) {
  const int64_t n = shape.elements();
  if (n > static_cast<int64_t>(content.size()))
    return invalid_argument("tensor of {} strings has {} bytes", n, content.size());
  std::vector<uint32_t> lengths;
  for (int64_t i = 0; i < n; ++i) {
    TROUPE_ASSIGN(const uint32_t length, take_varint(content));
    lengths.push_back(length);
  }
  TROUPE_ASSIGN(Tensor t, Tensor::make(DType::kString, shape));
  for (int64_t i = 0; i < n; ++i) {
    if (lengths[i] > content.size())
      return invalid_argument("string {} of a tensor has {} bytes, but {} are left", i, lengths[i], content.size());
    t.mutable_data<std::string>()[i] = content.substr(0, lengths[i]);
    content.remove_prefix(lengths[i]);
  }
  return t;
}

/// Which list a ListValue is; the schema's word decides where it is empty.
template <class T, class Values, class Read> Result<AttrValue> read_list(const Values& values, Read read) {
  std::vector<T> out;
  for (const auto& v : values) {
    TROUPE_ASSIGN(T item, read(v));
    out.push_back(std::move(item));
  }
  return AttrValue(std::move(out));
}

Result<AttrValue> read_list(const proto::AttrValue::ListValue& list, std::string_view type) {
  if (list.func_size()) return make_error(Code::kUnimplemented, "lists of functions are not supported");
  if (list.tensor_size()) return make_error(Code::kUnimplemented, "lists of tensors are not supported");
  const bool empty =
      !list.s_size() && !list.i_size() && !list.f_size() && !list.b_size() && !list.type_size() && !list.shape_size();
  const auto is = [&](int size, std::string_view word) { return size > 0 || (empty && type == word); };
  if (is(list.i_size(), "list(int)")) return AttrValue(std::vector<int64_t>(list.i().begin(), list.i().end()));
  if (is(list.f_size(), "list(float)")) return AttrValue(std::vector<float>(list.f().begin(), list.f().end()));
  if (is(list.b_size(), "list(bool)")) return AttrValue(std::vector<bool>(list.b().begin(), list.b().end()));
  if (is(list.type_size(), "list(type)")) return read_list<DType>(list.type(), read_type);
  if (is(list.shape_size(), "list(shape)")) return read_list<PartialShape>(list.shape(), read_shape);
  return AttrValue(std::vector<std::string>(list.s().begin(), list.s().end()));
}

}  // namespace

std::vector<int64_t> quantized_types(const proto::AttrValue& value) {
  std::vector<int64_t> out;
  if (value.value_case() == proto::AttrValue::kType) out.push_back(value.type());
  else if (value.value_case() == proto::AttrValue::kTensor) out.push_back(value.tensor().dtype());
  else if (value.value_case() == proto::AttrValue::kList)
    for (const int type : value.list().type()) out.push_back(type);
  if (std::ranges::all_of(out, [](int64_t t) { return without_quantization(static_cast<int>(t)) == t; })) out.clear();
  return out;
}

void set_types(const std::vector<int64_t>& types, proto::AttrValue& out) {
  const auto with = [](int64_t quantized, int plain) {
    const int type = static_cast<int>(quantized);
    return static_cast<proto::DataType>(without_quantization(type) == plain ? type : plain);
  };
  if (out.value_case() == proto::AttrValue::kList) {
    auto& list = *out.mutable_list()->mutable_type();
    for (int i = 0; i < list.size() && i < static_cast<int>(types.size()); ++i)
      list.Set(i, with(types[static_cast<size_t>(i)], list.Get(i)));
  } else if (types.size() == 1) {
    if (out.value_case() == proto::AttrValue::kType) out.set_type(with(types[0], out.type()));
    else if (out.value_case() == proto::AttrValue::kTensor)
      out.mutable_tensor()->set_dtype(with(types[0], out.tensor().dtype()));
  }
}

void to_proto(const AttrValue& value, proto::AttrValue& out) { std::visit(Writer{out}, value); }

Result<AttrValue> ProtoReader::attr(const proto::AttrValue& value, std::string_view type) {
  switch (value.value_case()) {
    case proto::AttrValue::kS: return AttrValue(value.s());
    case proto::AttrValue::kI: return AttrValue(static_cast<int64_t>(value.i()));
    case proto::AttrValue::kF: return AttrValue(value.f());
    case proto::AttrValue::kB: return AttrValue(value.b());
    case proto::AttrValue::kType: {
      TROUPE_ASSIGN(const DType t, read_type(value.type()));
      return AttrValue(t);
    }
    case proto::AttrValue::kShape: {
      TROUPE_ASSIGN(PartialShape shape, read_shape(value.shape()));
      return AttrValue(std::move(shape));
    }
    case proto::AttrValue::kTensor: {
      TROUPE_ASSIGN(Tensor t, tensor(value.tensor()));
      return AttrValue(std::move(t));
    }
    case proto::AttrValue::kList: return read_list(value.list(), type);
    case proto::AttrValue::kFunc:
      return make_error(Code::kUnimplemented, "functions are not supported (here '{}')", value.func().name());
    case proto::AttrValue::kPlaceholder: return invalid_argument("is a placeholder, '{}'", value.placeholder());
    case proto::AttrValue::VALUE_NOT_SET: break;
  }
  return invalid_argument("has no value");
}

Result<Tensor> ProtoReader::of_content(std::string_view content, const Tensor* apart, DType dtype, const Shape& shape) {
  if (dtype == DType::kString) return strings_from_content(content, shape);
  const auto bytes = shape.elements() * static_cast<int64_t>(size_of(dtype));
  if (bytes != static_cast<int64_t>(content.size()))
    return invalid_argument("tensor {} {} needs {} bytes, but has {}", to_string(dtype), shape.str(), bytes,
                            content.size());
  if (apart && dtype != DType::kBool) return apart->bitcast(dtype, shape);
  TROUPE_ASSIGN(Tensor t, Tensor::make(dtype, shape));
  if (dtype == DType::kBool) std::ranges::transform(content, t.mutable_data<bool>(), [](char c) { return c != 0; });
  else std::memcpy(t.mutable_raw(), content.data(), content.size());
  return t;
}

Result<Tensor> ProtoReader::tensor(const proto::TensorProto& value) {
  TROUPE_ASSIGN(const DType dtype, read_type(value.dtype()));
  if (is_object(dtype) && dtype != DType::kString)
    return make_error(Code::kUnimplemented, "tensors of {}s cannot be read", to_string(dtype));
  if (value.tensor_shape().unknown_rank()) return invalid_argument("a tensor must have a known shape");
  TROUPE_ASSIGN(const Shape shape, Shape::make(sizes(value.tensor_shape())));
  const int64_t n = shape.elements();
  if (const uint32_t at = value.content_apart(); at > 0) {
    if (at > apart_.size()) return invalid_argument("a tensor's content must come with it, not apart as number {}", at);
    const Tensor& apart = apart_[at - 1];
    return of_content({reinterpret_cast<const char*>(apart.data<uint8_t>()), apart.bytes()}, &apart, dtype, shape);
  }
  if (!value.tensor_content().empty()) return of_content(value.tensor_content(), nullptr, dtype, shape);
  if (n == 0) return Tensor::make(dtype, shape);  // TensorFlow writes the value that a tf.zeros would repeat
  const int64_t given = count_values(dtype, value);
  if (given > n)
    return invalid_argument("tensor {} {} has {} values, more than fit", to_string(dtype), shape.str(), given);
  if (given < n) {
    const auto size = static_cast<int64_t>(size_of(dtype));
    if (n - given > (kMostRepeated - repeated_bytes_) / size)
      return make_error(Code::kResourceExhausted,
                        "tensor {} {} has only {} values and would be filled up beyond {} bytes", to_string(dtype),
                        shape.str(), given, kMostRepeated);
    repeated_bytes_ += (n - given) * size;
  }
  TROUPE_ASSIGN(Tensor t, Tensor::make(dtype, shape));
  fill_values(t, value);
  return t;
}

}  // namespace troupe
