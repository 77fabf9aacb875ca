// SPDX-License-Identifier: Apache-2.0
// safetensors files: every dtype there and back, and hostile headers.
#include "troupe/checkpoint.h"

#include "tests/io/temporary_directory.h"

using namespace troupe;

namespace {

std::string file(const std::string& header, const std::string& data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(header.size() >> (8 * i));
  return out + header + data;
}

Error refusal(const TemporaryDirectory& dir, const std::string& bytes) {
  const std::string path = dir.write("bad", bytes);
  auto result = read_safetensors(path);
  REQUIRE(!result.ok());
  CHECK_THAT(result.error().message, Catch::Contains(path));
  return result.error();
}

}  // namespace

TEST_CASE("every numeric dtype and shape returns bit for bit") {
  TemporaryDirectory dir;
  TensorMap tensors;
  for (int d = 0; d < 64; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (!is_known(dtype) || is_object(dtype)) continue;
    Tensor t = *Tensor::zeros(dtype, {2, 3});
    auto* bytes = static_cast<uint8_t*>(t.mutable_raw());
    for (size_t i = 0; i < t.bytes(); ++i) bytes[i] = static_cast<uint8_t>(dtype == DType::kBool ? i % 2 : i * 37 + 1);
    tensors[to_string(dtype)] = t;
  }
  CHECK(tensors.size() == 15);
  tensors["scalar \"quoted\" \xc3\xa4"] = Tensor::scalar(3.5f);
  tensors["empty"] = *Tensor::zeros(DType::kFloat64, {0, 4});
  const std::string path = dir.file("all");
  REQUIRE(write_safetensors(path, tensors, 42).ok());
  auto read = read_safetensors(path);
  REQUIRE(read.ok());
  CHECK(read->step == 42);
  CHECK(read->checked);
  CHECK(read->metadata.at("format") == "troupe");
  REQUIRE(read->tensors.size() == tensors.size());
  for (const auto& [name, tensor] : tensors) CHECK(read->tensors.at(name).identical(tensor));
}

TEST_CASE("what the format cannot hold is refused by name") {
  TemporaryDirectory dir;
  auto refused = [&](const std::string& name, const Tensor& t) {
    const Status status = write_safetensors(dir.file("no"), {{name, t}});
    REQUIRE(!status.ok());
    CHECK(status.error().code == Code::kInvalidArgument);
    CHECK(!std::filesystem::exists(dir.file("no")));
    return status.error().message;
  };
  CHECK_THAT(refused("words", Tensor::of<std::string>({"a"})), Catch::Contains("words") && Catch::Contains("string"));
  CHECK_THAT(refused("none", Tensor()), Catch::Contains("none"));
  CHECK_THAT(refused("__metadata__", Tensor::scalar(1.f)), Catch::Contains("__metadata__"));
  refused("\xff\xfe", Tensor::scalar(1.f));
  CHECK(write_safetensors(dir.file("no/such/dir"), {}).error().code == Code::kNotFound);
}

TEST_CASE("files of other programs are read without a check sum") {
  TemporaryDirectory dir;
  auto read = read_safetensors(dir.write(
      "f",
      file(
          R"({"b":{"dtype":"I16","shape":[2],"data_offsets":[1,5]},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}   )",
          std::string("\x07\x01\x00\x02\x00", 5))));
  REQUIRE(read.ok());
  CHECK(!read->checked);
  CHECK(read->step == -1);
  CHECK(read->tensors.at("a").identical(Tensor::scalar<uint8_t>(7)));
  CHECK(read->tensors.at("b").identical(Tensor::of<int16_t>({1, 2})));
  CHECK(read_safetensors(dir.write("none", file("{}", "")))->tensors.empty());
}

TEST_CASE("the check sum is that of the canonical header and the data, however the header is written") {
  TemporaryDirectory dir;
  const std::string data("\0\0\x80\x3f\x07", 5);
  const auto with_crc = [](const std::string& crc) {
    return R"({ "\u00e4\"\/\n": {"shape": [], "data_offsets": [4, 5], "dtype": "U8"}, "__metadata__": {"step": "7",)"
           R"( "crc32c": ")" +
           crc + R"(", "format": "troupe"}, "A": {"dtype": "F32", "data_offsets": [0, 4], "shape": [1, 1]} })";
  };
  const auto read = read_safetensors(dir.write("f", file(with_crc("dbddb0da"), data)));
  REQUIRE(read.ok());
  CHECK(read->checked);
  CHECK(read->step == 7);
  CHECK(read->tensors.at("A").identical(Tensor::of<float>({1}, {1, 1})));
  CHECK(read->tensors.at("\xc3\xa4\"/\n").identical(Tensor::scalar<uint8_t>(7)));
  CHECK_THAT(refusal(dir, file(with_crc("dbddb0db"), data)).message, Catch::Contains("dbddb0da"));
}

TEST_CASE("hostile and broken headers are refused with file and offset") {
  TemporaryDirectory dir;
  auto entry = [](const std::string& dtype, const std::string& shape, const std::string& range) {
    return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + range + "}}";
  };
  const std::string four(4, '\0');
  for (
      const std::string& bytes :
      {std::string(),
       std::string("1234567"),
       std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10),
       file("{}", "").substr(0, 9),
       file("[]", ""),
       file("{", ""),
       file("\xff", ""),
       file("null", ""),
       file("{}", "x"),                          // data that nothing claims
       file(entry("U8", "[4]", "[0,5]"), four),  // beyond the end
       file(entry("U8", "[4]", "[4,0]"), four),
       file(entry("U8", "[3]", "[0,4]"), four),
       file(entry("U8", "[3]", "[1,4]"), four),  // a gap
       file(entry("U8", "[4]", "[0,18446744073709551615]"), four),
       file(entry("U8", "[-4]", "[0,4]"), four),
       file(entry("F64", "[2305843009213693952]", "[0,0]"), ""),  // 2^61 * 8 wraps to 0
       file(entry("F32", "[4294967296,4294967296]", "[0,0]"), ""),
       file(entry("U8", "[18446744073709551615]", "[0,0]"), ""),
       file(entry("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4]", "[0,4]"), four),
       file(entry("U8", "4", "[0,4]"), four),
       file(entry("U8", "[4.0]", "[0,4]"), four),
       file(entry("U8", "[4]", "[0]"), four),
       file(entry("U8", "[[4]]", "[0,4]"), four),
       file(entry("BOOL", "[4]", "[0,4]"), "\1\1\2\1"),
       file(R"({"t":{"dtype":"U8","shape":[4]}})", four),
       file(R"({"t":4})", four),
       file(R"({"__metadata__":{"a":1}})", ""),
       file(R"({"__metadata__":[]})", ""),
       file(R"({"__metadata__":3})", ""),
       file(R"({"__metadata__":{"a":[]}})", ""),
       file(R"({"__metadata__":{"a":{}}})", ""),
       file(R"({"__metadata__":{"a":"1","a":"2"}})", ""),
       file(R"({"__metadata__":{},"__metadata__":{}})", ""),
       file(R"({"t":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", four),
       file(R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"more":1}})", four),
       file(R"({"t":{"dtype":["U8"],"shape":[4],"data_offsets":[0,4]}})", four),
       file(R"({"t":{"dtype":"U8","shape":"4","data_offsets":[0,4]}})", four),
       file(R"({"t":{"dtype":"U8","shape":{},"data_offsets":[0,4]}})", four),
       file(R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4,4]}})", four),
       file(R"({"t":{}})", four),
       file(R"("t")", ""),
       file("{} {}", ""),
       file(R"({"__metadata__":{"step":"1x"}})", ""),
       file(R"({"__metadata__":{"crc32c":"00000000"}})", ""),
       file(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})",
           four),
       file(
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
           four),
       file(std::string(1000000, '['), ""),
       file(R"({"a":)" + std::string(1000000, '['), "")}) {
    const Error error = refusal(dir, bytes);
    CHECK(error.code == Code::kDataLoss);
    CHECK_THAT(error.message, Catch::Contains("offset"));
  }
  CHECK(refusal(dir, file(entry("F8_E4M3", "[4]", "[0,4]"), four)).code == Code::kUnimplemented);
  CHECK(read_safetensors(dir.file("missing")).error().code == Code::kNotFound);
  CHECK(!read_safetensors(dir.path()).ok());
}
