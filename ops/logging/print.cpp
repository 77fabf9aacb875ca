// SPDX-License-Identifier: Apache-2.0
// What tells a person something: Assert, Print, PrintV2, StringFormat, Timestamp.
#include <atomic>
#include <chrono>
#include <cstdio>

#include "base/log.h"
#include "io/data_folders.h"
#include "io/whole_file.h"
#include "ops/logging/register.h"
#include "ops/logging/tensor_text.h"
#include "troupe/blocking_kernel.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

class AssertKernel final : public ComputeKernel {
 public:
  explicit AssertKernel(const KernelInit& init) : most_(init.attr<int64_t>("summarize")) {}
  Status compute(KernelContext& c) override {
    const Tensor& condition = c.input(0);
    if (condition.rank() != 0) return invalid_argument("condition must be a scalar, not {}", condition.str());
    if (condition.data<bool>()[0]) return {};
    std::string data;
    for (int i = 1; i < c.num_inputs(); ++i) data += " [" + text_of_first(c.input(i), most_) + "]";
    return invalid_argument("assertion failed:{}", data);
  }

 private:
  const int64_t most_;
};

class PrintKernel final : public ComputeKernel {
 public:
  explicit PrintKernel(const KernelInit& init)
      : message_(init.attr<std::string>("message")), times_(init.attr<int64_t>("first_n")),
        most_(init.attr<int64_t>("summarize")) {}
  Status compute(KernelContext& c) override {
    if (times_ < 0 || printed_.fetch_add(1) < times_) {
      std::string text = message_;
      for (int i = 1; i < c.num_inputs(); ++i) text += fmt::format("[{}]", text_of_first(c.input(i), most_));
      std::fputs(fmt::format("{}\n", text).c_str(), stderr);
    }
    c.set_output(0, c.input(0));
    return {};
  }

 private:
  const std::string message_;
  const int64_t times_, most_;
  std::atomic<int64_t> printed_{0};
};

constexpr std::string_view kFile = "file://";

/// What PrintV2 writes at once: the streams of the process and the log.
Status write_line(const std::string& stream, const std::string& text) {
  if (stream == "stdout" || stream == "stderr") {
    std::FILE* file = stream == "stdout" ? stdout : stderr;
    if (std::fwrite(text.data(), 1, text.size(), file) != text.size() || std::fflush(file) != 0)
      return make_error(Code::kInternal, "cannot write to {}", stream);
  } else if (stream.starts_with("log(")) {
    const auto line = std::string_view(text).substr(0, text.size() - (text.ends_with('\n') ? 1 : 0));
    if (stream == "log(info)") log_info("{}", line);
    if (stream == "log(warning)") log_warning("{}", line);
    if (stream == "log(error)") log_error("{}", line);
  }
  return {};
}

Result<std::string> printed(const Tensor& input) {
  if (input.rank() != 0) return invalid_argument("input must be a scalar, not {}", input.str());
  return input.data<std::string>()[0];
}

class PrintV2Kernel final : public ComputeKernel {
 public:
  explicit PrintV2Kernel(const KernelInit& init)
      : stream_(init.attr<std::string>("output_stream")), end_(init.attr<std::string>("end")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const std::string text, printed(c.input(0)));
    return write_line(stream_, text + end_);
  }

 private:
  const std::string stream_, end_;
};

/// A file may be a FIFO whose reader is slow, or on a mount that hangs.
class PrintToFile final : public BlockingKernel {
 public:
  explicit PrintToFile(const KernelInit& init)
      : path_(init.attr<std::string>("output_stream").substr(kFile.size())), end_(init.attr<std::string>("end")),
        folders_(init.data_folders) {}
  Result<std::vector<Tensor>> run(const BlockingRequest& request) override {
    TROUPE_ASSIGN(const std::string text, printed(request.inputs[0]));
    TROUPE_RETURN_IF_ERROR(may_touch(folders_, path_));
    TROUPE_RETURN_IF_ERROR(append_file(path_, text + end_));
    return std::vector<Tensor>();
  }

 private:
  const std::string path_, end_;
  const std::shared_ptr<const DataFolders> folders_;
};

KernelKind kind_of_print_v2(const Attrs& attrs) {
  return attrs.at<std::string>("output_stream").starts_with(kFile) ? KernelKind::kBlocking : KernelKind::kCompute;
}

Result<std::unique_ptr<Kernel>> make_print_v2(const KernelInit& init) {
  const auto& stream = init.attr<std::string>("output_stream");
  for (const char* known : {"stdout", "stderr", "log(info)", "log(warning)", "log(error)"})
    if (stream == known) return std::unique_ptr<Kernel>(new PrintV2Kernel(init));
  if (stream.starts_with(kFile)) return std::unique_ptr<Kernel>(new PrintToFile(init));
  return invalid_argument(
      "output_stream \"{}\"; there are stdout, stderr, log(info), log(warning), log(error), file://", stream);
}

/// Tensors in the places that a template leaves for them.
class FormatKernel final : public ComputeKernel {
 public:
  explicit FormatKernel(const KernelInit& init) : most_(init.attr<int64_t>("summarize")) {
    const auto& text = init.attr<std::string>("template");
    const auto& mark = init.attr<std::string>("placeholder");
    size_t begin = 0;
    for (size_t end; !mark.empty() && (end = text.find(mark, begin)) != std::string::npos; begin = end + mark.size())
      parts_.push_back(text.substr(begin, end - begin));
    parts_.push_back(text.substr(begin));
  }
  Status compute(KernelContext& c) override {
    if (static_cast<size_t>(c.num_inputs()) + 1 != parts_.size())
      return invalid_argument("the template has {} places for {} tensors", parts_.size() - 1, c.num_inputs());
    std::string out = parts_[0];
    for (int i = 0; i < c.num_inputs(); ++i)
      out += text_of_ends(c.input(i), most_) + parts_[static_cast<size_t>(i) + 1];
    c.set_output(0, Tensor::scalar(std::move(out)));
    return {};
  }

 private:
  const int64_t most_;
  std::vector<std::string> parts_;
};

class TimestampKernel final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    c.set_output(0, Tensor::scalar(std::chrono::duration<double>(now).count()));
    return {};
  }
};

Status check_scalar_input(ShapeContext& c) { return c.with_rank(0, 0).status(); }

}  // namespace

void register_print_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto cpu = DeviceKind::kCpu;
  ops.add(
      OpDef("Assert")
          .input("condition: bool")
          .input("data: T")
          .attr("T: list(type) >= 1")
          .attr("summarize: int = 3")
          .shape(check_scalar_input)
          .stateful()
          .doc("Fails when the condition is false; the message has the first `summarize` elements of each tensor of "
               "`data` (all when negative)."),
      not_differentiable("it has no output"));
  kernels.add<AssertKernel>("Assert", cpu, {});
  ops.add(OpDef("Print")
              .input("input: T")
              .input("data: U")
              .output("output: T")
              .attr("T: type")
              .attr("U: list(type) >= 0")
              .attr("message: string = ''")
              .attr("first_n: int = -1")
              .attr("summarize: int = 3")
              .shape(unchanged_shape)
              .stateful()
              .doc("Gives `input`, and prints `message` and the first `summarize` elements of each tensor of `data` on "
                   "stderr, the first `first_n` times (always when negative)."),
          gradient([](GradientContext& c) -> Status {
            if (c.dy(0)) c.set_dx(0, c.dy(0));
            return {};
          }));
  kernels.add<PrintKernel>("Print", cpu, {});
  ops.add(
      OpDef("PrintV2")
          .input("input: string")
          .attr("output_stream: string = 'stderr'")
          .attr("end: string = '\n'")
          .shape(check_scalar_input)
          .stateful()
          .doc("Prints a string, then `end`, on `output_stream`: stdout, stderr, log(info), log(warning), log(error), "
               "or file://PATH, to which it is appended."),
      not_differentiable("it has no output"));
  kernels.add("PrintV2", cpu, {}, {kind_of_print_v2, make_print_v2});
  ops.add(OpDef("StringFormat")
              .input("inputs: T")
              .output("output: string")
              .attr("T: list(type) >= 0")
              .attr("template: string = '%s'")
              .attr("placeholder: string = '%s'")
              .attr("summarize: int = 3")
              .shape(scalar_shape)
              .doc("`template` with each `placeholder` replaced by a tensor: the `summarize` first and last of each of "
                   "its dimensions (all when negative)."),
          not_differentiable("it gives a string"));
  kernels.add<FormatKernel>("StringFormat", cpu, {});
  ops.add(OpDef("Timestamp").output("ts: float64").shape(scalar_shape).stateful().doc("Seconds since 1970."),
          not_differentiable("it has no inputs"));
  kernels.add<TimestampKernel>("Timestamp", cpu, {});
}

}  // namespace troupe
