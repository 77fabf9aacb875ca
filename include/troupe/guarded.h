// SPDX-License-Identifier: Apache-2.0
// The barrier around code that is not ours, and around what the standard library throws without memory: an exception
// becomes an Error, so that it ends one node or one call, never an actor or a thread. Implemented in base/.
#pragma once
#include <exception>
#include <new>
#include <stdexcept>

#include "troupe/error.h"

namespace TROUPE_API troupe {

/// What `call` (which gives a Status or Result) returns, or the exception that left it: kResourceExhausted for memory,
/// kInternal with what() for all others.
template <class F> auto guarded(F&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return make_error(Code::kResourceExhausted, "no memory for what is beside the tensors");
  } catch (const std::length_error&) {
    return make_error(Code::kResourceExhausted, "more elements than a list can have");
  } catch (const std::exception& e) {
    const char* what = e.what();
    return make_error(Code::kInternal, "an exception was thrown: {}", what ? what : "without a word");
  } catch (...) {
    return make_error(Code::kInternal, "an exception was thrown that is not a std::exception");
  }
}

/// The same of a call that returns nothing.
template <class F> Status guarded_call(F&& call) {
  return guarded([&] {
    call();
    return Status();
  });
}

}  // namespace troupe
