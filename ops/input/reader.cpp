// SPDX-License-Identifier: Apache-2.0
// Readers: TextLineReaderV2, FixedLengthRecordReaderV2, TFRecordReaderV2, WholeFileReaderV2 and IdentityReaderV2 make
// handles; ReaderReadV2, ReaderReadUpToV2, ReaderNumRecordsProducedV2, ReaderNumWorkUnitsCompletedV2 and ReaderResetV2
// run at the reader's host.
#include "io/data_folders.h"
#include "ops/input/file_reader.h"
#include "ops/input/register.h"
#include "ops/parts/resource_kernel.h"

namespace troupe {
namespace {

// -- handles ----------------------------------------------------------------------------------------------------------

/// `open` where the graph may touch files alone.
OpenSource in_data_folders(const KernelInit& init, OpenSource open) {
  if (!init.data_folders) return open;
  return [folders = init.data_folders,
          open = std::move(open)](const std::string& path) -> Result<std::unique_ptr<RecordSource>> {
    TROUPE_RETURN_IF_ERROR(folders->check(path));
    return open(path);
  };
}

Result<std::unique_ptr<ComputeKernel>> reader_handle(const KernelInit& init, OpenSource open, bool single = false) {
  ResourceHandle handle = make_handle(init, "reader");
  handle.signature = signature_of(init);
  handle.input = true;
  handle.factory = [name = handle.name, open = std::move(open), single]() -> Result<std::unique_ptr<Resource>> {
    return std::unique_ptr<Resource>(std::make_unique<FileReader>(name, open, single));
  };
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

/// What a file is packed with. Error: a way that is not known here.
Result<bool> is_gzip(const KernelInit& init, const char* attr) {
  const auto& word = init.attr<std::string>(attr);
  if (word.empty() || word == "GZIP") return !word.empty();
  return make_error(Code::kUnimplemented, "{} \"{}\"; files are read plain or as GZIP", attr, word);
}

Result<std::unique_ptr<ComputeKernel>> line_reader(const KernelInit& init) {
  const auto skip = init.attr<int64_t>("skip_header_lines");
  if (skip < 0) return invalid_argument("skip_header_lines is {}", skip);
  return reader_handle(init, in_data_folders(init, line_source(skip)));
}

Result<std::unique_ptr<ComputeKernel>> fixed_length_reader(const KernelInit& init) {
  TROUPE_ASSIGN(const bool gzip, is_gzip(init, "encoding"));
  TROUPE_ASSIGN(OpenSource open,
                fixed_length_source({init.attr<int64_t>("header_bytes"), init.attr<int64_t>("record_bytes"),
                                     init.attr<int64_t>("footer_bytes"), init.attr<int64_t>("hop_bytes"), gzip}));
  return reader_handle(init, in_data_folders(init, std::move(open)));
}

Result<std::unique_ptr<ComputeKernel>> tfrecord_reader(const KernelInit& init) {
  TROUPE_RETURN_IF_ERROR(is_gzip(init, "compression_type"));  // which files are gzip shows in them
  return reader_handle(init, in_data_folders(init, tfrecord_source()));
}

// -- requests ---------------------------------------------------------------------------------------------------------

/// A kernel around a function FileReader&, ResourceRequest&, which replies or hands the reply on.
class ReaderKernel final : public ResourceKernel {
 public:
  using Run = void (*)(FileReader&, ResourceRequest&);
  explicit ReaderKernel(Run run) : run_(run) {}
  void execute(Resource& resource, ResourceRequest request) override {
    if (auto* reader = core_as<FileReader>(resource, request, "reader")) run_(*reader, request);
  }

 private:
  const Run run_;
};

/// The queue that input 1 names; replies with an error and returns nothing where it names none.
ResourceRef queue_of(ResourceRequest& request) {
  if (const ResourceHandle* handle = handle_at(request, 1); handle && handle->type == "queue")
    return request.inputs[1].data<ResourceRef>()[0];
  request.reply(invalid_argument("input 1 must be the handle of a queue, got {}", request.inputs[1].str()));
  return {};
}

void read(FileReader& reader, ResourceRequest& request) {
  if (ResourceRef queue = queue_of(request)) reader.read(std::move(queue), std::move(request.reply));
}

void read_up_to(FileReader& reader, ResourceRequest& request) {
  const Tensor& n = request.inputs[2];
  if (n.dtype() != DType::kInt64 || n.elements() != 1)
    return request.reply(invalid_argument("num_records must be an int64 scalar, got {}", n.str()));
  const int64_t count = n.data<int64_t>()[0];
  if (ResourceRef queue = queue_of(request)) reader.read_up_to(std::move(queue), count, std::move(request.reply));
}

void num_records(FileReader& reader, ResourceRequest& request) {
  request.reply(one_output(Tensor::scalar(reader.records_produced())));
}

void num_files(FileReader& reader, ResourceRequest& request) {
  request.reply(one_output(Tensor::scalar(reader.files_completed())));
}

void reset(FileReader& reader, ResourceRequest& request) { reader.reset(std::move(request.reply)); }

}  // namespace

void register_reader_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto cpu = DeviceKind::kCpu;
  const auto add_reader = [&](OpDef op, const std::string& what, KernelFactory factory) {
    const std::string name = op.name();
    ops.add(op.output("reader_handle: resource")
                .attr("container: string = ''")
                .attr("shared_name: string = ''")
                .doc("A handle to a reader that gives " + what +
                     " Nodes of the same `shared_name` (the node's name when empty) and `container` share one.")
                .shape(scalar_shape)
                .stateful(),
            not_differentiable("a handle is not a number"));
    kernels.add(name, cpu, {}, std::move(factory));
  };
  add_reader(OpDef("TextLineReaderV2").attr("skip_header_lines: int = 0"),
             "the lines of files without their ends, the first ones skipped; a key is the path and the line's number, "
             "\"a.txt:1\".",
             line_reader);
  add_reader(OpDef("FixedLengthRecordReaderV2")
                 .attr("header_bytes: int = 0")
                 .attr("record_bytes: int")
                 .attr("footer_bytes: int = 0")
                 .attr("hop_bytes: int = 0")
                 .attr("encoding: string = ''"),
             "the pieces of `record_bytes` of files, every `hop_bytes` (0: one after the other) between a header and a "
             "footer; a key is the path and the piece's number, \"a.bin:0\". Files are plain or of `encoding` GZIP.",
             fixed_length_reader);
  add_reader(OpDef("TFRecordReaderV2").attr("compression_type: string = ''"),
             "the records of TFRecord files, plain or gzip; a key is the path and the record's offset, \"a:0\".",
             tfrecord_reader);
  add_reader(OpDef("WholeFileReaderV2"), "whole files; a key is the path.", [](const KernelInit& init) {
    return reader_handle(init, in_data_folders(init, whole_file_source()), true);
  });
  add_reader(OpDef("IdentityReaderV2"), "what it takes from the queue, as key and value.",
             [](const KernelInit& init) { return reader_handle(init, name_source(), true); });

  const auto add = [&](OpDef op, ReaderKernel::Run run, const char* reason) {
    const std::string name = op.name();
    ops.add(op.stateful(), not_differentiable(reason));
    kernels.add(name, cpu, {}, [run](const KernelInit&) -> Result<std::unique_ptr<ResourceKernel>> {
      return std::unique_ptr<ResourceKernel>(std::make_unique<ReaderKernel>(run));
    });
  };
  const auto reader = [](const char* name) {
    OpDef op(name);
    return op.input("reader_handle: resource");
  };
  const char* no_numbers = "records are strings";
  const char* count = "a count does not depend on values";
  add(reader("ReaderReadV2")
          .input("queue_handle: resource")
          .output("key: string")
          .output("value: string")
          .shape(scalar_shape)
          .doc("The next record. Where the reader has no file at work it takes the name of one from the queue, and "
               "waits for it. Fails with out-of-range when the queue is closed and empty, and for a file that cannot "
               "be read, which is then passed over, or is damaged, which ends the reader until it is reset."),
      read, no_numbers);
  add(reader("ReaderReadUpToV2")
          .input("queue_handle: resource")
          .input("num_records: int64")
          .output("keys: string")
          .output("values: string")
          .shape([](ShapeContext& c) -> Status {
            TROUPE_RETURN_IF_ERROR(c.with_rank(2, 0));
            for (int i = 0; i < 2; ++i) c.set_output(i, {-1});
            return {};
          })
          .doc("The next records, `num_records` at most and fewer where a file ends. Otherwise as ReaderReadV2."),
      read_up_to, no_numbers);
  add(reader("ReaderNumRecordsProducedV2")
          .output("records_produced: int64")
          .shape(scalar_shape)
          .doc("How many records the reader has given."),
      num_records, count);
  add(reader("ReaderNumWorkUnitsCompletedV2")
          .output("units_completed: int64")
          .shape(scalar_shape)
          .doc("How many files the reader has read to their ends."),
      num_files, count);
  add(reader("ReaderResetV2")
          .shape(no_outputs)
          .doc("Lets the reader forget its file and its counts, after the reads that came before."),
      reset, "it has no output");
}

}  // namespace troupe
