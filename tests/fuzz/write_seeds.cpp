// SPDX-License-Identifier: Apache-2.0
// Writes the seeds that fuzzing starts from, by our own writers: a folder for each fuzzer.
//   write_seeds DIRECTORY
#include <google/protobuf/text_format.h>
#include <zlib.h>

#include <filesystem>

#include "graph/graph_def/saved_model.pb.h"
#include "io/example.pb.h"
#include "io/image.h"
#include "io/safetensors.h"
#include "io/slice_checkpoint.h"
#include "io/tensor_bundle.h"
#include "io/tfrecord.h"
#include "io/whole_file.h"
#include "net/messages.h"
#include "tests/fuzz/table_entries.h"
#include "tests/graph/saved_model_text.h"
#include "tests/ops/array_cases.h"
#include "tests/ops/evaluate.h"
#include "tests/ops/math/math_cases.h"
#include "troupe/gradients.h"
#include "troupe/graph_def.h"
#include "troupe/npy.h"

using namespace troupe;
using testing::op_library;

namespace {

/// The folder of one fuzzer.
class Folder {
 public:
  Folder(const std::string& directory, const std::string& fuzzer) : path_(directory + "/" + fuzzer) {
    std::filesystem::create_directories(path_);
  }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  Status write(const std::string& name, std::string_view bytes) const { return write_file(file(name), bytes); }

 private:
  std::string path_;
};

/// One tensor of each dtype.
TensorMap samples() {
  return {{"f16", Tensor::of<float16>({float16(1.5f), float16(-2.f)})},
          {"bf16", Tensor::of<bfloat16>({bfloat16(1.5f)})},
          {"f32", Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3})},
          {"f64", Tensor::scalar(0.5)},
          {"i8", Tensor::of<int8_t>({-1, 2})},
          {"i16", Tensor::of<int16_t>({-1, 2})},
          {"i32", Tensor::of<int32_t>({}, {0, 4})},
          {"i64", Tensor::of<int64_t>({INT64_MIN, INT64_MAX})},
          {"u8", Tensor::of<uint8_t>({0, 255, 7, 9}, {1, 2, 2})},
          {"u16", Tensor::of<uint16_t>({1})},
          {"u32", Tensor::of<uint32_t>({1})},
          {"u64", Tensor::of<uint64_t>({UINT64_MAX})},
          {"bool", Tensor::of<bool>({true, false, true})},
          {"c64", Tensor::of<complex64>({{1, -2}})},
          {"c128", Tensor::of<complex128>({{1, -2}})},
          {"string", Tensor::of<std::string>({"one", "", "three"})}};
}

/// A small convnet with its loss, gradients, update and input queue.
Status build_network(const Scope& s) {
  const auto variable = [&](const char* name, const Tensor& value) {
    const Output handle = s.named(name).op(
        "VarHandleOp", {},
        {{"dtype", DType::kFloat32}, {"shape", PartialShape(value.shape())}, {"shared_name", std::string(name)}});
    s.node("AssignVariableOp", {handle, s.constant(value)}, {{"dtype", DType::kFloat32}});
    return handle;
  };
  const auto read = [&](Output handle) { return s.op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat32}}); };
  const std::vector<DType> types = {DType::kFloat32, DType::kInt32};
  const Output queue = s.op("FIFOQueueV2", {}, {{"component_types", types}, {"capacity", int64_t{8}}});
  const Node* batch = s.device("/cpu:0").node("QueueDequeueV2", {queue}, {{"component_types", types}});
  TROUPE_RETURN_IF_ERROR(s.status());
  const Output x = s.op("Reshape", {batch->out(0), s.constant(Tensor::of<int32_t>({-1, 4, 4, 1}))});
  const Output filter = variable("filter", testing::ramp32({3, 3, 1, 2}));
  const Output matrix = variable("matrix", testing::ramp32({8, 3}));
  Output y = s.op("Conv2D", {x, read(filter)}, {{"strides", std::vector<int64_t>(4, 1)}, {"padding", "SAME"}});
  y = s.op("MaxPool", {s.op("Relu", {y})},
           {{"ksize", std::vector<int64_t>{1, 2, 2, 1}},
            {"strides", std::vector<int64_t>{1, 2, 2, 1}},
            {"padding", "VALID"}});
  y = s.op("MatMul", {s.op("Reshape", {y, s.constant(Tensor::of<int32_t>({-1, 8}))}), read(matrix)});
  const Output loss = s.op("SparseSoftmaxCrossEntropyWithLogits", {y, batch->out(1)});
  TROUPE_RETURN_IF_ERROR(s.status());
  TROUPE_ASSIGN(const auto dxs, gradients(s, {loss}, {filter, matrix}));
  const Node* first = s.node("ResourceApplyGradientDescent", {filter, s.constant(0.1f), dxs[0]});
  s.after(std::vector{first}).node("ResourceApplyGradientDescent", {matrix, s.constant(0.1f), dxs[1]});
  return s.status();
}

Status write_graphs(const Folder& folder) {
  const OpRegistry& ops = op_library()->ops;
  int count = 0;
  for (const auto& cases :
       {testing::const_cases(), testing::unary_cases(), testing::binary_cases(), testing::reduction_cases(),
        testing::array_cases(), testing::gather_cases(), testing::random_cases(), testing::matrix_cases()}) {
    for (const testing::OpCase& c : cases) {
      Graph graph(ops);
      const Scope s(graph);
      std::vector<Output> inputs;
      for (const Tensor& t : c.inputs) inputs.push_back(s.constant(t));
      s.node(c.op, inputs, c.attrs);
      TROUPE_RETURN_IF_ERROR(s.status());
      TROUPE_RETURN_IF_ERROR(folder.write(fmt::format("{:03}_{}", count++, c.op), to_graph_def(graph)));
    }
  }
  Graph graph(ops);
  TROUPE_RETURN_IF_ERROR(build_network(Scope(graph)));
  TROUPE_RETURN_IF_ERROR(folder.write("network", to_graph_def(graph)));
  return folder.write("network.pbtxt", to_graph_def_text(graph));
}

/// After the fuzzer's byte of options.
Status write_saved_models(const Folder& folder) {
  const std::string meta_text = testing::sample_meta_graph(), text = testing::saved_model_text(meta_text);
  proto::SavedModel model;
  proto::MetaGraphDef meta;
  if (!google::protobuf::TextFormat::ParseFromString(text, &model) ||
      !google::protobuf::TextFormat::ParseFromString(meta_text, &meta))
    return make_error(Code::kInternal, "the sample of a SavedModel is malformed");
  TROUPE_RETURN_IF_ERROR(folder.write("text", '\0' + text));
  TROUPE_RETURN_IF_ERROR(folder.write("model", '\0' + model.SerializeAsString()));
  return folder.write("meta", '\1' + meta.SerializeAsString());
}

Status write_arrays(const Folder& npy, const Folder& npz) {
  TensorMap arrays = samples();
  arrays.erase("bf16");  // NumPy has none
  for (const auto& [name, tensor] : arrays) TROUPE_RETURN_IF_ERROR(write_npy(npy.file(name), tensor));
  TROUPE_ASSIGN(std::string fortran, encode_npy(arrays.at("f32"), "fortran"));
  fortran.replace(fortran.find("False"), 5, "True ");
  TROUPE_RETURN_IF_ERROR(npy.write("fortran", fortran));
  TROUPE_RETURN_IF_ERROR(write_npz(npz.file("stored"), arrays, false));
  return write_npz(npz.file("deflated"), arrays, true);
}

Status write_gzip(const std::string& path, std::string_view bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  if (!file) return make_error(Code::kInternal, "cannot write '{}'", path);
  const bool written = gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) > 0;
  return gzclose(file) == Z_OK && written ? Status() : make_error(Code::kInternal, "cannot write '{}'", path);
}

Status write_idx(const Folder& folder) {
  const std::string labels("\0\0\x08\1\0\0\0\3\7\0\xff", 11);
  const std::string floats("\0\0\x0d\2\0\0\0\1\0\0\0\2\x3f\x80\0\0\x40\0\0\0", 20);
  TROUPE_RETURN_IF_ERROR(folder.write("labels", labels));
  TROUPE_RETURN_IF_ERROR(folder.write("floats", floats));
  return write_gzip(folder.file("labels.gz"), labels);
}

Status write_checkpoints(const Folder& folder) {
  TensorMap tensors = samples();
  tensors.erase("string");  // the format has none
  TROUPE_RETURN_IF_ERROR(write_safetensors(folder.file("samples"), tensors, 7));
  TROUPE_RETURN_IF_ERROR(write_safetensors(folder.file("empty"), {}));
  const std::string header = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";  // as of another program
  return folder.write("unchecked",
                      std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + "ab");
}

/// Checkpoints of TensorFlow's formats: whole tensors, and one in parts.
Status write_tensorflow_checkpoints(const Folder& bundle, const Folder& slices, const Folder& table) {
  const auto files = std::make_shared<SimulatedFiles>();
  std::vector<TensorToSave> all, some;
  for (const auto& [name, value] : samples()) {
    all.push_back({name, value.dtype(), value.shape(), {}, [value = value]() -> Result<Tensor> { return value; }});
    if (name != "bf16" && name != "u32" && name != "u64") some.push_back(all.back());  // V1 has none
  }
  for (auto* tensors : {&all, &some})
    for (const char* box : {"3 2 0,1:-", "3 2 1,2:-"}) {
      const TensorSlice slice = *TensorSlice::parse(box);
      tensors->push_back(
          {"w", DType::kFloat32, slice.whole, slice, [slice] { return Tensor::zeros(DType::kFloat32, slice.part); }});
    }
  TROUPE_RETURN_IF_ERROR(write_bundle({files, {}}, "d/m", all));
  TROUPE_RETURN_IF_ERROR(write_slice_checkpoint({files, {}}, "d/v1", some));
  TROUPE_RETURN_IF_ERROR(table.write("index", files->now["d/m.index"]->data));
  TROUPE_RETURN_IF_ERROR(table.write("v1", files->now["d/v1"]->data));
  TROUPE_RETURN_IF_ERROR(bundle.write("samples", testing::put_entries(testing::entries_at(*files, "d/m.index")) +
                                                     files->now["d/m.data-00000-of-00001"]->data));
  return slices.write("samples", testing::put_entries(testing::entries_at(*files, "d/v1")));
}

Status write_records(const Folder& folder) {
  const std::string records = encode_record("first") + encode_record("") + encode_record(std::string(300, 'x'));
  TROUPE_RETURN_IF_ERROR(folder.write("records", records));
  return write_gzip(folder.file("records.gz"), records);
}

/// Frames of all messages and dtypes, behind the byte that says how they are cut.
Status write_frames(const Folder& folder) {
  const auto bytes_of = [](const net::FrameRef& frame) {
    const auto header = frame->header(net::is_sequenced(frame->type()) ? 1 : 0, 0).encode();
    std::string out(header.data(), header.size());
    for (const auto part : frame->parts()) out.append(part.data(), part.size());
    return out;
  };
  std::string all(1, '\7');
  const auto write = [&]<class Message>(const char* name, const Message& message, std::vector<Tensor> tensors = {}) {
    const std::string bytes = bytes_of(net::make_frame(message, std::move(tensors)).value());
    all += bytes;
    return folder.write(name, std::string(1, '\0') + bytes);
  };
  const net::TaskId ps{"ps", 0}, worker{"worker", 1};
  std::vector<Tensor> tensors(1);
  for (const auto& [name, tensor] : samples()) tensors.push_back(tensor);
  Error error = invalid_argument("sizes differ");
  error.node = "n", error.device = "d", error.step = 3;
  TROUPE_RETURN_IF_ERROR(
      write("hello", net::Hello{1, 1, "c", ps, worker, net::PeerRole::kTask, {1, 2}, {3, 4}, 0, 9, 2}));
  TROUPE_RETURN_IF_ERROR(write("welcome", net::Welcome{1, worker, {3, 4}, true, 5}));
  TROUPE_RETURN_IF_ERROR(write("refused", net::Refused{net::Refusal::kCluster, "other"}));
  TROUPE_RETURN_IF_ERROR(write("ping", net::Ping{5}));
  TROUPE_RETURN_IF_ERROR(write("peers", net::Peers{1, {{ps, "host:1", {1, 2}}}}));
  TROUPE_RETURN_IF_ERROR(write("register", net::RegisterProgram{1, 2, 3, {"x"}, {"y:0"}, {{1, ps, true}}},
                               {Tensor::of<uint8_t>({1, 2, 3})}));
  TROUPE_RETURN_IF_ERROR(write("run", net::RunProgram{1, 2, 3, 4, 5}, tensors));
  TROUPE_RETURN_IF_ERROR(
      write("done", net::StepDone{2, error, {{"n", "cpu", 1, 2, 3, 4}}, {{1, "n", "d", 4, 5}}, 6, 7}));
  TROUPE_RETURN_IF_ERROR(
      write("tensor", net::EdgeTensor{9, 2, 1, false, {0, 7}, ""}, {Tensor::of<float>({1, 2}, {1, 2})}));
  TROUPE_RETURN_IF_ERROR(write("abort", net::AbortRun{2, error}));
  TROUPE_RETURN_IF_ERROR(write("restart", net::RestartDataset{1, "d"}));
  TROUPE_RETURN_IF_ERROR(write("result", net::RequestDone{1, false, {}, {"v"}}, {Tensor::scalar(1.f)}));
  return folder.write("all", all);
}

/// Records with all features that the fuzzer asks for, with none, and with one of another type.
Status write_examples(const Folder& folder) {
  proto::Example example;
  TROUPE_RETURN_IF_ERROR(folder.write("empty", ""));
  const auto add = [&](const char* key) {
    auto* entry = example.mutable_features()->add_feature();
    entry->set_key(key);
    return entry->mutable_value();
  };
  add("s")->mutable_bytes_list()->add_value("text");
  for (const float v : {0.5f, -1.f}) add("d")->mutable_float_list()->add_value(v);
  TROUPE_RETURN_IF_ERROR(folder.write("wrong_size", example.SerializeAsString()));
  for (const char* key : {"d", "r"}) {
    auto* list = add(key)->mutable_int64_list();
    for (const int64_t v : {int64_t{1}, INT64_MIN}) list->add_value(v);
  }
  TROUPE_RETURN_IF_ERROR(folder.write("wrong_type", example.SerializeAsString()));
  auto* reals = add("d")->mutable_float_list();
  auto* numbers = add("v")->mutable_int64_list();
  for (const int v : {1, 2}) reals->add_value(static_cast<float>(v)), numbers->add_value(v), numbers->add_value(-v);
  return folder.write("whole", example.SerializeAsString());
}

/// Pictures after the fuzzer's byte of options.
Status write_images(const Folder& folder) {
  const Tensor pixels = Tensor::of<uint8_t>({0, 50, 100, 150, 200, 250, 25, 75, 125, 175, 225, 255}, {2, 2, 3});
  TROUPE_ASSIGN(const std::string png, encode_png({pixels.raw(), 2, 2, 3}));
  TROUPE_ASSIGN(const std::string grey, encode_png({pixels.raw(), 3, 2, 1, 16}));
  JpegOptions progressive;
  progressive.progressive = true;
  TROUPE_ASSIGN(const std::string jpeg, encode_jpeg({pixels.raw(), 2, 2, 3}, {}));
  TROUPE_ASSIGN(const std::string scans, encode_jpeg({pixels.raw(), 4, 3, 1}, progressive));
  std::string bmp("BM\x3e\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\2\0\0\0\1\0\0\0\1\0\x20\0", 30);
  bmp += std::string(24, '\0') + "abcdefgh";
  const std::string frame("!\xf9\4\1\0\0\1\0,\0\0\0\0\2\0\1\0\0\2\2\x0c\1\0", 23);
  const std::string gif = std::string("GIF89a\2\0\1\0\x80\0\0abcdef", 19) + frame + frame + ";";
  TROUPE_RETURN_IF_ERROR(folder.write("gif", '\0' + gif));
  TROUPE_RETURN_IF_ERROR(folder.write("png", '\0' + png));
  TROUPE_RETURN_IF_ERROR(folder.write("grey", '\x08' + grey));
  TROUPE_RETURN_IF_ERROR(folder.write("jpeg", '\x43' + jpeg));
  TROUPE_RETURN_IF_ERROR(folder.write("scans", '\x10' + scans));
  return folder.write("bmp", '\0' + bmp);
}

Status run(const std::string& directory) {
  TROUPE_RETURN_IF_ERROR(write_graphs({directory, "graph_def"}));
  TROUPE_RETURN_IF_ERROR(write_saved_models({directory, "saved_model"}));
  TROUPE_RETURN_IF_ERROR(write_arrays({directory, "npy"}, {directory, "npz"}));
  TROUPE_RETURN_IF_ERROR(write_idx({directory, "idx"}));
  TROUPE_RETURN_IF_ERROR(write_images({directory, "image"}));
  TROUPE_RETURN_IF_ERROR(write_checkpoints({directory, "safetensors"}));
  TROUPE_RETURN_IF_ERROR(
      write_tensorflow_checkpoints({directory, "bundle"}, {directory, "slices"}, {directory, "table"}));
  TROUPE_RETURN_IF_ERROR(write_examples({directory, "example"}));
  TROUPE_RETURN_IF_ERROR(write_frames({directory, "frame"}));
  return write_records({directory, "tfrecord"});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') return fmt::print(stderr, "usage: write_seeds DIRECTORY\n"), 2;
  const Status done = run(argv[1]);
  if (!done.ok()) fmt::print(stderr, "write_seeds: {}\n", done.error().str());
  return done.ok() ? 0 : 1;
}
