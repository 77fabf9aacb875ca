// SPDX-License-Identifier: Apache-2.0
// .npy and .npz files: all dtypes there and back, NumPy's own bytes, and hostile ones.
#include "troupe/npy.h"

#include <array>
#include <cmath>

#include "io/zip.h"
#include "tests/io/temporary_directory.h"

using namespace troupe;

namespace {

/// A .npy file of version 1 with this header and these data.
std::string npy(const std::string& header, const std::string& data, char version = 1) {
  std::string out = std::string("\x93NUMPY") + version + '\0' + static_cast<char>(header.size()) +
                    static_cast<char>(header.size() >> 8);
  if (version > 1) out += std::string(2, '\0');
  return out + header + data;
}

std::string header(const std::string& descr, const std::string& shape, bool fortran = false) {
  return "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + shape +
         ", }\n";
}

std::map<std::string, Tensor> one_of_each() {
  std::map<std::string, Tensor> out;
  for (int d = 0; d < 64; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (!is_known(dtype) || is_object(dtype) || dtype == DType::kBFloat16) continue;
    Tensor t = *Tensor::zeros(dtype, {2, 3});
    auto* bytes = static_cast<uint8_t*>(t.mutable_raw());
    for (size_t i = 0; i < t.bytes(); ++i) bytes[i] = static_cast<uint8_t>(dtype == DType::kBool ? i % 2 : i * 37 + 1);
    out[to_string(dtype)] = t;
  }
  out["words"] = Tensor::of<std::string>({"", "a", "long word", std::string("a\0b", 3)}, {2, 2});
  out["scalar"] = Tensor::scalar<int64_t>(-5);
  out["vector"] = Tensor::of<float>({1, 2, 3});
  out["empty"] = *Tensor::zeros(DType::kFloat32, {0, 3});
  out["no words"] = *Tensor::zeros(DType::kString, {0});
  out["zeros"] =
      Tensor::of<std::string>({std::string("a\0", 2), "", std::string(300, 'b'), std::string(1, '\0')}, {2, 2});
  return out;
}

}  // namespace

TEST_CASE("every dtype that NumPy has returns through .npy and .npz") {
  TemporaryDirectory dir;
  const auto tensors = one_of_each();
  CHECK(tensors.size() == 20);
  for (const auto& [name, tensor] : tensors) {
    REQUIRE(write_npy(dir.file("x.npy"), tensor).ok());
    auto read = read_npy(dir.file("x.npy"));
    REQUIRE(read.ok());
    CHECK(read->identical(tensor));
  }
  for (bool compress : {false, true}) {
    REQUIRE(write_npz(dir.file("x.npz"), tensors, compress).ok());
    auto read = read_npz(dir.file("x.npz"));
    REQUIRE(read.ok());
    REQUIRE(read->size() == tensors.size());
    for (const auto& [name, tensor] : tensors) CHECK(read->at(name).identical(tensor));
  }
  REQUIRE(write_npz(dir.file("x.npz"), {}).ok());
  CHECK(read_npz(dir.file("x.npz"))->empty());
}

TEST_CASE("a compressible tensor gets smaller and stays the same") {
  TemporaryDirectory dir;
  const Tensor t = *Tensor::zeros(DType::kFloat32, {1000, 100});
  REQUIRE(write_npz(dir.file("x.npz"), {{"t", t}}, true).ok());
  CHECK(std::filesystem::file_size(dir.file("x.npz")) < 4000);
  CHECK(read_npz(dir.file("x.npz"))->at("t").identical(t));
}

TEST_CASE("the bytes are those that numpy.save writes") {
  const auto bytes = encode_npy(Tensor::of<float>({1, 2}), "x");
  REQUIRE(bytes.ok());
  std::string expected = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "");
  expected.resize(127, ' ');
  expected[8] = 118;
  expected += std::string("\n\0\0\x80\x3f\0\0\0\x40", 9);
  CHECK(*bytes == expected);
}

TEST_CASE("byte orders, Fortran order and versions 1 to 3 are understood") {
  auto swapped = decode_npy(npy(header(">i2", "(2,)"), std::string("\1\2\3\4", 4)), "x");
  REQUIRE(swapped.ok());
  CHECK(swapped->identical(Tensor::of<int16_t>({0x102, 0x304})));
  auto complex = decode_npy(npy(header(">c8", "()"), std::string("\x3f\x80\0\0\x40\0\0\0", 8)), "x");
  REQUIRE(complex.ok());
  CHECK(complex->data<complex64>()[0] == complex64(1, 2));
  complex = decode_npy(npy(header(">c16", "()"), std::string("\x3f\xf0\0\0\0\0\0\0\xc0\0\0\0\0\0\0\0", 16)), "x");
  REQUIRE(complex.ok());
  CHECK(complex->data<complex128>()[0] == complex128(1, -2));
  auto fortran = decode_npy(npy(header("|u1", "(2, 3)", true), "\1\4\2\5\3\6"), "x");
  REQUIRE(fortran.ok());
  CHECK(fortran->identical(Tensor::of<uint8_t>({1, 2, 3, 4, 5, 6}, {2, 3})));
  auto cube = decode_npy(npy(header("|u1", "(2, 2, 2)", true), std::string("\0\4\2\6\1\5\3\7", 8)), "x");
  REQUIRE(cube.ok());
  CHECK(cube->identical(Tensor::of<uint8_t>({0, 1, 2, 3, 4, 5, 6, 7}, {2, 2, 2})));
  CHECK(decode_npy(npy(header("|S2", "(2,)", true), std::string("ab\0\0", 4)), "x")
            ->identical(Tensor::of<std::string>({"ab", ""})));
  for (char version : {1, 2, 3}) CHECK(decode_npy(npy(header("|u1", "(1,)"), "\7", version), "x").ok());
  CHECK(decode_npy(npy("{\"shape\":(1L,),\"fortran_order\":False,\"descr\":\"|u1\"}", "\7"), "x").ok());
}

TEST_CASE("texts of NumPy are read as UTF-8") {
  const auto text = [](std::u32string_view points, bool swapped) {
    std::string out;
    for (const char32_t c : points)
      for (int i = 0; i < 4; ++i) out += static_cast<char>(c >> 8 * (swapped ? 3 - i : i) & 0xFF);
    return out;
  };
  const Tensor expected = Tensor::of<std::string>({"a\xC3\xA4", "",
                                                   "\xE2\x82\xAC\xF0\x9F\x98\x80"
                                                   "b"},
                                                  {3});
  const std::u32string_view points(U"a\u00e4\0\0\0\0\u20ac\U0001F600b", 9);
  for (const bool swapped : {false, true}) {
    const auto read = decode_npy(npy(header(swapped ? ">U3" : "<U3", "(3,)"), text(points, swapped)), "x");
    REQUIRE(read.ok());
    CHECK(read->identical(expected));
  }
}

TEST_CASE("texts of arrays of objects are read, and other objects are not") {
  // numpy.save(numpy.array([b'a\0', 'b', first], dtype=object)): by protocol 4, whose third text is the first again.
  const auto pickle = [](const std::string& list) {
    return std::string(
               "\x80\4\x95\0\0\0\0\0\0\0\0\x8c\x16numpy._core.multiarray\x94\x8c\x0c_reconstruct\x94\x93\x94"
               "\x8c\5numpy\x94\x8c\7ndarray\x94\x93\x94K\0\x85\x94"
               "C\1b\x94\x87\x94R\x94(K\1K\3\x85\x94h\3\x8c\5dtype\x94\x93\x94\x8c\2O8\x94\x89\x88\x87\x94R\x94"
               "(K\3\x8c\1|\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?t\x94"
               "b\x89]\x94(",
               144) +
           list + "et\x94" + "b.";
  };
  const std::string texts = pickle(std::string("C\2a\0\x94\x8c\1b\x94h\x13", 11));
  const auto read = decode_npy(npy(header("|O", "(3,)"), texts), "x");
  INFO((read.ok() ? "" : read.error().str()));
  REQUIRE(read.ok());
  CHECK(read->identical(Tensor::of<std::string>({std::string("a\0", 2), "b", std::string("a\0", 2)})));
  CHECK(decode_npy(npy(header("|O", "(2,)"), texts), "x").error().code == Code::kDataLoss);
  for (size_t n = 0; n < texts.size(); ++n)
    CHECK_FALSE(decode_npy(npy(header("|O", "(3,)"), texts.substr(0, n)), "x").ok());
  std::string hostile = "B" + std::string("\0\0\x10\0", 4) + std::string(1 << 20, 'x') + "\x94";  // 1 MiB, 2,000 times
  for (int i = 1; i < 2000; ++i) hostile += "h\x13";
  CHECK(decode_npy(npy(header("|O", "(2000,)"), pickle(hostile)), "x").error().code == Code::kResourceExhausted);
  for (const std::string other : {"K\1", "N", "]", "(", "h\x70", "R", "e", "\x93", "C\x7f"})
    CHECK(decode_npy(npy(header("|O", "(1,)"), pickle(other)), "x").error().code == Code::kUnimplemented);
}

TEST_CASE("hostile .npy headers are refused with the name") {
  using Bad = std::pair<std::string, Code>;
  for (const auto& [bytes, code] :
       {Bad{"", Code::kDataLoss},
        Bad{"\x93NUMPY\1", Code::kDataLoss},
        Bad{"not a numpy file", Code::kDataLoss},
        Bad{npy(header("|u1", "(1,)"), "\7", 4), Code::kDataLoss},
        Bad{npy(header("|u1", "(1,)"), "\7").substr(0, 30), Code::kDataLoss},
        Bad{npy(header("|u1", "(2,)"), "\7"), Code::kDataLoss},
        Bad{npy(header("|u1", "(1,)"), "\7\7"), Code::kDataLoss},
        Bad{npy(header("<f8", "(2305843009213693952,)"), ""), Code::kDataLoss},
        Bad{npy(header("<f8", "(99999999999999999999,)"), ""), Code::kDataLoss},
        Bad{npy(header("|u1", "(-1,)"), ""), Code::kDataLoss},
        Bad{npy(header("|u1", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"), "\7"), Code::kDataLoss},
        Bad{npy(header("|u1", "(1"), "\7"), Code::kDataLoss},
        Bad{npy(header("|u1", "(4294967296,4294967296,0)"), "\7"), Code::kDataLoss},
        Bad{npy("{'descr': '|u1', 'shape': (1,)}", "\7"), Code::kDataLoss},
        Bad{npy("{'descr': '|u1'", "\7"), Code::kDataLoss},
        Bad{npy("{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", "\7"), Code::kDataLoss},
        Bad{npy("__import__('os')", "\7"), Code::kDataLoss},
        Bad{npy(header("|b1", "(1,)"), "\2"), Code::kDataLoss},
        Bad{npy(header("|O", "(1,)"), "\7"), Code::kUnimplemented},
        Bad{npy(header("<f16", "(1,)"), std::string(16, '0')), Code::kUnimplemented},
        Bad{npy(header("|S0", "(1000000000000,)"), ""), Code::kUnimplemented},
        Bad{npy(header("<U1", "(1,)"), "abcd"), Code::kDataLoss},
        Bad{npy(header("<U1", "(1,)"), std::string("\0\0\x11\0", 4)), Code::kDataLoss},
        Bad{npy(header("<U2", "(1,)"), "abcd"), Code::kDataLoss},
        Bad{npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "abcd"), Code::kUnimplemented}}) {
    auto result = decode_npy(bytes, "the file");
    REQUIRE(!result.ok());
    CHECK(result.error().code == code);
    CHECK_THAT(result.error().message, Catch::Contains("the file"));
  }
}

TEST_CASE("what NumPy cannot hold is refused by name") {
  CHECK_THAT(encode_npy(*Tensor::zeros(DType::kBFloat16, {1}), "w").error().message, Catch::Contains("bfloat16"));
  CHECK(!encode_npy(Tensor(), "w").ok());
  CHECK(read_npy("/no/such/file").error().code == Code::kNotFound);
  CHECK(read_npz("/no/such/file").error().code == Code::kNotFound);
  CHECK(write_npy("/no/such/file", Tensor::scalar(1.f)).error().code == Code::kNotFound);
}

TEST_CASE("no cut and no flipped bit of an archive is read as other data") {
  for (bool compress : {false, true}) {
    const ZipMembers members = {{"a", "some bytes, some bytes, some bytes"}, {"b", ""}};
    const std::string good = *write_zip(members, compress);
    REQUIRE(read_zip(good, "z").ok());
    for (size_t n = 0; n < good.size(); ++n) CHECK(!read_zip(good.substr(0, n), "z").ok());
    for (size_t i = 0; i < good.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
        const auto result = read_zip(bad, "z");
        if (!result.ok()) continue;
        for (size_t m = 0; m < result->size(); ++m) CHECK((*result)[m].second == members[m].second);
      }
    }
  }
}

TEST_CASE("an array is not an archive of arrays, and is named for what it is") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("x.npy");
  REQUIRE(write_npy(path, Tensor::of<float>({1, 2})).ok());
  const auto read = read_npz(path);
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().code == Code::kInvalidArgument);
  CHECK_THAT(read.error().message, Catch::Contains(path) && Catch::Contains("(.npy)"));
}

TEST_CASE("an .npz member of another kind is an error") {
  TemporaryDirectory dir;
  dir.write("x.npz", *write_zip({{"readme.txt", "hello"}}, false));
  CHECK_THAT(read_npz(dir.file("x.npz")).error().message, Catch::Contains("readme.txt"));
  const std::string one = *encode_npy(Tensor::scalar(1.f), "a");
  dir.write("x.npz", *write_zip({{"a.npy", one}, {"a.npy", one}}, false));
  CHECK_THAT(read_npz(dir.file("x.npz")).error().message, Catch::Contains("twice"));
}

TEST_CASE("errors of writing name the file, of an archive its member too") {
  TemporaryDirectory dir;
  const Tensor bad = *Tensor::zeros(DType::kBFloat16, {1}), good = Tensor::scalar(1.f);
  const auto message = [](const Status& status) { return status.error().message; };
  CHECK_THAT(message(write_npy(dir.file("one"), bad)), Catch::Contains(dir.file("one")) && Catch::Contains("bfloat16"));
  for (const bool compress : {false, true}) {
    const Status status = write_npz(dir.file("many"), {{"good", good}, {"bad", bad}}, compress);
    CHECK(status.error().code == Code::kInvalidArgument);
    CHECK_THAT(message(status), Catch::Contains(dir.file("many")) && Catch::Contains("bad"));
    CHECK_THAT(message(write_npz(dir.file("many"), {{std::string(70000, 'n'), good}}, compress)),
               Catch::Contains(dir.file("many")) && Catch::Contains("70004 bytes"));
  }
  CHECK(!std::filesystem::exists(dir.file("one")));
  CHECK(!std::filesystem::exists(dir.file("many")));
  if (!std::filesystem::exists("/dev/full")) return;
  for (const Status& status : {write_npy("/dev/full", good), write_npz("/dev/full", {{"good", good}})}) {
    REQUIRE(!status.ok());
    CHECK(status.error().code == Code::kResourceExhausted);
    CHECK_THAT(status.error().message, Catch::Contains("/dev/full"));
  }
}

TEST_CASE("every cut of a .npy file is data loss, and so is every byte too many") {
  for (const Tensor& tensor : {Tensor::of<float>({1, 2}), Tensor::of<std::string>({"ab", "c"}),
                               *Tensor::zeros(DType::kInt8, {0, 3}), Tensor::scalar(true)}) {
    const std::string good = *encode_npy(tensor, "x");
    for (size_t n = 0; n < good.size(); ++n) {
      const auto cut = decode_npy(good.substr(0, n), "x");
      REQUIRE(!cut.ok());
      CHECK(cut.error().code == Code::kDataLoss);
    }
    CHECK(decode_npy(good + '\0', "x").error().code == Code::kDataLoss);
    CHECK(decode_npy(good, "x")->identical(tensor));
  }
}

TEST_CASE("views, names of any bytes and numbers that are none return from an archive") {
  TemporaryDirectory dir;
  const Tensor odd = Tensor::of<float>({NAN, -NAN, INFINITY, -0.f, 5, 6}, {3, 2});
  const std::map<std::string, Tensor> tensors = {
      {"", *odd.slice(1, 3)}, {"a/b.npy", *odd.slice(1, 1)}, {"../up", odd}, {std::string("z\0\xff", 3), odd}};
  for (const bool compress : {false, true}) {
    REQUIRE(write_npz(dir.file("x.npz"), tensors, compress).ok());
    const auto read = read_npz(dir.file("x.npz"));
    REQUIRE(read.ok());
    REQUIRE(read->size() == tensors.size());
    for (const auto& [name, tensor] : tensors) CHECK(read->at(name).identical(tensor));
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose allocators abort
TEST_CASE("strings that padding would make larger than memory are an error") {
  Tensor words = *Tensor::zeros(DType::kString, {1 << 21});
  words.mutable_data<std::string>()[0].assign(size_t{128} << 20, 'x');  // times 2^21 are 256 TiB
  const auto bytes = encode_npy(words, "the words");
  REQUIRE(!bytes.ok());
  CHECK(bytes.error().code == Code::kResourceExhausted);
  CHECK_THAT(bytes.error().message, Catch::Contains("the words") && Catch::Contains("134217728"));
}
#endif
