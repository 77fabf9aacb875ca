// SPDX-License-Identifier: Apache-2.0
// Errors are made, copied and printed here.
#include "troupe/error.h"

#include <cstdio>
#include <cstdlib>

#include "base/printable.h"

namespace troupe {

const char* to_string(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kNotFound: return "not found";
    case Code::kAlreadyExists: return "already exists";
    case Code::kFailedPrecondition: return "failed precondition";
    case Code::kOutOfRange: return "out of range";
    case Code::kResourceExhausted: return "resource exhausted";
    case Code::kDataLoss: return "data loss";
    case Code::kCancelled: return "cancelled";
    case Code::kDeadlineExceeded: return "deadline exceeded";
    case Code::kUnimplemented: return "unimplemented";
    case Code::kInternal: return "internal";
    case Code::kUnavailable: return "unavailable";
  }
  return "unknown";
}

Error::Error() = default;
Error::Error(Code code, std::string message, std::string op, std::string node)
    : code(code), message(printable(message)), op(std::move(op)), node(std::move(node)) {}
Error::Error(const Error& other) = default;
Error::Error(Error&& other) noexcept = default;
Error& Error::operator=(const Error& other) = default;
Error& Error::operator=(Error&& other) noexcept = default;
Error::~Error() = default;

Error make_error_from(Code code, fmt::string_view format, fmt::format_args args) {
  return {code, fmt::vformat(format, args)};
}

namespace detail {

void abort_with(const Error& error) {
  std::fprintf(stderr, "troupe: %s\n", error.str().c_str());
  std::abort();
}

Error& no_error() { abort_with({Code::kInternal, "the error of a success was asked for"}); }

Error success_without_value() { return {Code::kInternal, "a Result was made from a Status that is a success"}; }

}  // namespace detail

Status::Status(Error error) : error_(std::make_unique<Error>(std::move(error))) {}
Status::Status(const Status& other) : error_(other.error_ ? std::make_unique<Error>(*other.error_) : nullptr) {}

std::string Error::str() const {
  std::string out = fmt::format("{}: ", to_string(code));
  if (!op.empty()) out += op + " ";
  if (!node.empty()) out += in_quotes(node);
  if (!op.empty() || !node.empty()) {
    if (out.back() == ' ') out.pop_back();
    out += ": ";
  }
  out += message;
  std::string where = device.empty() ? "" : "device " + device;
  if (step) where += fmt::format("{}step {}", where.empty() ? "" : ", ", *step);
  if (!where.empty()) out += " (" + where + ")";
  return printable(out);
}

}  // namespace troupe
