// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli), the check sum of TFRecord, TensorBoard events and our checkpoints.
#pragma once
#include <cstddef>
#include <cstdint>

namespace troupe {

/// The CRC-32C of `bytes` bytes; `crc` is that of what comes before them. Uses SSE 4.2 where the processor has it.
uint32_t crc32c(const void* data, size_t bytes, uint32_t crc = 0);
/// The same by tables alone; agrees with crc32c() everywhere.
uint32_t crc32c_portable(const void* data, size_t bytes, uint32_t crc = 0);

/// The form stored in TFRecord files, so that a sum of data that holds sums stays sound.
inline uint32_t mask_crc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

}  // namespace troupe
