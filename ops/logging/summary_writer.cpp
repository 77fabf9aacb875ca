// SPDX-License-Identifier: Apache-2.0
// Writers of summaries: SummaryWriter makes the handle; CreateSummaryFileWriter, WriteSummary, WriteScalarSummary,
// WriteHistogramSummary, WriteImageSummary, WriteAudioSummary, WriteRawProtoSummary, WriteGraphSummary, ImportEvent,
// FlushSummaryWriter and CloseSummaryWriter run at its host, which has each carried out where it may wait for the disk.
#include <deque>

#include "devices/hosted_resource.h"
#include "io/data_folders.h"
#include "ops/logging/register.h"
#include "ops/logging/summary_values.h"
#include "ops/parts/resource_kernel.h"
#include "troupe/events.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

// -- the resource -----------------------------------------------------------------------------------------------------

/// A passive core (see Resource): carries out jobs on the file, one after the other, in the order they came.
class SummaryFile final : public HostedResource {
 public:
  /// What a job works on: the file, null while there is none. A job that goes on beyond the engine's end keeps it.
  struct State {
    std::unique_ptr<EventWriter> file;
    Status status;  // of the last job
  };
  using Job = std::function<Status(std::unique_ptr<EventWriter>&)>;

  void carry_out(Job job, Reply reply) {
    waiting_.push_back({std::move(job), std::move(reply)});
    serve();
  }
  void answered(uint64_t question, Result<std::vector<Tensor>> outputs) override {
    if (!running_ || question != question_) return;
    running_ = false;
    Reply reply = std::move(reply_);
    reply(no_output(outputs.ok() ? std::move(state_->status) : outputs.status()));
    serve();
  }
  void cancel(uint64_t requester, int64_t step) override {
    const auto is_cancelled = [&](const Reply& r) { return r.tag().requester == requester && r.tag().step == step; };
    std::vector<Reply> cancelled;
    if (running_ && is_cancelled(reply_)) cancelled.push_back(std::move(reply_));  // what runs goes on
    std::erase_if(waiting_, [&](Waiting& w) {
      if (!is_cancelled(w.reply)) return false;
      cancelled.push_back(std::move(w.reply));
      return true;
    });
    for (Reply& reply : cancelled) reply(make_error(Code::kCancelled, "a write of summaries was cancelled"));
  }

 private:
  struct Waiting {
    Job job;
    Reply reply;
  };
  void serve() {
    if (running_ || waiting_.empty()) return;
    running_ = true;
    reply_ = std::move(waiting_.front().reply);
    question_ = host().run_blocking(
        [state = state_, job = std::move(waiting_.front().job)] { state->status = job(state->file); });
    waiting_.pop_front();
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::deque<Waiting> waiting_;
  bool running_ = false;
  Reply reply_;  // of the job that runs
  uint64_t question_ = 0;
};

Result<std::unique_ptr<ComputeKernel>> make_summary_writer(const KernelInit& init) {
  ResourceHandle handle = make_handle(init, "summary_writer");
  handle.factory = []() -> Result<std::unique_ptr<Resource>> {
    return std::unique_ptr<Resource>(std::make_unique<SummaryFile>());
  };
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

// -- requests ---------------------------------------------------------------------------------------------------------

using Inputs = std::vector<Tensor>;

/// The element of a scalar of T. Errors name `what`.
template <class T> Result<T> scalar_of(const Tensor& t, const char* what) {
  if (t.dtype() == dtype_of<T> && t.rank() == 0) return t.data<T>()[0];
  return invalid_argument("{} must be a scalar of {}, not {}", what, to_string(dtype_of<T>), t.str());
}

/// What a node does to the file. The attributes that it needs are read when the kernel is made.
class FileKernel final : public ResourceKernel {
 public:
  using Work = std::function<Status(std::unique_ptr<EventWriter>& file, const Inputs& inputs)>;
  explicit FileKernel(Work work) : work_(std::move(work)) {}

  void execute(Resource& resource, ResourceRequest request) override {
    auto* writer = core_as<SummaryFile>(resource, request, "summary writer");
    if (!writer) return;
    writer->carry_out([work = work_, inputs = std::move(request.inputs)](
                          std::unique_ptr<EventWriter>& file) { return work(file, inputs); },
                      std::move(request.reply));
  }

 private:
  const Work work_;
};

/// Work on a file that is open.
FileKernel::Work on_file(std::function<Status(EventWriter&, const Inputs&)> work) {
  return [work = std::move(work)](std::unique_ptr<EventWriter>& file, const Inputs& inputs) -> Status {
    if (!file)
      return make_error(Code::kNotFound, "the summary writer has no file: CreateSummaryFileWriter must run before");
    return work(*file, inputs);
  };
}

/// Work that writes a Summary of inputs behind the step.
FileKernel::Work on_summary(std::function<Status(const Inputs&, proto::Summary&)> fill) {
  return on_file([fill = std::move(fill)](EventWriter& file, const Inputs& inputs) -> Status {
    TROUPE_ASSIGN(const int64_t step, scalar_of<int64_t>(inputs[1], "step"));
    proto::Summary summary;
    TROUPE_RETURN_IF_ERROR(fill(inputs, summary));
    return file.summary(step, summary.SerializeAsString());
  });
}

FileKernel::Work create_file(const KernelInit& init) {
  return [folders = init.data_folders](std::unique_ptr<EventWriter>& file, const Inputs& inputs) -> Status {
    TROUPE_ASSIGN(const std::string folder, scalar_of<std::string>(inputs[1], "logdir"));
    TROUPE_ASSIGN(const int32_t events, scalar_of<int32_t>(inputs[2], "max_queue"));
    TROUPE_ASSIGN(const int32_t millis, scalar_of<int32_t>(inputs[3], "flush_millis"));
    TROUPE_ASSIGN(const std::string suffix, scalar_of<std::string>(inputs[4], "filename_suffix"));
    if (file) return {};
    TROUPE_RETURN_IF_ERROR(may_touch(folders, folder));
    TROUPE_ASSIGN(file, EventWriter::open(folder, {}, suffix));
    file->flush_after(events, millis / 1000.0);
    return {};
  };
}

Status write_tensor(const Inputs& in, proto::Summary& out) {
  auto* v = out.add_value();
  TROUPE_RETURN_IF_ERROR(set_tensor(in[2], *v));
  TROUPE_ASSIGN(std::string tag, scalar_of<std::string>(in[3], "tag"));
  TROUPE_ASSIGN(std::string metadata, scalar_of<std::string>(in[4], "summary_metadata"));
  v->set_tag(std::move(tag));
  if (!metadata.empty()) v->set_metadata(std::move(metadata));
  return {};
}

Status write_scalar(const Inputs& in, proto::Summary& out) {
  TROUPE_ASSIGN(const std::string tag, scalar_of<std::string>(in[2], "tag"));
  if (in[3].rank() != 0) return invalid_argument("value must be a scalar, not {}", in[3].str());
  add_number(tag, in[3], 0, out);
  return {};
}

Status write_histogram(const Inputs& in, proto::Summary& out) {
  TROUPE_ASSIGN(const std::string tag, scalar_of<std::string>(in[2], "tag"));
  return add_histogram(tag, in[3], out);
}

/// The values of several Summaries as one, since repeated fields of messages that follow one another add up.
Status write_raw(EventWriter& file, const Inputs& in) {
  TROUPE_ASSIGN(const int64_t step, scalar_of<int64_t>(in[1], "step"));
  std::string all;
  for (const std::string& bytes : in[2].values<std::string>()) all += bytes;
  return file.summary(step, all);
}

Status write_graph(EventWriter& file, const Inputs& in) {
  TROUPE_ASSIGN(const int64_t step, scalar_of<int64_t>(in[1], "step"));
  TROUPE_ASSIGN(const std::string bytes, scalar_of<std::string>(in[2], "tensor"));
  return file.graph(bytes, step);
}

Status import_event(EventWriter& file, const Inputs& in) {
  TROUPE_ASSIGN(const std::string bytes, scalar_of<std::string>(in[1], "event"));
  return file.event(bytes);
}

FileKernel::Work write_image(const KernelInit& init) {
  return on_summary([most = init.attr<int64_t>("max_images")](const Inputs& in, proto::Summary& out) -> Status {
    TROUPE_ASSIGN(const std::string tag, scalar_of<std::string>(in[2], "tag"));
    return add_pictures(tag, in[3], most, in[4], out);
  });
}

FileKernel::Work write_audio(const KernelInit& init) {
  return on_summary([most = init.attr<int64_t>("max_outputs")](const Inputs& in, proto::Summary& out) -> Status {
    TROUPE_ASSIGN(const std::string tag, scalar_of<std::string>(in[2], "tag"));
    TROUPE_ASSIGN(const float rate, scalar_of<float>(in[4], "sample_rate"));
    return add_sounds(tag, in[3], most, rate, out);
  });
}

FileKernel::Work close_file(const KernelInit&) {
  return [](std::unique_ptr<EventWriter>& file, const Inputs&) -> Status {
    if (!file) return make_error(Code::kNotFound, "the summary writer has no file to close");
    const Status status = file->flush();
    file.reset();
    return status;
  };
}

}  // namespace

void register_summary_writer_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto cpu = DeviceKind::kCpu;
  ops.add(OpDef("SummaryWriter")
              .output("writer: resource")
              .attr("shared_name: string = ''")
              .attr("container: string = ''")
              .doc("A handle to a writer of summaries, which has no file before CreateSummaryFileWriter. Nodes of the "
                   "same `shared_name` (the node's name when empty) and `container` share one.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("a handle is not a number"));
  kernels.add("SummaryWriter", cpu, {}, make_summary_writer);

  const auto add = [&](OpDef op, FileKernel::Work (*work)(const KernelInit&)) {
    const std::string name = op.name();
    ops.add(op.shape(no_outputs).stateful(), not_differentiable("it has no output"));
    kernels.add(name, cpu, {}, [work](const KernelInit& init) -> Result<std::unique_ptr<ResourceKernel>> {
      return std::unique_ptr<ResourceKernel>(std::make_unique<FileKernel>(work(init)));
    });
  };
  const auto on_writer = [](const char* name) {
    OpDef op(name);
    return op.input("writer: resource");
  };
  const auto writes = [&](const char* name) {
    OpDef op = on_writer(name);
    return op.input("step: int64");
  };
  add(on_writer("CreateSummaryFileWriter")
          .input("logdir: string")
          .input("max_queue: int32")
          .input("flush_millis: int32")
          .input("filename_suffix: string")
          .doc("Opens a new event file in the folder `logdir`, which is made where there is none, with this suffix of "
               "its name. A write flushes after more than `max_queue` events, or more than `flush_millis`, since the "
               "last flush. A writer that has a file keeps it."),
      create_file);
  add(writes("WriteSummary")
          .input("tensor: T")
          .input("tag: string")
          .input("summary_metadata: string")
          .attr("T: type")
          .doc("Writes a whole tensor under a tag, with metadata that says how to show it, which are not looked at. "
               "Handles and lists are errors."),
      [](const KernelInit&) { return on_summary(write_tensor); });
  add(writes("WriteScalarSummary")
          .input("tag: string")
          .input("value: T")
          .attr(type_attr("T", NumberTypes{}))
          .doc("Writes a number under its tag."),
      [](const KernelInit&) { return on_summary(write_scalar); });
  add(writes("WriteHistogramSummary")
          .input("tag: string")
          .input("values: T")
          .attr(type_attr("T",
                          TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t,
                                   uint16_t, uint32_t, uint64_t, bool>{},
                          "float32"))
          .doc("Writes the distribution of all values. NaN and infinity are errors."),
      [](const KernelInit&) { return on_summary(write_histogram); });
  add(writes("WriteImageSummary")
          .input("tag: string")
          .input("tensor: T")
          .input("bad_color: uint8")
          .attr("max_images: int >= 1 = 3")
          .attr(type_attr("T", PictureTypes{}, "float32"))
          .doc("Writes the first `max_images` of images as ImageSummary gives them."),
      write_image);
  add(writes("WriteAudioSummary")
          .input("tag: string")
          .input("tensor: float32")
          .input("sample_rate: float32")
          .attr("max_outputs: int >= 1 = 3")
          .doc("Writes the first `max_outputs` of sounds as AudioSummaryV2 gives them."),
      write_audio);
  add(writes("WriteRawProtoSummary")
          .input("tensor: string")
          .doc("Writes the values of Summaries, given as their bytes, as one event."),
      [](const KernelInit&) { return on_file(write_raw); });
  add(writes("WriteGraphSummary")
          .input("tensor: string")
          .doc("Writes a graph, given as the bytes of its GraphDef, which are not looked at."),
      [](const KernelInit&) { return on_file(write_graph); });
  add(on_writer("ImportEvent")
          .input("event: string")
          .doc("Writes an Event, given as its bytes, with the time and the step that it has."),
      [](const KernelInit&) { return on_file(import_event); });
  add(on_writer("FlushSummaryWriter").doc("Writes to the file what is gathered in memory."),
      [](const KernelInit&) { return on_file([](EventWriter& file, const Inputs&) { return file.flush(); }); });
  add(on_writer("CloseSummaryWriter").doc("Flushes the file and lets go of it."), close_file);
}

}  // namespace troupe
