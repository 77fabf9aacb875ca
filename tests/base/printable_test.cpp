// SPDX-License-Identifier: Apache-2.0
// Text of any bytes in messages and logs.
#include "base/printable.h"

#include <spdlog/sinks/ostream_sink.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <sstream>

#include "base/log.h"
#include "troupe/error.h"

using namespace troupe;
using namespace std::string_literals;

TEST_CASE("printable text has no control characters and is UTF-8", "[printable]") {
  CHECK(printable("layer_1/Größe:0 → 'x' \"y\" \\ 中文 😀") == "layer_1/Größe:0 → 'x' \"y\" \\ 中文 😀");
  CHECK(printable("").empty());
  CHECK(printable("a\0b"s) == "a\\x00b");
  CHECK(printable("\x1b[31mred\x7f") == "\\x1b[31mred\\x7f");
  CHECK(printable("one\ntwo\r\tthree\a") == "one\\ntwo\\r\\tthree\\x07");
  CHECK(printable("\xc2\x9b"
                  "31m \xc2\xa0.") == "\\xc2\\x9b31m \xc2\xa0.");  // a control character of one byte more
  CHECK(printable("\xff"
                  "a\xc3(\xe2\x82") == "\\xffa\\xc3(\\xe2\\x82");
  CHECK(printable("\xed\xa0\x80 \xc0\x80") == "\\xed\\xa0\\x80 \\xc0\\x80");  // a surrogate, a long form of NUL
  for (int c = 0; c < 256; ++c) {
    const std::string once = printable(std::string(1, static_cast<char>(c)));
    CHECK(printable(once) == once);
  }
}

TEST_CASE("quoted text ends where its quote does", "[printable]") {
  CHECK(in_quotes("fc1") == "'fc1'");
  CHECK(in_quotes("it's \"a\" \\n") == R"('it\'s "a" \\n')");
  CHECK(in_quotes("it's \"a\"\n", '"') == R"("it's \"a\"\n")");
  CHECK(in_quotes("\xff\0"s) == R"('\xff\x00')");
}

TEST_CASE("an error is one line whatever names and message hold", "[printable]") {
  Error e = invalid_argument("input '{}' is not there\n", "x\x1b[31m\0y"s);
  e.op = "My\aOp";
  e.node = "a\0b'\nerror: all is lost"s;
  e.device = "/cpu\xff";
  CHECK(
      e.str() ==
      R"(invalid argument: My\x07Op 'a\x00b\'\nerror: all is lost': input 'x\x1b[31m\x00y' is not there\n (device /cpu\xff))");
  CHECK(e.message == R"(input 'x\x1b[31m\x00y' is not there\n)");
  e = invalid_argument("größer");
  e.node = "Schicht/größe";
  CHECK(e.str() == "invalid argument: 'Schicht/größe': größer");
}

TEST_CASE("a line of the log is one line", "[printable]") {
  const auto before = spdlog::default_logger();
  std::ostringstream log;
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(log)));
  log_warning("node '{}' is large", "a\n\x1b[2J\xff");
  spdlog::set_default_logger(before);
  CHECK_THAT(log.str(), Catch::Contains(R"(node 'a\n\x1b[2J\xff' is large)"));
  CHECK(log.str().find('\x1b') == std::string::npos);
  CHECK(std::ranges::count(log.str(), '\n') == 1);
}
