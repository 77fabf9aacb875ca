// SPDX-License-Identifier: Apache-2.0
// Errors as values: Error, Status and Result<T>. Implemented in base/error.cpp.
// Every fault of a user, a file or the environment is one of these; no exception crosses a folder.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "troupe/export.h"

namespace TROUPE_API troupe {

/// What kind of fault an Error reports; the meanings are those of gRPC and TensorFlow.
enum class Code {
  kInvalidArgument,     // wrong shape, dtype, value or name given by the caller
  kNotFound,            // no such node, file, device, variable
  kAlreadyExists,       // duplicate name
  kFailedPrecondition,  // e.g. uninitialised variable, closed session
  kOutOfRange,          // end of data; dequeue from a closed, drained queue
  kResourceExhausted,   // memory limit, full disk
  kDataLoss,            // truncated or corrupted file
  kCancelled,           // the caller cancelled
  kDeadlineExceeded,    // the deadline of the call passed
  kUnimplemented,       // op, dtype or device without a kernel
  kInternal,            // a library below failed
  kUnavailable,         // a task of the cluster that cannot be reached, or was lost
};

/// The name of a code, as it is printed: "invalid argument".
const char* to_string(Code code);

/// One fault: what happened and where. Fields that do not apply are empty.
struct Error {
  Code code = Code::kInternal;
  std::string message;
  std::string op;      // op type, "MatMul"
  std::string node;    // node name, "fc1/matmul"
  std::string device;  // full device name
  std::optional<int64_t> step;

  // Not inline: every function that may fail has several of these.
  Error();
  /// Control characters of the message and bytes that are not UTF-8, which names from a graph or a file may bring, are
  /// escaped: \n, \x1b.
  Error(Code code, std::string message, std::string op = {}, std::string node = {});
  Error(const Error& other);
  Error(Error&& other) noexcept;
  Error& operator=(const Error& other);
  Error& operator=(Error&& other) noexcept;
  ~Error();

  /// One line, escaped as the message is; in the node's name quotes and backslashes are too:
  /// "invalid argument: MatMul 'fc1': inner sizes differ: [64,784] x [500,10] (device ..., step 12)".
  std::string str() const;
};

namespace detail {
/// Prints the error on stderr and ends the program: its value was asked for.
[[noreturn]] void abort_with(const Error& error);
/// The same of a success whose error was asked for.
[[noreturn]] Error& no_error();
/// What a Result holds that was made from a success.
Error success_without_value();
}  // namespace detail

/// Success, or an Error. Cheap when it is a success: one null pointer. Copying duplicates the error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error);
  Status(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(const Status& other) { return *this = Status(other); }
  Status& operator=(Status&&) noexcept = default;

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  /// The error. Of a success: ends the program with a line that says so.
  const Error& error() const { return error_ ? *error_ : detail::no_error(); }
  Error& error() { return error_ ? *error_ : detail::no_error(); }
  /// This status, moved: what a Result has of the same name, so that the macros below serve both.
  Status failure() && { return std::move(*this); }

 private:
  std::unique_ptr<Error> error_;
};

/// A value, or an Error.
template <class T> class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : status_(std::move(error)) {}
  /// From a failed Status; a success, which has no value, becomes a kInternal error that says so.
  Result(Status status) : status_(std::move(status)) {
    if (status_.ok()) [[unlikely]]
      status_ = detail::success_without_value();
  }

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  /// The value. Of an error: prints it on stderr and ends the program.
  T& value() & { return *checked(); }
  const T& value() const& { return *checked(); }
  T&& value() && { return std::move(*checked()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return checked(); }
  const T* operator->() const { return checked(); }
  /// The error. Of a value: ends the program with a line that says so.
  const Error& error() const { return status_.error(); }
  Error& error() { return status_.error(); }
  Status status() const { return status_; }
  /// The status without a copy; only when !ok().
  Status failure() && { return std::move(status_); }

 private:
  T* checked() {
    if (!ok()) [[unlikely]]
      detail::abort_with(error());
    return &*value_;
  }
  const T* checked() const { return const_cast<Result*>(this)->checked(); }

  std::optional<T> value_;
  Status status_;  // failed just when there is no value
};

/// Makes an Error with a formatted message.
Error make_error_from(Code code, fmt::string_view format, fmt::format_args args);

/// Makes an Error with a formatted message (fmt syntax).
template <class... Args> Error make_error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return make_error_from(code, format, fmt::make_format_args(args...));
}

template <class... Args> Error invalid_argument(fmt::format_string<Args...> format, Args&&... args) {
  return make_error_from(Code::kInvalidArgument, format, fmt::make_format_args(args...));
}

/// Returns the error of `expr` (a Status or Result) from the enclosing function, if it has one.
#define TROUPE_RETURN_IF_ERROR(expr)                                     \
  do {                                                                   \
    if (auto troupe_status_ = (expr); !troupe_status_.ok()) [[unlikely]] \
      return std::move(troupe_status_).failure();                        \
  } while (0)

#define TROUPE_CONCAT_(a, b) a##b
#define TROUPE_CONCAT(a, b) TROUPE_CONCAT_(a, b)
/// TROUPE_ASSIGN(auto x, f()): x is the value of the Result, or its error is returned.
#define TROUPE_ASSIGN(decl, expr) TROUPE_ASSIGN_(TROUPE_CONCAT(troupe_result_, __LINE__), decl, expr)
#define TROUPE_ASSIGN_(tmp, decl, expr) \
  auto tmp = (expr);                    \
  if (!tmp.ok()) [[unlikely]]           \
    return std::move(tmp).failure();    \
  decl = std::move(tmp).value()

}  // namespace troupe
