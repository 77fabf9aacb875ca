// SPDX-License-Identifier: Apache-2.0
// Kernels that make one element of a string, for each element of a tensor of strings.
#pragma once
#include <string>
#include <string_view>

#include "troupe/graph.h"
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Whether a byte of UTF-8 belongs to the character that began before it.
inline bool continues_character(char byte) { return (byte & 0xC0) == 0x80; }

/// Characters of UTF-8: bytes that do not continue one.
inline int64_t utf8_characters(std::string_view s) {
  int64_t n = 0;
  for (const char c : s) n += !continues_character(c);
  return n;
}

/// The only string of a tensor. Error: it has another number of elements.
inline Result<std::string> one_string(const Tensor& t, const char* what) {
  if (t.elements() != 1) return invalid_argument("{} must be one string, not {}", what, t.str());
  return t.data<std::string>()[0];
}

/// y[i] = f(x[i]), where f(const std::string&, To&) -> Status; its error is extended by the element's index.
template <class To, class F> Result<Tensor> map_strings(const KernelContext& c, const Tensor& x, F&& f) {
  TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<To>, x.shape()));
  const std::string* in = x.data<std::string>();
  To* out = y.mutable_data<To>();
  for (int64_t i = 0; i < x.elements(); ++i)
    if (Status status = f(in[i], out[i]); !status.ok()) {
      status.error().message += fmt::format(" (element {} of {})", i, x.shape().str());
      return std::move(status.error());
    }
  return y;
}

/// A kernel around map_strings for a function object made from the node (F(const KernelInit&)) or from nothing.
template <class To, class F> class StringMap final : public ComputeKernel {
 public:
  explicit StringMap(const KernelInit& init) : f_(make(init)) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(Tensor y, map_strings<To>(c, c.input(0), f_));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  static F make(const KernelInit& init) {
    if constexpr (std::is_constructible_v<F, const KernelInit&>) return F(init);
    else return F();
  }
  const F f_;
};

inline const char* const kNoGradientOfStrings = "strings are not numbers";

}  // namespace troupe
