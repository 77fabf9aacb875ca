// SPDX-License-Identifier: Apache-2.0
// Values are in the typed fields of a TensorProto, one for one: small integers as int32, float16 as its bits.
#include "io/slice_checkpoint.h"

#include <algorithm>
#include <map>

#include "io/damage.h"
#include "io/replacing_file.h"
#include "io/saved_tensors.pb.h"
#include "io/slice_text.h"

namespace troupe {
namespace {

constexpr int kSliceVersion = 1;
constexpr uint64_t kMostMessage = INT32_MAX - 4096;  // of a message

template <class T, class Field> void put_values(const Tensor& from, Field& field) {
  field.Reserve(static_cast<int>(from.elements()));
  for (const T& value : from.values<T>()) {
    if constexpr (std::is_same_v<T, float16>) field.Add(value.bits);
    else field.Add(value);
  }
}

/// The parts of complex numbers, one behind the other.
template <class T, class Field> void put_complex(const Tensor& from, Field& field) {
  for (const T& value : from.values<T>()) {
    field.Add(value.real());
    field.Add(value.imag());
  }
}

/// The values of a tensor whose dtype these files hold; false for another dtype.
bool put_tensor(const Tensor& from, proto::SavedValues& out) {
  switch (from.dtype()) {
    case DType::kFloat32: put_values<float>(from, *out.mutable_float_val()); return true;
    case DType::kFloat64: put_values<double>(from, *out.mutable_double_val()); return true;
    case DType::kInt32: put_values<int32_t>(from, *out.mutable_int_val()); return true;
    case DType::kUInt8: put_values<uint8_t>(from, *out.mutable_int_val()); return true;
    case DType::kInt16: put_values<int16_t>(from, *out.mutable_int_val()); return true;
    case DType::kInt8: put_values<int8_t>(from, *out.mutable_int_val()); return true;
    case DType::kUInt16: put_values<uint16_t>(from, *out.mutable_int_val()); return true;
    case DType::kInt64: put_values<int64_t>(from, *out.mutable_int64_val()); return true;
    case DType::kBool: put_values<bool>(from, *out.mutable_bool_val()); return true;
    case DType::kFloat16: put_values<float16>(from, *out.mutable_half_val()); return true;
    case DType::kString:
      for (const std::string& text : from.values<std::string>()) out.add_string_val(text);
      return true;
    case DType::kComplex64: put_complex<complex64>(from, *out.mutable_scomplex_val()); return true;
    case DType::kComplex128: put_complex<complex128>(from, *out.mutable_dcomplex_val()); return true;
    default: return false;
  }
}

Error wrong_count(int64_t count, const Shape& shape) {
  return make_error(Code::kDataLoss, "{} values for the shape {}", count, shape.str());
}

/// A tensor of the values of a field, which must be as many as there are elements and within the dtype.
template <class T, class Field>
Result<Tensor> take_values(const Field& field, const Shape& shape, const std::shared_ptr<Allocator>& allocator) {
  if (field.size() != shape.elements()) return wrong_count(field.size(), shape);
  TROUPE_ASSIGN(Tensor out, Tensor::make(dtype_of<T>, shape, allocator));
  T* to = out.template mutable_data<T>();
  for (const auto& value : field) {
    if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) {
      if (value < 0 || value > UINT16_MAX)
        return make_error(Code::kDataLoss, "{} for the bits of a {}", value, to_string(dtype_of<T>));
      to->bits = static_cast<uint16_t>(value);
    } else if constexpr (std::is_integral_v<T> && sizeof(T) < 4) {
      *to = static_cast<T>(value);
      if (*to != value) return make_error(Code::kDataLoss, "{} for a {}", value, to_string(dtype_of<T>));
    } else {
      *to = value;
    }
    ++to;
  }
  return out;
}

/// The same of complex numbers, of which the field has the parts.
template <class T, class Field>
Result<Tensor> take_complex(const Field& parts, const Shape& shape, const std::shared_ptr<Allocator>& allocator) {
  if (parts.size() / 2 != shape.elements() || parts.size() % 2 != 0) return wrong_count(parts.size() / 2, shape);
  TROUPE_ASSIGN(Tensor out, Tensor::make(dtype_of<T>, shape, allocator));
  T* to = out.template mutable_data<T>();
  for (int i = 0; i < parts.size(); i += 2) *to++ = {parts[i], parts[i + 1]};
  return out;
}

Result<Tensor> take_tensor(DType dtype, const proto::SavedValues& from, const Shape& shape,
                           const std::shared_ptr<Allocator>& allocator) {
  switch (dtype) {
    case DType::kFloat32: return take_values<float>(from.float_val(), shape, allocator);
    case DType::kFloat64: return take_values<double>(from.double_val(), shape, allocator);
    case DType::kInt32: return take_values<int32_t>(from.int_val(), shape, allocator);
    case DType::kUInt8: return take_values<uint8_t>(from.int_val(), shape, allocator);
    case DType::kInt16: return take_values<int16_t>(from.int_val(), shape, allocator);
    case DType::kInt8: return take_values<int8_t>(from.int_val(), shape, allocator);
    case DType::kUInt16: return take_values<uint16_t>(from.int_val(), shape, allocator);
    case DType::kUInt32: return take_values<uint32_t>(from.uint32_val(), shape, allocator);
    case DType::kUInt64: return take_values<uint64_t>(from.uint64_val(), shape, allocator);
    case DType::kInt64: return take_values<int64_t>(from.int64_val(), shape, allocator);
    case DType::kBool: return take_values<bool>(from.bool_val(), shape, allocator);
    case DType::kFloat16: return take_values<float16>(from.half_val(), shape, allocator);
    case DType::kBFloat16: return take_values<bfloat16>(from.half_val(), shape, allocator);
    case DType::kString: return take_values<std::string>(from.string_val(), shape, allocator);
    case DType::kComplex64: return take_complex<complex64>(from.scomplex_val(), shape, allocator);
    case DType::kComplex128: return take_complex<complex128>(from.dcomplex_val(), shape, allocator);
    default: return make_error(Code::kUnimplemented, "{} is not supported in checkpoints", to_string(dtype));
  }
}

class SliceSource final : public PartSource {
 public:
  explicit SliceSource(SortedTable table) : table_(std::move(table)) {}
  CheckpointKind kind() const override { return CheckpointKind::kSlices; }
  const std::string& path() const override { return table_.path(); }
  Status read_meta();
  Status check(size_t index) override { return read(index, system_allocator()).status(); }
  Result<Tensor> read(size_t index, const std::shared_ptr<Allocator>& allocator) override;

 private:
  template <class... Args> Error wrong(fmt::format_string<Args...> format, Args&&... args) const {
    return make_error(Code::kDataLoss, "'{}' is damaged: {}", path(), fmt::format(format, std::forward<Args>(args)...));
  }
  SortedTable table_;
  std::vector<std::string> keys_;  // of parts_
};

Status SliceSource::read_meta() {
  TROUPE_ASSIGN(const auto text, table_.find(""));
  proto::SavedTensorSlices head;
  if (!text || text->size() > kMostMessage || !head.ParseFromArray(text->data(), static_cast<int>(text->size())) ||
      !head.has_meta())
    return wrong("it does not say what tensors it has");
  if (const int version = head.meta().versions().min_consumer(); version > kSliceVersion)
    return make_error(Code::kUnimplemented, "'{}' is of version {} of its format, of which {} is known", path(),
                      version, kSliceVersion);
  for (const auto& tensor : head.meta().tensor()) {
    auto shape = read_shape(tensor.shape());
    if (!shape.ok())
      return make_error(shape.error().code, "'{}': tensor '{}' has {}", path(), tensor.name(), shape.error().message);
    for (const auto& box : tensor.slice()) {
      auto slice = read_box(box, *shape);
      if (!slice.ok()) return wrong("tensor '{}' has {}", tensor.name(), slice.error().message);
      keys_.push_back(key_of_part(tensor.name(), box));
      SavedPart part{tensor.name(), tensor.type(), *shape, std::move(*slice), {}};
      const auto dtype = dtype_of_number(part.type);
      if (dtype.ok() && *dtype != DType::kString)
        part.bytes = static_cast<uint64_t>(part.slice->part.elements()) * size_of(*dtype);
      if (part.slice->part == *shape) part.slice.reset();
      parts_.push_back(std::move(part));
    }
  }
  return {};
}

Result<Tensor> SliceSource::read(size_t index, const std::shared_ptr<Allocator>& allocator) {
  const SavedPart& part = parts_[index];
  TROUPE_ASSIGN(const DType dtype, dtype_of_number(part.type));
  TROUPE_ASSIGN(const auto text, table_.find(keys_[index]));
  if (!text) return wrong("it does not have the values that it tells of");
  proto::SavedTensorSlices message;
  if (text->size() > INT32_MAX || !message.ParseFromArray(text->data(), static_cast<int>(text->size())) ||
      message.data().name() != part.name)
    return wrong("its values cannot be read");
  auto out = take_tensor(dtype, message.data().data(), part.slice ? part.slice->part : part.whole, allocator);
  if (!out.ok() && out.error().code == Code::kDataLoss) return wrong("{}", out.error().message);
  return out;
}

}  // namespace

bool slice_checkpoints_hold(DType dtype) {
  proto::SavedValues nothing;
  const auto none = Tensor::make(dtype, {0});
  return none.ok() && put_tensor(*none, nothing);
}

Result<std::unique_ptr<PartSource>> open_slice_checkpoint(SortedTable table) {
  auto out = std::make_unique<SliceSource>(std::move(table));
  TROUPE_RETURN_IF_ERROR(out->read_meta());
  return std::unique_ptr<PartSource>(std::move(out));
}

Status write_slice_checkpoint(const FileAccess& access, const std::string& path,
                              std::span<const TensorToSave> tensors) {
  TROUPE_RETURN_IF_ERROR(may_touch(access.folders, path));
  proto::SavedTensorSlices head;
  head.mutable_meta()->mutable_versions()->set_producer(kSliceVersion);
  std::map<std::string, proto::SavedSliceMeta> metas;
  std::map<std::string, std::pair<const TensorToSave*, proto::SavedBox>> parts;
  std::map<std::string_view, std::vector<const TensorToSave*>> by_name;
  for (const TensorToSave& t : tensors) {
    if (!slice_checkpoints_hold(t.dtype))
      return invalid_argument("tensor '{}' is {}{}: checkpoints of the first format (V1) cannot hold that dtype",
                              t.name, to_string(t.dtype), t.whole.str());
    if (t.dtype != DType::kString && static_cast<uint64_t>(t.shape().elements()) > kMostMessage / size_of(t.dtype))
      return invalid_argument(
          "tensor '{}' is {}{}: a checkpoint of the first format (V1) holds 2 GiB of a tensor, or of a part of it",
          t.name, to_string(t.dtype), t.shape().str());
    auto [at, fresh] = metas.try_emplace(t.name);
    proto::SavedSliceMeta& meta = at->second;
    if (fresh) {
      meta.set_name(t.name);
      write_shape(t.whole, *meta.mutable_shape());
      meta.set_type(static_cast<int>(t.dtype));
    }
    for (const TensorToSave* other : by_name[t.name]) {
      if (!t.slice || !other->slice) return invalid_argument("tensor name '{}' is given twice", t.name);
      if (other->dtype != t.dtype || other->whole != t.whole)
        return invalid_argument("tensor '{}': a part of {} {} and one of {} {}", t.name, to_string(other->dtype),
                                other->whole.str(), to_string(t.dtype), t.whole.str());
      if (t.slice->overlaps(*other->slice)) return invalid_argument("tensor '{}': two of its parts overlap", t.name);
    }
    by_name[t.name].push_back(&t);
    proto::SavedBox box;
    write_box(t.slice ? *t.slice : TensorSlice::all(t.whole), box);
    *meta.add_slice() = box;
    if (!parts.emplace(key_of_part(t.name, box), std::pair(&t, box)).second)
      return invalid_argument("tensor name '{}' is given twice", t.name);
  }
  for (auto& [name, meta] : metas) *head.mutable_meta()->add_tensor() = std::move(meta);
  return replace_file(*access.files, path, [&](WritableFile& file) -> Status {
    SortedTableWriter table(file);
    if (head.ByteSizeLong() > kMostMessage) return invalid_argument("the names and shapes have more than 2 GiB");
    TROUPE_RETURN_IF_ERROR(table.add("", head.SerializeAsString()));
    for (const auto& [key, part] : parts) {
      proto::SavedTensorSlices message;
      message.mutable_data()->set_name(part.first->name);
      *message.mutable_data()->mutable_slice() = part.second;
      TROUPE_ASSIGN(const Tensor value, value_of(*part.first));
      put_tensor(value, *message.mutable_data()->mutable_data());
      if (message.ByteSizeLong() > kMostMessage)
        return invalid_argument("tensor '{}' has more than the 2 GiB that a checkpoint of the first format (V1) holds",
                                part.first->name);
      TROUPE_RETURN_IF_ERROR(table.add(key, message.SerializeAsString()));
    }
    return table.finish();
  });
}

}  // namespace troupe
