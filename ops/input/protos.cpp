// SPDX-License-Identifier: Apache-2.0
// Protocol buffers whose types are known when the graph runs: DecodeProtoV2, EncodeProto, DecodeJSONExample.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <mutex>

#include "ops/input/register.h"
#include "ops/parts/index_tensors.h"
#include "troupe/kernel.h"
#include "troupe/op_cost.h"

namespace troupe {
namespace {

namespace pb = google::protobuf;
using Field = pb::FieldDescriptor;

/// Says nothing of what protobuf finds wrong: the op's error does.
class Silent final : public pb::DescriptorPool::ErrorCollector, public pb::io::ErrorCollector {
 public:
  std::string first;
  void AddError(const std::string&, const std::string& element, const pb::Message*, ErrorLocation,
                const std::string& message) override {
    if (first.empty()) first = element + ": " + message;
  }
  void AddError(int line, int, const std::string& message) override {
    if (first.empty()) first = fmt::format("line {}: {}", line + 1, message);
  }
};

/// Messages within messages in a text; of bytes protobuf takes as many.
constexpr int kMostNestedTexts = 100;

/// A message's type, and what makes messages of it.
class MessageType {
 public:
  static Result<std::shared_ptr<MessageType>> make(const pb::FileDescriptorSet& files, const std::string& name) {
    auto out = std::make_shared<MessageType>();
    Silent errors;
    for (const pb::FileDescriptorProto& file : files.file())
      if (!out->pool_.BuildFileCollectingErrors(file, &errors))
        return invalid_argument("file '{}' of the descriptors is wrong: {}", file.name(), errors.first);
    out->type_ = out->pool_.FindMessageTypeByName(name);
    if (!out->type_) return invalid_argument("the descriptors have no message type '{}'", name);
    out->prototype_ = out->factory_.GetPrototype(out->type_);
    return out;
  }
  /// By the attributes message_type and descriptor_source.
  static Result<std::shared_ptr<MessageType>> make(const KernelInit& init) {
    constexpr std::string_view kBytes = "bytes://";
    std::string source = init.attr<std::string>("descriptor_source");
    if (!source.starts_with(kBytes))
      return invalid_argument("descriptor_source must be bytes:// and the bytes of a FileDescriptorSet");
    source.erase(0, kBytes.size());
    pb::FileDescriptorSet files;
    if (!files.ParseFromString(source))
      return invalid_argument("descriptor_source has {} bytes, which are not a FileDescriptorSet", source.size());
    return make(files, init.attr<std::string>("message_type"));
  }

  std::unique_ptr<pb::Message> message() const { return std::unique_ptr<pb::Message>(prototype_->New()); }
  Result<std::vector<const Field*>> fields(const std::vector<std::string>& names) const {
    std::vector<const Field*> out;
    for (const std::string& name : names) {
      const Field* field = type_->FindFieldByName(name);
      if (!field) field = pool_.FindExtensionByName(name);
      if (!field || field->containing_type() != type_)
        return invalid_argument("message type '{}' has no field '{}'", type_->full_name(), name);
      out.push_back(field);
    }
    return out;
  }

 private:
  pb::DescriptorPool pool_;
  pb::DynamicMessageFactory factory_{&pool_};
  const pb::Descriptor* type_ = nullptr;
  const pb::Message* prototype_ = nullptr;
};

/// The types of tensors that a field's values fit in, the usual one first.
std::vector<DType> types_for(const Field& field) {
  switch (field.cpp_type()) {
    case Field::CPPTYPE_INT32: return {DType::kInt32, DType::kInt64};
    case Field::CPPTYPE_INT64: return {DType::kInt64};
    case Field::CPPTYPE_UINT32: return {DType::kUInt32, DType::kUInt64};
    case Field::CPPTYPE_UINT64: return {DType::kUInt64};
    case Field::CPPTYPE_DOUBLE: return {DType::kFloat64};
    case Field::CPPTYPE_FLOAT: return {DType::kFloat32, DType::kFloat64};
    case Field::CPPTYPE_BOOL: return {DType::kBool};
    case Field::CPPTYPE_ENUM: return {DType::kInt32};
    case Field::CPPTYPE_STRING:
    case Field::CPPTYPE_MESSAGE: return {DType::kString};
  }
  return {};
}

Status check_types(const std::vector<const Field*>& fields, const std::vector<DType>& dtypes) {
  if (fields.size() != dtypes.size()) return invalid_argument("{} types for {} fields", dtypes.size(), fields.size());
  for (size_t i = 0; i < fields.size(); ++i)
    if (const auto fit = types_for(*fields[i]); std::ranges::find(fit, dtypes[i]) == fit.end())
      return invalid_argument("field '{}' is {}, not {}", fields[i]->name(), fields[i]->type_name(),
                              to_string(dtypes[i]));
  return {};
}

/// Writes a number to element `at`.
template <class V> void put(Tensor& out, int64_t at, V value) {
  switch (out.dtype()) {
    case DType::kInt32: out.mutable_data<int32_t>()[at] = static_cast<int32_t>(value); return;
    case DType::kInt64: out.mutable_data<int64_t>()[at] = static_cast<int64_t>(value); return;
    case DType::kUInt32: out.mutable_data<uint32_t>()[at] = static_cast<uint32_t>(value); return;
    case DType::kUInt64: out.mutable_data<uint64_t>()[at] = static_cast<uint64_t>(value); return;
    case DType::kFloat32: out.mutable_data<float>()[at] = static_cast<float>(value); return;
    case DType::kFloat64: out.mutable_data<double>()[at] = static_cast<double>(value); return;
    default: out.mutable_data<bool>()[at] = static_cast<bool>(value);
  }
}

/// Value k of a field, or, where `k` is -1, its default, to element `at`.
void read_value(const pb::Message& m, const Field* f, int k, Tensor& out, int64_t at) {
  const pb::Reflection& r = *m.GetReflection();
  const bool repeated = f->is_repeated(), no = k < 0;
  switch (f->cpp_type()) {
#define TROUPE_READ(type, Name, name) \
  case Field::CPPTYPE_##type:         \
    return put(out, at, no ? f->default_value_##name() : repeated ? r.GetRepeated##Name(m, f, k) : r.Get##Name(m, f));
    TROUPE_READ(INT32, Int32, int32_t)
    TROUPE_READ(INT64, Int64, int64_t)
    TROUPE_READ(UINT32, UInt32, uint32_t)
    TROUPE_READ(UINT64, UInt64, uint64_t)
    TROUPE_READ(DOUBLE, Double, double)
    TROUPE_READ(FLOAT, Float, float)
    TROUPE_READ(BOOL, Bool, bool)
#undef TROUPE_READ
    case Field::CPPTYPE_ENUM:
      return put(out, at,
                 no         ? f->default_value_enum()->number()
                 : repeated ? r.GetRepeatedEnumValue(m, f, k)
                            : r.GetEnumValue(m, f));
    case Field::CPPTYPE_STRING:
      out.mutable_data<std::string>()[at] = no         ? f->default_value_string()
                                            : repeated ? r.GetRepeatedString(m, f, k)
                                                       : r.GetString(m, f);
      return;
    case Field::CPPTYPE_MESSAGE:
      out.mutable_data<std::string>()[at] =
          no ? std::string()
             : (repeated ? r.GetRepeatedMessage(m, f, k) : r.GetMessage(m, f)).SerializePartialAsString();
  }
}

template <class V> V number_at(const Tensor& in, int64_t at) {
  switch (in.dtype()) {
    case DType::kInt32: return static_cast<V>(in.data<int32_t>()[at]);
    case DType::kInt64: return static_cast<V>(in.data<int64_t>()[at]);
    case DType::kUInt32: return static_cast<V>(in.data<uint32_t>()[at]);
    case DType::kUInt64: return static_cast<V>(in.data<uint64_t>()[at]);
    case DType::kFloat32: return static_cast<V>(in.data<float>()[at]);
    case DType::kFloat64: return static_cast<V>(in.data<double>()[at]);
    default: return static_cast<V>(in.data<bool>()[at]);
  }
}

/// Sets a field, or adds a value to a repeated one. Error: a message that cannot be read.
Status write_value(pb::Message& m, const Field* f, const Tensor& in, int64_t at) {
  const pb::Reflection& r = *m.GetReflection();
  const bool repeated = f->is_repeated();
  switch (f->cpp_type()) {
#define TROUPE_WRITE(type, Name, V)                                                                 \
  case Field::CPPTYPE_##type:                                                                       \
    repeated ? r.Add##Name(&m, f, number_at<V>(in, at)) : r.Set##Name(&m, f, number_at<V>(in, at)); \
    return {};
    TROUPE_WRITE(INT32, Int32, int32_t)
    TROUPE_WRITE(INT64, Int64, int64_t)
    TROUPE_WRITE(UINT32, UInt32, uint32_t)
    TROUPE_WRITE(UINT64, UInt64, uint64_t)
    TROUPE_WRITE(DOUBLE, Double, double)
    TROUPE_WRITE(FLOAT, Float, float)
    TROUPE_WRITE(BOOL, Bool, bool)
    TROUPE_WRITE(ENUM, EnumValue, int)
#undef TROUPE_WRITE
    case Field::CPPTYPE_STRING:
      repeated ? r.AddString(&m, f, in.data<std::string>()[at]) : r.SetString(&m, f, in.data<std::string>()[at]);
      return {};
    case Field::CPPTYPE_MESSAGE:
      if (!(repeated ? r.AddMessage(&m, f) : r.MutableMessage(&m, f))
               ->ParsePartialFromString(in.data<std::string>()[at]))
        return invalid_argument("field '{}': value {} is not a {}", f->name(), at, f->message_type()->full_name());
  }
  return {};
}

class DecodeProto final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    auto out = std::make_unique<DecodeProto>();
    TROUPE_ASSIGN(out->type_, MessageType::make(init));
    TROUPE_ASSIGN(out->fields_, out->type_->fields(init.attr<std::vector<std::string>>("field_names")));
    out->dtypes_ = init.attr<std::vector<DType>>("output_types");
    TROUPE_RETURN_IF_ERROR(check_types(out->fields_, out->dtypes_));
    const auto format = init.attr<std::string>("message_format");
    if (format != "binary" && format != "text")
      return invalid_argument("message_format must be binary or text, got {}", format);
    out->text_ = format == "text";
    return std::unique_ptr<ComputeKernel>(std::move(out));
  }

  Status compute(KernelContext& c) override {
    const Tensor& bytes = c.input(0);
    const auto count = std::ssize(fields_);
    std::vector<std::unique_ptr<pb::Message>> messages;
    Shape shape = bytes.shape();
    if (shape.rank() == kMaxRank) return invalid_argument("bytes have {} dimensions, the most there are", kMaxRank);
    shape.push_back(count);
    TROUPE_ASSIGN(Tensor sizes, c.allocate(DType::kInt32, shape));
    std::vector<int32_t> most(fields_.size(), 1);  // as TensorFlow has it
    int32_t* size = sizes.mutable_data<int32_t>();
    for (const std::string& in : bytes.values<std::string>()) {
      messages.push_back(type_->message());
      TROUPE_RETURN_IF_ERROR(parse(in, *messages.back(), messages.size() - 1));
      const pb::Reflection& r = *messages.back()->GetReflection();
      for (size_t f = 0; f < fields_.size(); ++f, ++size) {
        *size = fields_[f]->is_repeated() ? r.FieldSize(*messages.back(), fields_[f])
                                          : static_cast<int32_t>(r.HasField(*messages.back(), fields_[f]));
        most[f] = std::max(most[f], *size);
      }
    }
    for (size_t f = 0; f < fields_.size(); ++f) {
      shape.set(shape.rank() - 1, most[f]);
      TROUPE_ASSIGN(Tensor values, c.allocate(dtypes_[f], shape));
      int64_t at = 0;
      for (size_t m = 0; m < messages.size(); ++m) {
        const int32_t n = sizes.data<int32_t>()[m * fields_.size() + f];
        for (int32_t k = 0; k < most[f]; ++k) read_value(*messages[m], fields_[f], k < n ? k : -1, values, at++);
      }
      c.set_output(static_cast<int>(f) + 1, std::move(values));
    }
    c.set_output(0, std::move(sizes));
    return {};
  }

 private:
  Status parse(const std::string& in, pb::Message& out, size_t index) const {
    if (!text_)
      return out.ParsePartialFromString(in) ? Status()
                                            : invalid_argument("message {}: {} bytes are not a {}", index, in.size(),
                                                               out.GetDescriptor()->full_name());
    Silent errors;
    pb::TextFormat::Parser parser;
    parser.RecordErrorsTo(&errors);
    parser.AllowPartialMessage(true);
    parser.SetRecursionLimit(kMostNestedTexts);
    if (parser.ParseFromString(in, &out)) return {};
    return invalid_argument("message {} is not the text of a {}: {}", index, out.GetDescriptor()->full_name(),
                            errors.first);
  }

  std::shared_ptr<MessageType> type_;
  std::vector<const Field*> fields_;
  std::vector<DType> dtypes_;
  bool text_ = false;
};

class EncodeProto final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    auto out = std::make_unique<EncodeProto>();
    TROUPE_ASSIGN(out->type_, MessageType::make(init));
    TROUPE_ASSIGN(out->fields_, out->type_->fields(init.attr<std::vector<std::string>>("field_names")));
    TROUPE_RETURN_IF_ERROR(check_types(out->fields_, init.attr<std::vector<DType>>("Tinput_types")));
    return std::unique_ptr<ComputeKernel>(std::move(out));
  }

  Status compute(KernelContext& c) override {
    const Tensor& sizes = c.input(0);
    const auto count = std::ssize(fields_);
    if (sizes.rank() < 1 || sizes.dim(-1) != count)
      return invalid_argument("sizes must have {} numbers for each message, got {}", count, sizes.shape().str());
    Shape shape = sizes.shape();
    shape.erase(shape.rank() - 1);
    for (size_t f = 0; f < fields_.size(); ++f) {
      const Shape& of = c.input(static_cast<int>(f) + 1).shape();
      bool fits = of.rank() == sizes.rank();
      for (int d = 0; fits && d < shape.rank(); ++d) fits = of[d] == shape[d];
      if (!fits)
        return invalid_argument("values of field '{}' have shape {}, for messages {}", fields_[f]->name(), of.str(),
                                shape.str());
    }
    TROUPE_ASSIGN(Tensor out, c.allocate(DType::kString, shape));
    const int32_t* size = sizes.data<int32_t>();
    for (int64_t m = 0; m < shape.elements(); ++m) {
      const auto message = type_->message();
      for (size_t f = 0; f < fields_.size(); ++f, ++size) {
        const Tensor& values = c.input(static_cast<int>(f) + 1);
        const int64_t most = values.dim(-1);
        if (*size < 0 || *size > most || (*size > 1 && !fields_[f]->is_repeated()))
          return invalid_argument("size {} of field '{}' in message {}, which has {} values", *size, fields_[f]->name(),
                                  m, fields_[f]->is_repeated() ? most : std::min<int64_t>(most, 1));
        for (int32_t k = 0; k < *size; ++k)
          TROUPE_RETURN_IF_ERROR(write_value(*message, fields_[f], values, m * most + k));
      }
      out.mutable_data<std::string>()[m] = serialized(*message);
    }
    c.set_output(0, std::move(out));
    return {};
  }

  /// The same bytes each time, of maps too.
  static std::string serialized(const pb::Message& message) {
    std::string out;
    {
      pb::io::StringOutputStream stream(&out);
      pb::io::CodedOutputStream coded(&stream);
      coded.SetSerializationDeterministic(true);
      message.SerializePartialToCodedStream(&coded);
    }
    return out;
  }

 private:
  std::shared_ptr<MessageType> type_;
  std::vector<const Field*> fields_;
};

/// tf.train.Example as its JSON names it: features is a map. TensorFlow does not pack what it reads from JSON.
constexpr const char* kExample = R"(file { name: 'example' package: 'tensorflow' syntax: 'proto3'
  message_type { name: 'BytesList' field { name: 'value' number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
  message_type { name: 'FloatList' field { name: 'value' number: 1 label: LABEL_REPEATED type: TYPE_FLOAT options { packed: false } } }
  message_type { name: 'Int64List' field { name: 'value' number: 1 label: LABEL_REPEATED type: TYPE_INT64 options { packed: false } } }
  message_type { name: 'Feature' oneof_decl { name: 'kind' }
    field { name: 'bytes_list' number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: '.tensorflow.BytesList' oneof_index: 0 }
    field { name: 'float_list' number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: '.tensorflow.FloatList' oneof_index: 0 }
    field { name: 'int64_list' number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: '.tensorflow.Int64List' oneof_index: 0 } }
  message_type { name: 'Features'
    field { name: 'feature' number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: '.tensorflow.Features.FeatureEntry' }
    nested_type { name: 'FeatureEntry' options { map_entry: true }
      field { name: 'key' number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
      field { name: 'value' number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: '.tensorflow.Feature' } } }
  message_type { name: 'Example'
    field { name: 'features' number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: '.tensorflow.Features' } } })";

class DecodeJson final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit&) {
    auto out = std::make_unique<DecodeJson>();
    pb::FileDescriptorSet files;
    pb::TextFormat::ParseFromString(kExample, &files);
    TROUPE_ASSIGN(out->type_, MessageType::make(files, "tensorflow.Example"));
    return std::unique_ptr<ComputeKernel>(std::move(out));
  }
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(Tensor out, c.allocate(DType::kString, c.input(0).shape()));
    std::string* to = out.mutable_data<std::string>();
    for (int64_t i = 0; i < out.elements(); ++i) {
      const auto message = type_->message();
      const auto read = pb::util::JsonStringToMessage(c.input(0).data<std::string>()[i], message.get());
      if (!read.ok())
        return invalid_argument("example {} is not the JSON of a tf.Example: {}", i, std::string(read.message()));
      to[i] = EncodeProto::serialized(*message);
    }
    c.set_output(0, std::move(out));
    return {};
  }

 private:
  std::shared_ptr<MessageType> type_;
};

/// The output shapes of a DecodeProtoV2.
Status decode_proto_shape(ShapeContext& c) {
  const auto count = static_cast<int64_t>(c.attr<std::vector<std::string>>("field_names").size());
  if (c.num_outputs() != count + 1)
    return invalid_argument("{} field_names but {} output_types", count, c.num_outputs() - 1);
  PartialShape shape = c.input(0);
  if (!shape.has_rank()) return {};
  if (shape.rank() == kMaxRank) return invalid_argument("bytes have {} dimensions, the most there are", kMaxRank);
  shape.push_back(count);
  c.set_output(0, shape);
  shape.set(shape.rank() - 1, -1);
  for (int i = 1; i < c.num_outputs(); ++i) c.set_output(i, shape);
  return {};
}

}  // namespace

void register_proto_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const Gradient none = not_differentiable("messages are strings");
  ops.add(OpDef("DecodeProtoV2")
              .input("bytes: string")
              .output("sizes: int32")
              .output("values: output_types")
              .attr("message_type: string")
              .attr("field_names: list(string)")
              .attr("output_types: list(type) >= 0")
              .attr("descriptor_source: string = 'local://'")
              .attr("message_format: string = 'binary'")
              .attr("sanitize: bool = false")
              .shape(decode_proto_shape)
              .cost(move_cost)
              .doc("Of each message how many values each of field_names has, and for each field the values, as many "
                   "as the longest of them has, or 1; shorter ones have its default behind. descriptor_source is "
                   "\"bytes://\" and the bytes of a FileDescriptorSet. Messages within are bytes, enumerations "
                   "int32. sanitize makes no difference. Errors: bytes that are not such a message; types that do "
                   "not fit."),
          none);
  kernels.add("DecodeProtoV2", DeviceKind::kCpu, {}, DecodeProto::make);
  ops.add(OpDef("EncodeProto")
              .input("sizes: int32")
              .input("values: Tinput_types")
              .output("bytes: string")
              .attr("field_names: list(string)")
              .attr("message_type: string")
              .attr("descriptor_source: string = 'local://'")
              .attr("Tinput_types: list(type) >= 1")
              .shape([](ShapeContext& c) -> Status {
                TROUPE_ASSIGN(PartialShape shape, c.with_rank_at_least(0, 1));
                if (shape.has_rank()) {
                  PartialShape out = PartialShape::scalar();
                  for (int d = 0; d + 1 < shape.rank(); ++d) out.push_back(shape[d]);
                  c.set_output(0, out);
                }
                return {};
              })
              .cost(move_cost)
              .doc("Messages of which each of field_names has the first of its values, so many as sizes says. What "
                   "DecodeProtoV2 takes apart. Errors: a size beyond the values; types that do not fit."),
          none);
  kernels.add("EncodeProto", DeviceKind::kCpu, {}, EncodeProto::make);
  ops.add(OpDef("DecodeJSONExample")
              .input("json_examples: string")
              .output("binary_examples: string")
              .shape(unchanged_shape)
              .cost(move_cost)
              .doc("tf.Example records from their JSON. Error: text that is something else."),
          none);
  kernels.add("DecodeJSONExample", DeviceKind::kCpu, {}, DecodeJson::make);
}

}  // namespace troupe
