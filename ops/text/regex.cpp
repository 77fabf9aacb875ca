// SPDX-License-Identifier: Apache-2.0
// Regular expressions in RE2's syntax: RegexReplace, RegexFullMatch, and their forms with constant patterns,
// StaticRegexReplace and StaticRegexFullMatch.
#include <re2/re2.h>

#include <mutex>

#include "ops/text/register.h"
#include "ops/text/string_map.h"

namespace troupe {
namespace {

using Pattern = std::shared_ptr<const re2::RE2>;

Result<Pattern> compile(const std::string& text) {
  re2::RE2::Options options;
  options.set_log_errors(false);
  auto pattern = std::make_shared<const re2::RE2>(text, options);
  if (pattern->ok()) return Pattern(std::move(pattern));
  return invalid_argument("pattern \"{}\" is not a regular expression: {}", text, pattern->error());
}

/// The pattern of the node, or of input 1, which seldom changes: the last one is kept.
class RegexKernel : public ComputeKernel {
 public:
  RegexKernel(const KernelInit& init, Pattern pattern) : is_static_(pattern != nullptr), pattern_(std::move(pattern)) {}

 protected:
  Result<Pattern> pattern(const KernelContext& c) {
    if (is_static_) return pattern_;
    TROUPE_ASSIGN(const std::string text, one_string(c.input(1), "pattern"));
    const std::lock_guard lock(mutex_);
    if (!pattern_ || pattern_->pattern() != text) {
      TROUPE_ASSIGN(pattern_, compile(text));
    }
    return pattern_;
  }
  bool is_static() const { return is_static_; }

 private:
  const bool is_static_;
  std::mutex mutex_;
  Pattern pattern_;
};

class FullMatch final : public RegexKernel {
 public:
  using RegexKernel::RegexKernel;
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Pattern pattern, this->pattern(c));
    TROUPE_ASSIGN(Tensor y, map_strings<bool>(c, c.input(0), [&](const std::string& s, bool& out) -> Status {
                    out = re2::RE2::FullMatch(s, *pattern);
                    return {};
                  }));
    c.set_output(0, std::move(y));
    return {};
  }
};

class Replace final : public RegexKernel {
 public:
  Replace(const KernelInit& init, Pattern pattern)
      : RegexKernel(init, std::move(pattern)), global_(init.attr<bool>("replace_global")) {
    if (is_static()) rewrite_ = init.attr<std::string>("rewrite");
  }
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Pattern pattern, this->pattern(c));
    std::string rewrite = rewrite_, fault;
    if (!is_static()) {
      TROUPE_ASSIGN(rewrite, one_string(c.input(2), "rewrite"));
    }
    if (!pattern->CheckRewriteString(rewrite, &fault))
      return invalid_argument("rewrite \"{}\" does not fit pattern \"{}\": {}", rewrite, pattern->pattern(), fault);
    TROUPE_ASSIGN(Tensor y,
                  map_strings<std::string>(c, c.input(0), [&](const std::string& s, std::string& out) -> Status {
                    out = s;
                    if (global_) re2::RE2::GlobalReplace(&out, *pattern, rewrite);
                    else re2::RE2::Replace(&out, *pattern, rewrite);
                    return {};
                  }));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool global_;
  std::string rewrite_;
};

template <class K> Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
  Pattern pattern;
  if (init.op.starts_with("Static")) {
    TROUPE_ASSIGN(pattern, compile(init.attr<std::string>("pattern")));
  }
  return std::unique_ptr<ComputeKernel>(std::make_unique<K>(init, std::move(pattern)));
}

/// The output like the input; other inputs are scalars.
Status regex_shape(ShapeContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 0));
  return unchanged_shape(c);
}

}  // namespace

void register_regex_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto add = [&](OpDef op, const char* doc, KernelFactory factory) {
    const std::string name = op.name();
    ops.add(op.doc(doc).shape(regex_shape), not_differentiable(kNoGradientOfStrings));
    kernels.add(name, DeviceKind::kCpu, {}, std::move(factory));
  };
  const char* match =
      "Whether the whole of each string matches the pattern, in RE2's syntax. Fails for a wrong pattern.";
  const char* replace =
      "The strings with what matches the pattern, in RE2's syntax, replaced by `rewrite`, in which \\0 is the match "
      "and "
      "\\1 to \\9 are its groups: every match, or on request the first alone. Fails for a wrong pattern, and for "
      "groups "
      "that it has not.";
  add(OpDef("RegexFullMatch").input("input: string").input("pattern: string").output("output: bool"), match,
      make<FullMatch>);
  add(OpDef("StaticRegexFullMatch").input("input: string").output("output: bool").attr("pattern: string"), match,
      make<FullMatch>);
  add(OpDef("RegexReplace")
          .input("input: string")
          .input("pattern: string")
          .input("rewrite: string")
          .output("output: string")
          .attr("replace_global: bool = true"),
      replace, make<Replace>);
  add(OpDef("StaticRegexReplace")
          .input("input: string")
          .output("output: string")
          .attr("pattern: string")
          .attr("rewrite: string")
          .attr("replace_global: bool = true"),
      replace, make<Replace>);
}

}  // namespace troupe
