// SPDX-License-Identifier: Apache-2.0
#include "io/file_kind.h"

#include <algorithm>
#include <string_view>

#include "io/crc32c.h"
#include "io/varint.h"

namespace troupe {
namespace {

struct FirstBytes {
  size_t at;
  std::string_view bytes;
  const char* kind;
};

constexpr FirstBytes kFirstBytes[] = {
    {0, std::string_view("\x89HDF\r\n\x1a\n", 8), "an HDF5 file (.h5)"},
    {0, std::string_view("PK\3\4", 4), "a ZIP archive (.npz, .keras, or PyTorch's)"},
    {0, std::string_view("\x93NUMPY", 6), "a NumPy array (.npy)"},
    {0, std::string_view("\x1f\x8b", 2), "a gzip file"},
    {0, std::string_view("\x28\xb5\x2f\xfd", 4), "a Zstandard file"},
    {0, std::string_view("\x89PNG", 4), "a PNG picture"},
    {0, std::string_view("\xff\xd8\xff", 3), "a JPEG picture"},
    {0, std::string_view("GIF8", 4), "a GIF picture"},
    {0,
     std::string_view("\x7f"
                      "ELF",
                      4),
     "a program"},
    {0, std::string_view("GGUF", 4), "a GGUF file"},
    {4, std::string_view("TFL3", 4), "a TensorFlow Lite model"},
    {0, std::string_view("\x80\2", 2), "a Python pickle (PyTorch's)"},
    {0, std::string_view("\x80\3", 2), "a Python pickle"},
    {0, std::string_view("\x80\4", 2), "a Python pickle"},
    {0, std::string_view("\x08\1\x12", 3), "a SavedModel's graph (its checkpoint is variables/variables beside it)"},
    {0, "model_checkpoint_path:", "the text that says which checkpoint is the latest"},
    {0, "all_model_checkpoint_paths:", "the text that says which checkpoint is the latest"},
    {0, "version https://git-lfs", "what Git LFS leaves of a file that was not fetched"},
    {0, "<!DOCTYPE", "a web page"},
    {0, "<html", "a web page"},
};

/// A record's length and its sum.
bool begins_as_records(std::string_view head) {
  return head.size() >= 12 && word_at(head.substr(8)) == mask_crc(crc32c(head.data(), 8));
}

/// A node, which begins with its name.
bool begins_as_graph(std::string_view head) {
  if (!head.starts_with('\n')) return false;
  head.remove_prefix(1);
  const auto node = take_varint(head);
  if (!node || !head.starts_with('\n')) return false;
  head.remove_prefix(1);
  const auto name = take_varint(head);
  return name && *name > 0 && *name < *node;
}

}  // namespace

std::string kind_of_file(const ReadableFile& file) {
  std::string head(std::min<uint64_t>(file.size(), 256), '\0');
  if (head.empty()) return "empty";
  if (!file.read(0, head.data(), head.size()).ok()) return "unreadable";
  for (const auto& [at, bytes, kind] : kFirstBytes)
    if (head.size() > at && std::string_view(head).substr(at).starts_with(bytes)) return kind;
  if (begins_as_records(head)) return "records (TFRecord, or events of TensorBoard)";
  if (begins_as_graph(head)) return "a graph (GraphDef)";
  const auto readable = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == '\n' || byte == '\r' || byte == '\t' || (byte >= 32 && byte != 127);
  };
  if (std::ranges::all_of(head, readable)) return head[0] == '{' ? "JSON text" : "text";
  return "something unknown";
}

}  // namespace troupe
