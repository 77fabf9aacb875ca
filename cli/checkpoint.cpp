// SPDX-License-Identifier: Apache-2.0
// The subcommand checkpoint: what tensors a checkpoint has, and checkpoints of one format from those of another.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/join.h"
#include "base/printable.h"
#include "cli/checkpoint_files.h"
#include "cli/commands.h"
#include "programs/program.h"

namespace troupe {
namespace {

struct CheckpointArguments {
  std::string from, to, format;
  bool json = false, skip = false;
};

/// What --to and --json call the formats.
constexpr std::pair<const char*, CheckpointKind> kFormats[] = {
    {"v2", CheckpointKind::kBundle}, {"v1", CheckpointKind::kSlices}, {"safetensors", CheckpointKind::kSafetensors}};

const char* format_of(CheckpointKind kind) {
  for (const auto& [name, k] : kFormats)
    if (k == kind) return name;
  return "";
}

/// 1234567 as 1,234,567.
std::string grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = utf8_character(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

/// A name as JSON has it, which escapes by itself what it must; bytes that are not UTF-8 have no place in it.
std::string json_text(std::string_view text) { return is_utf8(text) ? std::string(text) : printable(text); }

/// Whether checkpoints of a kind hold a tensor of that name.
bool can_name(CheckpointKind kind, std::string_view name) {
  if (kind == CheckpointKind::kSafetensors) return name != "__metadata__" && is_utf8(name);
  return kind != CheckpointKind::kBundle || !name.empty();
}

void print_json(const CheckpointReader& checkpoint) {
  using nlohmann::json;
  json tensors = json::array();
  for (const auto& e : checkpoint.entries()) {
    const auto dims = e.shape.dims();
    tensors.push_back({{"name", json_text(e.name)},
                       {"dtype", name_of_type(e.type)},
                       {"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                       {"bytes", e.bytes ? json(*e.bytes) : json()},
                       {"parts", e.parts}});
  }
  const json all = {{"path", json_text(checkpoint.path())},
                    {"format", format_of(checkpoint.kind())},
                    {"files", checkpoint.shards()},
                    {"tensors", std::move(tensors)}};
  programs::print("{}\n", all.dump(2));
}

void print_table(const CheckpointReader& checkpoint) {
  const auto entries = checkpoint.entries();
  const int files = checkpoint.shards();
  programs::print("{}: {}, {} of data\n", printable(checkpoint.path()), to_string(checkpoint.kind()),
                  files == 1 ? "1 file" : fmt::format("{} files", files));
  size_t width = 0, middle = 0;
  const auto type = [](const auto& e) { return name_of_type(e.type) + e.shape.str(); };
  for (const auto& e : entries) {
    width = std::max(width, printable(e.name).size());
    middle = std::max(middle, type(e).size());
  }
  uint64_t elements = 0, bytes = 0;
  for (const auto& e : entries) {
    elements += static_cast<uint64_t>(e.shape.elements());
    bytes += e.bytes.value_or(0);
    programs::print("  {:<{}}  {:<{}}  {}{}\n", printable(e.name), width, type(e), middle,
                    e.bytes ? grouped(*e.bytes) + " bytes" : "? bytes",
                    e.parts > 1 ? fmt::format(" in {} parts", e.parts) : "");
  }
  programs::print("{} tensors, {} elements, {} bytes\n", grouped(entries.size()), grouped(elements), grouped(bytes));
}

Status list(const CheckpointArguments& o) {
  TROUPE_ASSIGN(const CheckpointReader checkpoint, open_checkpoint(o.from));
  if (o.json) print_json(checkpoint);
  else print_table(checkpoint);
  return {};
}

/// Says on stderr every few seconds how far a long conversion is.
class BytesDone {
 public:
  explicit BytesDone(uint64_t all) : all_(all) {}
  void add(uint64_t bytes) {
    done_ += bytes;
    const auto now = std::chrono::steady_clock::now();
    if (now - said_ < std::chrono::seconds(2)) return;
    said_ = now;
    fmt::print(stderr, "troupe: {:.2f} of {:.2f} GB\n", static_cast<double>(done_) / 1e9,
               static_cast<double>(all_) / 1e9);
  }

 private:
  const uint64_t all_;
  uint64_t done_ = 0;
  std::chrono::steady_clock::time_point said_ = std::chrono::steady_clock::now();
};

Status convert(const CheckpointArguments& o) {
  auto [kind, to] = checkpoint_target(o.to);
  for (const auto& [name, k] : kFormats)
    if (o.format == name && k != kind) kind = k, to = k == CheckpointKind::kBundle ? to : o.to;
  TROUPE_RETURN_IF_ERROR(check_target({kind, to}, o.to));
  TROUPE_ASSIGN(const CheckpointReader checkpoint, open_checkpoint(o.from));
  uint64_t bytes = 0;
  std::vector<CheckpointReader::Entry> entries;
  std::vector<std::string> others, left_out;
  for (const auto& e : checkpoint.entries()) {
    const auto dtype = dtype_of_number(e.type);
    if (dtype.ok() && can_hold(kind, *dtype) && can_name(kind, e.name)) {
      entries.push_back(e);
      bytes += e.bytes.value_or(0);
    } else {
      auto& list = e.name == kSavedObjects || o.skip ? left_out : others;
      list.push_back(fmt::format("{} {}{}", in_quotes(e.name), name_of_type(e.type), e.shape.str()));
    }
  }
  if (!others.empty())
    return invalid_argument("{} cannot hold {} of '{}' (--skip leaves out such tensors)", to_string(kind),
                            join(others, ", "), o.from);
  // The check sum of a safetensors file comes first, and with it all values.
  BytesDone progress(kind == CheckpointKind::kSafetensors ? 2 * bytes : bytes);
  std::vector<TensorToSave> tensors;
  for (const auto& e : entries) {
    const std::string name(e.name);
    TROUPE_ASSIGN(const auto described, checkpoint.find(name));
    tensors.push_back({name, described.first, described.second, {}, [&checkpoint, &progress, name]() -> Result<Tensor> {
                         TROUPE_ASSIGN(Tensor value, checkpoint.read(name, {}));
                         progress.add(value.bytes());
                         return value;
                       }});
  }
  TROUPE_RETURN_IF_ERROR(write_checkpoint({}, kind, to, tensors));
  programs::print("{}: {}, {} tensor{}\n", printable(to), to_string(kind), grouped(tensors.size()),
                  tensors.size() == 1 ? "" : "s");
  for (const std::string& other : left_out) programs::print("left out: {}\n", other);
  return {};
}

}  // namespace

void add_checkpoint(CLI::App& app, Job& job) {
  const auto o = std::make_shared<CheckpointArguments>();
  CLI::App& checkpoint =
      *app.add_subcommand("checkpoint", "Lists and converts checkpoints: TensorFlow's (V2 and V1) and safetensors");
  checkpoint.require_subcommand(1);
  const std::string which =
      "A checkpoint: the prefix of TensorFlow's files (model.ckpt of model.ckpt.index), a file, a pattern of files, "
      "or the folder of the latest";

  CLI::App& list_app = *checkpoint.add_subcommand("list", "Prints the tensors: name, type, shape, bytes");
  list_app.add_option("CHECKPOINT", o->from, which)->required();
  list_app.add_flag("--json", o->json, "Print JSON");
  list_app.callback([o, &job] { job = [o] { return list(*o); }; });

  CLI::App& convert_app =
      *checkpoint.add_subcommand("convert", "Writes a checkpoint in another format, tensor by tensor");
  convert_app.add_option("FROM", o->from, which)->required();
  convert_app
      .add_option("TO", o->to,
                  "A name that ends in .safetensors, or the prefix of a TensorFlow checkpoint (V2); what is there "
                  "already is replaced once the new one is whole")
      ->required();
  convert_app.add_option("--to", o->format, "The format, whatever the name")
      ->check(CLI::IsMember({"v2", "v1", "safetensors"}));
  convert_app.add_flag(
      "--skip", o->skip,
      "Leave out tensors that the format cannot hold, and say which; without it they are an error, but "
      "for what tf.train.Checkpoint notes of its objects");
  convert_app.callback([o, &job] { job = [o] { return convert(*o); }; });
}

}  // namespace troupe
