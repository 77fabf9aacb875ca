// SPDX-License-Identifier: Apache-2.0
// Messages whose types come with the op. What TensorFlow makes of them: tests/golden, "messages".
#include "tests/ops/check_op.h"
#include "tests/ops/op_case.h"

namespace troupe::testing {
namespace {

/// message M { optional int64 ffffff = 1; } in file a.
const std::string kTypes =
    std::string("bytes://\n\x18\n\x01") + "a\"\x13\n\x01M\x12\x0e\n\x06" + "ffffff\x18\x01 \x01(\x03";

Attrs decoding(const std::string& field = "ffffff", DType dtype = DType::kInt64, const std::string& types = kTypes) {
  return {{"message_type", std::string("M")},
          {"field_names", std::vector<std::string>{field}},
          {"output_types", std::vector<DType>{dtype}},
          {"descriptor_source", types}};
}

Attrs encoding() {
  return {{"message_type", std::string("M")},
          {"field_names", std::vector<std::string>{"ffffff"}},
          {"Tinput_types", std::vector<DType>{DType::kInt64}},
          {"descriptor_source", kTypes}};
}

/// All outputs.
Result<std::vector<Tensor>> apply_all(const std::string& op, const std::vector<Tensor>& inputs, const Attrs& attrs,
                                      int outputs = 1) {
  std::vector<Tensor> out;
  for (int i = 0; i < outputs; ++i) {
    TROUPE_ASSIGN(out.emplace_back(), apply(op, inputs, attrs, i));
  }
  return out;
}

std::string error_of(const std::string& op, const std::vector<Tensor>& inputs, const Attrs& attrs) {
  const auto out = apply_all(op, inputs, attrs);
  return out.ok() ? "" : out.error().message;
}

TEST_CASE("messages are taken apart and put together by types that come with the op") {
  const Tensor messages = Tensor::of<std::string>({"\x08\x05", "", "\x08\x07\x08\x09"});
  const auto parts = apply_all("DecodeProtoV2", {messages}, decoding(), 2);
  INFO((parts.ok() ? "" : parts.error().message));
  REQUIRE(parts.ok());
  CHECK((*parts)[0].identical(I({1, 0, 1}, {3, 1})));
  CHECK((*parts)[1].identical(L({5, 0, 9}, {3, 1})));
  const auto whole = apply_all("EncodeProto", *parts, encoding());
  REQUIRE(whole.ok());
  CHECK((*whole)[0].identical(Tensor::of<std::string>({"\x08\x05", "", "\x08\x09"})));
}

TEST_CASE("what is not such a message, or such a type, is an error") {
  const Tensor one = Tensor::of<std::string>({"\x08\x05"});
  const auto contains = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  contains(error_of("DecodeProtoV2", {Tensor::of<std::string>({"\x08"})}, decoding()),
           "message 0: 1 bytes are not a M");
  contains(error_of("DecodeProtoV2", {one}, decoding("g")), "'M' has no field 'g'");
  contains(error_of("DecodeProtoV2", {one}, decoding("ffffff", DType::kString)), "field 'ffffff' is int64, not string");
  contains(error_of("DecodeProtoV2", {one}, decoding("ffffff", DType::kInt64, "local://")), "must be bytes://");
  contains(error_of("DecodeProtoV2", {one}, decoding("ffffff", DType::kInt64, "bytes://x")), "not a FileDescriptorSet");
  contains(error_of("EncodeProto", {I({2}, {1, 1}), L({1, 2}, {1, 2})}, encoding()), "size 2 of field 'ffffff'");
  contains(error_of("EncodeProto", {I({-1}, {1, 1}), L({1}, {1, 1})}, encoding()), "size -1");
  contains(error_of("EncodeProto", {I({1}, {1, 1}), L({1})}, encoding()), "have shape [1]");
  contains(error_of("DecodeJSONExample", {Tensor::of<std::string>({"{"})}, {}), "example 0 is not the JSON");
}

TEST_CASE("examples come from JSON") {
  const auto record = apply_all(
      "DecodeJSONExample",
      {Tensor::scalar<std::string>(R"({"features": {"feature": {"a": {"int64List": {"value": ["3"]}}}}})")}, {});
  INFO((record.ok() ? "" : record.error().message));
  REQUIRE(record.ok());
  CHECK(*(*record)[0].data<std::string>() ==
        "\n\x0b\n\x09\n\x01"
        "a\x12\x04\x1a\x02\x08\x03");
}

}  // namespace
}  // namespace troupe::testing
