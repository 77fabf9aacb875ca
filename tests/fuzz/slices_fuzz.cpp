// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any entries of a table as a TensorFlow checkpoint (V1). What is read must survive being written and
// read again.
#include "io/checkpoint_reader.h"
#include "io/slice_checkpoint.h"
#include "tests/fuzz/table_entries.h"

using namespace troupe;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(bytes), size);
  const auto files = std::make_shared<SimulatedFiles>();
  testing::put_table(*files, "d/m", testing::take_entries(rest));
  const FileAccess access{files, {}};
  const auto reader = CheckpointReader::open(access, "d/m");
  if (!reader.ok()) return 0;
  std::vector<TensorToSave> tensors;
  for (const auto& entry : reader->entries()) {
    auto value = reader->read(std::string(entry.name), {});
    if (!value.ok()) continue;
    TensorToSave tensor{
        std::string(entry.name), value->dtype(), value->shape(), {}, [value = *value]() -> Result<Tensor> {
          return value;
        }};
    // Some types are read, for the sake of others that may have written them, and not written.
    if (write_slice_checkpoint(access, "d/one", std::span(&tensor, 1)).ok()) tensors.push_back(std::move(tensor));
    else if (value->dtype() != DType::kBFloat16 && value->dtype() != DType::kUInt32 && value->dtype() != DType::kUInt64)
      std::abort();
  }
  if (!write_slice_checkpoint(access, "d/copy", tensors).ok()) std::abort();
  const auto again = CheckpointReader::open(access, "d/copy");
  if (!again.ok() || again->entries().size() != tensors.size()) std::abort();
  for (const TensorToSave& t : tensors)
    if (!again->read(t.name, {})->identical(*t.value())) std::abort();
  return 0;
}
