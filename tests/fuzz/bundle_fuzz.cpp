// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any entries of an index and any data as a TensorFlow checkpoint (V2). What is read must survive
// being written and read again. After the entries come the data of one shard.
#include "io/checkpoint_reader.h"
#include "io/crc32c.h"
#include "io/saved_tensors.pb.h"
#include "io/tensor_bundle.h"
#include "tests/fuzz/table_entries.h"

using namespace troupe;

namespace {

/// The sums of numbers' bytes are made right.
void repair(testing::TableEntries& entries, std::string_view data) {
  for (auto& [key, value] : entries) {
    proto::BundleEntry entry;
    if (key.empty() || !entry.ParseFromString(value) || entry.dtype() == static_cast<int>(DType::kString)) continue;
    const auto at = static_cast<uint64_t>(entry.offset()), size = static_cast<uint64_t>(entry.size());
    if (at > data.size() || size > data.size() - at) continue;
    entry.set_crc32c(mask_crc(crc32c(data.data() + at, size)));
    value = entry.SerializeAsString();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(bytes), size);
  auto entries = testing::take_entries(rest);
  repair(entries, rest);
  const auto files = std::make_shared<SimulatedFiles>();
  testing::put_table(*files, "d/m.index", entries);
  if (!(*files->create("d/m.data-00000-of-00001"))->append(rest.data(), rest.size()).ok()) std::abort();

  const FileAccess access{files, {}};
  const auto reader = CheckpointReader::open(access, "d/m");
  if (!reader.ok()) return 0;
  std::vector<TensorToSave> tensors;
  for (const auto& entry : reader->entries()) {
    const std::string name(entry.name);
    auto value = reader->read(name, {});
    if (!value.ok()) continue;
    if (value->elements() > 0 && !reader->read(name, TensorSlice::all(value->shape()))->identical(*value)) std::abort();
    tensors.push_back(
        {name, value->dtype(), value->shape(), {}, [value = *value]() -> Result<Tensor> { return value; }});
  }
  if (!write_bundle(access, "d/copy", tensors).ok()) std::abort();
  const auto again = CheckpointReader::open(access, "d/copy");
  if (!again.ok() || again->entries().size() != tensors.size()) std::abort();
  for (const TensorToSave& t : tensors)
    if (!again->read(t.name, {})->identical(*t.value())) std::abort();
  return 0;
}
