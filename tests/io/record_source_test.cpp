// SPDX-License-Identifier: Apache-2.0
// Files as records: lines of all lengths, pieces, TFRecords; the golden cases `readers` compare them with TensorFlow's.
#include "io/record_source.h"

#include <zlib.h>

#include "io/tfrecord.h"
#include "tests/io/temporary_directory.h"

using namespace troupe;

namespace {

/// "key=value" of every record, the directory left out; an error is its text.
std::vector<std::string> all(const OpenSource& open, const TemporaryDirectory& d, const std::string& name) {
  auto source = open(d.file(name));
  if (!source.ok()) return {source.error().str()};
  std::vector<std::string> out;
  for (;;) {
    auto record = (*source)->next();
    if (!record.ok()) return out.push_back(record.error().str()), out;
    if (!*record) return out;
    out.push_back((*record)->key.substr(d.path().size() + 1) + "=" + (*record)->value);
  }
}

using Texts = std::vector<std::string>;
using Catch::Contains;

}  // namespace

TEST_CASE("a file's lines lose their ends, and the last needs none") {
  const TemporaryDirectory d;
  d.write("a", "one\r\ntwo\n\nend");
  CHECK(all(line_source(0), d, "a") == Texts{"a:1=one", "a:2=two", "a:3=", "a:4=end"});
  CHECK(all(line_source(2), d, "a") == Texts{"a:3=", "a:4=end"});
  CHECK(all(line_source(9), d, "a").empty());
  d.write("returns", "x\r\r\ny\rz\r\n\r\nlast\r");
  CHECK(all(line_source(0), d, "returns") == Texts{"returns:1=x\r", "returns:2=y\rz", "returns:3=", "returns:4=last"});
  d.write("empty", "");
  CHECK(all(line_source(0), d, "empty").empty());
  d.write("one", "\n");
  CHECK(all(line_source(0), d, "one") == Texts{"one:1="});
  const std::string longest(200'000, 'x');
  d.write("long", longest + "\n" + longest);
  CHECK(all(line_source(0), d, "long") == Texts{"long:1=" + longest, "long:2=" + longest});
  std::string edge(65'535, 'x');  // the piece that is read at once ends between the lines
  edge += "\ny\n";
  d.write("edge", edge);
  CHECK(all(line_source(0), d, "edge").at(1) == "edge:2=y");
  CHECK_THAT(all(line_source(0), d, "none").at(0), Contains("none"));
}

TEST_CASE("pieces of one length stand between header and footer") {
  const TemporaryDirectory d;
  d.write("a", "Haabbccddx");
  CHECK(all(*fixed_length_source({1, 2, 1, 0, false}), d, "a") == Texts{"a:0=aa", "a:1=bb", "a:2=cc", "a:3=dd"});
  CHECK(all(*fixed_length_source({1, 2, 2, 0, false}), d, "a") == Texts{"a:0=aa", "a:1=bb", "a:2=cc"});
  CHECK(all(*fixed_length_source({1, 3, 0, 2, false}), d, "a") == Texts{"a:0=aab", "a:1=bbc", "a:2=ccd", "a:3=ddx"});
  CHECK(all(*fixed_length_source({0, 2, 0, 5, false}), d, "a") == Texts{"a:0=Ha", "a:1=cc"});
  CHECK(all(*fixed_length_source({10, 1, 0, 0, false}), d, "a").empty());
  CHECK_THAT(all(*fixed_length_source({11, 1, 0, 0, false}), d, "a").at(0), Contains("header of 11 bytes"));
  CHECK(all(*fixed_length_source({0, int64_t{1} << 40, 0, 0, false}), d, "a").empty());  // takes no such memory
  gzFile file = gzopen(d.file("z").c_str(), "wb");
  REQUIRE(gzwrite(file, "aabb", 4) == 4);
  REQUIRE(gzclose(file) == Z_OK);
  CHECK(all(*fixed_length_source({0, 2, 0, 0, true}), d, "z") == Texts{"z:0=aa", "z:1=bb"});
  CHECK_FALSE(fixed_length_source({0, 0, 0, 0, false}).ok());
  CHECK_FALSE(fixed_length_source({-1, 1, 0, 0, false}).ok());
  CHECK_FALSE(fixed_length_source({0, INT64_MAX, 1, 0, false}).ok());
}

TEST_CASE("TFRecords are known by their offsets, damage by its place") {
  const TemporaryDirectory d;
  std::string bytes = encode_record("first") + encode_record("") + encode_record("last");
  d.write("a", bytes);
  CHECK(all(tfrecord_source(), d, "a") == Texts{"a:0=first", "a:21=", "a:37=last"});
  bytes.back() ^= 1;
  d.write("b", bytes);
  CHECK_THAT(all(tfrecord_source(), d, "b").at(2), Contains("offset 37"));
}

TEST_CASE("a whole file is one record, and so is a name") {
  const TemporaryDirectory d;
  d.write("a", "two\nlines");
  CHECK(all(whole_file_source(), d, "a") == Texts{"a=two\nlines"});
  CHECK(all(name_source(), d, "gone") == Texts{"gone=" + d.file("gone")});
  CHECK_THAT(all(whole_file_source(), d, "gone").at(0), Contains("gone"));
}
